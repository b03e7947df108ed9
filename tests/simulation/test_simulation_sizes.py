"""Sizes follow load, and rest when it does."""

import numpy as np
import pytest

from benchmarks.sampling.load_model import (
    SAMPLED,
    SERVED,
    bucket_shares,
    day,
    levelled_owners,
    levelled_serving,
    sampling_rate,
    serve,
)
from livegnn.distributed import Rebalancer
from livegnn.sampling import even_owners, even_serving
from livegnn.sampling.cluster.partition import workers_in
from livegnn.sampling.cluster.sizes import Sizer, SizeRules, serving_loads

EVEN = np.ones(1024, np.int64)


def owner_counts(serving):
    return [bin(int(mask)).count("1") for mask in serving]


def looks(sizer, serving, seeds, waiting, count):
    """The maps that so many equal looks lead to."""
    found = []
    for _ in range(count):
        new = sizer.serving(serving, seeds, waiting(serving))
        if new is not None:
            serving = new
            found.append(new)
    return found


def test_a_replica_comes_where_the_queue_grows():
    sizer = Sizer(SizeRules(patience=3, serving_max=3))
    found = looks(sizer, even_serving(2), EVEN, lambda _: {0: 9.0, 1: 0.5}, 3)
    assert len(found) == 1
    assert set(found[0].tolist()) == {0b101, 0b010}  # worker 2 stands by worker 0
    assert looks(sizer, found[0], EVEN, lambda _: {0: 9.0}, 3) == []  # it rests while worker 2 fills


def test_hot_buckets_move_to_the_coldest_worker():
    seeds = EVEN.copy()
    seeds[[0, 2, 4, 6]] = 400  # of worker 0
    (found,) = looks(Sizer(SizeRules()), even_serving(2), seeds, lambda _: {0: 5.0, 1: 0.1}, 3)
    assert np.flatnonzero(found != even_serving(2)).tolist() == [0, 2]
    assert set(owner_counts(found)) == {1}


def test_a_bucket_that_is_hot_alone_is_shared():
    seeds = EVEN.copy()
    seeds[8] = 100_000
    (found,) = looks(Sizer(SizeRules()), even_serving(2), seeds, lambda _: {0: 5.0, 1: 0.1}, 3)
    assert owner_counts(found)[8] == 2
    loads = serving_loads(found, seeds)
    assert abs(loads[0] - loads[1]) < 0.05 * loads[0]


def test_short_peaks_change_nothing():
    sizer = Sizer(SizeRules(patience=3))
    for number in range(60):
        assert sizer.serving(even_serving(1), EVEN, {0: 9.0 if number % 3 else 1.0}) is None


def test_the_least_asked_worker_goes_and_no_bucket_is_without_owners():
    sizer, seeds = Sizer(SizeRules(patience=1)), EVEN.copy()
    seeds[2::3] = 0
    found = looks(sizer, even_serving(3), seeds, lambda _: {}, 5)
    assert workers_in(found[0]) == [0, 1]
    assert min(owner_counts(found[0])) == 1
    sizer = Sizer(SizeRules(patience=1, replicas_min=2))
    found = looks(sizer, even_serving(1, 3), seeds, lambda _: {}, 40)
    assert workers_in(found[-1]) == [0, 1]  # and never fewer
    assert set(owner_counts(found[-1])) == {2}


def test_limits_hold():
    hot = Sizer(SizeRules(patience=1, rest=0, serving_max=2, sampling_max=2))
    found = looks(hot, even_serving(1), EVEN, lambda _: {0: 9.0, 1: 9.0}, 20)
    assert workers_in(found[-1]) == [0, 1]
    owners = even_owners(1)
    for _ in range(20):
        new = hot.sampling(owners, EVEN, {0: 1.0, 1: 1.0})
        owners = owners if new is None else new
    assert owners.max() == 1
    idle = Sizer(SizeRules(patience=1, rest=0, serving_min=2, sampling_min=2))
    assert looks(idle, even_serving(2), EVEN, lambda _: {}, 20) == []
    assert all(idle.sampling(even_owners(2), EVEN, {}) is None for _ in range(20))


def test_sampling_workers_come_level_out_and_go():
    rules = SizeRules(patience=1, rest=0)
    grown = Sizer(rules).sampling(even_owners(1), EVEN, {0: 0.95})
    assert np.bincount(grown).tolist() == pytest.approx([512, 512], rel=0.05)
    records = EVEN.copy()
    records[:100:2] = 200
    level = Sizer(rules).sampling(even_owners(2), records, {0: 0.95, 1: 0.1})
    loads = np.bincount(level, records)
    assert loads.max() < 1.05 * loads.mean()
    assert (level != even_owners(2)).sum() < 40  # only what is too much
    sizer = Sizer(rules)
    found = [sizer.sampling(even_owners(3), EVEN, {}) for _ in range(4)]
    assert np.bincount(found[-1]).tolist() == pytest.approx([512, 512], rel=0.05)
    assert found[:3] == [None] * 3


@pytest.mark.parametrize(("load", "moves"), [(0.4, 0), (0.95, 1)])
def test_sampling_workers_move_buckets_where_they_are_short_of_time_and_not_for_uneven_loads_alone(load, moves):
    """A move stops the cluster and cuts all states anew. A Rebalancer sees loads alone, and asks at any height."""
    rng, rates = np.random.default_rng(0), [bucket_shares(1.1, 0), bucket_shares(1.1, 1)]
    sizer, owners, rebalancer = Sizer(SizeRules(sampling_max=4)), even_owners(4), Rebalancer(even_owners(4), 4)
    changes, rounds = 0, 0
    for look in range(150):
        records = rng.poisson(rates[look // 75] * 4 * load * SAMPLED)
        busy = dict(enumerate(np.bincount(owners, records, 4) / SAMPLED))
        found = sizer.sampling(owners, records, busy)
        owners, changes = (owners, changes) if found is None else (found, changes + 1)
        rounds += len(rebalancer.observe(records).units) > 0
    assert (changes, rounds) == (moves, 1)


@pytest.mark.parametrize("skew", [0.0, 1.1])
def test_a_day_of_skewed_load(skew):
    """Fewer workers than a fixed size for the peak, waits near it, and a handful of changes."""
    rates, shares = day(skew)
    one = serve(rates, shares, even_serving(1), None)
    four = serve(rates, shares, even_serving(4), None)
    sized = serve(rates, shares, even_serving(1), SizeRules(serving_max=6))
    assert one.percentile(0.99) > 10_000
    assert sized.percentile(0.99) < 20
    assert sized.worker_looks < 0.6 * four.worker_looks
    assert sized.workers_most <= 4
    assert len(sized.changes) <= 6


@pytest.mark.parametrize("rate", [1000, 3000, 3700, 4500, 7000, 8200, 11_000])
def test_steady_load_of_any_height_comes_to_rest(rate):
    shares = bucket_shares(0.9)
    served = serve([float(rate)] * 120, lambda _: shares, even_serving(1), SizeRules())
    assert all(look < 60 for look in served.changes), served.changes
    needed = -(-rate // SERVED)
    assert needed <= served.workers_most <= needed + 2  # to work off what had queued up


@pytest.mark.parametrize("workers", [2, 4])
def test_levelled_maps_scale_out_under_skew(workers):
    shares = bucket_shares(1.1)
    assert sampling_rate(levelled_owners(workers, shares), shares) > 0.97 * workers * SAMPLED
    assert sampling_rate(even_owners(workers), shares) < 0.85 * workers * SAMPLED
    assert max(serving_loads(levelled_serving(workers, shares), shares).values()) < 1.03 / workers
