"""Workers, the driver and the NATS server are killed, or a worker stops: no update is lost or counted twice.

Samples equal those of an undisturbed run.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from livegnn.distributed import Hosting, SampleCluster
from livegnn.sampling import LocalCluster
from livegnn.sampling.cluster.runtime import Settings
from tests.brokers import NatsServer
from tests.distributed.sample_clusters import QUERY, QUICK, compare, random_graph, until, write_some

SETTINGS = Settings(checkpoint_steps=6, step_batches_max=4)


def started(folder, **parts):
    graph = random_graph()
    undisturbed = LocalCluster(graph, QUERY, seed=5)
    parts = QUICK | {"settings": SETTINGS, "seed": 5, "sampling": 2, "serving": 2} | parts
    return graph, undisturbed, SampleCluster(folder, graph, QUERY, **parts)


def process_of(cluster, role, worker):
    """The process id of a worker, once the driver has looked at it."""
    until(lambda: (role, worker) in cluster.processes)
    return cluster.processes[role, worker]


def test_killed_workers_come_back_and_a_folder_goes_on(tmp_path):
    rng = random.Random(3)
    graph, undisturbed, cluster = started(tmp_path)
    with cluster:
        compare(cluster, undisturbed)
        for who in [("sampling", 0), ("serving", 1), ("sampling", 1), ("serving", 0)]:
            write_some(rng, graph, 8)
            time.sleep(rng.random() * 0.2)
            before = process_of(cluster, *who)
            os.kill(before, signal.SIGKILL)
            write_some(rng, graph, 8)
            compare(cluster, undisturbed)
            until(lambda who=who, before=before: cluster.processes[who] != before)
        assert cluster.lag_batches() == 0
    with SampleCluster(tmp_path, graph, QUERY, **QUICK, settings=SETTINGS, seed=5) as again:
        write_some(rng, graph, 5)
        compare(again, undisturbed)


@pytest.mark.parametrize("role", ["sampling", "serving"])
def test_a_worker_that_hangs_is_started_again(tmp_path, role):
    rng = random.Random(6)
    graph, undisturbed, cluster = started(tmp_path, hosting=Hosting(hung_timeout_ms=1000))
    with cluster:
        compare(cluster, undisturbed)
        before = process_of(cluster, role, 1)
        os.kill(before, signal.SIGSTOP)
        write_some(rng, graph, 8)
        compare(cluster, undisturbed)
        until(lambda: cluster.processes[role, 1] != before)
        assert cluster._hosts.restarts >= 1


def test_a_replica_answers_while_another_comes_back(tmp_path):
    _, undisturbed, cluster = started(tmp_path, serving=1, replicas=2)
    with cluster:
        compare(cluster, undisturbed)
        os.kill(process_of(cluster, "serving", 0), signal.SIGKILL)
        begin = time.monotonic()
        for _ in range(20):
            compare(cluster, undisturbed)
        assert time.monotonic() - begin < 30


DRIVER = """
import random, sys
from livegnn.distributed import SampleCluster
from tests.distributed.sample_clusters import QUERY, QUICK, random_graph, write_some
from tests.distributed.test_sample_kills import SETTINGS
graph = random_graph()
cluster = SampleCluster(sys.argv[1], graph, QUERY, **QUICK, settings=SETTINGS, seed=5, sampling=2, serving=2)
cluster.sample([0], timeout=120)
print("up", flush=True)
rng = random.Random(8)
while True:
    write_some(rng, graph, 1)
"""


def test_a_driver_that_is_killed_has_a_successor(tmp_path):
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with driver:
        assert any(line.strip() == "up" for line in driver.stdout), "the first driver did not come up"
        time.sleep(0.5)
        driver.kill()
    graph = random_graph()
    with SampleCluster(tmp_path, graph, QUERY, **QUICK, settings=SETTINGS, seed=5) as cluster:
        assert graph.version > 0  # what the first one had written
        undisturbed = LocalCluster(graph, QUERY, seed=5)
        compare(cluster, undisturbed)
        write_some(random.Random(9), graph, 8)
        compare(cluster, undisturbed)


@pytest.fixture
def server(tmp_path):
    server = NatsServer(tmp_path / "jetstream")
    yield server
    server.kill()


def test_a_killed_broker_loses_nothing(tmp_path, server):
    rng = random.Random(4)
    urls = {"logs": server.url("{name}"), "history": server.url("history")}
    parts = urls | {"log_options": {"timeout_seconds_max": 20.0}}
    graph, undisturbed, cluster = started(tmp_path / "cluster", **parts)
    with cluster:
        write_some(rng, graph, 6)
        compare(cluster, undisturbed)
        server.kill()
        os.kill(process_of(cluster, "sampling", 1), signal.SIGKILL)
        time.sleep(0.3)
        server.start()
        write_some(rng, graph, 6)
        compare(cluster, undisturbed)
