"""What a user's function computes, as data: a small directed acyclic graph of row expressions.

An expression is one row of `width` real numbers per row of its inputs. Most are *row-local*. Inside `nbr_ctx` and
`aggregate` an expression may be *per edge* (one row for each in-edge of one vertex, `per_edge`); a reduction over edges
turns it into one row per vertex.

Invariants: expressions are immutable and compared by identity; constants are read-only float64; widths are checked when
an expression is made; in an elementwise operation an input of width 1 is repeated over the columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import WidthMismatch
from livegnn.models.ir import walk

Float64: TypeAlias = NDArray[np.float64]
T = TypeVar("T")


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


#: Elementwise operations. Comparisons and logic give 1 for true and 0 for false.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": lambda a, b: np.asarray(a < b, np.float64),
    "less_equal": lambda a, b: np.asarray(a <= b, np.float64),
    "equal": lambda a, b: np.asarray(a == b, np.float64),
    "not": lambda a: 1.0 - np.asarray(a != 0, np.float64),
    "and": lambda a, b: np.asarray((a != 0) & (b != 0), np.float64),
    "or": lambda a, b: np.asarray((a != 0) | (b != 0), np.float64),
    "where": lambda condition, a, b: np.where(condition != 0, a, b),
}

#: Reductions of a row to its one number.
OVER_COLUMNS: dict[str, Callable[..., Any]] = {"sum_columns": np.sum, "max_columns": np.max, "min_columns": np.min}


def _count(rows: Any, axis: int, keepdims: bool) -> Any:
    return np.full((1, 1), float(rows.shape[axis]))


#: Reductions of the rows of a neighbourhood to one row, and the operation that merges two results.
OVER_EDGES: dict[str, tuple[Callable[..., Any], str]] = {
    "count_edges": (_count, "add"),
    "sum_edges": (np.sum, "add"),
    "product_edges": (np.prod, "mul"),
    "max_edges": (np.max, "maximum"),
    "min_edges": (np.min, "minimum"),
}


@dataclass(frozen=True, eq=False)
class Expr:
    """One operation on rows.

    op: "variable" (`name`), "constant" (`array`: (width,)), "matmul" (x @ `array`: (in, width)), "take" (`columns` of
    x), "concat", a key of ELEMENTWISE, OVER_COLUMNS or OVER_EDGES.
    """

    op: str
    width: int
    inputs: tuple[Expr, ...] = ()
    per_edge: bool = False
    name: str = ""
    array: Float64 | None = None
    columns: tuple[int, ...] = ()

    def __add__(self, other: Expr) -> Expr:
        return elementwise("add", self, other)

    def __mul__(self, other: Expr) -> Expr:
        return elementwise("mul", self, other)


def variable(name: str, width: int, *, per_edge: bool = False) -> Expr:
    """The rows that the function is given under `name`."""
    return Expr("variable", width, per_edge=per_edge, name=name)


def constant(values: Any) -> Expr:
    """The same row for all: a number, or (w,) numbers. Raises: WidthMismatch for more dimensions."""
    array = np.array(values, dtype=np.float64)
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim > 1 or array.size == 0:
        raise WidthMismatch(f"[verify] expected a number or one row of numbers, got shape {array.shape}; reshape it")
    array = np.atleast_1d(array)
    array.flags.writeable = False
    return Expr("constant", array.size, array=array)


def elementwise(op: str, *inputs: Expr) -> Expr:
    """ELEMENTWISE[op] of the inputs. Raises: WidthMismatch for widths that are neither equal nor 1."""
    width = max(each.width for each in inputs)
    widths = [each.width for each in inputs]
    if any(each not in (1, width) for each in widths):
        raise WidthMismatch(f"[verify] expected rows of one width or 1 in {op}, got {widths}; check the columns")
    return Expr(op, width, inputs, per_edge=any(each.per_edge for each in inputs))


def matmul(x: Expr, weight: Any) -> Expr:
    """x @ weight with weight (x.width, out), a constant. Raises: WidthMismatch."""
    array = np.array(weight, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != x.width:
        raise WidthMismatch(
            f"[verify] expected a constant of shape ({x.width}, any) in a product, got {array.shape}; check the widths"
        )
    array.flags.writeable = False
    return Expr("matmul", array.shape[1], (x,), per_edge=x.per_edge, array=array)


def take(x: Expr, columns: Sequence[int]) -> Expr:
    """The named columns of x, in that order. Raises: WidthMismatch for one that x does not have, or for none."""
    chosen = tuple(int(column) for column in columns)
    if not chosen or not all(0 <= column < x.width for column in chosen):
        raise WidthMismatch(f"[verify] expected columns below {x.width}, got {list(chosen)}; check the columns")
    return Expr("take", len(chosen), (x,), per_edge=x.per_edge, columns=chosen)


def concat(inputs: Sequence[Expr]) -> Expr:
    """The rows of all inputs side by side."""
    per_edge = any(each.per_edge for each in inputs)
    return Expr("concat", sum(each.width for each in inputs), tuple(inputs), per_edge=per_edge)


def over_columns(op: str, x: Expr) -> Expr:
    """OVER_COLUMNS[op] of each row, width 1."""
    return Expr(op, 1, (x,), per_edge=x.per_edge)


def over_edges(op: str, x: Expr) -> Expr:
    """OVER_EDGES[op] over the rows of a neighbourhood; "count_edges" is their number."""
    return Expr(op, 1 if op == "count_edges" else x.width, (x,))


def fold(rule: Callable[[Expr, list[T]], T], *outputs: Expr) -> list[T]:
    """What a rule makes of each output, from what it makes of the inputs of each expression."""
    made: dict[int, T] = {}
    for each in walk(*outputs):
        made[id(each)] = rule(each, [made[id(before)] for before in each.inputs])
    return [made[id(output)] for output in outputs]


def evaluate(expr: Expr, rows: Mapping[str, Any]) -> Float64:
    """The value in float64 NumPy.

    Args:     rows: name -> (N, w) for every variable; (k, w) for those per edge.
    Returns:  (N, width); (k, width) if per edge; (1, width) after a reduction over edges.
    """
    (value,) = fold(lambda each, inputs: _value(each, inputs, rows), expr)
    return np.asarray(value, np.float64)


def _value(expr: Expr, inputs: list[Any], rows: Mapping[str, Any]) -> Any:
    if expr.op == "variable":
        return np.asarray(rows[expr.name], np.float64)
    if expr.op == "constant":
        assert expr.array is not None
        return expr.array[None, :]
    if expr.op == "matmul":
        return inputs[0] @ expr.array
    if expr.op == "take":
        return inputs[0][:, list(expr.columns)]
    if expr.op == "concat":
        count = max(len(each) for each in inputs)
        return np.concatenate([np.broadcast_to(each, (count, each.shape[1])) for each in inputs], axis=1)
    if expr.op in OVER_COLUMNS:
        return OVER_COLUMNS[expr.op](inputs[0], axis=1, keepdims=True)
    if expr.op in OVER_EDGES:
        return OVER_EDGES[expr.op][0](inputs[0], axis=0, keepdims=True)
    return ELEMENTWISE[expr.op](*inputs)


def with_inputs(expr: Expr, inputs: Sequence[Expr]) -> Expr:
    """The same operation on other inputs."""
    if all(new is old for new, old in zip(inputs, expr.inputs, strict=True)):
        return expr
    if expr.op == "matmul":
        return matmul(inputs[0], expr.array)
    if expr.op == "take":
        return take(inputs[0], expr.columns)
    if expr.op == "concat":
        return concat(inputs)
    if expr.op in OVER_COLUMNS:
        return over_columns(expr.op, inputs[0])
    return over_edges(expr.op, inputs[0]) if expr.op in OVER_EDGES else elementwise(expr.op, *inputs)


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """The expression with variables replaced by name. Raises: WidthMismatch for one of another width."""

    def replaced(each: Expr, inputs: list[Expr]) -> Expr:
        new = replacements.get(each.name) if each.op == "variable" else None
        if new is not None and new.width != each.width:
            raise WidthMismatch(
                f"[verify] expected {each.name} of width {each.width}, got {new.width}; check the functions' widths"
            )
        return new or with_inputs(each, inputs)

    return fold(replaced, expr)[0]


def unroll(expr: Expr, name: str, rows: Sequence[Expr]) -> Expr:
    """A function of a neighbourhood, written out for the given rows of its variable `name`.

    Returns:  an expression without reductions over edges; k rows of its variables' own.
    """

    def written_out(each: Expr, inputs: list[list[Expr]]) -> list[Expr]:
        if each.op == "variable" and each.name == name:
            return list(rows)
        if each.op in OVER_EDGES:
            parts = [constant(1.0)] * len(rows) if each.op == "count_edges" else inputs[0]
            return [functools.reduce(lambda a, b: elementwise(OVER_EDGES[each.op][1], a, b), parts)]
        count = max((len(part) for part in inputs), default=1)
        return [with_inputs(each, [part[row if len(part) > 1 else 0] for part in inputs]) for row in range(count)]

    return fold(written_out, expr)[0][0]


def reads(expr: Expr, column: int) -> list[tuple[Expr, int]]:
    """The columns of its inputs that one column of an expression is computed from."""
    if expr.op in ELEMENTWISE:
        return [(each, column if each.width > 1 else 0) for each in expr.inputs]
    every = [(each, at) for each in expr.inputs for at in range(each.width)]
    if expr.op == "take":
        return [every[expr.columns[column]]]
    return [every[column]] if expr.op == "concat" else every


def narrow(*exprs: Expr) -> list[Expr] | None:
    """The same expressions on one column, where all columns are treated alike; None where they are not.

    A statement about such expressions holds for every column if it holds for one: each is elementwise, and every
    constant has the same number in all columns.
    """
    variables: dict[str, Expr] = {}

    def on_one(each: Expr, inputs: list[Expr | None]) -> Expr | None:
        if each.op == "variable":
            return variables.setdefault(each.name, variable(each.name, 1, per_edge=each.per_edge))
        if each.op == "constant" and each.array is not None and np.all(each.array == each.array[0]):
            return constant(each.array[0])
        known = [one for one in inputs if one is not None]
        alike = each.op in ELEMENTWISE or each.op in OVER_EDGES
        return with_inputs(each, known) if alike and len(known) == len(inputs) else None

    made = [each for each in fold(on_one, *exprs) if each is not None]
    return made if len(made) == len(exprs) else None
