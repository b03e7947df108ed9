"""Generated workloads: Chung-Lu graphs with Lomax-shaped expected degrees.

Expected degrees are the quantiles of a Lomax law (density exponent g), cut at the maximum and scaled to the mean.
Edges are drawn with probability proportional to w_out[u] * w_in[v]; duplicates and self-loops are dropped and more are
drawn until the count is exact. Edges are kept in random order, so the first 90% are a random snapshot.
Invariants: a function of (name, seed) alone; vertex ids carry no order of degree.

Streams of dated events follow the same law in the activity of their ends, pairs recurring as they will; they come in
order of time and in chunks, so that a stream of any length needs the memory of one chunk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
FORMAT = 1  # part of every cached file's name: raise it when the generator changes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Counts and degree laws of one workload; exponents are of the degree's density."""

    vertices: int
    edges: int  # directed
    feature_width: int
    classes: int
    in_exponent: float
    in_degree_max: int
    out_exponent: float = 0.0  # 0: the graph holds both directions of every edge
    out_degree_max: int = 0

    @property
    def both_directions(self) -> bool:
        return self.out_exponent == 0.0


SHAPES = {
    "arxiv-like": Shape(
        vertices=169_343,
        edges=1_166_243,
        feature_width=128,
        classes=40,
        in_exponent=2.55,
        in_degree_max=13_155,
        out_exponent=5.0,
        out_degree_max=436,
    ),
    "products-like-small": Shape(
        vertices=600_000,
        edges=30_000_000,
        feature_width=100,
        classes=47,
        in_exponent=3.757,
        in_degree_max=17_481,
    ),
    "products-shaped-150k": Shape(  # a quarter of products-like-small: same mean degree and exponent
        vertices=150_000,
        edges=7_500_000,
        feature_width=100,
        classes=47,
        in_exponent=3.757,
        in_degree_max=17_481,
    ),
    "reddit-like-small": Shape(
        vertices=58_000,
        edges=14_000_000,
        feature_width=602,
        classes=41,
        in_exponent=4.22,
        in_degree_max=21_657,
    ),
    "tiny": Shape(  # for tests and for trying the benchmarks out
        vertices=2_000,
        edges=16_000,
        feature_width=24,
        classes=7,
        in_exponent=2.8,
        in_degree_max=300,
        out_exponent=4.0,
        out_degree_max=100,
    ),
}


@dataclass(frozen=True)
class GeneratedGraph:
    """Edges in random order (src[i] -> dst[i]) and the shape they follow."""

    name: str
    shape: Shape
    src: Ids
    dst: Ids


def lomax_degrees(count: int, mean: float, exponent: float, degree_max: int) -> npt.NDArray[np.float64]:
    """Quantiles of a Lomax law, largest first.

    w[i] = c (q_i^(-1/a) - 1), a = exponent - 1, q_i = (i + 1/2) / count, cut at degree_max; c such that mean(w) = mean.
    """
    upper = (np.arange(count) + 0.5) / count
    quantiles = upper ** (-1.0 / (exponent - 1.0)) - 1.0
    scale = mean / quantiles.mean()
    for _ in range(50):  # cutting lowers the mean: a few rounds restore it
        degrees = np.minimum(scale * quantiles, degree_max)
        scale *= mean / degrees.mean()
    return np.minimum(scale * quantiles, degree_max)


def _draw(rng: np.random.Generator, cumulative: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    picks = np.searchsorted(cumulative, rng.random(count), side="right")
    return np.minimum(picks, len(cumulative) - 1)


def _cumulative(degrees: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    sums = np.cumsum(degrees)
    return sums / sums[-1]


def _unique(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    keys.sort()
    keep = np.empty(len(keys), bool)
    keep[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=keep[1:])
    return keys[keep]


def chung_lu(shape: Shape, seed: int) -> tuple[Ids, Ids]:
    """Exactly shape.edges distinct directed edges without self-loops, in random order."""
    rng = np.random.default_rng(seed)
    n = shape.vertices
    wanted = shape.edges // 2 if shape.both_directions else shape.edges
    mean = shape.edges / n
    into = _cumulative(lomax_degrees(n, mean, shape.in_exponent, shape.in_degree_max))
    in_ids = rng.permutation(n)
    if shape.both_directions:
        out, out_ids = into, in_ids
    else:
        out = _cumulative(lomax_degrees(n, mean, shape.out_exponent, shape.out_degree_max))
        out_ids = rng.permutation(n)
    keys = np.empty(0, np.int64)
    while len(keys) < wanted:
        draws = int((wanted - len(keys)) * 1.05) + 1000
        u, v = out_ids[_draw(rng, out, draws)], in_ids[_draw(rng, into, draws)]
        if shape.both_directions:
            u, v = np.minimum(u, v), np.maximum(u, v)
        keys = _unique(np.concatenate([keys, (u * n + v)[u != v]]))
    surplus = rng.choice(len(keys), len(keys) - wanted, replace=False)
    keys = np.delete(keys, surplus)
    if shape.both_directions:
        keys = np.concatenate([keys, keys % n * n + keys // n])
    rng.shuffle(keys)
    return (keys // n).astype(np.int32), (keys % n).astype(np.int32)


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/livegnn, else ~/.cache/livegnn."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "livegnn"


def generated(name: str, seed: int = 1, directory: Path | None = None) -> GeneratedGraph:
    """The workload `name`, from the cache where it is, else drawn and cached (a temporary file, then renamed)."""
    shape = SHAPES[name]
    folder = cache_directory() if directory is None else directory
    path = folder / f"{name}-{FORMAT}-{seed}.npy"
    if path.exists():
        edges = np.load(path)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        edges = np.stack(chung_lu(shape, seed))
        temporary = path.with_suffix(f".{os.getpid()}.npy")
        np.save(temporary, edges)
        temporary.rename(path)
    return GeneratedGraph(name, shape, edges[0], edges[1])


@dataclass(frozen=True, kw_only=True)
class EventShape:
    """Counts and activity law of a stream of events; the exponent is of the density of events per vertex."""

    vertices: int
    events: int
    exponent: float
    share_max: float  # of all events, the most that one vertex is in on one side
    seconds: int = 365 * 24 * 3600  # from the first event to the last


EVENT_SHAPES = {
    "gdelt-like": EventShape(vertices=16_682, events=50_000_000, exponent=1.9, share_max=0.02),
    "netflix-like": EventShape(vertices=978_000, events=20_000_000, exponent=2.1, share_max=0.002),
}


class Events(NamedTuple):
    """A piece of a stream: (k,) int64 each, times in order."""

    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]


def event_chunks(shape: EventShape, seed: int, chunk: int = 1_000_000) -> Iterator[Events]:
    """The events of a shape in order of time, `chunk` at a time; a function of (shape, seed, chunk)."""
    rng = np.random.default_rng(seed)
    mean = shape.events / shape.vertices
    law = lomax_degrees(shape.vertices, mean, shape.exponent, max(1, int(shape.share_max * shape.events)))
    cumulative = _cumulative(law)
    src_ids, dst_ids = rng.permutation(shape.vertices), rng.permutation(shape.vertices)
    step = shape.seconds / shape.events
    for first in range(0, shape.events, chunk):
        count = min(chunk, shape.events - first)
        src, dst = src_ids[_draw(rng, cumulative, count)], dst_ids[_draw(rng, cumulative, count)]
        yield Events(src, dst, ((first + np.arange(count)) * step).astype(np.int64))
