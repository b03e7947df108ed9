"""Edge types as temporal sampling and training take them: by name, by triple, or by code."""

from __future__ import annotations

from collections.abc import Sequence

from livegnn.errors import ColumnMissing, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import shown, whole_number
from livegnn.graph.schema import TypeName
from livegnn.types import Int64Array

EdgeTypes = Sequence[TypeName | int]


def edge_codes(where: str, graph: Graph, edge_types: EdgeTypes | None) -> list[int]:
    """Ascending codes of edge types, each once; none where all are meant.

    Raises:  ColumnMissing for a graph whose edges have no types; ValueInvalid, DtypeInvalid for other types than its.
    """
    if edge_types is None:
        return []
    if isinstance(edge_types, str | int) or (isinstance(edge_types, tuple) and edge_types in (graph.edge_types or ())):
        raise ValueInvalid(f"[{where}] expected edge_types as a list, got {shown(edge_types)}; put it into a list")
    if not graph.has_type:
        raise ColumnMissing(f"[{where}] expected a graph whose edges have types, got one without; leave out edge_types")
    schema = graph.host.schema
    if schema.has_types:
        found = sorted({schema.edge_code(where, each) for each in edge_types})
    else:
        found = sorted({whole_number(where, "an edge type", each) for each in edge_types})
    if not found:
        raise ValueInvalid(f"[{where}] expected at least one edge type, got none; leave out edge_types for all")
    return found


def destination_types(graph: Graph, edge_types: Int64Array) -> Int64Array | None:
    """Codes of the vertex types that edges of these types lead to; None in a graph without vertex types."""
    schema = graph.host.schema
    return schema.ends[1][edge_types].astype("int64") if schema.has_types else None
