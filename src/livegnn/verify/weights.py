"""Messages that are linear in the edge's weight, taken apart: plain + weight * scaled, both rows of the source.

The engine sums such messages as rows of vertices, once without and once with the weights of the edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr
from livegnn.verify.simplify import is_constant, wide

Parts: TypeAlias = tuple[Expr, Expr]


def by_weight(row: Expr, side: Callable[[Expr], str | None]) -> Parts | None:
    """(plain, scaled), or None where the rows read more than the source, or are not linear in the weight.

    Args:     side: of an expression, as Lowering.side.
    """

    def apart(each: Expr, inputs: list[Parts | None]) -> Parts | None:
        if side(each) in ("source", None):
            return each, _zeros(each.width)
        if each.op == "variable":
            return (_zeros(1), ex.constant(1.0)) if each.name == "weight" else None
        parts = [one for one in inputs if one is not None]
        return _of(each, parts) if len(parts) == len(inputs) else None

    return ex.fold(apart, row)[0]


def _zeros(width: int) -> Expr:
    return ex.constant(np.zeros(width))


def _of(expr: Expr, parts: list[Parts]) -> Parts | None:
    if expr.op in ("neg", "matmul", "take", "sum_columns", "concat", "add", "sub"):
        plain, scaled = (_linear(expr, part) for part in zip(*parts, strict=True))
        return plain, scaled
    if expr.op not in ("mul", "div"):
        return None
    if expr.op == "mul" and is_constant(parts[0][1], 0):
        parts = parts[::-1]  # the factor without the weight comes last
    (plain, scaled), (factor, of_factor) = parts
    if not is_constant(of_factor, 0):
        return None
    return _times(expr, plain, factor), _times(expr, scaled, factor)


def _linear(expr: Expr, inputs: tuple[Expr, ...]) -> Expr:
    zero = all(is_constant(each, 0) for each in inputs)
    return _zeros(expr.width) if zero else wide(ex.with_inputs(expr, inputs), expr.width)


def _times(expr: Expr, part: Expr, factor: Expr) -> Expr:
    zero = is_constant(part, 0)
    return _zeros(expr.width) if zero else wide(ex.elementwise(expr.op, part, factor), expr.width)
