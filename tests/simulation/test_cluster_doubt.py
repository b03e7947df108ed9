"""What a cluster does when a batch is given up half way, refused with a log, or closed meanwhile."""

import logging
import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.cluster.refusals import PartRefusal, refusal_of
from livegnn.distributed.partition import ldg
from livegnn.log import UpdateLog, open_log
from livegnn.testing.models import random_model


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


def pair(workers=2, vertices=12, **options):
    """An engine and a cluster of the same graph, and the crew."""
    rng = np.random.default_rng(0)
    model = random_model(np.random.default_rng(1), family="sage", depth=2)
    features = rng.standard_normal((vertices, model.input_width)).astype(np.float32)
    ends = rng.integers(0, vertices, (2, 30))
    columns = {"time": np.arange(30), "ttl": 100} if options.pop("ttl", False) else {}
    graph, crew = lg.Graph(features, *ends, **columns), ThreadCrew(workers, timeout_s=30)
    return lg.Engine(model, graph), lg.Cluster(model, graph, workers, crew=crew, partition="hash", **options), crew


def change(engine):
    updates = lg.Updates()
    updates.set_features(0, np.ones(engine.model.input_width, np.float32))
    updates.add_edge(0, 1)
    return updates


def check_same(engine, cluster):
    assert cluster.graph.version == engine.graph.version
    assert cluster.state_digest() == engine.state_digest()
    ids = np.flatnonzero(engine.graph.host.store.live())
    np.testing.assert_array_equal(cluster.embeddings(ids), engine.embeddings(ids))


def goes_on(engine, cluster):
    check_same(engine, cluster)
    for each in (engine, cluster):
        each.apply(change(engine))
    check_same(engine, cluster)
    cluster.verify()
    cluster.close()


@pytest.mark.parametrize("read_first", [False, True])
def test_that_a_batch_that_is_given_up_is_applied_nowhere(read_first):
    """One worker has made it its own; the other is lost, and cannot be started again for a while."""
    engine, cluster, crew = pair()
    call, reform = crew.call, crew.reform

    def losing(calls):
        answers = call(calls)
        if calls[0][0] == "apply":
            crew.kill(1)
            raise lg.errors.WorkerUnavailable("[cluster] lost")
        return answers

    def no_room():
        raise lg.errors.WorkerUnavailable("[cluster] no room")

    crew.call, crew.reform = losing, no_room
    with pytest.raises(lg.errors.WorkerUnavailable, match="no room"):
        cluster.apply(change(engine))
    crew.call, crew.reform = call, reform
    assert crew.workers[0].version == 1  # but not for long
    if read_first:
        check_same(engine, cluster)
    for each in (engine, cluster):
        each.apply(change(engine))
    goes_on(engine, cluster)


def test_that_a_batch_that_is_interrupted_is_applied_nowhere():
    engine, cluster, crew = pair(3)
    call = crew.call

    def interrupted(calls):
        call(calls)
        raise KeyboardInterrupt

    crew.call = interrupted
    with pytest.raises(KeyboardInterrupt):
        cluster.apply(change(engine))
    crew.call = call
    with engine.what_if(change(engine)) as want, cluster.what_if(change(engine)) as got:
        np.testing.assert_array_equal(got.embeddings(want.vertices), want.embeddings(want.vertices))
    goes_on(engine, cluster)


@pytest.mark.parametrize("step", ["capture", "has_snapshot", "forget_before"])
@pytest.mark.parametrize("reached", [False, True])
def test_that_an_interrupted_snapshot_leaves_the_batch(step, reached):
    engine, cluster, crew = pair(snapshot_batches=1)
    call = crew.call

    def interrupted(calls):
        if calls[0][0] != step:
            return call(calls)
        if reached:
            call(calls)
        raise KeyboardInterrupt

    crew.call = interrupted
    with pytest.raises(KeyboardInterrupt):
        cluster.apply(change(engine))
    crew.call = call
    engine.apply(change(engine))
    goes_on(engine, cluster)


