"""What a sample looks like over many seeds: chi-square against the distribution that each strategy promises.

Seeds are fixed, so these tests give one answer; the bounds are the 99.9 % quantiles of the chi-square distribution.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

import livegnn as lg

_SEEDS = 3000


def star(weights: list[float]) -> lg.Graph:
    """One vertex with an edge to each of the others, and one edge that has been replaced since."""
    count = len(weights)
    features = np.zeros((count + 1, 1), np.float32)
    graph = lg.Graph(features, [0] * count, range(1, count + 1), weight=weights, time=range(count))
    updates = lg.Updates()
    updates.remove_edge(0, 1)
    updates.add_edge(0, 1, weight=weights[0], time=0)
    graph.apply(updates)
    return graph


def drawn(graph: lg.Graph, by: str, fanout: int) -> np.ndarray:
    query = lg.query().out().sample(fanout, by=by)
    return np.array([lg.AdHocSampler(graph, query, seed=seed).sample([0]).hop(1)[0] for seed in range(_SEEDS)])


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_random_is_uniform_without_replacement() -> None:
    found = drawn(star([1.0] * 10), "random", 3)
    assert all(len(set(row)) == 3 for row in found.tolist())
    for place in range(3):  # each place of the sample by itself is uniform
        counts = np.bincount(found[:, place], minlength=11)[1:]
        assert chi_square(counts, np.full(10, _SEEDS / 10)) < stats.chi2.ppf(0.999, 9)


def test_pairs_of_a_random_sample_are_uniform_too() -> None:
    found = np.sort(drawn(star([1.0] * 5), "random", 2), axis=1)
    _, counts = np.unique(found, axis=0, return_counts=True)
    assert len(counts) == 10
    assert chi_square(counts, np.full(10, _SEEDS / 10)) < stats.chi2.ppf(0.999, 9)


def test_weighted_draws_in_proportion_one_after_the_other() -> None:
    weights = np.array([1.0, 2.0, 4.0, 8.0])
    found = drawn(star(weights.tolist()), "weighted", 2)
    p = weights / weights.sum()
    expected = np.array([[p[i] * p[j] / (1 - p[i]) if i != j else 0.0 for j in range(4)] for i in range(4)]) * _SEEDS
    counts = np.zeros((4, 4))
    np.add.at(counts, (found[:, 0] - 1, found[:, 1] - 1), 1)
    assert not counts.diagonal().any()
    off = ~np.eye(4, dtype=bool)
    assert chi_square(counts[off], expected[off]) < stats.chi2.ppf(0.999, 11)


def test_hops_draw_independently() -> None:
    """Over the same edges, what hop 1 drew says nothing about what hop 2 draws."""
    count = 4
    src = np.repeat(np.arange(count), count)
    graph = lg.Graph(np.zeros((count, 1), np.float32), src, np.tile(np.arange(count), count))
    query = lg.query().out().sample(1).out().sample(1)
    table = np.zeros((count, count))
    for seed in range(_SEEDS):
        sample = lg.AdHocSampler(graph, query, seed=seed).sample(np.arange(count))
        for v in range(count):  # of those whose hop 1 stays where it is, hop 2 sees the same four edges
            first, second = int(sample.hop(1)[v, 0]), int(sample.hop(2)[v, 0, 0])
            if first == v:
                table[first, second] += 1
    expected = table.sum(1, keepdims=True) / count
    assert chi_square(table, np.broadcast_to(expected, table.shape)) < stats.chi2.ppf(0.999, count * (count - 1))
