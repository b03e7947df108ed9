"""The service in front of an engine over workers: the rates of one in its own process, and of one and two workers."""

from __future__ import annotations

import numpy as np

from benchmarks.http_load import Pace
from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.service.latency import half_load
from benchmarks.service.rate import BATCH, CLIENTS, singles
from benchmarks.service.roles import Clients
from benchmarks.service.table import refuse_errors, service_process, world
from benchmarks.worker import Worker

WORKERS = (0, 1, 2)


def run(options: Options, report: Report) -> None:
    """A row for each number of workers; 0 is an engine in the service's process."""
    report.heading("Over workers")
    report.columns(("workers", "updates in bulk", "requests of one update", "visible, p99", "reads, p99"))
    for workers in WORKERS:
        _row(workers, options, report)


def _row(workers: int, options: Options, report: Report) -> None:
    with (
        service_process(options, cluster={"workers": workers}) as (server, url),
        Worker(Clients, world(options)) as writers,
        Worker(Clients, world(options)) as readers,
    ):
        writers.result()
        readers.result()
        size, count = (60, 40) if options.tiny else (BATCH, 1500)
        writers.call("make_bulk", url, size, 0, count, False)
        bulk = writers.call("drive", url, Pace(None, CLIENTS, 6.0, 0.0 if options.tiny else 1.0))
        ones = singles(writers, url, 256, options)
        load = half_load(ones.rate, server, url, writers, readers, options)
    fresh = np.quantile(load.fresh_ms, 0.99)
    for what, found in (("bulk", bulk), ("one by one", ones), ("writes", load.wrote), ("reads", load.read)):
        refuse_errors(report, what, found.errors)
    cells = [f"{rate(bulk.rate * size)}/s", f"{rate(ones.rate)}/s", f"{fresh:.1f} ms", f"{load.read.p99_ms:.1f} ms"]
    report.row([str(workers), *cells])
    report.progress(f"{workers} workers: {', '.join(cells)}")