def test_that_a_log_goes_on_after_batches_that_workers_refuse(tmp_path):
    engine, cluster, crew = pair(3)
    with UpdateLog(open_log(f"sqlite:{tmp_path}/log.db")) as log:
        log.attach(cluster.graph)
        bad = change(engine)
        bad.remove_edge(0, 1, edge_id=10**6)
        for batch in range(3):
            with pytest.raises(lg.errors.EdgeMissing):
                cluster.apply(bad)
            assert log.tail == batch
            crew.kill(batch)
            for each in (engine, cluster):
                each.apply(change(engine))
            assert log.tail == batch + 1
            check_same(engine, cluster)
        goes_on(engine, cluster)


def test_that_a_log_that_cannot_write_refuses_the_batch(tmp_path):
    engine, cluster, _ = pair(3)
    with UpdateLog(open_log(f"sqlite:{tmp_path}/log.db")) as log:
        attached = log.attach(cluster.graph)
        append, log.log.append = log.log.append, lambda *given, **options: 1 / 0
        with pytest.raises(ZeroDivisionError):
            cluster.apply(change(engine))
        log.log.append = append
        attached.detach()
        goes_on(engine, cluster)


def test_that_a_closed_cluster_takes_no_batch_of_its_graph(tmp_path):
    engine, cluster, _ = pair()
    with UpdateLog(open_log(f"sqlite:{tmp_path}/log.db")) as log:
        log.attach(cluster.graph)
        cluster.close()
        with pytest.raises(lg.errors.UsageError, match="closed"):
            cluster.graph.apply(change(engine))
        assert log.tail == 0


def test_that_close_waits_for_a_batch_of_another_thread():
    engine, cluster, crew = pair()
    applying, call = threading.Event(), crew.call

    def slow(calls):
        if calls[0][0] == "apply":
            applying.set()
            closing.join(0.2)  # it has come as far as it can
        return call(calls)

    entered, work = threading.Event(), cluster.apply_batch

    def working(*given):  # the graph's lock is held, and the workers' is not yet
        entered.set()
        closing.join(0.2)
        work(*given)

    def close():
        entered.wait()
        cluster.close()

    crew.call, cluster.apply_batch = slow, working
    closing = threading.Thread(target=close, daemon=True)
    batch = threading.Thread(target=lambda: cluster.apply(change(engine)), daemon=True)
    closing.start()
    batch.start()
    batch.join(20)
    closing.join(20)
    assert not batch.is_alive()
    assert not closing.is_alive()
    assert applying.is_set()


def test_that_a_view_may_outlive_its_cluster():
    engine, cluster, _ = pair()
    with cluster.what_if(change(engine)) as view:
        cluster.close()
        with pytest.raises(lg.errors.UsageError, match="closed"):
            view.embeddings([0])


def test_that_swaps_leave_one_snapshot():
    _, cluster, crew = pair()
    for _ in range(3):
        cluster.swap(cluster.model)
    assert [len(worker._snapshots) for worker in crew.workers] == [1, 1]
    cluster.close()


def test_that_a_swap_stands_once_workers_go_over():
    engine, cluster, crew = pair()
    other = random_model(np.random.default_rng(1), family="sage", depth=1)
    assert other.input_width == engine.model.input_width
    call, reform = crew.call, crew.reform

    def losing(calls):
        if calls[0][0] == "commit_swap":
            crew.kill(1)
            crew.reform = no_room
        return call(calls)

    def no_room():
        raise lg.errors.WorkerUnavailable("[cluster] no room")

    crew.call = losing
    cluster.swap(other)
    crew.call, crew.reform = call, reform
    engine.swap(other)
    assert cluster.state_digest() == engine.state_digest()
    for each in (engine, cluster):
        each.apply(change(engine))
    assert cluster.state_digest() == engine.state_digest()
    cluster.close()


