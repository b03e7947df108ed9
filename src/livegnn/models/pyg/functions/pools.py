"""Reductions: over a stack of layers, row by row, and over all rows where rows of graphs are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Refusal, Stacked, Unfit, refuse
from livegnn.models.pyg.functions.operands import value_of
from livegnn.models.pyg.pools import pool_all, pool_batch


def _stack(record: Import, tensors: Any, dim: int = 0) -> Any:
    values = tuple(value_of(each) for each in tensors)
    if len({value.width for value in values}) != 1 or not -3 <= dim <= 2:
        raise Unfit("it does not stack rows of one width")
    return Stacked(values, dim % 3)


def _reduce(stacked: Any, dim: Any) -> tuple[ir.Value, ...]:
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if not isinstance(stacked, Stacked) or dims not in ((stacked.dim,), (stacked.dim - 3,)):
        raise Unfit("it does not reduce over a stack of layers; over rows it would mix vertices")
    return stacked.values


def _over_vertices(input: Any, dim: Any) -> bool:
    """Whether a reduction runs over all rows."""
    return isinstance(input, ir.Value) and (dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim) in (0, -2)


def _largest(values: tuple[Any, ...]) -> ir.Value:
    return ir.Maximum(tuple(map(value_of, values)))


def _least(values: tuple[Any, ...]) -> ir.Value:
    negative = ir.Maximum(tuple(ir.Combine(((-1.0, value_of(each)),)) for each in values))
    return ir.Combine(((-1.0, negative),))


def _extreme(pick: Callable[[tuple[Any, ...]], ir.Value], kind: str) -> Callable[..., Any]:
    """torch.max or torch.min: of two values, of a stack, or of all rows."""

    def handler(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(input, ir.Value) and isinstance(dim, ir.Value):
            return pick((input, dim))
        indices = Refusal(refuse(f"the indices of a {kind}imum", "they are not supported", "use the values"))
        if _over_vertices(input, dim):
            return pool_all(record, input, kind), indices
        return pick(_reduce(input, None if keepdim else dim)), indices

    return handler


def _sum(record: Import, input: Any, dim: Any = None, keepdim: bool = False, axis: Any = None) -> Any:
    if isinstance(input, (list, tuple)) and dim is None and axis is None:  # the built-in sum
        return ir.Combine(tuple((1.0, value_of(each)) for each in input))
    dim = dim if axis is None else axis
    if _over_vertices(input, dim):
        return pool_all(record, input, "sum")
    return ir.Combine(tuple((1.0, value) for value in _reduce(input, None if keepdim else dim)))


def _mean(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if _over_vertices(input, dim):
        return pool_all(record, input, "mean")
    values = _reduce(input, None if keepdim else dim)
    return ir.Combine(tuple((1.0 / len(values), value) for value in values))


POOLS: dict[str, Callable[..., Any]] = {
    "stack": _stack,
    "max": _extreme(_largest, "max"),
    "amax": lambda record, input, dim=None: _largest(_reduce(input, dim)),
    "maximum": lambda record, input, other: _largest((input, other)),
    "min": _extreme(_least, "min"),
    "amin": lambda record, input, dim=None: _least(_reduce(input, dim)),
    "minimum": lambda record, input, other: _least((input, other)),
    "sum": _sum,
    "mean": _mean,
    "global_pool": pool_batch,
}
