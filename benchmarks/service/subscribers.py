"""What a thousand subscribers with filters cost: the rate of updates in bulk before, with and after them."""

from __future__ import annotations

from benchmarks.http_load import LoadResult, Pace
from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.service.rate import BATCH, CLIENTS
from benchmarks.service.roles import Clients, Subscribers
from benchmarks.service.table import COLUMNS, refuse_errors, row, service_process, world
from benchmarks.worker import Worker

COST_ASKED = 0.2


def run(options: Options, report: Report) -> None:
    """One row."""
    count = 20 if options.tiny else 1000
    report.heading("Subscribers of changes")
    report.columns(COLUMNS)
    with service_process(options) as (_, url), Worker(Clients, world(options)) as clients:
        clients.result()
        before = _rate(clients, url, 0, options, report)
        with Worker(Subscribers, world(options)) as subscribers:
            subscribers.result()
            opened = subscribers.call("follow", url, count)
            subscribers.resume()
            followed = _rate(clients, url, 1, options, report)
            left, size = subscribers.call("received")
        after = _rate(clients, url, 2, options, report)
    if (opened, left) != (count, count) or not size:
        report.fail(
            f"[service_subscribers] expected {count} streams with events, got {opened}, {left} and {size} bytes"
        )
    cost = 1 - 2 * followed / (before + after)
    how = f"{rate(before)}/s before, {rate(followed)}/s with {count} of them, {rate(after)}/s after; frames of {BATCH}"
    row(report, "subscribers' cost in rate", f"{COST_ASKED:.0%}", f"{cost:.0%}", cost <= COST_ASKED, how)


def _rate(clients: Worker, url: str, turn: int, options: Options, report: Report) -> float:
    size, count = (60, 40) if options.tiny else (BATCH, 1200)
    clients.call("make_bulk", url, size, 10_000 * turn, count)
    found: LoadResult = clients.call("drive", url, Pace(None, CLIENTS, 6.0, 0.0 if options.tiny else 1.0))
    refuse_errors(report, "updates in bulk", found.errors)
    return found.rate * size
