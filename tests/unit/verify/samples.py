"""Random expressions, and the operators that several tests look at."""

import functools

import numpy as np
from hypothesis import strategies as st

from livegnn.verify import Operator, prove
from livegnn.verify import expr as ex
from livegnn.verify.examples import example

UNARY = ("neg", "abs", "exp", "tanh", "sigmoid", "sqrt", "log")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "less", "less_equal", "equal")


@st.composite
def expressions(draw, names=("x", "y"), width=2, depth=3):
    """Row-local expressions in variables of one width."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if draw(st.booleans()):
            return ex.variable(draw(st.sampled_from(names)), width)
        return ex.constant(draw(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.0]), min_size=width, max_size=width)))
    inner = expressions(names=names, width=width, depth=depth - 1)
    kind = draw(st.sampled_from(["unary", "binary", "binary", "where", "matmul", "take", "columns"]))
    if kind == "unary":
        return ex.elementwise(draw(st.sampled_from(UNARY)), draw(inner))
    if kind == "binary":
        return ex.elementwise(draw(st.sampled_from(BINARY)), draw(inner), draw(inner))
    if kind == "where":
        return ex.elementwise("where", draw(inner), draw(inner), draw(inner))
    if kind == "matmul":
        weight = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=width * width, max_size=width * width))
        return ex.matmul(draw(inner), np.reshape(weight, (width, width)))
    if kind == "take":
        return ex.take(draw(inner), draw(st.lists(st.integers(0, width - 1), min_size=width, max_size=width)))
    op = draw(st.sampled_from(sorted(ex.OVER_COLUMNS)))
    return ex.concat([ex.over_columns(op, draw(inner))] * width)


@functools.cache
def table_report(name):
    """The verdict on a row of Table II, found once for all tests."""
    return prove(example(name).operator(), tests=60)


def mean(**changes):
    """GraphSAGE's mean with its count, and whatever a test changes in it."""
    given = {
        "source_nn": lambda h_u: h_u,
        "nbr_ctx": "count",
        "msg_cbn": lambda nct, mlc: mlc / nct,
        "msg_cbn_inverse": lambda nct, msg: msg * nct,
    }
    return Operator(3, **{**given, **changes})
