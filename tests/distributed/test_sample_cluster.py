"""SampleCluster: the samples of one process, whatever the graph; what a folder accepts; what its owner learns."""

import random
import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed import Hosting, SampleCluster
from livegnn.distributed.sampling_host.config import ClusterConfig
from livegnn.errors import LogConflict, UsageError, VertexUnknown, WorkerUnavailable
from livegnn.log import UpdateLog, open_log
from livegnn.sampling import ClusterSpec, even_owners, even_serving
from livegnn.sampling.cluster.sizes import SizeRules
from tests.distributed.sample_clusters import QUERY, QUICK, compare, random_graph, until, write_some


def new_graph():
    return lg.Graph(np.ones((6, 2), np.float32), [0, 0, 0], [1, 2, 3])


def one_edge():
    updates = lg.Updates()
    updates.add_edge(1, 4)
    return updates


# ---- the samples of one process


def test_samples_equal_those_of_one_process_while_buckets_move(tmp_path):
    rng, graph = random.Random(3), random_graph()
    alone = lg.PreSampler(graph, QUERY, seed=5)
    with SampleCluster(tmp_path, graph, QUERY, **QUICK, seed=5, sampling=2, serving=2) as cluster:
        compare(cluster, alone)
        cluster.move_sampling(even_owners(3))
        write_some(rng, graph, 5)
        compare(cluster, alone)
        cluster.move_serving(np.roll(even_serving(1, 2), 1))
        write_some(rng, graph, 5)
        compare(cluster, alone)
        until(lambda: not cluster.is_moving)
        assert (cluster.owners.max(), set(cluster.serving.tolist())) == (2, {3})
        assert set(cluster.status) == {
            ("sampling", 0),
            ("sampling", 1),
            ("sampling", 2),
            ("serving", 0),
            ("serving", 1),
        }
        cluster.checkpoint()
        until(lambda: any(tmp_path.glob("serving-1.*.state")))
        assert cluster.lag_batches() == 0
        with pytest.raises(VertexUnknown, match="live vertices"):
            cluster.sample([1000])
    with pytest.raises(UsageError, match=r"\[sample\] expected an open SampleCluster"):
        cluster.sample([0])
    with SampleCluster(tmp_path, graph, QUERY, **QUICK, seed=5) as again:  # the folder goes on
        write_some(rng, graph, 5)
        compare(again, alone)
        assert again.owners.max() == 2


def test_workers_translate_ids_and_types(tmp_path):
    """The workers follow the ids of the history, and a reader that is ahead of them waits."""
    buys, likes = ("User", "buys", "Item"), ("Item", "liked by", "User")
    graph = lg.Graph(
        {"User": np.eye(2, dtype=np.float16), "Item": np.ones((2, 1), np.float16)},
        {buys: ["u0", "u1"], likes: ["i1"]},
        {buys: ["i0", "i1"], likes: ["u1"]},
        ids={"User": ["u0", "u1"], "Item": ["i0", "i1"]},
    )
    query = lg.query("User").out("buys").sample(2).out("liked by").sample(1)
    alone = lg.PreSampler(graph, query)
    for new in range(2):
        with SampleCluster(tmp_path, graph, query, **QUICK, sampling=2, serving=2) as cluster:
            updates = lg.Updates()
            updates.remove_vertex("u0", vertex_type="User")
            updates.add_vertex("u0", [0.1, 0.2], vertex_type="User")
            updates.add_vertex(f"u{new + 2}", [new, 3], vertex_type="User")
            updates.add_edge("u0", "i1", edge_type=buys)
            updates.add_edge(f"u{new + 2}", "i1", edge_type=buys)
            cluster.apply(updates)
            users = ["u0", "u1", *(f"u{number}" for number in range(2, new + 3))]
            got, _ = compare(cluster, alone, users)
            assert (got.version, got.hop(2)[0].tolist()) == (new + 1, [["u1"], [None]])
            assert got.features(0)[0].tolist() == np.array([0.1, 0.2], np.float16).tolist()


@pytest.mark.parametrize("tables", [None, "rocksdb"])
def test_samples_carry_data_of_edges_with_threads_and_any_tables(tmp_path, tables):
    if tables is not None:
        pytest.importorskip("rocksdict")
    columns = {"weight": [1.0, 2.0, 3.0], "time": [4, 5, 6], "edge_attr": np.arange(6, dtype=np.float32).reshape(3, 2)}
    graph = lg.Graph(np.ones((6, 2), np.float32), [0, 0, 1], [1, 2, 3], **columns)
    query = lg.query().out().sample(2).out().sample(1)
    alone = lg.PreSampler(graph, query, edge_data=True)
    hosting = Hosting(threads=2, tables=None if tables is None else str(tmp_path / "tables"))
    parts = {"edge_data": True, "hosting": hosting, "sampling": 2, "serving": 2}
    with SampleCluster(tmp_path, graph, query, **QUICK, **parts) as cluster:
        for batch in range(2):
            got, expected = compare(cluster, alone, [0, 1, 2])
            for k in (1, 2):
                np.testing.assert_array_equal(got.edge_weight(k), expected.edge_weight(k))
                np.testing.assert_array_equal(got.edge_time(k), expected.edge_time(k))
                np.testing.assert_array_equal(got.edge_attr(k), expected.edge_attr(k))
            updates = lg.Updates()
            updates.add_edge(2, 4, weight=7, time=8, edge_attr=[9, 10])
            updates.set_weight(0, 1, 11 + batch)
            updates.set_edge_attr(1, 3, [12 + batch, 13])
            cluster.apply(updates)
        if tables is not None:
            assert len(list((tmp_path / "tables").glob("serving-?-*"))) == 2
    with pytest.raises(UsageError, match="expected the queries, seed, ttl and columns"):
        SampleCluster(tmp_path, graph, query, **QUICK)


