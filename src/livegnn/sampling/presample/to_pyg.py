"""Samples as torch_geometric data.

Data     x (N, F), edge_index (2, E) from a sampled vertex to the one it was sampled for, n_id (N,) the graph's ids (not
         for string ids), e_id (E,) edge ids, edge_weight (E,), edge_time (E,) and edge_attr (E, D) as far as the
         sample has them, hop (N,) the level, batch (N,) the place of the seed (of merged copies: of
         the first), batch_size B, input_id (B,) = 0 ... B - 1, num_sampled_nodes and num_sampled_edges by level,
         version. Seeds are the first B rows.
HeteroData   the same by vertex type and by edge type; an `out` hop over (src, name, dst) gives edges
         (dst, "rev_name", src), since messages flow against it, an `in_` hop gives (src, name, dst).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from livegnn.errors import DataMissing, UsageError
from livegnn.sampling.queries.plan import Plan, PlannedQuery
from livegnn.types import AnyArray, Float32Array, Int64Array

__all__ = ["to_pyg"]


class _Sample(Protocol):
    """The parts of a Sample that are read here; edge_levels are its weights, times and attributes."""

    planned: PlannedQuery
    plan: Plan
    version: int
    _edge_ids: tuple[Int64Array, ...]
    _features: tuple[Float32Array, ...]

    @property
    def edge_levels(self) -> tuple[Sequence[AnyArray], Sequence[AnyArray], Sequence[AnyArray]]: ...
    @property
    def hops(self) -> int: ...
    @property
    def vertex_types(self) -> tuple[str | None, ...]: ...
    def hop(self, k: int) -> AnyArray: ...
    def edge_ids(self, k: int) -> Int64Array: ...
    def features(self, k: int) -> Float32Array: ...
    def mask(self, k: int) -> AnyArray: ...
    def __len__(self) -> int: ...


class _Level:
    """The vertices of one level that are there: their places in the answer, their parents' rows, and their own rows."""

    def __init__(self, sample: _Sample, k: int, parent: _Level | None) -> None:
        mask = sample.mask(k).reshape(-1)
        self.k = k
        self.mask = mask
        self.names: AnyArray = np.asarray(sample.hop(k)).reshape(-1)[mask]
        self.features = _rows(sample.features(k))[mask] if sample._features else None
        self.edges = {} if parent is None else _edge_columns(sample, k, mask)
        self.rows: Int64Array = np.zeros(0, np.int64)
        if parent is None:
            self.seed = np.arange(mask.size)
            return
        fanout = mask.size // max(parent.mask.size, 1)
        parents = np.repeat(np.arange(parent.mask.size), fanout)[mask]
        place = np.cumsum(parent.mask) - 1  # row of the answer -> place among the parent's vertices
        self.parent_place = place[parents]
        self.seed = parent.seed[self.parent_place]


def _edge_columns(sample: _Sample, k: int, mask: AnyArray) -> dict[str, AnyArray]:
    """What is known of the edges of level k, by the name that torch_geometric has for it."""
    weight, time, attr = sample.edge_levels
    found: dict[str, AnyArray] = {}
    if sample._edge_ids:
        found["e_id"] = sample.edge_ids(k).reshape(-1)[mask]
    if weight:
        found["edge_weight"] = weight[k - 1].reshape(-1)[mask]
    if time:
        found["edge_time"] = time[k - 1].reshape(-1)[mask]
    if attr:
        found["edge_attr"] = _rows(attr[k - 1])[mask]
    return found


def _rows(features: Float32Array) -> Float32Array:
    """(B, C1, ..., F) as one row a place."""
    return features.reshape(math.prod(features.shape[:-1]), features.shape[-1])


def to_pyg(sample: _Sample, merge: bool) -> Any:
    """The sample as Data or HeteroData; see Sample.to_pyg."""
    try:
        import torch
        from torch_geometric.data import Data, HeteroData
    except ImportError as cause:
        raise DataMissing(
            "[to_pyg] expected torch_geometric, got none; pip install 'livegnn[pyg]', or read hop(k) and features(k)"
        ) from cause
    typed = sample.plan.schema.vertex_types is not None
    if typed and None in sample.vertex_types:
        raise UsageError(
            "[to_pyg] expected hops that lead to one vertex type each, got a hop over several; name its edge type"
        )
    levels: list[_Level] = []
    for k in range(sample.hops + 1):
        levels.append(_Level(sample, k, levels[-1] if levels else None))
    types: list[str | None] = list(sample.vertex_types) if typed else [None] * len(levels)
    stores = {
        name: _Vertices([level for level, t in zip(levels, types, strict=True) if t == name], merge)
        for name in dict.fromkeys(types)
    }
    data = HeteroData() if typed else Data()
    for name, vertices in stores.items():
        vertices.write(data if name is None else data[name], torch, sample, len(levels))
    _write_edges(data, torch, sample, levels, merge)
    data.version = sample.version
    return data


class _Vertices:
    """The vertices of one type over all levels: a row each, or one for all copies of a vertex."""

    def __init__(self, levels: list[_Level], merge: bool) -> None:
        self.levels = levels
        self.count = 0
        self.kept: list[Any] = []  # per level, which of its vertices got a row of their own
        seen: dict[Any, int] = {}
        for level in levels:
            if not merge or level.k == 0:
                level.rows = self.count + np.arange(len(level.names))
                keep = np.ones(len(level.names), np.bool_)
                if merge:
                    for row, name in zip(level.rows.tolist(), level.names.tolist(), strict=True):
                        seen.setdefault(name, row)
                self.count += len(level.names)
            else:
                keep = np.zeros(len(level.names), np.bool_)
                rows = []
                for place, name in enumerate(level.names.tolist()):
                    if name not in seen:
                        seen[name] = self.count
                        self.count += 1
                        keep[place] = True
                    rows.append(seen[name])
                level.rows = np.array(rows, np.int64)
            self.kept.append(keep)

    def write(self, store: Any, torch: Any, sample: _Sample, level_count: int) -> None:
        levels, kept = self.levels, self.kept
        names = np.concatenate([level.names[keep] for level, keep in zip(levels, kept, strict=True)])
        if names.dtype != object:
            store.n_id = torch.from_numpy(names)
        if levels[0].features is not None:
            rows = [
                level.features[keep] for level, keep in zip(levels, kept, strict=True) if level.features is not None
            ]
            store.x = torch.from_numpy(np.concatenate(rows))
        store.num_nodes = self.count
        hops = [np.full(int(keep.sum()), level.k) for level, keep in zip(levels, kept, strict=True)]
        store.hop = torch.from_numpy(np.concatenate(hops))
        seeds = [level.seed[keep] for level, keep in zip(levels, kept, strict=True)]
        store.batch = torch.from_numpy(np.concatenate(seeds))
        counts = [0] * level_count
        for level, keep in zip(levels, kept, strict=True):
            counts[level.k] = int(keep.sum())
        store.num_sampled_nodes = counts
        if levels[0].k == 0:
            store.batch_size = len(sample)
            store.input_id = torch.arange(len(sample))


def _write_edges(data: Any, torch: Any, sample: _Sample, levels: list[_Level], merge: bool) -> None:
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


def _edge_key(sample: _Sample, k: int) -> tuple[str, str, str] | None:
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
