"""Is livegnn as fast as it must be? Updates per second against the counted bound and the strongest peer (PERFORMANCE
targets)."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.contest import AGREEMENT, Cell, Contest
from benchmarks.live import percentiles, timed
from benchmarks.machine import REFERENCE, Machine
from benchmarks.options import Options
from benchmarks.peers.pyg_full import PygFull
from benchmarks.peers.rc import RecomputeAffected
from benchmarks.peers.ripple_numpy import RippleNumpy
from benchmarks.peers.ripple_torch import RippleTorch
from benchmarks.report import Report, duration, rate, size
from benchmarks.stream import Workload, workload
from benchmarks.turns import updates_needed

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
    """One contest of the plan. short: see Contest."""

    workload: str
    kind: str
    hidden: tuple[int, ...] = (256,)
    budget_s: float = 8.0
    peers: tuple[str, ...] = ALL_PEERS
    short: bool = False
    latency_batches: int = 3000


DEFAULT_PLAN = (
    Entry("arxiv-like", "graphconv"),
    Entry("arxiv-like", "gcn", budget_s=3),
    Entry("arxiv-like", "sage", budget_s=3),
    Entry("arxiv-like", "gin", budget_s=3),
    Entry("arxiv-like", "graphconv", (64,), budget_s=3),
    Entry("products-like-small", "graphconv", budget_s=5, peers=STRONG_PEERS, latency_batches=500),
    Entry("reddit-like-small", "graphconv", peers=STRONG_PEERS, budget_s=3, short=True, latency_batches=100),
)
FULL_PLAN = tuple(
    Entry(name, kind, (hidden,), 20.0)
    for name in TARGETS
    for kind in ("graphconv", "gcn", "sage", "gin")
    for hidden in (256, 64)
)
TINY_PLAN = tuple(Entry("tiny", kind, (32,), 0.2, latency_batches=50) for kind in ("graphconv", "gcn", "sage", "gin"))
COLUMNS = (
    "workload",
    "model",
    "hidden",
    "batch",
    "updates/s",
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
    "largest difference",
)


def run(options: Options, report: Report) -> None:
    """The targets table: a row per workload, model, hidden width and batch size; notes for each contest below."""
    plan = TINY_PLAN if options.tiny else FULL_PLAN if options.full else DEFAULT_PLAN
    report.heading("Speed: updates per second, two layers, exact")
    report.line(machine_line(options.machine))
    report.columns(COLUMNS)
    notes = []
    for entry in plan:
        report.progress(f"{entry.workload}, {entry.kind}, hidden {_hidden(entry)}: generating and starting")
        length = 4500 if options.tiny else updates_needed(SIZES, entry.latency_batches)
        notes.append(run_contest(entry, workload(entry.workload, length), options, report))
    report.line()
    for note in notes:
        report.line(note)


def machine_line(machine: Machine) -> str:
    """The constants of both bounds."""
    return (
        f"{machine.name.capitalize()}: {machine.bytes_per_s / 1e9:.1f} GB/s, {machine.flop_per_s / 1e9:.0f} GFLOP/s; "
        f"reference: {REFERENCE.bytes_per_s / 1e9:.1f} GB/s, {REFERENCE.flop_per_s / 1e9:.0f} GFLOP/s. "
        "Targets of the bound are judged by this machine's constants, the others by the strongest peer but PyG.\n"
    )


def run_contest(entry: Entry, work: Workload, options: Options, report: Report) -> str:
    """Rows of one contest, printed as they come; returns a note on latency, bootstrap and memory."""
    begin = time.perf_counter()
    contest = Contest(work, entry.kind, entry.hidden, threads=options.threads, peers=entry.peers, short=entry.short)
    report.progress(f"  started in {time.perf_counter() - begin:.1f} s")
    for batch_size in SIZES:
        if not contest.turns.has_room(batch_size):
            report.progress(f"  batch {batch_size} left out: the stream is too short")
            continue
        cell = contest.cell(batch_size, entry.budget_s)
        _check(entry, cell, report)
        report.row(_row(entry, contest, cell, options.machine))
        report.progress(f"  batch {batch_size} done")
    note = _note(entry, contest)
    contest.live.engine.verify()
    return note


def _check(entry: Entry, cell: Cell, report: Report) -> None:
    if not cell.difference <= AGREEMENT:
        where = f"{entry.workload}, {entry.kind}, batch {cell.size}"
        report.fail(
            f"[speed] {where}: expected {cell.disagreeing} to agree within {AGREEMENT}, got {cell.difference:.2e}"
        )


def _row(entry: Entry, contest: Contest, cell: Cell, machine: Machine) -> list[object]:
    here, reference = contest.times_bound(cell, machine)[1], contest.times_bound(cell, REFERENCE)[1]
    strongest = max(cell.rate(name) for name in cell.seconds if name not in ("livegnn", PygFull.name))
    ratio = cell.rate("livegnn") / strongest
    bound_target, peer_target = _targets(entry, cell.size)
    met = (bound_target is None or here <= bound_target) and (peer_target is None or ratio >= peer_target)
    judged = bound_target is not None or peer_target is not None
    named = (RecomputeAffected.name, RippleTorch.name, RippleNumpy.name, PygFull.name)
    return [
        entry.workload,
        entry.kind,
        _hidden(entry),
        cell.size,
        f"**{rate(cell.rate('livegnn'))}**",
        percentiles(np.array(cell.seconds["livegnn"])),
        f"{here:.1f}",
        f"{reference:.1f}",
        "-" if bound_target is None else f"{bound_target:g}",
        *(rate(cell.rate(name)) if name in cell.seconds else "-" for name in named),
        f"{ratio:.1f}",
        "-" if peer_target is None else f"{peer_target:g}",
        ("yes" if met else "NO") if judged else "-",
        f"{cell.difference:.1e}",
    ]


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


def _note(entry: Entry, contest: Contest) -> str:
    """Latency at batch 1, bootstrap against PyG's CSR run, and memory."""
    room = (len(contest.workload.stream) - contest.turns.position) // 2
    apply, singly = contest.latencies(min(entry.latency_batches, room))
    live = contest.live
    fresh = float(np.median(timed(lambda _: live.engine.recompute(), range(3))))
    started = f"full run {duration(fresh)}"
    if contest.pyg is not None:
        pyg = contest.pyg
        pyg_run = float(np.median(timed(lambda _: pyg.run(), range(3))))
        met = "met" if pyg_run >= fresh else "NOT met"
        started += f", PyG's CSR run {duration(pyg_run)} ({pyg_run / fresh:.2f} times livegnn's; at least 1: {met})"
    p99_target = P99_TARGET_S.get(entry.workload)
    judged = ""
    if p99_target is not None and entry.hidden == (256,):
        met = np.percentile(apply, 99) <= p99_target
        judged = f" (p99 at most {duration(p99_target)}: {'met' if met else 'NOT met'})"
    graph_bytes = sum(live.graph.memory().values())
    return (
        f"- {entry.workload}, {entry.kind}, hidden {_hidden(entry)}: batch 1 p50 / p99 {percentiles(apply)}{judged}, "
        f"with Updates built one by one {percentiles(singly)}; {started}; state {size(live.state_bytes())} "
        f"({live.state_bytes() / contest.workload.vertices:.0f} B per vertex), graph {size(graph_bytes)}."
    )


def _hidden(entry: Entry) -> str:
    return "-".join(map(str, entry.hidden))
