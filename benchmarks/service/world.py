"""What the benchmarks of the service share: a graph, a model without torch, and updates that never end.

The updates are in equal shares additions of held-out edges, removals of edges that an earlier batch added, and new
feature rows. A batch removes what the one LAG batches before it added, so that any number of batches follow each other,
and the graph keeps its size; batches that overtake each other by less than LAG leave the same graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

import livegnn as lg
from benchmarks.engine.generate import generated
from livegnn.types import Float32Array, Int64Array

LAG = 100  # batches; more than are ever under way


@dataclass(frozen=True)
class ServiceWorld:
    """name: of the generated graph.  hidden: width of the model's first layer."""

    name: str
    hidden: int

    @cached_property
    def _arrays(self) -> tuple[Float32Array, Int64Array, Int64Array, int]:
        found = generated(self.name)
        shape = found.shape
        features = np.random.default_rng(3).standard_normal((shape.vertices, shape.feature_width), dtype=np.float32)
        return features, found.src.astype(np.int64), found.dst.astype(np.int64), shape.edges * 9 // 10

    def graph(self) -> lg.Graph:
        """The graph at the beginning, with nine tenths of the edges."""
        features, src, dst, cut = self._arrays
        return lg.Graph(features, src[:cut], dst[:cut])

    def model(self) -> lg.Model:
        """Two layers of GraphConv (sum)."""
        width, classes = self._arrays[0].shape[1], generated(self.name).shape.classes
        rng = np.random.default_rng(7)

        def layer(inputs: int, outputs: int, activation: str | None) -> object:
            own, near = (rng.normal(size=(outputs, inputs)) / np.sqrt(inputs) for _ in range(2))
            return lg.layers.GraphConv(near, own, np.zeros(outputs), activation=activation)

        return lg.Model([layer(width, self.hidden, "relu"), layer(self.hidden, classes, None)])

    @property
    def vertices(self) -> int:
        """How many."""
        return len(self._arrays[0])

    def batch(self, number: int, size: int, first: int = 0) -> Batch:
        """The updates of batch `number`, of batches of `size` updates that begin with number `first`."""
        rng = np.random.default_rng((11, number))
        share = size // 3
        ids = rng.integers(0, self.vertices, size - 2 * share)
        rows = rng.standard_normal((len(ids), self._arrays[0].shape[1]), dtype=np.float32)
        return Batch(
            self._edges(number, share), self._edges(number - LAG, share if number - LAG >= first else 0), (ids, rows)
        )

    def _edges(self, number: int, count: int) -> tuple[Int64Array, Int64Array]:
        _, src, dst, cut = self._arrays
        places = cut + (np.arange(count) + number * count) % (len(src) - cut)
        return src[places], dst[places]


@dataclass(frozen=True)
class Batch:
    """added, removed: edges.  features: ids and rows."""

    added: tuple[Int64Array, Int64Array]
    removed: tuple[Int64Array, Int64Array]
    features: tuple[Int64Array, Float32Array]

    def __len__(self) -> int:
        return len(self.added[0]) + len(self.removed[0]) + len(self.features[0])

    def updates(self) -> lg.Updates:
        """As a batch for the engine."""
        made = lg.Updates()
        made.add_edges(*self.added)
        if len(self.removed[0]):
            made.remove_edges(*self.removed)
        made.set_features(*self.features)
        return made

    def items(self) -> list[dict[str, object]]:
        """As the updates of a JSON body, one after the other by kind."""
        pairs = [("add_edge", *self.added), ("remove_edge", *self.removed)]
        found = [
            {"op": op, "u": u, "v": v} for op, us, vs in pairs for u, v in zip(us.tolist(), vs.tolist(), strict=True)
        ]
        found += [
            {"op": "set_features", "u": u, "x": x}
            for u, x in zip(self.features[0].tolist(), self.features[1].tolist(), strict=True)
        ]
        return found
