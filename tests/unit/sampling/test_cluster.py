"""A cluster in one process: the paper's example, moves, replicas, waits, ids and types, and what is refused."""

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn import _native
from livegnn.distributed import hashed
from livegnn.errors import QueryInvalid, UsageError, ValueInvalid, VersionPending, VertexUnknown
from livegnn.graph.consumers import Consumer
from livegnn.sampling import ClusterSpec, LocalCluster, PreSampler, even_owners, even_serving, join, split, start_state
from tests.unit.sampling.reach import check_cluster, held

NO_TIME = -(2**63)


def ring(count=12, **columns):
    """v -> v + 1, v + 2, features (v, v)."""
    src = np.repeat(np.arange(count), 2)
    dst = (src + np.tile([1, 2], count)) % count
    return lg.Graph(np.repeat(np.arange(count, dtype=np.float32)[:, None], 2, 1), src, dst, **columns)


QUERY = lg.query().out().sample(1).out().sample(2)


def test_a_changed_sample_moves_what_serving_workers_hold():
    """Helios, Figure 7: the newer edge 1 -> 4 takes the place of 1 -> 3, and 4's sample and features that of 3's."""
    graph = lg.Graph(np.eye(7, dtype=np.float32), [1, 3, 4], [3, 5, 6], time=[1, 1, 1])
    query = lg.query().out().sample(1, by="top_k").out().sample(1, by="top_k")
    cluster = LocalCluster(graph, query, sampling=3, serving=7)
    owner = int(cluster.sampling_workers[0].serving[_native.buckets(np.array([1]))[0]]).bit_length() - 1
    worker = cluster.serving_workers[owner]
    assert {(0, 1), (1, 3)} <= set(held(worker.contents())[0])
    updates = lg.Updates()
    updates.add_edge(1, 4, time=2)
    cluster.apply(updates)
    samples, features = held(worker.contents())
    assert samples[0, 1] == [(4, 3)]
    assert samples[1, 4] == [(6, 2)]
    assert {1, 4, 6} <= set(features)
    check_cluster(cluster, 2)


@pytest.mark.parametrize("workers", [(1, 1, 1), (2, 3, 1), (3, 2, 2)])
def test_answers_do_not_depend_on_the_number_of_workers(workers):
    sampling, serving, replicas = workers
    graph = ring()
    expected = PreSampler(graph, QUERY, seed=3)
    cluster = LocalCluster(graph, QUERY, seed=3, sampling=sampling, serving=serving, replicas=replicas)
    assert len(cluster.sampling_workers) == sampling
    assert len(cluster.serving_workers) == serving * replicas
    updates = lg.Updates()
    updates.remove_edge(0, 1)
    updates.remove_vertex(5)
    updates.set_features(2, [9.0, 9.0])
    graph.apply(updates)  # whoever applies: the cluster follows
    seeds = [3, 0, 3, 11]
    got, wanted = cluster.sample(seeds, at_least=1), expected.sample(seeds)
    assert got.version == 1
    for hop in (1, 2):
        np.testing.assert_array_equal(got.hop(hop), wanted.hop(hop))
        np.testing.assert_array_equal(got.edge_ids(hop), wanted.edge_ids(hop))
        np.testing.assert_array_equal(got.features(hop), wanted.features(hop))
    np.testing.assert_array_equal(got.features(0), wanted.features(0))
    with pytest.raises(VertexUnknown, match="got 5; add the vertex first"):
        cluster.sample([0, 5])
    assert cluster.sample([]).hop(2).shape == (0, 1, 2)
    assert cluster.sample([1], features=False).hop(1).shape == (1, 1)


def test_a_table_that_queries_share_feeds_the_tables_of_both():
    graph = lg.Graph(np.eye(7, dtype=np.float32), [0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6], time=range(6))
    wide = lg.query().out().sample(2, by="top_k").out().sample(1, by="top_k")
    long = lg.query().out().sample(1, by="top_k").out().sample(1, by="top_k").out().sample(1, by="top_k")
    cluster = LocalCluster(graph, [wide, long], serving=7)
    check_cluster(cluster, 5)
    holders = [held(worker.contents())[0] for worker in cluster.serving_workers.values()]
    assert any(samples.get((3, 3)) == [(5, 4)] for samples in holders)  # 3 is at hop 2 of `wide` alone
    assert cluster.sample([0], query=2).hop(3).tolist() == [[[[6]]]]


