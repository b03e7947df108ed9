"""Functions that change the form of rows and no number: views, picked columns, casts, and questions about form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from livegnn.models import ir
from livegnn.models.edges import EdgeWeight
from livegnn.models.pyg.context import (
    BATCH,
    VERTEX_COUNT,
    WEIGHTS,
    Count,
    Flat,
    Import,
    Marker,
    Unfit,
    is_edges,
    is_symbol,
)
from livegnn.models.pyg.functions.columns import pick_columns
from livegnn.models.pyg.functions.graph import end_of
from livegnn.models.pyg.functions.operands import value_of
from livegnn.models.pyg.functions.rows import is_truth
from livegnn.models.pyg.pools import BACK_TO_VERTICES


def _getitem(record: Import, input: Any, index: Any) -> Any:
    if isinstance(input, (list, tuple, dict)):
        return input[index]
    if is_edges(input):
        return end_of(input, index)
    if index is BATCH:
        raise Unfit(BACK_TO_VERTICES, "keep what follows the pool row by row")
    if index in ((slice(None), None), (Ellipsis, None)) and (isinstance(input, Flat) or input is WEIGHTS):
        return _column(record, input)
    if isinstance(index, str):
        raise Unfit(
            f"it reads {index!r} of what is one tensor here",
            "if the forward takes dicts by type, pass metadata=data.metadata() to from_pyg",
        )
    x = value_of(input)
    whole = (VERTEX_COUNT, record.example_rows)
    if isinstance(index, slice) and index.start in (None, 0) and index.step is None and index.stop in whole:
        return x  # the targets of a sampled block, which is the whole graph here
    if isinstance(index, tuple) and len(index) == 2 and index[0] in (slice(None), Ellipsis):
        columns = index[1]
        if columns == slice(None):
            return x
        if isinstance(columns, slice) and not is_symbol((columns.start, columns.stop, columns.step)):
            return pick_columns(x, [*range(x.width)[columns]])
        if isinstance(columns, (list, torch.Tensor)):
            return pick_columns(x, torch.arange(x.width)[columns].tolist())
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
    rows = rows or (record.recorded and len(extents) == 2)  # the number of one run; the comparison has others
    if rows and len(extents) == 2 and extents[1] == value.width:
        return value
    if rows and len(extents) == 1 and value.width == 1:
        return Flat(value)
    if extents == (VERTEX_COUNT, -1):
        return value
    raise Unfit(f"the shape {extents} is not one row per vertex")


def _squeeze(record: Import, input: Any, dim: Any = None) -> Any:
    if isinstance(input, Flat):
        return input
    x = value_of(input)
    if dim not in (None, 1, -1):
        raise Unfit(f"dim={dim} does not run over the columns of each row", "use dim=-1")
    return Flat(x) if x.width == 1 else x  # torch removes what has length 1 alone


def _flatten(record: Import, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return value_of(input) if start_dim == 1 else _squeeze(record, input)


def _unsqueeze(record: Import, input: Any, dim: int) -> Any:
    if (isinstance(input, Flat) or input is WEIGHTS) and dim in (1, -1):
        return _column(record, input)
    raise Unfit("it does not turn a vector into a column")


def _turned(record: Import, input: Any, *dims: Any) -> Any:
    raise Unfit(
        "it lays the rows of all vertices side by side, so that what follows mixes them and one update would change "
        "every row, as attention over all vertices does",
        "keep one row per vertex",
    )


def _same(record: Import, input: Any, **options: Any) -> Any:
    return input


def _cast(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
    if is_truth(input.value if isinstance(input, Flat) else input):
        return input  # 0 and 1 in every type
    given = [_type_of(each) for each in (*args, *kwargs.values())]
    wanted = _WHOLE if _is_whole(input) else _REAL
    other = next((each for each in given if each is not None and each not in wanted), None)
    if other is not None:
        if wanted is _WHOLE:
            raise Unfit(
                f"it computes with {input.what} as with numbers", "give these numbers to the graph as edge_attr"
            )
        raise Unfit(f"{other} would round the rows", "stay in float32")
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
    x = value_of(input)
    return (Count(of=x), x.width)


def _size(record: Import, input: Any, dim: int | None = None) -> Any:
    if is_edges(input):
        raise Unfit("it asks for the number of edges, which is not fixed", "take it out of the forward")
    shape = _shape(record, input)
    return shape if dim is None else shape[dim]


SHAPES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("contiguous", "clone", "detach", "requires_grad", "cpu"), _same),
    **dict.fromkeys(("to", "type_as", "type"), _cast),
    **dict.fromkeys(("float", "double"), lambda record, input, memory_format=None: _cast(record, input, torch.float32)),
    **dict.fromkeys(("long", "int"), lambda record, input, memory_format=None: _cast(record, input, torch.int64)),
    **dict.fromkeys(
        ("half", "bfloat16"), lambda record, input, memory_format=None: _cast(record, input, torch.float16)
    ),
    **dict.fromkeys(("t", "T", "mT", "transpose", "permute", "swapaxes"), _turned),
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
}
