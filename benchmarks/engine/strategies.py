"""Is incremental ever slower than recomputing? Medians of 7 batches, each undone by the next, up to 16% of the edges.

A batch adds, removes and changes as in the speed table; its opposite takes those additions away, puts the removed
edges back and sets other features, so that batches of any size can be repeated on the same graph. Every strategy
takes the same batches on a graph of its own; results must agree.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.engine.comparison import AGREEMENT, row_difference
from benchmarks.engine.live import Live, timed
from benchmarks.engine.networks import model
from benchmarks.engine.stream import Batch, Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, duration

STRATEGIES = ("incremental", "affected", "khop", "full")
SHARES = (0.01, 0.04, 0.16)  # of the edges
SIZES = (1, 10, 100, 1000)
REPEATS = 7
SLOWER_MAX = 1.2


def opposite(batch: Batch, rng: np.random.Generator) -> Batch:
    """The batch that puts the edges back; features get fresh values."""
    rows = rng.standard_normal(batch.feature_rows.shape, dtype=np.float32)
    return replace(
        batch,
        add_src=batch.remove_src,
        add_dst=batch.remove_dst,
        remove_src=batch.add_src,
        remove_dst=batch.add_dst,
        feature_rows=rows,
    )


def run(options: Options, report: Report) -> None:
    """A row per model and batch size."""
    name = "tiny" if options.tiny else "arxiv-like"
    workloads = (name, "products-like-small") if options.full and not options.tiny else (name,)
    report.heading(f"Strategies: median seconds of a batch, {REPEATS} batches")
    target = f"incremental over best (at most {SLOWER_MAX})"
    report.columns(("workload", "model", "batch", *STRATEGIES, target, "met", "largest difference"))
    for each in workloads:
        for kind in ("graphconv", "gcn", "sage", "gin", "sage-max", "gat") if options.full else ("graphconv", "gcn"):
            _compare(each, kind, options, report)


def _compare(name: str, kind: str, options: Options, report: Report) -> None:
    report.progress(f"{name}, {kind}: starting four strategies")
    shape = workload(name, 3)
    sizes = [*SIZES, *(int(share * shape.edges) for share in SHARES)]
    work = workload(name, max(sizes))
    network = model(kind, [work.features.shape[1], 256, work.classes])
    engines = {s: Live(work, network, threads=options.threads, strategy=s) for s in STRATEGIES}
    for batch_size in sizes:
        batches = repeated(work, batch_size)
        medians = {}
        for strategy, engine in engines.items():
            seconds = timed(engine.apply, [engine.prepare(batch) for batch in batches])
            medians[strategy] = float(np.median(seconds[1:]))
        worst = _difference(work, engines)
        best = min(medians[s] for s in STRATEGIES[1:])
        ratio = medians["incremental"] / best
        met = "yes" if ratio <= SLOWER_MAX else "NO"
        times = [duration(medians[s]) for s in STRATEGIES]
        report.row([name, kind, batch_size, *times, f"{ratio:.3g}", met, f"{worst:.1e}"])
        report.progress(f"  batch {batch_size} done")
        if not worst <= AGREEMENT:
            report.fail(f"[strategies] {name}, {kind}: expected equal results within {AGREEMENT}, got {worst:.2e}")


def repeated(work: Workload, batch_size: int) -> list[Batch]:
    """REPEATS + 1 batches, forth and back in turn; an even count leaves the edges as they were."""
    rng = np.random.default_rng(batch_size)
    forth = work.stream.batch(0, batch_size)
    return [forth if i % 2 == 0 else opposite(forth, rng) for i in range(REPEATS + 1)]


def _difference(work: Workload, engines: dict[str, Live]) -> float:
    ids = np.arange(work.vertices, dtype=np.int64)
    expected = engines["full"].output(ids)
    return max(row_difference(engine.output(ids), expected) for engine in engines.values())
