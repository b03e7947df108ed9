"""Clusters of processes: what a folder accepts, what ends them, and what their owner is told."""

import contextlib
import json
import resource
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LogConflict, UsageError, VersionPending, WorkerUnavailable
from livegnn.log import UpdateLog, open_log
from livegnn.sampling import ClusterSpec, ReadOptions, ServingWorker
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.front_end import FrontEnd
from livegnn.sampling.cluster.messages import CountChanges, Part, encode
from livegnn.sampling.cluster.process import ClusterConfig, ProcessCluster, _heartbeats
from livegnn.sampling.cluster.remote import RemoteServing, answer_requests
from livegnn.sampling.cluster.runtime import Settings, _Inbox
from livegnn.sampling.presample.source import Response
from tests.simulation.world import MemoryLog

QUERY = lg.query().out().sample(2)
QUICK = {"log_options": {"synchronous": "NORMAL"}}


def new_graph():
    return lg.Graph(np.ones((6, 2), np.float32), [0, 0, 0], [1, 2, 3])


def one_edge():
    updates = lg.Updates()
    updates.add_edge(1, 4)
    return updates


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


# ---- folders


def test_a_folder_goes_on_only_as_it_was_made(tmp_path):
    graph, folder = new_graph(), tmp_path / "a {name} 20%20"
    with ProcessCluster(folder, graph, QUERY, **QUICK) as cluster:
        assert cluster.sample([0], timeout=None).hop(1).shape == (1, 2)
        pids = cluster.processes
    assert set(pids) == {("sampling", 0), ("serving", 0)}
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
            ProcessCluster(folder, graph, **({"queries": QUERY} | QUICK | other))
    (folder / "cluster.json").unlink()
    with pytest.raises(UsageError, match="expected a log of steps without entries for the new folder"):
        ProcessCluster(folder, graph, QUERY, **QUICK)
    graph.apply(one_edge())  # which nobody has attached


@pytest.mark.parametrize("column", ["history", "logs"])
def test_settings_that_differ_are_shown_without_passwords(column):
    spec = ClusterSpec.of(new_graph(), QUERY)
    one = ClusterConfig(spec, "sqlite:a.db", "sqlite:{name}.db", {}, Settings())
    other = one._replace(**{column: "nats://me:hunter2@localhost/{name}"})
    for stored, given in ((one, other), (other, one)):
        with pytest.raises(UsageError, match=f"expected the {column}") as refused:
            given.check_same(stored)
        assert "hunter2" not in str(refused.value)
        assert "localhost" in str(refused.value)


def test_a_first_start_that_failed_is_made_up_for(tmp_path, monkeypatch):
    graph = new_graph()
    with monkeypatch.context() as patch:
        patch.setattr("livegnn.sampling.cluster.process.Coordinator", refuse)
        with pytest.raises(OSError, match="no coordinator"):
            ProcessCluster(tmp_path, graph, QUERY, **QUICK)
    assert ClusterConfig.read(tmp_path).spec == ClusterSpec.of(graph, QUERY)
    with ProcessCluster(tmp_path, graph, QUERY, **QUICK) as cluster:
        assert cluster.sample([0], timeout=60).hop(1).shape == (1, 2)


def test_settings_of_0_1_have_other_names(tmp_path):
    config = ClusterConfig(ClusterSpec.of(new_graph(), QUERY), "sqlite:a.db", "sqlite:{name}.db", {}, Settings())
    names = {"heartbeat_ms": "beat_ms", "heartbeat_timeout_ms": "silence_ms_max", "startup_timeout_ms": "start_ms_max"}
    settings = {names.get(name, name): value + 1 for name, value in Settings()._asdict().items()}
    document = {"spec": json.loads(config.spec.to_json()), "settings": settings}
    document |= {"history": config.history, "logs": config.logs, "log_options": {}}
    (tmp_path / "cluster.json").write_text(json.dumps(document))
    assert ClusterConfig.read(tmp_path).settings == Settings(*(value + 1 for value in Settings()))


def refuse(*_):
    raise OSError("no coordinator")


def test_a_path_too_long_for_a_socket_is_refused(tmp_path):
    folder = tmp_path / ("x" * 100)
    with pytest.raises(UsageError, match="paths of up to 107 bytes"):
        ProcessCluster(folder, new_graph(), QUERY)
    assert not folder.exists()


