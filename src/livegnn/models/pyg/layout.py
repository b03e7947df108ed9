"""Columns of rows: how a symbol of any shape becomes values of plain rows, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from livegnn.models import ir
from livegnn.models.pyg.context import EXAMPLE_EDGES, EXAMPLE_VERTICES, Flat, Folded, Import, Shaped, Unfit
from livegnn.models.pyg.functions.operands import constant_columns

_RUNS_MAX = 16  # slices side by side; beyond, one product that picks columns is cheaper


def shaped(x: Any) -> Shaped:
    """A symbol of rows in its general form."""
    if isinstance(x, Shaped):
        return x
    if isinstance(x, Flat):
        return Shaped(x.value, np.array(0))
    if isinstance(x, ir.Value):
        return Shaped(x, np.arange(x.width))
    if isinstance(x, Folded):
        raise Unfit("its argument holds each vertex several times", "view it as one row per vertex first")
    raise Unfit("its argument is not one row per vertex")


def symbol(x: Shaped) -> Any:
    """The plainest symbol for the same tensor: a value, a Flat, or as it is."""
    if x.whole or x.axis != 0 or x.index.ndim > 1:
        return x
    return Flat(rows_of(x)) if x.index.ndim == 0 else rows_of(x)


def rows_of(x: Shaped) -> ir.Value:
    """The row of every vertex, in order of its entries."""
    return columns(x.source, x.index.ravel())


def columns(source: ir.Value, index: Any) -> ir.Value:
    """y[c] = source[index[c]]."""
    index = np.asarray(index).ravel()
    starts = np.flatnonzero(np.diff(index, prepend=index[0] - 2) != 1)
    ends = [*starts[1:].tolist(), len(index)]
    if len(starts) > _RUNS_MAX:
        weight = np.zeros((len(index), source.width), np.float32)
        weight[np.arange(len(index)), index] = 1
        return ir.Linear(source, weight)
    runs = [
        _range(source, int(index[start]), int(index[start]) + end - start)
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    return runs[0] if len(runs) == 1 else ir.Concat(tuple(runs))


def _range(source: ir.Value, start: int, stop: int) -> ir.Value:
    """Columns start to stop of a value, of a part of it where they lie within one."""
    if (start, stop) == (0, source.width):
        return source
    if isinstance(source, ir.Slice):
        return _range(source.x, source.start + start, source.start + stop)
    if isinstance(source, ir.Concat):
        first = 0
        for part in source.xs:
            if first <= start and stop <= first + part.width:
                return _range(part, start - first, stop - first)
            first += part.width
    return ir.Slice(source, start, stop)


def applied(x: Shaped, function: Callable[[ir.Value], ir.Value]) -> Any:
    """A function of each column alone, on as few columns as there are."""
    if x.index.size >= x.source.width:
        return symbol(Shaped(function(x.source), x.index, x.axis))
    rows = function(rows_of(x))
    return symbol(Shaped(rows, np.arange(rows.width).reshape(x.index.shape), x.axis))


def row_axes(x: Shaped, dim: Any) -> list[int]:
    """The dimensions of the row that a forward names by those of the tensor. Raises: Unfit for the vertices'."""
    rank, axes = x.index.ndim + 1, []
    for each in dim if isinstance(dim, (tuple, list)) else (dim,):
        if not isinstance(each, int) or not -rank <= each < rank:
            raise Unfit(f"dim={each} is not a dimension of its argument")
        place = each % rank
        if place == x.axis:
            raise Unfit(f"dim={each} runs over all vertices", "name a dimension of each vertex's own row")
        axes.append(place - (place > x.axis))
    return axes


def with_constant(record: Import, x: Shaped, index: Any, number: float = 0.0) -> Shaped:
    """`x` with other columns at its places; where the index is -1, a number."""
    if (index >= 0).all():
        return Shaped(x.source, index, x.axis, x.whole)
    joined = ir.Concat((x.source, constant_columns(x.source, [number], record)))
    return Shaped(joined, np.where(index < 0, x.source.width, index), x.axis, x.whole)


def split_off(x: Shaped, dim: Any, keepdim: bool) -> tuple[Any, Callable[[ir.Value], Any]]:
    """(columns (k, rest) with the reduced dimensions first, what makes a symbol of the reduced rows)."""
    if dim is None:
        raise Unfit("it reduces over all vertices, too", "name the dimensions, without that of the vertices")
    if x.whole:
        raise Unfit("it takes whole numbers, which are read as rows of an embedding or of one_hot alone")
    axes = row_axes(x, dim)
    rest = [each for each in range(x.index.ndim) if each not in axes]
    moved = x.index.transpose(*axes, *rest)
    shape = [x.index.shape[each] for each in rest]
    taken = moved.reshape(math.prod(x.index.shape[each] for each in axes), -1)
    order = np.argsort(taken[0], kind="stable")  # in the order in which the columns lie
    axis = x.axis
    if keepdim:
        shape = [1 if each in axes else extent for each, extent in enumerate(x.index.shape)]
    else:
        axis -= sum(each < x.axis for each in axes)
    return taken[:, order], lambda rows: symbol(Shaped(rows, inverse(order).reshape(shape), axis))


def inverse(order: Any) -> Any:
    """Where each place of a permutation went."""
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    return where


def example_rows(value: ir.Value) -> int:
    """The number of rows that a value has in the example of a recording (check.example)."""
    if value.on_edges:
        return EXAMPLE_EDGES
    return EXAMPLE_VERTICES + (0 if value.vertex_type is None else 2 * (value.vertex_type % 3))
