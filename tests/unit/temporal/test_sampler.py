from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import (
    ColumnMissing,
    DtypeInvalid,
    LiveGnnError,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.reference.temporal import walk
from livegnn.temporal import TemporalSampler
from tests.unit.temporal.past import FIELDS, as_lists, check, edges_of, random_graph, rule_of

LARGEST, SMALLEST = 2**63 - 1, -(2**63) + 1


def star(times: list[int], **options: Any) -> lg.Graph:
    """Vertex 0 with one in-edge from 1, 2, ... at each of these times."""
    count = len(times)
    return lg.Graph(
        np.zeros((count + 1, 0), np.float32), np.arange(1, count + 1), np.zeros(count, np.int64), time=times, **options
    )


def times_at(graph: lg.Graph, time: int, **options: Any) -> list[int]:
    """Times of the whole past of (0, time)."""
    (hop,) = TemporalSampler(graph, [-1], **options).sample([0], [time])
    found: list[int] = hop.times.tolist()
    return found


def test_two_hops_of_the_newest_edges() -> None:
    graph = lg.Graph(np.zeros((4, 0), np.float32), [0, 1, 2, 0], [1, 3, 3, 3], time=[5, 6, 8, 9])
    first, second = TemporalSampler(graph, [2, 2]).sample([3], [9])
    assert as_lists(first) == {
        "targets": [3],
        "target_times": [9],
        "ptr": [0, 2],
        "src": [1, 2],
        "edge_ids": [1, 2],
        "times": [6, 8],
        "edge_index": [[1, 2], [0, 0]],
        "next_targets": [3, 1, 2],
        "next_times": [9, 6, 8],
    }
    assert second.targets.tolist() == [3, 1, 2]
    assert second.target_times.tolist() == [9, 6, 8]
    assert second.src.tolist() == [1, 2, 0]
    assert second.dst.tolist() == [0, 0, 1]
    assert second.edge_count == 3


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, [3, 5, 5]),
        ({"inclusive": True}, [3, 5, 5, 7]),
        ({"window": 2}, [5, 5]),
        ({"window": 1}, []),
        ({"window": 2, "inclusive": True}, [5, 5, 7]),
        ({"window": 4}, [3, 5, 5]),
        ({"window": 2**62}, [3, 5, 5]),
    ],
)
def test_both_ends_of_the_past(options: dict[str, Any], seen: list[int]) -> None:
    assert times_at(star([3, 5, 5, 7, 8]), 7, **options) == seen


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("window", [None, 1, 2, LARGEST])
def test_times_at_the_limits_of_int64(inclusive: bool, window: int | None) -> None:
    times = [SMALLEST, SMALLEST + 1, 0, LARGEST - 1, LARGEST]
    graph = star(times)
    for time in times:
        check(TemporalSampler(graph, [-1], inclusive=inclusive, window=window), np.array([0]), np.array([time]))
    for snapshots in (2, 3):
        if window is not None:
            sampler = TemporalSampler(graph, [2, 2], inclusive=inclusive, window=window, snapshots=snapshots)
            check(sampler, np.zeros(5, np.int64), np.array(times))
    assert times_at(graph, LARGEST, inclusive=True) == times
    assert times_at(graph, SMALLEST) == []


def test_the_oldest_edge_is_reachable_and_ties_go_by_edge_id() -> None:
    hop = TemporalSampler(star([4, 4, 4, 1]), [10]).sample([0], [5])[0]
    assert hop.times.tolist() == [1, 4, 4, 4]
    assert hop.edge_ids.tolist() == [3, 0, 1, 2]
    assert TemporalSampler(star([4, 4, 4, 1]), [2]).sample([0], [5])[0].edge_ids.tolist() == [1, 2]


def test_snapshots_lie_side_by_side() -> None:
    graph = star(list(range(1, 11)))
    strict = TemporalSampler(graph, [-1], window=3, snapshots=3).sample_snapshots([0], [10])
    assert [hops[0].times.tolist() for hops in strict] == [[7, 8, 9], [4, 5, 6], [1, 2, 3]]
    sampler = TemporalSampler(graph, [-1], window=3, snapshots=3, inclusive=True)
    assert [hops[0].times.tolist() for hops in sampler.sample_snapshots([0], [10])] == [
        [8, 9, 10],
        [5, 6, 7],
        [2, 3, 4],
    ]
    with pytest.raises(UsageError, match=r"\[sample\] expected a sampler of one window, got snapshots=3"):
        sampler.sample([0], [10])


