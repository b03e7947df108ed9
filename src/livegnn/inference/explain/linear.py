"""What a change of an aggregate adds to the output, where the rest of the model is linear in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from livegnn.models import ir
from livegnn.models.order import Shift
from livegnn.types import Float64Array

_LAST = ("sigmoid", "log_sigmoid")  # activations that end a model as a softmax does


class _Bent(Exception):
    """A value that depends on the aggregate, and not linearly."""


def logits(output: ir.Value) -> ir.Value:
    """The value whose columns are compared: the output without a softmax or sigmoid at its end."""
    while isinstance(output, ir.Softmax | ir.LogSoftmax) or (
        isinstance(output, ir.Activation) and output.kind in _LAST
    ):
        output = output.inputs[0]
    return output


def linear_part(
    output: ir.Value, of: ir.Value, vertex_type: int | None
) -> Callable[[Float64Array], Float64Array] | None:
    """The map from parts of the value `of` (n, w) to what they add to the output (n, d), in float64; None where the
    output is not linear in it. vertex_type: the model's number of it, where there are types.
    """
    order = [value for value in ir.walk(output) if not value.on_edges]
    sample = np.zeros((1, of.width))

    def add(parts: Float64Array) -> Float64Array:
        found: dict[int, Float64Array | None] = {}
        for value in order:
            found[id(value)] = parts if value is of else _added(value, found, vertex_type)
        got = found[id(output)]
        return np.zeros((len(parts), output.width)) if got is None else got

    try:
        add(sample)
    except _Bent:
        return None
    return add


def _added(value: ir.Value, found: dict[int, Float64Array | None], vertex_type: int | None) -> Float64Array | None:
    inputs = [found.get(id(x)) for x in value.inputs]
    first = next((each for each in inputs if each is not None), None)
    if first is None:
        return None
    match value:
        case ir.Linear():
            return first @ value.weight.astype(np.float64).T
        case Shift():
            return first
        case ir.Affine():
            return first * value.scale.astype(np.float64)
        case ir.Slice():
            return first[:, value.start : value.stop]
        case ir.Combine():
            terms = zip(value.terms, inputs, strict=True)
            total = np.zeros_like(first)
            for (coefficient, _), rows in terms:
                total = total if rows is None else total + coefficient * rows
            return total
        case ir.Concat():
            return np.concatenate(
                [_or_zeros(x, len(first), one.width) for x, one in zip(inputs, value.xs, strict=True)], 1
            )
        case ir.ByType():
            return _of_type(value, inputs, len(first), vertex_type)
    raise _Bent


def _or_zeros(rows: Float64Array | None, count: int, width: int) -> Float64Array:
    return np.zeros((count, width)) if rows is None else rows


def _of_type(
    value: ir.ByType, inputs: list[Float64Array | None], count: int, vertex_type: int | None
) -> Float64Array | None:
    for part, rows in zip(value.parts, inputs, strict=True):
        if part.vertex_type == vertex_type and rows is not None:
            return np.concatenate([rows, np.zeros((count, value.width - part.width))], axis=1)
    return None
