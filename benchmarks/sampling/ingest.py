"""How many records a second pre-sampling takes in: the store and the tables of a two-hop query, by strategy and batch.

Each strategy goes on from where the one before left the graph; records are built before the clock starts.
"""

from __future__ import annotations

import time

import numpy as np

import livegnn as lg
from benchmarks.options import Options
from benchmarks.report import Report, rate, size
from benchmarks.sampling.check import check_samples
from benchmarks.sampling.workload import Social, query, social

TARGET = 1.5e6
PAPER = 1.49e6  # records/s of one sampling worker of 32 threads


def run(options: Options, report: Report) -> None:
    """A row per strategy and batch size."""
    report.heading("Pre-sampling: records taken in, INTER-like, [25, 10]")
    report.columns(("strategy", "records a batch", "records/s", "store alone", "target", "met", "rows", "features"))
    work = social(options.tiny)
    report.progress(f"loading {work.loaded:,} edges over {work.vertices:,} vertices")
    graph = work.graph()
    sizes = (100, 1000) if options.tiny else (1000, 10_000, 100_000)
    records = 600 if options.tiny else 400_000
    place = 0
    for by in ("random", "top_k", "weighted"):
        sampler = lg.PreSampler(graph, query(by), seed=5, threads=options.threads)
        for batch in sizes:
            with_tables = _measure(sampler.apply, work, place, records, batch)
            place += records
            check_samples(
                "sampling_ingest", sampler, query(by), np.arange(0, work.vertices, work.vertices // 50), report
            )
            sampler.close()
            alone = _measure(graph.apply, work, place, records // 4, batch)
            place += records // 4
            held = sampler.stats.bytes
            met = "yes" if with_tables >= TARGET else "NO"
            cells = [rate(with_tables), rate(alone), rate(TARGET), met]
            report.row([by, f"{batch:,}", *cells, size(held["rows_live"] + held["pointers"]), size(held["features"])])
            report.progress(f"{by}, batches of {batch:,}: {rate(with_tables)} records/s")
            sampler = lg.PreSampler(graph, query(by), seed=5, threads=options.threads)
        sampler.close()
    report.line(
        f"\n{options.threads} threads; the paper: {rate(PAPER)} records/s a worker of 32 threads, appends only."
    )


def _measure(apply: object, work: Social, first: int, count: int, size_: int) -> float:
    """Records a second, by the median batch."""
    seconds = []
    for updates in list(work.batches(first, count, size_)):
        begin = time.perf_counter()
        apply(updates)  # type: ignore[operator]
        seconds.append((time.perf_counter() - begin) / len(updates))
    return 1.0 / float(np.median(seconds))
