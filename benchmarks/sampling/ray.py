"""A SampleCluster: sampling and serving workers as Ray actors over SQLite logs, all on this machine.

Records a second from the writer's batches to what readers see, and queries a second of closed-loop clients, by the
number of workers. Cores are shared, so CPU time says what a worker could do on a core of its own. Then the latency of
readers while buckets move and while a killed worker comes back. Samples equal those of one process, or the run fails.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.sampling.workload import Social, query, social
from livegnn.distributed import SampleCluster
from livegnn.distributed.ray_session import connect
from livegnn.sampling import PreSampler, even_owners, even_serving

SHARE = 0.005  # of 50M edges
SEED = 5
CLIENTS, SEEDS = 2, 32


def run(options: Options, report: Report) -> None:
    """Two tables."""
    connect()
    work = social(options.tiny, share=1.0 if options.tiny else SHARE)
    report.progress(f"{work.loaded:,} edges over {work.vertices:,} vertices")
    report.heading(f"Throughput by workers; {CLIENTS} clients, {SEEDS} seeds a query of [25, 10] with features")
    report.columns(
        (
            *("sampling + serving workers", "records/s", "records per CPU s, slowest sampling worker"),
            *("queries/s", "seeds/s", "seeds per CPU s, a serving worker", "p50 ms", "p99 ms"),
        )
    )
    for workers in (1, 2, 4):
        with _cluster(work, sampling=workers, serving=workers) as cluster:
            report.row([f"{workers} + {workers}", *_ingest(cluster, work, options), *_ask(cluster, work, options)])
            report.progress(f"{workers} workers of each kind")
            _check(cluster, work, report)
    report.heading("Latency of a query while something happens; 2 sampling workers, 2 serving workers")
    report.columns(("what happens", "p50 ms", "p99 ms", "longest ms", "until it is over, s"))
    for replicas in (1, 2):
        with _cluster(work, sampling=2, serving=2 // replicas, replicas=replicas) as cluster:
            for name, act in _happenings(replicas):
                report.row([name, *_while(cluster, work, act, options)])
                report.progress(name)
            _check(cluster, work, report)


@contextmanager
def _cluster(work: Social, **parts: int) -> Iterator[SampleCluster]:
    options = {"synchronous": "NORMAL"}
    with (
        tempfile.TemporaryDirectory() as folder,
        SampleCluster(folder, work.graph(), query("random"), seed=SEED, log_options=options, **parts) as cluster,
    ):
        cluster.sample([0], timeout=120)
        while cluster.lag_batches():
            time.sleep(0.01)
        yield cluster


def _cpu(cluster: SampleCluster, role: str) -> dict[int, float]:
    time.sleep(0.2)  # until each was looked at
    return {who[1]: status.cpu_seconds for who, status in cluster.status.items() if who[0] == role}


def _ingest(cluster: SampleCluster, work: Social, options: Options) -> list[str]:
    records, size = (1000, 200) if options.tiny else (40_000, 1000)
    batches = list(work.batches(0, records, size))
    before, begin = _cpu(cluster, "sampling"), time.perf_counter()
    for updates in batches:
        cluster.apply(updates)
    while cluster.lag_batches():
        time.sleep(0.005)
    seconds = time.perf_counter() - begin
    slowest = max(spent - before[worker] for worker, spent in _cpu(cluster, "sampling").items())
    return [rate(records / seconds), rate(records / max(slowest, 1e-3))]


def _ask(cluster: SampleCluster, work: Social, options: Options) -> list[str]:
    before, begin = _cpu(cluster, "serving"), time.perf_counter()
    taken = np.array(_loop(cluster, work, lambda: time.sleep(0.5 if options.tiny else 6.0)))
    seconds = time.perf_counter() - begin
    spent = sum(each - before[worker] for worker, each in _cpu(cluster, "serving").items())
    asked = [rate(len(taken) / seconds), rate(len(taken) * SEEDS / seconds), rate(len(taken) * SEEDS / spent)]
    return [*asked, *(f"{ms:.1f}" for ms in np.percentile(taken, (50, 99)))]


def _loop(cluster: SampleCluster, work: Social, meanwhile: Callable[[], None]) -> list[float]:
    """Milliseconds of each query of the clients while something else goes on."""
    ended, taken, lock = threading.Event(), list[float](), threading.Lock()

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        while not ended.is_set():
            begin = time.perf_counter()
            cluster.sample(rng.integers(0, work.forums, SEEDS), timeout=120)
            with lock:
                taken.append(1000 * (time.perf_counter() - begin))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    return taken


def _happenings(replicas: int) -> list[tuple[str, Callable[[SampleCluster], None]]]:
    """What happens, and returns when it is over."""
    killed = [(f"a serving worker is killed, {replicas} owner{'s'[: replicas - 1]} of a bucket", _kill("serving"))]
    if replicas > 1:
        return killed
    quiet = ("nothing", lambda _: time.sleep(3.0))
    return [
        quiet,
        ("half of the seeds move to two new serving workers", _move_serving),
        ("vertices move from two to three sampling workers", _move_sampling),
        ("a sampling worker is killed", _kill("sampling")),
        *killed,
    ]


def _kill(role: str) -> Callable[[SampleCluster], None]:
    def act(cluster: SampleCluster) -> None:
        before = cluster.processes[role, 0]
        os.kill(before, signal.SIGKILL)
        while cluster.processes[role, 0] == before or cluster.status[role, 0].step is None:
            time.sleep(0.01)

    return act


def _move_serving(cluster: SampleCluster) -> None:
    cluster.move_serving(even_serving(4))
    _settle(cluster)


def _move_sampling(cluster: SampleCluster) -> None:
    cluster.move_sampling(even_owners(3))
    _settle(cluster)
    while any(("sampling", each) not in cluster.status for each in range(3)):
        time.sleep(0.01)


def _settle(cluster: SampleCluster) -> None:
    time.sleep(0.02)
    while cluster.is_moving:
        time.sleep(0.01)


def _while(cluster: SampleCluster, work: Social, act: Callable[[SampleCluster], None], options: Options) -> list[Any]:
    lasted = 0.0

    def meanwhile() -> None:
        nonlocal lasted
        begin = time.perf_counter()
        act(cluster)
        lasted = time.perf_counter() - begin
        time.sleep(0.1 if options.tiny else 0.5)

    taken = np.array(_loop(cluster, work, meanwhile))
    return [*(f"{ms:.1f}" for ms in (*np.percentile(taken, (50, 99)), taken.max())), f"{lasted:.1f}"]


def _check(cluster: SampleCluster, work: Social, report: Report) -> None:
    seeds = np.arange(0, work.forums, max(1, work.forums // 50))
    alone = PreSampler(cluster.graph, query("random"), seed=SEED)
    got, expected = cluster.sample(seeds, at_least=cluster.version, timeout=120), alone.sample(seeds)
    for k in (1, 2):
        if not np.array_equal(got.hop(k), expected.hop(k)):
            report.fail(f"[sampling_ray] expected the samples of one process at hop {k}, got others")
    alone.close()
