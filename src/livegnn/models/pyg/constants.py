"""Rows that are the same for every vertex, such as a recurrent layer's first state of zeros.

A constant row is a Linear map whose weight is zero, so that every part of the importer takes it as a row. What follows
of zeros is worked out when the forward has been read: sums along edges, products and gates of them cost nothing then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from livegnn.models import edges, ir
from livegnn.models.order import with_inputs
from livegnn.models.pyg.context import Count, Import, Shaped, Unfit, is_symbol
from livegnn.models.pyg.layout import example_rows, shaped, symbol

_KEEP_ZERO = (
    "relu", "selu", "gelu", "gelu_tanh", "silu", "tanh", "relu6", "hardtanh", "hardswish", "softsign", "abs", "sqrt",
    "log1p", "leaky_relu", "elu", "celu",
)  # fmt: skip
_FACTORIES = ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like")


def constant_rows(record: Import, like: ir.Value, array: Any) -> ir.Value:
    """The row `array` for whatever has a row of `like`."""
    leaf = like
    if not like.on_edges:
        leaves = (
            x for x in ir.walk(like) if isinstance(x, (ir.Input, ir.OfType)) and x.vertex_type == like.vertex_type
        )
        leaf = next(leaves, like)
    column = leaf if leaf.width == 1 else ir.Slice(leaf, 0, 1)
    bias = record.constant(np.asarray(array, np.float64).ravel())
    return ir.Linear(column, np.zeros((len(bias), 1), np.float32), bias)


def _same(record: Import, like: Shaped, number: float, shape: tuple[int, ...], axis: int) -> Any:
    rows = constant_rows(record, like.source, np.full(int(np.prod(shape)), number))
    return symbol(Shaped(rows, np.arange(rows.width).reshape(shape), axis))


def _like(number: float | None) -> Callable[..., Any]:
    """torch.zeros_like and its kin."""

    def handler(record: Import, input: Any, *fill: Any, **options: Any) -> Any:
        x = shaped(input)
        return _same(record, x, _number(number, fill, options), x.index.shape, x.axis)

    return handler


def _new(number: float | None) -> Callable[..., Any]:
    """x.new_zeros(size) and its kin: rows where one of the sizes is the number of vertices."""
    made = _made(number)

    def handler(record: Import, input: Any, *args: Any, **options: Any) -> Any:
        return made(record, *args, like=shaped(input), **options)

    return handler


def _made(number: float | None) -> Callable[..., Any]:
    """torch.zeros(size) and its kin, where the size holds the number of rows of something."""

    def handler(record: Import, *args: Any, like: Shaped | None = None, **options: Any) -> Any:
        size = options.pop("size", None)
        if size is None:
            whole = isinstance(args[0], (tuple, list, torch.Size)) if args else False
            size, args = (args[0], args[1:]) if whole else (args, ())
        counts = [each.of for each in size if isinstance(each, Count) and each.of is not None]
        source = like.source if like is not None else counts[0] if counts else None
        if source is None or any(is_symbol(each) and not isinstance(each, Count) for each in size):
            raise Unfit(f"the size {tuple(size)} is not one row per vertex")
        rows = example_rows(source)
        axes = [k for k, each in enumerate(size) if isinstance(each, Count) or (record.recorded and each == rows)]
        found = _number(number, args, options)
        if len(axes) > 1 and not record.recorded:
            raise Unfit(f"the size {tuple(size)} is one number for every two vertices")
        if not axes:
            return torch.full(tuple(size), found)
        shape = tuple(each for k, each in enumerate(size) if k != axes[0])
        return _same(record, Shaped(source, np.arange(source.width)), found, shape, axes[0])

    return handler


def _number(number: float | None, args: tuple[Any, ...], options: dict[str, Any]) -> float:
    given = number if number is not None else options.get("fill_value", args[0] if args else None)
    if isinstance(given, torch.Tensor) and given.numel() == 1:
        given = given.item()
    if not isinstance(given, (int, float)):
        raise Unfit(f"it fills with {given!r}, not with a number")
    return float(given)


STATES: dict[str, Callable[..., Any]] = {
    **{f"{name}_like": _like(number) for name, number in (("zeros", 0.0), ("ones", 1.0), ("full", None))},
    **{f"new_{name}": _new(number) for name, number in (("zeros", 0.0), ("ones", 1.0), ("full", None))},
    **{name: _made(number) for name, number in (("zeros", 0.0), ("ones", 1.0), ("full", None))},
}


#: What may give every vertex the same constant row, such as the first place of a sequence.
EXPANDING = ("expand", "repeat", "expand_as", "broadcast_to", "tile")


def expanded(name: str, base: Callable[..., Any]) -> Callable[..., Any]:
    """A handler of EXPANDING: of a constant with one size that is the number of vertices, else `base`."""

    def handler(record: Import, input: Any, *sizes: Any, **options: Any) -> Any:
        if not isinstance(input, torch.Tensor) or options or not sizes:
            return base(record, input, *sizes, **options)
        given = sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes
        if name == "expand_as":
            like = shaped(sizes[0])
            given = (*like.index.shape[: like.axis], Count(of=like.source), *like.index.shape[like.axis :])
        axes = [k for k, each in enumerate(given) if isinstance(each, Count)]
        if len(axes) != 1 or given[axes[0]].of is None or given[axes[0]].times != 1:
            raise Unfit(f"the shape {tuple(given)} is not one row per vertex")
        whole = [1 if isinstance(each, Count) else each for each in given]
        index = (input.repeat(whole) if name in ("repeat", "tile") else input.expand(whole)).detach()
        if index.shape[axes[0]] != 1:
            raise Unfit(f"a constant of shape {tuple(input.shape)} has a row for every vertex")
        return _constant(record, given[axes[0]].of, index.select(axes[0], 0), axes[0])

    return handler


def _constant(record: Import, like: ir.Value, row: torch.Tensor, axis: int) -> Any:
    constant = constant_rows(record, like, row.numpy())
    return symbol(Shaped(constant, np.arange(constant.width).reshape(row.shape), axis))


def first_state(name: str | None, result: Any, record: Import) -> Any:
    """The symbol of torch.zeros(number of vertices, width) and its kin in a recorded run; None for another constant."""
    if name not in (*_FACTORIES, *EXPANDING) or record.features is None or not isinstance(result, torch.Tensor):
        return None
    rows = example_rows(record.features)
    if rows not in result.shape or not result.is_floating_point():
        return None
    axis = list(result.shape).index(rows)
    row = result.detach().select(axis, 0)
    if name in EXPANDING and not bool((result.detach() == row.unsqueeze(axis)).all()):
        return None
    return _constant(record, record.features, row, axis)


# ---- what follows of zeros


def constant_of(value: ir.Value) -> Any:
    """The row that a value has everywhere; None where rows differ, as far as its form shows."""
    if isinstance(value, ir.Linear) and not value.weight.any():
        return np.zeros(value.width, np.float32) if value.bias is None else value.bias
    return None


def _is_zero(value: ir.Value) -> bool:
    row = constant_of(value)
    return row is not None and not row.any()


def without_zeros(output: ir.Value, record: Import) -> ir.Value:
    """An equal value in which nothing is computed from rows of zeros."""
    values = ir.walk(output)
    if not any(_is_zero(value) for value in values):
        return output
    new: dict[int, ir.Value] = {}
    for value in values:
        built = _simplest(with_inputs(value, [new[id(x)] for x in value.inputs]))
        new[id(value)] = built
        record.name(built, record.names.get(id(value), "a constant"))
    return new[id(output)]


def _zeros(value: ir.Value, like: ir.Value) -> ir.Value:
    """Zeros in the place of a value."""
    assert isinstance(like, ir.Linear)
    return ir.Linear(like.x, np.zeros((value.width, like.x.width), np.float32))


def _simplest(value: ir.Value) -> ir.Value:
    if isinstance(value, ir.Linear) and isinstance(value.x, ir.Concat):
        return _without_parts(value)
    zeros = [x for x in value.inputs if _is_zero(x)]
    if not zeros:
        return value
    zero = zeros[0]
    match value:
        case ir.Propagate() | ir.Multiply() | edges.HeadDot() | edges.HeadScale() | edges.RowMatrix() | ir.Slice():
            return _zeros(value, zero)
        case ir.Activation() if value.kind in _KEEP_ZERO:
            return _zeros(value, zero)
        case ir.Linear():
            assert isinstance(zero, ir.Linear)
            return ir.Linear(zero.x, np.zeros((value.width, zero.x.width), np.float32), value.bias)
        case ir.Affine():
            assert isinstance(zero, ir.Linear)
            return ir.Linear(zero.x, np.zeros((value.width, zero.x.width), np.float32), value.shift)
        case ir.Combine():
            terms = tuple((c, x) for c, x in value.terms if not _is_zero(x))
            if len(terms) == 1 and terms[0][0] == 1.0:
                return terms[0][1]
            return ir.Combine(terms) if terms else zero
    return value


def _without_parts(value: ir.Linear) -> ir.Value:
    """W [x, 0] as the part of W that x meets."""
    joined = value.x
    assert isinstance(joined, ir.Concat)
    kept, start = [], 0
    for part in joined.xs:
        if not _is_zero(part):
            kept.append((part, value.weight[:, start : start + part.width]))
        start += part.width
    if len(kept) == len(joined.xs):
        return value
    if not kept:
        first = joined.xs[0]
        assert isinstance(first, ir.Linear)
        return ir.Linear(first.x, np.zeros((value.width, first.x.width), np.float32), value.bias)
    rows = kept[0][0] if len(kept) == 1 else ir.Concat(tuple(part for part, _ in kept))
    return dataclasses.replace(value, x=rows, weight=np.concatenate([weight for _, weight in kept], axis=1))
