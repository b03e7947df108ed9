"""Runs of batches that can be repeated: each begins at the snapshot, and is undone outside the clock.

A stream's additions are held-out edges, and its deletions are of snapshot edges, each once. So any piece of it can be
applied to the snapshot, and one batch takes it back. Turns of the same run therefore do equal work, and what differs
between their times is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.engine.stream import Batch, Workload

SAMPLE = 5000  # vertices whose outputs are compared

Source = Callable[[], Workload]  # makes the same workload in every process that calls it


class Played(NamedTuple):
    """Seconds of the counted batches, and the rows of some vertices at the end of the run."""

    seconds: npt.NDArray[np.float64]
    rows: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Run:
    """`warm_up` batches that are not counted and `counted` ones, of `size` updates each, from `start` in the stream."""

    start: int
    size: int
    warm_up: int
    counted: int

    @property
    def middle(self) -> int:
        """Where the counted batches begin."""
        return self.start + self.size * self.warm_up

    @property
    def stop(self) -> int:
        """The first update after the run."""
        return self.middle + self.size * self.counted

    def batches(self, work: Workload) -> tuple[Iterator[Batch], Iterator[Batch]]:
        """(those not counted, those counted)."""
        stream = work.stream
        return (
            stream.batches(self.start, self.size, self.warm_up),
            stream.batches(self.middle, self.size, self.counted),
        )


def restoring(work: Workload, start: int, stop: int) -> Batch:
    """The batch that leads back to the snapshot after the updates from start to stop."""
    done = work.stream.batch(start, stop)
    return replace(
        done,
        add_src=done.remove_src,
        add_dst=done.remove_dst,
        remove_src=done.add_src,
        remove_dst=done.add_dst,
        feature_rows=work.features[done.feature_ids],
    )


def consecutive(shapes: dict[int, tuple[int, int]]) -> list[Run]:
    """Runs one after the other in the stream; shapes: {size: (batches not counted, batches counted)}."""
    runs: list[Run] = []
    for size, (warm_up, counted) in shapes.items():
        runs.append(Run(runs[-1].stop if runs else 0, size, warm_up, counted))
    return runs


def ids_compared(work: Workload) -> npt.NDArray[np.int64]:
    """The same ids in every process."""
    ids = np.random.default_rng(1).choice(work.vertices, min(SAMPLE, work.vertices), replace=False)
    return ids.astype(np.int64)
