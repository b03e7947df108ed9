"""Partition: each worker's part of a graph, kept up with every batch; all parts together are the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.distributed import Layout, Newcomers, Partition, hashed, ldg, metis, run_threads
from livegnn.errors import (
    ColumnMissing,
    EdgeMissing,
    EdgeOffloaded,
    LiveGnnError,
    LogConflict,
    LogUnavailable,
    UpdateError,
    UsageError,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph.consumers import Consumer
from livegnn.log import UpdateLog, codec, open_log
from tests.composition.distributed import check_parts
from tests.composition.temporal import world_of
from tests.composition.world import TRIPLES, Setting
from tests.unit.distributed.streams import stream_graph


def owners_of(graph, count, seed):
    """Parts by a partitioner, and a rule for newcomers, both of a seed's choice; None stands for a hash."""
    rng = np.random.default_rng(seed)
    find = (None, hashed, lambda parts: metis(graph, parts), lambda parts: ldg(graph, parts))[int(rng.integers(4))]
    return find and Newcomers.of(graph, find(count), rule=("ldg", "fennel", "hash")[int(rng.integers(3))])


def equal_to_whole(parts, graph):
    """Edges of the owners with ids, times and attributes; features; vertices; versions. Each vertex has one owner, whom
    every worker knows, and who counts it.
    """
    whole, slots = graph.edges(), np.arange(graph.slot_count)
    assert (sum(part.is_held(slots) for part in parts) == len(parts) // parts[0].layout.partitions).all()
    first = parts[0].newcomers.to_arrays()
    assert first["live"].sum() == len(graph.vertices())
    for part in parts[1:]:
        for name, array in part.newcomers.to_arrays().items():
            np.testing.assert_array_equal(array, first[name], err_msg=name)
    for part in parts:
        held = part.is_held(whole["dst"].astype(np.int64))
        if graph.undirected:
            held |= part.is_held(whole["src"].astype(np.int64))
        local = part.graph.edges()
        for name, column in whole.items():
            np.testing.assert_array_equal(local[name], column[held], err_msg=name)
        assert part.graph.version == graph.version
        assert part.next_edge_id == graph.host.store.next_edge_id
        np.testing.assert_array_equal(part.graph.vertices(), graph.vertices())
        mine = graph.vertices()[part.is_held(graph.vertices())]
        np.testing.assert_array_equal(part.feature_rows(mine), graph.features(mine))
        part.graph.host.store.check_invariants()


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_parts_of_a_graph_are_the_whole(undirected, seed):
    graph = stream_graph(features=3, attrs=2, undirected=undirected)
    owners = owners_of(graph, 3, seed)
    equal_to_whole([Partition.of(graph, Layout(1, 3), rank, owners) for rank in range(3)], graph)


def test_a_part_has_the_vertices_that_the_partitioner_gave_it():
    graph = stream_graph(features=3)
    given = ldg(graph, 3)
    for rank in range(3):
        part = Partition.of(graph, Layout(1, 3), rank, Newcomers.of(graph, given))
        np.testing.assert_array_equal(np.flatnonzero(part.is_held(graph.vertices())), np.flatnonzero(given.of == rank))


def test_hosts_share_a_partition():
    graph, layout = stream_graph(features=3), Layout(hosts=2, workers_per_host=2, shared=True)
    parts = [Partition.of(graph, layout, rank, Newcomers.of(graph, ldg(graph, 2))) for rank in range(4)]
    equal_to_whole(parts, graph)
    assert parts[0].graph.edges()["id"].tolist() == parts[1].graph.edges()["id"].tolist()


def batch_of(rng, graph):
    """Any updates; some batches are refused."""
    updates = lg.Updates()
    vertices = graph.slot_count
    for kind in rng.integers(0, 9, 12):
        u, v = (int(x) for x in rng.integers(0, vertices, 2))
        row = rng.normal(size=3).astype(np.float32)
        if kind <= 3:
            width = 3 if rng.random() < 0.02 else 2  # an attribute too many
            updates.add_edge(u, v, time=int(rng.integers(0, 100)), edge_attr=row[:width])
        elif kind == 4:
            updates.remove_edge(u, v, missing="ignore")
        elif kind == 5:
            updates.set_features(u, row if rng.random() < 0.95 else row[:1])
        elif kind == 6 and graph.edge_count:
            edges = graph.edges()
            place = int(rng.integers(0, len(edges["id"])))
            ends = int(edges["src"][place]), int(edges["dst"][place])
            updates.set_edge_attr(*ends, row[:2], edge_id=int(edges["id"][place]))
        elif kind == 7:
            gap = int(rng.random() < 0.02)
            updates.add_vertex(vertices + gap, row)
            vertices += 1 + gap
        elif rng.random() < 0.3:
            updates.remove_vertex(u)
        else:
            updates.remove_edges_before(int(rng.integers(0, 20)))
    return updates


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(1, 4), st.sampled_from([None, 40]))
def test_batches_keep_the_parts_equal_to_the_whole_and_refusals_change_nothing(seed, undirected, workers, ttl):
    rng = np.random.default_rng(seed)
    start = {"seed": seed, "vertices": 12, "edges": 60, "features": 3, "attrs": 2, "undirected": undirected, "ttl": ttl}
    graph = stream_graph(**start)
    owners = owners_of(graph, workers, seed)
    batches, outcomes = [], []  # None, or the refusal
    for _ in range(15):
        batches.append(batch_of(rng, graph))
        try:
            graph.apply(batches[-1])
            outcomes.append(None)
        except UpdateError as error:
            outcomes.append((type(error), str(error)))

    def work(exchange):
        part = Partition.of(stream_graph(**start), Layout(1, workers), exchange.rank, owners)
        done = []
        for batch in batches:
            try:
                part.apply(batch, exchange)
                done.append(None)
            except UpdateError as error:
                done.append((type(error), str(error)))
        return part, done

    results = run_threads(work, workers)
    assert [done for _, done in results] == [outcomes] * workers
    equal_to_whole([part for part, _ in results], graph)


