"""Is a maximum or minimum kept up to date by column cheaper than by whole rows? SAGE-max and SAGE-min against
InkStream, its conditions of events (Figure 13) and the share of the affected vertices that really change (Figures 3b
and 14).

Everything is counted on the batches that are timed. Bytes re-read are those of message rows read again because a
deletion took an extreme away: InkStream's rule is every column of every in-neighbour of an exposed vertex; livegnn
reports what its engine read. Theoretically affected: what the changed edges and features reach along the graph, a
vertex itself included; really affected: vertices whose row differs afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import livegnn
from benchmarks.engine.comparison import AGREEMENT, Cell, Contest
from benchmarks.engine.interleave import updates_needed
from benchmarks.engine.live import Live, percentiles
from benchmarks.engine.networks import Network, network
from benchmarks.engine.stream import Workload, workload
from benchmarks.engine.trained import train
from benchmarks.options import Options
from benchmarks.peers.inkstream import LayerCounts
from benchmarks.peers.inkstream_layer import InkStreamLayer
from benchmarks.peers.inkstream_vertex import InkStreamVertex
from benchmarks.peers.pyg_full import PygFull
from benchmarks.peers.rc import RecomputeAffected
from benchmarks.report import Report, rate, size

SIZES = (1, 10, 100, 1000)
CONDITIONS = ("no_deletion", "no_effect", "covered", "exposed", "resilient")
PEERS = ("ink-vertex", "ink-layer", "rc", "pyg")
PEERS_LARGE = ("ink-vertex", "ink-layer", "rc")  # where a full run takes many seconds


@dataclass(frozen=True)
class Entry:
    """One contest of the plan. weights: "random" or "trained".  short: see Contest."""

    workload: str
    aggregate: str
    weights: str = "random"
    hidden: int = 256
    budget_s: float = 3.0
    sizes: tuple[int, ...] = SIZES
    peers: tuple[str, ...] = PEERS
    short: bool = False

    @property
    def kind(self) -> str:
        return f"sage-{self.aggregate}"

    def cells(self, batch_size: int) -> list[object]:
        """How a row of any table begins."""
        return [self.workload, self.aggregate, self.weights, batch_size]


VARIANTS = tuple(itertools.product(("max", "min"), ("random", "trained")))
DEFAULT_PLAN = (
    Entry("arxiv-like", "max"),
    Entry("arxiv-like", "max", "trained"),
    Entry("arxiv-like", "min"),
    Entry("products-like-small", "max", sizes=(1, 10, 100), peers=PEERS_LARGE, short=True),
)
FULL_PLAN = (
    *(Entry("arxiv-like", *variant, budget_s=10.0) for variant in VARIANTS),
    *(Entry("products-like-small", *variant, peers=PEERS_LARGE, short=True) for variant in VARIANTS),
)
TINY_PLAN = tuple(Entry("tiny", *variant, hidden=32, budget_s=0.1) for variant in VARIANTS)

BEGIN = ("workload", "aggregate", "weights", "batch")
SPEED_COLUMNS = (
    *BEGIN,
    "updates/s",
    "p50 / p99",
    InkStreamVertex.name,
    InkStreamLayer.name,
    RecomputeAffected.name,
    PygFull.name,
    "x InkStream",
    "x RC",
    "re-read per batch: livegnn",
    "InkStream, whole rows",
    "ratio",
    "largest difference",
)
CONDITION_COLUMNS = (
    *BEGIN,
    "layer",
    "engine",
    "targets of events per batch",
    *(name.replace("_", " ") for name in CONDITIONS),
)
AFFECTED_COLUMNS = (*BEGIN, "layer", "theoretically affected per batch", "really", "share", "livegnn: changed outputs")


def run(options: Options, report: Report) -> None:
    """Three tables; rows of the first as they come, those of the others at the end."""
    plan = TINY_PLAN if options.tiny else FULL_PLAN if options.full else DEFAULT_PLAN
    report.heading("Extremes: SAGE-max and SAGE-min, two layers, updates per second and bytes re-read")
    report.columns(SPEED_COLUMNS)
    conditions: list[list[object]] = []
    affected: list[list[object]] = []
    notes: list[str] = []
    for entry in plan:
        for cell in _contest(entry, options, report, notes):
            report.row(speed_row(entry, cell))
            conditions += condition_rows(entry, cell)
            affected += affected_rows(entry, cell)
    report.line()
    for note in notes:
        report.line(note)
    report.heading("Extremes: conditions of the targets of events, share of the targets (InkStream, Figure 13)")
    _table(CONDITION_COLUMNS, conditions, report)
    report.heading("Extremes: really against theoretically affected vertices (InkStream, Figures 3b and 14)")
    _table(AFFECTED_COLUMNS, affected, report)


def _table(columns: Sequence[str], rows: list[list[object]], report: Report) -> None:
    report.columns(columns)
    for row in rows:
        report.row(row)


def _contest(entry: Entry, options: Options, report: Report, notes: list[str]) -> Iterator[Cell]:
    """Cells, one after the other."""
    report.progress(f"{entry.workload}, {entry.kind}, {entry.weights} weights: generating and starting")
    work = workload(entry.workload, 4500 if options.tiny else updates_needed(entry.sizes, 0))
    module = _module(entry, work, notes)
    contest = Contest(
        work,
        entry.kind,
        module,
        start_livegnn(work, module, entry.aggregate, options.threads),
        peers=entry.peers,
        read=read_counts,
        short=entry.short,
    )
    for batch_size in entry.sizes:
        if not contest.turns.has_room(batch_size):
            report.progress(f"  batch {batch_size} left out: the stream is too short")
            continue
        cell = contest.cell(batch_size, entry.budget_s)
        report.progress(f"  batch {batch_size} done")
        if not cell.difference <= AGREEMENT:
            where = f"{entry.workload}, {entry.kind}, {entry.weights} weights, batch {batch_size}"
            expected = f"expected {cell.disagreeing} to agree within {AGREEMENT}"
            report.fail(f"[extremes] {where}: {expected}, got {cell.difference:.2e}")
        yield cell
    contest.live.engine.verify()


def _module(entry: Entry, work: Workload, notes: list[str]) -> Network:
    widths = [work.features.shape[1], entry.hidden, work.classes]
    if entry.weights == "random":
        return network(entry.kind, widths)
    trained = train(entry.kind, entry.workload, widths)
    notes.append(
        f"- {entry.workload}, {entry.aggregate}: trained weights name the planted label of {trained.accuracy:.0%} of "
        f"held-out vertices; the most frequent label would be right for {trained.chance:.0%}."
    )
    return trained.module


# ---- livegnn's side: how a layer gets its aggregate, and where the counts are


def start_livegnn(work: Workload, module: Network, aggregate: str, threads: int) -> Live:
    """The module's weights in livegnn's own layers."""
    layers = []
    for k, conv in enumerate(module.convs):
        weights = (conv.lin_l.weight.numpy(), conv.lin_r.weight.numpy(), conv.lin_l.bias.numpy())
        activation = "relu" if k + 1 < len(module.convs) else None
        layers.append(livegnn.layers.SAGE(*weights, aggregate=aggregate, activation=activation))
    return Live(work, livegnn.Model(layers), threads=threads)


def read_counts(name: str, result: Any) -> list[LayerCounts] | None:
    """Counts per layer of one batch, from livegnn's Changes or from what an InkStream returned."""
    if name != Live.name:
        return result if isinstance(result, list) else None
    found = [layer.extremes for layer in result.stats.layers if layer.extremes is not None]
    counts = [LayerCounts(**{n: getattr(e, n) for n in (*CONDITIONS, "reread_bytes")}) for e in found]
    counts[-1].changed = len(result)
    return counts


