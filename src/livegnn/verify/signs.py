"""Which signs an expression can have, for all inputs: a sound over-approximation, in one pass over the graph.

The set of possible signs is a subset of {-1, 0, 1}. The solver assumes it of messages and contexts, however
wide the matrices before them are: exp and sigmoid are positive, squares and absolute values are not negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from livegnn.verify.expr import OVER_EDGES, Expr, fold

__all__ = ["ANY", "NOT_NEGATIVE", "POSITIVE", "Signs", "of_array", "signs"]

Signs: TypeAlias = frozenset[int]
ANY: Signs = frozenset((-1, 0, 1))
POSITIVE: Signs = frozenset((1,))
NOT_NEGATIVE: Signs = frozenset((0, 1))


def of_array(array: ArrayLike) -> Signs:
    """The signs that occur among the numbers of an array."""
    return frozenset(int(sign) for sign in np.unique(np.sign(np.asarray(array))))


def _sum(a: int, b: int) -> Signs:
    if a == 0 or b == 0 or a == b:
        return frozenset((a or b,))
    return ANY


def _pairs(rule: Callable[[int, int], Signs], left: Signs, right: Signs) -> Signs:
    found: Signs = frozenset()
    return found.union(*(rule(a, b) for a, b in product(left, right)))


def _each(rule: Callable[..., int], *operands: Signs) -> Signs:
    return frozenset(rule(*chosen) for chosen in product(*operands))


def _total(x: Signs) -> Signs:
    """Of a sum of any number of them, at least one."""
    return _pairs(_sum, x, x)


def _of(expr: Expr, inputs: list[Signs]) -> Signs:
    op = expr.op
    if op in ("exp", "sigmoid", "count_edges"):
        return POSITIVE
    if op in ("sqrt", "abs"):
        return _each(abs, inputs[0])
    if op == "tanh":
        return inputs[0]
    if op == "neg":
        return _each(lambda a: -a, inputs[0])
    if op in ("add", "sub"):
        right = inputs[1] if op == "add" else _each(lambda a: -a, inputs[1])
        return _pairs(_sum, inputs[0], right)
    if op == "mul" and expr.inputs[0] is expr.inputs[1]:
        return _each(lambda a: a * a, inputs[0])
    if op in ("mul", "div"):
        return _each(lambda a, b: a * b, inputs[0], inputs[1])
    if op in ("maximum", "minimum"):
        return _each(max if op == "maximum" else min, inputs[0], inputs[1])
    if op in ("less", "less_equal", "equal", "and", "or", "not"):
        return NOT_NEGATIVE
    if op == "where":
        return inputs[1] | inputs[2]
    if op == "matmul":
        assert expr.array is not None
        return _total(_each(lambda a, b: a * b, inputs[0], of_array(expr.array)))
    if op in ("sum_columns", "sum_edges"):
        return _total(inputs[0])
    if op == "product_edges":
        return _each(lambda a, b: a * b, inputs[0], inputs[0]) | inputs[0]
    if op in ("take", "concat", "max_columns", "min_columns") or op in OVER_EDGES:
        return frozenset().union(*inputs)
    return ANY


def signs(expr: Expr, inputs: Mapping[str, Signs]) -> Signs:
    """The signs that the expression may have where it is defined; a variable without an entry may have any."""

    def rule(each: Expr, before: list[Signs]) -> Signs:
        if each.op == "variable":
            return inputs.get(each.name, ANY)
        return _of(each, before) if each.array is None or before else of_array(each.array)

    return fold(rule, expr)[0]
