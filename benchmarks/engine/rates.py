"""The largest rate of updates that an engine holds by a deadline, from batches of 1, 2, 4, ... recorded updates."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from livegnn.errors import ValueInvalid
from livegnn.inference.stream import Applies, Clock, Item, Latency, joined, parse_latency


@dataclass(frozen=True)
class SizeCost:
    """Batches of one size: how many were run, and their median and largest seconds."""

    size: int
    runs: int
    median_seconds: float
    worst_seconds: float

    @property
    def rate(self) -> float:
        """Updates per second that the slowest of them allows."""
        return self.size / self.worst_seconds if self.worst_seconds else math.inf


@dataclass(frozen=True)
class Rate:
    """updates_per_second held at batches of `size`; size 0 where not even one update is in time. `best` is the cost
    there, None likewise. complete: whether larger batches were tried and were late, or the recording ended first.
    """

    updates_per_second: float
    size: int
    best: SizeCost | None
    complete: bool


def cost_curve(
    engine: Applies, recorded: Iterable[Item], seconds_max: float, *, runs: int = 20, clock: Clock = time.perf_counter
) -> tuple[SizeCost, ...]:
    """Costs of batches of 1, 2, 4, ... updates, up to the first size with a batch above seconds_max.

    The recorded items are applied to the engine, in order and each once, `runs` batches for each size; the curve ends
    where too few are left for another size. An item that is an Updates counts as one towards a size.
    """
    if type(runs) is not int or runs < 1:
        raise ValueInvalid(f"[largest_rate] expected runs as an int of at least 1, got {runs!r}; choose 20, say")
    items, curve, size = iter(recorded), list[SizeCost](), 1
    while True:
        taken = [[item for _, item in zip(range(size), items, strict=False)] for _ in range(runs)]
        if len(taken[-1]) < size:
            return tuple(curve)
        batches = [joined(each) for each in taken]
        seconds = []
        for batch in batches:
            begin = clock()
            engine.apply(batch)
            seconds.append(clock() - begin)
        curve.append(SizeCost(min(map(len, batches)), runs, statistics.median(seconds), max(seconds)))
        if max(seconds) > seconds_max:
            return tuple(curve)
        size *= 2


def rate_within(curve: Sequence[SizeCost], latency: Latency, *, queued: bool = True) -> Rate:
    """largest_rate from costs already measured."""
    seconds = parse_latency(latency) / (2 if queued else 1)
    fits = [each for each in curve if each.worst_seconds <= seconds]
    best = max(fits, key=lambda each: each.rate, default=None)
    complete = any(each.worst_seconds > seconds for each in curve)
    return Rate(0.0, 0, None, complete) if best is None else Rate(best.rate, best.size, best, complete)


def largest_rate(
    engine: Applies,
    recorded: Iterable[Item],
    latency: Latency,
    *,
    runs: int = 20,
    queued: bool = True,
    clock: Clock = time.perf_counter,
) -> Rate:
    """The largest rate of updates that holds a deadline, from a recorded stream, which is applied to the engine.

    rate = max size / worst(size)  over sizes with  worst(size) <= latency / 2;  worst over `runs` batches

    Args:    queued: an update waits for the batch before its own, so a batch may take half of the latency. False counts
             the batch alone, as the paper does.
    Raises:  UpdateError as engine.apply; ValueInvalid for a bad latency or runs.
    Source:  NeutronRT, Figure 12.c.
    """
    seconds = parse_latency(latency)
    curve = cost_curve(engine, recorded, seconds / 2 if queued else seconds, runs=runs, clock=clock)
    return rate_within(curve, latency, queued=queued)
