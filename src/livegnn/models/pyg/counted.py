"""Numbers of vertices and edges in a run that is followed: plain numbers that object to being compared with constants.

One branch of `if x.size(0) > 10_000` would be kept for good, and no graph of the comparison may take the other. What is
computed from such numbers objects, too, until Python makes a plain number of it: len(x), int(n), float(n), and math's.
A list of which a mask leaves nothing in the run may be empty on all graphs of the comparison, so its 0 decides nothing
either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

DECIDES = "it decides by the number of vertices or edges, and the graph grows and shrinks"
DECIDES_ADVICE = "take the decision out of the forward"
_SMALL = (0, 1)  # every comparison has graphs of so many vertices and edges
_UNARY = ("neg", "pos", "abs", "trunc", "floor", "ceil")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift")
_PARTS = frozenset(("__mod__", "__rmod__"))  # the graphs of the comparison have many remainders


class GraphNumber:
    """A number that depends on how many vertices or edges there are.

    compared: is called with the frame in which it meets a constant, and may raise.
    moved: whether a constant was part of it, so that it is small elsewhere than the count is: n - 10_000, n / 10_000.
    empty: whether it is the length of a list of which nothing is there in the run, or computed from one.
    """

    compared: Callable[[FrameType], None]
    moved: bool
    empty: bool

    def __bool__(self) -> bool:
        if self.moved or self.empty:
            self.compared(sys._getframe(1))
        return bool(super().__bool__())  # type: ignore[misc]


class CountedRows(GraphNumber, int):
    """A whole one."""

    __hash__ = int.__hash__


class CountedShare(GraphNumber, float):
    """One that was divided, such as the mean number of edges."""

    __hash__ = float.__hash__


def counted(number: float, compared: Callable[[FrameType], None], *, moved: bool = False, empty: bool = False) -> Any:
    """The number as one that depends on the graph."""
    made = CountedRows(number) if isinstance(number, int) else CountedShare(number)
    made.compared, made.moved, made.empty = compared, moved, empty
    return made


def _is_large(x: Any) -> bool:
    """Whether it is a constant of which no graph of the comparison need have as many."""
    return isinstance(x, (int, float)) and not isinstance(x, GraphNumber) and x not in _SMALL


def _comparing(plain: Any) -> Any:
    def compare(self: Any, other: Any) -> Any:
        decides = self.moved or getattr(other, "moved", False) or _is_large(other)
        differs = isinstance(other, (int, float)) and float(self) != float(other)  # equal: x.size(0) == len(x)
        if (decides and differs) or (self.empty and type(other) in (int, float)):
            self.compared(sys._getframe(1))
        return plain(self, other)

    return compare


def _computing(name: str, plain: Any) -> Any:
    def compute(self: Any, *others: Any) -> Any:
        result = plain(self, *others)
        if result is NotImplemented and isinstance(others[0], float):  # of a whole number
            result = getattr(float, name)(float(self), *others)
        if not isinstance(result, (int, float, tuple)):
            return result
        moved = self.moved or any(getattr(each, "moved", False) for each in others)
        moved |= name not in _PARTS and any(map(_is_large, others))
        empty = self.empty or any(getattr(each, "empty", False) for each in others)
        if isinstance(result, tuple):
            return tuple(counted(each, self.compared, moved=moved, empty=empty) for each in result)
        return counted(result, self.compared, moved=moved, empty=empty)

    return compute


for _kind, _base in ((CountedRows, int), (CountedShare, float)):
    for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        setattr(_kind, _name, _comparing(getattr(_base, _name)))
    for _name in (*(f"__{each}__" for each in _UNARY + _BINARY), *(f"__r{each}__" for each in _BINARY), "__round__"):
        if hasattr(_base, _name):
            setattr(_kind, _name, _computing(_name, getattr(_base, _name)))


def with_counts(name: str, result: Any, args: tuple[Any, ...], axis: int, compared: Callable[[FrameType], None]) -> Any:
    """What a tensor says of its size, with the count along `axis` as a CountedRows; any other answer as it is."""
    if type(result) is int and (name == "numel" or (name == "size" and args[1:] and args[1] % args[0].ndim == axis)):
        return counted(result, compared, empty=result == 0)
    if isinstance(result, torch.Size) and name in ("size", "shape") and len(result) > axis:
        numbers = [*result]
        numbers[axis] = counted(numbers[axis], compared, empty=numbers[axis] == 0)
        return torch.Size(numbers)
    return result
