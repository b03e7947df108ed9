"""Serving while updates pour in: latency next to a writer at half of its best rate, ingestion lag at an offered rate,
and what a read right after a write misses.

Offered load counts from the intended time: a batch that starts late has waited, and its lag says so.
"""

from __future__ import annotations

import queue
import threading
import time

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate
from benchmarks.sampling.serving import latencies, seeds_of
from benchmarks.sampling.workload import Social, query, social

BATCH = 5000
OFFERED = 1e6
LAG_TARGET_S = 1.2
QUIET_TARGET = 1.3


def run(options: Options, report: Report) -> None:
    """Three tables."""
    work = social(options.tiny)
    report.progress(f"loading {work.loaded:,} edges over {work.vertices:,} vertices")
    graph = work.graph()
    sampler = lg.PreSampler(graph, query("random"), seed=5, threads=1)  # one core writes, the other reads
    graph.host.store.set_apply_threads(1)
    place = _beside(sampler, work, options, report)
    place = _lag(sampler, work, place, options, report)
    _missed(sampler, work, place, options, report)


def _batches(work: Social, place: int, records: int, options: Options) -> tuple[list[lg.Updates], int]:
    size = 50 if options.tiny else BATCH
    records = min(records, 20 * size) if options.tiny else records
    return list(work.batches(place, records, size)), place + records


def _pour(sampler: lg.PreSampler, batches: list[lg.Updates], per_second: float) -> npt.NDArray[np.float64]:
    """Applies batches at a rate of records; seconds from the intended time of a batch to its visibility."""
    begin, lags, done = time.perf_counter(), [], 0
    for updates in batches:
        intended = begin + done / per_second
        wait = intended - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        sampler.apply(updates)
        done += len(updates)
        lags.append(time.perf_counter() - intended)
    return np.array(lags)


def _beside(sampler: lg.PreSampler, work: Social, options: Options, report: Report) -> int:
    report.heading("Serving while updates pour in, one core each")
    report.columns(("updates/s", "median", "p99", "times quiet: median", "p99", "at most", "met"))
    batches, place = _batches(work, 0, 200_000, options)
    begin = time.perf_counter()
    for updates in batches:
        sampler.apply(updates)
    best = sum(map(len, batches)) / (time.perf_counter() - begin)
    count = 200 if options.tiny else 20_000
    seeds = seeds_of(work, count, np.random.default_rng(4))
    quiet = np.quantile(latencies(lambda seed: sampler.sample(seed, edge_ids=False), seeds), [0.5, 0.99])
    report.row(["none", duration(quiet[0]), duration(quiet[1]), 1, 1, "-", "-"])
    batches, place = _batches(work, place, int(best), options)
    writer = threading.Thread(target=_pour, args=(sampler, batches, best / 2))
    writer.start()
    found, pouring = [], True
    while pouring:  # once at least: the writer of a small run may be done before the first read
        pouring = writer.is_alive()
        found.append(latencies(lambda seed: sampler.sample(seed, edge_ids=False), seeds[: len(seeds) // 20]))
    writer.join()
    live = np.quantile(np.concatenate(found), [0.5, 0.99])
    met = "yes" if live[0] <= QUIET_TARGET * quiet[0] else "NO"
    ratios = (f"{live[0] / quiet[0]:.2f}", f"{live[1] / quiet[1]:.2f}")
    report.row([rate(best / 2), duration(live[0]), duration(live[1]), *ratios, QUIET_TARGET, met])
    return place


def _lag(sampler: lg.PreSampler, work: Social, place: int, options: Options, report: Report) -> int:
    report.heading(f"Ingestion lag, batches of {BATCH:,}")
    report.columns(("offered updates/s", "median", "p99", "largest", "at most", "met"))
    sampler.graph.host.store.set_apply_threads(options.threads)
    for offered in (OFFERED / 4, OFFERED / 2, OFFERED):
        batches, place = _batches(work, place, 500_000, options)
        lags = _pour(sampler, batches, offered)
        median, p99 = np.quantile(lags, [0.5, 0.99])
        met = "yes" if p99 <= LAG_TARGET_S else "NO"
        report.row([rate(offered), duration(median), duration(p99), duration(lags.max()), duration(LAG_TARGET_S), met])
    return place


def _missed(sampler: lg.PreSampler, work: Social, place: int, options: Options, report: Report) -> None:
    """Writers hand batches over and read at once, as the paper's worst case does, or wait for their version."""
    report.heading("Read right after write: relevant updates missed")
    report.columns(("reads", "updates handed over/s", "samples that changed", "missed"))
    for waits in (False, True):
        batches, place = _batches(work, place, 200_000, options)
        inbox: queue.Queue[tuple[int, lg.Updates] | None] = queue.Queue()

        def write(inbox: queue.Queue[tuple[int, lg.Updates] | None] = inbox) -> None:
            while (item := inbox.get()) is not None:
                sampler.apply(item[1])

        writer = threading.Thread(target=write)
        writer.start()
        changed = missed = 0
        version, rng, begin = sampler.version, np.random.default_rng(9), time.perf_counter()
        pending: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        for number, updates in enumerate(batches, start=1):
            inbox.put((number, updates))
            seeds = rng.integers(0, work.forums, 64)
            got = sampler.sample(seeds, features=False, at_least=version + number if waits else None, timeout=60)
            pending.append((seeds, got.edge_ids(2).reshape(len(seeds), -1)))
            exact = sampler.sample(seeds, features=False, at_least=version + number, timeout=60)
            wanted = exact.edge_ids(2).reshape(len(seeds), -1)
            new = ~np.isin(wanted, pending[-1][1]) & (wanted >= 0)
            changed += int((wanted >= 0).sum())
            missed += int(new.sum())
        inbox.put(None)
        writer.join()
        per_second = sum(map(len, batches)) / (time.perf_counter() - begin)
        name = "at_least=" if waits else "eventual"
        report.row([name, rate(per_second), f"{changed:,}", f"{missed:,} ({100 * missed / max(changed, 1):.3f}%)"])
        if waits and missed:
            report.fail(f"[sampling_live] expected no update missed under at_least, got {missed}")
