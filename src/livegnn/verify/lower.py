"""Row expressions as values that the engine runs.

An expression over variables of one end of an edge becomes rows of vertices, computed once per vertex; only what mixes
the ends, or reads the edge, becomes rows of edges. Each operation is one value of `livegnn.models.ir`, or a few
(`_OPERATIONS`). Comparisons and logic give columns of 0 and 1.

Invariants: where a function has no value (a division by 0, the root or logarithm of a negative number, log 0), these
rows hold 0 for that operation and never NaN. All else is the function itself, with its constants rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.errors import ModelUnsupported
from livegnn.models import edges, ir
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.simplify import Simplifier, is_constant, variables

Side: TypeAlias = Literal["source", "target", "edge"]
_ACTIVATIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs")


def _elementwise(kind: str, *xs: ir.Value) -> ir.Value:
    return ir.Elementwise(kind, xs)


def _truth(x: ir.Value) -> ir.Value:
    return _elementwise("divide", x, x)


def _not(x: ir.Value) -> ir.Value:
    return _affine(x, -1.0, 1.0)


#: What an operation on columns becomes; an operand may be one column, which counts for all.
_OPERATIONS: dict[str, Callable[..., ir.Value]] = {
    "neg": lambda a: ir.Combine(((-1.0, a),)),
    "div": lambda a, b: _elementwise("divide", a, b),
    "minimum": lambda a, b: _elementwise("minimum", a, b),
    "where": lambda condition, a, b: _elementwise("where", condition, a, b),
    "less": lambda a, b: _elementwise("less", a, b),
    "less_equal": lambda a, b: _not(_elementwise("less", b, a)),
    "equal": lambda a, b: _not(_or(_elementwise("less", a, b), _elementwise("less", b, a))),
    "not": lambda a: _not(_truth(a)),
    "and": lambda a, b: _elementwise("minimum", _truth(a), _truth(b)),
    "or": lambda a, b: _or(a, b),
}


def _or(a: ir.Value, b: ir.Value) -> ir.Value:
    return _elementwise("where", a, _truth(a), _truth(b))


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
    _values: dict[Expr, ir.Value] = field(default_factory=dict)  # where the expression's own side is
    _taken: dict[Expr, ir.Value] = field(default_factory=dict)  # the same, taken to the edge
    _sides: dict[Expr, Side | None] = field(default_factory=dict)
    _numbers: dict[float, Expr] = field(default_factory=dict)  # one column each

    def side(self, expr: Expr) -> Side | None:
        """Where all that the expression reads stands; None for a constant, "edge" for more than one end."""
        if expr not in self._sides:
            sides = {self.rows[name][0] for name in variables(expr)}
            self._sides[expr] = None if not sides else sides.pop() if len(sides) == 1 else "edge"
        return self._sides[expr]

    def of_vertices(self, expr: Expr, replacements: Mapping[str, Expr] | None = None) -> ir.Value:
        """Rows of vertices, of an expression over variables of one end."""
        return self._value(self.simplifier.simple(expr, replacements))

    def of_edges(self, expr: Expr) -> ir.Value:
        """Rows of edges."""
        return self._on(expr, "edge")

    # ---- where rows stand

    def _on(self, expr: Expr, side: Side) -> ir.Value:
        """The expression's rows, taken to `side`."""
        made, own = self._value(expr), self.side(expr)
        if side != "edge" or own == "edge":
            return made
        if expr not in self._taken:
            self._taken[expr] = edges.Target(made) if own == "target" else edges.Source(made)
        return self._taken[expr]

    def _constant(self, expr: Expr) -> ir.Value:
        """The same row for every vertex."""
        constant = self.array(expr)
        return linear(self.one, np.zeros((len(constant), 1)), constant)

    def array(self, expr: Expr) -> Float64:
        """The numbers of a constant. Raises: ModelUnsupported for one that is not finite."""
        if expr.array is None or not is_constant(expr) or not np.isfinite(expr.array).all():
            raise ModelUnsupported(
                f"[verify {self.name}] expected finite constants, got one that is computed by {expr.op} and has no "
                "value; fix the constants of the functions"
            )
        return expr.array

    def _value(self, expr: Expr) -> ir.Value:
        side = self.side(expr)
        if expr not in self._values:
            self._values[expr] = self._constant(expr) if side is None else self._computed(expr, side)
        return self._values[expr]

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
        if expr.op in _ACTIVATIONS:
            return ir.Activation(self._on(x, side), expr.op)
        known = _activation(expr)
        if known is not None:
            kind, inner, param = known
            return ir.Activation(self._widened(inner, expr.width, side), kind, param)
        steps = {"add": self._sum, "sub": self._sum, "mul": self._product, "maximum": self._maximum}
        if expr.op == "div" and is_constant(expr.inputs[1]):
            return self._share(expr, side)
        if expr.op in steps:
            return steps[expr.op](expr, side)
        if expr.op not in _OPERATIONS:
            raise ModelUnsupported(
                f"[verify {self.name}] expected operations on rows, got {expr.op}, which no value expresses; write the "
                "function with other operations"
            )
        return _OPERATIONS[expr.op](*(self._operand(each, side) for each in expr.inputs))

    def _operand(self, expr: Expr, side: Side) -> ir.Value:
        """The rows as they are; of a constant with one number, one column."""
        number = _number(expr)
        return self._on(expr if number is None else self._numbers.setdefault(number, ex.constant(number)), side)

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
        columns: list[ir.Value] = [ir.Slice(row, column, column + 1) for column in range(row.width)]
        return ir.Maximum(tuple(columns)) if op == "max_columns" else reduce(_OPERATIONS["minimum"], columns)

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
        wide, narrow = sorted((self._on(a, side), self._on(b, side)), key=lambda value: -value.width)
        return ir.Multiply(wide, narrow)

    def _share(self, expr: Expr, side: Side) -> ir.Value:
        """Rows divided by a constant."""
        divisor = self.array(expr.inputs[1])
        if (divisor == 0).any():
            raise ModelUnsupported(
                f"[verify {self.name}] expected divisors other than 0, got a division by the constant 0; fix the "
                "constants of the functions"
            )
        return _affine(self._widened(expr.inputs[0], expr.width, side), 1.0 / divisor, 0.0)

    def _maximum(self, expr: Expr, side: Side) -> ir.Value:
        return ir.Maximum(tuple(self._widened(each, expr.width, side) for each in expr.inputs))


