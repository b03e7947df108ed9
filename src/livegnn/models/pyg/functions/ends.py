"""Rows of vertices at the ends of edges, as values of edges: x[edge_index[0]] is Source(x), x[edge_index[1]] Target(x).

They are one row per edge, as edge_attr is. What a forward computes of these, row by row, are rows of edges again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livegnn.models import ir
from livegnn.models.edges import Source, Target
from livegnn.models.pyg.context import EDGES, End, Flat, Import, Marker, Rewired, Unfit
from livegnn.models.pyg.functions.graph import end_of

Handler = Callable[..., Any]


def at_end(x: Any, end: End) -> Any:
    """Rows of vertices brought to one end of every edge. Raises: Unfit."""
    if end.edges.loops != "keep":
        raise Unfit("its edges have other self-loops than the graph's", "use the forward's own edge_index")
    value = x.value if isinstance(x, Flat) else x
    if not isinstance(value, ir.Value):
        raise Unfit("what it brings to the edges is not one row per vertex", "bring rows of one dimension")
    if value.on_edges:
        raise Unfit("it brings rows of edges to the ends of edges", "aggregate them first")
    rows = Target(value) if end.place else Source(value)
    return Flat(rows) if isinstance(x, Flat) else rows


def join_ends(base: dict[str, Handler]) -> dict[str, Handler]:
    """The handlers, with both ends of edge_index taken apart, and rows picked by one of them."""
    unbind, getitem, select = base["unbind"], base["getitem"], base["index_select"]

    def unbound(record: Import, input: Any, dim: int = 0) -> Any:
        if isinstance(input, Rewired) or (isinstance(input, Marker) and input.what == EDGES.what):
            return tuple(end_of(input, place) for place in ((0, 1) if dim in (0, -2) else (None,)))
        return unbind(record, input, dim)

    def picked(record: Import, input: Any, index: Any) -> Any:
        return at_end(input, index) if isinstance(index, End) else getitem(record, input, index)

    def selected(record: Import, input: Any, dim: int, index: Any) -> Any:
        if isinstance(index, End) and dim in (0, -2):
            return at_end(input, index)
        return select(record, input, dim, index)

    return base | {"unbind": unbound, "getitem": picked, "index_select": selected}
