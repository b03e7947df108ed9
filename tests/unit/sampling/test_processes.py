"""Clusters of processes: what a folder accepts, what ends them, and what their owner is told."""

import contextlib
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
from livegnn.sampling import ClusterSpec, ServingWorker
from livegnn.sampling.checkpoints import CheckpointFiles
from livegnn.sampling.front_end import FrontEnd
from livegnn.sampling.messages import Answer, Exchange, Part, Reading, encode
from livegnn.sampling.process import Config, ProcessCluster, _beating
from livegnn.sampling.remote import RemoteServing, answer_questions
from livegnn.sampling.runtime import Settings, _Inbox
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
    one = Config(spec, "sqlite:a.db", "sqlite:{name}.db", {}, Settings())
    other = one._replace(**{column: "nats://me:hunter2@localhost/{name}"})
    for stored, given in ((one, other), (other, one)):
        with pytest.raises(UsageError, match=f"expected the {column}") as refused:
            given.check_same(stored)
        assert "hunter2" not in str(refused.value)
        assert "localhost" in str(refused.value)


def test_a_first_start_that_failed_is_made_up_for(tmp_path, monkeypatch):
    graph = new_graph()
    with monkeypatch.context() as patch:
        patch.setattr("livegnn.sampling.process.Coordinator", refuse)
        with pytest.raises(OSError, match="no coordinator"):
            ProcessCluster(tmp_path, graph, QUERY, **QUICK)
    assert Config.read(tmp_path).spec == ClusterSpec.of(graph, QUERY)
    with ProcessCluster(tmp_path, graph, QUERY, **QUICK) as cluster:
        assert cluster.sample([0], timeout=60).hop(1).shape == (1, 2)


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


# ---- what goes wrong meanwhile


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
        command = [sys.executable, "-m", "livegnn.sampling.process", str(tmp_path), role, "0", str(ended.pid)]
        assert subprocess.run(command, timeout=60, check=False).returncode == 0


# ---- questions


def test_an_answer_that_does_not_come_is_not_waited_for(tmp_path):
    address = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(address)
        silent.listen()
        start = time.monotonic()
        with pytest.raises(WorkerUnavailable, match="nothing came within"):
            RemoteServing(address).answer(np.arange(1), Reading(1, timeout=0.1))
        assert time.monotonic() - start < 30


def test_a_long_timeout_is_for_ever(tmp_path):
    class Quick:
        def answer(self, seeds, reading):
            return Answer(3, (seeds[:, None],), (), ())

    address = str(tmp_path / "s.sock")
    with answer_questions(Quick(), address):
        for timeout in (1e7, threading.TIMEOUT_MAX):
            assert RemoteServing(address).answer(np.arange(1), Reading(1, timeout=timeout)).version == 3


def test_owners_share_one_deadline():
    spec = ClusterSpec.of(new_graph(), QUERY)
    asked = []

    class Slow:
        def answer(self, seeds, reading):
            asked.append(reading.timeout)
            time.sleep(0.05)
            shape = (len(seeds), 2)
            return Answer(0, (np.zeros(shape, np.int64),), (np.zeros(shape, np.int64),), ())

    serving = np.full(1024, 1, np.uint64)
    serving[::2] = 2
    front_end = FrontEnd(spec, {0: Slow(), 1: Slow()}, serving)
    front_end.sample(np.arange(6), features=False, timeout=10.0)
    assert len(asked) == 2
    assert asked[1] <= asked[0] - 0.05
    front_end.sample(np.arange(6), features=False, timeout=None)
    assert asked[2:] == [None, None]


def test_questions_are_taken_again_after_a_lack_of_file_descriptors(tmp_path):
    address = str(tmp_path / "s.sock")
    worker = ServingWorker(ClusterSpec.of(new_graph(), QUERY), 0)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with answer_questions(worker, address) as door:
        with socket.socket(socket.AF_UNIX) as client, contextlib.ExitStack() as undo:
            undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, before[1]))
            client.connect(address)
            time.sleep(0.2)
        with pytest.raises(VersionPending):
            RemoteServing(address).answer(np.arange(1), Reading(1, timeout=0.0))
    assert door.is_closed


def test_questions_are_taken_again_after_a_lack_of_threads(tmp_path, monkeypatch):
    address = str(tmp_path / "s.sock")
    worker = ServingWorker(ClusterSpec.of(new_graph(), QUERY), 0)
    start = threading.Thread.start

    def limited(thread):
        if thread.name == "livegnn-answers":
            raise RuntimeError("can't start new thread")
        start(thread)

    with answer_questions(worker, address):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", limited)
            with pytest.raises(WorkerUnavailable):
                RemoteServing(address).answer(np.arange(1), Reading(1, timeout=0.0))
        with pytest.raises(VersionPending):
            RemoteServing(address).answer(np.arange(1), Reading(1, timeout=0.0))


# ---- inboxes


def test_parts_of_messages_that_nobody_needs_are_forgotten():
    none = np.empty(0, np.int32)
    log = MemoryLog("inbox", [], lambda: None)
    log.append(encode(Part(1, 5, 1, 1, 2, np.zeros(10, np.uint8))))  # its first part lies before the checkpoint
    inbox = _Inbox(log, 0)
    inbox.read()
    assert inbox.needed(set(), 5) == 0
    log.append(encode(Exchange(2, 3, 0, 9, 1, (none, none, none, none))))
    inbox.read()
    assert inbox.needed(set(), 9) == 2


def test_beats_come_from_a_thread_while_a_turn_takes_long():
    beats = []
    with _beating(lambda: beats.append(threading.current_thread().name), Settings(beat_ms=5)):
        until(lambda: len(beats) >= 3)
    assert set(beats) == {"livegnn-beats"}
    beats.clear()
    with _beating(lambda: beats.append(1), Settings(beat_ms=5, start_ms_max=0)):
        time.sleep(0.05)
    assert not beats  # a turn longer than start_ms_max is given up