def test_prop_time_looks_from_the_root() -> None:
    graph = lg.Graph(np.zeros((3, 0), np.float32), [1, 2, 2], [0, 1, 1], time=[5, 3, 7])
    assert TemporalSampler(graph, [1, -1]).sample([0], [9])[1].times.tolist() == [5, 3]
    hops = TemporalSampler(graph, [1, -1], prop_time=True).sample([0], [9])
    assert hops[1].times.tolist() == [5, 3, 7]
    assert hops[0].next_times.tolist() == [9, 9]
    assert hops[0].times.tolist() == [5]


def test_unique_keeps_each_vertex_and_time_once() -> None:
    graph = lg.Graph(np.zeros((3, 0), np.float32), [1, 1, 1, 0], [0, 0, 2, 2], time=[5, 5, 5, 9])
    (hop,) = TemporalSampler(graph, [-1], unique=True).sample([0, 2, 0], [9, 10, 9])
    assert hop.next_targets.tolist() == [0, 2, 0, 1]  # (0, 9), which vertex 2 saw, is row 0; the roots stay
    assert hop.next_times.tolist() == [9, 10, 9, 5]
    assert hop.src_rows.tolist() == [3, 3, 3, 0, 3, 3]
    assert hop.src.tolist() == [1, 1, 1, 0, 1, 1]


def test_a_draw_is_without_replacement_unless_asked() -> None:
    graph = star(list(range(20)))
    drawn = TemporalSampler(graph, [8], "uniform").sample(np.zeros(200, np.int64), np.full(200, 15))[0]
    rows = drawn.edge_ids.reshape(200, 8)
    assert (np.diff(rows, axis=1) > 0).all()
    assert rows.max() == 14
    again = TemporalSampler(graph, [8], "uniform", replace=True).sample(np.zeros(200, np.int64), np.full(200, 3))[0]
    repeats = again.edge_ids.reshape(200, 8)
    assert (np.diff(repeats, axis=1) >= 0).all()
    assert set(repeats.ravel()) == {0, 1, 2}
    assert TemporalSampler(graph, [8], "uniform").sample([0], [3])[0].edge_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("fanout", [3, 14, 60])
@pytest.mark.parametrize("replace", [False, True])
def test_a_draw_is_uniform(fanout: int, replace: bool) -> None:
    """Every edge as often as every other: chi-squared of 40,000 rows, far below what chance exceeds once in 10^6."""
    candidates, rows = 70, 4000
    graph = star(list(range(candidates)))
    sampler = TemporalSampler(graph, [fanout], "uniform", replace=replace, seed=11)
    counts = np.zeros(candidates)
    for _ in range(10):
        hop = sampler.sample(np.zeros(rows, np.int64), np.full(rows, candidates))[0]
        counts += np.bincount(hop.edge_ids, minlength=candidates)
    expected = 10 * rows * fanout / candidates
    share = 1 if replace else 1 - fanout / candidates
    assert ((counts - expected) ** 2 / (expected * share)).sum() < 140  # 69 degrees of freedom


def test_two_calls_give_two_samples_and_one_seed_gives_one() -> None:
    graph = random_graph(np.random.default_rng(1), 20, 400, 50)
    targets, times = np.arange(20), np.full(20, 50)
    sampler = TemporalSampler(graph, [3, 3], "uniform", seed=5)
    first, second = (as_lists(sampler.sample(targets, times)[1]) for _ in range(2))
    assert first != second
    assert sampler.calls == 2
    again = TemporalSampler(graph, [3, 3], "uniform", seed=5, threads=1)
    again.calls = 1
    assert as_lists(again.sample(targets, times)[1]) == second
    other = TemporalSampler(graph, [3, 3], "uniform", seed=6)
    assert as_lists(other.sample(targets, times)[1]) != first
    with pytest.raises(VertexUnknown):
        sampler.sample([99], [1])
    assert sampler.calls == 2  # a call that was refused does not count
    with pytest.raises(ValueInvalid, match="from 0 to"):
        sampler.calls = -1


