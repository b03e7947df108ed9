"""Expressions made smaller before they are lowered: constants computed, neutral elements dropped, equal parts shared.

All rules are identities of real numbers. Equal expressions that pass through one `Simplifier` become one object, so
that what two functions compute alike is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from livegnn.models.ir import walk
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr


def variables(expr: Expr) -> frozenset[str]:
    """Names of the variables that the expression depends on."""
    return frozenset(each.name for each in walk(expr) if each.op == "variable")


def is_constant(expr: Expr, number: float | None = None) -> bool:
    """Whether it is a constant (that has this number in all columns)."""
    return expr.array is not None and expr.op == "constant" and (number is None or bool(np.all(expr.array == number)))


def wide(expr: Expr, width: int) -> Expr:
    """The expression with its one column repeated to `width`, where it has one only."""
    if is_constant(expr) and expr.array is not None and expr.width != width:
        return ex.constant(np.repeat(expr.array, width))
    return expr if expr.width == width else ex.take(expr, [0] * width)


@dataclass(eq=False)
class Simplifier:
    """See the module's docstring."""

    known: dict[Hashable, Expr] = field(default_factory=dict)

    def simple(self, expr: Expr, replacements: Mapping[str, Expr] | None = None) -> Expr:
        """An equal expression, with variables replaced by name first."""
        whole = ex.substitute(expr, replacements or {})
        return ex.fold(lambda each, inputs: self._shared(self._reduced(each, inputs)), whole)[0]

    def _shared(self, expr: Expr) -> Expr:
        array = None if expr.array is None else (expr.array.shape, expr.array.tobytes())
        key = (expr.op, expr.width, tuple(map(id, expr.inputs)), expr.per_edge, expr.name, array, expr.columns)
        return self.known.setdefault(key, expr)

    def _reduced(self, expr: Expr, inputs: list[Expr]) -> Expr:
        if not inputs:
            return expr
        if all(is_constant(each) for each in inputs) and expr.op not in ex.OVER_EDGES:
            with np.errstate(all="ignore"):
                value = ex.evaluate(ex.with_inputs(expr, inputs), {})
            if np.isfinite(value).all():
                return ex.constant(np.broadcast_to(value, (1, expr.width)))
        kept = _neutral(expr, inputs)
        if kept is not None and kept.width == expr.width:
            return kept
        return ex.with_inputs(expr, inputs)


def _neutral(expr: Expr, inputs: list[Expr]) -> Expr | None:
    """The operand or constant that the operation comes down to, if any."""
    first, last = inputs[0], inputs[-1]
    if expr.op in ("add", "sub") and is_constant(last, 0):
        return first
    if expr.op == "add" and is_constant(first, 0):
        return last
    if expr.op == "mul" and (is_constant(first, 0) or is_constant(last, 0)):
        return ex.constant(np.zeros(expr.width))
    if expr.op in ("mul", "div") and is_constant(last, 1):
        return first
    if expr.op == "mul" and is_constant(first, 1):
        return last
    if expr.op == "neg" and first.op == "neg":
        return first.inputs[0]
    if expr.op == "where" and (is_constant(first, 0) or is_constant(first, 1)):
        return wide(inputs[2 if is_constant(first, 0) else 1], expr.width)
    if expr.op == "take" and expr.columns == tuple(range(first.width)):
        return first
    return None
