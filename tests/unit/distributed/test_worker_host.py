"""WorkerHost without Ray: what it answers, what ends it, what it begins again."""

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.sampling_host import worker_host
from livegnn.distributed.sampling_host.config import ClusterConfig
from livegnn.distributed.sampling_host.worker_host import RefusedRead, WorkerHost
from livegnn.errors import LogUnavailable, UsageError
from livegnn.sampling import ClusterSpec, ReadOptions, even_owners, even_serving
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.coordinator import write_start
from livegnn.sampling.cluster.messages import Batches, Move, Serve, encode
from livegnn.sampling.cluster.runtime import ServingLoop, Settings
from tests.distributed.sample_clusters import until


@pytest.fixture
def folder(tmp_path):
    """A cluster of one sampling and one serving worker, whose first step is in the log."""
    graph = lg.Graph(np.ones((6, 2), np.float32), [0, 0, 0], [1, 2, 3])
    spec = ClusterSpec.of(graph, lg.query().out().sample(2))
    write_start(spec, graph, even_owners(1), CheckpointFiles(tmp_path))
    options = {"synchronous": "NORMAL"}
    ClusterConfig(spec, f"sqlite:{tmp_path}/h.db", f"sqlite:{tmp_path}/{{name}}.db", options, Settings()).write(
        tmp_path
    )
    add_step(tmp_path, Serve(0, 0, even_serving(1)))
    return tmp_path


def add_step(folder, step):
    logs = ClusterConfig.read(folder).open_logs()
    logs.log("steps").append(encode(step))
    logs.close()


@pytest.fixture
def hosted(folder):
    made = []

    def host(role):
        made.append(WorkerHost(str(folder), ClusterConfig.read(folder).to_json(), role, 0, 1, None))
        return made[-1]

    yield host
    for each in made:
        each.end()


def test_a_pair_of_hosts_serves_samples(hosted):
    sampling, serving = hosted("sampling"), hosted("serving")
    found = serving.answer(np.array([0, 4]), ReadOptions(1, timeout=30.0))
    assert [each.shape for each in found.vertices] == [(2, 2)]
    until(lambda: (sampling.status().step, serving.status().step) == (1, 1))
    assert sampling.status().busy_seconds > 0
    assert sampling.status().failure == ""


def test_an_error_of_the_reader_is_an_answer(hosted):
    hosted("sampling")
    refused = hosted("serving").answer(np.array([77]), ReadOptions(1, timeout=30.0))
    assert isinstance(refused, RefusedRead)
    assert refused.error == "VertexUnknown"


def test_a_question_waits_for_the_worker_no_longer_than_its_reader(hosted, monkeypatch):
    there = threading.Event()
    started = WorkerHost._started

    def late(self, *parts):
        there.wait()
        return started(self, *parts)

    monkeypatch.setattr(WorkerHost, "_started", late)
    serving = hosted("serving")
    assert serving.status().step is None
    assert serving.answer(np.array([0]), ReadOptions(1, timeout=0.01)).error == "VersionPending"
    there.set()
    assert serving.answer(np.array([0]), ReadOptions(1, timeout=0.01)).error == "VersionPending"  # its first step


def test_what_a_person_must_put_right_ends_the_turns(folder, hosted):
    logs = ClusterConfig.read(folder).open_logs()
    updates = lg.Updates()
    updates.remove_edge(5, 5)
    logs.history.append(updates)
    logs.close()
    add_step(folder, Batches(1, 1, 0))
    sampling = hosted("sampling")
    until(lambda: sampling.status().failure)
    assert sampling.status().failure.startswith(f"{UsageError.__name__}: [history, from offset 0] expected batches")


def test_a_log_that_is_away_is_asked_again(hosted, monkeypatch):
    monkeypatch.setattr(worker_host, "_RETRY_SECONDS", 0.01)
    fails, turn = [True] * 3, ServingLoop.turn

    def failing(self):
        if fails:
            fails.pop()
            raise LogUnavailable("[log] expected it, got nothing; wait")
        return turn(self)

    monkeypatch.setattr(ServingLoop, "turn", failing)
    hosted("sampling")
    assert len(hosted("serving").answer(np.array([0]), ReadOptions(1, timeout=30.0)).vertices) == 1
    assert not fails


def test_other_errors_end_the_process(hosted, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(worker_host, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(worker_host.os, "_exit", lambda code: ended.set())

    def broken(self):
        raise MemoryError("no room")

    monkeypatch.setattr(ServingLoop, "turn", broken)
    serving = hosted("serving")
    assert ended.wait(30)
    assert serving.status().failure == ""


def test_a_worker_whose_partition_moved_rests(folder, hosted):
    sampling = hosted("sampling")
    add_step(folder, Move(1, 0, even_owners(2)))
    until(lambda: sampling.status().step == 2)
    until(lambda: not sampling._thread.is_alive())
    assert CheckpointFiles(folder).read("moved", 0, 2) is not None
