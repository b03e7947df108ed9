"""The table that every benchmark of the service fills: a figure, what is asked of it, and whether it is met."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.service.roles import Service
from benchmarks.service.world import ServiceWorld
from benchmarks.worker import Worker

COLUMNS = ("figure", "asked", "measured", "met", "how")


def world(options: Options) -> ServiceWorld:
    """arxiv-like, a hidden width of 256; with --full 64, where the log weighs more."""
    return ServiceWorld("tiny", 8) if options.tiny else ServiceWorld("arxiv-like", 64 if options.full else 256)


def row(report: Report, figure: str, asked: str, measured: str, met: bool | None, how: str) -> None:
    """One figure. met: None where nothing is asked."""
    report.row([figure, asked, measured, "-" if met is None else "yes" if met else "NO", how])
    report.progress(f"{figure}: {measured}, asked {asked}")


def refuse_errors(report: Report, what: str, errors: dict[str, int]) -> None:
    """A load whose answers were not all 200 gives no figure."""
    if errors:
        report.fail(f"[service] expected answers 200 to {what}, got {errors}")


@contextmanager
def service_process(options: Options, **config: Any) -> Iterator[tuple[Worker, str]]:
    """A deployment that serves in a process of its own, and its URL; its data lie in a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder,
        Worker(Service, world(options), folder, options.threads, config) as server,
    ):
        server.result()
        url = server.call("serve")
        server.resume()  # a worker rests between calls, and this one serves
        yield server, url


def asked_of(server: Worker, method: str, *arguments: Any) -> Any:
    """Calls a method of a server, which serves on."""
    found = server.call(method, *arguments)
    server.resume()
    return found
