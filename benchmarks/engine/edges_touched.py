"""How much of the graph does a batch touch? Edges and vertices by strategy, for six models (NeutronRT, Figure 8).

Edges along which work was done and rows computed, summed over the layers (`LayerStats.edges`, `LayerStats.affected`):
incremental counts delta edges and what it scans or reads again, the strategies that recompute count the in-edges of
the rows they compute, sampling those it draws. Where attention scans scores, a number per head and edge, the edges
whose messages are read or replaced, a row each, have a row of their own. Batches hold 0.01% of the edges, additions
and deletions in equal shares. Nothing is timed, so every strategy runs alone, on a graph of its own.

All strategies but sampling must give the same outputs. Sampling runs in float32: a hub's sample is scaled up by its
in-degree, beyond the fixed-point range of one message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.engine.comparison import AGREEMENT, SAMPLE, row_difference
from benchmarks.engine.live import Live
from benchmarks.engine.networks import model
from benchmarks.engine.real_graphs import MORE_NAMES, NAMES, real_workload
from benchmarks.engine.stream import FEATURES, Stream, Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, rate
from livegnn.errors import DataMissing

KINDS = ("gcn", "sage", "gin", "gat", "sage-max", "graphconv")
STRATEGIES: dict[str, dict[str, Any]] = {
    "incremental": {},
    "constrained": {},
    "affected": {},
    "sampled 5": {"strategy": "sampled", "fanout": 5},
    "sampled 10": {"strategy": "sampled", "fanout": 10},
    "khop": {},
    "full": {},
}
SUBJECTS = {"edges": "edges", "rows": "edges, by whole rows", "vertices": "vertices"}
SHARE = 1e-4  # of the edges, per batch


@dataclass(frozen=True)
class Entry:
    """One graph of the plan. share: of the edges, per batch (two updates at least)."""

    workload: str
    batches: int
    hidden: int = 64
    share: float = SHARE

    def load(self) -> Workload:
        """The workload with the edge updates of its stream alone. Raises: DataMissing for a real graph not at hand."""
        load = real_workload if self.workload in NAMES + MORE_NAMES else workload
        edges = load(self.workload, 3).edges
        work = load(self.workload, 3 * (self.batch_size(edges) * self.batches // 2 + 1))
        return Workload(work.name, work.features, work.src, work.dst, work.classes, edge_updates(work.stream))

    def batch_size(self, edges: int) -> int:
        return max(2, round(self.share * edges))


DEFAULT_PLAN = (
    Entry("arxiv-like", 2),
    *(Entry(name, 5) for name in ("bitcoin_otc", "jodie_wikipedia")),
    Entry("tolokers", 2),
)
FULL_PLAN = (
    Entry("arxiv-like", 20, hidden=256),
    Entry("products-like-small", 3),
    *(Entry(name, 20, hidden=256) for name in NAMES[:3]),
    *(Entry(name, 3) for name in (*NAMES[3:], *MORE_NAMES)),
)
TINY_PLAN = (Entry("tiny", 4, hidden=32, share=1e-3),)
COLUMNS = (
    "workload",
    "model",
    "hidden",
    "batch",
    "touched per batch",
    *STRATEGIES,
    "constrained over incremental",
    "never more edges than affected",
)


@dataclass(frozen=True)
class Touched:
    """One batch, all layers. rows: edges whose message was read or replaced, all but scanned ones."""

    edges: int
    rows: int
    vertices: int


@dataclass(frozen=True)
class Outcome:
    """One strategy on one stream: what each batch touched, and outputs at the end."""

    touched: list[Touched]
    outputs: Any


def edge_updates(stream: Stream) -> Stream:
    """The stream without its feature updates."""
    keep = stream.op != FEATURES
    return Stream(stream.op[keep], stream.u[keep], stream.v[keep], stream.row_index[keep], stream.rows[:0])


def start(work: Workload, kind: str, hidden: int, threads: int, **options: Any) -> Live:
    """An engine of one strategy on a graph of its own."""
    return Live(work, model(kind, [work.features.shape[1], hidden, work.classes]), threads=threads, **options)


def run(options: Options, report: Report) -> None:
    """Two or three rows per graph and model; a graph that is not at hand is named and left out."""
    plan = TINY_PLAN if options.tiny else FULL_PLAN if options.full else DEFAULT_PLAN
    report.heading("Edges and vertices touched per batch (in parentheses: times fewer than khop)")
    report.columns(COLUMNS)
    notes = []
    for entry in plan:
        report.progress(f"{entry.workload}: loading")
        try:
            work = entry.load()
        except DataMissing as missing:
            notes.append(f"- {entry.workload} left out: {missing}")
            continue
        for kind in KINDS:
            outcomes = {name: outcome(entry, work, kind, name, options) for name in STRATEGIES}
            _check(entry, kind, outcomes, report)
            for row in rows(entry, work, kind, {name: each.touched for name, each in outcomes.items()}):
                report.row(row)
            report.progress(f"  {kind} done")
    report.line()
    for note in notes:
        report.line(note)


def outcome(entry: Entry, work: Workload, kind: str, name: str, options: Options) -> Outcome:
    """Runs one strategy over the batches of an entry."""
    chosen = {"strategy": name, **STRATEGIES[name]}
    live = start(work, kind, entry.hidden, options.threads, **chosen)
    touched = []
    for batch in work.stream.batches(0, entry.batch_size(work.edges), entry.batches):
        layers = live.apply(live.prepare(batch)).stats.layers
        edges, scanned, vertices = (sum(getattr(s, n) for s in layers) for n in ("edges", "scanned", "affected"))
        touched.append(Touched(edges, edges - scanned, vertices))
    ids = np.random.default_rng(0).choice(work.vertices, min(SAMPLE, work.vertices), replace=False)
    return Outcome(touched, live.output(ids.astype(np.int64)))


def _check(entry: Entry, kind: str, outcomes: Mapping[str, Outcome], report: Report) -> None:
    expected = outcomes["full"].outputs
    for name, each in outcomes.items():
        if name.startswith("sampled"):
            continue
        difference = row_difference(each.outputs, expected)
        if not difference <= AGREEMENT:
            report.fail(
                f"[edges_touched] {entry.workload}, {kind}: expected {name} to agree with full within {AGREEMENT}, "
                f"got {difference:.2e}"
            )


# ---- rows


def rows(entry: Entry, work: Workload, kind: str, touched: Mapping[str, Sequence[Touched]]) -> list[list[object]]:
    """A row of edges, one of vertices and, for attention, one of edges whose rows were read; means over the batches."""
    scans = any(t.rows < t.edges for each in touched.values() for t in each)
    found: list[list[object]] = []
    for what in ("edges", "rows", "vertices") if scans else ("edges", "vertices"):
        means = {name: float(np.mean([getattr(t, what) for t in each])) for name, each in touched.items()}
        over = f"{means['constrained'] / means['incremental']:.3g}" if means["incremental"] else "-"
        judged = never_more(touched) if what == "edges" else "-"
        cells = [reduced(means[name], means["khop"]) for name in STRATEGIES]
        begin = [entry.workload, kind, entry.hidden, entry.batch_size(work.edges), SUBJECTS[what]]
        found.append([*begin, *cells, over, judged])
    return found


def reduced(count: float, khop: float) -> str:
    """A count and how many times smaller than khop's it is."""
    return f"{rate(count)} ({rate(khop / count)}x)" if count else "0"


def never_more(touched: Mapping[str, Sequence[Touched]]) -> str:
    """Whether incremental touched at most affected's edges in every batch; if not, in how many it did not."""
    pairs = list(zip(touched["incremental"], touched["affected"], strict=True))
    more = sum(mine.edges > theirs.edges for mine, theirs in pairs)
    return f"NO: {more} of {len(pairs)} batches" if more else "yes"
