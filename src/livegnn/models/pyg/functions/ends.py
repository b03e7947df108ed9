"""Rows of vertices at the ends of edges, as values of edges: x[edge_index[0]] is Source(x), x[edge_index[1]] Target(x).

They are one row per edge, as edge_attr is. What a forward computes of these, row by row, are rows of edges again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegnn.models import ir
from livegnn.models.edges import Source, Target
from livegnn.models.pyg.context import EDGES, End, Flat, Import, Marker, Pairs, Rewired, Shaped, Unfit
from livegnn.models.pyg.functions.graph import EDGES_ADVICE, edges_in, end_of
from livegnn.models.pyg.layout import shaped, symbol

Handler = Callable[..., Any]


def at_end(x: Any, end: End) -> Any:
    """Rows of vertices brought to one end of every edge. Raises: Unfit."""
    rows = _to_bring(x, end.edges)
    return symbol(Shaped((Target if end.place else Source)(rows.source), rows.index))


def at_both_ends(x: Any, edges: Rewired, axis: int) -> Any:
    """x[edge_index.T], with the edges first (axis 0), or x[edge_index], with the ends first (axis 1). Raises: Unfit."""
    rows = _to_bring(x, edges)
    width = rows.source.width
    ends = (Target, Source) if edges.turned else (Source, Target)
    both = ir.Concat(tuple(end(rows.source) for end in ends))
    return symbol(Shaped(both, np.stack([rows.index, width + rows.index]), axis))


def _to_bring(x: Any, edges: Rewired) -> Shaped:
    """Rows of vertices in their general form. Raises: Unfit for what cannot be brought to the ends of edges."""
    if edges.loops != "keep":
        raise Unfit("its edges have other self-loops than the graph's", "use the forward's own edge_index")
    if not isinstance(x, (ir.Value, Flat, Shaped)):
        raise Unfit("what it brings to the edges is not one row per vertex", "bring rows of vertices")
    rows = shaped(x)
    if rows.source.on_edges:
        raise Unfit("it brings rows of edges to the ends of edges", "aggregate them first")
    if rows.whole or rows.axis != 0:
        raise Unfit("what it brings to the edges is not one row per vertex", "bring rows with the vertices first")
    return rows


def _edges_of(given: Any) -> Rewired | None:
    """What the edges are by now; None of anything but edge_index."""
    if isinstance(given, Rewired):
        return given if given.what == EDGES.what else None
    return edges_in(given) if isinstance(given, Marker) and given.what == EDGES.what else None


def _brought(x: Any, index: Any) -> Any:
    """x[index] where the index is of the ends of edges; NotImplemented where it is not."""
    if isinstance(index, End):
        return at_end(x, index)
    if isinstance(index, Pairs):
        return at_both_ends(x, index.edges, 0)
    edges = _edges_of(index)
    return NotImplemented if edges is None else at_both_ends(x, edges, 1)


def join_ends(base: dict[str, Handler]) -> dict[str, Handler]:
    """The handlers, with both ends of edge_index taken apart, and rows picked by them."""
    unbind, getitem, select = base["unbind"], base["getitem"], base["index_select"]

    def unbound(record: Import, input: Any, dim: int = 0) -> Any:
        if _edges_of(input) is not None:
            return tuple(end_of(input, place) for place in ((0, 1) if dim in (0, -2) else (None,)))
        return unbind(record, input, dim)

    def picked(record: Import, input: Any, index: Any) -> Any:
        if isinstance(input, Pairs):
            if isinstance(index, tuple) and len(index) == 2 and index[0] in (slice(None), Ellipsis):
                return end_of(input.edges, index[1])
            raise Unfit("it picks edges, and the edges of a graph that changes are not fixed", EDGES_ADVICE)
        first = index[0] if isinstance(index, tuple) and isinstance(index[0], (End, Pairs, Marker, Rewired)) else None
        whole = first is not None and all(each in (slice(None), Ellipsis) for each in index[1:])
        found = _brought(input, first if whole else index)
        return getitem(record, input, index) if found is NotImplemented else found

    def selected(record: Import, input: Any, dim: int, index: Any) -> Any:
        if isinstance(index, End) and dim in (0, -2):
            return at_end(input, index)
        return select(record, input, dim, index)

    def turned(name: str) -> Handler:
        handler = base[name]

        def turn(record: Import, input: Any, *dims: Any, **options: Any) -> Any:
            edges = _edges_of(input)
            given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else (*dims, *options.values())
            if edges is None or sorted(each % 2 for each in given or (0, 1)) != [0, 1]:
                return handler(record, input, *dims, **options)
            return input if name == "permute" and [each % 2 for each in given] == [0, 1] else Pairs(edges)

        return turn

    turns = {name: turned(name) for name in ("t", "T", "mT", "transpose", "permute", "swapaxes")}
    return base | turns | {"unbind": unbound, "getitem": picked, "index_select": selected}
