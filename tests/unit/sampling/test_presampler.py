from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import QueryInvalid, UsageError, ValueInvalid, VersionPending, VertexUnknown
from livegnn.graph.ids import IdChange
from livegnn.log import UpdateLog, open_log, replay
from livegnn.sampling.presample.source import Response, answered
from tests.unit.graph.recorders import Noted, no_room

LATEST = lg.query().out().sample(2, by="top_k")


def small(**columns: object) -> lg.Graph:
    """0 -> 1, 2, 3 at times 10, 20, 30 and 3 -> 4 at 5; the features of v are (v, 1)."""
    features = np.stack([np.arange(5), np.ones(5)], axis=1).astype(np.float32)
    given: dict[str, object] = {"time": [10, 20, 30, 5], **columns}
    return lg.Graph(features, [0, 0, 0, 3], [1, 2, 3, 4], **given)


def added(u: int, v: int, **columns: object) -> lg.Updates:
    updates = lg.Updates()
    updates.add_edge(u, v, **columns)
    return updates


def test_the_latest_edges_newest_first() -> None:
    sample = lg.PreSampler(small(), LATEST).sample([0, 3, 4])
    assert sample.hop(0).tolist() == [0, 3, 4]
    assert sample.hop(1).tolist() == [[3, 2], [4, -1], [-1, -1]]
    assert sample.edge_ids(1).tolist() == [[2, 1], [3, -1], [-1, -1]]
    assert sample.features(0).tolist() == [[0, 1], [3, 1], [4, 1]]
    assert sample.features(1)[1].tolist() == [[4, 1], [0, 0]]
    assert sample.mask(1).tolist() == [[True, True], [True, False], [False, False]]
    assert sample.version == 0


def test_a_late_edge_is_not_the_latest_and_a_removed_one_is_replaced() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    sampler.apply(added(0, 4, time=15))
    assert sampler.sample([0]).hop(1).tolist() == [[3, 2]]
    updates = lg.Updates()
    updates.remove_edge(0, 3)
    assert sampler.apply(updates) == 2
    assert sampler.sample([0]).hop(1).tolist() == [[2, 4]]


@pytest.mark.parametrize("length", range(6, 22))
def test_any_edge_of_a_row_that_grew_at_its_front_may_leave(length: int) -> None:
    """Rows of the latest edges hold a few more until they are copied: those may be the ones that leave, or are late."""
    for place in range(length):
        graph = lg.Graph(np.zeros((2, 1), np.float32), [0], [1], time=[0])
        sampler = lg.PreSampler(graph, lg.query().out().sample(5, by="top_k"))
        for time in range(1, length):
            sampler.apply(added(0, 1, time=10 * time))
        late = added(0, 1, time=10 * place + 5)
        late.remove_edge(0, 1, edge_id=place)
        sampler.apply(late)
        sampler.verify()
        sampler.apply(added(0, 1, time=10 * length))
        sampler.verify()


def test_a_graph_that_is_applied_to_keeps_its_samplers_up() -> None:
    graph = small()
    sampler = lg.PreSampler(graph, LATEST)
    graph.apply(added(0, 4, time=40))
    assert sampler.sample([0]).hop(1).tolist() == [[4, 3]]
    assert sampler.version == graph.version == 1


def test_changed_features_are_seen_wherever_the_vertex_is_sampled() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    updates = lg.Updates()
    updates.set_features(3, [7, 7])
    sampler.apply(updates)
    sample = sampler.sample([0, 3])
    assert sample.features(1)[0, 0].tolist() == [7, 7]
    assert sample.features(0)[1].tolist() == [7, 7]


def test_edges_expire_by_the_largest_event_time_ever_added() -> None:
    sampler = lg.PreSampler(small(), LATEST, ttl=15)
    assert sampler.sample([0]).hop(1).tolist() == [[3, 2]]  # now = 30: times above 15 count
    updates = added(4, 1, time=35)
    updates.remove_edge(4, 1)  # gone again, but time has passed
    sampler.apply(updates)
    assert sampler.stats.now == 35
    assert sampler.sample([0]).hop(1).tolist() == [[3, -1]]
    sampler.apply(added(0, 2, time=19))
    assert sampler.sample([0]).hop(1).tolist() == [[3, -1]]


