"""Which signs an expression can have, for all inputs: a sound over-approximation, in one pass over the graph.

The set of possible signs is a subset of {-1, 0, 1}. The solver assumes it of messages and contexts, however
wide the matrices before them are: exp and sigmoid are positive, squares and absolute values are not negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from livegnn.verify.expr import ELEMENTWISE, Expr, fold

Signs: TypeAlias = frozenset[int]
ANY: Signs = frozenset((-1, 0, 1))
POSITIVE: Signs = frozenset((1,))
NOT_NEGATIVE: Signs = frozenset((0, 1))


def of_array(array: ArrayLike) -> Signs:
    """The signs that occur among the numbers of an array."""
    return frozenset(int(sign) for sign in np.unique(np.sign(np.asarray(array))))


def _elementwise(op: str, *inputs: Signs) -> Signs:
    """The signs of an operation on all numbers of these signs: it does on a few of them what it does on any."""
    numbers = [[sign * size for sign in one for size in (0.5, 1.0, 2.0)] for one in inputs]
    with np.errstate(all="ignore"):
        found = ELEMENTWISE[op](*np.array(list(product(*numbers))).T)
    return of_array(found[np.isfinite(found)]) or ANY  # the others are not defined


def _total(x: Signs) -> Signs:
    """Of a sum of any number of them, at least one."""
    return _elementwise("add", x, x)


def _of(expr: Expr, inputs: list[Signs]) -> Signs:
    if expr.op == "mul" and expr.inputs[0] is expr.inputs[1]:
        return frozenset(sign * sign for sign in inputs[0])
    if expr.op in ELEMENTWISE:
        return _elementwise(expr.op, *inputs)
    if expr.op == "matmul":
        assert expr.array is not None
        return _total(_elementwise("mul", inputs[0], of_array(expr.array)))
    if expr.op in ("sum_columns", "sum_edges"):
        return _total(inputs[0])
    if expr.op == "product_edges":
        return _elementwise("mul", inputs[0], inputs[0]) | inputs[0]
    return POSITIVE if expr.op == "count_edges" else frozenset().union(*inputs)


def signs(expr: Expr, inputs: Mapping[str, Signs]) -> Signs:
    """The signs that the expression may have where it is defined; a variable without an entry may have any."""

    def rule(each: Expr, before: list[Signs]) -> Signs:
        if each.op == "variable":
            return inputs.get(each.name, ANY)
        return _of(each, before) if each.array is None or before else of_array(each.array)

    return fold(rule, expr)[0]
