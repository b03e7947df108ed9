"""What does lg.Cluster on Ray cost over the bare engine, and what do two workers gain over one? Whole batches, from
apply() to its return: driver, lines to the workers, and what Ray's own processes take of the cores. Nothing but the
bare engine is pinned. All take the same batches in turns.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

import livegnn as lg
from benchmarks.cluster.players import players
from benchmarks.cluster.time import TURNS, contests, figures
from benchmarks.cluster.world import ClusterWorld
from benchmarks.engine.live import timed
from benchmarks.engine.runs import Run, restoring
from benchmarks.engine.stream import to_updates
from benchmarks.options import Options
from benchmarks.report import Report
from livegnn.distributed.partition import VertexParts


class _OnRay:
    """A cluster of so many workers, on this machine."""

    def __init__(self, world: ClusterWorld, workers: int) -> None:
        self._work = world.work()
        parts = VertexParts(workers, world.owners(workers))
        self.cluster = lg.Cluster(world.model(), world.graph(), workers, partition=parts)

    def play(self, run: Run) -> Any:
        """Seconds of each batch of a turn, which is taken back at its end."""
        before, counted = (list(map(_updates, each)) for each in run.batches(self._work))
        timed(self.cluster.apply, before)
        seconds = timed(self.cluster.apply, counted)
        self.cluster.apply(_updates(restoring(self._work, run.start, run.stop)))
        return seconds

    def digest(self) -> int:
        """What the parts' add up to."""
        found: int = sum(state for _, state in self.cluster._crew.each("digests")) & (1 << 64) - 1
        return found


def _updates(batch: Any) -> Any:
    return to_updates(lg, batch)


def run(options: Options, report: Report) -> None:
    """A row for each figure."""
    contests("Time per batch of a cluster on Ray", contest, options, report)


def contest(world: ClusterWorld, played: Run, report: Report) -> None:
    """The bare engine, one worker and two, in turns. States that differ fail the report."""
    with ExitStack() as stack:
        engine = stack.enter_context(players(world, []))
        clusters = {workers: _OnRay(world, workers) for workers in (1, 2)}
        for each in clusters.values():
            stack.enter_context(each.cluster)
        seconds: dict[int, list[Any]] = {0: [], 1: [], 2: []}
        for turn in range(TURNS):
            seconds[0].append(engine.play(played).seconds)
            for workers, each in clusters.items():
                seconds[workers].append(each.play(played))
            report.progress(f"{world.name}, {world.kind}: turn {turn + 1} of {TURNS}")
        if len({engine.digest(), *(each.digest() for each in clusters.values())}) != 1:
            report.fail(f"[cluster_on_ray] expected one state of all on {world.name}, {world.kind}, got several")
    bare, one, two = (float(np.median(np.concatenate(seconds[workers]))) for workers in (0, 1, 2))
    more = f"{bare / two:.2f} times the engine alone"
    figures(world, played, report, ("one worker's cost", "one worker"), (bare, one, two), more)