@pytest.mark.parametrize("strategy", ["recent", "uniform"])
def test_threads_do_not_show(strategy: Any) -> None:
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 300, 5000, 1000)
    targets, times = rng.integers(0, 300, 2000), rng.integers(-1000, 1000, 2000)
    one, three = (TemporalSampler(graph, [5, 4], strategy, threads=n).sample(targets, times) for n in (1, 3))
    for mine, other in zip(one, three, strict=True):
        assert all(np.array_equal(getattr(mine, name), getattr(other, name)) for name in FIELDS)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("block", [2, 128])
def test_every_option_equals_its_definition(undirected: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lg.Graph, "_block_edges_max", block)  # at 2, nearly every list is a hub's chain
    rng = np.random.default_rng(3 + block)
    for _ in range(60):
        graph = random_graph(rng, int(rng.integers(1, 12)), int(rng.integers(0, 120)), 12, undirected=undirected)
        strategy = str(rng.choice(["recent", "uniform"]))
        window = None if rng.random() < 0.4 else int(rng.integers(1, 20))
        sampler = TemporalSampler(
            graph,
            [int(fanout) for fanout in rng.choice([-1, 1, 2, 3, 7, 40], int(rng.integers(1, 4)))],
            strategy,  # type: ignore[arg-type]
            bool(rng.integers(2)),
            window,
            int(rng.integers(2**40)),
            prop_time=bool(rng.integers(2)),
            replace=strategy == "uniform" and rng.random() < 0.3,
            unique=bool(rng.integers(2)),
            snapshots=1 if window is None else int(rng.integers(1, 4)),
        )
        count = int(rng.integers(0, 5))
        if -1 in sampler.fanouts or 40 in sampler.fanouts:
            sampler = TemporalSampler(graph, sampler.fanouts[:1], strategy, seed=1)  # type: ignore[arg-type]
        check(sampler, rng.integers(0, graph.slot_count, count), rng.integers(-14, 14, count))


def test_edges_late_and_removed() -> None:
    graph = star([1, 5, 9])
    sampler = TemporalSampler(graph, [2])
    updates = lg.Updates()
    updates.add_edge(3, 0, time=6)
    updates.remove_edge(1, 0)
    updates.add_edge(0, 0, time=5)  # a self-loop
    graph.apply(updates)
    hop = sampler.sample([0], [9])[0]
    assert hop.times.tolist() == [5, 6]
    assert hop.src.tolist() == [0, 3]
    assert hop.edge_ids.tolist() == [4, 3]
    check(sampler, np.array([0, 3]), np.array([100, 6]))


def test_ids_of_the_graphs_own() -> None:
    graph = lg.Graph(np.zeros((2, 0), np.float32), ["a"], ["b"], time=[4], ids=["a", "b"])
    hop = TemporalSampler(graph, [1]).sample(["b", "a"], [5, 5])[0]
    assert graph.to_external(hop.next_targets).tolist() == ["b", "a", "a"]
    with pytest.raises(VertexUnknown, match=r"\[sample\] .* got 'c' at row 1"):
        TemporalSampler(graph, [1]).sample(["b", "c"], [5, 5])


def test_nothing_to_sample() -> None:
    empty = lg.Graph(np.zeros((0, 0), np.float32), [], [], time=[])
    for hop in TemporalSampler(empty, [2, 2], unique=True).sample([], []):
        assert hop.ptr.tolist() == [0]
        assert hop.edge_index.shape == (2, 0)
        assert hop.next_targets.size == 0
    hops = TemporalSampler(star([3]), [2, -1], "uniform").sample([1, 0], [9, 3])
    assert [hop.ptr.tolist() for hop in hops] == [[0, 0, 0], [0, 0, 0]]
    assert TemporalSampler(empty, [1]).walks([], [], 3).vertices.shape == (0, 4)


