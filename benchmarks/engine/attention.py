"""Is attention kept up to date cheaper by split sums than by reading a moved target's in-edges again? GAT by
"incremental" against "constrained" (NeutronRT's Algorithm 4 on the same store), with GraphConv and GCN of equal
width.

When the row of a target moves, so do the weights of all its in-edges. The constrained strategy reads the messages of
all these in-edges again, a row each; incremental looks at their scores, a number per head each (for a small move of a
hub, at a few of them), and reads the messages of those that change sides. Both push deltas along the out-edges of moved
sources. So the ratio follows from counts, which are taken on the timed batches.

All engines apply the same batches in turns, as `interleave.py` says. Outputs of incremental and constrained must be
equal bit for bit; `--tiny` compares them with the formulas in float64 as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.engine.comparison import AGREEMENT, SETTLE_S, row_difference
from benchmarks.engine.interleave import Turns, updates_needed
from benchmarks.engine.live import Live, percentiles, timed
from benchmarks.engine.networks import model
from benchmarks.engine.stream import Batch, Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, rate
from livegnn.reference.evaluate import evaluate

SIZES = (1, 10, 100, 1000)
INCREMENTAL, CONSTRAINED, GRAPHCONV, GCN = "incremental", "constrained", "graphconv", "gcn"
ATTENTIVE = (INCREMENTAL, CONSTRAINED)  # strategies of GAT; the others are models of the incremental strategy
CONSTRAINED_MIN = {"arxiv-like": (8.0, 8.0, 6.0, 4.0), "products-like-small": (1.4, 1.4, 1.4, 1.4)}  # by SIZES
COST_MAX = 3.0  # times GraphConv, on the workloads above


@dataclass(frozen=True)
class Entry:
    """One race of the plan. plain: models without attention.   short: turns of a tenth, see Contest."""

    workload: str
    hidden: int = 256
    budget_s: float = 3.0
    plain: tuple[str, ...] = (GRAPHCONV, GCN)
    sizes: tuple[int, ...] = SIZES
    short: bool = False

    def cells(self, batch_size: int) -> list[object]:
        """How a row of either table begins."""
        return [self.workload, self.hidden, batch_size]


DEFAULT_PLAN = (
    Entry("arxiv-like"),
    Entry("products-like-small", plain=(GRAPHCONV,), short=True),
)
FULL_PLAN = (
    Entry("arxiv-like", budget_s=20.0),
    Entry("arxiv-like", hidden=64, budget_s=20.0),
    Entry("products-like-small", budget_s=20.0, plain=(GRAPHCONV,)),  # a fourth engine would not fit into 24 GiB
    Entry("products-like-small", hidden=64, budget_s=20.0),
)
TINY_PLAN = (Entry("tiny", hidden=32, budget_s=0.1, short=True),)

BEGIN = ("workload", "hidden", "batch")
SPEED_COLUMNS = (
    *BEGIN,
    "GAT, updates/s",
    "p50 / p99",
    "GAT constrained",
    "x constrained",
    "at least",
    "GraphConv",
    "GCN",
    "cost over GraphConv",
    "at most",
    "met",
    "outputs bit-equal",
)
COUNT_COLUMNS = (
    *BEGIN,
    "delta edges per batch",
    "constrained: rows re-read",
    "incremental: scores scanned",
    "incremental: rows re-read",
    "in-edges over delta edges",
)


@dataclass(frozen=True)
class Counts:
    """Edges of one batch, all layers. delta: out-edges of moved sources.   scanned, reread: in-edges of moved targets
    whose scores were looked at, and whose messages were read again."""

    delta: int
    scanned: int
    reread: int


@dataclass
class Cell:
    """What one batch size gave: seconds of the counted batches, and GAT's counts of the same, by engine."""

    size: int
    seconds: dict[str, list[float]]
    counts: dict[str, list[Counts]] = field(default_factory=lambda: {name: [] for name in ATTENTIVE})
    equal: bool = False

    def rate(self, name: str) -> float:
        """Updates per second."""
        return self.size * len(self.seconds[name]) / sum(self.seconds[name])

    def per_batch(self, name: str) -> tuple[float, float, float]:
        """Means of (delta, scanned, reread)."""
        found = np.array([(c.delta, c.scanned, c.reread) for c in self.counts[name]], np.float64).mean(axis=0)
        return float(found[0]), float(found[1]), float(found[2])


def counts_of(changes: Any) -> Counts:
    """From livegnn's Changes."""
    layers = changes.stats.layers
    scanned, reread = (sum(getattr(layer, name) for layer in layers) for name in ("scanned", "reread"))
    return Counts(sum(layer.edges for layer in layers) - scanned - reread, scanned, reread)


def start(name: str, work: Workload, hidden: int, threads: int) -> Live:
    """The engine called `name` on a graph of its own."""
    widths = [work.features.shape[1], hidden, work.classes]
    if name in ATTENTIVE:
        return Live(work, model("gat", widths), threads=threads, strategy=name)
    return Live(work, model(name, widths), threads=threads)


