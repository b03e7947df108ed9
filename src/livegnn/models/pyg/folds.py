"""Rows under each other: `view(-1, columns)` of heads or of time steps, and dimensions in front of the vertices'.

What is row-local in between does the same with every part, so it is read part by part and put together again. A part
is what one head, step or batch has: one row per vertex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Count, Flat, Folded, Refusal, Shaped, Unfit
from livegnn.models.pyg.layout import shaped, symbol

_MIXED = "its operands do not fit each other row by row"


def is_folded(value: Any) -> bool:
    """Whether a value, or anything in a list, tuple or dict, is Folded."""
    return any(True for _ in _folded(value))


def _folded(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _folded(each)
    elif isinstance(value, Folded):
        yield value


def by_parts(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """function(*args, **kwargs) of rows under each other, part by part. Raises: Unfit, and what the function raises."""
    first = next(_folded((args, kwargs)))
    before, after = first.counts
    found = []
    for a in range(before):
        for b in range(after):
            part = _Part((before, after), a, b)
            found.append(function(*part.of(args), **part.of(kwargs)))
    return _joined(found, (before, after), first.place)


class _Part:
    """Arguments with one part of every Folded among them."""

    def __init__(self, counts: tuple[int, int], a: int, b: int) -> None:
        self.counts, self.a, self.b = counts, a, b
        self.made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self.of(each) for each in value)
        if isinstance(value, dict):
            return {key: self.of(each) for key, each in value.items()}
        if isinstance(value, Folded):
            if value.counts != self.counts:
                raise Unfit(_MIXED, "lay the rows under each other in one way")
            if id(value) not in self.made:
                self.made[id(value)] = self.cut(value)
            return self.made[id(value)]
        rows = value.value if isinstance(value, Flat) else value
        if isinstance(rows, Shaped) or (isinstance(rows, ir.Value) and not rows.on_edges):
            raise Unfit(_MIXED, "view both as one row per vertex, or none")
        return value

    def cut(self, x: Folded) -> Any:
        index = np.asarray(x.rows.index.take(self.a, x.place).take(self.b, x.place))
        return symbol(Shaped(x.rows.source, index, x.place, x.rows.whole))


def _joined(parts: list[Any], counts: tuple[int, int], place: int) -> Any:
    """What a function gives of the parts, as one. Raises: Unfit where it has no row for every part."""
    first = parts[0]
    if isinstance(first, (list, tuple)):
        return type(first)(_joined([*each], counts, place) for each in zip(*parts, strict=True))
    refused = next((each for each in parts if isinstance(each, Refusal)), None)
    if refused is not None or not isinstance(first, (ir.Value, Flat, Shaped)):
        return first if refused is None else refused
    found = [shaped(each) for each in parts]
    sources = {id(each.source): each.source for each in found}
    starts = dict(zip(sources, np.cumsum([0, *(each.width for each in sources.values())]).tolist(), strict=False))
    index = np.stack([each.index + starts[id(each.source)] for each in found])
    axis = found[0].axis
    index = np.moveaxis(index.reshape(*counts, *found[0].index.shape), (0, 1), (axis, axis + 1))
    source = found[0].source if len(sources) == 1 else ir.Concat(tuple(sources.values()))
    return Folded(Shaped(source, index, axis + 1, found[0].whole))


def elementwise(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function of each number alone, of rows under each other: of all parts at once."""
    if is_folded(kwargs) or not all(isinstance(each, Folded | torch.Tensor | int | float | None) for each in args):
        return by_parts(function, args, kwargs)
    if len({each.counts for each in _folded(args)}) > 1:
        raise Unfit(_MIXED, "lay the rows under each other in one way")
    behind = max(each.rows.index.ndim - each.place - 2 for each in _folded(args))
    result = function(*(_apart(each, behind) for each in args), **kwargs)
    return Folded(shaped(result))


def _apart(value: Any, behind: int) -> Any:
    """An operand with the three dimensions of rows under each other. behind: dimensions after these."""
    if isinstance(value, Folded):
        return value.rows
    if isinstance(value, torch.Tensor) and value.ndim > behind:
        place = value.ndim - behind - 1
        if value.shape[place] != 1:
            raise Unfit(f"a constant of shape {tuple(value.shape)} is not one number per column")
        return value.unsqueeze(place).unsqueeze(place)
    return value


def has_front(value: Any) -> bool:
    """Whether rows have dimensions in front of the vertices', and one dimension of columns behind it."""
    return isinstance(value, Shaped) and value.axis == value.index.ndim - 1 and value.axis > 0 and not value.whole


def by_front(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function of one row per vertex, such as a convolution, for all that stands in front. Raises: Unfit."""
    front: list[tuple[int, ...]] = []

    def under(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(under(each) for each in value)
        if isinstance(value, dict):
            return {key: under(each) for key, each in value.items()}
        if not has_front(value):
            return value
        front.append(value.index.shape[:-1])
        if id(value) not in made:
            made[id(value)] = Folded(Shaped(value.source, value.index.reshape(-1, 1, value.index.shape[-1]), 1))
        return made[id(value)]

    made: dict[int, Folded] = {}
    args, kwargs = under(args), under(kwargs)
    if len(set(front)) != 1:
        raise Unfit(_MIXED)
    return _upright(by_parts(function, args, kwargs), front[0])


def _upright(value: Any, front: tuple[int, ...]) -> Any:
    """A result with the dimensions in front that its arguments had."""
    if isinstance(value, (list, tuple)):
        return type(value)(_upright(each, front) for each in value)
    if not isinstance(value, Folded):
        return value
    x = value.rows
    return symbol(Shaped(x.source, x.index.reshape(*front, *x.index.shape[2:]), len(front)))


# ---- numbers of vertices


def counted(name: str | None, given: tuple[Any, ...]) -> Any:
    """What arithmetic makes of a number of vertices and whole numbers; None for anything else.

    Raises: Unfit for what is no multiple of the number.
    """
    whole = all(isinstance(each, (int, Count)) and not isinstance(each, bool) for each in given)
    if name not in _ARITHMETIC or len(given) != 2 or not whole or not any(isinstance(each, Count) for each in given):
        return None
    a, b = given
    if name in ("mul", "rmul") and not (isinstance(a, Count) and isinstance(b, Count)):
        count, number = (a, b) if isinstance(a, Count) else (b, a)
        return Count(of=count.of, times=count.times * number)
    if name == "floordiv" and isinstance(a, Count):
        by = b.times if isinstance(b, Count) else b
        if by and a.times % by == 0:
            return a.times // by if isinstance(b, Count) else Count(of=a.of, times=a.times // by)
    raise Unfit("it computes a number that is no multiple of the number of vertices", "use x.size(0) * heads, or -1")


_ARITHMETIC = ("mul", "rmul", "floordiv", "add", "radd", "sub", "truediv", "mod")
