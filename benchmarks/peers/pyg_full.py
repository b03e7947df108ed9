"""PyG, one full run per batch, on its CSR path (torch.sparse CSR of the transposed adjacency, no messages
materialised).

The CSR is edited by the batch (np.delete, np.insert: one pass over the columns, cheaper than a rebuild by sorting)
and that pass is counted. GCN's symmetric weights are computed from the row lengths of the CSR with the self-loops
already in it and the layers run with normalize=False: PyG's own gcn_norm on a sparse tensor goes through COO and
costs more.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.nn import GCNConv

from benchmarks.engine.networks import Network
from benchmarks.engine.stream import Batch, Workload


class PygFull:
    """in_ptr, in_src: the CSR rows of destinations, with self-loops where the model adds them."""

    name = "PyG full (CSR)"

    def __init__(self, workload: Workload, kind: str, module: Network) -> None:
        self.module = copy.deepcopy(module)
        self.features = torch.from_numpy(workload.features.copy())
        self.symmetric = kind == "gcn"
        src, dst = workload.src, workload.dst
        if self.symmetric:
            loops = np.arange(workload.vertices, dtype=np.int32)
            src, dst = np.concatenate([src, loops]), np.concatenate([dst, loops])
            for conv in self.module.convs:
                assert isinstance(conv, GCNConv)
                conv.normalize = conv.add_self_loops = False
        self.in_ptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=workload.vertices))])
        keys = dst.astype(np.int64) * workload.vertices + src
        keys.sort()
        self.in_src = keys % workload.vertices
        self.embeddings = self.run()

    def edit(self, batch: Batch) -> None:
        """Bring the CSR and the features up to date."""
        if len(batch.remove_src):
            taken: set[int] = set()
            for u, v in zip(batch.remove_src, batch.remove_dst, strict=True):
                begin, end = self.in_ptr[v], self.in_ptr[v + 1]
                hits = begin + np.flatnonzero(self.in_src[begin:end] == u)
                taken.add(next(int(i) for i in hits if int(i) not in taken))  # parallel edges: another one each time
            self.in_src = np.delete(self.in_src, np.fromiter(taken, np.int64))
            self._shift(batch.remove_dst, -1)
        if len(batch.add_src):
            order = np.argsort(batch.add_dst, kind="stable")  # empty rows share a position: rows in order
            self.in_src = np.insert(self.in_src, self.in_ptr[batch.add_dst[order] + 1], batch.add_src[order])
            self._shift(batch.add_dst, 1)
        self.features[torch.from_numpy(batch.feature_ids.astype(np.int64))] = torch.from_numpy(batch.feature_rows)

    def _shift(self, vertices: npt.NDArray[np.int32], by: int) -> None:
        change = np.bincount(vertices, minlength=len(self.in_ptr) - 1)
        self.in_ptr[1:] += by * np.cumsum(change)

    def run(self) -> torch.Tensor:
        """The module on the CSR as it is: one full run."""
        if self.symmetric:
            scale = torch.from_numpy(np.diff(self.in_ptr)).float().rsqrt()
            degree = torch.from_numpy(np.diff(self.in_ptr))
            values = torch.repeat_interleave(scale, degree) * scale[torch.from_numpy(self.in_src)]
        else:
            values = torch.ones(len(self.in_src))
        vertices = len(self.in_ptr) - 1
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # torch: "Sparse CSR tensor support is in beta state"
            pointers = torch.from_numpy(self.in_ptr.copy())
            matrix = torch.sparse_csr_tensor(pointers, torch.from_numpy(self.in_src), values, (vertices, vertices))
            return self.module(self.features, matrix)  # type: ignore[no-any-return]

    def apply(self, batch: Batch) -> None:
        self.edit(batch)
        self.embeddings = self.run()

    def output(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.embeddings[torch.from_numpy(ids)].numpy()

    def state_bytes(self) -> int:
        return self.features.nbytes + self.embeddings.nbytes