def test_workers_come_where_the_queue_grows(tmp_path):
    graph = random_graph()
    alone = lg.PreSampler(graph, QUERY, seed=5)
    rules = SizeRules(look_seconds=0.2, patience=1, rest=3, waiting_high=0.3, waiting_low=0.01, busy_high=2.0)
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            cluster.sample(graph.vertices())

    with SampleCluster(tmp_path, graph, QUERY, **QUICK, seed=5, sizes=rules) as cluster:
        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        try:
            until(lambda: set(cluster.serving.tolist()) != {1})
        finally:
            ended.set()
            for client in clients:
                client.join()
        write_some(random.Random(7), graph, 5)
        compare(cluster, alone)
        assert cluster._load.changes >= 1


# ---- folders


def test_a_folder_goes_on_only_as_it_was_made(tmp_path):
    graph, folder = new_graph(), tmp_path / "a {name} 20%20"
    with SampleCluster(folder, graph, QUERY, **QUICK) as cluster:
        assert cluster.sample([0], timeout=None).hop(1).shape == (1, 3)
        until(lambda: set(cluster.processes) == {("sampling", 0), ("serving", 0)})
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "cluster.json").stat().st_mode & 0o777 == 0o600
    refused = [
        ({"queries": lg.query().out().sample(4)}, "expected the queries"),
        ({"seed": 7}, "expected the queries, seed"),
        ({"history": f"sqlite:{tmp_path}/other.db"}, "expected the history"),
        ({"logs": f"sqlite:{tmp_path}/{{name}}.db"}, "expected the logs"),
    ]
    for other, message in refused:
        with pytest.raises(UsageError, match=message):
            SampleCluster(folder, graph, **({"queries": QUERY} | QUICK | other))
    (folder / "cluster.json").unlink()
    with pytest.raises(UsageError, match="expected a log of steps without entries for the new folder"):
        SampleCluster(folder, graph, QUERY, **QUICK)
    graph.apply(one_edge())  # which nothing has attached


def test_a_first_start_that_failed_can_be_repeated(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no coordinator")

    graph = new_graph()
    with monkeypatch.context() as patch:
        patch.setattr("livegnn.distributed.sampling_host.cluster.Coordinator", refuse)
        with pytest.raises(OSError, match="no coordinator"):
            SampleCluster(tmp_path, graph, QUERY, **QUICK)
    assert ClusterConfig.read(tmp_path).spec == ClusterSpec.of(graph, QUERY)
    with SampleCluster(tmp_path, graph, QUERY, **QUICK) as cluster:
        assert cluster.sample([0], timeout=60).hop(1).shape == (1, 3)


# ---- what goes wrong meanwhile


def test_a_coordinator_that_failed_is_reported(tmp_path):
    with SampleCluster(tmp_path, new_graph(), QUERY, **QUICK) as cluster:
        cluster.sample([0], timeout=60)
        tries = []

        def turn():
            tries.append(1)
            raise (OSError("no file") if len(tries) == 1 else UsageError("the log is another's"))

        cluster._coordinator.turn = turn
        until(lambda: cluster._failure is not None)
        assert len(tries) == 2  # the first may pass
        for call in (lambda: cluster.sample([0]), lambda: cluster.apply(one_edge()), lambda: cluster.lag_batches()):
            with pytest.raises(WorkerUnavailable, match="expected a coordinator at work") as caught:
                call()
            assert isinstance(caught.value.__cause__, UsageError)


def test_a_worker_that_cannot_go_on_is_reported(tmp_path):
    with SampleCluster(tmp_path, new_graph(), QUERY, **QUICK) as cluster:
        refused = lg.Updates()
        refused.remove_edge(5, 5)
        with UpdateLog(open_log(cluster.config.history)) as other:
            other.append(refused)  # past the graph, which would not take it
        until(lambda: any(status.failure for status in cluster.status.values()))
        with pytest.raises(WorkerUnavailable, match=r"expected sampling worker 0 at work.*from offset 0"):
            cluster.sample([0])


def test_a_history_that_is_ahead_is_caught_up_with(tmp_path):
    with SampleCluster(tmp_path, new_graph(), QUERY, **QUICK) as cluster:
        with UpdateLog(open_log(cluster.config.history)) as other:
            other.append(one_edge())
        with pytest.raises(LogConflict, match=r"which it has taken now \(version 1\)"):
            cluster.apply(one_edge())
        assert cluster.version == 1
        assert cluster.apply(one_edge()) == 2
        assert cluster.sample([1], at_least=2, timeout=60).hop(1).tolist() == [[4, 4, -1]]


def test_several_hosts_do_not_share_files_of_sqlite():
    from livegnn.distributed.sampling_host.cluster import _check_hosts

    class TwoHosts:
        def nodes(self):
            return [{"Alive": True}, {"Alive": False}, {"Alive": True}]

    with pytest.raises(UsageError, match="expected logs that 2 hosts can share, got SQLite files"):
        _check_hosts(TwoHosts(), ("nats://h/history", "sqlite:/x/{name}.db"))
    _check_hosts(TwoHosts(), ("nats://h/history", "nats://h/{name}"))


def test_a_process_is_in_one_ray_cluster(ray_cluster):
    from livegnn.distributed.ray_session import connect

    assert connect("here") is ray_cluster
    assert connect("here", "auto") is ray_cluster
    with pytest.raises(UsageError, match=r"\[here\] expected a process .* to 10\.0\.0\.9:6379, got one at"):
        connect("here", "10.0.0.9:6379")
