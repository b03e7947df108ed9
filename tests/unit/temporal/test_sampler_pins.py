from __future__ import annotations

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import UsageError, VertexUnknown
from livegnn.temporal import TemporalSampler


def pair(ids: list[str] | None = None) -> lg.Graph:
    """Two edges into the first vertex, at 3 and 5."""
    ends = ([1, 1], [0, 0]) if ids is None else ([ids[1]] * 2, [ids[0]] * 2)
    return lg.Graph(np.ones((2, 2), np.float32), *ends, time=[3, 5], ids=ids)


def test_a_pin_reads_its_version_whatever_is_applied() -> None:
    graph = pair()
    sampler = TemporalSampler(graph, [-1])
    with sampler.pin() as pinned:
        updates = lg.Updates()
        updates.remove_edge(1, 0)  # the newest, at 5
        updates.add_edge(0, 0, time=4)  # late: inside the range that is asked for
        updates.set_features(0, np.zeros(2, np.float32))
        graph.apply(updates)
        updates = lg.Updates()
        updates.remove_vertex(1)
        updates.add_vertex(2, np.full(2, 7, np.float32))
        graph.apply(updates)
        assert pinned.sample([0], [9])[0].times.tolist() == [3, 5]
        assert pinned.features([0, 1]).tolist() == [[1, 1], [1, 1]]
        assert sampler.sample([0], [9])[0].times.tolist() == [4]
        with pytest.raises(VertexUnknown, match="got 2 at row 1"):
            pinned.sample([0, 2], [9, 9])
        with pytest.raises(VertexUnknown, match=r"\[features\] expected vertices of version 0, got 2"):
            pinned.features([2])
        assert pinned.version == 0
        assert pinned.bytes > 0
        with sampler.pin() as later:
            assert later.version == 2
            assert later.sample([0], [9])[0].times.tolist() == [4]
    assert graph.host._followers == []


def test_ids_are_those_of_the_pinned_version() -> None:
    graph = pair(["a", "b"])
    with TemporalSampler(graph, [-1]).pin() as pinned:
        updates = lg.Updates()
        updates.remove_vertex("b")
        graph.apply(updates)
        updates = lg.Updates()
        updates.add_vertex("c", np.zeros(2, np.float32))  # takes the slot of b
        graph.apply(updates)
        hop = pinned.sample(["a", "b"], [9, 9])[0]
        assert pinned.to_external(hop.src).tolist() == ["b", "b"]
        assert pinned.features(["b"]).tolist() == [[1, 1]]
        with pytest.raises(VertexUnknown, match="'c'"):
            pinned.sample(["c"], [9])
    assert graph.host._guards == ()


def test_writers_go_on_while_a_pin_is_open() -> None:
    graph = pair()
    with TemporalSampler(graph, [2]).pin() as pinned:

        def write() -> None:
            for time in range(50):
                updates = lg.Updates()
                updates.add_edge(1, 0, time=time)
                graph.apply(updates)

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            assert pinned.sample([0], [9])[0].edge_ids.tolist() == [0, 1]
        writer.join()
        assert pinned.sample([0], [9])[0].edge_ids.tolist() == [0, 1]
    assert graph.version == 50


def test_a_pin_is_read_in_its_block_only() -> None:
    pin = TemporalSampler(pair(), [2]).pin()
    with pytest.raises(UsageError, match="inside its with block"):
        pin.sample([0], [9])
    with pin, pytest.raises(UsageError, match="not open yet"):
        pin.__enter__()
    with pytest.raises(UsageError, match="inside its with block"):
        pin.features([0])


def test_calls_count_with_the_samplers() -> None:
    sampler = TemporalSampler(pair(), [1], "uniform")
    with sampler.pin() as pinned:
        pinned.sample([0], [9])
        sampler.sample([0], [9])
        pinned.walks([0], [9], 2)
    assert sampler.calls == 3


def test_a_pin_that_the_graph_refuses_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pair()
    pin = TemporalSampler(graph, [-1]).pin()

    def refuse(consumer: object) -> None:
        raise UsageError("not now")

    with monkeypatch.context() as refusing:
        refusing.setattr(graph.host, "attach", refuse)
        with pytest.raises(UsageError, match="not now"):
            pin.__enter__()
    with pytest.raises(UsageError, match="inside its with block"):
        pin.sample([0], [9])
    with pin as pinned:
        assert pinned.sample([0], [9])[0].times.tolist() == [3, 5]
