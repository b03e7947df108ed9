"""How many queries a second are answered in process, and how long one takes: seeds drawn by and against degree."""

from __future__ import annotations

import threading
import time

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate, size
from benchmarks.sampling.check import check_samples
from benchmarks.sampling.workload import FEATURES, Social, query, social

TARGET = 150_000
TAIL_TARGET = 3.0


def run(options: Options, report: Report) -> None:
    """Two tables: queries a second by batch, latency by kind of seed."""
    work = social(options.tiny)
    report.progress(f"loading {work.loaded:,} edges over {work.vertices:,} vertices")
    graph = work.graph()
    asked = query("random")
    sampler = lg.PreSampler(graph, asked, seed=5, threads=1)  # callers are the threads here
    check_samples("sampling_serving", sampler, asked, np.arange(work.forums)[:50], report)
    _throughput(sampler, work, options, report)
    _latency(sampler, work, options, report)
    deep = query("random", (25, 10, 5))
    sampler.add(deep)
    report.heading("Serving: three hops, [25, 10, 5]")
    report.columns(("callers", "seeds a call", "queries/s"))
    number = sampler.plan.queries[-1].number
    found = _rate(sampler, work, 64, options, number)
    report.row([options.threads, 64, rate(found)])


def seeds_of(work: Social, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Forums, drawn uniformly."""
    return rng.integers(0, work.forums, count)


def _throughput(sampler: lg.PreSampler, work: Social, options: Options, report: Report) -> None:
    report.heading("Serving: two hops, [25, 10], with features")
    report.columns(("callers", "seeds a call", "queries/s", "target", "met", "features moved"))
    levels = 1 + 25 + 250
    for batch in (1, 16, 256):
        found = _rate(sampler, work, batch, options, None)
        met = "yes" if found >= TARGET else "NO"
        moved = size(found * levels * FEATURES * 4) + "/s"
        report.row([options.threads, batch, rate(found), rate(TARGET), met, moved])
        report.progress(f"{batch} seeds a call: {rate(found)} queries/s")


def _rate(sampler: lg.PreSampler, work: Social, batch: int, options: Options, number: int | None) -> float:
    """Queries a second of `threads` callers at once."""
    rng = np.random.default_rng(3)
    lists = [[seeds_of(work, batch, rng) for _ in range(64)] for _ in range(options.threads)]
    length = 0.2 if options.tiny else 4.0
    counts = [0] * options.threads
    start = threading.Barrier(options.threads)

    def call(place: int) -> None:
        start.wait()
        end = time.perf_counter() + length
        at = 0
        while time.perf_counter() < end:
            sampler.sample(lists[place][at % 64], query=number, edge_ids=False)
            at += 1
        counts[place] = at * batch

    callers = [threading.Thread(target=call, args=(place,)) for place in range(options.threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return sum(counts) / length


def _latency(sampler: lg.PreSampler, work: Social, options: Options, report: Report) -> None:
    report.heading("Serving: one query at a time")
    report.columns(("seeds", "median", "p99", "p99 / median", "at most", "met"))
    rng = np.random.default_rng(4)
    degree = sampler.graph.out_degree(np.arange(work.forums))
    hubs = np.argsort(-degree)[: max(10, work.forums // 100)]
    count = 200 if options.tiny else 20_000
    kinds = {"any forum": seeds_of(work, count, rng), "the 1% with most members": rng.choice(hubs, count)}
    for name, seeds in kinds.items():
        seconds = latencies(lambda seed: sampler.sample(seed, edge_ids=False), seeds)
        median, p99 = np.quantile(seconds, [0.5, 0.99])
        met = "yes" if p99 <= TAIL_TARGET * median else "NO"
        report.row([name, duration(median), duration(p99), f"{p99 / median:.2f}", TAIL_TARGET, met])


def latencies(call: object, seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Seconds of one call per seed."""
    found = np.empty(len(seeds))
    for i, seed in enumerate(seeds):
        one = np.array([seed])
        begin = time.perf_counter()
        call(one)  # type: ignore[operator]
        found[i] = time.perf_counter() - begin
    return found