def test_half_written_states_go_when_their_worker_starts(tmp_path):
    files = CheckpointFiles(tmp_path)
    for name in ("sampling-1.4.state.x.part", "moved-1.4.state.y.part", "sampling-11.4.state.z.part"):
        (tmp_path / name).write_bytes(b"")
    files.clean("sampling", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["sampling-11.4.state.z.part"]


def test_samples_of_processes_carry_data_of_edges(tmp_path):
    columns = {"weight": [1.0, 2.0, 3.0], "time": [4, 5, 6], "edge_attr": np.arange(6, dtype=np.float32).reshape(3, 2)}
    graph = lg.Graph(np.ones((6, 2), np.float32), [0, 0, 1], [1, 2, 3], **columns)
    query = lg.query().out().sample(2).out().sample(1)
    sampler = lg.PreSampler(graph, query, edge_data=True)
    with ProcessCluster(tmp_path, graph, query, **QUICK, edge_data=True, sampling=2, serving=2) as cluster:
        for batch in range(2):
            expected, got = sampler.sample([0, 1, 2]), cluster.sample([0, 1, 2], at_least=graph.version, timeout=60)
            for k in (1, 2):
                np.testing.assert_array_equal(got.edge_weight(k), expected.edge_weight(k))
                np.testing.assert_array_equal(got.edge_time(k), expected.edge_time(k))
                np.testing.assert_array_equal(got.edge_attr(k), expected.edge_attr(k))
            updates = lg.Updates()
            updates.add_edge(2, 4, weight=7, time=8, edge_attr=[9, 10])
            updates.set_weight(0, 1, 11 + batch)
            updates.set_edge_attr(1, 3, [12 + batch, 13])
            cluster.apply(updates)
    with pytest.raises(UsageError, match="expected the queries, seed, ttl and columns"):
        ProcessCluster(tmp_path, graph, query, **QUICK)


# ---- what goes wrong meanwhile


def test_processes_translate_ids_and_types(tmp_path):
    """The workers follow the ids of the history, and a reader that is ahead of them waits."""
    buys, likes = ("User", "buys", "Item"), ("Item", "liked by", "User")
    graph = lg.Graph(
        {"User": np.eye(2, dtype=np.float16), "Item": np.ones((2, 1), np.float16)},
        {buys: ["u0", "u1"], likes: ["i1"]},
        {buys: ["i0", "i1"], likes: ["u1"]},
        ids={"User": ["u0", "u1"], "Item": ["i0", "i1"]},
    )
    query = lg.query("User").out("buys").sample(2).out("liked by").sample(1)
    for new in range(2):
        with ProcessCluster(tmp_path, graph, query, **QUICK, sampling=2, serving=2) as cluster:
            updates = lg.Updates()
            updates.remove_vertex("u0", vertex_type="User")
            updates.add_vertex("u0", [0.1, 0.2], vertex_type="User")
            updates.add_edge("u0", "i1", edge_type=buys)
            cluster.apply(updates)
            sample = cluster.sample(["u0"])
            assert (sample.version, sample.hop(2).tolist()) == (new + 1, [[["u1"], [None]]])
            assert sample.features(0).tolist() == [np.array([0.1, 0.2], np.float16).tolist()]


def test_a_coordinator_that_failed_is_reported(tmp_path):
    with ProcessCluster(tmp_path, new_graph(), QUERY, **QUICK) as cluster:
        cluster.sample([0], timeout=60)
        tries = []

        def turn():
            tries.append(1)
            raise (OSError("no process") if len(tries) == 1 else UsageError("the log is another's"))

        cluster._coordinator.turn = turn
        until(lambda: cluster._failure is not None)
        assert len(tries) == 2  # the first may pass
        calls = [
            lambda: cluster.sample([0]),
            lambda: cluster.apply(one_edge()),
            lambda: cluster.lag_batches(),
        ]
        for call in calls:
            with pytest.raises(WorkerUnavailable, match="expected a coordinator at work") as caught:
                call()
            assert isinstance(caught.value.__cause__, UsageError)


def test_a_history_that_is_ahead_is_caught_up_with(tmp_path):
    with ProcessCluster(tmp_path, new_graph(), QUERY, **QUICK) as cluster:
        with UpdateLog(open_log(cluster.config.history)) as other:
            other.append(one_edge())
        with pytest.raises(LogConflict, match=r"which it has taken now \(version 1\)"):
            cluster.apply(one_edge())
        assert cluster.version == 1
        assert cluster.apply(one_edge()) == 2
        assert (cluster.sample([1], at_least=2, timeout=60).hop(1) == 4).all()


def test_workers_end_with_who_started_them_even_before_they_begin(tmp_path):
    with ProcessCluster(tmp_path, new_graph(), QUERY, **QUICK) as cluster:
        cluster.sample([0], timeout=60)
    for role in ("sampling", "serving"):
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        command = [sys.executable, "-m", "livegnn.sampling.cluster.process", str(tmp_path), role, "0", str(ended.pid)]
        assert subprocess.run(command, timeout=60, check=False).returncode == 0


# ---- questions


def test_an_answer_that_does_not_come_is_not_waited_for(tmp_path):
    address = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(address)
        silent.listen()
        start = time.monotonic()
        with pytest.raises(WorkerUnavailable, match="nothing came within"):
            RemoteServing(address).answer(np.arange(1), ReadOptions(1, timeout=0.1))
        assert time.monotonic() - start < 30


def test_a_long_timeout_is_for_ever(tmp_path):
    class Quick:
        def answer(self, seeds, reading):
            return Response(3, (seeds[:, None],), (), ())

    address = str(tmp_path / "s.sock")
    with answer_requests(Quick(), address):
        for timeout in (1e7, threading.TIMEOUT_MAX):
            assert RemoteServing(address).answer(np.arange(1), ReadOptions(1, timeout=timeout)).version == 3


def test_owners_share_one_deadline():
    spec = ClusterSpec.of(new_graph(), QUERY)
    asked = []

    class Slow:
        def answer(self, seeds, reading):
            asked.append(reading.timeout)
            time.sleep(0.05)
            shape = (len(seeds), 2)
            return Response(0, (np.zeros(shape, np.int64),), (np.zeros(shape, np.int64),), ())

    serving = np.full(1024, 1, np.uint64)
    serving[::2] = 2
    front_end = FrontEnd(spec, {0: Slow(), 1: Slow()}, serving)
    front_end.sample(np.arange(6), features=False, timeout=10.0)
    assert len(asked) == 2
    assert asked[1] <= asked[0] - 0.05
    front_end.sample(np.arange(6), features=False, timeout=None)
    assert asked[2:] == [None, None]


def test_a_version_is_asked_of_the_owners_after_a_move():
    spec = ClusterSpec.of(new_graph(), QUERY)
    second = np.full(1024, 2, np.uint64)

    class Moving(dict):
        def __missing__(self, owner):  # the buckets moved while the first owner was asked
            front_end.set_serving(second)
            raise KeyError(owner)

    class Worker:
        def answer(self, seeds, options):
            return Response(4, (), (), ())

    front_end = FrontEnd(spec, Moving({1: Worker()}), np.full(1024, 1, np.uint64))
    assert front_end.version == 4


def test_questions_are_taken_again_after_a_lack_of_file_descriptors(tmp_path):
    address = str(tmp_path / "s.sock")
    worker = ServingWorker(ClusterSpec.of(new_graph(), QUERY), 0)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with answer_requests(worker, address) as door:
        with socket.socket(socket.AF_UNIX) as client, contextlib.ExitStack() as undo:
            undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, before[1]))
            client.connect(address)
            time.sleep(0.2)
        with pytest.raises(VersionPending):
            RemoteServing(address).answer(np.arange(1), ReadOptions(1, timeout=0.0))
    assert door.is_closed


