"""TemporalView: what a large answer of a TemporalEngine reads, of one version, while batches go on.

The graph's half is a PinnedSampler. The memory's half are the rows that batches are about to change: the engine keeps
them here, before its memory observes a batch, for every view that is open on that memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.optional import need
from livegnn.types import Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.inputs import TemporalInput
    from livegnn.temporal.models.interface import TemporalModel
    from livegnn.temporal.pin import PinnedSampler


class TemporalView:
    """One version as a model reads it. The caller of every method holds the graph's lock.

    Args:    model: whose memory is read.  source: an open pin of the version; None where the caller holds the graph's
             lock as long as it reads, and nothing changes.  slot_count: of the version.  device: of the memory.
    """

    def __init__(self, model: TemporalModel, source: PinnedSampler | None, slot_count: int, device: Any) -> None:
        self.model, self.source = model, source
        self._slot_count, self._device = slot_count, device
        self._kept: list[tuple[Int64Array, torch.Tensor]] = []  # (slots, sorted, and their rows), by batch

    def keep(self, slots: Int64Array) -> None:
        """The memory is about to change at these slots."""
        memory: Any = self.model.memory
        slots = np.unique(slots[slots < self._slot_count])
        torch = need("torch", "train")
        with torch.no_grad():
            rows = memory.read(torch.from_numpy(slots).to(self._device))
        self._kept.append((slots, rows))

    def recalled(self, inputs: Sequence[TemporalInput]) -> Sequence[TemporalInput]:
        """The inputs with the memory of their rows as it was in this version, where the model reads it beforehand."""
        return [self._as_it_was(one) for one in self.model.recall(inputs)]

    def _as_it_was(self, one: TemporalInput) -> TemporalInput:
        if one.memory is None or not self._kept:
            return one
        memory, asked = one.memory.clone(), one.rows.cpu().numpy()
        for slots, rows in reversed(self._kept):  # of a row that changed twice the first is the version's
            at = np.minimum(np.searchsorted(slots, asked), max(len(slots) - 1, 0))
            found = np.flatnonzero(slots[at] == asked) if len(slots) else at[:0]
            memory[found] = rows[at[found]]
        return replace(one, memory=memory)
