"""Numbers of vertices and edges in a run that is followed: plain integers that object to being compared with constants.

One branch of `if x.size(0) > 10_000` would be kept for good, and no graph of the comparison may take the other.
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


class CountedRows(int):
    """A number that depends on how many vertices or edges there are.

    compared: is called with the frame in which it meets a constant, and may raise.
    """

    compared: Callable[[FrameType], None]

    @classmethod
    def of(cls, number: int, compared: Callable[[FrameType], None]) -> CountedRows:
        made = cls(number)
        made.compared = compared
        return made

    __hash__ = int.__hash__


def _comparing(name: str) -> Any:
    plain = getattr(int, name)

    def compare(self: CountedRows, other: Any) -> Any:
        if type(other) is int and other not in _SMALL and other != int(self):
            self.compared(sys._getframe(1))
        return plain(self, other)

    return compare


def _computing(name: str) -> Any:
    plain = getattr(int, name)

    def compute(self: CountedRows, other: Any) -> Any:
        result = plain(self, other)
        return CountedRows.of(result, self.compared) if type(result) is int else result

    return compute


for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(CountedRows, _name, _comparing(_name))
for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod"):
    setattr(CountedRows, f"__{_name}__", _computing(f"__{_name}__"))


def with_counts(name: str, result: Any, args: tuple[Any, ...], axis: int, compared: Callable[[FrameType], None]) -> Any:
    """What a tensor says of its size, with the count along `axis` as a CountedRows; any other answer as it is."""
    if type(result) is int and (name == "numel" or (name == "size" and args[1:] and args[1] % args[0].ndim == axis)):
        return CountedRows.of(result, compared)
    if isinstance(result, torch.Size) and name in ("size", "shape") and len(result) > axis:
        numbers = [*result]
        numbers[axis] = CountedRows.of(numbers[axis], compared)
        return torch.Size(numbers)
    return result
