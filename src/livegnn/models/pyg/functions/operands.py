"""What a function may be given: rows, numbers, and constants of one number per column."""

from __future__ import annotations

from typing import Any

import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Unfit, is_symbol, to_array


def value_of(x: Any) -> ir.Value:
    if not isinstance(x, ir.Value):
        raise Unfit("its argument is not one row per vertex")
    return x


def columns_only(dim: Any) -> None:
    if dim not in (1, -1):
        raise Unfit(f"dim={dim} does not run over the columns of each row", "use dim=-1")


def number_of(x: Any) -> float | None:
    if isinstance(x, (bool, int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() == 1:
        return float(x)
    return None


def row_of(x: Any, width: int) -> Any:
    if isinstance(x, torch.Tensor) and tuple(x.shape) in ((width,), (1, width)):
        return to_array(x).reshape(width)
    if is_symbol(x):
        raise Unfit("its operands do not fit each other row by row")
    raise Unfit(f"a constant of shape {tuple(getattr(x, 'shape', ()))} is not one number per column")


def activation(input: Any, kind: str, param: float = 0.0) -> ir.Value:
    return ir.Activation(value_of(input), kind, param)
