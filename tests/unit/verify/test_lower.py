"""Lowered expressions compute what the expressions say, wherever those have a value."""

import numpy as np
import pytest
from hypothesis import assume, given, settings

from livegnn.errors import ModelError, ModelUnsupported
from livegnn.inference.predict import headed
from livegnn.models import edges, ir
from livegnn.models.truth import EdgeList, true_rows
from livegnn.verify import expr as ex
from livegnn.verify.lower import Lowering
from livegnn.verify.simplify import Simplifier, variables
from livegnn.verify.tracer import trace
from livegnn.verify.weights import by_weight
from tests.unit.verify.samples import expressions

NOTHING = EdgeList(np.zeros(0, np.int64), np.zeros(0, np.int64))
ROWS = {
    "x": np.array([[0.3, -1.7], [2.1, 0.9], [0.0, 0.0], [-3.3, 5.2]]),
    "y": np.array([[1.9, 0.4], [-0.6, 0.9], [0.0, 1.0], [2.4, -5.2]]),
}


def lowering():
    features = ir.Input(4)
    one = ir.Affine(ir.Slice(features, 0, 1), [0.0], [1.0])
    rows = {"x": ("target", ir.Slice(features, 0, 2)), "y": ("target", ir.Slice(features, 2, 4))}
    return Lowering("test", one, rows)


def computed(expr):
    value = lowering().of_vertices(expr)
    got = true_rows(value, np.concatenate([ROWS["x"], ROWS["y"]], axis=1), NOTHING)
    assert got.shape == (4, expr.width)
    return got


def written(function):
    return trace(function, {"x": ex.variable("x", 2), "y": ex.variable("y", 2)})


@settings(max_examples=150)
@given(expressions())
def test_random_expressions(expr):
    largest = 0.0
    for each in ex.walk(expr):
        with np.errstate(all="ignore"):
            part = ex.evaluate(each, ROWS)
        assume(np.isfinite(part).all())
        largest = max(largest, float(np.abs(part).max()))
        if each.op in ("less", "less_equal", "equal"):  # where two sides are near, rounding decides
            gap = np.abs(ex.evaluate(each.inputs[0], ROWS) - ex.evaluate(each.inputs[1], ROWS))
            assume((gap > 1e-6).all())
    assume(largest < 1e4)
    expected = np.broadcast_to(ex.evaluate(expr, ROWS), (4, expr.width))
    assert np.allclose(computed(expr), expected, rtol=1e-6, atol=1e-6 * (1 + largest))


CASES = {
    "equal numbers": lambda x, y: np.where(x == y, 2.0, 3.0) + np.where(x <= y, 10.0, 20.0) + (x < y),
    "logic": lambda x, y: ((x > 0) & (y > 0)) + 2.0 * ((x > 0) | (y > 0)) + 4.0 * ~(x > 0),
    "a branch that overflows": lambda x, y: np.where(x > 0, y, np.exp(800 * x)),
    "a branch that divides by 0": lambda x, y: np.where(x != 0, y / x, -1.0),
    "a mask of rows": lambda x, y: np.where(
        x[:, :1] > 0, np.exp(300 * np.minimum(x, 3)).sum(axis=1, keepdims=True) * 1e-300, y
    ),
    "a mask of columns before a sum": lambda x, y: np.where(
        x > 0, np.exp(y).sum(axis=1, keepdims=True) + np.exp(x @ np.eye(2)[::-1]), y
    ),
    "numbers as truth": lambda x, y: np.where(x, y, 7.0),
    "extremes of columns": lambda x, y: np.concatenate(
        [x.max(axis=1, keepdims=True), y.min(axis=1, keepdims=True), x[:, ::-1]], axis=1
    ),
    "squares and lengths": lambda x, y: np.linalg.norm(x, axis=1, keepdims=True) * y**2 - (x * y).sum(1, keepdims=True),
    "rectifiers": lambda x, y: (
        np.maximum(x, 0) + np.maximum(0.1 * y, y) + np.where(x > 0, x, 0) + np.where(y >= 0, y, 3 * y)
    ),
    "exponential rectifiers": lambda x, y: (
        np.where(x > 0, x, np.exp(x) - 1) + np.where(y > 0, y, 0.5 * (np.exp(np.minimum(y, 0)) - 1))
    ),
    "logarithms": lambda x, y: np.log(np.abs(x) + 1e-3) + np.log1p(np.abs(y)),
    "constants": lambda x, y: 1 / (1 + np.exp(-x)) + np.array([1.0, 2.0]) / (3 + y * y) - np.clip(y, -1, 1),
    "a constant alone": lambda x, y: np.full_like(x, 3.0),
}


@pytest.mark.parametrize("name", list(CASES))
def test_written_functions(name):
    expr = written(CASES[name])
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(ex.evaluate(expr, ROWS), (4, expr.width))
    assert np.isfinite(expected).all()
    assert np.allclose(computed(expr), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name != "a mask of rows"])  # beyond float32
def test_written_functions_run_natively(name):
    expr, rows = written(CASES[name]), np.concatenate([ROWS["x"], ROWS["y"]], axis=1).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = ex.evaluate(expr, {"x": rows[:, :2], "y": rows[:, 2:]})
    got = headed(lowering().of_vertices(expr), rows)
    assert np.allclose(got, np.broadcast_to(expected, got.shape), rtol=1e-5, atol=1e-5)


