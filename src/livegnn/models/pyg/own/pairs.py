"""Rows of vertices at both ends of edges at once: x[edge_index.T], with the edges first, and x[edge_index]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from livegnn.models import ir
from livegnn.models.edges import Source, Target
from livegnn.models.pyg.context import Unfit
from livegnn.models.pyg.own.edges import SINGLE_EDGES, Tracing
from livegnn.models.pyg.own.rows import BothEnds, EndIds, EndPairs, Traced

Handler = Callable[..., Any]


def join_pairs(base: Mapping[str, Handler]) -> dict[str, Handler]:
    """The functions of own layers, with edge_index turned to pairs, and rows picked by both ends."""
    turns = {name: _turned(base.get(name)) for name in ("t", "T", "mT", "transpose", "permute", "swapaxes")}
    return {**base, **turns, "getitem": _picked(base["getitem"]), "unbind": _apart(base["unbind"])}


def _turned(otherwise: Handler | None) -> Handler:
    def handler(tracing: Tracing, result: Any, input: Any, *dims: Any, **options: Any) -> Any:
        if isinstance(input, EndIds) and input.end is None and result.shape[-1] == 2 and result.shape[0] != 2:
            return EndPairs(input)
        if otherwise is None:
            raise Unfit("this operation is not supported")
        return otherwise(tracing, result, input, *dims, **options)

    return handler


def _picked(otherwise: Handler) -> Handler:
    def handler(tracing: Tracing, result: Any, input: Any, index: Any) -> Any:
        if isinstance(input, BothEnds):
            if not isinstance(index, int):
                raise Unfit("it reads more of x[edge_index] than one of its ends", "use x[row] and x[col]")
            return input.ends[index]
        if isinstance(input, EndPairs):
            column = index[1] if isinstance(index, tuple) and len(index) == 2 and index[0] == slice(None) else None
            if column not in (0, 1, -1, -2):
                raise Unfit(SINGLE_EDGES)
            return input.ends.of(column)
        if isinstance(index, EndPairs):
            return _side_by_side(_lifted(input, index.ends))
        if isinstance(index, EndIds) and index.end is None:
            return BothEnds(_lifted(input, index))
        return otherwise(tracing, result, input, index)

    return handler


def _apart(otherwise: Handler) -> Handler:
    def handler(tracing: Tracing, result: Any, input: Any, dim: int = 0) -> Any:
        if isinstance(input, BothEnds) and dim == 0:
            return input.ends
        return otherwise(tracing, result, input, dim)

    return handler


def _lifted(input: Any, ids: EndIds) -> tuple[Traced, Traced]:
    """Rows of vertices at both ends, in the order of the rows of edge_index. Raises: Unfit."""
    if not isinstance(input, Traced) or input.edges is not None:
        raise Unfit("what it brings to the ends of edges is not one row per vertex", "bring rows of vertices")
    loops = (input.value,) * ids.edges.added
    ends = (Target, Source) if ids.turned else (Source, Target)
    first, second = (Traced(end(input.value), input.shape, ids.edges, loops) for end in ends)
    return first, second


def _side_by_side(ends: tuple[Traced, Traced]) -> Traced:
    first, second = ends
    loops = tuple(ir.Concat((a, b)) for a, b in zip(first.loops, second.loops, strict=True))
    return Traced(ir.Concat((first.value, second.value)), (2, *first.shape), first.edges, loops)
