"""Is livegnn as fast as it must be? Updates per second against the counted bound and the strongest peer (PERFORMANCE
targets)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.engine.comparison import AGREEMENT
from benchmarks.engine.live import percentiles
from benchmarks.engine.players import Facts
from benchmarks.engine.process_contest import (
    DENSE,
    LIVE,
    NORMAL,
    PROTOTYPE,
    PYG,
    RANGE_MAX,
    TINY,
    Cell,
    ProcessContest,
    updates_needed,
)
from benchmarks.engine.runs import Source
from benchmarks.engine.stream import workload
from benchmarks.machine import REFERENCE, Machine
from benchmarks.options import Options
from benchmarks.peers import prototype
from benchmarks.report import Report, duration, rate, size

SIZES = (1, 10, 100, 1000)
P99_TARGET_S = {"arxiv-like": 60e-6}
GCN_AGAINST_RC = 3.0  # products-like-small, batch 1000


@dataclass(frozen=True)
class Target:
    """Times bound B at most, and times the strongest RIPPLE- or RC-style peer at least, per batch size."""

    bound: tuple[float, float, float, float]
    peer: tuple[float, float, float, float]


TARGETS = {
    "arxiv-like": Target((9, 7.5, 6.5, 6), (20, 8, 7, 7)),
    "products-like-small": Target((6, 6, 7.5, 8), (40, 35, 20, 12)),
    "reddit-like-small": Target((6, 6, 6, 6), (25, 15, 12, 10)),
}
ALL_PEERS = ("rc", "torch", "numpy", "pyg")
STRONG_PEERS = ("rc", "torch", "pyg")  # where RIPPLE in NumPy is never the strongest, and slow


@dataclass(frozen=True)
class Entry:
    """One contest of the plan. budget_s: of an engine in a cell, see ProcessContest.   dense: one update reaches a
    large part of all vertices, so that runs are short."""

    workload: str
    kind: str
    hidden: tuple[int, ...] = (256,)
    budget_s: float = 2.5
    peers: tuple[str, ...] = ALL_PEERS
    dense: bool = False
    latency_batches: int = 3000

    def shapes(self, tiny: bool) -> dict[int, tuple[int, int]]:
        """(batches not counted, batches counted) of each size."""
        return TINY if tiny else DENSE if self.dense else NORMAL


DEFAULT_PLAN = (
    Entry("arxiv-like", "graphconv"),
    Entry("arxiv-like", "gcn"),
    Entry("arxiv-like", "sage"),
    Entry("arxiv-like", "gin"),
    Entry("arxiv-like", "graphconv", (64,)),
    Entry("products-like-small", "graphconv", peers=STRONG_PEERS, budget_s=5.0, dense=True, latency_batches=500),
    Entry("reddit-like-small", "graphconv", peers=STRONG_PEERS, budget_s=4.0, dense=True, latency_batches=100),
)
FULL_PLAN = tuple(
    Entry(name, kind, (hidden,), 20.0, dense=name != "arxiv-like")
    for name in TARGETS
    for kind in ("graphconv", "gcn", "sage", "gin")
    for hidden in (256, 64)
)
TINY_PLAN = tuple(Entry("tiny", kind, (64,), 0.2, latency_batches=50) for kind in ("graphconv", "gcn", "sage", "gin"))
COLUMNS = (
    "workload",
    "model",
    "hidden",
    "batch",
    "updates/s (range)",
    "p50 / p99",
    "x bound B, this machine",
    "x bound B, reference",
    "at most",
    "RC",
    "RIPPLE torch",
    "RIPPLE numpy",
    "PyG full",
    "x strongest peer",
    "at least",
    "met",
    "prototype",
    "largest difference",
)


def run(options: Options, report: Report) -> None:
    """The targets table: a row per workload, model, hidden width and batch size; notes for each contest below."""
    plan = TINY_PLAN if options.tiny else FULL_PLAN if options.full else DEFAULT_PLAN
    report.heading("Speed: updates per second, two layers, exact")
    library = head(options.machine, report)
    notes = []
    for entry in plan:
        length = updates_needed(entry.shapes(options.tiny), entry.latency_batches)
        source = partial(workload, entry.workload, length)
        notes.append(run_contest(entry, source, library, options, report))
    report.line()
    for note in notes:
        report.line(note)


def head(machine: Machine, report: Report) -> Path | None:
    """What stands above the rows; returns the prototype's library, if there is one."""
    library, missing = prototype.built()
    report.line(machine_line(machine))
    report.line(
        "Every engine is a process of its own. Rates are medians over turns, in parentheses the range: fastest turn "
        f"over slowest (above {RANGE_MAX}, measured twice and still marked !; - for one turn), for the others also "
        "livegnn's rate over theirs on the same batches."
        + (f" The prototype is left out: {missing}." if library is None else "")
        + "\n"
    )
    report.columns(COLUMNS)
    return library


def machine_line(machine: Machine) -> str:
    """The constants of both bounds."""
    return (
        f"{machine.name.capitalize()}: {machine.bytes_per_s / 1e9:.1f} GB/s, {machine.flop_per_s / 1e9:.0f} GFLOP/s; "
        f"reference: {REFERENCE.bytes_per_s / 1e9:.1f} GB/s, {REFERENCE.flop_per_s / 1e9:.0f} GFLOP/s. "
        "Targets of the bound are judged by this machine's constants, the others by the strongest peer but PyG.\n"
    )


