"""How many updates a second become durable: in bulk, one by one, and against the bare engine."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.http_load import LoadResult, Pace
from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.service.roles import BareEngine, Clients, Service
from benchmarks.service.table import COLUMNS, asked_of, refuse_errors, row, service_process, world
from benchmarks.worker import Worker

BULK_ASKED, SINGLES_ASKED, OVERHEAD_ASKED = 100_000, 3_000, 0.25
BATCH, CLIENTS = 1000, 8


def run(options: Options, report: Report) -> None:
    """A row for each figure."""
    report.heading("Accepted to durable")
    served = f"{world(options).name}, hidden width {world(options).hidden}"
    report.line(f"{served}; fdatasync of 4 KiB in the temporary folder: {_sync_ms():.2f} ms (median).\n")
    report.columns(COLUMNS)
    with service_process(options) as (server, url), Worker(Clients, world(options)) as clients:
        clients.result()
        size, count = (60, 40) if options.tiny else (BATCH, 1500)
        for number, arrow in enumerate((False, True)):
            clients.call("make_bulk", url, size, 10_000 * number, count, arrow)
            found = clients.call("drive", url, Pace(None, CLIENTS, 6.0, 0.0 if options.tiny else 1.0))
            per_request = size // 3 * 2 if arrow else size
            kind = "Arrow, edges alone" if arrow else "frames, a third of them feature rows"
            how = f"requests of {per_request}, {CLIENTS} connections; {kind}"
            updates = found.rate * per_request
            refuse_errors(report, how, found.errors)
            row(report, "updates in bulk", f"{rate(BULK_ASKED)}/s", f"{rate(updates)}/s", updates >= BULK_ASKED, how)
        found = singles(clients, url, 256, options)
        entries, requests, _, _ = asked_of(server, "counts")
        how = f"JSON, 256 connections, p99 {found.p99_ms:.0f} ms; {requests} requests in {entries} entries so far"
        refuse_errors(report, how, found.errors)
        asked = f"{rate(SINGLES_ASKED)}/s"
        row(report, "requests of one update", asked, f"{rate(found.rate)}/s", found.rate >= SINGLES_ASKED, how)
    _overhead(options, report)


def singles(clients: Worker, url: str, connections: int, options: Options) -> LoadResult:
    """The closed loop of requests of one update."""
    clients.call("make_singles", url, 500_000, 300 if options.tiny else 45_000)
    return clients.call("drive", url, Pace(None, 8 if options.tiny else connections, 6.0, 0.0 if options.tiny else 1.0))


def _overhead(options: Options, report: Report) -> None:
    """Both take the same batches, in turns."""
    size, count = (60, 5) if options.tiny else (BATCH, 100)
    with (
        tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder,
        Worker(BareEngine, world(options), options.threads) as bare,
        Worker(Service, world(options), folder, options.threads, {}) as durable,
    ):
        bare.result()
        durable.result()
        for under_way in (CLIENTS, 1):
            seconds: list[tuple[float, float]] = []
            for turn in range(3):
                first = 10_000 * (3 * under_way + turn)
                seconds.append(
                    (bare.call("apply", size, first, count), durable.call("apply", size, first, count, under_way))
                )
            alone, logged = (statistics.median(each) for each in zip(*seconds, strict=True))
            cost = logged / alone - 1
            how = (
                f"in process, batches of {size}, {under_way} under way; {rate(size * count / alone)}/s without the log"
            )
            met = cost <= OVERHEAD_ASKED if under_way > 1 else None
            asked = f"{OVERHEAD_ASKED:.0%}" if under_way > 1 else "-"
            row(report, "overhead over the bare engine", asked, f"{cost:.0%}", met, how)


def _sync_ms() -> float:
    """What a sync of this disk takes now: every entry waits for two."""
    times = []
    with tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder:
        file = os.open(Path(folder) / "file", os.O_CREAT | os.O_RDWR)
        for _ in range(50):
            os.pwrite(file, bytes(4096), 0)
            begin = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(file)
            times.append(time.perf_counter() - begin)
        os.close(file)
    return statistics.median(times) * 1e3
