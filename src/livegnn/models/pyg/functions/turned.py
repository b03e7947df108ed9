"""edge_index with its rows changed over: the same edges, each turned round, in the same order.

A layer along them sends its messages against the graph's edges (convs/registry.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from livegnn.models.pyg.context import EDGES, End, Import, Marker, Rewired, Unfit, is_edges
from livegnn.models.pyg.functions.graph import EDGES_ADVICE

Handler = Callable[..., Any]


def turn(edges: Any) -> Any:
    """Edges with every one turned round."""
    if isinstance(edges, Rewired):
        return replace(edges, turned=not edges.turned)
    plain = edges.turned and edges.relation is None
    return EDGES if plain else Marker(edges.what, edges.relation, turned=not edges.turned)


def order_of(index: Any) -> list[int] | None:
    """The order of two rows that an index picks; None where it picks anything else."""
    if isinstance(index, torch.Tensor) and index.ndim == 1 and index.dtype == torch.int64:
        index = index.tolist()
    if not isinstance(index, (list, tuple)) or not all(type(each) is int for each in index):
        return None
    rows = [each % 2 for each in index if -2 <= each < 2]
    return rows if len(rows) == len(index) and sorted(rows) == [0, 1] else None


def join_turned(base: dict[str, Handler]) -> dict[str, Handler]:
    """The handlers, with those that put the rows of edge_index together again."""

    def picked(edges: Any, index: Any) -> Any:
        order = order_of(index)
        if order is None:
            raise Unfit("it picks edges, and the edges of a graph that changes are not fixed", EDGES_ADVICE)
        return turn(edges) if order == [1, 0] else edges

    def getitem(record: Import, input: Any, index: Any) -> Any:
        rows = isinstance(index, (list, torch.Tensor)) and is_edges(input)
        return picked(input, index) if rows else base["getitem"](record, input, index)

    def index_select(record: Import, input: Any, dim: int, index: Any) -> Any:
        rows = dim in (0, -2) and is_edges(input)
        return picked(input, index) if rows else base["index_select"](record, input, dim, index)

    def flip(record: Import, input: Any, *axes: Any, dims: Any = None) -> Any:
        if not is_edges(input):
            return base["flip"](record, input, *axes, **({} if dims is None else {"dims": dims}))
        given = axes if dims is None else dims
        given = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        if list(given) not in ([0], [-2]):
            raise Unfit("it puts the edges into another order, but not what goes with them", "use flip(0)")
        return turn(input)

    def stack(record: Import, tensors: Any, dim: int = 0, **others: Any) -> Any:
        if any(isinstance(each, End) for each in tensors):
            return joined(tensors, dim)
        return base["stack"](record, tensors, dim, **others)

    def vstack(record: Import, tensors: Any) -> Any:
        return stack(record, tensors)

    return base | {
        "getitem": getitem,
        "index_select": index_select,
        "flip": flip,
        "flipud": lambda record, input: flip(record, input, 0),
        "stack": stack,
        "vstack": vstack,
    }


def joined(ends: Sequence[Any], dim: int) -> Any:
    """Edges of both ends of the same edges. Raises: Unfit for anything else."""
    ends = tuple(ends)
    fits = len(ends) == 2 and dim in (0, -2) and all(isinstance(each, End) for each in ends)
    if not fits or ends[0].edges != ends[1].edges or ends[0].place == ends[1].place:
        raise Unfit("it makes other edges than the graph's, or than these turned round", EDGES_ADVICE)
    edges = EDGES if ends[0].edges == Rewired() else ends[0].edges
    return turn(edges) if ends[0].place == 1 else edges