def test_questions_are_taken_again_after_a_lack_of_threads(tmp_path, monkeypatch):
    address = str(tmp_path / "s.sock")
    worker = ServingWorker(ClusterSpec.of(new_graph(), QUERY), 0)
    start = threading.Thread.start

    def limited(thread):
        if thread.name == "livegnn-answers":
            raise RuntimeError("can't start new thread")
        start(thread)

    with answer_requests(worker, address):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", limited)
            with pytest.raises(WorkerUnavailable):
                RemoteServing(address).answer(np.arange(1), ReadOptions(1, timeout=0.0))
        with pytest.raises(VersionPending):
            RemoteServing(address).answer(np.arange(1), ReadOptions(1, timeout=0.0))


# ---- inboxes


def test_parts_of_messages_that_nobody_needs_are_forgotten():
    none = np.empty(0, np.int32)
    log = MemoryLog("inbox", [], lambda: None)
    log.append(encode(Part(1, 5, 1, 1, 2, np.zeros(10, np.uint8))))  # its first part lies before the checkpoint
    inbox = _Inbox(log, 0)
    inbox.read()
    assert inbox.needed(set(), 5) == 0
    log.append(encode(CountChanges(2, 3, 0, 9, 1, (none, none, none, none))))
    inbox.read()
    assert inbox.needed(set(), 9) == 2


def test_heartbeats_come_from_a_thread_while_a_turn_takes_long():
    beats = []
    with _heartbeats(lambda: beats.append(threading.current_thread().name), Settings(heartbeat_ms=5)):
        until(lambda: len(beats) >= 3)
    assert set(beats) == {"livegnn-heartbeats"}
    beats.clear()
    with _heartbeats(lambda: beats.append(1), Settings(heartbeat_ms=5, startup_timeout_ms=0)):
        time.sleep(0.05)
    assert not beats  # a turn longer than startup_timeout_ms is given up
