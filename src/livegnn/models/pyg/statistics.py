"""Numbers over one dimension or more of each vertex's own row: deviations, norms, products, orders, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Refusal, Shaped, Unfit, refuse
from livegnn.models.pyg.layout import columns, inverse, row_axes, shaped, split_off, symbol

Handler: TypeAlias = Callable[..., Any]
Fold: TypeAlias = Callable[[list[ir.Value]], ir.Value]

_SORTED_MAX = 32  # numbers that are put into order by exchanges


def _over(record: Import, input: Any, dim: Any, keepdim: bool, fold: Fold) -> Any:
    """What a function makes of the slices along dimensions of a row."""
    x = shaped(input)
    taken, made = split_off(x, dim, keepdim)
    return made(fold([columns(x.source, row) for row in taken]))


def added(parts: Sequence[ir.Value]) -> ir.Value:
    return ir.Combine(tuple((1.0, each) for each in parts))


def _mean(parts: Sequence[ir.Value]) -> ir.Value:
    return ir.Combine(tuple((1.0 / len(parts), each) for each in parts))


def _variance(less: float) -> Fold:
    def fold(parts: list[ir.Value]) -> ir.Value:
        if len(parts) <= less:
            raise Unfit("so few numbers have no variance")
        mean = _mean(parts)
        apart = [ir.Combine(((1.0, each), (-1.0, mean))) for each in parts]
        return ir.Combine(tuple((1.0 / (len(parts) - less), ir.Multiply(each, each)) for each in apart))

    return fold


def _spread(root: bool, mean: bool) -> Handler:
    """torch.var and its kin."""

    def handler(
        record: Import,
        input: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):
            raise Unfit("it runs over all rows", "pass dim=-1")
        variance = _variance(correction if correction is not None else 0 if unbiased is False else 1)
        fold: Fold = (lambda parts: ir.Activation(variance(parts), "sqrt")) if root else variance
        found = _over(record, input, dim, keepdim, fold)
        return (found, _over(record, input, dim, keepdim, _mean)) if mean else found

    return handler


def _norm(
    record: Import, input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None, out: None = None
) -> Any:
    def fold(parts: list[ir.Value]) -> ir.Value:
        if p in (2, None, "fro"):
            return ir.Activation(added([ir.Multiply(each, each) for each in parts]), "sqrt")
        sizes: list[ir.Value] = [ir.Activation(each, "abs") for each in parts]
        if p == 1:
            return added(sizes)
        if p == math.inf:
            return ir.Maximum(tuple(sizes))
        raise Unfit(f"p={p} is not supported here", "use 1, 2 or infinity")

    return _over(record, input, dim, keepdim, fold)


def _product(record: Import, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    def fold(parts: list[ir.Value]) -> ir.Value:
        total = parts[0]
        for each in parts[1:]:
            total = ir.Multiply(total, each)
        return total

    return _over(record, input, dim, keepdim, fold)


def _logsumexp(record: Import, input: Any, dim: Any, keepdim: bool = False) -> Any:
    def fold(parts: list[ir.Value]) -> ir.Value:
        largest = ir.Maximum(tuple(parts))
        powers = [ir.Activation(ir.Combine(((1.0, each), (-1.0, largest))), "exp") for each in parts]
        return ir.Combine(((1.0, largest), (1.0, ir.Activation(added(powers), "log"))))

    return _over(record, input, dim, keepdim, fold)


# ---- along one dimension, which stays


def _along(input: Any, dim: Any, change: Callable[[list[ir.Value]], list[ir.Value]]) -> Any:
    """What a function makes of the slices along a dimension, slice by slice."""
    x = shaped(input)
    if x.whole:
        raise Unfit("it takes whole numbers, which are read as rows of an embedding or of one_hot alone")
    (axis,) = row_axes(x, dim)
    moved = np.moveaxis(x.index, axis, 0)
    order = np.argsort(moved[0].ravel(), kind="stable")  # in the order in which the columns lie
    parts = change([columns(x.source, row.ravel()[order]) for row in moved])
    rows = parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))
    index = inverse(order) + len(order) * np.arange(len(parts))[:, None]
    index = index.reshape(len(parts), *moved.shape[1:])
    return symbol(Shaped(rows, np.moveaxis(index, 0, axis), x.axis))


def _running(join: Callable[[ir.Value, ir.Value], ir.Value]) -> Handler:
    def change(parts: list[ir.Value]) -> list[ir.Value]:
        found = [parts[0]]
        for each in parts[1:]:
            found.append(join(found[-1], each))
        return found

    return lambda record, input, dim, dtype=None: _along(input, dim, change)


def in_order(parts: list[ir.Value]) -> list[ir.Value]:
    """Column by column, the numbers of the parts from the least to the largest. Raises: Unfit for very many."""
    if len(parts) > _SORTED_MAX:
        raise Unfit(f"it puts {len(parts)} numbers into order; {_SORTED_MAX} are the most")
    found = [*parts]
    for turn in range(len(found)):  # exchanges of neighbours, odd and even pairs by turns
        for k in range(turn % 2, len(found) - 1, 2):
            a, b = found[k], found[k + 1]
            found[k], found[k + 1] = ir.Elementwise("minimum", (a, b)), ir.Maximum((a, b))
    return found


def _indices(what: str) -> Refusal:
    return Refusal(refuse(f"the indices of {what}", "they are not supported", "use the values"))


def _sort(record: Import, input: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    def change(parts: list[ir.Value]) -> list[ir.Value]:
        return in_order(parts)[:: -1 if descending else 1]

    return _along(input, dim, change), _indices("sort")


def _top(record: Import, input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    def change(parts: list[ir.Value]) -> list[ir.Value]:
        return in_order(parts)[:: -1 if largest else 1][:k]

    return _along(input, dim, change), _indices("topk")


def _median(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Of an even number the smaller one of the two in the middle, as torch has it."""
    found = _over(record, input, dim, keepdim, lambda parts: in_order(parts)[(len(parts) - 1) // 2])
    return found, _indices("a median")


def _glu(record: Import, input: Any, dim: int = -1) -> Any:
    x = shaped(input)
    (axis,) = row_axes(x, dim)
    a, b = np.split(np.moveaxis(x.index, axis, 0), 2)
    order = np.argsort(a.ravel(), kind="stable")
    gate = ir.Activation(columns(x.source, b.ravel()[order]), "sigmoid")
    rows = ir.Multiply(columns(x.source, a.ravel()[order]), gate)
    return symbol(Shaped(rows, np.moveaxis(inverse(order).reshape(a.shape), 0, axis), x.axis))


def _embedded_norm(
    record: Import, input: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if isinstance(input, torch.Tensor):
        raise Unfit("its argument is not one row per vertex")
    return _norm(record, input, ord, dim, keepdim)


STATISTICS: dict[str, Handler] = {
    "var": _spread(root=False, mean=False),
    "std": _spread(root=True, mean=False),
    "var_mean": _spread(root=False, mean=True),
    "std_mean": _spread(root=True, mean=True),
    "norm": _norm,
    **dict.fromkeys(("linalg_norm", "linalg_vector_norm"), _embedded_norm),
    "prod": _product,
    "logsumexp": _logsumexp,
    "cumsum": _running(lambda a, b: ir.Combine(((1.0, a), (1.0, b)))),
    "cumprod": _running(lambda a, b: ir.Multiply(a, b)),
    "sort": _sort,
    "topk": _top,
    "median": _median,
    "glu": _glu,
}
