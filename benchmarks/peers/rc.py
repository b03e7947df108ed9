"""RC: layer-wise recompute of the affected set (RIPPLE, section 4.2; NeutronRT's RTEC-UER).

Embeddings of every layer are stored. Per layer: affected = targets of edge updates + out(changed) + changed; each
affected row pulls the rows of all its in-neighbours, changed or not, by one embedding_bag (torch's fused gather and
segment sum: faster than segment_reduce, index_add_ and reduceat), then one GEMM. GCN multiplies before it aggregates,
as its definition does: message rows s_u W x_u are stored, and only those of changed sources are multiplied again.
A maximum or minimum is pulled by a reducing CSR product.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.engine.adjacency import Adjacency, union
from benchmarks.engine.networks import EXTREMES, Network, layer_weights
from benchmarks.engine.stream import Batch, Workload
from benchmarks.peers.bootstrap import State, bootstrap, copied, transform
from benchmarks.peers.extremes import bag_extremes

SUM_MODE = 0


class RecomputeAffected:
    """rows[k]: embeddings of layer k (rows[0] the features); messages[k]: GCN's stored message rows."""

    name = "RC (affected recompute)"

    def __init__(self, workload: Workload, kind: str, module: Network, state: State | None = None) -> None:
        state = bootstrap(workload, kind, module) if state is None else state
        self.kind = kind
        self.layers = layer_weights(kind, module)
        self.out = Adjacency(workload.vertices, workload.src, workload.dst)
        self.into = Adjacency(workload.vertices, workload.dst, workload.src)
        self.mark = np.zeros(workload.vertices, bool)
        self.rows = copied(state.rows)
        self.messages = copied(state.messages)

    def _refresh_messages(self, k: int, vertices: npt.NDArray[np.int32]) -> None:
        index = torch.from_numpy(vertices)
        scale = torch.from_numpy((self.into.length[vertices] + 1).astype(np.float32)).rsqrt_().unsqueeze(1)
        fresh = torch.mm(self.rows[k].index_select(0, index), self.layers[k].neighbour)
        self.messages[k].index_copy_(0, index.long(), fresh.mul_(scale))

    def _pulled(self, k: int, vertices: npt.NDArray[np.int32]) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
        neighbours, counts = self.into.gather(vertices)
        if self.kind in EXTREMES:
            return bag_extremes(self.rows[k], neighbours, np.append(0, np.cumsum(counts)), EXTREMES[self.kind]), counts
        offsets = torch.from_numpy((np.cumsum(counts) - counts).astype(np.int32))
        table = self.messages[k] if self.kind == "gcn" else self.rows[k]
        bags = torch.embedding_bag(table, torch.from_numpy(neighbours), offsets, False, SUM_MODE)
        return bags[0], counts

    def _recompute(self, k: int, vertices: npt.NDArray[np.int32]) -> None:
        index = torch.from_numpy(vertices)
        aggregate, counts = self._pulled(k, vertices)
        layer = self.layers[k]
        if self.kind == "gcn":
            scale = torch.from_numpy((counts + 1).astype(np.float32)).rsqrt_().unsqueeze(1)
            aggregate += self.messages[k].index_select(0, index)
            z = aggregate.mul_(scale).add_(layer.bias)
        else:
            if self.kind == "sage":
                aggregate /= torch.from_numpy(np.maximum(counts, 1).astype(np.float32)).unsqueeze(1)
            z = transform(layer, aggregate, self.rows[k].index_select(0, index))
        if k + 1 < len(self.layers):
            z.relu_()
        self.rows[k + 1].index_copy_(0, index.long(), z)

    def apply(self, batch: Batch) -> None:
        for adjacency, forward in ((self.out, True), (self.into, False)):
            ends = (batch.remove_src, batch.remove_dst) if forward else (batch.remove_dst, batch.remove_src)
            adjacency.remove(*ends)
            ends = (batch.add_src, batch.add_dst) if forward else (batch.add_dst, batch.add_src)
            adjacency.add(*ends)
        changed = batch.feature_ids
        targets = np.concatenate([batch.add_dst, batch.remove_dst])
        with torch.inference_mode():
            self.rows[0].index_copy_(0, torch.from_numpy(changed).long(), torch.from_numpy(batch.feature_rows))
            for k in range(len(self.layers)):
                if self.kind == "gcn":
                    changed = union(self.mark, changed, targets)
                    self._refresh_messages(k, changed)
                reached = self.out.gather(changed)[0] if len(changed) else changed
                changed = union(self.mark, targets, changed, reached)
                self._recompute(k, changed)

    def output(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.rows[-1][torch.from_numpy(ids)].numpy()

    def state_bytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows + self.messages)
