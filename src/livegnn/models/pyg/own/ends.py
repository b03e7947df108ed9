"""Ends of edges taken apart and put together in an own layer: edge_index[0], edge_index.flip(0), stack([col, row])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from livegnn.models.pyg.context import Unfit
from livegnn.models.pyg.functions.turned import order_of
from livegnn.models.pyg.own.edges import SINGLE_EDGES
from livegnn.models.pyg.own.rows import EndIds


def row_of_ends(ids: EndIds, index: Any) -> EndIds:
    """edge_index[index]. Raises: Unfit for other parts than its rows."""
    if ids.end is None and type(index) is int and index in (0, 1, -1, -2):
        return ids.of(index)
    order = order_of(index) if ids.end is None else None
    if order is None:
        raise Unfit(SINGLE_EDGES)
    return _turned(ids) if order == [1, 0] else ids


def turned_ends(ids: EndIds, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> EndIds:
    """flip, flipud or index_select of both ends. Raises: Unfit where it does more than to change the rows over."""
    if name == "index_select":
        dim, index = (*args, *kwargs.values())
        if dim not in (0, -2):
            raise Unfit(SINGLE_EDGES)
        return row_of_ends(ids, index)
    given: Any = tuple(kwargs.get("dims", args))
    given = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if name == "flip" and list(given) not in ([0], [-2]):
        raise Unfit("it puts the edges into another order, but not what goes with them", "use flip(0)")
    return _turned(ids)


def both_ends(ends: Sequence[Any], dim: int) -> EndIds:
    """Both ends of the same edges, stacked. Raises: Unfit for anything else."""
    a, b = ends if len(ends) == 2 else (None, None)
    fits = isinstance(a, EndIds) and isinstance(b, EndIds) and dim in (0, -2)
    if not fits or a.edges != b.edges or {a.end, b.end} != {0, 1}:  # type: ignore[union-attr]
        raise Unfit("it makes other edges than the graph's, or than these turned round")
    return EndIds(a.edges, None, a.end == 1)  # type: ignore[union-attr]


def _turned(ids: EndIds) -> EndIds:
    return replace(ids, turned=not ids.turned)
