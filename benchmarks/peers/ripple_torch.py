"""RIPPLE with torch: mailboxes by embedding_bag, transforms by torch's GEMM."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.engine.networks import Network, layer_weights
from benchmarks.engine.stream import Batch, Workload
from benchmarks.peers.bootstrap import State, bootstrap, copied, transform
from benchmarks.peers.rc import SUM_MODE
from benchmarks.peers.ripple import Bags, Int64, Ripple


class RippleTorch(Ripple):
    """rows[k] embeddings (rows[0] the features), sums[k] aggregates of rows[k]."""

    name = "RIPPLE (torch)"

    def __init__(self, workload: Workload, kind: str, module: Network, state: State | None = None) -> None:
        super().__init__(workload, kind)
        self.layers = layer_weights(kind, module)
        self.layer_count = len(self.layers)
        state = bootstrap(workload, kind, module) if state is None else state
        self.rows, self.sums = copied(state.rows), copied(state.sums)

    def apply(self, batch: Batch) -> None:
        with torch.inference_mode():
            super().apply(batch)

    def take(self, k: int, vertices: Int64, positive: int) -> torch.Tensor:
        rows = self.rows[k].index_select(0, torch.from_numpy(vertices))
        rows[positive:].neg_()
        return rows

    def replace_features(self, vertices: Int64, rows: npt.NDArray[np.float32]) -> torch.Tensor:
        index, fresh = torch.from_numpy(vertices), torch.from_numpy(rows)
        delta = fresh - self.rows[0].index_select(0, index)
        self.rows[0].index_copy_(0, index, fresh)
        return delta

    def stack(self, delta: torch.Tensor, posted: torch.Tensor) -> torch.Tensor:
        return torch.cat([delta, posted, delta.new_zeros(1, posted.shape[1])])

    def sum_bags(self, bags: Bags, rows: torch.Tensor) -> torch.Tensor:
        offsets = torch.from_numpy(bags.offset)
        return torch.embedding_bag(rows, torch.from_numpy(bags.row), offsets, False, SUM_MODE)[0]

    def deliver(self, k: int, vertices: Int64, mail: torch.Tensor) -> torch.Tensor:
        index = torch.from_numpy(vertices)
        aggregate = mail.add_(self.sums[k].index_select(0, index))
        self.sums[k].index_copy_(0, index, aggregate)
        if self.kind == "sage":
            degree = np.maximum(self.in_degree[vertices], 1).astype(np.float32)
            aggregate = aggregate / torch.from_numpy(degree).unsqueeze(1)
        z = transform(self.layers[k], aggregate, self.rows[k].index_select(0, index))
        if k + 1 < self.layer_count:
            z.relu_()
        delta = z - self.rows[k + 1].index_select(0, index)
        self.rows[k + 1].index_copy_(0, index, z)
        return delta

    def output(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.rows[-1][torch.from_numpy(ids)].numpy()

    def state_bytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows + self.sums)