def refused(updates, *, features=0):
    """The errors of two workers, and that neither has changed."""
    graph = stream_graph(vertices=6, edges=20, features=features)

    def work(exchange):
        part = Partition.of(graph, Layout(1, 2), exchange.rank)
        before = part.graph.host.store.digest()
        with pytest.raises(UpdateError) as alone:
            stream_graph(vertices=6, edges=20, features=features).apply(updates)
        with pytest.raises(UpdateError) as caught:
            part.apply(updates, exchange)
        assert part.graph.host.store.digest() == before
        assert (part.graph.version, part.next_edge_id) == (0, 20)
        assert (type(caught.value), str(caught.value)) == (type(alone.value), str(alone.value))
        return caught.value

    return run_threads(work, 2)


def test_one_owner_refuses_for_all_in_its_own_words():
    updates = lg.Updates()
    updates.add_edge(0, 1, time=3)
    updates.remove_edge(0, 3, edge_id=77)  # its list is with worker 1 alone
    first, second = refused(updates)
    assert isinstance(first, EdgeMissing)
    assert str(first) == str(second)


def test_the_first_bad_update_of_all_is_named_by_its_place_in_the_batch():
    updates = lg.Updates()
    updates.add_edge(0, 2, time=3)
    updates.add_edge(0, 1, time=3)
    updates.remove_edge(0, 1, edge_id=77)  # with worker 1: the second of its updates
    updates.remove_edge(0, 2, edge_id=78)  # with worker 0
    updates.set_features(2, np.zeros(5, np.float32))
    for error in refused(updates, features=3):
        assert "update 2 (remove_edge 0 -> 1)" in str(error)


