"""python -m tests.soak.clusters --kills 50 --seed 1: kills workers and drivers on Ray, in every other batch while other
workers are about to take over, and compares with one engine.

`make soak` runs it last. The scenario `cluster`, which is run() here, has workers in threads.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.ray_session import connect
from livegnn.testing import streams
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.simulation import named_streams
from tests.soak.drivers import DriverProcess
from tests.soak.slices import Step

PARTITIONS = ("hash", "ldg", "fennel")
TIMEOUT_S = 10.0  # after which a paused worker is replaced
PAUSED = 10  # one loss of so many is a worker's pause


class Pair:
    """A cluster and an engine of the same random graph, and batches for both."""

    def __init__(self, rng: np.random.Generator, workers: int, crew: Any) -> None:
        self.rng = rng
        weighted = bool(rng.integers(2))
        model = random_model(rng, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=None)
        graph, self._mirror = streams.random_graph(
            rng, model.input_width, weighted, vertices=int(rng.integers(5, 80)), **graph_columns(model)
        )
        self.engine = lg.Engine(model, graph, threads=1)
        self.cluster = lg.Cluster(
            model,
            graph,
            workers,
            crew=crew,
            partition=str(rng.choice(PARTITIONS)),
            newcomers=str(rng.choice(PARTITIONS)),
            snapshot_batches=int(rng.integers(1, 6)),
        )

    def apply(self) -> int:
        """One batch on both; how many updates, 0 where both refuse it. Raises: AssertionError where they differ."""
        before = self._mirror.copy()
        updates = streams.random_batch(self.rng, self._mirror, int(self.rng.integers(1, 40)))
        try:
            self.engine.apply(updates)
        except lg.errors.UpdateError as refused:  # a range that is left
            self._mirror = before
            try:
                self.cluster.apply(updates)
            except type(refused):
                return 0
            raise AssertionError("a cluster took what an engine refuses") from refused
        self.cluster.apply(updates)
        assert self.cluster.state_digest() == self.engine.state_digest()
        return len(updates)


def run(step: Step) -> None:
    """Workers in threads, lost at any moment of a batch; others take over now and then."""
    rng, workers = step.rng, int(step.rng.integers(2, 6))
    pair = Pair(rng, workers, ThreadCrew(workers, timeout_s=60.0))
    while step.tick():
        crew, threads = pair.cluster._crew._crew, []
        for worker in rng.choice(crew.size, int(rng.integers(0, crew.size)), replace=False).tolist():
            threads.append(threading.Timer(float(rng.random() * 0.005), crew.kill, [worker]))
        step.counts.add("kills", len(threads))
        change = None
        if rng.random() < 0.2:
            change = Repartition(pair.cluster, str(rng.choice(PARTITIONS)), int(rng.integers(1, 6)))
            change.start()
        for thread in threads:
            thread.start()
        for _ in range(1 if change is None else 4):
            step.counts.add("updates", pair.apply())
            step.counts.add("batches")
        for thread in threads:
            thread.join()
        if change is not None:
            change.end()
            step.counts.add("takeovers")
    pair.cluster.verify()
    step.counts.add("verifications")
    pair.cluster.close()


class Repartition(threading.Thread):
    """Has other workers take over, in a thread."""

    def __init__(self, cluster: Any, partition: str, workers: int) -> None:
        super().__init__()
        self._call = functools.partial(cluster.repartition, partition, workers)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        """Waits. Raises: what the call raised."""
        self.join()
        if self._error is not None:
            raise self._error


class Killed:
    """A cluster on Ray whose driver is a process of its own, and an engine with the same batches."""

    def __init__(self, rng: np.random.Generator, folder: str) -> None:
        self.rng, weighted = rng, bool(rng.integers(2))
        ray = connect("soak")
        self._address, self._name = ray.get_runtime_context().gcs_address, f"soak-{os.getpid()}"
        model = random_model(rng, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=None)
        self._source = named_streams if rng.integers(2) else streams
        graph, self._mirror = self._source.random_graph(
            rng, model.input_width, weighted, vertices=int(rng.integers(5, 80)), **graph_columns(model)
        )
        self.engine, self.batches = lg.Engine(model, graph, threads=1), 0
        self._driver, self._following = DriverProcess(self._address), DriverProcess(self._address)
        partition, newcomers = (str(rng.choice(PARTITIONS)) for _ in range(2))
        options: dict[str, Any] = {"partition": partition, "newcomers": newcomers, "snapshots": folder}
        options["snapshot_batches"] = int(rng.integers(1, 6))
        self._driver.make(self.engine, 3, detached=self._name, timeout_s=TIMEOUT_S, **options)

    def begin_repartition(self) -> None:
        """Other workers are on their way from now on."""
        self._driver.ask("begin_repartition", str(self.rng.choice(PARTITIONS)), int(self.rng.integers(1, 5)))
        for _ in range(int(self.rng.integers(4))):
            self.apply()
        time.sleep(float(self.rng.random() * 4.0))

    def end_repartition(self) -> None:
        """They have taken over, or it was another driver that began it."""
        self._driver.ask("end_repartition")
        self.check()

    def lose_worker(self, number: int) -> None:
        """A signal to one of them, in a batch or shortly before it."""
        victim = int(self.rng.choice(self._driver.ask("processes")))
        timer = threading.Timer(float(self.rng.random() * 0.05), send_signal, [victim, number])
        timer.start()
        for _ in range(4):
            self.apply()
        timer.join()
        self.apply()

    def lose_driver(self, workers: int) -> None:
        """SIGKILL in a batch, to so many workers, too; the next one attaches."""
        processes = self._driver.ask("processes")
        victims = self.rng.choice(processes, min(workers, len(processes) - 1), replace=False).tolist()
        for _ in range(int(self.rng.integers(4))):
            self.apply()
        updates, taken = self._batch()
        self._driver.send("apply", updates)
        time.sleep(float(self.rng.random() * 0.03))
        for victim in victims:
            send_signal(victim, signal.SIGKILL)
        acknowledged = self._driver.kill()
        self._driver, self._following = self._following, DriverProcess(self._address)
        version, _ = self._driver.ask("attach", self._name)
        if not taken:
            assert version == self.engine.graph.version, "a batch that an engine refuses"
        elif version < self.engine.graph.version:
            assert (version, acknowledged) == (self.engine.graph.version - 1, False), "a batch was lost"
            self._driver.ask("apply", updates)
        self.check()

    def apply(self) -> None:
        """One batch on both."""
        updates, taken = self._batch()
        try:
            self._driver.ask("apply", updates)
        except lg.errors.UpdateError:
            assert not taken, "a cluster refused what an engine takes"
        else:
            assert taken, "a cluster took what an engine refuses"
        self.check()

    def check(self) -> None:
        """Version and digest are one engine's."""
        assert self._driver.ask("read") == (self.engine.graph.version, self.engine.state_digest())

    def close(self) -> None:
        self._driver.ask("close")
        for each in (self._driver, self._following):
            each.kill()

    def _batch(self) -> tuple[lg.Updates, bool]:
        """For the driver; whether the engine has taken it."""
        before, self.batches = self._mirror.copy(), self.batches + 1
        updates = self._source.random_batch(self.rng, self._mirror, int(self.rng.integers(1, 40)))
        try:
            self.engine.apply(updates)
        except lg.errors.UpdateError:  # a range that is left
            self._mirror = before
            return updates, False
        return updates, True


def send_signal(process: int, number: int) -> None:
    """To a worker, unless another has taken over from it by then."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills workers and drivers on Ray, and compares with one engine.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, help="of everything but the moments of losses; drawn unless given")
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    print(f"seed {seed}, {options.kills} losses", flush=True)
    rng, begun = np.random.default_rng(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        killed = Killed(rng, folder)
        for loss in range(options.kills):
            moving = loss % 4 > 1
            if moving:
                killed.begin_repartition()
            if loss % 2:
                workers = loss // 2 % 3
                what = f"driver and {workers} workers"
                killed.lose_driver(workers)
            else:
                paused = loss % PAUSED == PAUSED - 2
                what = "worker, paused" if paused else "worker"
                killed.lose_worker(signal.SIGSTOP if paused else signal.SIGKILL)
            if moving:
                killed.end_repartition()
                what += ", while others were to take over"
            print(f"{loss + 1} of {options.kills} ({what}): version {killed.engine.graph.version}", flush=True)
        killed.close()
    print(f"{options.kills} losses, every second of a driver; {killed.batches} batches, each as one engine has it")
    print(f"seed {seed}, {time.monotonic() - begun:.0f} s, no failure")


if __name__ == "__main__":
    main()
