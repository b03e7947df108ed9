"""An engine that is broken by one unit of one sum must be caught; if this ever passes, the oracle is asleep."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.testing import check_engine, random_batch, random_graph, random_model


def broken_engine(aggregation):
    rng = np.random.default_rng(11)
    model = random_model(rng, family="graph_conv", depth=2)
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
