"""Samples and predictions over HTTP, binary bodies: the server on one core, the load generator on the other.

The open loop draws when requests are due beforehand and counts their latency from then. The model is a GraphSAGE in
torch.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from benchmarks.http_load import LoadResult
from benchmarks.options import Options
from benchmarks.report import Report, rate, size
from benchmarks.sampling.load import Load, apply_load
from benchmarks.sampling.workload import FEATURES, query, social

OPEN_RATE = 2500.0
OPEN_TARGET_MS = 50.0
CLOSED_TARGET_MS = 100.0
SERVER_CORE, LOAD_CORE = 0, 1


def _serve(pipe: Connection, tiny: bool, fanouts: tuple[int, ...]) -> None:
    """Loads the network, samples it, and serves until it is stopped."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {SERVER_CORE})
    import torch

    import livegnn as lg
    from livegnn.sampling.presample.tree_sage import TreeSAGE
    from livegnn.serve import background, even_latency

    torch.set_num_threads(1)
    torch.manual_seed(0)
    work = social(tiny, share=1.0 if tiny else 0.2)
    sampler = lg.PreSampler(work.graph(), query("random", fanouts), seed=5, threads=1)
    model = TreeSAGE(FEATURES, 32, 16, len(fanouts))
    with lg.SampleServer(sampler, model) as server, even_latency(), background(server) as url:
        pipe.send((url, work.forums))
        pipe.recv()


@contextmanager
def _server(tiny: bool, fanouts: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """The URL of a server in a process of its own, and how many seeds there are."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, tiny, fanouts))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("stop")
        process.join(timeout=60)


def run(options: Options, report: Report) -> None:
    """A row per route and load."""
    report.heading("Over HTTP, binary bodies, features included, one core")
    report.columns(("route", "query", "load", "answers/s", "p50", "p99", "p99 at most", "met", "errors", "body"))
    seconds = 1.0 if options.tiny else 10.0
    with _server(options.tiny, (25, 10)) as (url, seeds):
        _row("sample", "[25, 10]", Load(f"{url}/v1/sample", seeds, OPEN_RATE, 64, seconds), OPEN_TARGET_MS, report)
        _row("sample", "[25, 10]", Load(f"{url}/v1/sample", seeds, None, 200, seconds), None, report)
        _row("predict", "[25, 10]", Load(f"{url}/v1/predict", seeds, None, 200, seconds), CLOSED_TARGET_MS, report)
    with _server(options.tiny, (25, 10, 5)) as (url, seeds):
        _row("sample", "[25, 10, 5]", Load(f"{url}/v1/sample", seeds, None, 100, seconds), CLOSED_TARGET_MS, report)
        _row("predict", "[25, 10, 5]", Load(f"{url}/v1/predict", seeds, None, 100, seconds), CLOSED_TARGET_MS, report)


def _row(route: str, asked: str, load: Load, p99_max: float | None, report: Report) -> None:
    found: LoadResult = apply_load(Load(**{**load.__dict__, "core": LOAD_CORE}))
    kind = f"{load.rate:.0f}/s, open" if load.rate else f"{load.clients} clients, closed"
    met = "-" if p99_max is None else ("yes" if found.p99_ms <= p99_max and not found.errors else "NO")
    target = "-" if p99_max is None else f"{p99_max:.0f} ms"
    errors = ", ".join(f"{name}: {count}" for name, count in found.errors.items()) or "none"
    times = (f"{found.p50_ms:.1f} ms", f"{found.p99_ms:.1f} ms")
    report.row([route, asked, kind, rate(found.rate), *times, target, met, errors, size(found.bytes)])
    report.progress(f"{route} {asked}, {kind}: {rate(found.rate)} answers/s, p99 {found.p99_ms:.1f} ms")
    if not found.requests:
        report.fail(f"[sampling_http] expected answers from {route}, got none ({errors})")
