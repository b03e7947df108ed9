"""Reductions: over the columns of each row, and over all rows where rows of graphs are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Refusal, Unfit, refuse
from livegnn.models.pyg.functions.columns import extreme_columns, kept, mean_columns, over_columns, sum_columns
from livegnn.models.pyg.functions.operands import value_of
from livegnn.models.pyg.functions.rows import largest, least
from livegnn.models.pyg.pools import POOLS, pool_all, pool_batch

_OVER_ROWS = (POOLS, "use dim=-1 for columns")


def _over_vertices(input: Any, dim: Any) -> bool:
    """Whether a reduction runs over all rows."""
    return isinstance(input, ir.Value) and (dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim) in (0, -2)


_PICK: dict[str, Callable[..., ir.Value]] = {"max": largest, "min": least}


def _extreme(kind: str) -> Callable[..., Any]:
    """torch.max or torch.min: of two values, of columns, or of all rows."""

    def handler(record: Import, input: Any, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
        other = dim if isinstance(dim, (ir.Value, torch.Tensor)) else other
        if other is not None:
            return _PICK[kind](record, (input, other))
        indices = Refusal(refuse(f"the indices of a {kind}imum", "they are not supported", "use the values"))
        if _over_vertices(input, dim):
            return pool_all(record, input, kind), indices
        if over_columns(input, dim):
            return kept(extreme_columns(input, kind), keepdim), indices
        raise Unfit(*_OVER_ROWS)

    return handler


def _extreme_value(kind: str) -> Callable[..., Any]:
    """torch.amax or torch.amin: of columns, or of all rows."""

    def handler(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if _over_vertices(input, dim):
            return pool_all(record, input, kind)
        if over_columns(input, dim):
            return kept(extreme_columns(input, kind), keepdim)
        raise Unfit(*_OVER_ROWS)

    return handler


def _sum(record: Import, input: Any, dim: Any = None, keepdim: bool = False, axis: Any = None) -> Any:
    if isinstance(input, (list, tuple)) and dim is None and axis is None:  # the built-in sum
        return ir.Combine(tuple((1.0, value_of(each)) for each in input))
    dim = dim if axis is None else axis
    if _over_vertices(input, dim):
        return pool_all(record, input, "sum")
    if over_columns(input, dim):
        return kept(sum_columns(input), keepdim)
    raise Unfit(*_OVER_ROWS)


def _mean(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if _over_vertices(input, dim):
        return pool_all(record, input, "mean")
    if over_columns(input, dim):
        return kept(mean_columns(input), keepdim)
    raise Unfit(*_OVER_ROWS)


POOLED: dict[str, Callable[..., Any]] = {
    "max": _extreme("max"),
    "amax": _extreme_value("max"),
    **dict.fromkeys(("maximum", "fmax"), lambda record, input, other: largest(record, (input, other))),
    "min": _extreme("min"),
    "amin": _extreme_value("min"),
    **dict.fromkeys(("minimum", "fmin"), lambda record, input, other: least(record, (input, other))),
    "sum": _sum,
    "mean": _mean,
    "global_pool": pool_batch,
}