def test_each_serving_worker_holds_less_where_there_are_more():
    graph = ring(200)
    one = LocalCluster(graph, QUERY).serving_workers[0].contents()
    four = [worker.contents() for worker in LocalCluster(graph, QUERY, serving=4).serving_workers.values()]
    assert max(len(each[1]) for each in four) < 0.9 * len(one[1])


def test_the_check_finds_what_is_too_much_and_too_little():
    cluster = LocalCluster(ring(), QUERY)
    table, vertex, _, _, edge_ids, edges, _, _, owners, rows, none = cluster.serving_workers[0].contents()
    nothing, no_rows = np.empty(0, np.int32), np.empty((0, 2), np.float32)
    less = (
        nothing,
        nothing,
        nothing,
        nothing,
        edge_ids[:0],
        edges[:0],
        table[:1],
        vertex[:1],
        nothing,
        no_rows,
        nothing,
    )
    other = (
        nothing,
        nothing,
        nothing,
        nothing,
        edge_ids[:0],
        edges[:0],
        nothing,
        nothing,
        owners[:1],
        rows[:1] + 1,
        none,
    )
    for spoiled in (less, other):
        cluster = LocalCluster(ring(), QUERY)
        cluster.serving_workers[0]._tables.apply([spoiled], np.ones(1024, np.uint8), 0)
        with pytest.raises(AssertionError):
            check_cluster(cluster, NO_TIME)


def test_replicas_take_turns_and_hold_the_same():
    cluster = LocalCluster(ring(), QUERY, serving=1, replicas=2)
    first, second = (worker.contents() for worker in cluster.serving_workers.values())
    for mine, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine, other)
    asked = []
    for number, worker in cluster.serving_workers.items():
        answer = worker.answer
        worker.answer = lambda *a, number=number, answer=answer, **k: asked.append(number) or answer(*a, **k)
    for _ in range(4):
        cluster.sample([0])
    assert asked == [0, 1, 0, 1]


def test_workers_come_and_go_under_readers():
    graph = ring(60)
    cluster = LocalCluster(graph, QUERY, sampling=2, serving=2, seed=1)
    expected = cluster.sample(np.arange(60)).hop(2)
    ended, failures = threading.Event(), []

    def read():
        try:
            while not ended.is_set():
                if not np.array_equal(cluster.sample(np.arange(60)).hop(2), expected):
                    failures.append("another answer")
        except Exception as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for workers in (3, 1, 4, 2):
        cluster.move_serving(np.roll(even_serving(workers), workers))
        cluster.move_sampling(hashed(workers).moved_buckets([workers, 99], to=0).owners)
    ended.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert len(cluster.serving_workers) == len(cluster.sampling_workers) == 2
    check_cluster(cluster, NO_TIME)


def test_reads_beside_batches_are_of_whole_versions():
    """Batch `step` points every vertex at the one `step` further on; a reader sees that everywhere or nowhere."""
    graph = lg.Graph(np.zeros((60, 1), np.float32), np.arange(60), np.arange(60), time=np.zeros(60, np.int64))
    cluster = LocalCluster(graph, lg.query().out().sample(1, by="top_k"), sampling=2, serving=1)
    ended, failures, versions = threading.Event(), [], set()

    def read():
        try:
            while not ended.is_set():
                sample = cluster.sample(np.arange(60))
                versions.add(sample.version)
                if not (sample.hop(1)[:, 0] == (np.arange(60) + sample.version) % 60).all():
                    failures.append(sample.version)
        except Exception as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, 150):
        updates = lg.Updates()
        updates.add_edges(np.arange(60), (np.arange(60) + step) % 60, time=np.full(60, step))
        cluster.apply(updates)
    ended.set()
    reader.join()
    assert not failures
    assert len(versions) > 1


