"""Row expressions as values that the engine runs.

An expression over variables of one end of an edge becomes rows of vertices, computed once per vertex; only what mixes
the ends, or reads the edge, becomes rows of edges. Operations that `livegnn.models.ir` has no value for are written in
those it has: a quotient is a product with a reciprocal, log x is log1p(x - 1) - log1p(1/x - 1), a comparison is the
sign of a difference, cut off at 0 and 1. `where` multiplies its branches by 0 and 1; exponents and divisors of a branch
are multiplied before they are used, so that the branch that is not taken stays finite.

Invariants: where a function has no value (a division by 0, the root or logarithm of a negative number, log 0), these
rows hold 0 for that operation and never NaN. All else is the function itself, with its constants rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.errors import ModelUnsupported
from livegnn.models import edges, ir
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.simplify import Simplifier, is_constant, variables, wide

__all__ = ["Lowering", "Side", "linear"]

Side: TypeAlias = Literal["source", "target", "edge"]
_STEEP = 2.0**127  # takes every normal float32 but 0 to 2 or beyond
_INDICATORS = ("less", "less_equal", "equal", "not", "and", "or")
_NATIVE = ("exp", "sqrt", "tanh", "sigmoid", "abs")


@dataclass(eq=False)
class Lowering:
    """Turns expressions into values; equal parts are turned once.

    name: of the operator, for messages.   one: a column of ones, rows of vertices.   rows: variable -> its side and
    value; those of the edge's ends are rows of vertices.
    """

    name: str
    one: ir.Value
    rows: dict[str, tuple[Side, ir.Value]]
    simplifier: Simplifier = field(default_factory=Simplifier)
    _values: dict[int, ir.Value] = field(default_factory=dict)  # where the expression's own side is
    _taken: dict[int, ir.Value] = field(default_factory=dict)  # the same, taken to the edge
    _sides: dict[int, Side | None] = field(default_factory=dict)
    _kept: list[Expr] = field(default_factory=list)  # ids stay those of living expressions

    def side(self, expr: Expr) -> Side | None:
        """Where all that the expression reads stands; None for a constant, "edge" for more than one end."""
        if id(expr) not in self._sides:
            sides = {self.rows[name][0] for name in variables(expr)}
            self._sides[id(expr)] = None if not sides else sides.pop() if len(sides) == 1 else "edge"
            self._kept.append(expr)
        return self._sides[id(expr)]

    def of_vertices(self, expr: Expr, replacements: Mapping[str, Expr] | None = None) -> ir.Value:
        """Rows of vertices, of an expression over variables of one end."""
        made = self.simplifier.simple(expr, replacements)
        return self._constant(made) if is_constant(made) else self._value(made)

    def of_edges(self, expr: Expr) -> ir.Value:
        """Rows of edges."""
        return self._on(expr, "edge")

    # ---- where rows stand

    def _on(self, expr: Expr, side: Side) -> ir.Value:
        """The expression's rows, taken to `side`."""
        made, own = (self._constant(expr), None) if self.side(expr) is None else (self._value(expr), self.side(expr))
        if side != "edge" or own == "edge":
            return made
        if id(expr) not in self._taken:
            self._taken[id(expr)] = edges.Target(made) if own == "target" else edges.Source(made)
        return self._taken[id(expr)]

    def _constant(self, expr: Expr) -> ir.Value:
        """The same row for every vertex."""
        constant = self.array(expr)
        return linear(self.one, np.zeros((len(constant), 1)), constant)

    def array(self, expr: Expr) -> Float64:
        """The numbers of a constant. Raises: ModelUnsupported for one that is not finite."""
        if expr.array is None or not is_constant(expr) or not np.isfinite(expr.array).all():
            raise ModelUnsupported(
                f"[verify {self.name}] expected finite constants, got one that is computed by {expr.op} and has no "
                "value; mend the constants of the functions"
            )
        return expr.array

    def _value(self, expr: Expr) -> ir.Value:
        side = self.side(expr)
        if side is None:
            return self._constant(expr)
        if id(expr) not in self._values:
            self._values[id(expr)] = self._computed(expr, side)
        return self._values[id(expr)]

    # ---- one operation

    def _computed(self, expr: Expr, side: Side) -> ir.Value:
        if expr.op == "variable":
            return self.rows[expr.name][1]
        x = expr.inputs[0]
        if expr.op == "matmul":
            assert expr.array is not None
            return linear(self._on(x, side), expr.array.T)
        if expr.op == "take":
            return self._take(expr, side)
        if expr.op == "concat":
            return ir.Concat(tuple(self._on(each, side) for each in expr.inputs))
        if expr.op in ex.OVER_COLUMNS:
            return self._over_columns(expr.op, x, side)
        if expr.op in _NATIVE:
            return ir.Activation(self._on(x, side), expr.op)
        known = _activation(expr)
        if known is not None:
            kind, inner, param = known
            return ir.Activation(self._widened(inner, expr.width, side), kind, param)
        if expr.op in _INDICATORS:
            return self._indicator(expr, side)
        steps: dict[str, Callable[[Expr, Side], ir.Value]] = {
            "neg": lambda e, s: ir.Combine(((-1.0, self._on(e.inputs[0], s)),)),
            "log": lambda e, s: _log(self._on(e.inputs[0], s)),
            "add": self._sum,
            "sub": self._sum,
            "mul": self._product,
            "div": self._quotient,
            "maximum": self._maximum,
            "minimum": self._maximum,
            "where": self._where,
        }
        if expr.op not in steps:
            raise ModelUnsupported(
                f"[verify {self.name}] expected operations on rows, got {expr.op}, which no value expresses; write the "
                "function with other operations"
            )
        return steps[expr.op](expr, side)

    def _widened(self, expr: Expr, width: int, side: Side) -> ir.Value:
        """Rows of this width: a single column is repeated."""
        value = self._on(expr, side)
        return value if value.width == width else linear(value, np.ones((width, 1)))

    def _take(self, expr: Expr, side: Side) -> ir.Value:
        x, columns = self._on(expr.inputs[0], side), expr.columns
        if columns == tuple(range(columns[0], columns[0] + len(columns))):
            return ir.Slice(x, columns[0], columns[0] + len(columns))
        return linear(x, np.eye(x.width)[list(columns)])

    def _over_columns(self, op: str, x: Expr, side: Side) -> ir.Value:
        if op == "sum_columns" and x.op == "mul" and not any(is_constant(each) for each in x.inputs):
            a, b = (self._widened(each, x.width, side) for each in x.inputs)
            return edges.HeadDot(a, b)
        row = self._on(x, side)
        if op == "sum_columns":
            return linear(row, np.ones((1, row.width)))
        sign = 1.0 if op == "max_columns" else -1.0
        columns = [ir.Slice(row, column, column + 1) for column in range(row.width)]
        return _negated(ir.Maximum(tuple(_negated(each, sign) for each in columns)), sign)

    def _sum(self, expr: Expr, side: Side) -> ir.Value:
        (a, b), sign = expr.inputs, -1.0 if expr.op == "sub" else 1.0
        if is_constant(b):
            return _affine(self._widened(a, expr.width, side), 1.0, sign * self.array(b))
        if is_constant(a):
            return _affine(self._widened(b, expr.width, side), sign, self.array(a))
        return ir.Combine(
            ((1.0, self._widened(a, expr.width, side)), (sign, self._widened(b, expr.width, side))),
        )

    def _product(self, expr: Expr, side: Side) -> ir.Value:
        a, b = expr.inputs
        if is_constant(a) or is_constant(b):
            factor, row = (a, b) if is_constant(a) else (b, a)
            return _affine(self._widened(row, expr.width, side), self.array(factor), 0.0)
        return self._times(self._on(a, side), self._on(b, side))

    def _times(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return ir.Multiply(a, b) if a.width >= b.width else ir.Multiply(b, a)

    def _quotient(self, expr: Expr, side: Side) -> ir.Value:
        a, b = expr.inputs
        if is_constant(b):
            divisor = self.array(b)
            if (divisor == 0).any():
                raise ModelUnsupported(
                    f"[verify {self.name}] expected divisors other than 0, got a division by the constant 0; mend the "
                    "constants of the functions"
                )
            return _affine(self._widened(a, expr.width, side), 1.0 / divisor, 0.0)
        inverse = ir.Activation(self._on(b, side), "reciprocal")
        if is_constant(a):
            inverse = ir.Activation(self._widened(b, expr.width, side), "reciprocal")
            return _affine(inverse, self.array(a), 0.0)
        return self._times(self._on(a, side), inverse)

    def _maximum(self, expr: Expr, side: Side) -> ir.Value:
        sign = 1.0 if expr.op == "maximum" else -1.0
        parts = tuple(_negated(self._widened(each, expr.width, side), sign) for each in expr.inputs)
        return _negated(ir.Maximum(parts), sign)

    # ---- truth values are columns of 0 and 1

    def _indicator(self, expr: Expr, side: Side) -> ir.Value:
        if expr.op == "not":
            return _affine(self._truth(expr.inputs[0], expr.width, side), -1.0, 1.0)
        if expr.op in ("and", "or"):
            left, right = (self._truth(each, expr.width, side) for each in expr.inputs)
            return ir.Multiply(left, right) if expr.op == "and" else ir.Maximum((left, right))
        a, b = expr.inputs
        if expr.op == "less":
            return _positive(self._sum(ex.elementwise("sub", b, a), side))
        difference = self._sum(ex.elementwise("sub", a, b), side)
        if expr.op == "equal":
            difference = ir.Activation(difference, "abs")
        return _affine(_positive(difference), -1.0, 1.0)

    def _truth(self, expr: Expr, width: int, side: Side) -> ir.Value:
        value = self._widened(expr, width, side)
        return value if expr.op in _INDICATORS else _positive(ir.Activation(value, "abs"))

    def _where(self, expr: Expr, side: Side) -> ir.Value:
        condition, a, b = expr.inputs
        if condition.op not in _INDICATORS:
            condition = self.simplifier.simple(
                ex.elementwise("not", ex.elementwise("equal", condition, ex.constant(0.0)))
            )
        other = self.simplifier.simple(ex.elementwise("not", condition))
        taken = ex.elementwise("mul", condition, self._guarded(a, condition))
        left = ex.elementwise("mul", other, self._guarded(b, other))
        whole = self.simplifier.simple(wide(ex.elementwise("add", taken, left), expr.width))
        return self._on(whole, side)

    def _guarded(self, expr: Expr, condition: Expr) -> Expr:
        """A branch whose exponents and divisors are multiplied by the condition: finite where it is not taken."""
        through = tuple(ex.ELEMENTWISE)  # a condition with columns of its own stays with them
        reached: set[int] = set()
        pending = [expr]
        while pending:
            each = pending.pop()
            if id(each) not in reached and each.inputs and (condition.width == 1 or each.op in through):
                reached.add(id(each))
                pending.extend(each.inputs)
        made: dict[int, Expr] = {}
        for each in ex.walk(expr):
            made[id(each)] = each
            if id(each) in reached:
                inputs = [made[id(before)] for before in each.inputs]
                if each.op in ("exp", "div"):
                    inputs[-1] = ex.elementwise("mul", inputs[-1], condition)
                made[id(each)] = ex.with_inputs(each, inputs)
        return self.simplifier.simple(made[id(expr)])


def linear(x: ir.Value, weight: Float64, bias: Float64 | None = None) -> ir.Linear:
    """W x + b with constants of the user's, checked and rounded to float32."""
    out = len(weight)
    shift = None if bias is None else ir.frozen_array(bias, "verify", (out,))
    return ir.Linear(x, ir.frozen_array(weight, "verify", (out, x.width)), shift)


def _affine(x: ir.Value, scale: Any, shift: Any) -> ir.Value:
    full, shape = np.ones(x.width), (x.width,)
    return ir.Affine(x, *(ir.frozen_array(full * each, "verify", shape) for each in (scale, shift)))


def _negated(x: ir.Value, sign: float) -> ir.Value:
    return x if sign == 1.0 else ir.Combine(((sign, x),))


def _positive(x: ir.Value) -> ir.Value:
    """1 where x > 0, else 0."""
    return ir.Activation(ir.Activation(_affine(x, _STEEP, 0.0), "hardtanh"), "relu")


def _log(x: ir.Value) -> ir.Value:
    above = ir.Activation(_affine(x, 1.0, -1.0), "log1p")
    below = ir.Activation(_affine(ir.Activation(x, "reciprocal"), 1.0, -1.0), "log1p")
    return ir.Combine(((1.0, above), (-1.0, below)))


def _number(expr: Expr) -> float | None:
    """The number that a constant has in all columns."""
    if expr.array is None or not is_constant(expr) or not np.all(expr.array == expr.array[0]):
        return None
    return float(expr.array[0])


def _activation(expr: Expr) -> tuple[str, Expr, float] | None:
    """(kind, of what, parameter) where the expression is a rectifier in one of its usual spellings."""
    if expr.op == "maximum":
        for x, other in (expr.inputs, expr.inputs[::-1]):
            slope = _slope(other, x)
            if is_constant(other, 0) and not is_constant(x):
                return "relu", x, 0.0
            if slope is not None and 0 <= slope <= 1:
                return "leaky_relu", x, slope
    if expr.op != "where":
        return None
    condition, x, other = expr.inputs
    if condition.op not in ("less", "less_equal") or not is_constant(condition.inputs[0], 0):
        return None
    if condition.inputs[1] is not x or is_constant(x):
        return None
    slope, alpha = _slope(other, x), _elu(other, x)
    if is_constant(other, 0):
        return "relu", x, 0.0
    if slope is not None:
        return "leaky_relu", x, slope
    return None if alpha is None else ("elu", x, alpha)


def _slope(expr: Expr, x: Expr) -> float | None:
    """s where the expression is s x."""
    if expr.op == "mul" and x in expr.inputs:
        return _number(expr.inputs[1] if expr.inputs[0] is x else expr.inputs[0])
    return None


def _elu(expr: Expr, x: Expr) -> float | None:
    """a where the expression is a (exp(x) - 1), or the same of min(x, 0)."""
    alpha: float | None = 1.0
    if expr.op == "mul":
        constants = [_number(each) for each in expr.inputs]
        alpha = constants[1] if constants[0] is None else constants[0]
        expr = expr.inputs[0] if constants[0] is None else expr.inputs[1]
    if alpha is None or expr.op != "sub" or expr.inputs[0].op != "exp" or not is_constant(expr.inputs[1], 1):
        return None
    power = expr.inputs[0].inputs[0]
    if power.op == "minimum" and is_constant(power.inputs[1], 0):
        power = power.inputs[0]
    return alpha if power is x else None