def test_arrays_stay_when_their_buffers_are_used_again() -> None:
    graph = random_graph(np.random.default_rng(4), 50, 2000, 100)
    sampler = TemporalSampler(graph, [5, 5], "uniform")
    kept = sampler.sample(np.arange(50), np.full(50, 80))
    copies = [as_lists(hop) for hop in kept]
    for _ in range(5):  # their buffers come and go
        sampler.sample(np.arange(50), np.full(50, 20))
    assert [as_lists(hop) for hop in kept] == copies
    src = kept[0].src
    values = src.tolist()
    del kept, sampler
    assert src.tolist() == values
    src[:] = -1  # the caller's own to write to


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("window", [None, 10])
def test_walks_equal_their_definition(inclusive: bool, window: int | None) -> None:
    rng = np.random.default_rng(7)
    graph = random_graph(rng, 10, 200, 30)
    sampler = TemporalSampler(graph, [1], seed=9, inclusive=inclusive, window=window)
    sampler.calls = 3
    vertices, times = rng.integers(0, 10, 40), rng.integers(-30, 30, 40)
    found = sampler.walks(vertices, times, 6)
    for got, want in zip(found, walk(rule_of(sampler), edges_of(graph), vertices, times, 6, call=3), strict=True):
        assert got.tolist() == want.tolist()
    assert sampler.calls == 4
    steps = found.edge_ids >= 0
    assert (found.vertices[:, 1:] >= 0).tolist() == steps.tolist()
    earlier = found.times[:, 1:] <= found.times[:, :-1] if inclusive else found.times[:, 1:] < found.times[:, :-1]
    assert earlier[steps[:, 1:]].all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fanouts": []}, ValueInvalid, "a fan-out for each hop"),
        ({"fanouts": 10}, ValueInvalid, "a fan-out for each hop"),
        ({"fanouts": [0]}, ValueInvalid, "at least 1, or -1"),
        ({"fanouts": [2.5]}, DtypeInvalid, "a fan-out as an integer"),
        ({"strategy": "newest"}, ValueInvalid, '"recent" or "uniform"'),
        ({"window": 0}, ValueInvalid, "window from 1"),
        ({"window": 1.5}, DtypeInvalid, "window as an integer"),
        ({"snapshots": 2}, UsageError, "window= with snapshots=2"),
        ({"snapshots": 0, "window": 1}, ValueInvalid, "snapshots from 1"),
        ({"seed": -1}, ValueInvalid, "a seed from 0"),
        ({"threads": 0}, ValueInvalid, "1 to 256 threads"),
        ({"replace": True}, UsageError, 'replace= with strategy="uniform"'),
        ({"inclusive": "no"}, DtypeInvalid, "inclusive as True or False, got 'no'"),
        ({"prop_time": 2}, DtypeInvalid, "prop_time as True or False, got 2"),
        ({"unique": None}, DtypeInvalid, "unique as True or False, got None"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], error: type[LiveGnnError], message: str) -> None:
    with pytest.raises(error, match=message):
        TemporalSampler(star([1]), **{"fanouts": [1], **arguments})


@pytest.mark.parametrize(
    ("vertices", "times", "error", "message"),
    [
        ([0, 7], [1, 1], VertexUnknown, r"\[sample\] expected live vertices as targets, got 7 at row 1"),
        ([0, -1], [1, 1], ValueInvalid, "row 1"),
        ([0, 1], [1], WidthMismatch, "times with 2 rows like vertices, got 1"),
        ([0], [1.0], DtypeInvalid, "times as int64"),
        ([0], [-(2**63)], ValueInvalid, "row 0"),
        ([[0]], [1], WidthMismatch, "shape"),
        ([True], [1], DtypeInvalid, "int64"),
    ],
)
def test_targets_that_are_refused(vertices: object, times: object, error: type[LiveGnnError], message: str) -> None:
    with pytest.raises(error, match=message):
        TemporalSampler(star([1]), [1]).sample(vertices, times)


