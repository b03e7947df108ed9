"""What workers hold and what they cost (Helios, Figures 13 and 16): the serving cache against the data, by the number
of serving workers; the time of the slowest sampling worker, by the number of sampling workers.

All workers run in one process, one after another, and each one's own time is counted. So the efficiency for several is
a simulation: it assumes a core for each worker and messages that cost their making and reading, but no wire.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.options import Options
from benchmarks.report import Report, rate, size
from benchmarks.sampling.workload import FEATURES, Social, query, social
from livegnn.sampling import LocalCluster, PreSampler

BATCH = 10_000
PAPER = {1: 0.62, 4: 0.19}  # of the data set, per serving worker


class _Timed:
    """A sampling worker whose time is counted."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def begin(self, *arguments: Any) -> Any:
        return self._count(self._worker.begin, *arguments)

    def receive(self, *arguments: Any) -> Any:
        return self._count(self._worker.receive, *arguments)

    def _count(self, call: Any, *arguments: Any) -> Any:
        begin = time.perf_counter()
        found = call(*arguments)
        self.seconds += time.perf_counter() - begin
        return found


def run(options: Options, report: Report) -> None:
    """Two tables over a fifth of the social network."""
    work = social(options.tiny, share=1.0 if options.tiny else 0.2)
    data = work.loaded * (8 + 8 + 4 + 4) + work.vertices * FEATURES * 4  # two ids as int32, time, weight, type
    report.progress(f"{work.loaded:,} edges over {work.vertices:,} vertices: {size(data)}")
    _caches(work, data, report)
    _scaling(work, options, report)


def _caches(work: Social, data: int, report: Report) -> None:
    report.heading("Serving workers: cache against data, [25, 10]")
    report.columns(("serving workers", "largest cache", "of the data", "the paper"))
    for serving in (1, 2, 4):
        cluster = LocalCluster(work.graph(), query("random"), sampling=1, serving=serving, seed=5)
        largest = max(sum(held.values()) for held in cluster.stats["serving_bytes"].values())
        paper = f"{PAPER[serving]:.0%}" if serving in PAPER else "-"
        report.row([serving, size(largest), f"{largest / data:.0%}", paper])
        report.progress(f"{serving} serving workers: {largest / data:.0%}")
        cluster.close()


def _scaling(work: Social, options: Options, report: Report) -> None:
    report.heading("Sampling workers: records a second of the slowest, two serving workers")
    report.columns(("sampling workers", "records/s", "efficiency", "imbalance"))
    records = 2000 if options.tiny else 300_000
    alone = 0.0
    for workers in (1, 2, 4):
        graph = work.graph()
        cluster = LocalCluster(graph, query("random"), sampling=workers, serving=2, seed=5)
        timed = [_Timed(worker) for worker in cluster.sampling_workers]
        cluster._sampling = timed  # type: ignore[assignment]
        for updates in list(work.batches(0, records, 200 if options.tiny else BATCH)):
            cluster.apply(updates)
        seconds = np.array([worker.seconds for worker in timed])
        alone = alone or float(seconds.max())
        efficiency = alone / (workers * seconds.max())
        report.row(
            [workers, rate(records / seconds.max()), f"{efficiency:.2f}", f"{seconds.max() / seconds.mean():.2f}"]
        )
        report.progress(f"{workers} sampling workers: {rate(records / seconds.max())} records/s")
        _check(cluster, work, report)
        cluster.close()


def _check(cluster: LocalCluster, work: Social, report: Report) -> None:
    seeds = np.arange(0, work.forums, max(1, work.forums // 50))
    alone = PreSampler(cluster.graph, query("random"), seed=5)
    got, expected = cluster.sample(seeds), alone.sample(seeds)
    for k in (1, 2):
        if not np.array_equal(got.hop(k), expected.hop(k)):
            report.fail(f"[sampling_cluster] expected the samples of one process at hop {k}, got others")
    alone.close()
