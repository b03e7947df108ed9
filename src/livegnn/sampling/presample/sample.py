"""Sample: the answer to a query. Level 0 is the seeds, level k the k-th hop; -1 stands where there are fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from livegnn.errors import UsageError, ValueInvalid
from livegnn.optional import need
from livegnn.types import AnyArray, Float32Array, Int64Array

if TYPE_CHECKING:
    from livegnn.sampling.queries.plan import Plan, PlannedQuery

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

        Edges point from a sampled vertex to the vertex that it was sampled for, so messages flow to the seeds.

        Data         x (N, F), edge_index (2, E), n_id (N,) the graph's ids (not for string ids), e_id (E,) edge ids,
                     edge_weight (E,), edge_time (E,) and edge_attr (E, D) as far as the sample has them, hop (N,) the
                     level, batch (N,) the place of the seed (of merged copies: of the first), batch_size B,
                     input_id (B,) = 0 ... B - 1, num_sampled_nodes and num_sampled_edges by level, version.
                     Seeds are the first B rows.
        HeteroData   the same by vertex type and by edge type; an `out` hop over (src, name, dst) gives edges
                     (dst, "rev_name", src), since messages flow against it, an `in_` hop gives (src, name, dst).

        Args:    merge: False keeps the tree, one row for each time a vertex was sampled; True merges the copies of a
                 vertex, as torch_geometric's NeighborLoader does.
        Raises:  DataMissing without torch_geometric (the extra pyg).
        """
        torch, pyg = need("torch", "pyg"), need("torch_geometric.data", "pyg")
        typed = self.plan.schema.vertex_types is not None
        if typed and None in self.vertex_types:
            raise UsageError(
                "[to_pyg] expected hops that lead to one vertex type each, got a hop over several; name its edge type"
            )
        levels: list[_Level] = []
        for k in range(self.hops + 1):
            levels.append(_Level(self, k, levels[-1] if levels else None))
        types: list[str | None] = list(self.vertex_types) if typed else [None] * len(levels)
        data = pyg.HeteroData() if typed else pyg.Data()
        for name in dict.fromkeys(types):
            of_type = [level for level, t in zip(levels, types, strict=True) if t == name]
            _write_vertices(data if name is None else data[name], torch, self, of_type, merge)
        _write_edges(data, torch, self, levels, merge)
        data.version = self.version
        return data

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


# ---- as torch_geometric data


class _Level:
    """The vertices of one level that are there: their places in the answer, their parents' rows, and their own rows."""

    def __init__(self, sample: Sample, k: int, parent: _Level | None) -> None:
        there = sample.mask(k)
        self.k, self.mask = k, there.reshape(-1)
        self.names: AnyArray = np.asarray(sample.hop(k))[there]
        if sample._features:
            self.features = sample.features(k)[there]
        self.rows: Int64Array = np.zeros(0, np.int64)
        if parent is None:
            self.seed = np.arange(self.mask.size)
            return
        fanout = self.mask.size // max(parent.mask.size, 1)
        parents = np.repeat(np.arange(parent.mask.size), fanout)[self.mask]
        place = np.cumsum(parent.mask) - 1  # row of the answer -> place among the parent's vertices
        self.parent_place = place[parents]
        self.seed = parent.seed[self.parent_place]
        names = ("e_id", "edge_weight", "edge_time", "edge_attr")
        columns: Sequence[Sequence[AnyArray]] = (sample._edge_ids, *sample.edge_levels)
        self.edges = {name: levels[k - 1][there] for name, levels in zip(names, columns, strict=True) if levels}


def _write_vertices(store: Any, torch: Any, sample: Sample, levels: list[_Level], merge: bool) -> None:
    """Writes the vertices of one type, all levels: a row each, or one for all copies of a vertex, seeds apart."""
    names = np.concatenate([level.names for level in levels])
    of_level = np.repeat([level.k for level in levels], [len(level.names) for level in levels])
    places = np.arange(len(names))
    first = places  # place of the first copy
    if merge:
        _, firsts, which = np.unique(names, return_index=True, return_inverse=True)
        first = firsts[which]
    kept = (first == places) | (of_level == 0)
    rows = np.cumsum(kept) - 1
    rows = np.where(of_level == 0, rows, rows[first])
    for level in levels:
        level.rows = rows[of_level == level.k]
    if names.dtype != object:
        store.n_id = torch.from_numpy(names[kept])
    if sample._features:
        store.x = torch.from_numpy(np.concatenate([level.features for level in levels])[kept])
    store.num_nodes = int(kept.sum())
    store.hop = torch.from_numpy(of_level[kept])
    store.batch = torch.from_numpy(np.concatenate([level.seed for level in levels])[kept])
    store.num_sampled_nodes = np.bincount(of_level[kept], minlength=sample.hops + 1).tolist()
    if levels[0].k == 0:
        store.batch_size = len(sample)
        store.input_id = torch.arange(len(sample))


def _write_edges(data: Any, torch: Any, sample: Sample, levels: list[_Level], merge: bool) -> None:
    by_type: dict[Any, list[tuple[_Level, Int64Array]]] = {}
    for parent, level in pairwise(levels):
        pairs = np.stack([level.rows, parent.rows[level.parent_place]])
        by_type.setdefault(_edge_key(sample, level.k), []).append((level, pairs))
    for key, parts in by_type.items():
        store = data if key is None else data[key]
        pairs = np.concatenate([part for _, part in parts], axis=1)
        names = list(parts[0][0].edges)
        columns = {name: np.concatenate([level.edges[name] for level, _ in parts]) for name in names}
        of_level = np.concatenate([np.full(part.shape[1], level.k) for level, part in parts])
        if merge:  # an edge sampled twice is one edge
            kept = _first_of_each(pairs, columns)
            pairs, of_level = pairs[:, kept], of_level[kept]
            columns = {name: column[kept] for name, column in columns.items()}
        store.edge_index = torch.from_numpy(np.ascontiguousarray(pairs))
        for name, column in columns.items():
            store[name] = torch.from_numpy(np.ascontiguousarray(column))
        store.num_sampled_edges = np.bincount(of_level, minlength=sample.hops + 1)[1:].tolist()


def _first_of_each(pairs: Int64Array, columns: dict[str, AnyArray]) -> Int64Array:
    """Places of the edges without those that came before: by edge id, or, without ids, by both ends."""
    if "e_id" not in columns and columns:
        raise UsageError(
            "[to_pyg] expected edge ids to merge edges that have data, got none; take the sample with edge_ids=True"
        )
    keys = np.vstack([pairs, columns["e_id"]]) if columns else pairs
    _, first = np.unique(keys, axis=1, return_index=True)
    kept: Int64Array = np.sort(first)
    return kept


def _edge_key(sample: Sample, k: int) -> tuple[str, str, str] | None:
    """The HeteroData edge type of hop k; None on a graph without vertex types."""
    schema = sample.plan.schema
    if schema.vertex_types is None:
        return None
    one_hop = sample.plan.one_hop(sample.planned.tables[k - 1])
    name = "edge"
    if one_hop.edge_type is not None:
        name = next(t.name for t in schema.named(None) if t.code == one_hop.edge_type)
    if one_hop.direction == "out" and not schema.undirected:
        name = f"rev_{name}"
    return str(one_hop.to_type), name, str(one_hop.from_type)
