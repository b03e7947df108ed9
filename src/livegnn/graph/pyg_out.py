"""Graphs as torch_geometric Data and HeteroData: Graph.to_pyg, whose result Graph.from_pyg reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from livegnn.graph.host import GraphHost
from livegnn.graph.load import WeightColumn
from livegnn.optional import need
from livegnn.types import AnyArray, BoolArray


def to_pyg(host: GraphHost, weight_column: WeightColumn | None) -> Any:
    """The whole graph. The caller holds its lock, and no edges lie in files."""
    torch, geometric = need("torch", "pyg"), need("torch_geometric.data", "pyg")
    schema, store = host.schema, host.store
    data = geometric.HeteroData() if schema.has_types else geometric.Data()
    row = np.full(store.slot_count, -1, np.int64)  # of a slot among those of its type
    for code, name in enumerate(schema.vertex_types):
        slots = host.live_slots("to_pyg", name if schema.has_types else None)
        row[slots] = np.arange(len(slots))
        part = data[name] if schema.has_types else data
        if schema.widths[code] or not schema.has_types:
            part.x = torch.from_numpy(store.features(slots, schema.widths[code]))
        part.num_nodes = len(slots)
        part.n_id = torch.from_numpy(np.ascontiguousarray(slots if host.ids.text else host.ids.external(slots)))
    edges = _both_ways(store.edges()) if host.options["undirected"] else store.edges()
    columns = {"edge_index": np.stack([row[edges["src"]], row[edges["dst"]]])}
    columns |= edge_columns(edges, weight_column) | {"e_id": edges["id"]}
    if not schema.has_types:
        _write(data, torch, columns)
        return data
    types = columns.pop("edge_type")
    for code, key in enumerate(schema.edge_types):
        _write(data[key], torch, columns, types == code)
    return data


def edge_columns(edges: Mapping[str, AnyArray], weight_column: WeightColumn | None) -> dict[str, AnyArray]:
    """Columns of edges under the names from which from_pyg reads them. edges: weight, time, type and attr, if there."""
    named = {"time": "edge_time", "type": "edge_type", "attr": "edge_attr"}
    named["weight"] = "edge_attr" if weight_column == "edge_attr" else "edge_weight"
    columns = {named[name]: edges[name] for name in named if name in edges}
    if "edge_type" in columns:
        columns["edge_type"] = columns["edge_type"].astype(np.int64)
    return columns


def _both_ways(edges: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Each undirected edge as two that stand together; a self-loop as one."""
    twice = np.repeat(np.arange(len(edges["id"])), np.where(edges["src"] == edges["dst"], 1, 2))
    back = np.zeros(len(twice), np.bool_)
    back[1:] = twice[1:] == twice[:-1]
    found = {name: column[twice] for name, column in edges.items()}
    src, dst = found["src"], found["dst"]
    return found | {"src": np.where(back, dst, src), "dst": np.where(back, src, dst)}


def _write(part: Any, torch: Any, columns: Mapping[str, AnyArray], kept: BoolArray | None = None) -> None:
    for name, column in columns.items():
        mine = column if kept is None else column[..., kept] if name == "edge_index" else column[kept]
        part[name] = torch.from_numpy(np.ascontiguousarray(mine))
