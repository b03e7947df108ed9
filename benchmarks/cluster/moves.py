"""Other workers take over on Ray while a writer applies fifty batches a second: how long it takes, and what it
costs the batches that come meanwhile. At the end the state must be that of one engine after the same batches.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import numpy as np

import livegnn as lg
from benchmarks.cluster.world import ClusterWorld
from benchmarks.engine.stream import to_updates
from benchmarks.options import Options
from benchmarks.report import Report, duration
from livegnn.distributed.partition.by_name import Partitioner

KIND = "sage"
WORKERS = 2
PACE_S = 0.02
CHANGES: tuple[tuple[Partitioner, int], ...] = (("metis", 3), ("ldg", 2))
COLUMNS = (
    "workload", "batch", "change", "took", "a batch before", "meanwhile", "batches meanwhile", "the slowest"
)  # fmt: skip


class _Applied(NamedTuple):
    began: float
    seconds: float


class _Writer(threading.Thread):
    """Applies batches of a stream until stop(), or to its end: one in PACE_S, or as fast as they go."""

    def __init__(self, cluster: lg.Cluster, batches: list[lg.Updates]) -> None:
        super().__init__(name="writer")
        self._cluster, self._batches, self._stopped = cluster, batches, threading.Event()
        self.applied: list[_Applied] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        due = time.perf_counter()
        try:
            for updates in self._batches:
                if self._stopped.is_set():
                    return
                time.sleep(max(0.0, due - time.perf_counter()))
                due = max(due, time.perf_counter()) + PACE_S
                began = time.perf_counter()
                self._cluster.apply(updates)
                self.applied.append(_Applied(began, time.perf_counter() - began))
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Raises: what a batch raised."""
        self._stopped.set()
        self.join()
        if self.error is not None:
            raise self.error

    def wait_for(self, count: int) -> None:
        """Until so many batches more are applied, or none come."""
        goal = len(self.applied) + count
        while len(self.applied) < goal and self.is_alive():
            time.sleep(0.01)

    def seconds(self, begin: float, end: float) -> list[float]:
        """Of the batches that began in this time."""
        return [each.seconds for each in self.applied if begin <= each.began < end]


def started(world: ClusterWorld) -> lg.Cluster:
    """The cluster, on Ray."""
    return lg.Cluster(world.model(), world.graph(), WORKERS, partition="metis")


def run(options: Options, report: Report) -> None:
    """A row for each change."""
    report.heading("Other workers take over while batches go on")
    name, size, count = ("tiny", 5, 400) if options.tiny else ("arxiv-like", 100, 3400)
    world = ClusterWorld(name, KIND, 8 if options.tiny else 256, 3 * (size * count // 3 + 1))
    batches = [to_updates(lg, batch) for batch in world.work().stream.batches(0, size, count)]
    report.columns(COLUMNS)
    with started(world) as cluster:
        writer = _Writer(cluster, batches)
        writer.start()
        for partition, workers in CHANGES[: 1 if options.tiny else None]:
            begin = time.perf_counter()
            writer.wait_for(20 if options.tiny else 200)
            start, now = time.perf_counter(), cluster.workers
            cluster.repartition(partition, workers)
            end = time.perf_counter()
            before, meanwhile = writer.seconds(begin, start), writer.seconds(start, end)
            if not before or not meanwhile:
                report.fail(
                    f"[cluster_moves] expected batches before and meanwhile, got {len(before)}, {len(meanwhile)}"
                )
                break
            change = f"{now} to {workers} workers, {partition}"
            times = [duration(each) for each in (np.median(before), np.median(meanwhile))]
            report.row([name, size, change, duration(end - start), *times, len(meanwhile), duration(max(meanwhile))])
        writer.stop()
        digest = cluster.state_digest()
    engine = lg.Engine(world.model(), world.graph(), threads=options.threads)
    for updates in batches[: len(writer.applied)]:
        engine.apply(updates)
    if engine.state_digest() != digest:
        report.fail("[cluster_moves] expected the state of one engine, got another")
