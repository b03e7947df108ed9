"""One model on one workload, all engines in one process: livegnn and the peers take the same batches in turns, and must
agree at the end of each cell. `extremes` counts what livegnn returns, batch by batch; contests of speed alone give each
engine a process of its own (`process_contest.py`).

A cell is one batch size; its turns (`interleave.py`) repeat until its time is spent. PyG, whose cost does not depend
on the batch, is timed on the last batch alone and brought up to date untimed before. One engine works at a time, and
pauses let the idle threads of the previous one's pool go to sleep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.engine.bound import Counter, LayerCount
from benchmarks.engine.interleave import Turns
from benchmarks.engine.live import timed
from benchmarks.engine.networks import Network
from benchmarks.engine.stream import Batch, Workload
from benchmarks.peers.bootstrap import bootstrap
from benchmarks.peers.inkstream_layer import InkStreamLayer
from benchmarks.peers.inkstream_vertex import InkStreamVertex
from benchmarks.peers.pyg_full import PygFull
from benchmarks.peers.rc import RecomputeAffected

SETTLE_S = 0.05
AGREEMENT = 1e-4  # largest accepted difference, relative to the row
SAMPLE = 5000  # vertices compared at the end of a cell


@dataclass
class Cell:
    """What one batch size gave. seconds[name]: of the counted batches, in order; results[name]: what `read`
    kept of what apply returned for them."""

    size: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    counts: list[list[LayerCount]] = field(default_factory=list)
    results: dict[str, list[Any]] = field(default_factory=dict)
    difference: float = 0.0
    disagreeing: str = ""

    def rate(self, name: str) -> float:
        """Updates per second."""
        return self.size * len(self.seconds[name]) / sum(self.seconds[name])


class Contest:
    """All engines of one model and workload, in step with each other at a position of the stream."""

    def __init__(
        self,
        workload: Workload,
        kind: str,
        module: Network,
        live: Any,
        *,
        peers: Sequence[str],
        read: Callable[[str, Any], Any],
        short: bool = False,
    ) -> None:
        """live: livegnn, started with the module.   read: (engine's name, what its apply returned) -> what to keep of
        it, called outside the clock.   short: turns of a tenth, for graphs on which one update reaches a large part of
        all vertices.
        """
        self.turns = Turns(workload, short=short)
        self.workload, self.kind = workload, kind
        self.read = read
        self.live = live
        self.engines: dict[str, Any] = {"livegnn": self.live}
        state = bootstrap(workload, kind, module)
        known = {"rc": RecomputeAffected, "ink-vertex": InkStreamVertex, "ink-layer": InkStreamLayer}
        for name in peers:
            if name in known:
                peer: Any = known[name](workload, kind, module, state)
                self.engines[peer.name] = peer
        self.pyg = PygFull(workload, kind, module) if "pyg" in peers else None
        self.counter = Counter(workload, len(module.convs))

    def cell(self, size: int, budget_s: float) -> Cell:
        """Turns of batches of `size` until budget_s is spent (one turn at least, for which there must be room)."""
        cell = Cell(size, {name: [] for name in self.engines}, results={name: [] for name in self.engines})
        start = self.turns.position
        for batches, skipped in self.turns.take(size, budget_s):
            self._turn(cell, batches, skipped)
        if self.pyg is not None:
            end = self.turns.position
            self.pyg.edit(self.workload.stream.batch(start, end - size))
            last = [self.workload.stream.batch(end - size, end)]
            time.sleep(SETTLE_S)
            cell.seconds[self.pyg.name] = timed(self.pyg.apply, last).tolist()
        self._compare(cell)
        return cell

    def _turn(self, cell: Cell, batches: list[Batch], skipped: int) -> None:
        for name, engine in self.engines.items():
            items = [engine.prepare(batch) for batch in batches] if engine is self.live else batches
            results: list[Any] = []
            time.sleep(SETTLE_S)
            cell.seconds[name] += timed(engine.apply, items, results)[skipped:].tolist()
            cell.results[name] += [self.read(name, result) for result in results[skipped:]]
        counted = [self.counter.count(batch, follows_degree=False) for batch in batches]
        cell.counts += counted[skipped:]

    def _compare(self, cell: Cell) -> None:
        vertices = self.workload.vertices
        ids = np.random.default_rng(cell.size).choice(vertices, min(SAMPLE, vertices), replace=False).astype(np.int64)
        everyone = dict(self.engines)
        if self.pyg is not None:
            everyone[self.pyg.name] = self.pyg
        outputs = {name: engine.output(ids) for name, engine in everyone.items()}
        for name, output in outputs.items():
            difference = row_difference(output, outputs["livegnn"])
            if not difference <= cell.difference:
                cell.difference, cell.disagreeing = difference, name


def row_difference(got: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """Max over rows of max|got - expected| / max|expected row|; a row counts as at least 1e-3 of the largest one."""
    scale = np.abs(expected).max(axis=1)
    scale = np.maximum(scale, 1e-3 * scale.max())
    return float((np.abs(got - expected).max(axis=1) / scale).max())
