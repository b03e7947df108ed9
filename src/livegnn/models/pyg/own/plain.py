"""Steps of an own layer by the functions that a forward may call between layers, where own/functions.py has none.

The rows of an own layer are handed to these functions as rows of any shape, and what they make is followed again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from livegnn.models.edges import Source, Target
from livegnn.models.pyg.context import Count, Flat, Shaped, Unfit
from livegnn.models.pyg.functions.registry import HANDLERS
from livegnn.models.pyg.functions.rows import ROWS
from livegnn.models.pyg.layout import rows_of, shaped, symbol
from livegnn.models.pyg.own.edges import Tracing
from livegnn.models.pyg.own.rows import EdgeMask, EdgeTypes, EndIds, InfiniteEntries, Matrix, Places, Traced, refuse_cut

_OTHERS = (EdgeMask, EdgeTypes, EndIds, InfiniteEntries, Matrix, Places)


def by_functions(tracing: Tracing, name: str, result: Any, args: Any, kwargs: Any) -> Any:
    """What the function `name` makes of rows of the same vertices or edges. Raises: Unfit."""
    rows = _found((args, kwargs), Traced)
    if name not in HANDLERS or not rows or _found((args, kwargs), _OTHERS):
        raise Unfit("this operation is not supported")
    edges = rows[0].edges
    if any(each.edges != edges for each in rows):
        raise Unfit("it joins rows of vertices with rows of edges, or rows of different edges")

    vectors = name in ROWS and all(each.shape == () for each in rows)  # are columns to these functions

    def made(pick: Any) -> Any:
        given = _given((args, kwargs), pick, not vectors and name not in ROWS, vectors)
        return HANDLERS[name](tracing.record, *given[0], **given[1])

    end = next((end for end in (Source, Target) if all(isinstance(each.value, end) for each in rows)), None)
    loops = [made(lambda each, place=place: each.loops[place]) for place in range(len(rows[0].loops))]
    even = all(each.even for each in rows)
    whole = made(lambda each: each.value if end is None else each.value.x)
    followed = _followed(result, whole, loops, (end, edges, even))
    for each in _found(followed, Traced):
        refuse_cut(edges, each.value, rows)
    return followed


def _followed(result: Any, made: Any, loops: list[Any], place: tuple[Any, Any, bool]) -> Any:
    """What was made, as rows to follow."""
    if isinstance(made, (tuple, list)):
        parts = [[each[i] for each in loops] for i in range(len(made))]
        return tuple(_followed(*each, place) for each in zip(result, made, parts, strict=True))
    if isinstance(made, Count) or made is None:
        return None
    x, (end, edges, even) = shaped(made), place
    if x.index.shape == (1,) and result.ndim == 1:
        x = dataclasses.replace(x, index=x.index.reshape(()))
    if x.axis != 0 or tuple(x.index.shape) != tuple(result.shape[1:]):
        raise Unfit("it does not leave one row per vertex or edge in front")
    value = rows_of(x) if end is None else end(rows_of(x))
    return Traced(value, x.index.shape, edges, tuple(rows_of(shaped(each)) for each in loops), even, x.whole)


def _given(value: Any, pick: Any, whole: bool, vectors: bool) -> Any:
    """Arguments with symbols of plain rows in the place of followed ones.

    whole: whether whole numbers stay such.   vectors: whether one number per row is given as a column.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_given(each, pick, whole, vectors) for each in value)
    if isinstance(value, dict):
        return {key: _given(each, pick, whole, vectors) for key, each in value.items()}
    if not isinstance(value, Traced):
        return value
    rows = pick(value)
    index = np.arange(rows.width).reshape(value.shape)
    if value.whole and whole:
        return Shaped(rows, index, 0, True)
    return symbol(Shaped(rows, index)) if index.ndim else rows if vectors else Flat(rows)


def _found(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _found(part, kind)]
    if isinstance(value, dict):
        return _found(tuple(value.values()), kind)
    return [value] if isinstance(value, kind) else []
