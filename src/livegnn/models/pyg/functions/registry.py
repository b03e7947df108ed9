"""Functions and methods on rows that a module's forward may call, by torch's name for them.

A handler gets symbols and constants as the function's own arguments and returns a symbol. Whatever has no handler, or
is called in another way, is refused by name.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from livegnn.models import ir
from livegnn.models.edges import EdgeRelation, EdgeWeight
from livegnn.models.pyg.constants import EXPANDING, STATES, expanded
from livegnn.models.pyg.context import (
    TYPES,
    WEIGHTS,
    Flat,
    Import,
    Refusal,
    Shaped,
    Unfit,
    first_refusal,
    is_edges,
    refuse,
)
from livegnn.models.pyg.dot_product import scaled_dot_product
from livegnn.models.pyg.folds import by_parts, counted, elementwise, is_folded
from livegnn.models.pyg.functions.columns import COLUMNS
from livegnn.models.pyg.functions.ends import join_ends
from livegnn.models.pyg.functions.graph import EDGES_ADVICE, GRAPH
from livegnn.models.pyg.functions.pools import POOLED
from livegnn.models.pyg.functions.rows import ROWS
from livegnn.models.pyg.functions.shapes import SHAPES
from livegnn.models.pyg.functions.turned import join_turned
from livegnn.models.pyg.pools import global_pool
from livegnn.models.pyg.shapes import ELEMENTWISE, OF_FORM, join
from livegnn.models.pyg.table_parts import is_part, over_parts, taken_apart
from livegnn.models.pyg.tables import join_tables
from livegnn.models.pyg.utilities import name_of_utility
from livegnn.models.pyg.written import assigned


def _getattr(record: Import, input: Any, name: str, *default: Any) -> Any:
    if isinstance(input, tuple) and name == "values":  # of torch.max over a dimension
        return input[0]
    if isinstance(input, tuple) and name == "indices":
        return input[1]
    if name in ("shape", "dtype", "device", "ndim", "requires_grad", "T", "mT"):
        return HANDLERS[name](record, input)
    raise Unfit(f"the attribute {name} is not supported")


_PLAIN: dict[str, Callable[..., Any]] = {**ROWS, **COLUMNS, **POOLED, **SHAPES, **GRAPH, "getattr": _getattr}
HANDLERS = join_turned(join_ends(join_tables(join(_PLAIN, {"setitem": assigned}) | STATES)))
HANDLERS |= {name: expanded(name, HANDLERS[name]) for name in EXPANDING}
HANDLERS["scaled_dot_product_attention"] = scaled_dot_product(HANDLERS)
_FLAT = {
    *ROWS,
    "clone",
    "contiguous",
    "detach",
    "float",
    "double",
    "type_as",
    "maximum",
    "minimum",
}  # row by row, on vectors as on columns
_COMPUTING = {*ROWS, *COLUMNS, *POOLED} - {"global_pool", "unbind", "flip", "index_select"}
_NAMESPACES = (torch, F, operator, torch.Tensor, torch.special)


def canonical_name(function: Any) -> str | None:
    """torch's name of a function, without underscores of operators and in-place forms; None if it is not torch's."""
    utility = name_of_utility(function)
    if utility is not None:
        return utility
    raw = function if isinstance(function, str) else getattr(function, "__name__", None)
    if raw is None or function is global_pool:
        return raw
    if not isinstance(function, str):
        if raw == "__get__":
            return str(getattr(function.__self__, "__name__", None))
        if function is getattr:
            return "getattr"
        if raw.startswith("linalg_") and getattr(torch.linalg, raw.removeprefix("linalg_"), None) is function:
            return str(raw)
        if all(getattr(space, raw, None) is not function for space in _NAMESPACES) and not _same_method(raw, function):
            return None
    name = str(raw).strip("_")
    return name[1:] if name in ("iadd", "isub", "imul", "itruediv", "ipow") else name


def _same_method(name: str, function: Any) -> bool:
    spaces = (torch, F, torch.Tensor, torch._C._VariableFunctions)  # the last: what PyG has replaced in torch
    return any(getattr(space, name, None) == function for space in spaces) or (
        getattr(torch.Tensor, f"__{name}__", None) is function
    )


def apply_function(name: str | None, label: str, args: Any, kwargs: Any, record: Import, where: str) -> Any:
    """The result of calling the function `name`; a Refusal, raised when read, if it is not supported."""
    whole = f"{label} in {where}"
    picks = name in ("getitem", "getattr")  # of a tuple may leave out what is refused
    given = (*args, *kwargs.values())
    refused = first_refusal([each for each in given if isinstance(each, Refusal)] if picks else given)
    if refused is not None:
        return refused
    handler = None if name is None else HANDLERS.get(name)
    try:
        known = counted(name, given)
        known = taken_apart(name, args, kwargs, record.ends) if known is None else known
        if known is None and is_part(given) and not (picks and isinstance(args[0], (list, tuple, dict))):

            def call(*args: Any, **kwargs: Any) -> Any:
                return apply_function(name, label, args, kwargs, record, where)

            known = over_parts(name, call, args, kwargs, record.ends)
    except Unfit as error:
        return Refusal(refuse(whole, error.reason, error.remedy))
    if known is not None:
        return known
    if handler is None:
        return Refusal(refuse(whole, "this operation is not supported", "see docs/models.md for those that are"))
    if not picks and name in _COMPUTING and any(is_edges(each) for each in _spread(given)):
        return Refusal(refuse(whole, "it computes with edge_index, and the graph keeps the edges", EDGES_ADVICE))
    if name in _COMPUTING:
        args, kwargs = entered(args, record), entered(kwargs, record)
        given = (*args, *kwargs.values())
        if {rows.on_edges for each in _spread(given) if (rows := _rows_in(each)) is not None} == {True, False}:
            reason = "it joins rows of vertices and of edges"
            return Refusal(refuse(whole, reason, "bring the rows of vertices to the edges first, as x[edge_index[0]]"))
    folded = is_folded((args, kwargs)) and name not in OF_FORM
    flat = name in _FLAT and _all_flat(given)
    if flat:
        args = tuple(each.value if isinstance(each, Flat) else each for each in args)
        kwargs = {key: each.value if isinstance(each, Flat) else each for key, each in kwargs.items()}
    try:
        inspect.signature(handler).bind(record, *args, **kwargs)
    except TypeError as error:
        return Refusal(refuse(whole, f"it is called in a way that is not supported ({error})", "see docs/models.md"))
    try:
        result = _of_folded(name, handler, record)(*args, **kwargs) if folded else handler(record, *args, **kwargs)
    except Unfit as error:
        return Refusal(refuse(whole, error.reason, error.remedy))
    flat = flat and isinstance(result, ir.Value)
    return record.name(Flat(result) if flat else result, f"{where}: {label}")


def _of_folded(name: str | None, handler: Callable[..., Any], record: Import) -> Callable[..., Any]:
    """A handler of one row per vertex, for rows under each other."""
    over = elementwise if name in ELEMENTWISE else by_parts
    return lambda *args, **kwargs: over(lambda *a, **k: handler(record, *a, **k), args, kwargs)


def entered(given: Any, record: Import) -> Any:
    """What a function computes with: the graph's weights and types as one number per edge, the rest as it is."""
    if isinstance(given, (list, tuple)):
        return type(given)(entered(each, record) for each in given)
    if isinstance(given, dict):
        return {key: entered(each, record) for key, each in given.items()}
    if given is TYPES:
        return Flat(EdgeRelation())
    if given is not WEIGHTS:
        return given
    record.weights_from.add("edge_weight")
    return Flat(EdgeWeight())


def _spread(given: tuple[Any, ...]) -> Iterator[Any]:
    for each in given:
        yield from each if isinstance(each, (list, tuple)) else (each,)


def _rows_in(each: Any) -> ir.Value | None:
    """The value that a symbol of rows is made of."""
    rows = each.value if isinstance(each, Flat) else each.source if isinstance(each, Shaped) else each
    return rows if isinstance(rows, ir.Value) else None


def _all_flat(given: tuple[Any, ...]) -> bool:
    """Whether a call has vectors of one number per row, and next to these only numbers."""
    vectors = any(isinstance(each, Flat) for each in given)
    return vectors and not any(
        isinstance(each, (ir.Value, Shaped)) or (isinstance(each, torch.Tensor) and each.numel() != 1) for each in given
    )