def test_a_sampler_that_takes_over_goes_on_from_the_time_that_was() -> None:
    graph = small()
    first = lg.PreSampler(graph, LATEST, ttl=15)
    updates = added(4, 1, time=35)
    updates.remove_edge(4, 1)
    first.apply(updates)
    assert lg.PreSampler(graph, LATEST, ttl=15).digest() != first.digest()
    assert lg.PreSampler(graph, LATEST, ttl=15, now=first.stats.now).digest() == first.digest()
    with pytest.raises(lg.errors.DtypeInvalid, match="now"):
        lg.PreSampler(graph, LATEST, ttl=15, now=0.5)  # type: ignore[arg-type]


def test_a_batch_that_the_log_does_not_take_reaches_no_reader() -> None:
    graph = small()
    sampler = lg.PreSampler(graph, LATEST)
    before = graph.digest(), sampler.digest()
    full = Noted([], "full", append=no_room)
    graph.host.add_recorder(full)
    with pytest.raises(OSError, match="no room"):
        graph.apply(added(0, 4, time=40))
    assert (graph.digest(), sampler.digest(), sampler.version) == (*before, 0)
    graph.host.drop_recorder(full)
    graph.apply(added(0, 4, time=40))
    sampler.verify()


def test_a_sampler_on_a_replayed_log_has_the_samples_of_the_first(tmp_path: Path) -> None:
    log = UpdateLog(open_log(f"sqlite:{tmp_path / 'history.db'}"))
    graph, again = small(), small()
    sampler, follower = (lg.PreSampler(g, lg.query().out().sample(2), ttl=20, seed=9) for g in (graph, again))
    with log:
        attachment = log.attach(graph)
        for step in range(30):
            updates = added(step % 5, (step * 3) % 5, time=step)
            if step % 4 == 3:
                updates.remove_edge(step % 5, (step * 3) % 5)
            sampler.apply(updates)
        attachment.detach()
        replay(log, again)
    assert follower.digest() == sampler.digest()
    assert follower.stats.now == sampler.stats.now


def test_a_duration_for_each_edge_type() -> None:
    graph = small(edge_type=[0, 1, 1, 0])
    query = lg.query().out(0).sample(3, by="top_k")
    assert lg.PreSampler(graph, query, ttl={0: 25, 1: 1}).sample([0]).hop(1).tolist() == [[1, -1, -1]]
    with pytest.raises(QueryInvalid, match="name the edge type of the hop"):
        lg.PreSampler(graph, LATEST, ttl={0: 25})


def test_parallel_edges_and_loops_are_sampled_apart() -> None:
    graph = lg.Graph(np.zeros((2, 1), np.float32), [0, 0, 0], [1, 1, 0])
    out = lg.PreSampler(graph, lg.query().out().sample(5)).sample([0])
    assert sorted(out.hop(1)[0].tolist()) == [-1, -1, 0, 1, 1]
    both = lg.PreSampler(graph, lg.query().both().sample(5)).sample([0])
    assert sorted(both.edge_ids(1)[0].tolist()) == [-1, -1, 0, 1, 2]


def test_vertices_by_their_own_ids() -> None:
    graph = lg.Graph(np.eye(3, dtype=np.float32), ["a", "a"], ["b", "c"], time=[1, 2], ids=["a", "b", "c"])
    sampler = lg.PreSampler(graph, LATEST.in_().sample(1, by="top_k"))
    sample = sampler.sample(["a", "b"])
    assert sample.hop(0).tolist() == ["a", "b"]
    assert sample.hop(1).tolist() == [["c", "b"], [None, None]]
    assert sample.hop(2)[0].tolist() == [["a"], ["a"]]
    with pytest.raises(VertexUnknown, match="'z' at row 1"):
        sampler.sample(["a", "z"])


def test_queries_start_and_end_while_the_graph_runs() -> None:
    graph = small()
    sampler = lg.PreSampler(graph, LATEST)
    sampler.apply(added(0, 4, time=40))
    number = sampler.add(LATEST.out().sample(1, by="top_k"))
    assert len(sampler.plan.tables) == 2  # hop 1 is shared
    assert sampler.sample([0], query=number).hop(2).tolist() == [[[-1], [4]]]
    with pytest.raises(UsageError, match="number of a running query"):
        sampler.sample([0])
    sampler.drop(1)
    sampler.apply(added(4, 2, time=41))
    assert sampler.sample([0]).hop(2).tolist() == [[[2], [4]]]
    with pytest.raises(UsageError, match=r"running query \(2\), got 1"):
        sampler.sample([0], query=1)
    with pytest.raises(UsageError, match="number of a running query"):
        sampler.drop(1)


