"""What a function may be given: rows, numbers, and constants of one number per column."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.messages import linear, ones
from livegnn.models.pyg.context import Import, Unfit, is_symbol, to_array


def value_of(x: Any) -> ir.Value:
    """Rows. Raises: Unfit for anything else."""
    if not isinstance(x, ir.Value):
        raise Unfit("its argument is not one row per vertex")
    return x


def columns_only(dim: Any) -> None:
    """Refuses any dimension but the columns'."""
    if dim not in (1, -1):
        raise Unfit(f"dim={dim} does not run over the columns of each row", "use dim=-1")


def number_of(x: Any) -> float | None:
    """A constant number; None for anything else."""
    if isinstance(x, (bool, int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() == 1:
        return float(x)
    return None


def row_of(x: Any, width: int) -> Any:
    """A constant of one number per column, (width,). Raises: Unfit."""
    if isinstance(x, torch.Tensor) and tuple(x.shape) in ((width,), (1, width)):
        return to_array(x).reshape(width)
    if is_symbol(x):
        raise Unfit("its operands do not fit each other row by row")
    raise Unfit(*_of_constant(x))


def _of_constant(x: Any) -> tuple[str, str]:
    """Why a constant is no row, and what to do."""
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) == 2 and shape[0] > 1:
        return (
            f"a constant of shape {shape} has a row for every vertex, and a new vertex would have none",
            "give its rows to the graph as columns of the features, and read these from x",
        )
    return f"a constant of shape {shape} is not one number per column", "see docs/models.md"


def constant_columns(like: ir.Value, numbers: Any, record: Import) -> ir.Value:
    """The same numbers in every row, which are where those of `like` are."""
    array = np.asarray(numbers, np.float64).reshape(-1)
    return linear(ones(like), np.zeros((len(array), 1)), record.constant(array))


def as_columns(x: Any, like: ir.Value, record: Import) -> ir.Value:
    """An operand as rows: itself, a number in one column, or a constant of one number per column. Raises: Unfit."""
    if isinstance(x, ir.Value):
        return x
    number = number_of(x)
    if number is not None:
        return constant_columns(like, [number], record)
    width = x.shape[-1] if isinstance(x, torch.Tensor) and x.ndim else like.width
    return constant_columns(like, row_of(x, width), record)


def widened(x: ir.Value, width: int) -> ir.Value:
    """Rows of this width: a single column is repeated. Raises: Unfit."""
    if x.width == width:
        return x
    if x.width != 1:
        raise Unfit(f"widths {x.width} and {width} differ")
    return linear(x, np.ones((width, 1)))


def broadcast(operands: tuple[Any, ...], record: Import) -> tuple[ir.Value, ...]:
    """Operands as rows of one width or of width 1, one of them rows. Raises: Unfit."""
    like = next((each for each in operands if isinstance(each, ir.Value)), None)
    if like is None:
        raise Unfit("none of its arguments is one row per vertex")
    columns = tuple(as_columns(each, like, record) for each in operands)
    widths = {each.width for each in columns} - {1}
    if len(widths) > 1:
        raise Unfit(f"widths {' and '.join(map(str, sorted(widths)))} differ")
    return columns


def activation(input: Any, kind: str, param: float = 0.0) -> ir.Value:
    return ir.Activation(value_of(input), kind, param)


def scaled(x: ir.Value, factor: float) -> ir.Value:
    """factor * x."""
    return x if factor == 1 else ir.Combine(((factor, x),))
