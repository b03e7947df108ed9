"""The output rows that a batch moved, of one part and of all, as NativeChanges.take_moves() has those of one engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from livegnn.types import AnyArray, Float32Array, Int64Array

# Slots that are live after the batch, ascending, and then those that are gone; how many are gone; whether there was no
# row before; rows before and after, zeros where there is none.
Moves: TypeAlias = tuple[Int64Array, int, AnyArray, Float32Array, Float32Array]


def own_moves(moves: Moves, names: Int64Array) -> Moves:
    """Those of a part's own vertices, by slots of the whole graph.

    A vertex that the batch removes and adds again has two slots in a part; it is one that moved.
    Args:  names: of the slots, -1 of ghosts.
    """
    _, gone, is_new, before, after = moves
    live = np.flatnonzero(names[: len(names) - gone] >= 0)
    left = len(names) - gone + np.flatnonzero(names[len(names) - gone :] >= 0)
    again, at, was = np.intersect1d(names[live], names[left], assume_unique=True, return_indices=True)
    if len(again):
        is_new, before = is_new.copy(), before.copy()
        is_new[live[at]], before[live[at]] = 0, before[left[was]]
        left = np.delete(left, was)
    rows = np.concatenate([live[np.argsort(names[live])], left[np.argsort(names[left])]])
    return names[rows], len(left), is_new[rows], before[rows], after[rows]


def merged_moves(parts: Sequence[Moves]) -> Moves:
    """Those of all parts; a slot is of one of them."""
    slots, is_new, before, after = (np.concatenate([part[at] for part in parts]) for at in (0, 2, 3, 4))
    is_gone = np.concatenate([np.arange(len(part[0])) >= len(part[0]) - part[1] for part in parts])
    order = np.lexsort((slots, is_gone))
    return slots[order], int(is_gone.sum()), is_new[order], before[order], after[order]
