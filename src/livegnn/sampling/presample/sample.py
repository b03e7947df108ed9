"""Sample: the answer to a query. Level 0 is the seeds, level k the k-th hop; -1 stands where there are fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from livegnn.errors import UsageError, ValueInvalid
from livegnn.sampling.presample.to_pyg import to_pyg
from livegnn.types import AnyArray, Float32Array, Int64Array

if TYPE_CHECKING:
    from livegnn.sampling.queries.plan import Plan, PlannedQuery

__all__ = ["NO_COLUMNS", "NO_EDGES", "EdgeDataSpec", "EdgeLevels", "Sample"]

Level = TypeVar("Level", bound=AnyArray)


class EdgeDataSpec(NamedTuple):
    """The columns of edges that samples carry: weight, time, and so many attributes."""

    weight: bool = False
    time: bool = False
    attr_width: int = 0

    @property
    def words(self) -> int:
        """Of 32 bits, for one edge."""
        return self.weight + 2 * self.time + self.attr_width

    def of_rows(self, levels: Sequence[Float32Array]) -> EdgeLevels:
        """The columns in rows of words, level by level: the weight, the time in two words, the attributes."""
        first, at = int(self.weight), self.weight + 2 * self.time
        return EdgeLevels(
            [level[..., 0].copy() for level in levels if self.weight],
            [level[..., first:at].copy().view(np.int64)[..., 0] for level in levels if self.time],
            [level[..., at:].copy() for level in levels if self.attr_width],
        )

    def zeros(self, shapes: Sequence[tuple[int, ...]]) -> EdgeLevels:
        """Columns of levels without edges."""
        return EdgeLevels(
            [np.zeros(shape, np.float32) for shape in shapes if self.weight],
            [np.zeros(shape, np.int64) for shape in shapes if self.time],
            [np.zeros((*shape, self.attr_width), np.float32) for shape in shapes if self.attr_width],
        )


NO_COLUMNS = EdgeDataSpec()


class EdgeLevels(NamedTuple):
    """Columns of the sampled edges by hop, zeros where there are fewer; () for what is left out."""

    weight: Sequence[Float32Array] = ()
    time: Sequence[Int64Array] = ()
    attr: Sequence[Float32Array] = ()

    def mapped(self, rows: Callable[[Sequence[AnyArray]], Sequence[AnyArray]]) -> EdgeLevels:
        """The same of some rows."""
        return EdgeLevels(rows(self.weight), rows(self.time), rows(self.attr))


NO_EDGES = EdgeLevels()


class Sample:
    """Sampled neighbourhoods of a batch of seeds, of one version of the graph.

    hop(0) = seeds (B,);  hop(k) (B, C1, ..., Ck):  hop(k)[..., i] is the i-th sample of the vertex hop(k - 1)[...]

    Rows follow the order of the strategy: newest first for top_k, ascending rank for the others. Made by
    SampleSource.sample.
    """

    def __init__(
        self,
        planned: PlannedQuery,
        plan: Plan,
        seeds: AnyArray,
        version: int,
        vertices: Sequence[Int64Array],
        edge_ids: Sequence[Int64Array],
        features: Sequence[Float32Array],
        names: Sequence[AnyArray] | None = None,
        edges: EdgeLevels = NO_EDGES,
    ) -> None:
        self.seeds = seeds
        self.version = version
        self.planned = planned
        self.plan = plan
        self._vertices = tuple(vertices)
        self._edge_ids = tuple(edge_ids)
        self._features = tuple(features)
        self._names = None if names is None else tuple(names)
        self.edge_levels = edges

    @property
    def hops(self) -> int:
        """K, the number of hops."""
        return len(self._vertices)

    @property
    def vertex_types(self) -> tuple[str | None, ...]:
        """The vertex type of each level, K + 1 names; None where it is not one type, or the graph has none."""
        return self.plan.level_types(self.planned)

    def hop(self, k: int) -> AnyArray:
        """The vertices of level k by the graph's own ids: (B,) for k = 0, else (B, C1, ..., Ck), -1 where fewer.

        Graphs with string ids give dtype object, and None where fewer. Raises: ValueInvalid.
        """
        if self._level("hop", k, 0) == 0:
            return self.seeds
        return self._vertices[k - 1] if self._names is None else self._names[k - 1]

    def edge_ids(self, k: int) -> Int64Array:
        """Ids of the edges that level k came by, shaped as hop(k), -1 where fewer; 1 <= k <= K.

        Raises:  ValueInvalid; UsageError if the sample was taken with edge_ids=False.
        """
        self._level("edge_ids", k, 1)
        if not self._edge_ids:
            raise UsageError("[edge_ids] expected a sample with edge ids, got one without; take it with edge_ids=True")
        return self._edge_ids[k - 1]

    def edge_weight(self, k: int) -> Float32Array:
        """Weights of the edges that level k came by, shaped as hop(k), 0 where fewer; 1 <= k <= K.

        Raises:  ValueInvalid; UsageError if the sample has none.
        """
        return self._edge_column("edge_weight", self.edge_levels.weight, k)

    def edge_time(self, k: int) -> Int64Array:
        """Times of the edges that level k came by; otherwise as edge_weight."""
        return self._edge_column("edge_time", self.edge_levels.time, k)

    def edge_attr(self, k: int) -> Float32Array:
        """Attributes of the edges that level k came by, (B, C1, ..., Ck, D); otherwise as edge_weight."""
        return self._edge_column("edge_attr", self.edge_levels.attr, k)

    def features(self, k: int) -> Float32Array:
        """Features of level k, (B, C1, ..., Ck, F) float32, zeros where there are fewer; level 0 is the seeds.

        Raises:  ValueInvalid; UsageError if the sample was taken with features=False.
        """
        self._level("features", k, 0)
        if not self._features:
            raise UsageError("[features] expected a sample with features, got one without; take it with features=True")
        return self._features[k]

    def mask(self, k: int) -> AnyArray:
        """Where level k has a vertex: bool, shaped as hop(k). Raises: ValueInvalid."""
        if self._level("mask", k, 0) == 0:
            return np.ones(len(self.seeds), np.bool_)
        mask: AnyArray = self._vertices[k - 1] >= 0
        return mask

    def part(
        self,
        first: int,
        last: int,
        *,
        features: bool = True,
        edge_ids: bool = True,
        edge_data: bool = True,
        copy: bool = False,
    ) -> Sample:
        """The samples of seeds first ... last - 1, as views of these arrays unless copied.

        Args:    features, edge_ids, edge_data: False leaves them out.
        """

        def rows(levels: Sequence[AnyArray]) -> list[AnyArray]:
            return [level[first:last].copy() if copy else level[first:last] for level in levels]

        return Sample(
            self.planned,
            self.plan,
            rows([self.seeds])[0],
            self.version,
            rows(self._vertices),
            rows(self._edge_ids) if edge_ids else (),
            rows(self._features) if features else (),
            None if self._names is None else rows(self._names),
            self.edge_levels.mapped(rows) if edge_data else NO_EDGES,
        )

    def to_pyg(self, *, merge: bool = False) -> Any:
        """A torch_geometric.data.Data, or HeteroData on a graph with vertex types, ready for a model's forward.

        Edges point from a sampled vertex to the vertex that it was sampled for, so messages flow to the seeds. See
        livegnn.sampling.presample.to_pyg for the attributes.

        Args:    merge: False keeps the tree, one row for each time a vertex was sampled; True merges the copies of a
                 vertex, as torch_geometric's NeighborLoader does.
        Raises:  DataMissing without torch_geometric (the extra pyg).
        """
        return to_pyg(self, merge)

    def __len__(self) -> int:
        return len(self.seeds)

    def __repr__(self) -> str:
        shape = ", ".join(f"hop {k + 1}: {'x'.join(map(str, array.shape))}" for k, array in enumerate(self._vertices))
        return f"Sample(seeds={len(self.seeds)}, {shape}, version={self.version})"

    def _edge_column(self, where: str, levels: Sequence[Level], k: int) -> Level:
        self._level(where, k, 1)
        if levels:
            return levels[k - 1]
        column = {"edge_weight": "weights", "edge_time": "times", "edge_attr": "attributes"}[where]
        raise UsageError(
            f"[{where}] expected a sample with {column} of edges, got one without; make the sampler with "
            f"edge_data=True, of a graph that has {column}"
        )

    def _level(self, where: str, k: int, first: int) -> int:
        if type(k) is int and first <= k <= self.hops:
            return k
        raise ValueInvalid(
            f"[{where}] expected a level from {first} to {self.hops}, got {k!r}; the query has that many hops"
        )
