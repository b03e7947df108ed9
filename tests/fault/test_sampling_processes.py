"""Processes over real logs: any worker, or the NATS server, is killed with SIGKILL; no update is lost or counted twice,
and samples equal those of an undisturbed run.
"""

import os
import random
import signal
import time

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import UpdateError
from livegnn.sampling import LocalCluster, even_owners, even_serving
from livegnn.sampling.cluster.process import ProcessCluster
from livegnn.sampling.cluster.runtime import Settings
from tests.brokers import NatsServer
from tests.simulation.test_simulation_sampling import random_batch

SETTINGS = Settings(
    heartbeat_ms=100, heartbeat_timeout_ms=3000, startup_timeout_ms=15_000, checkpoint_steps=6, step_batches_max=4
)
QUERY = lg.query().out().sample(3).out().sample(2)


def start(folder, logs, history, options):
    rng = random.Random(1)
    src, dst = [[rng.randrange(30) for _ in range(80)] for _ in range(2)]
    graph = lg.Graph(np.ones((30, 2), np.float32), src, dst, time=[rng.randint(0, 50) for _ in range(80)])
    undisturbed = LocalCluster(graph, QUERY, seed=5)
    parts = {"history": history, "logs": logs, "log_options": options, "settings": SETTINGS, "seed": 5}
    return graph, undisturbed, ProcessCluster(folder, graph, QUERY, **parts, sampling=2, serving=2)


def compare(graph, undisturbed, cluster):
    """Reads after a write see it, and equal those of one process."""
    seeds = graph.vertices()
    got = cluster.sample(seeds, at_least=graph.version, timeout=120)
    expected = undisturbed.sample(seeds)
    assert got.version >= graph.version
    for hop in (1, 2):
        np.testing.assert_array_equal(got.hop(hop), expected.hop(hop))
        np.testing.assert_array_equal(got.edge_ids(hop), expected.edge_ids(hop))
    for level in range(3):
        np.testing.assert_array_equal(got.features(level), expected.features(level))


def write_some(rng, graph, count):
    for _ in range(count):
        try:
            graph.apply(random_batch(rng, graph))
        except UpdateError:
            continue


def test_killed_workers_are_replaced(tmp_path):
    rng = random.Random(3)
    options = {"synchronous": "NORMAL"}
    graph, undisturbed, cluster = start(tmp_path, None, None, options)
    with cluster:
        compare(graph, undisturbed, cluster)
        for who in [("sampling", 0), ("serving", 1), ("sampling", 1), ("serving", 0)]:
            write_some(rng, graph, 8)
            time.sleep(rng.random() * 0.2)
            before = cluster.processes[who]
            os.kill(before, signal.SIGKILL)
            write_some(rng, graph, 8)
            compare(graph, undisturbed, cluster)
        assert cluster.lag_batches() == 0
    options_again = {"log_options": options, "settings": SETTINGS, "seed": 5}
    with ProcessCluster(tmp_path, graph, QUERY, **options_again) as cluster:  # the folder goes on where it was
        assert cluster.sample([0], at_least=graph.version).version == graph.version
        cluster.move_sampling(even_owners(3))
        write_some(rng, graph, 5)
        cluster.move_serving(np.roll(even_serving(3), 1))
        write_some(rng, graph, 5)
        compare(graph, undisturbed, cluster)
    with ProcessCluster(tmp_path, graph, QUERY, **options_again) as again:
        write_some(rng, graph, 5)
        compare(graph, undisturbed, again)


@pytest.fixture
def server(tmp_path):
    server = NatsServer(tmp_path / "jetstream")
    yield server
    server.kill()


def test_a_killed_broker_loses_nothing(tmp_path, server):
    rng = random.Random(4)
    urls = server.url("{name}"), server.url("history")
    graph, undisturbed, cluster = start(tmp_path / "cluster", *urls, {"timeout_seconds_max": 20.0})
    with cluster:
        write_some(rng, graph, 6)
        compare(graph, undisturbed, cluster)
        server.kill()
        os.kill(cluster.processes["sampling", 1], signal.SIGKILL)
        time.sleep(0.3)
        server.start()
        write_some(rng, graph, 6)
        compare(graph, undisturbed, cluster)