def test_that_reads_around_a_what_if_are_an_engines():
    engine, cluster, _ = pair(3)
    updates = change(engine)
    updates.remove_vertex(3)
    updates.add_vertex(3, np.ones(engine.model.input_width, np.float32))
    updates.remove_vertex(4)
    updates.add_vertex(12, np.ones(engine.model.input_width, np.float32))
    with engine.what_if(updates) as want, cluster.what_if(updates) as got:
        now, then = [0, 3, 12], [3, 0, 4]
        np.testing.assert_array_equal(got.embeddings(now), want.embeddings(now))
        np.testing.assert_array_equal(cluster.embeddings(then), engine.embeddings(then))
        for unknown in ([4], [13], [10**6], [-1]):
            with pytest.raises(lg.errors.LiveGnnError) as expected:
                want.embeddings(unknown)
            with pytest.raises(type(expected.value)):
                got.embeddings(unknown)
        with pytest.raises(lg.errors.VertexUnknown):
            cluster.embeddings([12])
    goes_on(engine, cluster)


@pytest.mark.parametrize("newcomers", ["ldg", "hash"])
def test_that_a_what_if_with_a_gap_is_an_engines(newcomers):
    engine, cluster, _ = pair(newcomers=newcomers)
    updates = change(engine)
    for slot in (12, 10**12):
        updates.add_vertex(slot, np.ones(engine.model.input_width, np.float32))
    texts = []
    for each in (engine, cluster):
        with pytest.raises(lg.errors.VertexIdGap) as refused, each.what_if(updates):
            pass
        texts.append(str(refused.value))
    assert texts[0] == texts[1]
    goes_on(engine, cluster)


def test_that_a_refusal_names_the_users_update_where_edges_expire():
    engine, cluster, _ = pair(3, ttl=True)
    updates = lg.Updates()
    updates.add_edge(0, 1, time=120)  # and with it old edges leave
    updates.remove_edge(0, 1, edge_id=10**6)
    texts = []
    for each in (engine, cluster):
        with pytest.raises(lg.errors.EdgeMissing) as refused:
            each.apply(updates)
        texts.append(str(refused.value))
        with pytest.raises(lg.errors.EdgeMissing) as refused, each.what_if(updates):
            pass
        texts.append(str(refused.value))
    assert len(set(texts)) == 1
    cluster.close()


@pytest.mark.parametrize("ends", [(0, 5), (5, 0), (5, 7)])
def test_that_an_edge_of_a_removed_vertex_is_refused_as_by_an_engine(ends):
    engine, cluster, _ = pair(5)
    gone, updates = lg.Updates(), lg.Updates()
    gone.remove_vertex(5)
    gone.remove_vertex(7)
    updates.remove_edge(*ends)
    texts = []
    for each in (engine, cluster):
        each.apply(gone)
        with pytest.raises(lg.errors.VertexUnknown) as refused:
            each.apply(updates)
        texts.append((refused.value.vertex, refused.value.update))
    assert texts[0] == texts[1]
    cluster.close()


@pytest.mark.parametrize("large", [0, 1])
def test_that_a_worker_which_had_begun_to_compute_refuses_last(large):
    """One has too many in-edges, the other one a message out of range: an engine looks at the edges first."""
    rng, count = np.random.default_rng(0), 12
    weights = [rng.standard_normal(shape, dtype=np.float32) for shape in ((3, 4), (3, 4), (2, 3), (2, 3))]
    model = lg.Model([lg.layers.GraphConv(*weights[:2]), lg.layers.GraphConv(*weights[2:])])
    graph = lg.Graph(rng.random((count, 4), dtype=np.float32), *rng.integers(0, count, (2, 30)))
    engine, cluster = lg.Engine(model, graph), lg.Cluster(model, graph, 2, crew=ThreadCrew(2), partition="hash")
    parts = cluster._directory.parts_of(np.arange(count))
    (source, target, *_), (other, *_) = (np.flatnonzero(parts == part).tolist() for part in (large, 1 - large))
    updates, errors = lg.Updates(), []
    updates.add_edges([source] * 65536, [target] * 65536)
    updates.set_features(other, np.full(4, 1e30, np.float32))
    for each in (engine, cluster):
        with pytest.raises(lg.errors.RangeOverflow, match="in-degrees below 65536") as refused:
            each.apply(updates)
        errors.append((str(refused.value), refused.value.vertex))
    assert errors[0] == errors[1]
    goes_on(engine, cluster)


