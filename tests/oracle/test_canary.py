"""An engine that is broken by one unit of one sum must be caught; if this ever passes, the oracle is asleep."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph, random_model
from livegnn.testing.oracle import check_rows, nudged_outputs, reference_outputs


def broken_engine(aggregation):
    """Both aggregations are sums: a wrong maximum is found anew when its neighbours change, a wrong sum stays."""
    rng = np.random.default_rng(11)
    weights = [rng.normal(size=(4, 4)).astype(np.float32) for _ in range(4)]
    model = lg.Model([lg.layers.GraphConv(*weights[:2]), lg.layers.GraphConv(*weights[2:])])
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights, vertices=12)
    engine = lg.Engine(model, graph)
    engine.native.corrupt_for_test(aggregation, int(next(iter(mirror.rows))), 0)
    return engine, mirror, rng


@pytest.mark.xfail(strict=True, raises=lg.errors.StateMismatch, reason="the canary: broken on purpose")
@pytest.mark.parametrize("aggregation", [0, 1])
def test_a_state_off_by_one_is_caught(aggregation):
    engine, mirror, _ = broken_engine(aggregation)
    check_engine(engine, mirror)


@pytest.mark.xfail(strict=True, raises=lg.errors.StateMismatch, reason="the canary: broken on purpose")
def test_it_is_still_caught_after_more_batches():
    engine, mirror, rng = broken_engine(1)
    for _ in range(3):
        engine.apply(random_batch(rng, mirror, 3))
    check_engine(engine, mirror)


def test_a_row_that_cancels_is_held_to_what_float32_may_lose():
    rng = np.random.default_rng(1761)
    model = random_model(rng)
    graph, mirror = random_graph(rng, model.input_width, bool(rng.integers(2)), **graph_columns(model))
    for _ in range(2):
        graph.apply(random_batch(rng, mirror, int(rng.integers(1, 20))))
    live = mirror.arrays()[-1]
    got = lg.Engine(model, graph).embeddings(live)
    truth = reference_outputs(model, mirror)[live]
    row = int(np.argmin(np.abs(truth)))
    assert np.abs(truth[row]) < 0.03 * np.abs(truth).max()

    def check(got):
        rounded = reference_outputs(model, mirror, np.float32)[live]
        check_rows(got, truth, rounded, "", more_float32=lambda: [rows[live] for rows in nudged_outputs(model, mirror)])

    check(got)
    got[row] += 2e-6  # a thousandth of the row, some ten units in the last place of its terms
    with pytest.raises(AssertionError, match=f"row {row} is off by 2"):
        check(got)
