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


def change(graph: lg.Graph, rng: np.random.Generator) -> None:
    """A batch of edges, of which many lead to vertex 0, of removals, and of a vertex that is made anew."""
    live, updates = graph.vertices(), lg.Updates()
    count = int(rng.integers(1, 300))
    columns: dict[str, object] = {}
    if graph.has_weight:
        columns["weight"] = rng.random(count, np.float32)
    if graph.has_type:
        columns["edge_type"] = rng.integers(0, 2, count).astype(np.int32)
    updates.add_edges(rng.choice(live, count), rng.choice(live, count) * rng.integers(0, 2, count), **columns)
    edges = graph.edges()
    for at in rng.permutation(len(edges["id"]))[:100].tolist():
        updates.remove_edge(int(edges["src"][at]), int(edges["dst"][at]), edge_id=int(edges["id"][at]))
    graph.apply(updates)
    updates = lg.Updates()
    again = int(rng.choice(live[1:]))
    updates.remove_vertex(again)
    updates.add_vertex(again, rng.random(2, np.float32))
    if graph.has_weight:
        edges = graph.edges()
        free = (edges["src"] != again) & (edges["dst"] != again)
        at = int(rng.choice(np.flatnonzero(free)))
        updates.set_weight(int(edges["src"][at]), int(edges["dst"][at]), 0.5, edge_id=int(edges["id"][at]))
    graph.apply(updates)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("columns", [(), ("weight", "edge_type")])
def test_a_graph_without_times_is_pinned_too(undirected: bool, columns: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(columns))
    src, dst = rng.integers(0, 30, 400), rng.integers(0, 30, 400) * rng.integers(0, 2, 400)
    drawn = {"weight": rng.random(400, np.float32), "edge_type": rng.integers(0, 2, 400).astype(np.int32)}
    given = {name: drawn[name] for name in columns}
    graph = lg.Graph(rng.random((30, 2), np.float32), src, dst, undirected=undirected, **given)
    change(graph, rng)
    for options in ({"fanouts": [-1]}, {"fanouts": [3, 2], "strategy": "uniform"}, {"fanouts": [200, 2]}):
        if "edge_type" in columns:
            options |= {"edge_types": [1]}
        copied = lg.Graph.from_arrays(graph.to_arrays())
        sampler, other = TemporalSampler(graph, **options), TemporalSampler(copied, **options)
        targets = copied.vertices()
        times = rng.integers(0, 9, len(targets))
        with sampler.pin() as pinned:
            for _ in range(4):
                change(graph, rng)
                other.calls = sampler.calls
                for got, expected in zip(pinned.sample(targets, times), other.sample(targets, times), strict=True):
                    np.testing.assert_array_equal(got.edge_ids, expected.edge_ids)
                    np.testing.assert_array_equal(got.src, expected.src)
                    np.testing.assert_array_equal(got.ptr, expected.ptr)
                    if got.weights is not None:
                        np.testing.assert_array_equal(got.weights, expected.weights)
                other.calls = sampler.calls
                walks, expected_walks = pinned.walks(targets, times, 3), other.walks(targets, times, 3)
                np.testing.assert_array_equal(walks.edge_ids, expected_walks.edge_ids)
                other.calls = sampler.calls
                at_pin = sampler.sample_slots_at(pinned, targets, times)[0]
                np.testing.assert_array_equal(at_pin.edge_ids, other.sample(targets, times)[0].edge_ids)
                np.testing.assert_array_equal(pinned.features(targets), copied.features(targets))
                assert pinned.to_slots(targets).tolist() == targets.tolist()


def test_a_sampler_reads_at_open_pins_of_its_graph_alone() -> None:
    graph = pair()
    sampler = TemporalSampler(graph, [-1])
    with TemporalSampler(pair(), [1]).pin() as foreign, pytest.raises(UsageError, match="another graph"):
        sampler.sample_slots_at(foreign, [0], [9])
    closed = sampler.pin()
    with pytest.raises(UsageError, match="outside its block"):
        sampler.sample_slots_at(closed, [0], [9])
