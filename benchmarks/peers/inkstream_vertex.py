"""InkStream vertex by vertex, in the paper's order: targets of a layer one after the other, transforms in one GEMM.

Rows of one vertex are short, so most of a visit is call overhead: NumPy's calls on torch's memory where few rows are
read, torch's threads where many are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.engine.generate import Floats, Ids
from benchmarks.engine.networks import Network
from benchmarks.engine.stream import Workload
from benchmarks.peers.bootstrap import State
from benchmarks.peers.inkstream import FLOAT_BYTES, InkStream, LayerCounts
from benchmarks.peers.ripple import Bags

MANY_ROWS = 128  # from here torch's gather and reduction win


class InkStreamVertex(InkStream):
    """row_views, aggregate_views: the tables as NumPy sees them."""

    name = "InkStream (by vertex)"

    def __init__(self, workload: Workload, kind: str, module: Network, state: State | None = None) -> None:
        super().__init__(workload, kind, module, state)
        self.row_views: list[Floats] = [rows.numpy() for rows in self.rows]
        self.aggregate_views: list[Floats] = [aggregates.numpy() for aggregates in self.aggregates]

    def aggregate(self, k: int, deletions: Bags, additions: Bags, old: torch.Tensor, counts: LayerCounts) -> Ids:
        old_rows, rows, aggregates = old.numpy(), self.row_views[k], self.aggregate_views[k]
        added, deleted = _by_target(additions), _by_target(deletions)
        evolved = []
        for v in sorted(added.keys() | deleted.keys()):
            current = aggregates[v]
            addition = self._reduced(rows, added[v]) if v in added else None
            deletion = self._reduced(old_rows, deleted[v]) if v in deleted else None
            fresh = self._updated(current, deletion, addition, counts)
            if fresh is None:
                fresh = self._recomputed(k, v, counts)
            if (fresh == current).all():
                counts.resilient += 1
            else:
                aggregates[v] = fresh
                evolved.append(v)
        return np.array(evolved, np.int32)

    def _updated(
        self, current: Floats, deletion: Floats | None, addition: Floats | None, counts: LayerCounts
    ) -> Floats | None:
        """The aggregate after one Del and one Add row (None: no such event); None if the reset is exposed."""
        if deletion is None:
            counts.no_deletion += 1
        else:
            reset = current == deletion
            if not reset.any():
                counts.no_effect += 1
            elif addition is None or (reset & self.extreme.worse(addition, deletion)).any():
                counts.exposed += 1
                return None
            else:
                counts.covered += 1
        return current if addition is None else self.extreme.ufunc(current, addition)

    def _recomputed(self, k: int, v: int, counts: LayerCounts) -> Floats:
        begin, count = int(self.into.start[v]), int(self.into.length[v])
        rows = self.row_views[k]
        counts.reread_bytes += count * rows.shape[1] * FLOAT_BYTES
        if count == 0:
            return np.full(rows.shape[1], self.extreme.identity, np.float32)
        return self._reduced(rows, self.into.pool[begin : begin + count])

    def _reduced(self, table: Floats, index: npt.NDArray[np.integer]) -> Floats:
        """Extreme of table[index] by columns."""
        if len(index) == 1:
            return table[index[0]]  # type: ignore[no-any-return]
        if len(index) < MANY_ROWS:
            return self.extreme.ufunc.reduce(table.take(index, axis=0))  # type: ignore[no-any-return]
        gathered = torch.from_numpy(table).index_select(0, torch.from_numpy(index))
        return self.extreme.over_rows(gathered, 0).numpy()


def _by_target(bags: Bags) -> dict[int, npt.NDArray[np.int64]]:
    """Rows of each target's events."""
    ends = [*bags.offset.tolist(), len(bags.row)]
    return {v: bags.row[ends[i] : ends[i + 1]] for i, v in enumerate(bags.destination.tolist())}
