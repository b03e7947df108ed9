"""InkStream with all targets of a layer at once: the same events, conditions and prunings, on blocks of rows.

The paper visits targets one after the other; this is the stronger form of its algorithm where calls cost more than
rows.
"""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.engine.generate import Ids
from benchmarks.peers.extremes import bag_extremes
from benchmarks.peers.inkstream import FLOAT_BYTES, InkStream, LayerCounts
from benchmarks.peers.ripple import Bags, Int64


class InkStreamLayer(InkStream):
    """Row i of a block belongs to targets[i]."""

    name = "InkStream (by layer)"

    def aggregate(self, k: int, deletions: Bags, additions: Bags, old: torch.Tensor, counts: LayerCounts) -> Ids:
        targets = np.union1d(deletions.destination, additions.destination)
        current = self.aggregates[k].index_select(0, torch.from_numpy(targets))
        addition = torch.full_like(current, self.extreme.identity)
        at = torch.from_numpy(np.searchsorted(targets, additions.destination))
        addition.index_copy_(0, at, self._reduced(self.rows[k], additions))
        fresh = self.extreme.pair(current, addition)
        exposed = self._exposed(targets, current, addition, deletions, old, counts)
        if len(exposed):
            fresh.index_copy_(0, torch.from_numpy(exposed), self._recomputed(k, targets[exposed], counts))
        moved = (fresh != current).any(1)
        evolved = targets[moved.numpy()]
        counts.resilient += len(targets) - len(evolved)
        self.aggregates[k].index_copy_(0, torch.from_numpy(evolved), fresh[moved])
        return evolved.astype(np.int32)

    def _exposed(
        self,
        targets: Int64,
        current: torch.Tensor,
        addition: torch.Tensor,
        deletions: Bags,
        old: torch.Tensor,
        counts: LayerCounts,
    ) -> Int64:
        """Places in `targets` whose reset is exposed; counts the other conditions too."""
        places = np.searchsorted(targets, deletions.destination)
        at = torch.from_numpy(places)
        deletion = self._reduced(old, deletions)
        reset = current.index_select(0, at) == deletion
        lost = (reset & self.extreme.worse_rows(addition.index_select(0, at), deletion)).any(1).numpy()
        resets, exposed = int(reset.any(1).sum()), places[lost]
        counts.no_deletion += len(targets) - len(places)
        counts.no_effect += len(places) - resets
        counts.covered += resets - len(exposed)
        counts.exposed += len(exposed)
        return exposed

    def _recomputed(self, k: int, vertices: Int64, counts: LayerCounts) -> torch.Tensor:
        neighbours, degrees = self.into.gather(vertices)
        rows = self.rows[k]
        counts.reread_bytes += len(neighbours) * rows.shape[1] * FLOAT_BYTES
        fresh = bag_extremes(rows, neighbours, np.append(0, np.cumsum(degrees)), self.extreme.name)
        empty = degrees == 0
        if empty.any():
            fresh[torch.from_numpy(empty)] = self.extreme.identity
        return fresh

    def _reduced(self, table: torch.Tensor, bags: Bags) -> torch.Tensor:
        """One row for each bag; bags are never empty."""
        if len(bags.row) == len(bags.offset):
            return table.index_select(0, torch.from_numpy(bags.row))
        return bag_extremes(table, bags.row, np.append(bags.offset, len(bags.row)), self.extreme.name)
