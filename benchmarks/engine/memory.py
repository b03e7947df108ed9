"""What a limit of memory costs, tenth by tenth of the rows that it leaves out (NeutronRT, section V.B: leaving out a
tenth of the embeddings can slow it down more than tenfold).

Each limit has an engine of its own, that takes the same stream from its beginning, so that batches touch rows as they
come and not the same ones again. Rows in memory are what the limit leaves for rows, three quarters of it, over the
bytes of rows that the engine has.
"""

from __future__ import annotations

import statistics

import numpy as np

import livegnn
from benchmarks.engine.live import Live, timed
from benchmarks.engine.networks import model
from benchmarks.engine.stream import Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, duration, size
from livegnn.inference.memory import LEAST_LIMIT

TENTHS = tuple(range(10, 0, -1))
FEW = (9, 5)
BATCHES = {1: 100, 100: 9, 1000: 4}  # of each size; the first is not counted
FOR_ROWS = 0.75  # of a limit
COLUMNS = ("workload", "model", "state", "rows in memory", "limit", "creation")


def run(options: Options, report: Report) -> None:
    """A row per model, way of keeping state, and share of the rows in memory."""
    name = "tiny" if options.tiny else "arxiv-like"
    report.heading("Memory: a batch where part of the rows is in files")
    report.columns((*COLUMNS, *(f"batch {each}" for each in BATCHES), "pages read, batch 100", "verify()"))
    work = workload(name, sum(each * count for each, count in BATCHES.items()))
    for kind in ("graphconv", "gat") if options.full else ("graphconv",):
        for state in ("fast", "compact") if options.full and kind == "graphconv" else ("fast",):
            _tenths(work, kind, state, options, report)
    report.line(
        "\nIn parentheses: times the engine without a limit. Means, the first batch of a size left out; pages of 4 KiB."
    )


def _tenths(work: Workload, kind: str, state: str, options: Options, report: Report) -> None:
    report.progress(f"{work.name}, {kind}, {state}: without a limit")
    network = model(kind, [work.features.shape[1], 8 if options.tiny else 256, work.classes])
    plain = Live(work, network, threads=options.threads, state=state)
    parts = plain.engine.state_bytes()
    rows = sum(parts[part] for part in ("aggregates", "messages", "stored", "outputs"))
    base = _measure(plain, work)
    everyone = np.arange(work.vertices, dtype=np.int64)
    expected = plain.output(everyone)
    report.row(
        [work.name, kind, state, "all", "none", duration(plain.start_seconds), *map(duration, base[0]), 0, base[2]]
    )
    for tenth in TENTHS if options.full else FEW:
        limit = int(rows * tenth / 10 / FOR_ROWS)
        if limit < LEAST_LIMIT:
            report.progress(f"  {tenth} tenths: {size(limit)} is below the least limit")
            continue
        report.progress(f"  {tenth} tenths: {size(limit)}")
        limited = Live(work, network, threads=options.threads, state=state, memory_limit=limit)
        seconds, pages, verified = _measure(limited, work)
        cells = [f"{duration(s)} ({s / b:.3g})" for s, b in zip(seconds, base[0], strict=True)]
        share = f"{tenth}/10"
        start = duration(limited.start_seconds)
        report.row([work.name, kind, state, share, size(limit), start, *cells, pages, verified])
        resident = limited.engine.memory
        if limited.output(everyone).tobytes() != expected.tobytes():
            report.fail(f"[memory] {work.name}, {kind}, {share}: expected equal results, bit for bit, got others")
        if resident is None or resident.resident > limit:
            report.fail(f"[memory] {work.name}, {kind}, {share}: expected rows within {limit} bytes, got {resident}")
        limited.engine.close()


def _measure(live: Live, work: Workload) -> tuple[list[float], int, str]:
    """Mean seconds by batch size, pages read by a batch of 100, and the time of verify()."""
    means, pages, position = [], 0, 0
    for batch_size, count in BATCHES.items():
        prepared = [live.prepare(batch) for batch in work.stream.batches(position, batch_size, count)]
        position += batch_size * count
        before = live.engine.memory
        means.append(statistics.mean(timed(live.apply, prepared)[1:]))
        after = live.engine.memory
        if batch_size == 100 and before is not None and after is not None:
            pages = (after.pages_in - before.pages_in) // len(prepared)
    return means, pages, duration(float(timed(livegnn.Engine.verify, [live.engine])[0]))
