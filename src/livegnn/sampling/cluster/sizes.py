"""Sizes that follow load: which buckets move, and when a worker comes or goes. A state machine without a clock.

One look says what was asked since the look before. A look changes nothing unless `patience` looks in a row agree, and
after a change nothing changes for `rest` looks: the new workers fill meanwhile. Of a hot worker, hot buckets move to
the coldest one; where all are hot alike, one more worker comes. High and low marks lie far apart, so what one change
brings does not ask for its opposite.

Source: Helios, section 4.1: sampling and serving scale apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.graph.balance import Trend, levelling_moves
from livegnn.sampling.cluster.partition import Owners, Serving, workers_in
from livegnn.types import Float64Array, Int64Array

_IDLE_LOOKS = 4  # times the patience: shrinking takes longer than growing
_DRAINS = 0.95  # a queue that is shorter than this of what it was needs time, not workers
_NEAR = 0.02  # of the mean load of workers: nearer than this is good enough


class SizeRules(NamedTuple):
    """When sizes follow load.

    look_seconds: between two looks.  patience, rest: in looks, see above.  waiting_high, waiting_low: questions that
    wait for a serving worker or are being answered there, on average; above, it is hot, and where all are below, one
    may go.  busy_high, busy_low: the same for the share of time that a sampling worker works.  spread: the load of the
    hottest worker over the mean above which buckets move rather than a worker comes.  serving_min, serving_max,
    sampling_min, sampling_max: of workers.  replicas_min: owners of each bucket.
    """

    look_seconds: float = 5.0
    patience: int = 3
    rest: int = 4
    waiting_high: float = 2.0
    waiting_low: float = 0.25
    busy_high: float = 0.8
    busy_low: float = 0.2
    spread: float = 1.25
    serving_min: int = 1
    serving_max: int = 8
    sampling_min: int = 1
    sampling_max: int = 8
    replicas_min: int = 1


class Sizer:
    """Says after each look which maps a cluster should have. Each kind of worker has its own patience."""

    def __init__(self, rules: SizeRules) -> None:
        self.rules = rules
        self._serving, self._sampling = (
            Trend(rules.patience, rules.rest, _IDLE_LOOKS * rules.patience) for _ in range(2)
        )
        self._waiting: dict[int, float] = {}  # at the look before

    def serving(self, serving: Serving, seeds: Int64Array, waiting: Mapping[int, float]) -> Serving | None:
        """The new map of serving workers, or None: leave it.

        Args:    seeds: (1024,) asked since the last look, by bucket.  waiting: by worker, on average since then.
        """
        workers, rules = workers_in(serving), self.rules
        most = max(workers, key=lambda worker: waiting.get(worker, 0.0))
        drains = waiting.get(most, 0.0) < self._waiting.get(most, 0.0) * _DRAINS
        hot = waiting.get(most, 0.0) > rules.waiting_high and not drains
        self._waiting = dict(waiting)
        idle = all(waiting.get(worker, 0.0) < rules.waiting_low for worker in workers)
        found = None
        match self._serving.look(hot, idle):
            case 1:
                found = _relieved(serving, seeds.astype(np.float64), most, rules)
            case -1 if len(workers) > rules.serving_min:
                found = _without(serving, seeds.astype(np.float64), rules)
        if found is not None:
            self._serving.changed()
        return found

    def sampling(self, owners: Owners, records: Int64Array, busy: Mapping[int, float]) -> Owners | None:
        """The new map of sampling workers, or None: leave it.

        Args:    records: (1024,) that arrived since the last look, by bucket.  busy: by worker, the share of time.
        """
        rules, count = self.rules, int(owners.max()) + 1
        shares = [busy.get(worker, 0.0) for worker in range(count)]
        trend = self._sampling.look(max(shares) > rules.busy_high, max(shares) < rules.busy_low)
        weights: Float64Array = (
            records.astype(np.float64) + max(float(records.mean()), 1.0) * 0.01
        )  # buckets without records are not free
        loads = np.bincount(owners, weights, count)
        found = None
        if trend > 0 and loads.max() > rules.spread * loads.mean():
            found = _levelled(owners, weights, count)
        elif trend > 0 and count < rules.sampling_max:
            found = _levelled(owners, weights, count + 1)
        elif trend < 0 and count > rules.sampling_min:
            found = _levelled(owners, weights, count - 1)
        if found is None or np.array_equal(found, owners):
            return None
        self._sampling.changed()
        return found


def serving_loads(serving: Serving, seeds: npt.ArrayLike) -> dict[int, float]:
    """Seeds by serving worker: replicas of a bucket share it."""
    shares = np.asarray(seeds, np.float64) / np.maximum(_owner_count(serving), 1)
    return {worker: float(shares[_owned(serving, worker)].sum()) for worker in workers_in(serving)}


def _owner_count(serving: Serving) -> Int64Array:
    """How many serving workers own each bucket."""
    bits: npt.NDArray[np.uint8] = np.unpackbits(serving.view(np.uint8)).reshape(len(serving), -1)
    counts: Int64Array = bits.sum(axis=1, dtype=np.int64)
    return counts


def _owned(serving: Serving, worker: int) -> npt.NDArray[np.bool_]:
    return (serving >> np.uint64(worker) & np.uint64(1)).astype(bool)


def _bit(worker: int) -> np.uint64:
    return np.uint64(1 << worker)


def _relieved(serving: Serving, seeds: Float64Array, hot: int, rules: SizeRules) -> Serving | None:
    """Buckets of a hot worker move to the coldest one, or a new worker becomes a replica of it."""
    loads = serving_loads(serving, seeds)
    cold = min(loads, key=lambda worker: loads[worker])
    if len(loads) > 1 and loads[hot] > rules.spread * np.mean(list(loads.values())):
        return _moved(serving, seeds, hot, cold, loads)
    free = next((number for number in range(_native.SERVING_MAX) if number not in loads), None)
    if free is None or len(loads) >= rules.serving_max:
        return None
    return np.where(_owned(serving, hot), serving | _bit(free), serving)


def _moved(serving: Serving, seeds: Float64Array, hot: int, cold: int, loads: Mapping[int, float]) -> Serving | None:
    """Buckets go from a hot worker to a cold one until both have alike; one that is too hot is shared by both."""
    buckets = np.flatnonzero(_owned(serving, hot) & ~_owned(serving, cold))
    shares: Float64Array = (seeds / _owner_count(serving))[buckets]
    fixed = np.array([loads[hot] - shares.sum(), loads[cold]])
    moves = levelling_moves(np.zeros(len(buckets), np.uint16), shares, 2, stop=1 + _NEAR, fixed=fixed)
    found, moving = serving.copy(), buckets[moves.units]
    found[moving] = found[moving] & ~_bit(hot) | _bit(cold)
    wanted = (loads[hot] - loads[cold]) / 2
    left, most = wanted - float(shares[moves.units].sum()), int(np.argmax(shares))
    if left > wanted / 2 and shares[most] > left:  # one bucket is most of it
        found[buckets[most]] |= _bit(cold)
    return None if np.array_equal(found, serving) else found


def _without(serving: Serving, seeds: Float64Array, rules: SizeRules) -> Serving | None:
    """The least asked worker goes; buckets that have too few owners then go to the least asked others."""
    loads = serving_loads(serving, seeds)
    leaver = min(loads, key=lambda worker: (loads[worker], -worker))
    found = serving & ~_bit(leaver)
    others = [worker for worker in loads if worker != leaver]
    if len(others) < rules.replicas_min:
        return None
    short = np.flatnonzero(_owner_count(found) < rules.replicas_min)
    kept = serving_loads(found, np.where(_owner_count(found) > 0, seeds, 0.0)) if found.any() else {}
    left = {worker: kept.get(worker, 0.0) for worker in others}
    for bucket in short[np.argsort(-seeds[short], kind="stable")].tolist():
        able = [worker for worker in others if not int(found[bucket]) >> worker & 1]
        taker = min(able, key=lambda worker: left[worker])
        found[bucket] |= _bit(taker)
        left[taker] += max(float(seeds[bucket]), 1e-9)
    return found


def _levelled(owners: Owners, weights: Float64Array, count: int) -> Owners:
    """Owners 0 to count - 1 of about equal load; of those that stay, only what is above the mean moves."""
    moves, found = levelling_moves(owners, weights, count, stop=1 + _NEAR), owners.copy()
    found[moves.units] = moves.to
    return found
