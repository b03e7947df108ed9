"""How fast a dated stream goes into the graph: livegnn's batches against rebuilding a CSR and against a sorted merge.

A graph of GDELT's shape is loaded with part of the stream; the rest comes in batches. Peers hold what they need to
answer the same question, the in-edges of a vertex by time: scipy rebuilds its CSR from all edges after each batch, and
NumPy merges the batch's edges, sorted by (vertex, time), into arrays that are. After the last batch all agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import scipy.sparse

import livegnn as lg
from benchmarks.engine.generate import EVENT_SHAPES, Events, EventShape, event_chunks
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate
from livegnn.graph.threads import core_count

TARGET = 5e6  # edges/s, batches of 100,000
RATIO_TARGET = 20.0  # times scipy's rebuild
Int64 = npt.NDArray[np.int64]


def run(options: Options, report: Report) -> None:
    """A row per direction and batch size."""
    loaded, shape, sizes = _sizes(options)
    report.heading(f"Temporal ingestion: {loaded:,} edges over {shape.vertices:,} vertices, then batches")
    report.columns(
        (
            "graph",
            "edges a batch",
            "edges/s",
            "a batch",
            "scipy's rebuild",
            "ratio",
            "NumPy's merge",
            "ratio",
            "target",
            "met",
        )
    )
    for undirected in (False, True):
        _rows(undirected, loaded, shape, sizes, options, report)
    report.line(
        f"\nMedian batch, `Updates.add_edges` and `apply` together, {core_count()} cores. Targets, for batches of "
        f"100,000: {rate(TARGET)} edges/s and {RATIO_TARGET:.0f} times scipy's rebuild. An undirected edge is in the "
        "lists of both its ends, of the peers, too."
    )


def _sizes(options: Options) -> tuple[int, EventShape, tuple[int, ...]]:
    shape = EVENT_SHAPES["gdelt-like"]
    if options.tiny:
        return 20_000, replace(shape, vertices=500, events=40_000), (100, 1000)
    loaded = 50_000_000  # what the target is about
    return loaded, replace(shape, events=loaded + 4_000_000), (1_000, 10_000, 100_000)


def _rows(
    undirected: bool, loaded: int, shape: EventShape, sizes: tuple[int, ...], options: Options, report: Report
) -> None:
    kind = "undirected" if undirected else "directed"
    report.progress(f"temporal_update: {kind}, loading {loaded:,} edges")
    start, rest = _split(shape, loaded)
    features = np.zeros((shape.vertices, 0), np.float32)
    graph = lg.Graph(features, start.src, start.dst, time=start.time, undirected=undirected)
    peer = Merged(start, shape.vertices, undirected)
    place = 0
    for batch in sizes:
        count = max(3, min(12, (len(rest.src) // len(sizes)) // batch))
        pieces = [
            Events(*(column[i : i + batch] for column in rest)) for i in range(place, place + count * batch, batch)
        ]
        place += count * batch
        ours = _median(_ingest(graph), pieces)
        merge = _median(peer.add, pieces)
        rebuild = _median(lambda _, peer=peer: peer.rebuild(), pieces[:3])
        judged = batch == 100_000
        met = ("yes" if batch / ours >= TARGET and rebuild / ours >= RATIO_TARGET else "NO") if judged else "-"
        cells = [kind, f"{batch:,}", rate(batch / ours), duration(ours), duration(rebuild), f"{rebuild / ours:.3g}"]
        target = f"{rate(TARGET)}, {RATIO_TARGET:.0f}" if judged else "-"
        report.row([*cells, duration(merge), f"{merge / ours:.3g}", target, met])
    peer.check(graph, report)


def _split(shape: EventShape, loaded: int) -> tuple[Events, Events]:
    chunks = list(event_chunks(shape, 1))
    whole = Events(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))
    return Events(*(column[:loaded] for column in whole)), Events(*(column[loaded:] for column in whole))


def _ingest(graph: lg.Graph) -> Callable[[Events], object]:
    def ingest(piece: Events) -> int:
        updates = lg.Updates()
        updates.add_edges(piece.src, piece.dst, time=piece.time)
        return graph.apply(updates)

    return ingest


def _median(work: Callable[[Events], object], pieces: list[Events]) -> float:
    seconds = []
    for piece in pieces:
        begin = time.perf_counter()
        work(piece)
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


class Merged:
    """In-edges sorted by (vertex, time, arrival) in arrays; a batch is sorted and merged in."""

    def __init__(self, start: Events, vertices: int, undirected: bool) -> None:
        self.vertices, self.undirected = vertices, undirected
        self.owner, self.neighbour, self.time = self._sorted(start)

    def _sorted(self, piece: Events) -> tuple[Int64, Int64, Int64]:
        owner, neighbour, times = piece.dst, piece.src, piece.time
        if self.undirected:
            loop = owner == neighbour
            owner, neighbour = np.stack([piece.dst, piece.src], 1).ravel(), np.stack([piece.src, piece.dst], 1).ravel()
            times = np.repeat(piece.time, 2)
            keep = ~(np.repeat(loop, 2) & (np.arange(len(owner)) % 2 == 1))
            owner, neighbour, times = owner[keep], neighbour[keep], times[keep]
        order = np.argsort(owner, kind="stable")  # times rise along a stream
        return owner[order], neighbour[order], times[order]

    def add(self, piece: Events) -> None:
        owner, neighbour, times = self._sorted(piece)
        places = np.searchsorted(self.owner, owner, side="right")  # behind the vertex's older edges
        self.owner, self.neighbour, self.time = (
            np.insert(old, places, new)
            for old, new in ((self.owner, owner), (self.neighbour, neighbour), (self.time, times))
        )

    def rebuild(self) -> scipy.sparse.csr_array:
        """scipy's CSR of all edges: a row a vertex, a column an edge, so that parallel edges are not added up.

        Rows come in order, which is the best case for scipy.
        """
        count = len(self.owner)
        coordinates = (self.owner.astype(np.int32), np.arange(count, dtype=np.int32))
        return scipy.sparse.coo_array((self.time, coordinates), shape=(self.vertices, count)).tocsr()

    def check(self, graph: lg.Graph, report: Report) -> None:
        for v in _some(self.vertices):
            rows = slice(*np.searchsorted(self.owner, [v, v + 1]))
            ours = graph.in_neighbours(v)
            if not (
                np.array_equal(ours["src"], self.neighbour[rows]) and np.array_equal(ours["time"], self.time[rows])
            ):
                report.fail(f"[temporal_update] vertex {v}: expected the merged in-edges, got others")


def _some(vertices: int) -> Iterator[int]:
    yield from range(0, vertices, max(1, vertices // 50))