def test_a_timeout_that_is_no_time_to_wait() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    no_times = (float("nan"), float("inf"), np.float16("inf"), 1e30, 10**5000, -1, "1", True, np.timedelta64(1, "s"))
    for timeout in no_times:
        for options in ({"at_least": 9}, {}):
            with pytest.raises(ValueInvalid, match="expected a timeout from 0 to"):
                sampler.sample([0], **options, timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(ValueInvalid, match=r"expected at_least as a version, from 0 to 2\^63 - 1, got -1; fix"):
        sampler.sample([0], at_least=-1)


def test_negative_weights_refuse_the_batch_and_the_query() -> None:
    graph = lg.Graph(np.zeros((3, 1), np.float32), [0, 1], [1, 2], weight=[1.0, 2.0])
    sampler = lg.PreSampler(graph, lg.query().out().sample(2, by="weighted"))
    before = graph.digest(), sampler.digest()
    with pytest.raises(ValueInvalid, match=r"\[apply\] .* got -3.0+ for edge 0 -> 2; correct"):
        graph.apply(added(0, 2, weight=-3.0))
    assert (graph.digest(), sampler.digest(), graph.version) == (*before, 0)
    sampler.close()
    graph.apply(added(0, 2, weight=-3.0))
    with pytest.raises(ValueInvalid, match="weights of at least 0"):
        lg.PreSampler(graph, lg.query().out().sample(2, by="weighted"))
    with pytest.raises(ValueInvalid, match=r"\[sample\] .* \(edge id 2\)"):
        lg.AdHocSampler(graph, lg.query().out().sample(2, by="weighted")).sample([0])
    assert graph.apply(added(0, 1, weight=1.0)) == 2  # the sampler that was refused left nothing behind


def test_an_engine_that_refuses_a_batch_takes_the_sampler_back_too() -> None:
    graph = small(weight=[1.0, 1.0, 1.0, 1.0])
    model = lg.Model([lg.layers.GCN(np.eye(2, dtype=np.float32), weighted=True)])
    engine, sampler = lg.Engine(model, graph), lg.PreSampler(graph, LATEST)
    before = sampler.digest()
    with pytest.raises(lg.errors.UpdateError):
        engine.apply(added(0, 4, time=50, weight=-100.0))
    assert sampler.digest() == before
    assert sampler.sample([0]).hop(1).tolist() == [[3, 2]]
    with engine.what_if(added(0, 4, time=50, weight=1.0)):
        assert sampler.sample([0]).hop(1).tolist() == [[3, 2]]  # what is only supposed is not sampled
    engine.apply(added(0, 4, time=50, weight=1.0))
    assert sampler.sample([0]).hop(1).tolist() == [[4, 3]]
    sampler.verify()
    engine.verify()


def test_reading_at_least_a_version() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    with pytest.raises(VersionPending, match=r"expected version 1 or later within .* got 0") as caught:
        sampler.sample([0], at_least=1, timeout=0.01)
    assert caught.value.retryable
    writer = threading.Timer(0.05, sampler.apply, [added(0, 4, time=40)])
    writer.start()
    assert sampler.sample([0], at_least=1, timeout=30).hop(1).tolist() == [[4, 3]]
    writer.join()


def test_readers_see_whole_versions() -> None:
    """Every batch moves all edges and features of a ring at once; a reader must never see half of that."""
    count = 400
    ring = np.arange(count)
    graph = lg.Graph(np.zeros((count, 1), np.float32), ring, (ring + 1) % count, time=np.zeros(count, np.int64))
    sampler = lg.PreSampler(graph, lg.query().out().sample(1, by="top_k").out().sample(1, by="top_k"), threads=1)
    steps, done, wrong = 60, threading.Event(), []

    def read() -> None:
        while not done.is_set():
            sample = sampler.sample(ring)
            step = sample.version + 1
            if not (sample.hop(1)[:, 0] == (ring + step) % count).all():
                wrong.append(("hop 1", step))
            if not (sample.hop(2)[:, 0, 0] == (ring + 2 * step) % count).all():
                wrong.append(("hop 2", step))
            if not (sample.features(2) == sample.version).all():
                wrong.append(("features", step))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(2, steps + 2):
        updates = lg.Updates()
        updates.add_edges(ring, (ring + step) % count, time=np.full(count, step))
        updates.set_features(ring, np.full((count, 1), step - 1, np.float32))
        sampler.apply(updates)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_stats_and_verify() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    assert sampler.stats.lag_ms is None
    sampler.apply(added(0, 4, time=40))
    stats = sampler.stats
    assert (stats.version, stats.now, stats.batches, stats.updates) == (1, 40, 1, 1)
    assert stats.lag_ms is not None
    assert stats.bytes["rows_live"] > 0
    sampler.verify()
    assert "Q1" in sampler.explain()
    assert repr(sampler).startswith("PreSampler(lg.query().out()")


def test_large_reads_by_many_threads_are_those_of_one() -> None:
    rng = np.random.default_rng(1)
    graph = lg.Graph(rng.random((300, 3), np.float32), rng.integers(0, 300, 5000), rng.integers(0, 300, 5000))
    query = lg.query().out().sample(9).out().sample(7)
    seeds = rng.integers(0, 300, 900)
    one, many = (lg.PreSampler(graph, query, threads=threads).sample(seeds) for threads in (1, 3))
    for k in (1, 2):
        np.testing.assert_array_equal(one.hop(k), many.hop(k))
        np.testing.assert_array_equal(one.features(k), many.features(k))


def test_what_was_not_asked_for_is_not_there() -> None:
    sample = lg.PreSampler(small(), LATEST).sample([0], features=False, edge_ids=False)
    with pytest.raises(UsageError, match="features=True"):
        sample.features(1)
    with pytest.raises(UsageError, match="edge_ids=True"):
        sample.edge_ids(1)
    assert sample.hop(1).tolist() == [[3, 2]]


@pytest.mark.parametrize("k", [2, -1, "1", None, 1.0])
def test_levels_that_are_not_there(k: object) -> None:
    with pytest.raises(ValueInvalid, match="expected a level from 0 to 1"):
        lg.PreSampler(small(), LATEST).sample([0]).hop(k)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seeds", "error", "text"),
    [
        ([0, 99], VertexUnknown, "got 99 at row 1"),
        ([-1], ValueInvalid, "got -1 at row 0"),
        ([0.5], lg.errors.DtypeInvalid, "seeds"),
        ([[0]], lg.errors.WidthMismatch, "seeds"),
        (["a"], lg.errors.DtypeInvalid, "seeds"),
    ],
)
def test_seeds_that_are_not_vertices(seeds: object, error: type[Exception], text: str) -> None:
    for sampler in (lg.PreSampler(small(), LATEST), lg.AdHocSampler(small(), LATEST)):
        with pytest.raises(error, match=text):
            sampler.sample(seeds)


