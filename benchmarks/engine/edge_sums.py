"""What are sums of messages worth that are kept in fixed point, where a message reads an edge's attributes? GINE by
"incremental", which replaces the messages that moved, against "constrained" (NeutronRT's Algorithm 4 on the same
store), which computes every message of a target again, and against PyG's module run on the whole graph.

Both engines apply the same batches in turns, as `interleave.py` says. Their outputs must be equal bit for bit, and
near PyG's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.nn import GINEConv

import livegnn as lg
from benchmarks.engine.comparison import AGREEMENT, SAMPLE, SETTLE_S, row_difference
from benchmarks.engine.interleave import Turns, updates_needed
from benchmarks.engine.live import percentiles, timed
from benchmarks.engine.stream import Batch, Workload, workload
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate

SIZES = (1, 10, 100, 1000)
HIDDEN, ATTRIBUTES = 64, 8
BUDGET_S = 3.0
INCREMENTAL, CONSTRAINED = "incremental", "constrained"
COLUMNS = ("workload", "batch", "incremental, updates/s", "p50 / p99", "constrained", "x constrained",
           "messages replaced per batch", "constrained: messages computed again", "PyG full, a batch", "x PyG full",
           "outputs bit-equal")  # fmt: skip

Floats = npt.NDArray[np.float32]


class Network(torch.nn.Module):
    """GINE, ReLU, GINE: each conv's own network is one Linear, edge attributes go through another."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GINEConv(torch.nn.Linear(width, hidden), edge_dim=ATTRIBUTES)
        self.second = GINEConv(torch.nn.Linear(hidden, classes), edge_dim=ATTRIBUTES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        h = self.first(x, edge_index, edge_attr).relu()
        return self.second(h, edge_index, edge_attr)  # type: ignore[no-any-return]


@dataclass
class Cell:
    """What one batch size gave: seconds of the counted batches, and messages computed in them, by engine."""

    size: int
    seconds: dict[str, list[float]]
    messages: dict[str, list[int]] = field(default_factory=lambda: {INCREMENTAL: [], CONSTRAINED: []})
    equal: bool = False
    pyg_s: float = 0.0
    difference: float = 0.0

    def rate(self, name: str) -> float:
        """Updates per second."""
        return self.size * len(self.seconds[name]) / sum(self.seconds[name])


def updates_of(batch: Batch) -> lg.Updates:
    """The batch, added edges with attributes that follow from their ends."""
    updates = lg.Updates()
    if len(batch.add_src):
        src, dst = batch.add_src.astype(np.int64), batch.add_dst.astype(np.int64)
        updates.add_edges(src, dst, edge_attr=attributes_of(src, dst))
    if len(batch.remove_src):
        updates.remove_edges(batch.remove_src.astype(np.int64), batch.remove_dst.astype(np.int64))
    if len(batch.feature_ids):
        updates.set_features(batch.feature_ids.astype(np.int64), batch.feature_rows)
    return updates


def attributes_of(src: npt.NDArray[np.int64], dst: npt.NDArray[np.int64]) -> Floats:
    """(E, ATTRIBUTES): some numbers in [-1, 1] for each pair."""
    phase = (src * 31 + dst * 17)[:, None] + np.arange(ATTRIBUTES) * 7.0
    return np.sin(phase).astype(np.float32)


class Race:
    """Both engines on graphs of their own, in step with each other at a position of the stream."""

    def __init__(self, work: Workload, hidden: int, threads: int, *, short: bool) -> None:
        torch.manual_seed(7)
        self.work, self.turns = work, Turns(work, short=short)
        self.module = Network(work.features.shape[1], hidden, work.classes).eval().requires_grad_(False)
        src, dst = work.src.astype(np.int64), work.dst.astype(np.int64)
        model = lg.from_pyg(self.module, edge_width=ATTRIBUTES)
        self.engines = {}
        for name in (INCREMENTAL, CONSTRAINED):
            graph = lg.Graph(work.features, src, dst, edge_attr=attributes_of(src, dst))
            self.engines[name] = lg.Engine(model, graph, strategy=name, threads=threads)

    def cell(self, size: int, budget_s: float) -> Cell:
        """Turns of batches of `size` until budget_s is spent (one turn at least, for which there must be room)."""
        cell = Cell(size, {name: [] for name in self.engines})
        for batches, skipped in self.turns.take(size, budget_s):
            self._turn(cell, batches, skipped)
        rows = {name: engine.embeddings(np.arange(self.work.vertices)) for name, engine in self.engines.items()}
        cell.equal = np.array_equal(rows[INCREMENTAL], rows[CONSTRAINED])
        cell.pyg_s, full = self.pyg()
        ids = np.random.default_rng(size).choice(self.work.vertices, min(SAMPLE, self.work.vertices), replace=False)
        cell.difference = row_difference(rows[INCREMENTAL][ids], full[ids])
        return cell

    def _turn(self, cell: Cell, batches: list[Batch], skipped: int) -> None:
        for name, engine in self.engines.items():
            results: list[Any] = []
            items = [updates_of(batch) for batch in batches]
            time.sleep(SETTLE_S)
            cell.seconds[name] += timed(engine.apply, items, results)[skipped:].tolist()
            cell.messages[name] += [sum(layer.edges for layer in changes.stats.layers) for changes in results[skipped:]]

    def pyg(self) -> tuple[float, Floats]:
        """Seconds of the module on the graph as it is, and its rows."""
        graph = self.engines[INCREMENTAL].graph
        found = graph.edges()
        edge_index = torch.from_numpy(np.stack([found["src"], found["dst"]]))
        x, attr = torch.from_numpy(graph.features()), torch.from_numpy(found["attr"])
        begin = time.perf_counter()
        rows: Floats = self.module(x, edge_index, attr).numpy()
        return time.perf_counter() - begin, rows


def run(options: Options, report: Report) -> None:
    """A row per workload and batch size."""
    report.heading(f"Sums of messages on edges: GINE, two layers, hidden {HIDDEN}, {ATTRIBUTES} attributes an edge")
    report.columns(COLUMNS)
    names = ("tiny",) if options.tiny else ("arxiv-like", "products-like-small") if options.full else ("arxiv-like",)
    for name in names:
        for cell in _race(name, options, report):
            report.row(row_of(name, cell))


def _race(name: str, options: Options, report: Report) -> Iterator[Cell]:
    report.progress(f"{name}, gine, hidden {HIDDEN}: generating and starting")
    work = workload(name, 4500 if options.tiny else updates_needed(SIZES, 0))
    race = Race(work, 8 if options.tiny else HIDDEN, options.threads, short=name != "arxiv-like")
    for size in SIZES:
        if not race.turns.has_room(size):
            report.progress(f"  batch {size} left out: the stream is too short")
            continue
        cell = race.cell(size, 0.1 if options.tiny else BUDGET_S)
        if not cell.equal:
            report.fail(f"[edge_sums] {name}, batch {size}: expected both engines' outputs bit-equal")
        if not cell.difference <= AGREEMENT:
            report.fail(
                f"[edge_sums] {name}, batch {size}: expected PyG's within {AGREEMENT}, got {cell.difference:.2e}"
            )
        report.progress(f"  batch {size} done")
        yield cell
    for engine in race.engines.values():
        engine.verify()


def row_of(name: str, cell: Cell) -> list[object]:
    """Rates, their ratio, and means per batch of the messages that each engine computed."""
    own, peer = cell.rate(INCREMENTAL), cell.rate(CONSTRAINED)
    replaced, again = (float(np.mean(cell.messages[each])) for each in (INCREMENTAL, CONSTRAINED))
    return [
        name,
        cell.size,
        f"**{rate(own)}**",
        percentiles(np.array(cell.seconds[INCREMENTAL])),
        rate(peer),
        f"{own / peer:.2f}",
        rate(replaced),
        rate(again),
        duration(cell.pyg_s),
        f"{cell.pyg_s * own / cell.size:.0f}",
        "yes" if cell.equal else "NO",
    ]
