"""Messages that are linear in the edge's weight, taken apart: plain + weight * scaled, both rows of the source.

The engine sums such messages as rows of vertices, once without and once with the weights of the edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr
from livegnn.verify.simplify import variables, wide

__all__ = ["Parts", "by_weight"]

Parts: TypeAlias = tuple[Expr | None, Expr | None]  # None: zero


def by_weight(row: Expr, side: Callable[[Expr], str | None]) -> Parts | None:
    """(plain, scaled), or None where the rows read more than the source, or are not linear in the weight.

    Args:     side: of an expression, as Lowering.side.
    """
    made: dict[int, Parts | None] = {}
    for each in ex.walk(row):
        if side(each) in ("source", None):
            made[id(each)] = (each, None)
        elif each.op == "variable":
            made[id(each)] = (None, ex.constant(1.0)) if each.name == "weight" else None
        else:
            made[id(each)] = _of(each, [made[id(before)] for before in each.inputs])
    return made[id(row)]


def _of(expr: Expr, inputs: list[Parts | None]) -> Parts | None:
    parts = [each for each in inputs if each is not None]
    if len(parts) < len(inputs) or "weight" not in variables(expr):
        return None
    first, last = parts[0], parts[-1]
    if expr.op in ("neg", "matmul", "take", "sum_columns"):
        return _each(first, lambda part: ex.with_inputs(expr, [part]))
    if expr.op in ("add", "sub"):
        return _total(expr, first, 0, last), _total(expr, first, 1, last)
    if expr.op == "concat":
        return _joined(expr, parts, 0), _joined(expr, parts, 1)
    if expr.op in ("mul", "div") and last[1] is None and last[0] is not None:
        factor = last[0]
        return _each(first, lambda part: wide(ex.elementwise(expr.op, part, factor), expr.width))
    if expr.op == "mul" and first[1] is None and first[0] is not None:
        factor = first[0]
        return _each(last, lambda part: wide(ex.elementwise("mul", part, factor), expr.width))
    return None


def _each(parts: Parts, rule: Callable[[Expr], Expr]) -> Parts:
    plain, scaled = parts
    return None if plain is None else rule(plain), None if scaled is None else rule(scaled)


def _total(expr: Expr, first: Parts, part: int, last: Parts) -> Expr | None:
    a, b = first[part], last[part]
    if a is not None and b is not None:
        return wide(ex.elementwise(expr.op, a, b), expr.width)
    if b is not None:
        return wide(ex.elementwise("neg", b) if expr.op == "sub" else b, expr.width)
    return None if a is None else wide(a, expr.width)


def _joined(expr: Expr, parts: list[Parts], part: int) -> Expr | None:
    if all(each[part] is None for each in parts):
        return None
    zeros = [ex.constant(np.zeros(before.width)) for before in expr.inputs]
    return ex.concat([zero if each[part] is None else each[part] for each, zero in zip(parts, zeros, strict=True)])  # type: ignore[misc]
