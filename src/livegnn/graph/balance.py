"""Units of load and their owners: which units move to make loads even, and when. Partitions and sampling workers alike.

A unit is a bucket of a hash, or a part of a finer partition. Units are dealt out in turn, and move one by one: the best
unit of the most loaded owner goes to the least loaded one, the best being that after which the larger of the two loads
is least. So each move makes the larger load less.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.types import BoolArray, Float64Array, Int64Array

UnitOwners: TypeAlias = npt.NDArray[np.uint16]


class UnitMoves(NamedTuple):
    """units[i] goes to part to[i]; both empty where nothing moves. As VertexParts.moved_buckets() takes them."""

    units: Int64Array
    to: UnitOwners


def dealt_buckets(owners: int) -> UnitOwners:
    """The map that deals the buckets of a hash out in turn, (1024,)."""
    return (np.arange(_native.BUCKETS) % owners).astype(np.uint16)


def levelling_moves(
    owners: UnitOwners,
    load: Float64Array,
    count: int,
    *,
    stop: float,
    fixed: Float64Array | None = None,
    can_move: BoolArray | None = None,
    moves_max: int = _native.BUCKETS,
) -> UnitMoves:
    """The moves after which no owner has more than `stop` times the mean load, or as near as single units get.

    Args:    owners: of each unit.  load: of each unit.  count: of owners; units of owners from `count` on all go, the
             heaviest first, each to the least loaded one.  fixed: (count,) load that cannot move.  can_move: which
             units may, all unless given.  moves_max: at most so many, those of owners that leave aside.
    """
    owners, movable = owners.copy(), (load > 0) if can_move is None else can_move & (load > 0)
    loads = np.bincount(owners, load, minlength=count).astype(np.float64, copy=False)
    leaving = np.flatnonzero(owners >= count)
    loads = loads[:count] if fixed is None else loads[:count] + fixed
    units: list[int] = []

    def move(unit: int, target: int) -> None:
        loads[target] += load[unit]
        owners[unit], movable[unit] = target, False
        units.append(unit)

    for unit in leaving[np.argsort(-load[leaving], kind="stable")].tolist():
        move(unit, int(loads.argmin()))
    mean, end = float(loads.mean()), len(units) + moves_max
    while len(units) < end and loads.max() > stop * mean:
        source, target = int(loads.argmax()), int(loads.argmin())
        mine = np.flatnonzero((owners == source) & movable)
        larger = np.maximum(loads[source] - load[mine], loads[target] + load[mine])
        if not len(mine) or larger.min() >= loads[source]:
            break
        unit = int(mine[larger.argmin()])
        loads[source] -= load[unit]
        move(unit, target)
    chosen = np.array(units, np.int64)
    return UnitMoves(chosen, owners[chosen])


@final
class Trend:
    """What several looks at a load in a row agree on, so that short peaks change nothing.

    Args:    patience: looks in a row for more.  idle_patience: for less.  rest: looks after a change in which nothing
             changes.
    """

    def __init__(self, patience: int, rest: int, idle_patience: int = 1) -> None:
        self._patience, self._rest, self._idle_patience = patience, rest, idle_patience
        self._hot, self._idle, self._resting = 0, 0, 0

    def look(self, hot: bool, idle: bool = False) -> int:
        """1 more, -1 less, 0 nothing."""
        self._resting = max(0, self._resting - 1)
        self._hot, self._idle = (self._hot + 1 if hot else 0), (self._idle + 1 if idle else 0)
        if self._resting:
            return 0
        return int(self._hot >= self._patience) - int(self._idle >= self._idle_patience)

    @property
    def rests(self) -> bool:
        """Whether nothing changes now, whatever the load."""
        return self._resting > 0

    def changed(self) -> None:
        """Something was changed: the rest begins."""
        self._hot, self._idle, self._resting = 0, 0, self._rest