@pytest.mark.parametrize(
    "limits",
    [{"at_least": -1}, {"at_least": 2**63}, {"timeout": -1}, {"timeout": 1e30}, {"timeout": float("nan")}],
)
def test_a_reader_gives_a_version_and_a_time_that_can_be_waited_for(limits):
    cluster = LocalCluster(ring(), QUERY)
    for reader in (cluster, cluster.front_end):
        with pytest.raises(ValueInvalid, match=r"^\[sample\] expected (at_least as a version|a timeout from 0)"):
            reader.sample([0], **limits)
    assert cluster.sample([0], at_least=np.int64(0), timeout=np.float32(1)).version == 0


def test_a_reader_waits_for_a_version():
    cluster = LocalCluster(ring(), QUERY)
    with pytest.raises(VersionPending, match=r"expected version 1 within 0.01 s, got 0"):
        cluster.sample([0], at_least=1, timeout=0.01)
    found = []
    reader = threading.Thread(target=lambda: found.append(cluster.sample([0], at_least=1)))
    reader.start()
    cluster.apply(lg.Updates())
    reader.join()
    assert found[0].version == 1


def test_a_serving_worker_refuses_what_others_own():
    cluster = LocalCluster(ring(), QUERY, serving=2)
    masks = cluster.sampling_workers[0].serving[_native.buckets(np.arange(12))]
    foreign = int(np.flatnonzero(masks == 2)[0])
    with pytest.raises(VertexUnknown, match="which others own; ask through the front end"):
        cluster.serving_workers[0].sample([foreign])
    assert cluster.serving_workers[1].sample([foreign]).hop(1).shape == (1, 1)


def test_ids_of_the_graphs_own():
    graph = lg.Graph(np.eye(3, dtype=np.float32), ["a", "b"], ["b", "c"], ids=["a", "b", "c"])
    cluster = LocalCluster(graph, lg.query().out().sample(1), sampling=2, serving=2)
    updates = lg.Updates()
    updates.add_vertex("d", [1, 2, 3])
    updates.add_edge("c", "d")
    cluster.apply(updates)
    assert cluster.sample(["c", "a", "d"]).hop(1).tolist() == [["d"], ["b"], [None]]
    check_slots = ClusterSpec.of(graph, lg.query().out().sample(1))
    assert check_slots.plan.tables


def test_ids_inside_a_callback_of_a_batch_that_the_workers_do_not_have_yet():
    graph = lg.Graph(np.eye(2, dtype=np.float32), ["a"], ["b"], ids=["a", "b"])
    found = []

    class Callback(Consumer):
        def published(self, change, version):
            with pytest.raises(VersionPending, match="expected samples of version 1, which the graph's ids are of"):
                cluster.sample(["a"])
            found.append(version)

    with graph.host.writing("test"):
        graph.host.attach(Callback())
    cluster = LocalCluster(graph, lg.query().out().sample(1))
    updates = lg.Updates()
    updates.remove_vertex("b")
    updates.add_vertex("c", [1, 2])
    graph.apply(updates)
    assert found == [1]
    assert cluster.sample(["a"]).hop(1).tolist() == [[None]]


def test_typed_vertices_are_seeds_of_their_own_queries_only():
    graph = lg.Graph(
        {"User": np.ones((3, 2), np.float32), "Item": np.full((4, 3), 2, np.float32)},
        {("User", "Click", "Item"): [0, 1], ("Item", "Also", "Item"): [0, 1]},
        {("User", "Click", "Item"): [0, 1], ("Item", "Also", "Item"): [2, 3]},
    )
    query = lg.query("User").out("Click").sample(1).out("Also").sample(1)
    cluster = LocalCluster(graph, query, sampling=2, serving=1)
    samples, features = held(cluster.serving_workers[0].contents())
    assert len(samples) == 4
    assert len(features) == 3 + 4
    unclicked = lg.Updates()
    unclicked.remove_edge(0, 0, edge_type=("User", "Click", "Item"))
    cluster.apply(unclicked)
    samples, features = held(cluster.serving_workers[0].contents())
    assert len(samples) == 2
    assert len(features) == 3 + 2
    users = graph.to_slots([1], vertex_type="User")
    answer = cluster.front_end.sample(users)
    assert graph.to_external(answer.hop(2)[0, 0], vertex_type="Item").tolist() == [3]
    assert [answer.features(level).shape[-1] for level in range(3)] == [2, 3, 3]


