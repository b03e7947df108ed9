"""Counts and seconds of the bound on a graph small enough to count by hand: 0 -> 1 -> 2 -> 3, 0 -> 2."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.engine.adjacency import Adjacency
from benchmarks.engine.bound import Counter, LayerCount, layer_seconds
from benchmarks.engine.stream import Batch, Workload
from benchmarks.machine import Machine

NONE = np.zeros(0, np.int32)
PATH = Workload(
    "path",
    np.zeros((40, 2), np.float32),
    np.array([0, 1, 2, 0], np.int32),
    np.array([1, 2, 3, 2], np.int32),
    2,
    None,  # type: ignore[arg-type]
)


def edge_batch(u: int, v: int) -> Batch:
    return Batch(1, np.array([u], np.int32), np.array([v], np.int32), NONE, NONE, NONE, np.zeros((0, 2), np.float32))


def test_features_reach_out_neighbours_and_themselves() -> None:
    batch = Batch(1, NONE, NONE, NONE, NONE, np.array([0], np.int32), np.zeros((1, 2), np.float32))
    first, second = Counter(PATH, 2).count(batch, follows_degree=False)
    assert first == LayerCount(affected=3, delta_edges=2, changed=1, sources=1)  # 0, 1, 2 along 0->1, 0->2
    assert second == LayerCount(affected=4, delta_edges=4, changed=3, sources=3)  # all; 0->1, 0->2, 1->2, 2->3


def test_an_edge_changes_its_target_at_every_layer() -> None:
    first, second = Counter(PATH, 2).count(edge_batch(3, 1), follows_degree=False)
    assert first == LayerCount(affected=1, delta_edges=1, changed=0, sources=1)
    assert second == LayerCount(affected=2, delta_edges=2, changed=1, sources=2)  # 1, 2; 1->2 and the new edge


def test_gcn_follows_a_changed_degree() -> None:
    first, second = Counter(PATH, 2).count(edge_batch(3, 1), follows_degree=True)
    assert first == LayerCount(affected=2, delta_edges=2, changed=0, sources=2)  # 1 and, through its degree, 2
    assert second == LayerCount(affected=3, delta_edges=3, changed=2, sources=3)


def test_seconds_are_the_larger_of_bytes_and_flops() -> None:
    count = LayerCount(affected=10, delta_edges=20, changed=3, sources=4)
    slow_memory = Machine("slow memory", 4.0, 1e18)
    slow_arithmetic = Machine("slow arithmetic", 1e18, 2.0)
    assert layer_seconds("graphconv", count, (8, 4), slow_memory) == (10 * 24 + 20 * 8, 10 * 8 + 20 * 4)
    assert layer_seconds("graphconv", count, (8, 4), slow_arithmetic) == (32 * 13, 32 * 7)
    assert layer_seconds("gcn", count, (8, 4), slow_arithmetic)[1] == 32 * 4
    assert layer_seconds("gin", count, (8, 4), slow_arithmetic)[1] == 32 * 4 + 16 * 10


def test_adjacency_equals_lists_of_a_dictionary() -> None:
    rng = np.random.default_rng(0)
    keys, targets = (rng.integers(0, 50, 400).astype(np.int32) for _ in range(2))
    adjacency = Adjacency(50, keys, targets)
    expected: dict[int, list[int]] = {u: sorted(targets[keys == u].tolist()) for u in range(50)}
    for size in (3, 100, 200):
        u, v = (rng.integers(0, 50, size).astype(np.int32) for _ in range(2))
        adjacency.add(u, v)
        for a, b in zip(u.tolist(), v.tolist(), strict=True):
            expected[a].append(b)
        adjacency.remove(u[::2], v[::2])
        for a, b in zip(u[::2].tolist(), v[::2].tolist(), strict=True):
            expected[a].remove(b)
        entries, counts = adjacency.gather(np.arange(50))
        found = np.split(entries, np.cumsum(counts)[:-1])
        assert [sorted(part.tolist()) for part in found] == [sorted(expected[u]) for u in range(50)]