def linear(x: ir.Value, weight: Float64, bias: Float64 | None = None) -> ir.Linear:
    """W x + b with constants of the user's, checked and rounded to float32."""
    out = len(weight)
    shift = None if bias is None else ir.frozen_array(bias, "verify", (out,))
    return ir.Linear(x, ir.frozen_array(weight, "verify", (out, x.width)), shift)


def _affine(x: ir.Value, scale: Any, shift: Any) -> ir.Value:
    full, shape = np.ones(x.width), (x.width,)
    return ir.Affine(x, *(ir.frozen_array(full * each, "verify", shape) for each in (scale, shift)))


def _number(expr: Expr) -> float | None:
    """The number that a constant has in all columns."""
    if expr.array is None or not is_constant(expr) or not np.all(expr.array == expr.array[0]):
        return None
    return float(expr.array[0])


def _activation(expr: Expr) -> tuple[str, Expr, float] | None:
    """(kind, of what, parameter) where the expression is a rectifier in one of its usual spellings."""
    if expr.op == "maximum":
        for x, below in (expr.inputs, expr.inputs[::-1]):
            kind, param = _rectifier(x, below)
            if kind == "relu" or (kind == "leaky_relu" and 0 <= param <= 1):
                return kind, x, param
    if expr.op == "where" and expr.inputs[0].op in ("less", "less_equal"):
        (zero, upper), x, below = expr.inputs[0].inputs, *expr.inputs[1:]
        kind, param = _rectifier(x, below)
        if kind and upper is x and is_constant(zero, 0):
            return kind, x, param
    return None


def _rectifier(x: Expr, below: Expr) -> tuple[str, float]:
    """Kind and parameter of the rectifier that is x above 0 and `below` under it; "" for another function."""
    if is_constant(x):
        return "", 0.0
    if is_constant(below, 0):
        return "relu", 0.0
    factor: float | None = 1.0
    if below.op == "mul":
        constant, below = below.inputs if _number(below.inputs[0]) is not None else below.inputs[::-1]
        factor = _number(constant)
        if below is x and factor is not None:
            return "leaky_relu", factor
    if factor is None or below.op != "sub" or below.inputs[0].op != "exp" or not is_constant(below.inputs[1], 1):
        return "", 0.0
    power = below.inputs[0].inputs[0]  # exp(x) - 1, or the same of min(x, 0)
    if power.op == "minimum" and is_constant(power.inputs[1], 0):
        power = power.inputs[0]
    return ("elu", factor) if power is x else ("", 0.0)
