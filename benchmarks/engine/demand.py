"""On demand against eager, from one vertex asked for to all whose output a batch changed (NeutronRT, Figure 12.d).

Both engines take the same batches, forth and back in turn, on graphs of their own. The eager one applies a batch and
reads the outputs asked for; the one on demand notes the batch and computes them. What was not asked for is brought up
to date outside the clock, so that every batch begins alike.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.engine.live import Live
from benchmarks.engine.networks import model
from benchmarks.engine.strategies import REPEATS, repeated
from benchmarks.engine.stream import Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, duration

SIZES = (10, 100, 1000)
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the vertices whose output changed, after one vertex alone
AT_ALL_MAX = 1.2


def run(options: Options, report: Report) -> None:
    """A row per model, batch size and number of vertices asked for."""
    report.heading(f"On demand: median seconds of a batch and a query, {REPEATS} batches")
    target = f"on demand over eager (at all: at most {AT_ALL_MAX})"
    report.columns(("workload", "model", "batch", "changed", "asked for", "eager", "on demand", target, "met"))
    name = "tiny" if options.tiny else "arxiv-like"
    work = workload(name, max(SIZES))
    kinds = ("graphconv", "gcn", "sage-max", "gat") if options.full else ("graphconv", "gat")
    for kind in kinds:
        gc.collect()
        gc.disable()
        try:
            _compare(work, kind, options, report)
        finally:
            gc.enable()


def _compare(work: Workload, kind: str, options: Options, report: Report) -> None:
    report.progress(f"{work.name}, {kind}: starting two engines")
    network = model(kind, [work.features.shape[1], 8 if options.tiny else 256, work.classes])
    eager = Live(work, network, threads=options.threads)
    lazy = Live(work, network, threads=options.threads, mode="on_demand")
    rng = np.random.default_rng(0)
    clock = time.perf_counter
    for batch_size in SIZES:
        batches = repeated(work, batch_size)
        for share in (0.0, *SHARES):
            of_eager, of_lazy = [], []
            changed = asked = 0
            for batch in batches:
                updates, same = eager.prepare(batch), lazy.prepare(batch)
                begin = clock()
                changes = eager.apply(updates)
                seconds = clock() - begin
                vertices = changes.vertices
                changed, asked = len(vertices), max(1, round(share * len(vertices)))
                ids = rng.permutation(vertices)[:asked]
                begin = clock()
                eager.output(ids)
                of_eager.append(seconds + clock() - begin)
                begin = clock()
                lazy.apply(same)
                lazy.output(ids)
                of_lazy.append(clock() - begin)
                _check(eager, lazy, ids, f"{kind}, batch {batch_size}", report)
                lazy.engine.complete()
            medians = [statistics.median(of_eager[1:]), statistics.median(of_lazy[1:])]
            ratio = medians[1] / medians[0]
            met = ("yes" if ratio <= AT_ALL_MAX else "NO") if share == 1.0 else "-"
            times = [duration(m) for m in medians]
            report.row([work.name, kind, batch_size, changed, asked, *times, f"{ratio:.3g}", met])
        report.progress(f"  batch {batch_size} done")


def _check(eager: Live, lazy: Live, ids: np.ndarray[Any, np.dtype[np.int64]], where: str, report: Report) -> None:
    if lazy.output(ids).tobytes() != eager.output(ids).tobytes():
        report.fail(f"[demand] {where}: expected equal results, bit for bit, got others")