def test_a_batch_stands_where_something_attached_fails_afterwards():
    """Ids, features and listeners follow it all the same, and the parts stay equal."""
    updates, more = lg.Updates(), lg.Updates()
    updates.add_edge(0, 1, time=3)
    updates.set_features(1, np.full(3, 7, np.float32))
    more.add_edge(1, 0, time=4)
    whole = stream_graph(vertices=6, edges=20, features=3)
    whole.apply(updates)
    whole.apply(more)

    class Fails(Consumer):
        needs_all_edges = False

        def published(self, change, version):
            if version == 1:
                raise OSError("no room")

    def work(exchange):
        part = Partition.of(stream_graph(vertices=6, edges=20, features=3), Layout(1, 2), exchange.rank)
        if exchange.rank == 1:
            part.graph.host.attach(fails := Fails())
            with pytest.raises(OSError, match="no room"):
                part.apply(updates, exchange)
            part.graph.host.detach(fails)
        else:
            part.apply(updates, exchange)
        part.apply(more, exchange)
        return part

    equal_to_whole(run_threads(work, 2), whole)


def test_what_all_can_see_is_refused_by_all():
    updates = lg.Updates()
    updates.set_features(2, np.zeros(5, np.float32))
    for error in refused(updates, features=3):
        assert isinstance(error, WidthMismatch)
    updates = lg.Updates()
    updates.set_features(9, np.zeros(3, np.float32))
    for error in refused(updates, features=3):
        assert isinstance(error, VertexUnknown)


def test_refuses_graphs_and_updates_of_other_kinds():
    ends = np.zeros(2, np.int64)
    without_times = lg.Graph(np.zeros((1, 0), np.float32), ends, ends)
    with pytest.raises(ColumnMissing, match=r"\[Partition\] expected a graph with times"):
        Partition.of(without_times, Layout(), 0)
    with pytest.raises(ColumnMissing, match="with times"):
        Partition(without_times, Layout(), 0, Newcomers.of(without_times, hashed(1)), np.zeros((1, 0), np.float32), [0])
    with pytest.raises(UsageError, match="below 2"):
        Partition.of(stream_graph(), Layout(1, 2), 2)
    with pytest.raises(UsageError, match=r"^\[Partition\] expected a graph cut into 2 parts, .* got 3"):
        Partition.of(stream_graph(), Layout(1, 2), 0, Newcomers.of(stream_graph(), hashed(3)))
    part = Partition.of(stream_graph(), Layout(1, 2), 0)
    with pytest.raises(UsageError, match=r"^\[Partition\] expected a whole graph, got that of a Partition"):
        Partition.of(part.graph, Layout(1, 2), 0)
    named = lg.Updates()
    named.add_edge("a", "b", time=1)
    with pytest.raises(UsageError) as alone:
        stream_graph().apply(named)
    with pytest.raises(UsageError) as caught:
        run_threads(lambda exchange: Partition.of(stream_graph(), Layout(), 0).apply(named, exchange), 1)
    assert str(caught.value) == str(alone.value)


class ReadsLists(Consumer):
    """Needs all edges, those in files too."""

    def published(self, change, version):
        pass


def test_a_part_of_a_graph_with_edges_in_files(tmp_path):
    """Each part knows how many edges are away, refuses what needs them, and reads no file."""
    pytest.importorskip("pyarrow")
    graph, place = stream_graph(), tmp_path / "whole.parquet"
    graph.offload(50, place)
    newer, gone = lg.Updates(), lg.Updates()
    gone.remove_vertex(3)
    newer.add_edge(0, 1, time=100)
    with pytest.raises(EdgeOffloaded) as alone:
        graph.apply(gone)

    def work(exchange):
        part = Partition.of(graph, Layout(1, 2), exchange.rank)
        assert part.graph.offloaded == graph.offloaded
        with pytest.raises(EdgeOffloaded) as caught:
            part.apply(gone, exchange)
        assert str(caught.value) == str(alone.value)
        assert part.apply(newer, exchange) == 1
        for call in (part.graph.reload, lambda: part.graph.offload(90, tmp_path / "part.parquet")):
            with pytest.raises(UsageError, match=r"load\] expected a whole graph, got that of a Partition"):
                call()
        with pytest.raises(UsageError, match="expected a whole graph"):
            part.graph.host.attach(ReadsLists())
        return part

    place.unlink()
    parts = run_threads(work, 2)
    graph.apply(newer)
    check_parts(graph, parts)


