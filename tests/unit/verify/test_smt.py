"""The solver proves what is true of the real functions, and nothing that a number contradicts."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn.errors import DataMissing
from livegnn.verify import expr as ex
from livegnn.verify.signs import NOT_NEGATIVE, POSITIVE
from livegnn.verify.smt import SolverQuery, VariableFacts, solve
from tests.unit.verify.samples import expressions

x, y, z = (ex.variable(name, 1) for name in "xyz")
one, zero = ex.constant(1.0), ex.constant(0.0)


def f(op, *inputs):
    return ex.elementwise(op, *inputs)


EQUAL = {
    "commutes": (f("mul", x, y), f("mul", y, x), {}),
    "distributes": (f("div", f("add", x, y), z), f("add", f("div", x, z), f("div", y, z)), {}),
    "cancels": (f("mul", f("div", x, z), z), x, {}),
    "root": (f("mul", f("sqrt", x), f("sqrt", x)), x, {}),
    "nested root": (f("sqrt", f("mul", x, x)), f("abs", x), {}),
    "exp of a sum": (f("exp", f("add", x, y)), f("mul", f("exp", x), f("exp", y)), {}),
    "exp of a difference": (f("mul", f("exp", f("sub", x, y)), f("exp", y)), f("exp", x), {}),
    "exp and neg": (f("mul", f("exp", x), f("exp", f("neg", x))), one, {}),
    "log of exp": (f("log", f("exp", x)), x, {}),
    "exp of log": (f("exp", f("log", x)), x, {}),
    "maximum of positive multiples": (
        f("maximum", f("div", x, z), f("div", y, z)),
        f("div", f("maximum", x, y), z),
        {"z": POSITIVE},
    ),
    "where decides": (f("where", f("less", x, x), y, z), z, {}),
    "exp is positive": (f("maximum", f("exp", x), zero), f("exp", x), {}),
    "sigmoid is below 1": (f("minimum", f("sigmoid", x), one), f("sigmoid", x), {}),
    "increasing": (f("where", f("less", x, y), f("less", f("exp", x), f("exp", y)), one), one, {}),
    "logic": (f("and", f("not", x), f("or", x, y)), f("and", f("equal", x, zero), f("not", f("equal", y, zero))), {}),
}
DIFFERENT = {
    "subtraction": (f("sub", x, y), f("sub", y, x), {}),
    "reversed division": (f("mul", f("div", z, x), z), x, {}),
    "maximum of multiples": (*EQUAL["maximum of positive multiples"][:2], {}),
    "root of a square": (f("sqrt", f("mul", x, x)), x, {}),
    "sign": (f("abs", x), x, {}),
}


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_equal_is_proved(name):
    left, right, signs = EQUAL[name]
    assert solve(SolverQuery(((left, right),), facts=VariableFacts(signs)), 5.0).verdict == "unsat"


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_comes_with_numbers(name):
    left, right, signs = DIFFERENT[name]
    answer = solve(SolverQuery(((left, right),), facts=VariableFacts(signs)), 5.0)
    assert answer.verdict == "sat"
    given = {each: answer.values.get(each, np.zeros((1, 1))) for each in "xyz"}
    assert abs(ex.evaluate(left, given) - ex.evaluate(right, given)) > 1e-9


def at_least(bound, made):
    """made >= bound, as an equation."""
    return f("maximum", made, bound), made, {}


half, two = ex.constant(0.5), ex.constant(2.0)
NEARLY_TRUE = {
    "exp(x) >= x + 1.01": at_least(f("add", x, ex.constant(1.01)), f("exp", x)),
    "exp(x) >= 0.01": at_least(ex.constant(0.01), f("exp", x)),
    "exp(-x) >= exp(x)": at_least(f("exp", x), f("exp", f("neg", x))),
    "exp(2x) = exp(x) + exp(x)": (f("exp", f("add", x, x)), f("add", f("exp", x), f("exp", x)), {}),
    "sigmoid(x) >= 0.01": at_least(ex.constant(0.01), f("sigmoid", x)),
    "0.99 >= sigmoid(x)": at_least(f("sigmoid", x), ex.constant(0.99)),
    "sigmoid(x) >= 0.5": at_least(half, f("sigmoid", x)),
    "tanh(x) >= -0.99": at_least(ex.constant(-0.99), f("tanh", x)),
    "0 >= tanh(x)": at_least(f("tanh", x), zero),
    "sqrt(x) >= 0.01": at_least(ex.constant(0.01), f("sqrt", x)),
    "sqrt(x) = x": (f("sqrt", x), x, {}),
    "log(x) >= 0": at_least(zero, f("log", x)),
    "log(exp(x)) = 2x": (f("log", f("exp", x)), f("mul", two, x), {}),
    "a hidden quotient": (f("where", f("equal", y, zero), x, f("mul", f("div", x, y), zero)), zero, {}),
    "x / y >= 0": at_least(zero, f("div", x, y)),
}


@pytest.mark.parametrize("name", NEARLY_TRUE)
def test_what_is_only_nearly_true_is_not_proved(name):
    left, right, signs = NEARLY_TRUE[name]
    assert solve(SolverQuery(((left, right),), facts=VariableFacts(signs)), 1.0).verdict != "unsat"


@settings(max_examples=50)
@given(expressions(depth=2), expressions(depth=2), st.integers(0, 50))
def test_nothing_is_proved_that_a_number_contradicts(left, right, seed):
    rng = np.random.default_rng(seed)
    point = {"x": np.rint(2 * rng.normal(size=(1, 2))), "y": rng.normal(size=(1, 2))}
    with np.errstate(all="ignore"):
        if not all(np.isfinite(ex.evaluate(each, point)).all() for each in ex.walk(left, right)):
            return
        gap = np.abs(ex.evaluate(left, point) - ex.evaluate(right, point)).max()
    if gap > 1e-6:
        assert solve(SolverQuery(((left, right),)), 0.4).verdict != "unsat"


@settings(max_examples=25)
@given(expressions(depth=2), st.integers(0, 50))
def test_an_expression_that_has_a_value_is_not_proved_to_have_none(made, seed):
    rng = np.random.default_rng(seed)
    point = {"x": rng.normal(size=(1, 2)), "y": rng.normal(size=(1, 2))}
    with np.errstate(all="ignore"):
        values = [ex.evaluate(each, point) for each in ex.walk(made)]
    if not all(np.isfinite(each).all() for each in values):
        # without a value somewhere: the claim that it always has one must not be proved, unless a branch hides it
        hidden = any(each.op == "where" for each in ex.walk(made))
        assert hidden or solve(SolverQuery(defined=(made,)), 0.4).verdict != "unsat"


def test_definedness():
    def verdict(made, **signs):
        return solve(SolverQuery(defined=(made,), facts=VariableFacts(signs)), 5.0).verdict

    assert verdict(f("div", y, x), x=POSITIVE) == "unsat"
    assert verdict(f("div", y, x), x=NOT_NEGATIVE) == "sat"
    assert verdict(f("log", f("exp", x))) == "unsat"
    assert verdict(f("sqrt", x), x=NOT_NEGATIVE) == "unsat"
    guarded = f("where", f("equal", x, zero), zero, f("div", y, x))
    assert verdict(guarded) == "unsat"
    assert verdict(f("where", f("equal", y, zero), zero, f("div", y, x))) == "sat"


def test_guards_are_seen_column_by_column():
    wide, by = ex.variable("x", 2), ex.variable("y", 2)
    scaled = f("mul", f("div", wide, by), ex.constant([1.0, 2.0]))
    guarded = f("where", f("equal", by, zero), ex.constant([0.0, 0.0]), scaled)
    assert solve(SolverQuery(defined=(guarded,)), 5.0).verdict == "unsat"


def test_support_and_counts_are_facts():
    a, n = ex.variable("a", 1), ex.variable("nct", 1)
    guarded = f("where", f("less", zero, n), a, zero)
    facts = VariableFacts({"nct": NOT_NEGATIVE}, support=(("nct", "a"),))
    assert solve(SolverQuery(((guarded, a),), facts=facts), 5.0).verdict == "unsat"
    assert solve(SolverQuery(((guarded, a),), facts=VariableFacts({"nct": NOT_NEGATIVE})), 5.0).verdict == "sat"
    counted = VariableFacts(counts=frozenset(("nct",)))
    assert solve(SolverQuery(((f("maximum", n, one), n),), facts=counted), 5.0).verdict == "unsat"


def test_width_costs_nothing_where_columns_are_alike_and_is_refused_where_it_is_too_much():
    wide, scale = ex.variable("a", 4096), ex.variable("nct", 1)
    made = f("mul", f("div", wide, scale), scale)
    assert solve(SolverQuery(((made, wide),)), 5.0).verdict == "unsat"
    weight = np.ones((128, 128))
    answer = solve(SolverQuery(((ex.matmul(ex.variable("a", 128), weight), ex.constant(np.ones(128))),), ()), 5.0)
    assert answer.verdict == "sat"
    defined = f("log", ex.matmul(ex.variable("a", 128), weight))
    answer = solve(SolverQuery(defined=(defined,)), 5.0)
    assert (answer.verdict, "too many" in answer.reason) == ("unknown", True)


def test_without_the_package_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(DataMissing, match=r"livegnn\[verify\]"):
        solve(SolverQuery(((x, y),)), 1.0)
