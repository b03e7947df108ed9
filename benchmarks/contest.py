"""One model on one workload: livegnn and the peers take the same batches in turns, and must agree at the end of each
cell.

A cell is one batch size; its turns (`benchmarks.turns`) repeat until its time is spent. PyG, whose cost does not depend
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

from benchmarks.bound import Counter, LayerCount, bounds
from benchmarks.live import Live, timed
from benchmarks.machine import Machine
from benchmarks.networks import Network, network
from benchmarks.peers.bootstrap import bootstrap
from benchmarks.peers.inkstream_layer import InkStreamLayer
from benchmarks.peers.inkstream_vertex import InkStreamVertex
from benchmarks.peers.pyg_full import PygFull
from benchmarks.peers.rc import RecomputeAffected
from benchmarks.peers.ripple_numpy import RippleNumpy
from benchmarks.peers.ripple_torch import RippleTorch
from benchmarks.stream import Batch, Workload
from benchmarks.turns import Turns

SETTLE_S = 0.05
AGREEMENT = 1e-4  # largest accepted difference, relative to the row
SAMPLE = 5000  # vertices compared at the end of a cell


@dataclass
class Cell:
    """What one batch size gave. seconds[name]: of the counted batches, in order; results[name]: what apply returned for
    them, if the contest was told to `read` it."""

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
        hidden: Sequence[int],
        *,
        threads: int,
        peers: Sequence[str],
        short: bool = False,
        module: Network | None = None,
        live: Any = None,
        read: Callable[[str, Any], Any] | None = None,
    ) -> None:
        """short: turns of a tenth, for graphs on which one update reaches a large part of all vertices.

        module, live: in place of a seeded network and of livegnn started with it.   read: (engine's name, what its
        apply returned) -> what to keep of it, called outside the clock.
        """
        self.turns = Turns(workload, short=short)
        self.workload, self.kind = workload, kind
        self.widths = [workload.features.shape[1], *hidden, workload.classes]
        self.read = read
        module = network(kind, self.widths) if module is None else module
        self.live = Live(workload, module, threads=threads) if live is None else live
        self.engines: dict[str, Any] = {"livegnn": self.live}
        state = bootstrap(workload, kind, module)
        known = {
            "rc": RecomputeAffected,
            "torch": RippleTorch,
            "numpy": RippleNumpy,
            "ink-vertex": InkStreamVertex,
            "ink-layer": InkStreamLayer,
        }
        for name in peers:
            if name in known and not (kind == "gcn" and name != "rc"):
                peer: Any = known[name](workload, kind, module, state)
                self.engines[peer.name] = peer
        self.pyg = PygFull(workload, kind, module) if "pyg" in peers else None
        self.counter = Counter(workload, len(self.widths) - 1)

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
            results: list[Any] | None = None if self.read is None else []
            time.sleep(SETTLE_S)
            cell.seconds[name] += timed(engine.apply, items, results)[skipped:].tolist()
            if self.read is not None and results is not None:
                cell.results[name] += [self.read(name, result) for result in results[skipped:]]
        counted = [self.counter.count(batch, follows_degree=self.kind == "gcn") for batch in batches]
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

    def times_bound(self, cell: Cell, machine: Machine) -> tuple[float, float]:
        """livegnn's seconds over (bound A, bound B) of the same batches."""
        found = bounds(self.kind, self.widths, cell.counts, machine)
        spent = sum(cell.seconds["livegnn"])
        return spent / found.seconds_a, spent / found.seconds_b

    def strongest_peer(self, cell: Cell) -> str | None:
        """The fastest engine that is not livegnn."""
        names = [name for name in cell.seconds if name != "livegnn"]
        return max(names, key=cell.rate) if names else None

    def latencies(self, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """livegnn alone at batch 1: (apply, build one by one and apply), `count` batches each. Ends the contest."""
        batches = list(self.workload.stream.batches(self.turns.position, 1, 2 * count))
        self.turns.position += 2 * count
        apply = timed(self.live.apply, [self.live.prepare(batch) for batch in batches[:count]])
        return apply[1:], timed(self.live.apply_singly, batches[count:])[1:]


def row_difference(got: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """Max over rows of max|got - expected| / max|expected row|; a row counts as at least 1e-3 of the largest one."""
    scale = np.abs(expected).max(axis=1)
    scale = np.maximum(scale, 1e-3 * scale.max())
    return float((np.abs(got - expected).max(axis=1) / scale).max())
