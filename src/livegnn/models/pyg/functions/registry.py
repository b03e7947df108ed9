"""Functions and methods on rows that a module's forward may call, by torch's name for them.

A handler gets symbols and constants as the function's own arguments and returns a symbol. Whatever has no handler, or
is called in another way, is refused by name.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from livegnn.models.pyg.context import Flat, Import, Refusal, Unfit, is_symbol, refuse
from livegnn.models.pyg.functions.columns import COLUMNS
from livegnn.models.pyg.functions.pools import POOLS
from livegnn.models.pyg.functions.rows import ROWS
from livegnn.models.pyg.functions.shapes import SHAPES
from livegnn.models.pyg.pools import global_pool

HANDLERS: dict[str, Callable[..., Any]] = {**ROWS, **COLUMNS, **POOLS, **SHAPES}
_FLAT = {
    "relu", "sigmoid", "tanh", "softplus", "exp", "logsigmoid", "neg", "clone", "contiguous", "detach", "float",
    "dropout",
}  # fmt: skip
_NAMESPACES = (torch, F, operator, torch.Tensor, torch.special)


def canonical_name(function: Any) -> str | None:
    """torch's name of a function, without underscores of operators and in-place forms; None if it is not torch's."""
    raw = function if isinstance(function, str) else getattr(function, "__name__", None)
    if raw is None or function is global_pool:
        return raw
    if not isinstance(function, str):
        if raw == "__get__":
            return str(getattr(function.__self__, "__name__", None))
        if function is getattr:
            return "getattr"
        if all(getattr(space, raw, None) is not function for space in _NAMESPACES) and not _same_method(raw, function):
            return None
    name = str(raw).strip("_")
    return name[1:] if name in ("iadd", "isub", "imul", "itruediv", "ipow") else name


def _same_method(name: str, function: Any) -> bool:
    return any(getattr(space, name, None) == function for space in (torch, F, torch.Tensor))


def apply_function(name: str | None, label: str, args: Any, kwargs: Any, record: Import, where: str) -> Any:
    """The result of calling the function `name`; a Refusal, raised when read, if it is not supported."""
    whole = f"{label} in {where}"
    picks = name in ("getitem", "getattr")  # of a tuple may leave out what is refused
    for each in (*args, *kwargs.values()):
        for part in each if isinstance(each, (list, tuple)) and not picks else (each,):
            if isinstance(part, Refusal):
                return part
    handler = None if name is None else HANDLERS.get(name)
    if handler is None:
        return Refusal(refuse(whole, "this operation is not supported", "see docs/models.md for those that are"))
    flat = isinstance(args[0] if args else None, Flat) and name in _FLAT
    if flat:
        args = (args[0].value, *args[1:])
    try:
        inspect.signature(handler).bind(record, *args, **kwargs)
    except TypeError as error:
        return Refusal(refuse(whole, f"it is called in a way that is not supported ({error})", "see docs/models.md"))
    try:
        result = handler(record, *args, **kwargs)
    except Unfit as error:
        return Refusal(refuse(whole, error.reason, error.remedy))
    return record.name(Flat(result) if flat else result, f"{where}: {label}")
