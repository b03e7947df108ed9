"""Functions of several rows, and the logarithm, natively: NumPy's float32 bit for bit, and float64 rounded."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.inference.predict import headed
from livegnn.models import edges, ir
from livegnn.models.model import Model
from livegnn.testing import check_engine, random_batch, random_graph

rng = np.random.default_rng(3)


def quotient(a, b):
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape), a.dtype), where=b != 0)


NUMPY = {
    "minimum": np.minimum,
    "divide": quotient,
    "less": lambda a, b: (a < b).astype(a.dtype),
    "where": lambda c, a, b: np.where(c != 0, a, b),
}


def rows_of(widths):
    """(257, sum) with zeros, equal numbers and both infinitesimal and large ones among them."""
    rows = rng.standard_normal((257, sum(widths))).astype(np.float32) * np.float32(10) ** rng.integers(
        -20, 18, (257, 1)
    )
    rows[rng.random(rows.shape) < 0.2] = 0
    rows[::7] = rows[::7, :1]
    return rows.astype(np.float32)


@pytest.mark.parametrize("narrow", [None, 0, 1, 2])
@pytest.mark.parametrize("width", [1, 3, 16, 33])
@pytest.mark.parametrize("kind", list(ir.ELEMENTWISE))
def test_bits_are_those_of_float32(kind, width, narrow):
    widths = [1 if place == narrow else width for place in range(ir.ELEMENTWISE[kind])]
    rows, stops = rows_of(widths), np.cumsum(widths)
    x = ir.Input(rows.shape[1])
    parts = tuple(ir.Slice(x, int(stop - w), int(stop)) for stop, w in zip(stops, widths, strict=True))
    got = headed(ir.Elementwise(kind, parts), rows)
    with np.errstate(all="ignore"):
        want = NUMPY[kind](*(rows[:, stop - w : stop] for stop, w in zip(stops, widths, strict=True)))
    np.testing.assert_array_equal(got, want)
    for row in (0, 100):  # whatever is computed with it
        assert headed(ir.Elementwise(kind, parts), rows[row : row + 1]).tobytes() == got[row].tobytes()


def test_a_logarithm_is_float64_rounded():
    rows = np.abs(rows_of([8])) + np.float32(1e-30)
    got = headed(ir.Activation(ir.Input(8), "log"), rows)
    want = np.log(rows.astype(np.float64))
    assert (np.abs(got - want) <= 1.0001 * np.spacing(np.abs(want).astype(np.float32)) / 2 + 1e-12).all()
    assert headed(ir.Activation(ir.Input(1), "log"), np.array([[0.0], [-2.0]], np.float32)).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("on_edges", [False, True])
def test_an_engine_stays_exact_over_them(on_edges):
    draw = np.random.default_rng(5)
    graph, mirror = random_graph(draw, 4, False, vertices=40)
    x = ir.Input(4)
    row, other = (edges.Source(x), edges.Target(x)) if on_edges else (x, ir.Propagate(x))
    other = ir.Affine(other, np.full(4, 0.9), np.full(4, 0.05))  # no ties, which rounding would decide
    log = ir.Activation(ir.Activation(row, "abs"), "log")
    divisor = ir.Activation(ir.Activation(ir.Slice(other, 0, 1), "abs"), "exp")
    smaller = ir.Elementwise("minimum", (ir.Elementwise("divide", (row, divisor)), log))
    y = ir.Elementwise("where", (ir.Elementwise("less", (row, other)), smaller, ir.Activation(other, "tanh")))
    output = edges.Gather(y, "sum") if on_edges else ir.Propagate(y)
    engine = lg.Engine(Model.from_output(output), graph)
    for number in range(8):
        engine.apply(random_batch(draw, mirror, 6))
        check_engine(engine, mirror, f"batch {number}")
