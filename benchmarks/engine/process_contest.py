"""One model on one workload: livegnn and its peers, a process each, take the same batches in turns and must agree.

A cell is one batch size. Its turns repeat one run of batches from the snapshot (`runs.py`), one engine after
another; all others are stopped meanwhile. An engine's rate is the median over its turns; its range, the fastest turn
over the slowest, is noise alone, since turns do equal work. Engines with a wide range are measured again, and the
narrower of both measurements stands. An engine that is too slow for the whole run is timed on its first
batches, and a ratio is taken over the batches that both engines were timed on.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.engine.bound import Counter, LayerCount, bounds
from benchmarks.engine.comparison import row_difference
from benchmarks.engine.players import LivePlayer, PeerPlayer, PygPlayer
from benchmarks.engine.runs import Played, Run, Source, restoring
from benchmarks.machine import Machine
from benchmarks.peers.prototype import Prototype, fits
from benchmarks.worker import Worker

LIVE, PYG, PROTOTYPE = "livegnn", "pyg", "prototype"
RANGE_MAX = 1.3
TURNS = 5
AGAIN_MAX = 1  # how often a cell is measured again
TURN_LIMIT_S = 0.7  # counted batches of an engine in a turn end after this
VERTICES_AT_ONCE = 300_000  # engines of larger graphs start one by one: starting takes twice the memory of running
NORMAL = {1: (150, 1000), 10: (15, 100), 100: (3, 20), 1000: (1, 5)}  # batches not counted and counted, by size
DENSE = {1: (50, 250), 10: (5, 40), 100: (1, 6), 1000: (1, 2)}  # where one update reaches a large part of all vertices
TINY = {1: (5, 20), 10: (1, 4), 100: (1, 2), 1000: (0, 1)}

Turns = list[npt.NDArray[np.float64]]


def updates_needed(shapes: dict[int, tuple[int, int]], latency_batches: int) -> int:
    """Length of stream: every run begins at the snapshot, and with the stream."""
    return max(2 * latency_batches, *(size * (warm_up + counted) for size, (warm_up, counted) in shapes.items()))


@dataclass
class Cell:
    """What one batch size gave. turns[name]: seconds of the counted batches, by turn."""

    size: int
    counts: list[list[LayerCount]]
    turns: dict[str, Turns] = field(default_factory=dict)
    difference: float = 0.0
    disagreeing: str = ""

    def timed(self, name: str) -> int:
        """Batches that every turn of the engine timed."""
        return min(len(turn) for turn in self.turns[name])

    def rates(self, name: str, first: int | None = None) -> list[float]:
        """Updates per second of each turn, over the first batches (None: all that every turn timed)."""
        count = self.timed(name) if first is None else first
        return [self.size * count / float(turn[:count].sum()) for turn in self.turns[name]]

    def rate(self, name: str, first: int | None = None) -> float:
        """Median over the turns."""
        return float(np.median(self.rates(name, first)))

    def range(self, name: str) -> float | None:
        """The fastest turn over the slowest; None where there was one turn."""
        rates = self.rates(name)
        return max(rates) / min(rates) if len(rates) > 1 else None

    def ratio(self, name: str) -> float:
        """livegnn's rate over the engine's, on the same batches (PyG: its cost does not depend on the batch)."""
        if name == PYG:
            return self.rate(LIVE) / self.rate(PYG)
        common = min(self.timed(LIVE), self.timed(name))
        return self.rate(LIVE, common) / self.rate(name, common)

    def unsteady(self) -> list[str]:
        """Engines whose range is too wide."""
        return [name for name in self.turns if (self.range(name) or 1.0) > RANGE_MAX]


class ProcessContest:
    """The engines of one model and workload. Use as a context: its end is the end of the processes."""

    def __init__(
        self,
        source: Source,
        kind: str,
        hidden: tuple[int, ...],
        *,
        threads: int,
        peers: tuple[str, ...],
        shapes: dict[int, tuple[int, int]],
        prototype: Path | None = None,
    ) -> None:
        """shapes: (batches not counted, batches counted) of each size.   prototype: its library, if there is one."""
        self.work = source()
        self.kind, self.shapes = kind, shapes
        self.widths = [self.work.features.shape[1], *hidden, self.work.classes]
        self._source, self._hidden, self._threads = source, hidden, threads
        self._stack = ExitStack()
        self._workers: dict[str, Worker] = {}
        try:
            names = [name for name in peers if not (kind == "gcn" and name in ("torch", "numpy"))]
            library = prototype if fits(kind, hidden) else None
            self._start([LIVE, *([PROTOTYPE] if library else []), *names], library)
        except BaseException:
            self._stack.close()
            raise
        self._counter = Counter(self.work, len(self.widths) - 1)

    def _start(self, names: list[str], library: Path | None) -> None:
        step = 2 if self.work.vertices <= VERTICES_AT_ONCE else 1
        for some in (names[i : i + step] for i in range(0, len(names), step)):
            for name in some:
                self._workers[name] = self._stack.enter_context(self._worker(name, library))
            for name in some:
                self._workers[name].result()

    def _worker(self, name: str, library: Path | None) -> Worker:
        environment = {"OMP_WAIT_POLICY": None}  # spinning costs no other engine, and is worth up to 2 to torch's peers
        model = self._source, self.kind, self._hidden, self._threads
        if name == LIVE:
            return Worker(LivePlayer, *model, environment=environment)
        if name == PYG:
            return Worker(PygPlayer, *model, environment=environment)
        if name == PROTOTYPE:
            rest = self._source, self._hidden[0], self._threads
            return Worker(Prototype, str(library), *rest, environment=environment)
        return Worker(PeerPlayer, name, *model, environment=environment)

    def __enter__(self) -> ProcessContest:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def has(self, name: str) -> bool:
        """Whether the engine takes part."""
        return name in self._workers

    def call(self, name: str, method: str, *arguments: object) -> object:
        """What a method of the engine's player returns."""
        return self._workers[name].call(method, *arguments)

    def has_room(self, size: int) -> bool:
        """Whether the stream holds a run of this batch size."""
        return self._run(size).stop <= len(self.work.stream)

    def cell(self, size: int, budget_s: float) -> Cell:
        """TURNS turns; an engine whose turns have taken budget_s takes no more, but one at least."""
        run = self._run(size)
        cell = Cell(size, self._count(run))
        expected: dict[str, npt.NDArray[np.float32]] = {}
        cell.turns = self._measure(list(self._workers), run, budget_s, cell, expected)
        for _ in range(AGAIN_MAX):
            unsteady = cell.unsteady()
            if not unsteady:
                break
            again = Cell(size, cell.counts)
            again.turns = self._measure(unsteady, run, budget_s, cell, expected)
            for name in unsteady:
                if (again.range(name) or np.inf) < (cell.range(name) or np.inf):
                    cell.turns[name] = again.turns[name]
        return cell

    def _run(self, size: int) -> Run:
        return Run(0, size, *self.shapes[size])

    def _measure(
        self, names: list[str], run: Run, budget_s: float, cell: Cell, expected: dict[str, npt.NDArray[np.float32]]
    ) -> dict[str, Turns]:
        turns: dict[str, Turns] = {name: [] for name in names}
        left = dict.fromkeys(names, budget_s)
        for _ in range(TURNS):
            for name in names:
                if turns[name] and left[name] <= 0:
                    continue
                begin = time.perf_counter()
                played: Played = self._workers[name].call("play", run, TURN_LIMIT_S)
                left[name] -= time.perf_counter() - begin
                turns[name].append(played.seconds)
                difference = row_difference(played.rows, expected.setdefault(LIVE, played.rows))
                if not difference <= cell.difference:
                    cell.difference, cell.disagreeing = difference, name
        return turns

    def _count(self, run: Run) -> list[list[LayerCount]]:
        warm_up, counted = run.batches(self.work)
        follows = self.kind == "gcn"
        for batch in warm_up:
            self._counter.apply(batch)
        counts = [self._counter.count(batch, follows_degree=follows) for batch in counted]
        self._counter.apply(restoring(self.work, run.start, run.stop))
        return counts

    def times_bound(self, cell: Cell, machine: Machine) -> float:
        """livegnn's seconds over bound B of the same batches."""
        count = cell.timed(LIVE)
        spent = cell.size * count / cell.rate(LIVE)
        return spent / bounds(self.kind, self.widths, cell.counts[:count], machine).seconds_b
