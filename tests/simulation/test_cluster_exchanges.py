"""lg.Cluster where a worker hangs in an exchange of a batch, or its connection drops there: one engine's bits."""

import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn.distributed.cluster import crew as crews
from livegnn.testing import streams
from tests.simulation.exchange_faults import ExchangeFault, ExchangeFaults
from tests.simulation.test_cluster import check_same, pair
from tests.simulation.test_cluster_log import Logged

WORKERS, TIMEOUT_S = 3, 0.25
FAULTS = st.builds(ExchangeFault, st.sampled_from(["before", "after"]), st.booleans())
PLACES = st.tuples(st.integers(0, WORKERS - 1), st.integers(0, 30))


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="livegnn")


def made(seed, logged):
    """An engine, a cluster of the same, and what makes batches for both."""
    if logged:
        world = Logged(seed, WORKERS, snapshot_batches=3)
        return world.engine, world.cluster, world.batch
    engine, cluster, _, mirror, rng = pair(seed, WORKERS, snapshot_batches=3)
    return engine, cluster, lambda: streams.random_batch(rng, mirror, 8)


def go_through(seed, logged, at, quickly=False):
    """Five batches, with faults in the third. quickly: workers wait for TIMEOUT_S in it. Returns: the faults."""
    engine, cluster, batch = made(seed, logged)
    crew = cluster._crew._crew
    faults = ExchangeFaults(crew)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(crews, "swap_bytes", faults.swap_bytes)
        for number in range(5):
            if number == 2 and quickly:
                usual, crew._timeout_s = crew._timeout_s, TIMEOUT_S
                crew.reform()
                crew._timeout_s = usual  # once a round has broken
            faults.arm(at if number == 2 else {})
            updates = batch()
            want, got = engine.apply(updates), cluster.apply(updates)
            assert set(want.vertices.tolist()) <= set(got.vertices.tolist())
            check_same(engine, cluster, f"seed {seed}, faults {at}, batch {number}")
            if number == 2:
                struck = faults.struck
        cluster.verify()
    cluster.close()
    return struck


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("seed", [4, 7])
def test_a_connection_that_drops_at_any_exchange(seed, when, is_lost, logged):
    fault = ExchangeFault(when, is_lost)
    for whose in ([0], [1, 2]):
        for number in itertools.count():
            if not go_through(seed, logged, {(worker, number): fault for worker in whose}):
                break
        assert number > 3, "a batch of few exchanges"


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_worker_that_hangs_at_any_exchange(is_lost, logged):
    for number in itertools.count():
        if not go_through(4, logged, {(1, number): ExchangeFault("hangs", is_lost)}, quickly=True):
            break
    assert number > 3, "a batch of few exchanges"


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.dictionaries(PLACES, FAULTS, min_size=1, max_size=4))
def test_connections_that_drop_again_while_all_recover(seed, logged, at):
    go_through(seed, logged, at)