BAD = {
    "an id that is not there": lambda updates, world: updates.remove_vertex(world.nobody, **world.kind(0)),
    "a row of another width": lambda updates, world: updates.set_features(world.somebody, [0.5] * 9, **world.kind(0)),
    "an edge that is not there": lambda updates, world: updates.remove_edge(
        *world.ends, edge_id=10**6, **({"edge_type": TRIPLES[True][0]} if world.typed else {})
    ),
    "a value beyond 16 bits": lambda updates, world: updates.set_features(
        world.somebody, [0.5, 1e6, 0.5, 0.5], **world.kind(0)
    ),
    "an edge to an id that is not there": lambda updates, world: updates.add_edge(
        world.ends[0], world.nobody, time=1, **({"edge_type": TRIPLES[True][0]} if world.typed else {})
    ),
    "an attribute too many": lambda updates, world: updates.add_edge(
        *world.ends, time=1, edge_attr=[0.0] * 3, **({"edge_type": TRIPLES[True][0]} if world.typed else {})
    ),
}


class Names:
    """Ids of a world's vertices, for updates that it would not make itself."""

    def __init__(self, world):
        self.typed, first = world.setting.typed, world.types[0]
        self.somebody = next(iter(world.rows[first]))
        self.nobody = "nobody" if world.setting.named else 2**40
        self.ends = self.somebody, next(iter(world.rows[world.types[-1]]))
        self._types = world.types

    def kind(self, code):
        return {"vertex_type": self._types[code]} if self.typed else {}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(1, 3),
    bad=st.sampled_from(list(BAD)),
    **{name: st.booleans() for name in ("typed", "named", "columns", "half")},
)
def test_parts_of_any_form_follow_and_refuse_as_the_whole_does(seed, workers, bad, **form):
    world = world_of(Setting(**form), seed)
    graph, begin = world.graph(), world.graph()
    owners = owners_of(begin, workers, seed)
    stream, outcomes = [], []
    for number in range(6):
        names = Names(world)
        if number % 2:
            updates = lg.Updates()
            if number == 3:
                updates.set_features(names.somebody, world.new_row(world.types[0]), **names.kind(0))
            BAD[bad](updates, names)
            if number == 5:
                BAD["an id that is not there"](updates, names)
        else:
            updates = world.batch()
        stream.append(updates)
        outcomes.append(outcome(lambda batch=updates: graph.apply(batch)))

    def work(exchange):
        part = Partition.of(begin, Layout(1, workers), exchange.rank, owners)
        return part, [outcome(lambda batch=batch: part.apply(batch, exchange)) for batch in stream]

    results = run_threads(work, workers)
    for _, done in results:
        assert done == outcomes
    check_parts(graph, [part for part, _ in results])


def outcome(apply):
    try:
        return apply()
    except LiveGnnError as error:
        return type(error), str(error)


def test_what_refuses_on_one_worker_before_the_store_is_asked_refuses_on_all():
    def stop(batch):
        raise UsageError("[apply] expected no batch now, got one; wait")

    def work(exchange):
        part = Partition.of(stream_graph(vertices=6, edges=20), Layout(1, 2), exchange.rank)
        if exchange.rank == 1:
            part.graph.host.add_guard(stop)
        with pytest.raises(UsageError, match=r"^\[apply\] expected no batch now"):
            part.apply(added(0, 1), exchange)
        part.graph.host.drop_guard(stop)
        return part.graph.version, part.apply(added(0, 1), exchange)

    assert run_threads(work, 2) == [(0, 1)] * 2


# ---- parts with logs: the vote and the log are both recorders


def logged_parts(tmp_path, work):
    """Runs work(part, log, attachment, exchange) in two workers whose parts have a log each."""

    def run(exchange):
        part = Partition.of(stream_graph(vertices=6, edges=20, features=0), Layout(1, 2), exchange.rank)
        place = f"sqlite:{tmp_path}/{exchange.rank}.db"
        with UpdateLog(open_log(place, synchronous="NORMAL")) as log, log.attach(part.graph) as attachment:
            return work(part, log, attachment, exchange)

    return run_threads(run, 2)


