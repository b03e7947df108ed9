"""Three layers, products-shaped (RIPPLE, Figure 10), and the bytes of state that each way needs (NeutronRT, Table
VI)."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.engine.live import Live
from benchmarks.engine.networks import network
from benchmarks.engine.process_contest import updates_needed
from benchmarks.engine.speed import Entry, head, run_contest
from benchmarks.engine.stream import Workload, workload
from benchmarks.options import Options
from benchmarks.peers.bootstrap import bootstrap
from benchmarks.report import Report, size

SMALLER = "products-shaped-150k"
HIDDEN = (256, 256)
KINDS = ("graphconv", "gcn", "sage", "gin")


def run(options: Options, report: Report) -> None:
    """Default: the smaller graph; --full: products-like-small and all models."""
    name = "tiny" if options.tiny else "products-like-small" if options.full else SMALLER
    report.heading("Depth: three layers, products-shaped")
    library = head(options.machine, report)
    notes = []
    for kind in KINDS if options.full else ("graphconv",):
        entry = Entry(name, kind, HIDDEN, 4.0, peers=("rc", "torch", "pyg"), dense=True, latency_batches=100)
        length = updates_needed(entry.shapes(options.tiny), entry.latency_batches)
        notes.append(run_contest(entry, partial(workload, name, length), library, options, report))
    report.line()
    for note in notes:
        report.line(note)
    _state_table(name, options, report)


def _state_table(name: str, options: Options, report: Report) -> None:
    """Bytes besides the graph itself. Naive: features, embeddings and aggregates of every layer, float32."""
    report.heading("State bytes, three layers (features included)")
    report.columns(
        ("workload", "model", "full: features, outputs", "naive incremental", "livegnn fast", "livegnn compact")
    )
    work = workload(name, 300)
    for kind in KINDS if options.full else ("graphconv", "gcn"):
        report.progress(f"{name}, {kind}: state bytes")
        widths = [work.features.shape[1], *HIDDEN, work.classes]
        module = network(kind, widths)
        state = bootstrap(work, kind, module)
        full = state.rows[0].nbytes + state.rows[-1].nbytes
        naive = sum(rows.nbytes for rows in state.rows + state.sums)
        del state
        fast = _livegnn_bytes(work, module, options)
        compact = _livegnn_bytes(work, module, options, state="compact")
        cells = [work.name, kind, full, naive, fast, compact]
        report.row([*cells[:2], *(_bytes(b, naive) for b in cells[2:])])
    report.line("\nlivegnn's exact aggregates are int64: twice the bytes of float32.")


def _bytes(count: int, naive: int) -> str:
    return f"{size(count)} ({count / naive:.2f} of naive)"


def _livegnn_bytes(work: Workload, module: Any, options: Options, **choice: str) -> int:
    live = Live(work, module, threads=options.threads, **choice)
    return live.state_bytes() + work.features.nbytes