def run_contest(entry: Entry, source: Source, library: Path | None, options: Options, report: Report) -> str:
    """Rows of one contest, printed as they come; returns a note on latency, full runs and memory."""
    report.progress(f"{entry.workload}, {entry.kind}, hidden {_hidden(entry)}: generating and starting")
    begin = time.perf_counter()
    shapes = entry.shapes(options.tiny)
    with ProcessContest(
        source,
        entry.kind,
        entry.hidden,
        threads=options.threads,
        peers=entry.peers,
        shapes=shapes,
        prototype=library,
    ) as contest:
        report.progress(f"  started in {time.perf_counter() - begin:.1f} s")
        for batch_size in SIZES:
            if not contest.has_room(batch_size):
                report.progress(f"  batch {batch_size} left out: the stream is too short")
                continue
            cell = contest.cell(batch_size, entry.budget_s)
            _check(entry, cell, report)
            report.row(_row(entry, contest, cell, options.machine))
            report.progress(f"  batch {batch_size} done")
        note = _note(entry, contest)
        contest.call(LIVE, "verify")
    return note


def _check(entry: Entry, cell: Cell, report: Report) -> None:
    if not cell.difference <= AGREEMENT:
        where = f"{entry.workload}, {entry.kind}, batch {cell.size}"
        report.fail(
            f"[speed] {where}: expected {cell.disagreeing} to agree within {AGREEMENT}, got {cell.difference:.2e}"
        )


def _row(entry: Entry, contest: ProcessContest, cell: Cell, machine: Machine) -> list[object]:
    here, reference = contest.times_bound(cell, machine), contest.times_bound(cell, REFERENCE)
    ratio = min(cell.ratio(name) for name in cell.turns if name not in (LIVE, PYG, PROTOTYPE))
    bound_target, peer_target = _targets(entry, cell.size)
    met = (bound_target is None or here <= bound_target) and (peer_target is None or ratio >= peer_target)
    judged = bound_target is not None or peer_target is not None
    return [
        entry.workload,
        entry.kind,
        _hidden(entry),
        cell.size,
        f"**{rate(cell.rate(LIVE))}** ({_range(cell, LIVE)})",
        percentiles(np.concatenate(cell.turns[LIVE])),
        f"{here:.1f}",
        f"{reference:.1f}",
        "-" if bound_target is None else f"{bound_target:g}",
        *(_other(cell, name) for name in ("rc", "torch", "numpy", PYG)),
        f"{ratio:.1f}",
        "-" if peer_target is None else f"{peer_target:g}",
        ("yes" if met else "NO") if judged else "-",
        _other(cell, PROTOTYPE),
        f"{cell.difference:.1e}",
    ]


def _other(cell: Cell, name: str) -> str:
    """Rate and range of another engine, and livegnn's rate over it."""
    if name not in cell.turns:
        return "-"
    return f"{rate(cell.rate(name))} ({_range(cell, name)}; {cell.ratio(name):.3g}x)"


def _range(cell: Cell, name: str) -> str:
    found = cell.range(name)
    if found is None:
        return "-"
    return f"{found:.2f}" + ("!" if found > RANGE_MAX else "")


def _targets(entry: Entry, batch_size: int) -> tuple[float | None, float | None]:
    """(times bound at most, times peer at least); None where none is set."""
    target = TARGETS.get(entry.workload)
    if target is None or entry.hidden != (256,):
        return None, None
    index = SIZES.index(batch_size)
    if entry.kind != "gcn":
        return target.bound[index], target.peer[index]
    against_rc = entry.workload == "products-like-small" and batch_size == 1000
    return target.bound[index], GCN_AGAINST_RC if against_rc else None


def _note(entry: Entry, contest: ProcessContest) -> str:
    """Latency at batch 1, full run against PyG's CSR run, and memory."""
    room = len(contest.work.stream) // 2
    facts = cast(Facts, contest.call(LIVE, "facts", min(entry.latency_batches, room)))
    fresh = facts.full_run_s
    started = f"full run {duration(fresh)}"
    if contest.has(PYG):
        pyg_run = cast(float, contest.call(PYG, "full_run_s"))
        met = "met" if pyg_run >= fresh else "NOT met"
        started += f", PyG's CSR run {duration(pyg_run)} ({pyg_run / fresh:.2f} times livegnn's; at least 1: {met})"
    p99_target = P99_TARGET_S.get(entry.workload)
    judged = ""
    if p99_target is not None and entry.hidden == (256,):
        met = "met" if np.percentile(facts.apply, 99) <= p99_target else "NOT met"
        judged = f" (p99 at most {duration(p99_target)}: {met})"
    return (
        f"- {entry.workload}, {entry.kind}, hidden {_hidden(entry)}: batch 1 p50 / p99 {percentiles(facts.apply)}"
        f"{judged}, with Updates built one by one {percentiles(facts.singly)}; {started}; state "
        f"{size(facts.state_bytes)} ({facts.state_bytes / contest.work.vertices:.0f} B per vertex), graph "
        f"{size(facts.graph_bytes)}."
    )


def _hidden(entry: Entry) -> str:
    return "-".join(map(str, entry.hidden))
