"""Graphs of PyTorch Geometric as the arguments of Graph(...): Graph.from_pyg."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegnn.errors import ColumnMissing, ValueInvalid, WidthMismatch
from livegnn.graph import checks
from livegnn.graph.load import WeightColumn

_WHERE = "Graph.from_pyg"


def pyg_arrays(data: Any) -> tuple[dict[str, Any], WeightColumn | None]:
    """The arguments of Graph(...) from a Data or HeteroData, and which column the graph keeps as its weights.

    Raises: ColumnMissing; WidthMismatch; ValueInvalid where weights are of another column for another edge type.
    """
    if hasattr(data, "node_types") or hasattr(data, "metadata"):
        return _hetero_arrays(data), _hetero_weight_column(data)
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise ColumnMissing(
                f"[{_WHERE}] expected data with {name}, got {type(data).__name__} without it; set data.{name}"
            )
    edges = _edges(_WHERE, data)
    return {"features": data.x, **edges, "edge_type": getattr(data, "edge_type", None)}, _weight_column(data)


def _hetero_arrays(data: Any) -> dict[str, Any]:
    features: dict[str, Any] = {}
    for name in data.node_types:
        part = data[name]
        if "x" in part:
            features[name] = part.x
        elif "num_nodes" in part:
            features[name] = np.zeros((int(part.num_nodes), 0), np.float32)
        else:
            raise ColumnMissing(
                f"[{_WHERE}] expected x or num_nodes for vertex type {name!r}, got neither; set data[{name!r}].x"
            )
    arguments: dict[str, Any] = {"features": features, "src": {}, "dst": {}}
    for key in data.edge_types:
        if "edge_index" not in data[key]:
            raise ColumnMissing(
                f"[{_WHERE}] expected edge_index for edge type {key!r}, got none; set data[{key!r}].edge_index"
            )
        for name, values in _edges(f"{_WHERE}, {key!r}", data[key]).items():
            if values is not None:
                arguments.setdefault(name, {})[key] = values
    return arguments


def _hetero_weight_column(data: Any) -> WeightColumn | None:
    """Which column of a HeteroData the graph keeps as its weights; see _weight_column.

    Raises: ValueInvalid where it is another for another edge type.
    """
    found = {key: _weight_column(data[key]) for key in data.edge_types}
    names = {column: key for key, column in found.items() if column is not None}
    if len(names) > 1:
        raise ValueInvalid(
            f"[{_WHERE}] expected edge_weight or a 1-D edge_attr, the same for all edge types, got edge_weight "
            f"for {names['edge_weight']!r} and a 1-D edge_attr alone for {names['edge_attr']!r}; rename one of them"
        )
    return next(iter(names), None)


def _weight_column(data: Any) -> WeightColumn | None:
    """Which column of a Data, or of one edge type of a HeteroData, the graph keeps as its weights.

    A 1-D edge_attr without an edge_weight is kept there, one number an edge, under its own name: a model reads it as
    attributes or as weights, as its forward does (livegnn.models.joining).
    """
    if getattr(data, "edge_weight", None) is not None:
        return "edge_weight"
    attr = getattr(data, "edge_attr", None)
    return "edge_attr" if attr is not None and attr.ndim == 1 else None


def _edges(where: str, data: Any) -> dict[str, Any]:
    """src, dst, weight, time and edge_attr of a Data, or of one edge type of a HeteroData; None where not there."""
    edge_index = checks.as_array(where, "edge_index", data.edge_index)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise WidthMismatch(f"[{where}] expected edge_index of shape (2, E), got {edge_index.shape}; transpose it")
    weight, attr = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    if _weight_column(data) == "edge_attr":
        weight, attr = attr, None
    elif attr is not None and attr.ndim == 1:
        attr = attr[:, None]
    time = getattr(data, "edge_time", None)
    if time is None:
        time = getattr(data, "time", None)
        is_edge_time = time is not None and time.ndim == 1 and len(time) == edge_index.shape[1]
        time = time if is_edge_time and data.is_edge_attr("time") else None
    return {"src": edge_index[0], "dst": edge_index[1], "weight": weight, "edge_attr": attr, "time": time}
