"""lg.Cluster over several hosts (network namespaces), of which some are lost and some are cut off."""

import os
import time
from contextlib import ExitStack

import numpy as np
import pytest

import livegnn as lg
from livegnn.testing.models import random_model
from tests.simulation import named_streams
from tests.soak.hosts import ray_hosts, refusal

TIMEOUT_S = 8.0
NAME = "hosts"


@pytest.fixture
def started():
    """No Ray of this process."""


class World:
    """An engine, and the batches that a driver elsewhere is given."""

    def __init__(self, hosts):
        self.hosts, self.rng = hosts, np.random.default_rng(1)
        model = random_model(self.rng, family="gcn", depth=2, weighted=True)
        graph, self._mirror = named_streams.random_graph(self.rng, model.input_width, True, vertices=60)
        self.engine = lg.Engine(model, graph, threads=1)

    def batch(self):
        """For the driver; the engine has it."""
        updates = named_streams.random_batch(self.rng, self._mirror, 20)
        self.engine.apply(updates)
        return updates

    def apply(self, driver, count=3):
        for _ in range(count):
            driver.ask("apply", self.batch())
        self.check(driver)

    def check(self, driver):
        assert driver.ask("read") == (self.engine.graph.version, self.engine.state_digest())

    def lost_in_a_batch(self, driver, lose, host):
        """Loses a host while the driver applies a batch; the seconds until it is there."""
        driver.send("apply", self.batch())
        begun = time.monotonic()
        time.sleep(0.005)
        lose(host)
        assert driver.answer() == self.engine.graph.version
        seconds = time.monotonic() - begun
        self.check(driver)
        return seconds


def workers_on(hosts, host, processes):
    return sorted(set(processes) & set(hosts.processes(host)))


@pytest.mark.soak
def test_that_hosts_may_be_lost_and_cut_off_and_a_minority_is_refused(tmp_path):
    if (why := refusal()) is not None:
        pytest.skip(f"no hosts as network namespaces: {why}")
    with ray_hosts(4) as hosts, ExitStack() as ended:
        world = World(hosts)
        first, second = hosts.driver(3), hosts.driver(0)
        for driver in (first, second):
            ended.callback(driver.kill)
        options = {"detached": NAME, "snapshots": str(tmp_path), "snapshot_batches": 3, "timeout_s": TIMEOUT_S}
        first.make(world.engine, 4, partition="hash", **options)
        world.apply(first)

        # The driver's host is cut off in a batch: another driver goes on at the side of the head.
        acknowledged, updates = world.engine.graph.version, world.batch()
        first.send("apply", updates)
        hosts.cut_off(3)
        begun = time.monotonic()
        version, _ = second.ask("attach", NAME)
        print(f"attached {time.monotonic() - begun:.1f} s after a host was cut off with its driver")
        assert version in (acknowledged, acknowledged + 1)
        if version == acknowledged:
            second.ask("apply", updates)
        world.check(second)
        world.apply(second)

        # A host with workers is cut off in a batch, and then another is lost.
        processes = second.ask("processes")
        with_worker = next(host for host in (2, 1) if workers_on(hosts, host, processes))
        cut_off = workers_on(hosts, with_worker, processes)
        seconds = world.lost_in_a_batch(second, hosts.cut_off, with_worker)
        print(f"answered {seconds:.1f} s after a host with {len(cut_off)} workers was cut off")
        world.apply(second)
        print(f"answered {world.lost_in_a_batch(second, hosts.lose, 3 - with_worker):.1f} s after a host was lost")
        world.apply(second)

        # The links are back: what was cut off can neither apply nor answer, and ends.
        hosts.cut_off(3, ended=True)
        hosts.cut_off(with_worker, ended=True)
        refused_or_ended = (lg.errors.DriverReplaced, lg.errors.WorkerUnavailable, EOFError, BrokenPipeError)
        for question in (None, ("apply", lg.Updates()), ("read",)):
            with pytest.raises(refused_or_ended):
                first.ask(*question) if question else first.answer()
        until = time.monotonic() + 90
        while any(os.path.exists(f"/proc/{process}") for process in cut_off):
            assert time.monotonic() < until, "a worker that was cut off still runs"
            time.sleep(0.5)
        world.apply(second)
        processes = second.ask("processes")
        assert workers_on(hosts, 0, processes) == sorted(processes)
        second.ask("close")
