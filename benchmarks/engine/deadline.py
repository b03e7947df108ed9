"""The largest rate of updates that holds a deadline (NeutronRT, Figure 12.c), by strategy.

Every strategy takes the same recorded stream on an engine of its own: batches of 1, 2, 4, ... updates, RUNS of each
size, until one takes longer than the longest deadline allows or the recording ends. The slowest run of a size decides.
"""

from __future__ import annotations

import numpy as np

from benchmarks.engine.live import Live
from benchmarks.engine.networks import network
from benchmarks.engine.rates import Rate, cost_curve, rate_within
from benchmarks.engine.stream import ADD, REMOVE, Stream, Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, rate
from livegnn.errors import StateMismatch

STRATEGIES = ("incremental", "affected", "khop", "full")
LATENCIES = ("1ms", "10ms", "100ms", "1s")
RUNS = 20
UPDATES = 300_000  # what the held-out edges of the workloads allow, and sizes to 8192 need


def items(stream: Stream) -> list[tuple[object, ...]]:
    """The recorded updates as tuples, in order."""
    found: list[tuple[object, ...]] = []
    for op, u, v, place in zip(stream.op.tolist(), stream.u.tolist(), stream.v.tolist(), stream.row_index, strict=True):
        if op == ADD:
            found.append(("add_edge", u, v))
        elif op == REMOVE:
            found.append(("remove_edge", u, v))
        else:
            found.append(("set_features", u, stream.rows[place]))
    return found


def run(options: Options, report: Report) -> None:
    """A row per model, strategy and deadline."""
    report.heading("Deadline: the largest rate held, updates per second")
    report.columns(("workload", "model", "strategy", "latency", "batch", "updates/s", "batch alone", "updates/s"))
    name = "tiny" if options.tiny else "arxiv-like"
    work = workload(name, 900 if options.tiny else UPDATES)
    for kind in ("graphconv", "gcn", "sage", "gin") if options.full else ("graphconv",):
        for strategy in STRATEGIES:
            _measure(work, kind, strategy, options, report)
    report.line(
        f"\nThe slowest of {_runs(options)} batches decides. An update waits for one batch and then for its own,"
    )
    report.line("so a batch may take half of the latency; the last two columns let it take all, as the paper does.")
    report.line("At least (>=): the recorded stream ended before a batch was late.")


def _runs(options: Options) -> int:
    return 3 if options.tiny else RUNS


def _measure(work: Workload, kind: str, strategy: str, options: Options, report: Report) -> None:
    report.progress(f"{work.name}, {kind}, {strategy}: starting")
    module = network(kind, [work.features.shape[1], 8 if options.tiny else 256, work.classes])
    live = Live(work, module, threads=options.threads, strategy=strategy)
    curve = cost_curve(live.engine, items(work.stream), 1.0, runs=_runs(options))
    try:
        live.engine.verify()
    except StateMismatch as error:
        report.fail(f"[deadline] {work.name}, {kind}, {strategy}: {error}")
    if not np.isfinite(live.output(np.arange(min(work.vertices, 1000), dtype=np.int64))).all():
        report.fail(f"[deadline] {work.name}, {kind}, {strategy}: expected finite outputs, got others")
    for latency in LATENCIES:
        aged, alone = rate_within(curve, latency), rate_within(curve, latency, queued=False)
        report.row([work.name, kind, strategy, latency, *_cells(aged), *_cells(alone)])


def _cells(found: Rate) -> tuple[str, str]:
    if not found.size:
        return "-", "-"
    mark = "" if found.complete else ">= "
    return str(found.size), mark + rate(found.updates_per_second)
