"""Temporal sampling on a real stream against TGLite's native sampler: a process for each, in turns.

TGLite draws uniformly with replacement, so replace=True is the like of it; without replacement is more work.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.noise import Calm
from benchmarks.options import Options
from benchmarks.peers import tglite
from benchmarks.report import Report, rate
from benchmarks.worker import Worker
from livegnn import datasets

Int64 = npt.NDArray[np.int64]

NAME, FANOUT = "jodie_wikipedia", 10
TURNS, TRIES = 5, 10  # calm turns of both; medians over them
PASSES = 21  # over all batches in a turn


class Work(NamedTuple):
    """An undirected dated graph, and batches of targets: both ends of consecutive events of its later half and other
    vertices, at the time of the event (`middle`) or after all edges (`end`)."""

    vertices: int
    src: Int64
    dst: Int64
    times: Int64
    targets: Int64
    target_times: Int64


class Answer(NamedTuple):
    """Edges and median seconds of a pass; what must be alike: edges by target and, of recent ones, the sum of their
    times."""

    edges: int
    seconds: float
    counts: str
    times: str


def work_of(batch: int, place: str, batches: int) -> Work:
    """The first event is at time 0."""
    stream = datasets.load_or_generate(NAME)
    if stream.time is None:
        raise ValueError(f"[temporal_tglite] expected a dated graph, got {NAME}; choose another")
    src, dst, at = stream.src, stream.dst, stream.time - stream.time[0]
    rng, third = np.random.default_rng(7), batch // 3
    events = rng.integers(len(src) // 2, len(src) - third, batches)[:, None] + np.arange(third)
    others = dst[rng.integers(0, len(dst), (batches, batch - 2 * third))]
    targets = np.hstack([src[events], dst[events], others])
    times = np.hstack([at[events]] * 4)[:, :batch]
    if place == "end":
        times = np.full_like(times, at.max() + 1)
    return Work(int(max(src.max(), dst.max())) + 1, src, dst, at, targets, times)


def answer(
    sample: Callable[[Any, Any], Any], read: Callable[[Any], tuple[Any, Any]], pairs: list[tuple[Any, Any]]
) -> Answer:
    """read: the row and the time of each edge of a sample."""
    edges, counts, times = 0, hashlib.sha256(), hashlib.sha256()
    for vertices, at in pairs:
        rows, when = read(sample(vertices, at))
        edges += len(rows)
        counts.update(np.bincount(rows, minlength=len(vertices)).astype(np.int64).tobytes())
        times.update(np.bincount(rows, weights=when, minlength=len(vertices)).tobytes())
    seconds = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        for vertices, at in pairs:
            sample(vertices, at)
        seconds.append(time.perf_counter() - begin)
    return Answer(edges, float(np.median(seconds)), counts.hexdigest(), times.hexdigest())


class LivePlayer:
    """livegnn in a process of its own."""

    def __init__(self, work: Work) -> None:
        features = np.zeros((work.vertices, 0), np.float32)
        self._graph = lg.Graph(features, work.src, work.dst, time=work.times, undirected=True)
        self._pairs = list(zip(work.targets, work.target_times, strict=True))

    def play(self, strategy: Any, replace: bool, threads: int) -> Answer:
        """A turn."""
        sampler = lg.TemporalSampler(self._graph, [FANOUT], strategy, replace=replace, threads=threads)
        return answer(sampler.sample, lambda hops: (hops[0].edge_index[1], hops[0].times), self._pairs)


class TglitePlayer:
    """TGLite in a process of its own."""

    def __init__(self, work: Work) -> None:
        module = tglite.built()
        if module is None:
            raise RuntimeError("[temporal_tglite] expected LIVEGNN_TGLITE to name its build, got none; set it")
        self._graph = tglite.TgliteGraph(module, work.vertices, work.src, work.dst, work.times)
        vertices, at = work.targets.astype(np.int32), work.target_times.astype(np.float32)
        self._pairs = list(zip(vertices, at, strict=True))

    def play(self, strategy: str, threads: int) -> Answer:
        """A turn."""
        sampler = self._graph.sampler(FANOUT, strategy, threads)
        return answer(sampler, lambda block: (block[0], block[3]), self._pairs)


def run(options: Options, report: Report) -> None:
    """A row per strategy, batch, place in time and number of threads."""
    report.heading(f"Temporal sampling against TGLite: {NAME}, fan-out {FANOUT}, edges a second")
    if tglite.built() is None:
        report.line("left out: TGLite is not at hand (LIVEGNN_TGLITE names its build)")
        return
    report.columns(
        ("draws", "batch", "targets", "threads", "livegnn", "TGLite", "livegnn / TGLite", "range", "at least", "met")
    )
    calms: dict[int, Calm] = {}
    for batch, place in itertools.product((60, 400) if options.tiny else (600, 4000), ("middle", "end")):
        work = work_of(batch, place, 3 if options.tiny else 40)
        spinning: dict[str, str | None] = {"OMP_WAIT_POLICY": None}  # TGLite's threads wait for less so
        with Worker(LivePlayer, work) as ours, Worker(TglitePlayer, work, environment=spinning) as theirs:
            ours.result()
            theirs.result()
            for threads in sorted({1, options.threads}):
                calm = calms.setdefault(threads, Calm(threads))
                for draws in ("recent", "uniform, with replacement", "uniform"):
                    turns = list(_turns(ours, theirs, draws, threads, calm, options.tiny))
                    _row(report, [draws, batch, place, threads], turns)


def _turns(
    ours: Worker, theirs: Worker, draws: str, threads: int, calm: Calm, tiny: bool
) -> list[tuple[Answer, Answer]]:
    strategy = draws.partition(",")[0]
    wanted, tries = (1, 1) if tiny else (TURNS, TRIES)
    return list(
        calm.turns(
            lambda: ours.call("play", strategy, draws.endswith("with replacement"), threads),
            lambda: theirs.call("play", strategy, threads),
            wanted,
            tries,
        )
    )


def _row(report: Report, kind: list[Any], turns: list[tuple[Answer, Answer]]) -> None:
    for mine, yours in turns:
        # where a past has fewer edges than the fan-out, TGLite takes each once: with replacement we draw more
        alike = kind[0].endswith("with replacement") or mine.counts == yours.counts
        if not alike or (kind[0] == "recent" and mine.times != yours.times):
            report.fail(f"[temporal_tglite] expected as many edges of the same times, got others: {kind}")
    speeds = np.array([[each.edges / each.seconds for each in turn] for turn in turns])
    ratios = speeds[:, 0] / speeds[:, 1]
    middle = float(np.median(ratios))
    report.row(
        [*kind, *map(rate, np.median(speeds, axis=0)), f"{middle:.2f}", f"{ratios.min():.2f} to {ratios.max():.2f}", 1,
         "yes" if middle > 1 else "NO"]
    )  # fmt: skip
