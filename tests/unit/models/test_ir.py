"""Values check themselves when they are made."""

import numpy as np
import pytest

from livegnn.errors import ModelError, WidthMismatch
from livegnn.models import ir

x = ir.Input(3)


def test_walk_lists_every_value_once_and_after_its_inputs():
    a = ir.Linear(x, np.ones((3, 3)))
    b = ir.Combine(((1.0, a), (2.0, x)))
    c = ir.Concat((b, a, x))
    order = ir.walk(c)
    assert order == [x, a, b, c]
    assert ir.walk(c, a) == order


def test_a_long_chain_does_not_overflow_the_stack():
    value = x
    for _ in range(5000):
        value = ir.Activation(value, "relu")
    assert len(ir.walk(value)) == 5001


def test_arrays_become_read_only_contiguous_float32():
    given = np.asfortranarray(np.ones((2, 3), np.float64))
    weight = ir.Linear(x, given, np.zeros(2)).weight
    assert weight.dtype == np.float32
    assert weight.flags.c_contiguous
    assert not weight.flags.writeable
    given[:] = 7
    assert weight[0, 0] == 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ir.Input(0), WidthMismatch, "width of at least 1"),
        (
            lambda: ir.Linear(x, np.ones((2, 4))),
            WidthMismatch,
            r"Linear.weight\] expected shape \('any', 3\), got \(2, 4\)",
        ),
        (lambda: ir.Linear(x, np.ones((2, 3)), np.ones(3)), WidthMismatch, r"Linear.bias\] expected shape \(2,\)"),
        (lambda: ir.Linear(x, np.full((2, 3), np.nan)), ModelError, "finite weights"),
        (lambda: ir.Linear(x, np.full((2, 3), 1e39)), ModelError, "finite weights"),
        (lambda: ir.Linear(x, np.ones((2, 3), complex)), ModelError, "real numbers"),
        (lambda: ir.Linear("x", np.ones((2, 3))), AttributeError, "width"),
        (lambda: ir.Activation(x, "cube"), ModelError, "expected one of relu"),
        (lambda: ir.Activation(x, "elu", np.inf), ModelError, "finite number"),
        (lambda: ir.Activation(x, "softplus"), ModelError, "beta above 0"),
        (lambda: ir.LayerNorm(x, eps=-1.0), ModelError, "not below 0"),
        (lambda: ir.Combine(()), ModelError, "at least one value"),
        (lambda: ir.Combine(((1.0, x), (1.0, ir.Input(2)))), WidthMismatch, r"one width, got \[3, 2\]"),
        (lambda: ir.Multiply(x, ir.Input(2)), WidthMismatch, "width 3 or 1, got 2"),
        (lambda: ir.Elementwise("divide", (x, ir.Input(2))), WidthMismatch, r"one width, got \[3, 2\]"),
        (lambda: ir.Elementwise("where", (x, x)), ModelError, "where of 3 values, got .where. of 2"),
        (lambda: ir.Slice(x, 1, 4), WidthMismatch, "1:4"),
        (lambda: ir.Propagate(x, "max"), ModelError, "sum, mean, gcn, laplacian, walk or difference"),
        (lambda: ir.Propagate(x, "mean", self_loops=True), ModelError, "norm gcn or a sum"),
        (lambda: ir.Propagate(x, "sum", self_loops=True, reduce="max"), ModelError, "got sum and max"),
    ],
)
def test_what_does_not_fit_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
