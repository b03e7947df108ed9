"""What a new graph is made of: checks and conversions of the arrays that Graph(...) is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from livegnn.errors import ColumnMissing, VertexUnknown, WidthMismatch
from livegnn.graph import checks
from livegnn.graph import float16 as halves
from livegnn.graph.checks import AnyArray, BoolArray, Float32Array, Int32Array, Int64Array
from livegnn.graph.ids import NamedIds, counted_and_named
from livegnn.graph.schema import GraphSchema

_WHERE = "Graph"

WeightColumn: TypeAlias = Literal["weight", "edge_weight", "edge_attr"]
WEIGHT_COLUMNS: tuple[WeightColumn, ...] = get_args(WeightColumn)  # places are saved


@dataclass(frozen=True)
class GraphArrays:
    """Checked arrays: features (V, F), float32 or the bits of their dtype, src, dst (E,) slots, and the columns that
    were given. vertex_type, (V,), only where vertices have types.
    """

    features: AnyArray
    feature_dtype: str
    src: Int64Array
    dst: Int64Array
    weight: Float32Array | None
    time: Int64Array | None
    edge_type: Int32Array | None
    edge_attr: Float32Array | None
    ids: NamedIds | None
    vertex_type: Int32Array | None = None
    edge_id: Int64Array | None = None  # of the edges, ascending; unless given they count from 0

    def kept(self, edges: BoolArray) -> GraphArrays:
        """Without some of the edges; the others keep their ids."""
        if edges.all():
            return self
        columns = {name: getattr(self, name) for name in ("src", "dst", "weight", "time", "edge_type", "edge_attr")}
        kept = {name: column[edges] for name, column in columns.items() if column is not None}
        return replace(self, edge_id=np.flatnonzero(edges), **kept)


def check_arrays(
    features: object,
    src: object,
    dst: object,
    *,
    weight: object,
    time: object,
    edge_type: object,
    edge_attr: object,
    ids: object,
    feature_dtype: str | None,
    by_row: bool,
) -> GraphArrays:
    """Everything that Graph(...) was given, as the store takes it. by_row: src and dst count rows of features."""
    given = halves.given_rows(_WHERE, "features", features)
    dtype = halves.chosen(feature_dtype, [given])
    rows = halves.as_stored(_WHERE, "features", given, dtype)
    known = None if ids is None else plain_ids(ids, rows)
    sources, targets = (
        _endpoints(name, values, len(rows), None if by_row else known) for name, values in (("src", src), ("dst", dst))
    )
    checks.same_length(_WHERE, "dst", targets, len(sources), "src")
    arrays = GraphArrays(
        features=rows,
        feature_dtype=dtype,
        src=sources,
        dst=targets,
        weight=None if weight is None else checks.float_array(_WHERE, "weight", weight, 1),
        time=None if time is None else checks.time_array(_WHERE, "time", time),
        edge_type=None if edge_type is None else checks.type_array(_WHERE, "edge_type", edge_type),
        edge_attr=None if edge_attr is None else checks.float_array(_WHERE, "edge_attr", edge_attr, 2),
        ids=known,
    )
    for name in ("weight", "time", "edge_type", "edge_attr"):
        column: AnyArray | None = getattr(arrays, name)
        if column is not None:
            checks.same_length(_WHERE, name, column, len(sources), "src")
    if arrays.edge_attr is not None and arrays.edge_attr.shape[1] == 0:
        raise WidthMismatch(
            f"[{_WHERE}] expected edge_attr of shape (k, width) with width >= 1, got {arrays.edge_attr.shape}; omit it"
        )
    return arrays


def plain_ids(ids: object, rows: AnyArray) -> NamedIds:
    """Ids of vertices without types. Raises: WidthMismatch, ValueInvalid, DtypeInvalid."""
    return counted_and_named(_WHERE, GraphSchema.nameless(rows.shape[1]), [len(rows)], {"": ids})


def _endpoints(name: str, values: object, count: int, known: NamedIds | None) -> Int64Array:
    if known is not None:
        return known.slots(_WHERE, values, name=name)
    slots = checks.id_array(_WHERE, name, values)
    if slots.size and int(slots.max()) >= count:
        row = int(np.argmax(slots >= count))
        raise VertexUnknown(
            f"[{_WHERE}] expected vertex ids below {count} in {name}, got {slots[row]} at row {row}; add features"
        )
    return slots


def pyg_arrays(data: Any) -> dict[str, Any]:
    """The arguments of Graph(...) from a torch_geometric.data.Data.

    x -> features, edge_index -> src and dst, edge_weight -> weight, edge_attr -> edge_attr (or weight, see
    weight_column), edge_type -> edge_type, edge_time (or time with one value an edge) -> time. Other attributes are not
    read.
    """
    where = "Graph.from_pyg"
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise ColumnMissing(
                f"[{where}] expected data with {name}, got {type(data).__name__} without it; set data.{name}"
            )
    return {"features": data.x, **pyg_edges(where, data), "edge_type": getattr(data, "edge_type", None)}


def weight_column(data: Any) -> WeightColumn | None:
    """Which column of a Data, or of one edge type of a HeteroData, the graph keeps as its weights.

    A 1-D edge_attr without an edge_weight is kept there, one number an edge, under its own name: a model reads it as
    attributes or as weights, as its forward does (livegnn.models.joining).
    """
    if getattr(data, "edge_weight", None) is not None:
        return "edge_weight"
    attr = getattr(data, "edge_attr", None)
    return "edge_attr" if attr is not None and attr.ndim == 1 else None


def pyg_edges(where: str, data: Any) -> dict[str, Any]:
    """src, dst, weight, time and edge_attr of a Data, or of one edge type of a HeteroData; None where not there."""
    edge_index = checks.as_array(where, "edge_index", data.edge_index)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise WidthMismatch(f"[{where}] expected edge_index of shape (2, E), got {edge_index.shape}; transpose it")
    weight, attr = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    if weight_column(data) == "edge_attr":
        weight, attr = attr, None
    elif attr is not None and attr.ndim == 1:
        attr = attr[:, None]
    time = getattr(data, "edge_time", None)
    if time is None:
        time = getattr(data, "time", None)
        is_edge_time = time is not None and time.ndim == 1 and len(time) == edge_index.shape[1]
        time = time if is_edge_time and data.is_edge_attr("time") else None
    return {"src": edge_index[0], "dst": edge_index[1], "weight": weight, "edge_attr": attr, "time": time}


def time_unit(where: str, time: object, *, empty: bool) -> str | None:
    """The unit of the times that a new graph is made of. empty: an array of no times names one, too.

    Raises:  ValueInvalid for two units.
    """
    unit: str | None = None
    for part in time.values() if isinstance(time, Mapping) else [time]:
        unit = checks.same_unit(where, "time", unit, checks.time_unit(part, empty=empty))
    return unit
