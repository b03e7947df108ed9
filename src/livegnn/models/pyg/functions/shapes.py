"""Functions that change the form of rows and no number: views, picked columns, casts, and questions about form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from livegnn.models import ir
from livegnn.models.edges import EdgeWeight
from livegnn.models.pyg.context import BATCH, VERTEX_COUNT, WEIGHTS, Flat, Import, Marker, Unfit, is_symbol
from livegnn.models.pyg.functions.operands import value_of
from livegnn.models.pyg.pools import BACK_TO_VERTICES


def _getitem(record: Import, input: Any, index: Any) -> Any:
    if isinstance(input, (list, tuple, dict)):
        return input[index]
    if index is BATCH:
        raise Unfit(BACK_TO_VERTICES, "keep what follows the pool row by row")
    if index in ((slice(None), None), (Ellipsis, None)) and (isinstance(input, Flat) or input is WEIGHTS):
        return _column(record, input)
    x = value_of(input)
    if isinstance(index, tuple) and len(index) == 2 and index[0] in (slice(None), Ellipsis):
        columns = index[1]
        if columns == slice(None):
            return x
        if isinstance(columns, slice) and columns.step in (None, 1) and not is_symbol((columns.start, columns.stop)):
            start, stop, _ = columns.indices(x.width)
            return ir.Slice(x, start, stop)
        if isinstance(columns, int):
            if x.width == 1 and columns in (0, -1):
                return Flat(x)
            return Flat(ir.Slice(x, columns % x.width, columns % x.width + 1))
    raise Unfit("it picks rows, and the rows of a graph that changes are not fixed", "pick columns only")


def _column(record: Import, input: Any) -> ir.Value:
    """One number per row, or the graph's weights, as a column."""
    if input is WEIGHTS:
        record.weights_from.add("edge_weight")
        return EdgeWeight()
    return value_of(input.value)


def _reshape(record: Import, input: Any, *shape: Any) -> Any:
    extents = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if input is WEIGHTS and extents == (-1, 1):
        return _column(record, input)
    if input is WEIGHTS and extents == (-1,):
        return input
    value = input.value if isinstance(input, Flat) else value_of(input)
    rows = extents[:1] in ((-1,), (VERTEX_COUNT,))
    if rows and len(extents) == 2 and extents[1] == value.width:
        return value
    if rows and len(extents) == 1 and value.width == 1:
        return Flat(value)
    if extents == (VERTEX_COUNT, -1):
        return value
    raise Unfit(f"the shape {extents} is not one row per vertex")


def _squeeze(record: Import, input: Any, dim: Any = None) -> Any:
    x = value_of(input)
    if x.width != 1 or dim not in (None, 1, -1):
        raise Unfit("it does not remove a single column", "squeeze dim=-1 of a row of width 1")
    return Flat(x)


def _flatten(record: Import, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return value_of(input) if start_dim == 1 else _squeeze(record, input)


def _unsqueeze(record: Import, input: Any, dim: int) -> Any:
    if (isinstance(input, Flat) or input is WEIGHTS) and dim in (1, -1):
        return _column(record, input)
    raise Unfit("it does not turn a vector into a column")


def _same(record: Import, input: Any, **options: Any) -> Any:
    return input


def _cast(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
    given = [_type_of(each) for each in (*args, *kwargs.values())]
    wanted = _WHOLE if _is_whole(input) else _REAL
    other = next((each for each in given if each is not None and each not in wanted), None)
    if other is not None:
        raise Unfit(f"{other} would round the rows", f"stay in {'int64' if wanted is _WHOLE else 'float32'}")
    return input


_REAL = (torch.float32, torch.float64, "torch.FloatTensor", "torch.DoubleTensor")


_WHOLE = (torch.int64, "torch.LongTensor")


def _is_whole(input: Any) -> bool:
    return isinstance(input, Marker) and input.what != WEIGHTS.what


def _type_of(option: Any) -> Any:
    """The type that an argument of a cast asks for: its own, or that of a tensor to be like; None for a device."""
    if isinstance(option, torch.Tensor):
        return option.dtype
    if is_symbol(option):
        return torch.int64 if _is_whole(option) else torch.float32
    return option if isinstance(option, torch.dtype) or str(option).endswith("Tensor") else None


def _shape(record: Import, input: Any) -> Any:
    return (VERTEX_COUNT, value_of(input).width)


def _size(record: Import, input: Any, dim: int | None = None) -> Any:
    shape = _shape(record, input)
    return shape if dim is None else shape[dim]


def _getattr(record: Import, input: Any, name: str, *default: Any) -> Any:
    if isinstance(input, tuple) and name == "values":  # of torch.max over a stack
        return input[0]
    if name in ("shape", "dtype", "device", "ndim", "requires_grad"):
        return SHAPES[name](record, input)
    raise Unfit(f"the attribute {name} is not supported")


SHAPES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("contiguous", "clone", "detach", "requires_grad", "cpu"), _same),
    **dict.fromkeys(("to", "type_as", "type"), _cast),
    **dict.fromkeys(("float", "double"), lambda record, input, memory_format=None: _cast(record, input, torch.float32)),
    "long": lambda record, input, memory_format=None: _cast(record, input, torch.int64),
    **dict.fromkeys(("view", "reshape"), _reshape),
    "getitem": _getitem,
    "squeeze": _squeeze,
    "flatten": _flatten,
    "unsqueeze": _unsqueeze,
    "shape": _shape,
    "size": _size,
    **dict.fromkeys(
        ("dim", "ndim"), lambda record, input: 1 if isinstance(input, Flat) else len(_shape(record, input))
    ),
    "dtype": lambda record, input: torch.float32,
    "device": lambda record, input: torch.device("cpu"),
    "getattr": _getattr,
}