def test_a_removed_vertex_is_no_seed() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    updates = lg.Updates()
    updates.remove_vertex(3)
    sampler.apply(updates)
    assert sampler.sample([0]).hop(1).tolist() == [[2, 1]]
    with pytest.raises(VertexUnknown, match="got 3 at row 0"):
        sampler.sample([3])


def test_no_seeds_no_rows() -> None:
    sample = lg.PreSampler(small(), LATEST).sample(np.zeros(0, np.int64))
    assert sample.hop(1).shape == (0, 2)
    assert sample.features(1).shape == (0, 2, 2)


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, True, None])
def test_seeds_of_the_ranks(seed: object) -> None:
    with pytest.raises(ValueInvalid, match="seed from 0"):
        lg.PreSampler(small(), LATEST, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ttl", "error"),
    [(0, ValueInvalid), (-1, ValueInvalid), (1.5, ValueInvalid), (True, ValueInvalid), ({"x": 5}, QueryInvalid)],
)
def test_durations_that_are_none(ttl: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="ttl"):
        lg.PreSampler(small(), LATEST, ttl=ttl)  # type: ignore[arg-type]


def test_a_closed_sampler() -> None:
    graph = small()
    sampler = lg.PreSampler(graph, LATEST)
    sampler.close()
    sampler.close()
    graph.apply(added(0, 4, time=99))
    with pytest.raises(UsageError, match="was closed"):
        sampler.sample([0])
    with pytest.raises(UsageError, match="was closed"):
        sampler.apply(lg.Updates())


def test_what_is_not_a_graph_or_a_query() -> None:
    with pytest.raises(UsageError, match="expected a Graph, got dict"):
        lg.PreSampler({}, LATEST)  # type: ignore[arg-type]
    with pytest.raises(QueryInvalid, match="expected a Query"):
        lg.PreSampler(small(), "out")  # type: ignore[arg-type]
    with pytest.raises(ValueInvalid, match="threads"):
        lg.PreSampler(small(), LATEST, threads=0)
    with pytest.raises(QueryInvalid, match="times for top_k"):
        lg.PreSampler(lg.Graph(np.zeros((1, 1), np.float32), [], []), LATEST)