class Race:
    """The engines of one entry, in step with each other at a position of the stream."""

    def __init__(self, entry: Entry, work: Workload, threads: int) -> None:
        self.work = work
        self.turns = Turns(work, short=entry.short)
        self.engines = {name: start(name, work, entry.hidden, threads) for name in (*ATTENTIVE, *entry.plain)}

    def cell(self, size: int, budget_s: float) -> Cell:
        """Turns of batches of `size` until budget_s is spent (one turn at least, for which there must be room)."""
        cell = Cell(size, {name: [] for name in self.engines})
        for batches, skipped in self.turns.take(size, budget_s):
            self._turn(cell, batches, skipped)
        cell.equal = np.array_equal(*(self.outputs(name) for name in ATTENTIVE))
        return cell

    def _turn(self, cell: Cell, batches: list[Batch], skipped: int) -> None:
        for name, engine in self.engines.items():
            items = [engine.prepare(batch) for batch in batches]
            results: list[Any] = []
            time.sleep(SETTLE_S)
            cell.seconds[name] += timed(engine.apply, items, results)[skipped:].tolist()
            if name in ATTENTIVE:
                cell.counts[name] += [counts_of(changes) for changes in results[skipped:]]

    def outputs(self, name: str) -> Any:
        """All rows of one engine."""
        return self.engines[name].output(np.arange(self.work.vertices, dtype=np.int64))

    def far_from_formulas(self) -> float:
        """Largest difference of incremental's rows from the reference in float64 (slow: for small graphs)."""
        graph, engine = self.engines[INCREMENTAL].graph, self.engines[INCREMENTAL].engine
        edges = graph.edges()
        expected = evaluate(engine.model.to_arrays(), graph.features(), edges["src"], edges["dst"])
        return row_difference(self.outputs(INCREMENTAL), expected)


def run(options: Options, report: Report) -> None:
    """Rows of the speed table as they come, those of the counts at the end."""
    plan = TINY_PLAN if options.tiny else FULL_PLAN if options.full else DEFAULT_PLAN
    report.heading("Attention: GAT, two layers, 8 heads, updates per second")
    report.columns(SPEED_COLUMNS)
    counts: list[list[object]] = []
    for entry in plan:
        for cell in _race(entry, options, report):
            report.row(speed_row(entry, cell))
            counts.append(count_row(entry, cell))
    report.heading("Attention: edges per batch, both layers")
    report.columns(COUNT_COLUMNS)
    for row in counts:
        report.row(row)


def _race(entry: Entry, options: Options, report: Report) -> Iterator[Cell]:
    """Cells, one after the other; wrong answers are reported."""
    where = f"{entry.workload}, hidden {entry.hidden}"
    report.progress(f"{where}: generating and starting {2 + len(entry.plain)} engines")
    work = workload(entry.workload, 4500 if options.tiny else updates_needed(entry.sizes, 0))
    race = Race(entry, work, options.threads)
    for batch_size in entry.sizes:
        if not race.turns.has_room(batch_size):
            report.progress(f"  batch {batch_size} left out: the stream is too short")
            continue
        cell = race.cell(batch_size, entry.budget_s)
        if not cell.equal:
            report.fail(f"[attention] {where}, batch {batch_size}: expected {' and '.join(ATTENTIVE)} bit-equal")
        report.progress(f"  batch {batch_size} done")
        yield cell
    if options.tiny:
        far = race.far_from_formulas()
        if not far <= AGREEMENT:
            report.fail(f"[attention] {where}: expected the formulas within {AGREEMENT}, got {far:.2e}")
    race.engines[INCREMENTAL].engine.verify()


# ---- rows


def speed_row(entry: Entry, cell: Cell) -> list[object]:
    """Rates, GAT's ratios to its constrained form and to GraphConv, and their targets."""
    own = cell.rate(INCREMENTAL)
    ratio = own / cell.rate(CONSTRAINED)
    cost = cell.rate(GRAPHCONV) / own
    targets = CONSTRAINED_MIN.get(entry.workload) if entry.hidden == 256 else None
    least = None if targets is None else targets[SIZES.index(cell.size)]
    met = "-" if least is None else "yes" if ratio >= least and cost <= COST_MAX else "NO"
    return [
        *entry.cells(cell.size),
        f"**{rate(own)}**",
        percentiles(np.array(cell.seconds[INCREMENTAL])),
        rate(cell.rate(CONSTRAINED)),
        f"{ratio:.2f}",
        "-" if least is None else f"{least:g}",
        *(rate(cell.rate(name)) if name in cell.seconds else "-" for name in (GRAPHCONV, GCN)),
        f"{cost:.2f}",
        "-" if least is None else f"{COST_MAX:g}",
        met,
        "yes" if cell.equal else "NO",
    ]


def count_row(entry: Entry, cell: Cell) -> list[object]:
    """Means per batch. In-edges: those of moved targets, which constrained reads again."""
    delta, scanned, reread = cell.per_batch(INCREMENTAL)
    in_edges = cell.per_batch(CONSTRAINED)[2]
    found: Sequence[float] = (delta, in_edges, scanned, reread)
    ratio = f"{in_edges / delta:.3g}" if delta else "-"
    return [*entry.cells(cell.size), *(rate(count) for count in found), ratio]