def test_each_operation_is_one_value():
    for function, count in (
        (lambda x, y: np.log(x), 1),
        (lambda x, y: x / y, 1),
        (lambda x, y: np.minimum(x, y), 1),
        (lambda x, y: np.where(x < y, x, y), 2),
    ):
        values = ir.walk(lowering().of_vertices(written(function)))
        assert sum(isinstance(value, ir.Activation | ir.Elementwise) for value in values) == count


def test_where_a_function_has_no_value_the_operation_gives_0():
    assert computed(written(lambda x, y: 1 / x))[2].tolist() == [0.0, 0.0]
    assert computed(written(lambda x, y: np.sqrt(x)))[3, 0] == 0.0
    assert computed(written(lambda x, y: np.log(x)))[2:, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (lambda x, y: np.maximum(x, 0), ["relu"]),
        (lambda x, y: np.maximum(x, 0.2 * x), ["leaky_relu"]),
        (lambda x, y: np.where(x > 0, x, x * 0.2), ["leaky_relu"]),
        (lambda x, y: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1), ["elu"]),
        (lambda x, y: np.where(x > 0, x, 2 * (np.exp(x) - 1)), ["elu"]),
        (lambda x, y: np.tanh(x) + np.tanh(x), ["tanh"]),  # computed once
    ],
)
def test_usual_spellings_become_one_value(function, kinds):
    values = ir.walk(lowering().of_vertices(written(function)))
    assert [value.kind for value in values if isinstance(value, ir.Activation)] == kinds


def test_what_one_end_tells_is_computed_at_the_vertex():
    made = lowering()
    made.rows["y"] = ("source", made.rows["y"][1])
    value = made.of_edges(made.simplifier.simple(written(lambda x, y: np.tanh(x) * np.exp(y) + np.tanh(x))))
    at_ends = [type(each) for each in ir.walk(value) if isinstance(each, edges.Source | edges.Target)]
    assert at_ends == [edges.Target, edges.Source]
    standing = {type(each).__name__: each.on_edges for each in ir.walk(value)}
    assert not standing["Activation"]
    assert standing["Multiply"]


@pytest.mark.parametrize("function", [lambda x, y: x / 0.0, lambda x, y: x + np.log(-1.0), lambda x, y: x * np.inf])
def test_constants_without_a_value_are_refused(function):
    with np.errstate(all="ignore"), pytest.raises(ModelError, match=r"constant|finite"):
        lowering().of_vertices(written(function))


def test_other_operations_are_refused_by_name():
    with pytest.raises(ModelUnsupported, match="sum_edges, which no value expresses"):
        lowering().of_vertices(ex.over_edges("sum_edges", ex.variable("x", 2)))


@settings(max_examples=100)
@given(expressions())
def test_simple_expressions_are_equal_and_share_their_parts(expr):
    simplifier = Simplifier()
    made = simplifier.simple(expr)
    assert simplifier.simple(made) is made
    assert made.width == expr.width
    with np.errstate(all="ignore"):
        parts = [ex.evaluate(each, ROWS) for each in ex.walk(expr)]
        got = ex.evaluate(made, ROWS)
    assume(all(np.isfinite(part).all() for part in parts))
    assert np.allclose(np.broadcast_to(got, (4, made.width)), np.broadcast_to(parts[-1], (4, made.width)))


def test_types_that_are_known_take_their_branch():
    expr = trace(
        lambda x, kind: kind[:, 0:1] * np.tanh(x) + kind[:, 1:2] * np.exp(x) + np.where(kind[:, :1] > 0, x, 2.0),
        {"x": ex.variable("x", 2), "kind": ex.variable("kind", 2)},
    )
    made = Simplifier().simple(expr, {"kind": ex.constant([0.0, 1.0])})
    assert variables(made) == {"x"}
    assert sorted(each.op for each in ex.walk(made)) == ["add", "constant", "exp", "variable"]


WEIGHTED = {
    "product": lambda x, weight: weight * np.tanh(x),
    "sum": lambda x, weight: (x - weight) * 2 + weight / (1 + x * x),
    "difference": lambda x, weight: 1 - weight * x[:, :1],
    "columns": lambda x, weight: np.concatenate([weight * x, x], axis=1) @ np.arange(8.0).reshape(4, 2),
    "total": lambda x, weight: -(weight * x).sum(axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", list(WEIGHTED))
def test_messages_linear_in_the_weight_come_apart(name):
    expr = trace(WEIGHTED[name], {"x": ex.variable("x", 2), "weight": ex.variable("weight", 1)})
    made = lowering()
    made.rows = {"x": ("source", made.rows["x"][1]), "weight": ("edge", edges.EdgeWeight())}
    parts = by_weight(expr, made.side)
    assert parts is not None
    weight = np.array([[0.5], [-2.0], [3.0], [0.0]])
    plain, scaled = (0.0 if part is None else ex.evaluate(part, ROWS) for part in parts)
    assert np.allclose(plain + weight * scaled, ex.evaluate(expr, {**ROWS, "weight": weight}))
    assert all(part is None or "weight" not in variables(part) for part in parts)


@pytest.mark.parametrize("function", [lambda x, weight: weight * weight * x, lambda x, weight: np.exp(weight) + x])
def test_messages_not_linear_in_the_weight_do_not(function):
    expr = trace(function, {"x": ex.variable("x", 2), "weight": ex.variable("weight", 1)})
    made = lowering()
    made.rows = {"x": ("source", made.rows["x"][1]), "weight": ("edge", edges.EdgeWeight())}
    assert by_weight(expr, made.side) is None
