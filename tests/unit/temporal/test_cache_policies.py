"""Which rows come and which go, by policy: examples from the definition, and long runs beside a sorted dict."""

import numpy as np
import pytest

pytest.importorskip("torch")

from livegnn.temporal import FeatureCache
from tests.unit.temporal.cache_model import ModelCache

ROWS = np.arange(400, dtype=np.float32).reshape(400, 1)


def after(policy, *fetches, capacity=3, max_replace=1.0):
    cache = FeatureCache(ROWS, capacity=capacity, policy=policy, max_replace=max_replace)
    for ids in fetches:
        cache.fetch(ids)
    return cache.ids().tolist()


def test_lru_lets_the_row_go_that_was_used_longest_ago():
    assert after("lru", [1], [2], [3], [1], [4]) == [3, 1, 4]


def test_of_one_fetch_hits_count_first_and_as_first_asked_for():
    assert after("lru", [1, 2], [5, 2, 1, 2]) == [2, 1, 5]
    assert after("lru", [1, 2], [5, 2, 1, 2], [6]) == [1, 5, 6]


def test_lfu_lets_the_row_go_that_the_fewest_fetches_used():
    assert after("lfu", [1, 2, 3], [1], [1, 2], [4]) == [4, 2, 1]


def test_a_repeat_within_a_fetch_is_not_another_use():
    assert after("lfu", [1, 1, 1, 2], [2], [3], [4]) == [3, 4, 2]


def test_among_equals_lfu_lets_the_one_go_that_was_used_longest_ago():
    assert after("lfu", [1], [2], [3], [2], [1], [3], [4]) == [4, 1, 3]


def test_fifo_lets_the_row_go_that_came_longest_ago_used_or_not():
    assert after("fifo", [1], [2], [3], [1], [4]) == [2, 3, 4]


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
def test_a_row_that_the_fetch_hit_never_goes(policy):
    assert sorted(after(policy, [1, 2, 3], [1, 7, 8, 9])) == [1, 7, 8]
    assert sorted(after(policy, [1, 2, 3], [3, 1, 7, 2])) == [1, 2, 3]


@pytest.mark.parametrize(("max_replace", "admitted"), [(0.01, 1), (0.2, 2), (0.29, 2), (0.5, 5), (1.0, 10)])
def test_a_fetch_admits_a_share_of_the_capacity_in_the_order_asked_for(max_replace, admitted):
    asked = list(range(20, 0, -1))
    assert after("lru", asked, capacity=10, max_replace=max_replace) == asked[:admitted]


def test_static_changes_by_warming_alone():
    cache = FeatureCache(ROWS, capacity=2, policy="static")
    cache.fetch([1, 2])
    assert len(cache) == 0
    cache.warm([7, 9, 9, 8])
    assert cache.ids().tolist() == [7, 9]  # 7 and 8 stand there once each: the smaller id
    assert cache.fetch([7, 8, 9]).numpy().tolist() == [[7], [8], [9]]
    assert cache.stats.last.hits == 2
    cache.fetch([1])
    assert cache.ids().tolist() == [7, 9]


def random_ids(rng, bound):
    return np.minimum(rng.zipf(1.3, rng.integers(0, 60)), bound) - 1


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
@pytest.mark.parametrize(("capacity", "bound"), [(50, 400), (5, 400), (8, 9)])
def test_long_runs_agree_with_the_definition(policy, capacity, bound):
    """Long enough for the log of uses to be swept many times."""
    rng = np.random.default_rng(capacity)
    cache = FeatureCache(ROWS, capacity=capacity, policy=policy, max_replace=0.3)
    model = ModelCache(policy, capacity, 0.3)
    for number in range(1500):
        ids = random_ids(rng, bound)
        cache.fetch(ids)
        model.fetch(ids.tolist())
        if number % 100 == 0:
            gone = rng.integers(0, bound, 5)
            cache.invalidate(gone)
            model.drop(gone.tolist())
        if number % 25 == 0:
            assert cache.ids().tolist() == model.order()
            cache.verify()


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
def test_ids_spread_wide_are_found_by_hash(policy):
    """More than 32 ids to a row of capacity."""
    x = np.arange(100_000, dtype=np.float32).reshape(100_000, 1)
    rng = np.random.default_rng(1)
    cache, model = FeatureCache(x, capacity=40, policy=policy), ModelCache(policy, 40, 0.2)
    popular = rng.choice(100_000, 60, replace=False)
    for _ in range(300):
        ids = np.concatenate([rng.choice(popular, 10), rng.integers(0, 100_000, 3)])
        np.testing.assert_array_equal(cache.fetch(ids).numpy(), x[ids])
        model.fetch(ids.tolist())
    assert cache.ids().tolist() == model.order()
    assert cache.stats.hit_rate > 0.3