def test_that_an_end_is_looked_at_before_its_edge():
    facts = {"update": 1, "edge": (3, 4)}
    ends = [PartRefusal("VertexUnknown", "", {**facts, "vertex": vertex}, False, False) for vertex in (4, 3)]
    found = refusal_of([PartRefusal("EdgeMissing", "", facts, False, False), *ends])
    assert isinstance(found, lg.errors.VertexUnknown)
    assert found.vertex == 3


@pytest.mark.parametrize("newcomers", ["ldg", "hash"])
def test_that_given_parts_stay_the_callers(newcomers):
    rng = np.random.default_rng(0)
    model = random_model(np.random.default_rng(1), family="sage", depth=2)
    row = np.ones(model.input_width, np.float32)
    graph = lg.Graph(rng.standard_normal((12, model.input_width)).astype(np.float32), *rng.integers(0, 12, (2, 30)))
    parts = ldg(graph, 3)
    longer = ldg(graph, 3)
    longer.append([2, 1])  # slots that the graph has not yet
    engine = lg.Engine(model, graph)
    clusters = [
        lg.Cluster(model, graph, 3, crew=ThreadCrew(3), partition=given, newcomers=newcomers)
        for given in (parts, parts, longer)
    ]
    for count in (1, 3, 2):
        first, updates = engine.graph.slot_count, lg.Updates()
        for slot in range(first, first + count):
            updates.add_vertex(slot, row)
            updates.add_edge(slot, 0)
        for each in (engine, *clusters):
            each.apply(updates)
        for cluster in clusters:
            check_same(engine, cluster)
    assert (parts.slot_count, longer.slot_count) == (12, 14)
    for cluster in clusters:
        cluster.close()


def test_that_what_is_no_model_and_no_batch_is_refused():
    _, cluster, _ = pair()
    for call in (cluster.swap, cluster.what_if, cluster.apply):
        with pytest.raises(lg.errors.UsageError, match="got"):
            call(3)
    cluster.close()


AWAY = {
    "a time that there is none of": lambda u, v: u.remove_edge(0, v, time=3, missing="ignore"),
    "a type that there is none of": lambda u, v: u.remove_edge(0, v, edge_type=1, missing="ignore"),
    "a weight that there is none of": lambda u, v: u.set_weight(v, 0, 1.0),
    "attributes that there are none of": lambda u, v: u.set_edge_attr(0, v, [1.0]),
    "no edge": lambda u, v: u.remove_edge(v, 0),
    "an edge by its id": lambda u, v: u.remove_edge(0, v, edge_id=0),
    "no edge, ignored": lambda u, v: u.remove_edge(0, v, missing="ignore"),
}


@pytest.mark.parametrize("name", AWAY)
def test_that_an_edge_between_parts_that_have_not_met_is_refused_as_by_an_engine(name):
    model = random_model(np.random.default_rng(1), family="sage", depth=2)
    loops = np.arange(6)
    graph = lg.Graph(np.ones((6, model.input_width), np.float32), loops, loops)
    engine = lg.Engine(model, graph)
    cluster = lg.Cluster(model, graph, 3, crew=ThreadCrew(3), partition="hash")
    for v in range(1, 6):
        updates, found = lg.Updates(), []
        updates.set_features(v, np.full(model.input_width, v, np.float32))
        AWAY[name](updates, v)
        for each in (engine, cluster):
            try:
                each.apply(updates)
                found.append(None)
            except lg.errors.UpdateError as error:
                found.append((type(error), str(error), error.update, error.vertex, error.edge))
        assert found[0] == found[1]
        assert (found[0] is None) == (name == "no edge, ignored")
        check_same(engine, cluster)
    goes_on(engine, cluster)
