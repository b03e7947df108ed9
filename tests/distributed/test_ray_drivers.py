"""lg.Cluster on Ray under a name: drivers in processes of their own, killed at any moment of a batch."""

import os
import signal
import time

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.ray_names import RayName
from livegnn.testing.models import random_model
from tests.distributed.waiting import wait_for_actors
from tests.simulation import named_streams
from tests.simulation.waiting import wait_for_snapshot
from tests.soak.drivers import DriverProcess


@pytest.fixture
def begin(ray_cluster):
    """Begins a driver in a process of its own, which ends with the test."""
    address, begun = ray_cluster.get_runtime_context().gcs_address, []

    def begin():
        begun.append(DriverProcess(address))
        return begun[-1]

    yield begin
    for driver in begun:
        driver.kill()


def made(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family="gcn", depth=2, weighted=True)
    graph, mirror = named_streams.random_graph(rng, model.input_width, True, vertices=40)
    return lg.Engine(model, graph, threads=1), mirror, rng


def test_that_a_killed_driver_is_replaced_and_each_batch_is_there_once(begin, name):
    engine, mirror, rng = made(1)
    driver = begin()
    assert driver.make(engine, 2, detached=name, snapshot_batches=4, partition="ldg") == (0, engine.state_digest())
    processes = driver.ask("processes")
    for life in range(4):
        for _ in range(int(rng.integers(0, 4))):
            updates = named_streams.random_batch(rng, mirror, 20)
            engine.apply(updates)
            assert driver.ask("apply", updates) == engine.graph.version
        updates = named_streams.random_batch(rng, mirror, 20)
        following = begin()
        driver.send("apply", updates)
        time.sleep(float(rng.random() * 0.03))
        acknowledged = driver.kill()
        driver = following
        version, digest = driver.ask("attach", name)
        stands = version - engine.graph.version
        assert stands in ((1,) if acknowledged else (0, 1)), life
        engine.apply(updates)
        if not stands:
            driver.ask("apply", updates)
            digest = driver.ask("read")[1]
        assert digest == engine.state_digest(), life
        assert driver.ask("processes") == processes  # nothing was computed again
    driver.ask("close")
    assert not RayName("test", name).actors()


def test_that_a_driver_killed_in_a_repartition_leaves_one_crew(begin, name):
    engine, mirror, rng = made(4)
    driver = begin()
    driver.make(engine, 2, detached=name, partition="hash")
    for workers, delay in ((3, 3.0), (1, None)):
        updates = named_streams.random_batch(rng, mirror, 20)
        engine.apply(updates)
        driver.ask("apply", updates)
        following = begin()
        driver.send("repartition", "ldg", workers)
        if delay is None:
            driver.answer()
        else:
            time.sleep(delay)
        done = driver.kill() or delay is None
        driver = following
        assert driver.ask("attach", name) == (engine.graph.version, engine.state_digest())
        processes = driver.ask("processes")
        assert len(processes) in ((workers,) if done else (2, workers))
        wait_for_actors(name, len(processes))
    driver.ask("close")


@pytest.mark.soak
def test_that_a_driver_that_hung_is_refused_and_ends_nothing(begin, name):
    engine, mirror, rng = made(2)
    driver = begin()
    driver.make(engine, 2, detached=name, timeout_s=2.0, partition="hash")
    updates = named_streams.random_batch(rng, mirror, 20)
    driver.send("apply", updates)
    os.kill(driver.pid, signal.SIGSTOP)
    with pytest.raises(lg.errors.UsageError, match="expected a name that no workers have"):
        lg.Cluster(engine.model, engine.graph, 2, detached=name, partition="hash")
    cluster = lg.Cluster.attach(name)
    if cluster.version == 0:
        cluster.apply(updates)
    engine.apply(updates)
    time.sleep(9.0)  # the other one finds its workers silent for longer than it waits
    os.kill(driver.pid, signal.SIGCONT)
    with pytest.raises(lg.errors.DriverReplaced):
        driver.answer()
    with pytest.raises(lg.errors.DriverReplaced):
        driver.ask("read")
    driver.ask("close")
    processes = [facts["process"] for facts in cluster.report()]
    for _ in range(3):
        updates = named_streams.random_batch(rng, mirror, 20)
        for each in (engine, cluster):
            each.apply(updates)
        assert cluster.state_digest() == engine.state_digest()
    os.kill(processes[1], signal.SIGKILL)
    assert cluster.state_digest() == engine.state_digest()
    cluster.close()


@pytest.mark.soak
def test_that_a_worker_lost_with_its_driver_is_said(begin, name):
    engine, _, _ = made(3)
    driver = begin()
    driver.make(engine, 2, detached=name, partition="hash")
    victim = driver.ask("processes")[1]
    driver.kill()
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(lg.errors.WorkerUnavailable, match=r"workers \[1\] lost with their driver"):
        lg.Cluster.attach(name)
    with pytest.raises(lg.errors.UsageError, match="got none that live"):
        lg.Cluster.attach(name)


def test_that_driver_and_workers_are_killed_together(begin, name, tmp_path):
    engine, mirror, rng = made(5)
    driver = begin()
    driver.make(engine, 2, detached=name, partition="hash", snapshots=str(tmp_path), snapshot_batches=1)
    for _ in range(3):
        updates = named_streams.random_batch(rng, mirror, 20)
        engine.apply(updates)
        driver.ask("apply", updates)
    victims = driver.ask("processes")
    updates = named_streams.random_batch(rng, mirror, 20)
    driver.send("apply", updates)
    os.kill(victims[0], signal.SIGKILL)
    acknowledged = driver.kill()
    cluster = lg.Cluster.attach(name)
    assert cluster.version in ((4,) if acknowledged else (3, 4))
    if cluster.version == 3:
        cluster.apply(updates)
    engine.apply(updates)
    assert cluster.state_digest() == engine.state_digest()
    processes = [facts["process"] for facts in cluster.report()]
    wait_for_snapshot(cluster)  # of this version
    for process in processes:
        os.kill(process, signal.SIGKILL)
    cluster.close()
    with lg.Cluster.restore(tmp_path, detached=name) as restored:
        assert restored.version == cluster.version
        assert restored.state_digest() == engine.state_digest()
        updates = named_streams.random_batch(rng, mirror, 20)
        for each in (engine, restored):
            each.apply(updates)
        assert restored.state_digest() == engine.state_digest()


def test_names_that_are_refused(name):
    engine, _, _ = made(4)
    for bad in ("", "a b", "x" * 65, 3):
        with pytest.raises(lg.errors.UsageError, match="expected a name of 1 to 64"):
            lg.Cluster(engine.model, engine.graph, 2, detached=bad, partition="hash")
    with pytest.raises(lg.errors.UsageError, match="got none that live"):
        lg.Cluster.attach(name)
