"""A cost model of the cluster, fitted on 1 to 8 parts of this machine, and what it says of Papers on 16 machines.

Parts are threads of one process, so that more of them than cores can be measured. One runs at a time, with the caches
and the memory for itself, as on a machine of its own; its seconds are those of its thread on the processor. Latency and
bandwidth are parameters (fit.py).
"""

from __future__ import annotations

import numpy as np

from benchmarks.cluster.baselines import EdgeTable, SentRows, count_rows
from benchmarks.cluster.fit import CostModel, Measured, left_out
from benchmarks.cluster.papers import MACHINES, Basis, PerUpdate, predict
from benchmarks.cluster.together import Together
from benchmarks.cluster.world import ClusterWorld, batch_of
from benchmarks.engine.runs import Run
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate, size

KIND = "sage"  # RIPPLE's GC-M aggregates by the mean, too
PARTS = (1, 2, 4, 8)
RUNS = {"arxiv-like": Run(0, 1000, 0, 40), "products-shaped-150k": Run(0, 1000, 0, 40), "tiny": Run(0, 30, 0, 8)}
TURN = 8
SINGLES = {"arxiv-like": 400, "tiny": 10}
MEASURED = ("workload", "workers", "copies", "slowest worker", "predicted", "error", "sent", "predicted", "error")


def run(options: Options, report: Report) -> None:
    """The fit with its errors, then Papers."""
    names = ("tiny",) if options.tiny else ("arxiv-like", "products-shaped-150k")
    report.heading("The cost model, each row predicted from the others, batches of 1000")
    report.columns(MEASURED)
    models, found, worst = {}, {}, {}
    for name in names:
        world = ClusterWorld(name, KIND, 8 if options.tiny else 256, 3 * (RUNS[name].stop // 3 + 1))
        found[name] = measure(world, report)
        models[name] = CostModel.of(found[name])
        worst[name] = fitted_rows(name, found[name], report)
    report.line()
    for name, model in models.items():
        report.line(
            f"- {name}: compute(p) = ({duration(model.own)} + {duration(model.copies)} a copy) / p; "
            f"{model.wire:.3g} bytes a copy; {found[name][-1].rounds:.3g} rounds."
        )
    name = names[0]
    world = ClusterWorld(name, KIND, 8 if options.tiny else 256, 3 * (SINGLES[name] // 3 + 1))
    singles = per_update(world, SINGLES[name], 4 if options.tiny else MACHINES, report)
    last = found[name][-1]
    predict(Basis(name, models[name], worst[name], found[name][0].edges, last.rounds, singles), options, report)


def measure(world: ClusterWorld, report: Report) -> list[Measured]:
    """Each number of workers, in turns of some batches: who else uses the machine then slows all of them down.

    The first batch of a turn finds other clusters' rows in the caches and is not timed.
    """
    played, work = RUNS[world.name], world.work()
    clusters = [Together(world, parts, one_at_a_time=True) for parts in PARTS]
    begun = [cluster.counts() for cluster in clusters]
    seconds: list[list[float]] = [[] for _ in clusters]
    edges = [0 for _ in clusters]
    for turn in range(played.counted // TURN):
        batches = list(work.stream.batches(turn * TURN * played.size, played.size, TURN))
        for i, cluster in enumerate(clusters):
            for number, batch in enumerate(batches):
                each, along = cluster.apply(batch_of(batch))
                edges[i] += along
                seconds[i] += [max(each)] if number else []
            report.progress(
                f"{world.name}: turn {turn + 1}, {PARTS[i]} parts, {duration(float(np.median(seconds[i])))}"
            )
    found = []
    for i, cluster in enumerate(clusters):
        sent = {name: (count - begun[i][name]) / played.counted for name, count in cluster.counts().items()}
        boundary, middle = copies_in(cluster, work.vertices), float(np.median(seconds[i]))
        found.append(Measured(PARTS[i], boundary, middle, sent["bytes"], sent["rounds"], edges[i] / played.counted))
    return found


def fitted_rows(name: str, found: list[Measured], report: Report) -> tuple[float, float]:
    """A row for each number of workers; the largest errors of seconds and of bytes."""
    compute = left_out(found, lambda m, one: m.compute(one.parts, one.boundary), lambda one: one.seconds)
    apart = [one for one in found if one.boundary]
    sent = left_out(apart, lambda m, one: m.bytes(one.boundary), lambda one: one.bytes)
    sent = [float("nan")] * (len(found) - len(apart)) + sent
    for one, seconds_error, bytes_error in zip(found, compute, sent, strict=True):
        shown = ["-", "-", "-"]
        if one.boundary:
            shown = [size(one.bytes), size(one.bytes * (1 + bytes_error)), f"{bytes_error:+.0%}"]
        predicted = duration(one.seconds * (1 + seconds_error))
        cells = [name, one.parts, rate(one.boundary), duration(one.seconds), predicted, f"{seconds_error:+.0%}"]
        report.row([*cells, *shown])
    return max(map(abs, compute)), max(abs(error) for error in sent if error == error)


def per_update(world: ClusterWorld, count: int, parts: int, report: Report) -> PerUpdate:
    """Batches of one: in a graph of Papers' size, a thousand updates meet as seldom as one or two do here."""
    work, owners = world.work(), world.owners(parts)
    cluster, table = Together(world, parts), EdgeTable(work)
    before, edges, rows = cluster.counts()["bytes"], 0, SentRows.none()
    for batch in work.stream.batches(0, 1, count):
        edges += cluster.apply(batch_of(batch))[1]
        rows.add(count_rows(world, table, batch, owners))
    sent = cluster.counts()["bytes"] - before
    report.progress(f"{world.name}: {count} single updates at {parts} parts")
    boundary, pulled = copies_in(cluster, work.vertices), [e / count for e in rows.pulled_edges]
    return PerUpdate(boundary, edges / count, sent / count, [r / count for r in rows.rc], pulled)


def copies_in(cluster: Together, vertices: int) -> int:
    """Copies of other parts' vertices, of all parts."""
    return sum(len(part.halo.globals()) for part in cluster.parts) - vertices
