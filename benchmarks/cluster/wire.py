"""How many rows and bytes cross between 16 parts, against layer-wise recompute and RIPPLE's scheme on the same parts?

Ours are measured: what every part handed to its transport for the batches, set-up left out. The baselines are counted
(baselines.py), their ids and headers not. RIPPLE's scheme adds sums up, so it has no attention and no extremes. Batches
go to every part whole, so that the rows of the first layer never cross: each part has the features of the vertices that
its edges end at. What the batches take is therefore shown, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import livegnn as lg
from benchmarks.cluster.baselines import EdgeTable, SentRows, count_rows, row_bytes
from benchmarks.cluster.together import Together
from benchmarks.cluster.world import ClusterWorld, batch_of, digest_of
from benchmarks.engine.runs import Run, consecutive
from benchmarks.engine.stream import to_updates
from benchmarks.options import Options
from benchmarks.report import Report, rate, size
from livegnn.serve.update_frames import encode_updates

KINDS = {
    "arxiv-like": ("gcn", "sage", "gat", "sage-max"),
    "products-shaped-150k": ("gcn", "sage"),
    "tiny": ("gcn", "gat"),
}
SUMS = ("gcn", "sage")  # kinds that RIPPLE's scheme is for
PARTS = 16
SHAPES_OF_RUNS = {
    "arxiv-like": {1: (0, 60), 100: (0, 10), 1000: (0, 4)},
    "products-shaped-150k": {1: (0, 20), 25: (0, 4), 100: (0, 3), 250: (0, 3), 1000: (0, 2)},
    "tiny": {1: (0, 5), 100: (0, 2)},
}
# Times fewer bytes. 250 updates are to products-shaped-150k what 1000 are to products-like-small, four times as large.
RC_ASKED = {1: 200, 25: 200, 100: 200, 250: 70, 1000: 70}
ROWS_ASKED = {"arxiv-like": 0.8, "products-shaped-150k": 0.15}  # of RIPPLE's
BYTES_ASKED = {"arxiv-like": 1.0, "products-shaped-150k": 0.2}
COUNTED = (
    "workload",
    "model",
    "batch",
    "batches",
    "source rows",
    "sums",
    "factors",
    "introductions",
    "bytes",
    "RC rows",
    "RC bytes",
    "RIPPLE rows, by layer",
    "RIPPLE bytes",
    "RIPPLE bytes, narrower",
    "a batch itself",
    "rounds",
    "messages",
    "RC messages",
    "RIPPLE messages",
)
JUDGED = (
    "workload",
    "model",
    "batch",
    "RC bytes over ours",
    "asked",
    "met",
    "our rows over RIPPLE's",
    "asked",
    "met",
    "our bytes over RIPPLE's",
    "asked",
    "met",
    "RIPPLE, narrower",
    "RIPPLE, layer 2 alone: rows",
    "RC, with batches",
    "RIPPLE, with batches",
)


@dataclass
class Sent:
    """What the batches of a run sent, all parts and baselines together."""

    batches: int
    ours: dict[str, int]
    baselines: SentRows = field(default_factory=SentRows.none)
    batch_bytes: int = 0

    @property
    def rows(self) -> int:
        """Messages and sums."""
        return self.ours["source_rows"] + self.ours["sum_rows"]


def run(options: Options, report: Report) -> None:
    """Two tables: counts per batch, and ratios with what is asked."""
    names = ("tiny",) if options.tiny else ("arxiv-like", "products-shaped-150k")
    parts = 4 if options.tiny else PARTS
    report.heading(f"Sent per batch, {parts} parts by METIS, two layers")
    report.columns(COUNTED)
    judged = []
    for name in names:
        runs = consecutive(SHAPES_OF_RUNS[name])
        for kind in KINDS[name]:
            world = ClusterWorld(name, kind, 8 if options.tiny else 256, 3 * (runs[-1].stop // 3 + 1))
            for each, sent in zip(runs, measured(world, parts, runs, report), strict=True):
                report.row(counted_row(world, each.size, sent, parts))
                judged.append(judged_row(world, each.size, sent, parts))
            report.progress(f"{name}, {kind}: counted")
    report.heading("Against layer-wise recompute and RIPPLE")
    report.columns(JUDGED)
    for row in judged:
        report.row(row)
    report.line(
        "\nRows of RIPPLE are those of all layers, and its bytes float32 rows of the layer's input width; `narrower`: "
        "of the narrower\nof input and output width. `with batches`: every part reads every batch whole, and a worker "
        "of the baselines its share,\none copy in all. RC asks and is answered in each layer, RIPPLE sends in each; "
        "their votes are not counted, ours are."
    )


def measured(world: ClusterWorld, parts: int, runs: list[Run], report: Report) -> list[Sent]:
    """What each run sent. A final state that is not one engine's fails the report."""
    work, owners = world.work(), world.owners(parts)
    report.progress(f"{world.name}, {world.kind}: {parts} parts")
    cluster, table = Together(world, parts), EdgeTable(work)
    engine = lg.Engine(world.model(), world.graph(), threads=1)
    found = []
    for each in runs:
        before, sent = cluster.counts(), Sent(each.counted, {})
        for batch in work.stream.batches(each.start, each.size, each.counted):
            cluster.apply(batch_of(batch))
            updates = to_updates(lg, batch)
            sent.batch_bytes += len(encode_updates(updates))
            engine.apply(updates)
            sent.baselines.add(count_rows(world, table, batch, owners))
        sent.ours = {name: count - before[name] for name, count in cluster.counts().items()}
        found.append(sent)
        report.progress(f"  batches of {each.size} done")
    if cluster.digest() != digest_of(engine):
        report.fail(f"[cluster_wire] expected the state of one engine on {world.name}, {world.kind}, got another")
    return found


