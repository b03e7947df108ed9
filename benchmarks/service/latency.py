"""How soon an update is visible at half of the maximal rate, and how long reads take during the writes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.http_load import LoadResult, Pace
from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.service.rate import singles
from benchmarks.service.roles import Clients
from benchmarks.service.table import COLUMNS, asked_of, refuse_errors, row, service_process, world
from benchmarks.worker import Worker
from livegnn.types import Float64Array

FRESH_ASKED_MS, READ_ASKED_MS = 50.0, 10.0
READS_PER_S, READ_IDS = 200.0, 10


class HalfLoad(NamedTuple):
    """Single writes at half of their maximal rate, with reads. half: a second.  fresh_ms: of the newest."""

    half: float
    fresh_ms: Float64Array
    wrote: LoadResult
    read: LoadResult


def half_load(most: float, server: Worker, url: str, writers: Worker, readers: Worker, options: Options) -> HalfLoad:
    """Some seconds of it. most: the maximal rate of single writes."""
    half, seconds = most / 2, 1.0 if options.tiny else 8.0
    writers.call("make_singles", url, 700_000, int(half * (seconds + 2)) // 3 * 3)
    readers.call("make_reads", url, READ_IDS)
    asked_of(server, "reset")
    writers.send("drive", url, Pace(half, 256, seconds, 0.5))
    readers.send("drive", url, Pace(READS_PER_S, 16, seconds, 0.5))
    wrote, read = writers.result(), readers.result()
    return HalfLoad(half, np.array(asked_of(server, "counts")[3]) * 1e3, wrote, read)


def run(options: Options, report: Report) -> None:
    """Two rows, of one run."""
    report.heading("At half of the maximal rate")
    report.columns(COLUMNS)
    with (
        service_process(options) as (server, url),
        Worker(Clients, world(options)) as writers,
        Worker(Clients, world(options)) as readers,
    ):
        writers.result()
        readers.result()
        most = singles(writers, url, 256, options)
        half, fresh, wrote, read = half_load(most.rate, server, url, writers, readers, options)
    refuse_errors(report, "writes", wrote.errors)
    refuse_errors(report, "reads", read.errors)
    p50, p99 = np.quantile(fresh, (0.5, 0.99))
    how = f"{rate(half)} requests/s of one update, open loop; p50 {p50:.1f} ms; the last {len(fresh)}"
    row(report, "accepted to visible, p99", f"{FRESH_ASKED_MS:.0f} ms", f"{p99:.1f} ms", p99 <= FRESH_ASKED_MS, how)
    how = f"{READS_PER_S:.0f}/s during these writes, predictions of {READ_IDS} vertices; p50 {read.p50_ms:.1f} ms"
    met = read.p99_ms <= READ_ASKED_MS
    row(report, "reads, p99", f"{READ_ASKED_MS:.0f} ms", f"{read.p99_ms:.1f} ms", met, how)
