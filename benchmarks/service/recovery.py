"""A start that finds a long tail of the log, against applying the same updates live; and the pause of a snapshot."""

from __future__ import annotations

import statistics
import tempfile

from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.service.rate import BATCH, CLIENTS
from benchmarks.service.roles import Pause, Service
from benchmarks.service.table import COLUMNS, row, world
from benchmarks.worker import Worker

RECOVERY_ASKED, PAUSE_ASKED_MS = 1.2, 200.0


def run(options: Options, report: Report) -> None:
    """A row each."""
    report.heading("Recovery and snapshots")
    report.columns(COLUMNS)
    size, count = (60, 20) if options.tiny else (BATCH, 1000)
    with (
        tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder,
        Worker(Service, world(options), folder, options.threads, {}) as service,
    ):
        service.result()
        live = sum(service.call("apply", size, 10_000 * part, count // 10, CLIENTS) for part in range(10))
        digest = service.call("digest")
        seconds, version = service.call("recover")
        if service.call("digest") != digest:
            report.fail("[service_recovery] expected the digest of the live engine, got another")
    how = f"{rate(size * count)} updates in {version} entries: {live:.1f} s live, {seconds:.1f} s to start"
    times = seconds / live
    row(report, "recovery of a tail", f"{RECOVERY_ASKED} x live", f"{times:.2f} x", times <= RECOVERY_ASKED, how)
    vertices, edges = (2_000, 20_000) if options.tiny else (1_000_000, 10_000_000)
    with (
        tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder,
        Worker(Pause, folder, vertices, edges) as pause,
    ):
        pause.result()
        found = pause.call("snapshots", 3)
    ms = statistics.median(found) * 1e3
    how = f"{rate(edges)} edges, {rate(vertices)} vertices of 16 columns; median of 3"
    row(report, "snapshot's pause of writes", f"{PAUSE_ASKED_MS:.0f} ms", f"{ms:.0f} ms", ms <= PAUSE_ASKED_MS, how)
