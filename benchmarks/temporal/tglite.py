"""Temporal sampling on a real stream against TGLite's native sampler: a process for each, in turns.

TGLite draws uniformly with replacement, so replace=True is the like of it; without replacement is more work. Its graph
is static: livegnn is measured with the same edges loaded at once, and also where they came by batches.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import livegnn as lg
from benchmarks.noise import Calm
from benchmarks.options import Options
from benchmarks.peers import tglite
from benchmarks.report import Report, rate
from benchmarks.temporal.sampling import Work, targets_of
from benchmarks.worker import Worker
from livegnn import datasets

NAME, FANOUT = "jodie_wikipedia", 10
TURNS, TRIES = 5, 10  # calm turns of both; medians over them
GROWTH = 1_000  # edges of a batch, of the graph that grew
PASSES = 21  # over all batches in a turn


class Answer(NamedTuple):
    """Edges and median seconds of a pass; what must be alike: edges by target and, of recent ones, the sum of their
    times."""

    edges: int
    seconds: float
    counts: str
    times: str


def work_of(batch: int, place: str, batches: int) -> Work:
    """The first event is at time 0; edges are undirected."""
    stream = datasets.load_or_generate(NAME)
    if stream.time is None:
        raise ValueError(f"[temporal_tglite] expected a dated graph, got {NAME}; choose another")
    src, dst, at = stream.src, stream.dst, stream.time - stream.time[0]
    targets = targets_of(np.random.default_rng(7), src, dst, at, dst, (batches, batch), place)
    return Work(int(max(src.max(), dst.max())) + 1, src, dst, at, *targets)


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

    def __init__(self, work: Work, grown: bool) -> None:
        features, loaded = np.zeros((work.vertices, 0), np.float32), 0 if grown else len(work.src)
        head = (column[:loaded] for column in (work.src, work.dst))
        self._graph = lg.Graph(features, *head, time=work.times[:loaded], undirected=True)
        for first in range(loaded, len(work.src), GROWTH):
            part = slice(first, first + GROWTH)
            updates = lg.Updates()
            updates.add_edges(work.src[part], work.dst[part], time=work.times[part])
            self._graph.apply(updates)
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
        ("draws", "batch", "targets", "threads", "TGLite", "livegnn", "times TGLite's", "range", "at least", "met",
         "grown by batches", "times TGLite's")
    )  # fmt: skip
    calms: dict[int, Calm] = {}
    for batch, place in itertools.product((60, 400) if options.tiny else (600, 4000), ("middle", "end")):
        work = work_of(batch, place, 3 if options.tiny else 40)
        spinning: dict[str, str | None] = {"OMP_WAIT_POLICY": None}  # TGLite's threads wait for less so
        players = (
            Worker(LivePlayer, work, False),
            Worker(LivePlayer, work, True),
            Worker(TglitePlayer, work, environment=spinning),
        )
        with players[0], players[1], players[2]:
            for player in players:
                player.result()
            for threads in sorted({1, options.threads}):
                calm = calms.setdefault(threads, Calm(threads))
                for draws in ("recent", "uniform, with replacement", "uniform"):
                    turns = list(_turns(players, draws, threads, calm, options.tiny))
                    _row(report, [draws, batch, place, threads], turns)


def _turns(
    players: tuple[Worker, Worker, Worker], draws: str, threads: int, calm: Calm, tiny: bool
) -> Iterator[tuple[Answer, Answer, Answer]]:
    """Of the graph that was loaded, the one that grew, and TGLite."""
    strategy, replace = draws.partition(",")[0], draws.endswith("with replacement")
    loaded, grown, peer = players
    wanted, tries = (1, 1) if tiny else (TURNS, TRIES)

    def ours() -> tuple[Answer, Answer]:
        first, second = (player.call("play", strategy, replace, threads) for player in (loaded, grown))
        return first, second

    def theirs() -> Answer:
        found: Answer = peer.call("play", strategy, threads)
        return found

    for (first, second), third in calm.turns(ours, theirs, wanted, tries):
        yield first, second, third


def _row(report: Report, kind: list[Any], turns: list[tuple[Answer, Answer, Answer]]) -> None:
    for loaded, grown, peer in turns:
        # where a past has fewer edges than the fan-out, TGLite takes each once: with replacement we draw more
        alike = kind[0].endswith("with replacement") or loaded.counts == peer.counts
        same = loaded.edges == grown.edges and loaded.times == grown.times
        if not (alike and same) or (kind[0] == "recent" and loaded.times != peer.times):
            report.fail(f"[temporal_tglite] expected as many edges of the same times, got others: {kind}")
    speeds = np.array([[each.edges / each.seconds for each in turn] for turn in turns])
    middles = np.median(speeds, axis=0)
    ratios, grown_ratios = speeds[:, 0] / speeds[:, 2], speeds[:, 1] / speeds[:, 2]
    ratio = float(np.median(ratios))
    report.row(
        [*kind, rate(middles[2]), rate(middles[0]), f"{ratio:.2f}", f"{ratios.min():.2f} to {ratios.max():.2f}", 1,
         "yes" if ratio > 1 else "NO", rate(middles[1]), f"{float(np.median(grown_ratios)):.2f}"]
    )  # fmt: skip