def test_expiry_goes_by_the_largest_time_of_any_partition():
    graph = lg.Graph(np.zeros((9, 1), np.float32), np.arange(8), np.arange(1, 9), time=np.arange(8))
    cluster = LocalCluster(graph, lg.query().out().sample(1), sampling=3, serving=2, ttl=5)
    updates = lg.Updates()
    updates.add_edge(0, 8, time=10)
    cluster.apply(updates)
    assert cluster.sample(np.arange(8)).hop(1).ravel().tolist() == [8, -1, -1, -1, -1, -1, 7, 8]
    check_cluster(cluster, 10)


def test_a_negative_weight_is_refused_before_anything_changed():
    graph = lg.Graph(np.zeros((3, 1), np.float32), [0], [1], weight=[1.0])
    cluster = LocalCluster(graph, lg.query().out().sample(1, by="weighted"), sampling=2)
    updates = lg.Updates()
    updates.add_edge(1, 2, weight=-1.0)
    with pytest.raises(ValueInvalid, match="expected weights of at least 0"):
        cluster.apply(updates)
    assert graph.version == 0
    assert cluster.version == 0
    check_cluster(cluster, NO_TIME)


def test_states_join_to_the_whole_and_split_again():
    spec = ClusterSpec.of(ring(), [QUERY, lg.query().in_().sample(2)])
    whole = start_state(spec, ring())
    parts = split(spec, whole, even_owners(3))
    assert sum(len(part.feature_vertices) for part in parts) == 12
    again = join(parts)
    for name, column in whole.edges.items():
        np.testing.assert_array_equal(again.edges[name], column)
    np.testing.assert_array_equal(again.features, whole.features)
    with pytest.raises(UsageError, match=r"\[join\] expected states of one step"):
        join([parts[0], parts[1].__class__(**{**vars(parts[1]), "step": 4})])


def test_what_is_refused():
    graph = ring()
    with pytest.raises(QueryInvalid, match="expected at least one query"):
        LocalCluster(graph, [])
    with pytest.raises(ValueInvalid, match="expected a seed from 0"):
        LocalCluster(graph, QUERY, seed=-1)
    with pytest.raises(UsageError, match="expected 1 to 1024 sampling workers, got 0"):
        LocalCluster(graph, QUERY, sampling=0)
    with pytest.raises(UsageError, match="expected 1 to 64 serving workers, got 40 times 2"):
        LocalCluster(graph, QUERY, serving=40, replicas=2)
    cluster = LocalCluster(graph, QUERY)
    with pytest.raises(UsageError, match=r"\[move_serving\] expected 1024 uint64"):
        cluster.move_serving(np.zeros(1024, np.uint64))
    with pytest.raises(UsageError, match=r"\[move_sampling\] expected 1024 uint16"):
        cluster.move_sampling(np.full(1024, 2, np.uint16))
    with pytest.raises(UsageError, match="number of a running query"):
        cluster.sample([0], query=7)
    with pytest.raises(UsageError, match="expected a Graph, got int"):
        LocalCluster(3, QUERY)


def test_the_spec_survives_json():
    graph = ring(time=np.arange(24))
    spec = ClusterSpec.of(graph, [QUERY, lg.query().both().sample(3, by="top_k")], seed=9, ttl=7)
    again = ClusterSpec.from_json(spec.to_json())
    assert again == spec
    assert dict(again.ttl) == dict(spec.ttl)
    with pytest.raises(UsageError, match="expected the JSON of a cluster"):
        ClusterSpec.from_json('{"livegnn_cluster": 2}')


def test_answers_that_are_too_large_are_refused():
    with pytest.raises(ValueInvalid, match=r"at most 2\^31 places"):
        LocalCluster(ring(), lg.query().out().sample(65535).out().sample(65535))
    wide = LocalCluster(ring(), lg.query().out().sample(65535))
    with pytest.raises(ValueInvalid, match="got 2,621,400,000"):
        wide.sample(np.zeros(40_000, np.int64))