def counted_row(world: ClusterWorld, batch: int, sent: Sent, parts: int) -> list[object]:
    """Means per batch."""
    count, ours, others, widths = sent.batches, sent.ours, sent.baselines, world.widths

    def mean(total: float) -> str:
        return rate(total / count)

    ripple = [
        " + ".join(mean(rows) for rows in others.ripple),
        size(row_bytes(others.ripple, widths) / count),
        size(row_bytes(others.ripple, widths, narrower=True) / count),
    ]
    return [
        *(world.name, world.kind, batch, count),
        *(mean(ours[name]) for name in ("source_rows", "sum_rows", "factors", "introductions")),
        size(ours["bytes"] / count),
        mean(sum(others.rc)),
        size(row_bytes(others.rc, widths) / count),
        *(ripple if world.kind in SUMS else ["-"] * len(ripple)),
        size(sent.batch_bytes / count),
        mean(ours["rounds"]),
        mean(ours["rounds"] * parts * (parts - 1)),
        mean(sum(others.rc_messages)),
        mean(sum(others.ripple_messages)) if world.kind in SUMS else "-",
    ]


def judged_row(world: ClusterWorld, batch: int, sent: Sent, parts: int) -> list[object]:
    """Ratios, and whether they are as asked."""
    ours, others, widths = sent.ours["bytes"], sent.baselines, world.widths
    rc, ripple = row_bytes(others.rc, widths), row_bytes(others.ripple, widths)
    narrower = row_bytes(others.ripple, widths, narrower=True)
    rows, with_batches = sent.rows / sum(others.ripple), ours + parts * sent.batch_bytes
    cells: list[object] = [world.name, world.kind, batch, f"{rate(rc / ours)}x"]
    cells += judged_cells(RC_ASKED.get(batch), rc / ours, at_least=True)
    rc_with_batches = f"{rate((rc + sent.batch_bytes) / with_batches)}x"
    if world.kind not in SUMS:
        return [*cells, *["-"] * 8, rc_with_batches, "-"]
    cells += [f"{rows:.3f}", *judged_cells(ROWS_ASKED.get(world.name), rows)]
    cells += [f"{ours / ripple:.3f}", *judged_cells(BYTES_ASKED.get(world.name), ours / ripple)]
    return [
        *cells,
        f"{ours / narrower:.3f}",
        f"{sent.rows / max(1, others.ripple[-1]):.3f}",
        rc_with_batches,
        f"{with_batches / (ripple + sent.batch_bytes):.3f}",
    ]


def judged_cells(asked: float | None, found: float, *, at_least: bool = False) -> list[str]:
    """(asked, met)."""
    if asked is None:
        return ["-", "-"]
    met = found >= asked if at_least else found <= asked
    return [f"{asked:g}x" if at_least else f"{asked:g}", "yes" if met else "NO"]