def test_a_removed_vertex_is_no_target() -> None:
    graph = star([1, 2])
    updates = lg.Updates()
    updates.remove_vertex(1)
    graph.apply(updates)
    with pytest.raises(VertexUnknown, match="got 1 at row 2"):
        TemporalSampler(graph, [1]).sample([0, 2, 1], [1, 1, 1])
    with pytest.raises(VertexUnknown, match=r"\[walks\]"):
        TemporalSampler(graph, [1]).walks([1], [1], 2)


def test_graphs_that_are_refused() -> None:
    with pytest.raises(ColumnMissing, match="whose edges have times"):
        TemporalSampler(lg.Graph(np.zeros((2, 1), np.float32), [0], [1]), [1], window=5)
    untyped = star([1])
    with pytest.raises(ColumnMissing, match="whose edges have types"):
        TemporalSampler(untyped, [1], edge_types=[0])
    with pytest.raises(ColumnMissing, match="no vertex_type"):
        TemporalSampler(untyped, [1]).sample([0], [1], vertex_type="User")
    with pytest.raises(UsageError, match="expected a Graph"):
        TemporalSampler(None, [1])  # type: ignore[arg-type]


def test_an_answer_that_is_too_large() -> None:
    sampler = TemporalSampler(star([1]), [2000, 2000, 2000])
    with pytest.raises(ValueInvalid, match=r"at most 2\^31 rows"):
        sampler.sample([0], [1])
    with pytest.raises(ValueInvalid, match="length from 1"):
        sampler.walks([0], [1], 0)


def test_inside_what_if() -> None:
    """The store holds what is supposed, and samples show it; ids of the own do not follow, and are refused."""
    for ids in (None, ["a", "b", "c"]):
        graph = lg.Graph(
            np.ones((3, 2), np.float32), *([[0], [1]] if ids is None else [["a"], ["b"]]), time=[4], ids=ids
        )
        engine = lg.Engine(lg.Model([lg.layers.GCN(np.ones((2, 2), np.float32))]), graph)
        sampler = TemporalSampler(graph, [5])
        updates = lg.Updates()
        updates.add_edge(*((2, 1) if ids is None else ("c", "b")), time=6)
        with sampler.pin() as pinned, engine.what_if(updates):
            if ids is None:
                assert sampler.sample([1], [9])[0].src.tolist() == [0, 2]
            else:
                with pytest.raises(UsageError, match="what_if"):
                    sampler.sample(["b"], [9])
            with pytest.raises(UsageError, match="no what_if block under way"):
                pinned.sample([1] if ids is None else ["b"], [9])
        assert sampler.sample([1] if ids is None else ["b"], [9])[0].src.tolist() == [0]


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("unique", [False, True])
def test_without_times_every_edge_is_in_the_past(undirected: bool, unique: bool) -> None:
    random = np.random.default_rng(3)
    src, dst = random.integers(0, 30, (2, 3000))
    dst[:1000] = 7  # a list of many blocks
    plain = lg.Graph(np.zeros((30, 0), np.float32), src, dst, undirected=undirected)
    dated = lg.Graph(np.zeros((30, 0), np.float32), src, dst, time=np.zeros(3000, np.int64), undirected=undirected)
    for graph in (plain, dated):
        updates = lg.Updates()
        updates.remove_edges(src[:50], dst[:50])
        graph.apply(updates)
    targets, times = random.integers(0, 30, 40), random.integers(1, 9, 40)
    for strategy in ("recent", "uniform"):
        options = {"fanouts": [4, -1], "strategy": strategy, "unique": unique, "prop_time": True}
        got, expected = (TemporalSampler(graph, **options).sample(targets, times) for graph in (plain, dated))
        for hop, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(hop.edge_ids, other.edge_ids)
            np.testing.assert_array_equal(hop.edge_index, other.edge_index)
            np.testing.assert_array_equal(hop.next_targets, other.next_targets)
            np.testing.assert_array_equal(hop.next_times, other.next_times)
            np.testing.assert_array_equal(hop.times, hop.target_times[hop.dst])
    walks = TemporalSampler(plain, [1]).walks(targets, times, 3)
    assert walks.edge_ids.shape == (40, 3)
    steps = walks.edge_ids >= 0
    assert (walks.times == np.where(steps, times[:, None], 0)).all()  # those of the targets