def added(u, v):
    updates = lg.Updates()
    updates.add_edge(u, v, time=3)
    return updates


def test_a_refused_batch_is_in_no_log(tmp_path):
    bad = added(0, 1)
    bad.remove_edge(0, 3, edge_id=77)  # with worker 1 alone

    def work(part, log, attachment, exchange):
        assert part.apply(added(0, 1), exchange) == 1
        with pytest.raises(EdgeMissing, match="update 1"):
            part.apply(bad, exchange)
        assert (part.graph.version, log.tail, attachment.offset) == (1, 1, 1)
        assert part.apply(added(2, 3), exchange) == 2
        assert (log.tail, attachment.offset) == (2, 2)

    logged_parts(tmp_path, work)


def test_the_log_of_a_part_holds_whole_batches(tmp_path):
    """So the parts are made again from it, by all workers together."""
    rng = np.random.default_rng(5)
    start = {"vertices": 6, "edges": 20, "features": 3, "attrs": 2}
    graph, batches = stream_graph(**start), []
    while graph.version < 4:
        batches.append(batch_of(rng, graph))
        try:
            graph.apply(batches[-1])
        except UpdateError:
            batches.pop()

    def live(exchange):
        part = Partition.of(stream_graph(**start), Layout(1, 2), exchange.rank)
        with history(exchange) as log, log.attach(part.graph):
            for batch in batches:
                part.apply(batch, exchange)

    def rebuilt(exchange):
        part = Partition.of(stream_graph(**start), Layout(1, 2), exchange.rank)
        with history(exchange) as log:
            for entry in log.read():
                part.apply(entry.updates, exchange)
        return part

    def history(exchange):
        return UpdateLog(open_log(f"sqlite:{tmp_path}/{exchange.rank}.db", synchronous="NORMAL"))

    run_threads(live, 2)
    equal_to_whole(run_threads(rebuilt, 2), graph)
    for rank in range(2):
        with open_log(f"sqlite:{tmp_path}/{rank}.db") as log:
            assert [entry.payload for entry in log.read()] == [codec.encode(batch) for batch in batches]


def test_a_part_takes_no_batch_alone(tmp_path):
    def work(part, log, attachment, exchange):
        before = part.graph.digest()
        with pytest.raises(UsageError, match=r"call Partition\.apply in every worker"):
            part.graph.apply(added(0, 1))
        log.append(added(0, 1))
        with pytest.raises(UsageError, match=r"call Partition\.apply in every worker"):
            attachment.catch_up()
        assert (part.graph.version, part.graph.digest(), log.tail) == (0, before, 1)

    logged_parts(tmp_path, work)


def test_a_log_that_fails_takes_the_batch_back_on_all_workers(tmp_path, monkeypatch):
    """The other worker's entry cannot be erased: its log refuses the next batch, again on all workers."""

    def work(part, log, attachment, exchange):
        before = part.graph.digest()
        if exchange.rank == 1:
            monkeypatch.setattr(log.log, "append", fail)
        with pytest.raises(LogUnavailable, match="expected a disk"):
            part.apply(added(0, 1), exchange)
        assert (part.graph.version, part.graph.digest(), attachment.offset) == (0, before, 0)
        assert (part.next_edge_id, log.tail) == (20, 1 - exchange.rank)
        with pytest.raises(LogConflict, match="taken back"):
            part.apply(added(0, 1), exchange)
        assert (part.graph.version, log.tail) == (0, 1 - exchange.rank)

    def fail(*args, **options):
        raise LogUnavailable("[append] expected a disk, got none; mount it")

    logged_parts(tmp_path, work)


def test_a_part_with_a_log_and_one_without(tmp_path):
    def work(part, log, attachment, exchange):
        if exchange.rank == 1:
            attachment.detach()
        assert part.apply(added(0, 1), exchange) == part.apply(added(2, 3), exchange) - 1 == 1
        assert log.tail == 2 - 2 * exchange.rank

    logged_parts(tmp_path, work)
