"""Several tables of rows in one: users and items, whose vertices are numbered one kind after the other.

A forward joins the tables to the rows of all vertices, and may take rows apart again where one kind ends. What it then
has is a `TablePart`. What is done to both parts alike is done to all rows; what is done to one alone has no rows for
the other kind's vertices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from livegnn.models import ir
from livegnn.models.pyg.context import Flat, Shaped, TablePart, Unfit

_JOINS = ("cat", "concat", "concatenate", "vstack")
_ONE_KIND = "what it does to the rows of one table alone has no counterpart for the others"
_ADVICE = "do the same to both, or give vertices types (docs/hetero.md)"


class _Order(TorchFunctionMode):
    """Sees in which order a run joins tables."""

    def __init__(self, tables: dict[int, str]) -> None:
        super().__init__()
        self.tables, self.found = tables, [*tables.values()]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        joined = args[0] if getattr(func, "__name__", "") in _JOINS and args else ()
        if isinstance(joined, (list, tuple)) and {id(each) for each in joined} == {*self.tables}:
            self.found = [self.tables[id(each)] for each in joined]
        return func(*args, **(kwargs or {}))


def in_order_of_use(module: nn.Module, tables: dict[str, Any], run: Callable[[], Any]) -> dict[str, Any]:
    """The tables in the order in which the forward joins them; as they are where it does not run."""
    order = _Order({id(module.get_parameter(name)): name for name in tables})
    try:
        with order, torch.no_grad():
            run()
    except Exception:  # reading it says why
        return tables
    return {name: tables[name] for name in order.found}


def is_part(value: Any) -> bool:
    """Whether a value, or anything in a list, tuple or dict, is a TablePart."""
    if isinstance(value, (list, tuple, dict)):
        return any(is_part(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, TablePart)


def taken_apart(name: str | None, args: Any, kwargs: Any, ends: Sequence[int]) -> Any:
    """The parts of rows that a call picks where tables end; None for any other call."""
    if len(ends) < 3 or not args or not isinstance(args[0], (ir.Value, Flat, Shaped)):
        return None
    if name == "getitem":
        rows = args[1][0] if isinstance(args[1], tuple) and args[1][1:] == (slice(None),) else args[1]
        if isinstance(rows, slice) and rows.step in (None, 1):
            return _part(args[0], rows.start, rows.stop, ends)
    if name in ("split", "split_with_sizes"):
        sizes = args[1] if len(args) > 1 else kwargs.get("split_size_or_sections", kwargs.get("split_size"))
        dim = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        if dim == 0 and isinstance(sizes, (list, tuple)) and [*sizes] == np.diff(ends).tolist():
            return tuple(TablePart(args[0], a, b) for a, b in pairwise(ends))
    return None


def _part(rows: Any, start: Any, stop: Any, ends: Sequence[int]) -> Any:
    """A part between two ends of tables; None for all rows, or other bounds."""
    bounds = []
    for given, default in ((start, 0), (stop, ends[-1])):
        if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
            return None
        bounds.append(default if given is None else given + ends[-1] if given < 0 else given)
    if bounds == [0, ends[-1]] or not all(each in ends for each in bounds) or bounds[0] >= bounds[1]:
        return None
    return TablePart(rows, *bounds)


def over_parts(name: str | None, call: Callable[..., Any], args: Any, kwargs: Any, ends: Sequence[int]) -> Any:
    """What a call makes of parts: of parts of one kind a part, of the parts of all kinds all rows. Raises: Unfit."""
    if name in _JOINS and isinstance(args[0], (list, tuple)) and all(isinstance(each, TablePart) for each in args[0]):
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        if dim in (0, -2):
            return joined(args[0], ends)
    bounds = {(each.start, each.stop) for each in _parts((args, kwargs))}
    if len(bounds) != 1 or (ends and next(iter(bounds)) == (0, ends[-1])):
        raise Unfit("it joins rows of different tables", _ADVICE)
    (bound,) = bounds
    result = call(*_whole(args), **_whole(kwargs))
    return _wrapped(result, bound)


def _parts(value: Any) -> list[TablePart]:
    if isinstance(value, (list, tuple, dict)):
        return [part for each in (value.values() if isinstance(value, dict) else value) for part in _parts(each)]
    return [value] if isinstance(value, TablePart) else []


def _whole(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_whole(each) for each in value)
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, (ir.Value, Flat, Shaped)):
        raise Unfit("it joins rows of one table with those of all vertices", _ADVICE)
    return value.rows if isinstance(value, TablePart) else value


def _wrapped(value: Any, bound: tuple[int, int]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_wrapped(each, bound) for each in value)
    return TablePart(value, *bound) if isinstance(value, (ir.Value, Flat, Shaped)) else value


def joined(parts: Sequence[TablePart], ends: Sequence[int]) -> Any:
    """The rows of all vertices from those of every kind. Raises: Unfit."""
    bounds = [(each.start, each.stop) for each in parts]
    if bounds != [*pairwise(ends)]:
        raise Unfit("it joins tables in another order than before, or some of them", "join them in one order")
    if not all(same(each.rows, parts[0].rows) for each in parts):
        raise Unfit(_ONE_KIND, _ADVICE)
    return parts[0].rows


def same(a: Any, b: Any) -> bool:
    """Whether two symbols are computed alike from the same rows."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (ir.Value, Flat, Shaped)):
        names = [each.name for each in dataclasses.fields(a)]
        return all(same(getattr(a, name), getattr(b, name)) for name in names)
    return bool(a == b)
