"""Which units move when the load is uneven: buckets of a hash, or parts of a finer partition. A state machine.

Each observation gives the load of every unit since the last one (queries, updates, seconds). The smoothed load of a
unit follows it; that of a part is the sum of its units. With r = the largest load of a part over the mean:

    quiet -> busy    r > start in `patience` observations in a row: a round of moves
    busy  -> moves   r > stop in `patience` in a row, and `rest` since the last round: another one
    busy  -> quiet   r <= stop after the rest; or a round would not make r less by `gain_min`, and then is not made

A round levels parts by single units (graph/balance.py), until r <= stop, or `moves_max` have moved, or none helps. A
unit that has moved stays for `stay` observations.

Never oscillating: under a constant load each round makes r less by gain_min, so that there are at most
(r - 1) / gain_min of them. A load that swings faster than the smoothing moves little. Under any load a unit moves at
most once in `stay` observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from livegnn.distributed.partition.parts import Uint16Array, check_part_count
from livegnn.errors import UsageError
from livegnn.graph.balance import Trend, UnitMoves, levelling_moves
from livegnn.types import AnyArray, Float64Array


@dataclass(frozen=True, kw_only=True)
class RebalanceSettings:
    """When to move. start, stop: the largest load over the mean.  patience, rest, stay: observations.  smoothing: the
    share of the newest observation in the smoothed load.  gain_min: of the mean.  moves_max: of a round.

    Raises: UsageError.
    """

    start: float = 1.25
    stop: float = 1.1
    patience: int = 3
    rest: int = 5
    stay: int = 30
    smoothing: float = 0.25
    gain_min: float = 0.02
    moves_max: int = 64

    def __post_init__(self) -> None:
        numbers = (self.patience, self.rest, self.stay, self.moves_max)
        if any(type(number) is not int or number < 1 for number in numbers):
            raise UsageError(f"[RebalanceSettings] expected whole numbers from 1, got {numbers}; give such numbers")
        if not (1 <= self.stop < self.start and 0 < self.smoothing <= 1 and self.gain_min > 0):
            raise UsageError(
                f"[RebalanceSettings] expected 1 <= stop < start, 0 < smoothing <= 1 and gain_min above 0, got "
                f"{self.stop}, {self.start}, {self.smoothing} and {self.gain_min}; leave a gap between start and stop"
            )


@final
class Rebalancer:
    """Follows the load and says which units move. It takes them as moved at once: while moves are under way, do not
    observe.

    Args:    owners: the part of each unit.  parts: how many.
    Raises:  UsageError.
    """

    def __init__(self, owners: Uint16Array, parts: int, settings: RebalanceSettings | None = None) -> None:
        self.parts = check_part_count("Rebalancer", parts)
        self.owners = np.array(owners, np.uint16)
        if self.owners.ndim != 1 or not len(self.owners) or self.owners.max() >= self.parts:
            raise UsageError(f"[Rebalancer] expected a part below {parts} for each unit, got others; see the owners")
        self.settings = RebalanceSettings() if settings is None else settings
        self._load: Float64Array | None = None
        self._busy = False
        self._trend = Trend(self.settings.patience, self.settings.rest)
        self._now = 0  # observations so far
        self._free = np.zeros(len(self.owners), np.int64)  # from this observation on, each unit may move

    @property
    def loads(self) -> Float64Array:
        """The smoothed load of each part, (parts,)."""
        load = np.zeros(len(self.owners)) if self._load is None else self._load
        return np.bincount(self.owners, load, minlength=self.parts).astype(np.float64, copy=False)

    @property
    def ratio(self) -> float:
        """The largest smoothed load of a part over the mean; 1 without load. Parts of a table are repartitioned where
        it stays high."""
        loads = self.loads
        total = float(loads.sum())
        return float(loads.max()) * self.parts / total if total > 0 else 1.0

    def observe(self, load: AnyArray) -> UnitMoves:
        """Takes the load of each unit since the last observation; the moves that follow from it.

        Raises: UsageError for other numbers than one from 0 for each unit.
        """
        given = np.asarray(load, np.float64)
        if given.shape != self.owners.shape or not np.isfinite(given).all() or given.min() < 0:
            raise UsageError(
                f"[observe] expected {len(self.owners)} loads from 0, got {given.shape}; give one for each unit"
            )
        share = self.settings.smoothing
        self._load = given if self._load is None else self._load + share * (given - self._load)
        self._now += 1
        uneven = self.ratio > (self.settings.stop if self._busy else self.settings.start)
        agreed = self._trend.look(uneven)
        self._busy &= uneven or self._trend.rests
        if not agreed:
            return UnitMoves(np.zeros(0, np.int64), np.zeros(0, np.uint16))
        moves = self._chosen(self._load)
        self._trend.changed()
        self.owners[moves.units] = moves.to
        self._busy = len(moves.units) > 0
        self._free[moves.units] = self._now + self.settings.stay
        return moves

    def _chosen(self, load: Float64Array) -> UnitMoves:
        """The next round; empty where it would not help."""
        rules, loads = self.settings, self.loads
        moves = levelling_moves(
            self.owners,
            load,
            self.parts,
            stop=rules.stop,
            can_move=self._free <= self._now,
            moves_max=rules.moves_max,
        )
        after = self.owners.copy()
        after[moves.units] = moves.to
        most = float(np.bincount(after, load, minlength=self.parts).max())
        helps = float(loads.max()) - most >= rules.gain_min * float(loads.mean())
        return moves if helps else UnitMoves(moves.units[:0], moves.to[:0])
