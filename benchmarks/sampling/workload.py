"""A social network with the shape of the INTER workload of Helios' Table 1: forums have persons, persons know persons.

Out-degrees are Lomax quantiles cut at the paper's maximum (3,632), destinations are skewed likewise, the order is
random and the time of an edge is its place. A record is an added edge or, one in a hundred, the new
features of a vertex.
Invariant: a function of (tiny, seed) alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.engine.generate import lomax_degrees

HAS, KNOWS = 0, 1
FEATURES = 10
DEGREE_MAX = 3632
FEATURE_SHARE = 0.01  # of the records: 40M vertices against 3.8B edges in the paper

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Social:
    """Vertices 0 .. forums - 1 are forums, the rest persons. Edges in order of time; the last ones are the stream."""

    forums: int
    persons: int
    src: Int64
    dst: Int64
    edge_type: npt.NDArray[np.int32]
    weight: npt.NDArray[np.float32]
    loaded: int  # edges that the graph starts with

    @property
    def vertices(self) -> int:
        return self.forums + self.persons

    def graph(self) -> lg.Graph:
        n = self.loaded
        features = np.random.default_rng(7).standard_normal((self.vertices, FEATURES), np.float32)
        columns = {"weight": self.weight[:n], "time": np.arange(n), "edge_type": self.edge_type[:n]}
        return lg.Graph(features, self.src[:n], self.dst[:n], **columns)

    def batches(self, first: int, count: int, size: int) -> Iterator[lg.Updates]:
        """`count` records from the stream's place `first` on, in batches; past its end the stream begins again."""
        rng = np.random.default_rng(first + 1)
        stream = len(self.src) - self.loaded
        for start in range(first, first + count, size):
            records = min(size, first + count - start)
            changed = max(1, int(records * FEATURE_SHARE))
            order = np.arange(start, start + records - changed)
            place = self.loaded + order % stream
            columns = {"weight": self.weight[place], "time": self.loaded + order, "edge_type": self.edge_type[place]}
            updates = lg.Updates()
            updates.add_edges(self.src[place], self.dst[place], **columns)
            rows = rng.standard_normal((changed, FEATURES), np.float32)
            updates.set_features(rng.integers(0, self.vertices, changed), rows)
            yield updates


def social(tiny: bool, seed: int = 1, share: float = 1.0) -> Social:
    """A share of 50M edges over 1M vertices, a tenth of them left for the stream; tiny: of 30K over 600."""
    rng = np.random.default_rng(seed)
    forums, persons = (100, 500) if tiny else (200_000, 800_000)
    has, knows = (10_000, 20_000) if tiny else (20_000_000, 30_000_000)
    forums, persons, has, knows = (int(count * share) for count in (forums, persons, has, knows))
    members = _sources(forums, has, rng)
    friends = _sources(persons, knows, rng) + forums
    src = np.concatenate([members, friends])
    dst = np.concatenate([_sources(persons, has, rng), _sources(persons, knows, rng)]) + forums
    edge_type = np.repeat(np.array([HAS, KNOWS], np.int32), [has, knows])
    rng.shuffle(dst[:has])
    rng.shuffle(dst[has:])
    order = rng.permutation(len(src))
    weight = rng.exponential(1.0, len(src)).astype(np.float32)
    return Social(forums, persons, src[order], dst[order], edge_type[order], weight, len(src) - len(src) // 10)


def _sources(vertices: int, edges: int, rng: np.random.Generator) -> Int64:
    """Each vertex as often as its degree says; `edges` in all."""
    degrees = lomax_degrees(vertices, edges / vertices, 3.0, DEGREE_MAX)
    exact = np.diff(np.floor(np.concatenate([[0.0], np.cumsum(degrees)])).astype(np.int64))
    short = edges - int(exact.sum())
    exact[: abs(short)] += np.sign(short)
    return np.repeat(rng.permutation(vertices), exact)


def query(by: str, fanouts: tuple[int, ...] = (25, 10)) -> lg.sampling.Query:
    """Forum-has-person-knows-person (Helios, Table 2)."""
    made = lg.query().out(HAS).sample(fanouts[0], by=by)  # type: ignore[arg-type]
    for fanout in fanouts[1:]:
        made = made.out(KNOWS).sample(fanout, by=by)  # type: ignore[arg-type]
    return made
