"""Signs never leave out one that occurs; states of a union are those of its parts, merged."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn.verify import expr as ex
from livegnn.verify.signs import ANY, NOT_NEGATIVE, POSITIVE, of_array, signs
from livegnn.verify.states import state_form
from tests.unit.verify.samples import BINARY, expressions

rows = ex.variable("rows", 2, per_edge=True)


@given(expressions(), st.integers(0, 1000))
def test_every_sign_that_occurs_is_foreseen(made, seed):
    rng = np.random.default_rng(seed)
    given = {name: np.rint(2 * rng.normal(size=(8, 2))) for name in ("x", "y")}
    with np.errstate(all="ignore"):
        found = ex.evaluate(made, given)
        found = found[np.isfinite(found) & (np.abs(found) > 1e-300) | (found == 0)]
    foreseen = signs(made, {name: of_array(values) for name, values in given.items()})
    underflow = {0} if any(each.op in ("exp", "sigmoid", "div", "mul") for each in ex.walk(made)) else set()
    assert of_array(found) - underflow <= foreseen


NUMBERS = np.array([[-3.0], [-0.5], [0.0], [0.25], [2.0]])


@pytest.mark.parametrize("op", sorted(ex.ELEMENTWISE))
def test_each_operation_foresees_the_signs_of_all_combinations(op):
    count = {"where": 3}.get(op, 2 if op in (*BINARY, "and", "or") else 1)
    names = "xyz"[:count]
    made = ex.elementwise(op, *(ex.variable(name, 1) for name in names))
    for chosen in itertools.product(*[[NUMBERS[:2], NUMBERS[2:3], NUMBERS[2:], NUMBERS[3:], NUMBERS]] * count):
        grid = np.array(list(itertools.product(*(part[:, 0] for part in chosen))))
        given = {name: grid[:, i : i + 1] for i, name in enumerate(names)}
        with np.errstate(all="ignore"):
            found = ex.evaluate(made, given)
        found = found[np.isfinite(found)]
        foreseen = signs(made, {name: of_array(part) for name, part in zip(names, chosen, strict=True)})
        assert of_array(found) <= foreseen


def test_what_the_rules_know():
    x = ex.variable("x", 2)
    assert signs(ex.elementwise("exp", x), {}) == POSITIVE
    assert signs(ex.elementwise("mul", x, x), {}) == NOT_NEGATIVE
    assert signs(ex.elementwise("mul", x, ex.variable("y", 2)), {}) == ANY
    assert signs(ex.elementwise("maximum", x, ex.constant(1e-9)), {}) == POSITIVE
    assert signs(ex.elementwise("sub", ex.constant(0.0), ex.elementwise("exp", x)), {}) == {-1}
    assert signs(ex.matmul(x, np.array([[1.0], [2.0]])), {"x": POSITIVE}) == POSITIVE
    assert signs(ex.matmul(x, np.array([[1.0], [-2.0]])), {"x": POSITIVE}) == ANY
    assert signs(ex.over_edges("product_edges", rows), {"rows": frozenset((-1,))}) == {-1, 1}


def _mean_of_exp():
    total = ex.over_edges("sum_edges", ex.elementwise("exp", rows))
    return ex.elementwise("div", total, ex.over_edges("count_edges", rows))


def test_states_merge_whatever_the_number_of_rows():
    form = state_form(_mean_of_exp(), rows)
    rng = np.random.default_rng(0)
    for lefts, rights in ((1, 1), (3, 2), (5, 9)):
        left, right = rng.normal(size=(lefts, 2)), rng.normal(size=(rights, 2))
        merged = form.finished(form.merge(form.state("left"), form.state("right")))
        given = {}
        for side, part in (("left", left), ("right", right)):
            for i, each in enumerate(form.reductions):
                given[f"{side}{i}"] = ex.evaluate(each, {"rows": part})
        expected = ex.evaluate(_mean_of_exp(), {"rows": np.concatenate([left, right])})
        np.testing.assert_allclose(ex.evaluate(merged, given), expected, rtol=1e-13)


def test_one_row_has_its_own_states():
    form = state_form(_mean_of_exp(), rows)
    row = np.array([[0.5, -1.0]])
    made = form.finished(form.of_row(ex.variable("row", 2)))
    np.testing.assert_allclose(ex.evaluate(made, {"row": row}), np.exp(row))


def test_a_reduction_inside_a_reduction_has_no_state_form():
    centred = ex.elementwise("sub", rows, ex.over_edges("max_edges", rows))
    assert state_form(ex.over_edges("sum_edges", centred), rows) is None


def test_a_sum_of_the_rows_themselves_is_plain():
    assert state_form(ex.over_edges("sum_edges", rows), rows).is_plain("sum_edges")
    assert not state_form(ex.over_edges("max_edges", rows), rows).is_plain("sum_edges")
    assert not state_form(_mean_of_exp(), rows).is_plain()
