"""Sample: the answer to a query. Level 0 is the seeds, level k the k-th hop; -1 stands where there are fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.errors import UsageError, ValueInvalid
from livegnn.types import AnyArray, Float32Array, Int64Array

if TYPE_CHECKING:
    from livegnn.sampling.plan import Plan, PlannedQuery

__all__ = ["Sample"]


class Sample:
    """Sampled neighbourhoods of a batch of seeds, of one version of the graph.

    hop(0) = seeds (B,);  hop(k) (B, C1, ..., Ck):  hop(k)[..., i] is the i-th sample of the vertex hop(k - 1)[...]

    Rows follow the order of the strategy: newest first for top_k, ascending rank for the others. Made by
    PreSampler.sample, AdHocSampler.sample and ServingWorker.sample.
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
    ) -> None:
        self.seeds = seeds
        self.version = version
        self.planned = planned
        self.plan = plan
        self._vertices = tuple(vertices)
        self._edge_ids = tuple(edge_ids)
        self._features = tuple(features)
        self._names = None if names is None else tuple(names)

    @property
    def hops(self) -> int:
        """K, the number of hops."""
        return len(self._vertices)

    @property
    def vertex_types(self) -> tuple[str | None, ...]:
        """The vertex type of each level, K + 1 names; None where it is not one type, or the graph has none."""
        return (self.planned.query.vertex_type, *(self.plan.one_hop(table).to_type for table in self.planned.tables))

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
        self, first: int, last: int, *, features: bool = True, edge_ids: bool = True, copy: bool = False
    ) -> Sample:
        """The samples of seeds first ... last - 1, as views of these arrays unless copied.

        Args:    features, edge_ids: False leaves them out.
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
        )

    def to_pyg(self, *, merge: bool = False) -> Any:
        """A torch_geometric.data.Data, or HeteroData on a graph with vertex types, ready for a model's forward.

        Edges point from a sampled vertex to the vertex that it was sampled for, so messages flow to the seeds. See
        livegnn.sampling.to_pyg for the attributes.

        Args:    merge: False keeps the tree, one row for each time a vertex was sampled; True merges the copies of a
                 vertex, as torch_geometric's NeighborLoader does.
        Raises:  DataMissing without torch_geometric (the extra pyg).
        """
        from livegnn.sampling.to_pyg import to_pyg

        return to_pyg(self, merge)

    def __len__(self) -> int:
        return len(self.seeds)

    def __repr__(self) -> str:
        shape = ", ".join(f"hop {k + 1}: {'x'.join(map(str, array.shape))}" for k, array in enumerate(self._vertices))
        return f"Sample(seeds={len(self.seeds)}, {shape}, version={self.version})"

    def _level(self, where: str, k: int, first: int) -> int:
        if type(k) is int and first <= k <= self.hops:
            return k
        raise ValueInvalid(
            f"[{where}] expected a level from {first} to {self.hops}, got {k!r}; the query has that many hops"
        )
