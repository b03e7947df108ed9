"""python -m tests.soak.clusters --kills 50 --seed 1: kills and pauses workers on Ray, and compares with one engine.

In `make soak`, the scenario `cluster` does so with workers in threads.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.cluster.ray_crew import RayCrew
from livegnn.testing import streams
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.soak.slices import Step

PARTITIONS = ("hash", "ldg", "fennel")
TIMEOUT_S = 10.0  # after which a paused worker is replaced
PAUSED = 10  # one loss of so many is a pause, the others are kills


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
    """Workers in threads, lost at any moment of a batch."""
    rng, workers = step.rng, int(step.rng.integers(2, 6))
    crew = ThreadCrew(workers, timeout_s=60.0)
    pair = Pair(rng, workers, crew)
    while step.tick():
        timers = [
            threading.Timer(float(rng.random() * 0.005), crew.kill, [worker])
            for worker in rng.choice(workers, int(rng.integers(0, workers)), replace=False).tolist()
        ]
        for timer in timers:
            timer.start()
        step.counts.add("updates", pair.apply())
        step.counts.add("batches")
        step.counts.add("kills", len(timers))
        for timer in timers:
            timer.join()
    pair.cluster.verify()
    step.counts.add("verifications")
    pair.cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills workers of a cluster on Ray, and compares with one engine.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, begun, batches = np.random.default_rng(options.seed), time.monotonic(), 0
    crew = RayCrew(3, timeout_s=TIMEOUT_S)
    pair = Pair(rng, 3, crew)
    for loss in range(options.kills):
        number = signal.SIGSTOP if loss % PAUSED == PAUSED - 1 else signal.SIGKILL
        wait = float(rng.random() * 0.05)
        timer = threading.Timer(wait, os.kill, [int(rng.choice(crew.processes())), number])
        timer.start()
        for _ in range(4):
            pair.apply()
            batches += 1
        timer.join()
        pair.apply()
        print(f"{loss + 1} of {options.kills}: version {pair.cluster.graph.version}", flush=True)
    pair.cluster.verify()
    total = batches + options.kills
    print(f"{options.kills} losses, every {PAUSED}th a pause; {total} batches, each as one engine has it")
    print(f"seed {options.seed}, {time.monotonic() - begun:.0f} s, no failure")
    pair.cluster.close()


if __name__ == "__main__":
    main()
