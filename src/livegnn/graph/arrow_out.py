"""Graphs as Arrow tables: Graph.to_arrow, whose edges Updates.from_arrow reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from livegnn.graph.host import GraphHost
from livegnn.optional import need
from livegnn.types import AnyArray

_ARROW_UNITS = ("s", "ms", "us", "ns")


class ArrowTables(NamedTuple):
    """The vertices and the edges of a graph, as pyarrow.Table; dicts of them by type where vertices have types.

    vertices: id, and features, lists of float32 of one width; in the order of their slots.
    edges:    src, dst, id, and weight, time, type (a code), edge_attr where the graph has them; in order of edge ids.
    """

    vertices: Any
    edges: Any


def to_arrow(host: GraphHost) -> ArrowTables:
    """The whole graph. The caller holds its lock, and no edges lie in files."""
    arrow = need("pyarrow", "arrow")
    schema = host.schema
    found = host.store.edges()
    for end in ("src", "dst"):
        found[end] = host.ids.external(found[end])
    if not schema.has_types:
        return ArrowTables(_vertices(arrow, host, 0, None), _edges(arrow, host, found))
    vertices = {name: _vertices(arrow, host, code, name) for code, name in enumerate(schema.vertex_types)}
    edges = {
        key: _edges(arrow, host, {name: column[found["type"] == code] for name, column in found.items()})
        for code, key in enumerate(schema.edge_types)
    }
    return ArrowTables(vertices, edges)


def _vertices(arrow: Any, host: GraphHost, code: int, name: str | None) -> Any:
    slots = host.live_slots("to_arrow", name)
    columns = {"id": _ids(arrow, host, host.ids.external(slots))}
    if width := host.schema.widths[code]:
        columns["features"] = _rows(arrow, host.store.features(slots, width))
    return arrow.table(columns)


def _edges(arrow: Any, host: GraphHost, found: dict[str, AnyArray]) -> Any:
    columns = {"src": _ids(arrow, host, found["src"]), "dst": _ids(arrow, host, found["dst"])}
    columns |= {name: arrow.array(found[name]) for name in ("id", "weight", "type") if name in found}
    if "time" in found:
        unit = host.time_unit
        kind = arrow.timestamp(unit) if unit in _ARROW_UNITS else arrow.int64()
        columns["time"] = arrow.array(found["time"]).cast(kind)
    if "attr" in found:
        columns["edge_attr"] = _rows(arrow, found["attr"])
    return arrow.table(columns)


def _ids(arrow: Any, host: GraphHost, ids: AnyArray) -> Any:
    return arrow.array(ids, arrow.string() if host.ids.text else arrow.int64())


def _rows(arrow: Any, rows: AnyArray) -> Any:
    flat = arrow.array(np.ascontiguousarray(rows).reshape(-1))
    return arrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])
