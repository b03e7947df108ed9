"""Where does a retraining round's time go? Ingest, sample, fetch, model, memory (GNNFlow, Figures 8 and 9).

A stream with GDELT's shape; each round ingests, tests and trains on one batch, with edge features in a memory-mapped
file, fetched with and without an LRU cache. The peer of the ingest does what a system with a static graph does before
each round: it rebuilds the CSR of everything so far (scipy). Times are medians of rounds; expected: the same losses
with the cache and without it.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch

import livegnn as lg
from benchmarks.engine.generate import EVENT_SHAPES, Events, event_chunks
from benchmarks.options import Options
from benchmarks.report import Report, rate
from livegnn.temporal.models import build

EDGE_WIDTH, ROUNDS = 64, 5
PHASES = ("ingest", "sample", "fetch", "model", "memory")
WIDTHS = {"embed_width": 64, "time_width": 64, "edge_width": EDGE_WIDTH}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {  # model, sampler, batch size: the paper's
    "tgn": ({"name": "tgn", "memory_width": 64, **WIDTHS}, {"fanouts": [10], "strategy": "recent"}, 4000),
    "tgat": ({"name": "tgat", "hop_count": 2, **WIDTHS}, {"fanouts": [10, 10], "strategy": "uniform"}, 600),
    "dysat": (
        {"name": "dysat", "embed_width": 64, "edge_width": EDGE_WIDTH},
        {"fanouts": [10, 10], "strategy": "uniform", "snapshots": 3, "window": 10_000, "prop_time": True},
        600,
    ),
}


class Uncached:
    """Rows straight from the file, as loading.Fetches."""

    width = EDGE_WIDTH

    def __init__(self, rows: npt.NDArray[np.float32]) -> None:
        self._rows = rows

    def fetch(self, ids: npt.NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self._rows[ids]))


def run(options: Options, report: Report) -> None:
    """A row for each model, with and without a cache."""
    torch.set_num_threads(options.threads)
    history, batch = (20_000, 600) if options.tiny else (20_000_000, 100_000) if options.full else (2_000_000, 12_000)
    shape = replace(EVENT_SHAPES["gdelt-like"], events=history + ROUNDS * batch)
    vertices = 500 if options.tiny else shape.vertices
    shape = replace(shape, vertices=vertices)
    events = _joined(list(event_chunks(shape, 1)))
    rebuild = _rebuild_seconds(events, history, vertices)
    report.heading(f"A retraining round: {vertices:,} vertices, {history:,} events so far, {batch:,} a round, 1 epoch")
    report.line(f"Rebuilding the CSR of all events, as before each round of a static graph: {rebuild:.3f} s.\n")
    report.columns(
        ("model", "edge features", *(f"{phase} s" for phase in PHASES), "hits", "events/s", "rebuild / ingest")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.npy"
        np.save(path, np.random.default_rng(2).standard_normal((len(events.src), EDGE_WIDTH), np.float32))
        for model in MODELS:
            losses = []
            for cached in (False, True):
                rows = np.load(path, mmap_mode="r")
                capacity = max(1000, len(events.src) // 30)
                features: Any = lg.FeatureCache(rows, capacity=capacity) if cached else Uncached(rows)
                losses.append(_row(model, features, events, history, batch, vertices, rebuild, report))
            if losses[0] != losses[1]:
                report.fail(f"[temporal_rounds] expected {model}'s losses with a cache {losses[0]}, got {losses[1]}")


def _joined(chunks: list[Events]) -> Events:
    return Events(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _rebuild_seconds(events: Events, history: int, vertices: int) -> float:
    """scipy's CSR by destination: a row a vertex, a column an edge, so that repeated interactions stay apart."""
    seconds = []
    dst, columns = events.dst[:history].astype(np.int32), np.arange(history, dtype=np.int32)
    for _ in range(3):
        start = time.perf_counter()
        scipy.sparse.coo_array((events.time[:history], (dst, columns)), shape=(vertices, history)).tocsr()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def _row(
    model: str, features: Any, events: Events, history: int, batch: int, vertices: int, rebuild: float, report: Report
) -> list[float]:
    config, how, batch_size = MODELS[model]
    rows = np.zeros((vertices, 0), np.float32)
    first = slice(0, history)
    graph = lg.Graph(rows, events.src[first], events.dst[first], time=events.time[first])
    torch.manual_seed(0)
    trainer = lg.ContinuousTrainer(
        build(config), graph, lg.TemporalSampler(graph, **how), edge_features=features, epochs=1, batch_size=batch_size,
        mrr_candidates=1,
    )  # fmt: skip
    trainer.take_as_trained()
    rounds = []
    for begin in range(history, history + ROUNDS * batch, batch):
        part = slice(begin, begin + batch)
        updates = lg.Updates()
        updates.add_edges(events.src[part], events.dst[part], time=events.time[part])
        rounds += list(trainer.run([updates]))
    seconds = {phase: float(np.median([one.seconds.get(phase, 0.0) for one in rounds])) for phase in PHASES}
    hits = f"{features.stats.hit_rate:.1%}" if isinstance(features, lg.FeatureCache) else "-"
    speed = rate(batch / sum(seconds.values()))
    name = "LRU cache" if isinstance(features, lg.FeatureCache) else "file"
    times = (f"{seconds[phase]:.3f}" for phase in PHASES)
    report.row([model, name, *times, hits, speed, f"{rebuild / seconds['ingest']:.0f}"])
    report.progress(f"rounds: {model}, {name}: {speed} events/s")
    trainer.close()
    return [one.loss for one in rounds]