# ---- rows


def per_layer(batches: Sequence[Sequence[LayerCounts]]) -> list[LayerCounts]:
    """Sums over the batches, layer by layer."""
    names = [field.name for field in fields(LayerCounts)]
    return [
        LayerCounts(**{n: sum(getattr(c, n) for c in layer) for n in names}) for layer in zip(*batches, strict=True)
    ]


def speed_row(entry: Entry, cell: Cell) -> list[object]:
    """Rates, ratios to the faster InkStream and to RC, and bytes re-read per batch."""
    named = (InkStreamVertex.name, InkStreamLayer.name, RecomputeAffected.name, PygFull.name)
    own = cell.rate(Live.name)
    inkstream = max(cell.rate(name) for name in named[:2] if name in cell.seconds)
    reread = {name: _reread_per_batch(cell, name) for name in (Live.name, InkStreamVertex.name)}
    ratio = reread[InkStreamVertex.name] / reread[Live.name] if reread[Live.name] else None
    return [
        *entry.cells(cell.size),
        f"**{rate(own)}**",
        percentiles(np.array(cell.seconds[Live.name])),
        *(rate(cell.rate(name)) if name in cell.seconds else "-" for name in named),
        f"{own / inkstream:.1f}",
        f"{own / cell.rate(RecomputeAffected.name):.1f}",
        *(size(count) for count in reread.values()),
        "-" if ratio is None else f"{ratio:.3g}",
        f"{cell.difference:.1e}",
    ]


def _reread_per_batch(cell: Cell, name: str) -> float:
    batches = cell.results[name]
    return sum(layer.reread_bytes for layer in per_layer(batches)) / len(batches)


def condition_rows(entry: Entry, cell: Cell) -> list[list[object]]:
    """A row per layer and engine; resilient targets are in one of the four conditions too."""
    rows = []
    for name in (InkStreamVertex.name, Live.name):
        batches = cell.results[name]
        for k, counts in enumerate(per_layer(batches)):
            shares = [getattr(counts, condition) / max(counts.visited, 1) for condition in CONDITIONS]
            targets = f"{counts.visited / len(batches):.4g}"
            rows.append([*entry.cells(cell.size), k + 1, name, targets, *(f"{share:.1%}" for share in shares)])
    return rows


def affected_rows(entry: Entry, cell: Cell) -> list[list[object]]:
    """A row per layer; the last layer's vertices are those whose output differs."""
    rows = []
    outputs = sum(batch[-1].changed for batch in cell.results[Live.name]) / len(cell.results[Live.name])
    found = per_layer(cell.results[InkStreamVertex.name])
    for k, counts in enumerate(found):
        theory = float(np.mean([batch[k].affected for batch in cell.counts]))
        really = counts.changed / len(cell.counts)
        last = f"{outputs:.4g}" if k + 1 == len(found) else "-"
        rows.append([*entry.cells(cell.size), k + 1, f"{theory:.4g}", f"{really:.4g}", f"{really / theory:.1%}", last])
    return rows