def named(weight: list[float] | None = None) -> lg.Graph:
    """a -> b, with names."""
    return lg.Graph(np.eye(3, dtype=np.float32), ["a"], ["b"], time=[1], weight=weight, ids=["a", "b", "c"])


def test_names_that_move_between_answer_and_look_up_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """b leaves and z takes its slot, while a reader holds an answer of the version before."""
    graph = named()
    sampler = lg.PreSampler(graph, LATEST)
    committed, go_on = threading.Event(), threading.Event()
    commit = IdChange.commit

    def slow_commit(self: IdChange) -> None:
        commit(self)
        committed.set()
        go_on.wait(timeout=30)

    monkeypatch.setattr(IdChange, "commit", slow_commit)
    updates = lg.Updates()
    updates.remove_vertex("b")
    updates.add_vertex("z", [9, 9, 9])
    writer = threading.Thread(target=graph.apply, args=[updates])
    asked = []

    def ask(slots: np.ndarray, version: int | None) -> Response:
        assert version == (0, -1, -1, 1)[len(asked)]  # a source that lags behind has to wait for the ids' version
        answer = Response(*sampler.follower.sample([0], slots, [3, 3], edge_ids=True, edge_data=False))
        asked.append(answer[0])
        if len(asked) == 1:
            writer.start()
            assert committed.wait(timeout=30)
        elif len(asked) == 3:
            go_on.set()
        return answer

    given, answer, names = answered(graph, None, ["a"], ask)
    go_on.set()
    writer.join()
    assert asked[0] == 0
    assert answer[0] == 1
    assert given.tolist() == ["a"]
    assert names is not None
    assert names[0].tolist() == [[None, None]]


def test_an_answer_keeps_its_seeds_whatever_the_caller_writes_to_the_array() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    seeds = np.array([0, 3])
    sample = sampler.sample(seeds)
    seeds[:] = 10**9
    assert sample.hop(0).tolist() == [0, 3]


def test_negative_weights_are_told_by_the_names_of_the_vertices() -> None:
    graph = named(weight=[1.0])
    lg.PreSampler(graph, lg.query().out().sample(2, by="weighted"))
    updates = lg.Updates()
    updates.add_edge("a", "c", weight=-1.0, time=2)
    with pytest.raises(ValueInvalid, match="edge 'a' -> 'c' by the graph's ids"):
        graph.apply(updates)


def test_a_follower_that_fails_keeps_nobody_else_behind() -> None:
    """An edge is removed behind one sampler's back, so that it fails when the edge leaves again."""
    graph = small()
    first, second = lg.PreSampler(graph, LATEST), lg.PreSampler(graph, LATEST)
    third = lg.PreSampler(graph, lg.query().in_().sample(1))
    graph.host._followers = [third.follower]
    gone = lg.Updates()
    gone.remove_edge(0, 3)
    graph.apply(gone)
    graph.host.renew_natives()
    with pytest.raises(lg.errors.InvariantBroken):
        graph.apply(added(0, 4, time=50))
    assert third.version == graph.version == 2
    third.verify()
    graph.apply(added(3, 1, time=60))  # the ones that failed are in nobody's way, and answer nobody
    assert third.version == 3
    for broken in (first, second):
        with pytest.raises(lg.errors.InvariantBroken, match="make the sampler anew"):
            broken.sample([0])


def test_the_calendar_of_expiry_does_not_grow_with_updates_that_change_no_expiry() -> None:
    graph = lg.Graph(np.zeros((2, 1), np.float32), [0], [1], time=[5])
    sampler = lg.PreSampler(graph, LATEST, ttl=10**9)
    for _ in range(500):
        updates = added(0, 1, time=5)
        updates.remove_edge(0, 1)
        graph.apply(updates)
        graph.apply(added(1, 0, time=5))
        updates = lg.Updates()
        updates.remove_edge(1, 0)
        graph.apply(updates)
    assert sampler.stats.bytes["expiry"] < 10_000
    sampler.verify()
    graph.apply(added(1, 0, time=10**9 + 5))
    assert sampler.sample([0]).hop(1).tolist() == [[-1, -1]]
    sampler.verify()


def test_closing_wakes_those_who_wait() -> None:
    sampler = lg.PreSampler(small(), LATEST)
    closer = threading.Timer(0.05, sampler.close)
    closer.start()
    with pytest.raises(UsageError, match="was closed"):
        sampler.sample([0], at_least=9, timeout=None)
    closer.join()


