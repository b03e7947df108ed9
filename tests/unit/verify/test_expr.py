"""Expressions compute what they say, and say the same after being rewritten."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn.errors import WidthMismatch
from livegnn.verify import expr as ex
from tests.unit.verify.samples import expressions

x, y = ex.variable("x", 2), ex.variable("y", 2)
rows = ex.variable("rows", 2, per_edge=True)


def value(expr, **given):
    with np.errstate(all="ignore"):
        return ex.evaluate(expr, given)


def test_evaluate_computes_a_small_layer():
    weight = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0]])
    made = ex.over_columns("sum_columns", ex.elementwise("maximum", ex.matmul(x, weight), ex.constant(0.0)))
    assert value(made, x=np.array([[1.0, 2.0], [-1.0, 1.0]])).tolist() == [[5.0], [0.0]]


def test_reductions_over_edges_give_one_row():
    given = np.array([[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]])
    assert value(ex.over_edges("sum_edges", rows), rows=given).tolist() == [[9.0, 4.0]]
    assert value(ex.over_edges("max_edges", rows), rows=given).tolist() == [[5.0, 6.0]]
    assert value(ex.over_edges("count_edges", rows), rows=given).tolist() == [[3.0]]


def of_reads(made, index, given):
    """One column, computed from the columns that it reads."""
    parts = [of_reads(each, at, given) for each, at in ex.reads(made, index)]
    if made.op in ex.ELEMENTWISE:
        return np.asarray(ex.ELEMENTWISE[made.op](*parts))
    if made.op in ("take", "concat"):
        return parts[0]
    if not parts:
        return value(made, **given)[:, index : index + 1]
    x = ex.variable("read", made.inputs[0].width)
    rows = np.concatenate(np.broadcast_arrays(*parts), axis=1)
    return value(ex.with_inputs(made, [x]), read=rows)[:, index : index + 1]


@settings(max_examples=40)
@given(expressions(), st.integers(0, 100))
def test_one_column_is_that_column(made, seed):
    rng = np.random.default_rng(seed)
    given = {"x": rng.normal(size=(4, 2)), "y": rng.normal(size=(4, 2))}
    whole = value(made, **given)
    for index in range(2):
        with np.errstate(all="ignore"):
            alone = of_reads(made, index, given)
        np.testing.assert_allclose(*np.broadcast_arrays(alone, whole[:, index : index + 1]), rtol=1e-12)


@settings(max_examples=40)
@given(expressions(), st.integers(0, 100))
def test_a_narrowed_expression_is_every_column(made, seed):
    narrowed = ex.narrow(made)
    if narrowed is None:
        return
    rng = np.random.default_rng(seed)
    given = {"x": rng.normal(size=(4, 2)), "y": rng.normal(size=(4, 2))}
    whole = np.broadcast_to(value(made, **given), (4, 2))
    for index in range(2):
        one = value(narrowed[0], **{name: rows[:, index : index + 1] for name, rows in given.items()})
        np.testing.assert_array_equal(np.broadcast_to(one, (4, 1)), whole[:, index : index + 1])


def test_columns_that_are_not_alike_are_not_narrowed():
    assert ex.narrow(ex.elementwise("mul", x, ex.constant([1.0, 2.0]))) is None
    assert ex.narrow(ex.matmul(x, np.eye(2))) is None
    assert ex.narrow(ex.take(x, [1, 0])) is None
    assert ex.narrow(ex.elementwise("mul", x, ex.constant([2.0, 2.0]))) is not None


@pytest.mark.parametrize("count", [1, 2, 4])
def test_unrolling_writes_a_neighbourhood_out(count):
    centred = ex.elementwise("sub", rows, ex.over_edges("max_edges", rows))
    total = ex.over_edges("sum_edges", ex.elementwise("exp", centred))
    function = ex.elementwise("div", total, ex.over_edges("count_edges", rows))
    given = np.random.default_rng(count).normal(size=(count, 2))
    names = [ex.variable(f"row{i}", 2) for i in range(count)]
    unrolled = ex.unroll(function, "rows", names)
    assert not any(each.op in ex.OVER_EDGES for each in ex.walk(unrolled))
    expected = value(function, rows=given)
    got = value(unrolled, **{f"row{i}": given[i : i + 1] for i in range(count)})
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_substituting_replaces_by_name():
    made = ex.substitute(ex.elementwise("add", x, y), {"x": ex.elementwise("mul", y, y)})
    assert value(made, y=np.array([[3.0, -1.0]])).tolist() == [[12.0, 0.0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ex.elementwise("add", x, ex.variable("z", 3)),
        lambda: ex.matmul(x, np.ones((3, 2))),
        lambda: ex.matmul(x, np.ones(2)),
        lambda: ex.take(x, [2]),
        lambda: ex.take(x, []),
        lambda: ex.constant(np.ones((2, 2))),
        lambda: ex.substitute(x, {"x": ex.variable("z", 3)}),
    ],
)
def test_widths_are_checked_when_an_expression_is_made(make):
    with pytest.raises(WidthMismatch, match="expected"):
        make()
