"""Samples of a graph whose old edges are in files: right, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import EdgeOffloaded
from livegnn.temporal import FeatureCache, TemporalSampler

pytest.importorskip("pyarrow.parquet")


def star(times: list[int]) -> lg.Graph:
    """Edges 1 -> 0 at these times, with their times as attributes."""
    ends = np.ones(len(times), np.int64), np.zeros(len(times), np.int64)
    attr = np.array(times, np.float32).reshape(-1, 1)
    return lg.Graph(np.zeros((2, 1), np.float32), *ends, time=times, edge_attr=attr)


def newest(graph: lg.Graph, count: int, time: int) -> list[int]:
    """Times of the newest edges before `time`."""
    return TemporalSampler(graph, [count]).sample([0], [time])[0].times.tolist()


def add(graph: lg.Graph, time: int) -> None:
    updates = lg.Updates()
    updates.add_edge(1, 0, time=time, edge_attr=[time])
    graph.apply(updates)


def test_enough_new_edges_in_memory_are_an_answer(tmp_path: Path) -> None:
    graph = star([5, 15, 25, 35])
    graph.offload(10, tmp_path / "a")
    assert newest(graph, 3, 40) == [15, 25, 35]
    with pytest.raises(EdgeOffloaded, match="past of vertex 0 before 40"):
        newest(graph, 4, 40)


def test_late_edges_in_memory_do_not_stand_for_those_in_a_file(tmp_path: Path) -> None:
    graph = star([9, 20])
    graph.offload(10, tmp_path / "a")
    add(graph, 1)  # in memory: 1 and 20, away: 9
    assert newest(graph, 1, 30) == [20]
    with pytest.raises(EdgeOffloaded):
        newest(graph, 2, 30)
    graph.reload()
    assert newest(graph, 2, 30) == [9, 20]


def test_edges_that_came_back_do_not_stand_for_newer_ones_in_another_file(tmp_path: Path) -> None:
    graph = star([5, 15, 25])
    graph.offload(10, tmp_path / "a")
    graph.offload(20, tmp_path / "b")
    graph.reload(tmp_path / "a")  # in memory: 5 and 25, away: 15
    assert newest(graph, 1, 30) == [25]
    with pytest.raises(EdgeOffloaded):
        newest(graph, 2, 30)


def test_a_pin_beside_a_file_says_what_it_needs(tmp_path: Path) -> None:
    graph = star([5, 25, 26])
    graph.offload(20, tmp_path / "a")
    with TemporalSampler(graph, [2]).pin() as pinned:
        updates = lg.Updates()
        updates.remove_edge(1, 0, time=25)
        updates.add_edge(1, 0, time=24, edge_attr=[24])
        graph.apply(updates)
        assert pinned.sample([0], [30])[0].times.tolist() == [25, 26]
        with pytest.raises(EdgeOffloaded):
            pinned.sample([0], [26])
        graph.reload()
        assert pinned.sample([0], [26])[0].times.tolist() == [5, 25]


def test_a_reload_that_finds_nothing_still_moves_the_cut(tmp_path: Path) -> None:
    graph = star([5, 25])
    graph.offload(20, tmp_path / "a")
    sampler = TemporalSampler(graph, [-1], window=15)
    with pytest.raises(EdgeOffloaded, match="times before 20 in a file"):
        sampler.sample([0], [30])
    assert graph.reload(since=10) == 0
    assert graph.offloaded.before == 10
    assert sampler.sample([0], [30])[0].times.tolist() == [25]


def test_attributes_of_edges_that_are_away_are_not_called_removed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    graph = star([5, 25])
    graph.offload(20, tmp_path / "a")
    cache = FeatureCache.of_edges(graph, capacity=4)
    with pytest.raises(EdgeOffloaded, match="got 0, which was removed or lies in a file"):
        cache.fetch([0])
    with pytest.raises(EdgeOffloaded, match=r"\[warm\] .* got 0, which was removed or lies in a file"):
        cache.warm([1, 0])
    graph.reload()
    assert cache.fetch([0, 1]).tolist() == [[5], [25]]