def test_a_sampler_that_differs_from_a_scan_says_so() -> None:
    graph = small()
    sampler = lg.PreSampler(graph, LATEST)
    graph.host._followers = []
    graph.apply(added(0, 4, time=99))
    with pytest.raises(lg.errors.StateMismatch, match="samples of a scan"):
        sampler.verify()


def test_the_digest_is_of_samples_and_not_of_the_numbers_of_tables() -> None:
    graph = small()
    sampler = lg.PreSampler(graph, lg.query().out().sample(3))
    number = sampler.add(LATEST)
    sampler.drop(1)
    assert sampler.digest() == lg.PreSampler(graph, LATEST).digest()
    assert sampler.sample([0], query=number).hop(1).tolist() == [[3, 2]]


def test_answers_that_are_too_large_are_refused_before_they_are_made() -> None:
    wide = lg.query().out().sample(65535).out().sample(65535)
    for make in (lg.PreSampler, lg.AdHocSampler):
        with pytest.raises(ValueInvalid, match=r"at most 2\^31 places"):
            make(small(), wide)
        with pytest.raises(ValueInvalid, match=r"got 2,621,400,000 \(20 GiB"):
            make(small(), lg.query().out().sample(65535)).sample(np.zeros(40_000, np.int64))


@pytest.mark.parametrize("at_least", ["x", 1.5, True])
def test_versions_that_are_none(at_least: object) -> None:
    with pytest.raises((ValueInvalid, lg.errors.DtypeInvalid), match="at_least"):
        lg.PreSampler(small(), LATEST).sample([0], at_least=at_least)  # type: ignore[arg-type]


def test_timeouts_and_times_that_are_none() -> None:
    with pytest.raises(ValueInvalid, match="timeout"):
        lg.PreSampler(small(), LATEST).sample([0], at_least=0, timeout="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="now="):
        lg.PreSampler(lg.Graph(np.zeros((1, 1), np.float32), [], []), lg.query().out().sample(1), now=3)


@pytest.mark.parametrize(("option", "value"), [("seed", -1), ("threads", 0), ("threads", "x")])
def test_options_of_ad_hoc_sampling_that_are_none(option: str, value: object) -> None:
    with pytest.raises(ValueInvalid, match=option):
        lg.AdHocSampler(small(), LATEST, **{option: value})  # type: ignore[arg-type]


def test_ad_hoc_sampling_looks_at_the_time_of_each_version() -> None:
    graph = small()
    ad_hoc = lg.AdHocSampler(graph, LATEST, ttl=15)
    assert ad_hoc.sample([0]).hop(1).tolist() == [[3, 2]]
    graph.apply(added(4, 1, time=35))
    assert ad_hoc.sample([0]).hop(1).tolist() == [[3, -1]]
    assert lg.AdHocSampler(graph, LATEST, ttl=15, now=30).sample([0]).hop(1).tolist() == [[3, 2]]
    with pytest.raises(lg.errors.DtypeInvalid, match="now"):
        lg.AdHocSampler(graph, LATEST, ttl=15, now="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("now", [5, 0, "x"])
def test_now_counts_nothing_without_a_ttl(now: Any) -> None:
    with pytest.raises(UsageError, match="now= with ttl=, which counts from it, got no ttl") as refused:
        lg.PreSampler(small(), LATEST, now=now)
    assert "give one" in str(refused.value)
    with pytest.raises(UsageError, match="now= with ttl=, which counts from it, got no ttl"):
        lg.AdHocSampler(small(), LATEST, now=now)


@pytest.mark.parametrize("at_least", [-1, 1.5, True, 2**70, "1", float("nan")])
def test_at_least_is_a_version(at_least: Any) -> None:
    sampler = lg.PreSampler(small(), LATEST)
    with pytest.raises((lg.errors.DtypeInvalid, lg.errors.ValueInvalid), match="expected at_least as"):
        sampler.sample([0], at_least=at_least)
    with lg.SampleServer(sampler) as server, pytest.raises(lg.errors.UpdateError, match="expected at_least as"):
        server.sample([0], at_least=at_least)


def test_ad_hoc_sampling_of_names_waits_for_the_end_of_a_supposition() -> None:
    graph = named()
    engine = lg.Engine(lg.Model([lg.layers.GCN(np.eye(3, dtype=np.float32))]), graph)
    updates = lg.Updates()
    updates.add_vertex("z", [1, 1, 1])
    with engine.what_if(updates), pytest.raises(UsageError, match="what_if"):
        lg.AdHocSampler(graph, LATEST).sample(["a"])
