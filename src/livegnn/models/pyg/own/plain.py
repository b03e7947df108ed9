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
from livegnn.models.pyg.own.rows import (
    EdgeChoice,
    EdgeMask,
    EdgeTypes,
    EndIds,
    InfiniteEntries,
    Laid,
    Matrix,
    Places,
    Traced,
    refuse_cut,
)

_OTHERS = (EdgeMask, EdgeTypes, EndIds, InfiniteEntries, Matrix, Places)


def by_functions(tracing: Tracing, name: str, result: Any, args: Any, kwargs: Any) -> Any:
    """What the function `name` makes of rows of the same vertices or edges. Raises: Unfit."""
    rows = _found((args, kwargs), (Traced, Laid))
    if name not in HANDLERS or not rows or _found((args, kwargs), _OTHERS):
        raise Unfit("this operation is not supported")
    edges = rows[0].edges
    if any(each.edges != edges for each in rows):
        raise Unfit("it joins rows of vertices with rows of edges, or rows of different edges")
    plain = [each for each in rows if isinstance(each, Traced)]
    vectors = name in ROWS and all(each.shape == () for each in plain)  # are columns to these functions
    moved = len(plain) < len(rows)

    def made(pick: Any) -> Any:
        given = _given((args, kwargs), pick, not vectors and name not in ROWS, vectors)
        return HANDLERS[name](tracing.record, *given[0], **given[1])

    ends = () if moved else (Source, Target)
    end = next((end for end in ends if all(isinstance(each.value, end) for each in plain)), None)
    loops = [made(lambda each, place=place: each.loops[place]) for place in range(0 if moved else len(plain[0].loops))]
    even = all(each.even for each in plain)
    whole = made(lambda each: each.value if end is None else each.value.x)
    followed = _followed(result, whole, loops, (end, edges, even))
    for each in _found(followed, Traced):
        refuse_cut(edges, each.value, plain)
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
    if x.axis != 0:
        return _laid(result, x, end, edges)
    if tuple(x.index.shape) != tuple(result.shape[1:]):
        raise Unfit("it does not leave one row per vertex or edge in front")
    value = rows_of(x) if end is None else end(rows_of(x))
    return Traced(value, x.index.shape, edges, tuple(rows_of(shaped(each)) for each in loops), even, x.whole)


def _laid(result: Any, x: Shaped, end: Any, edges: Any) -> Laid:
    """Rows whose dimension is not the first. Raises: Unfit for edges that loops were added to, or a mask has left."""
    if edges not in (None, EdgeChoice()):
        raise Unfit("it does not leave one row per vertex or edge in front")
    others = [size for place, size in enumerate(result.shape) if place != x.axis]
    if others != [*x.index.shape]:
        raise Unfit("it mixes the dimension of the vertices or edges with others")
    return Laid(x if end is None else dataclasses.replace(x, source=end(x.source)), edges)


def _given(value: Any, pick: Any, whole: bool, vectors: bool) -> Any:
    """Arguments with symbols of plain rows in the place of followed ones.

    whole: whether whole numbers stay such.   vectors: whether one number per row is given as a column.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_given(each, pick, whole, vectors) for each in value)
    if isinstance(value, dict):
        return {key: _given(each, pick, whole, vectors) for key, each in value.items()}
    if isinstance(value, Laid):
        return value.rows
    if not isinstance(value, Traced):
        return value
    rows = pick(value)
    index = np.arange(rows.width).reshape(value.shape)
    if value.whole and whole:
        return Shaped(rows, index, 0, True)
    return symbol(Shaped(rows, index)) if index.ndim else rows if vectors else Flat(rows)


def has_laid(given: Any) -> bool:
    """Whether any of the arguments are rows whose dimension is not the first."""
    return bool(_found(given, Laid))


def _found(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _found(part, kind)]
    if isinstance(value, dict):
        return _found(tuple(value.values()), kind)
    return [value] if isinstance(value, kind) else []
