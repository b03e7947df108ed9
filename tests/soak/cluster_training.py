"""python -m tests.soak.cluster_training --kills 25 --seeds 2: kills and pauses workers of a training on Ray.

Each seed has a stream of its own: events, newcomers, changed features and attributes, removals. Its rounds are done by
one process, by undisturbed workers, and by workers of which one is lost in most rounds, at any moment. The last two
must agree bit by bit, as two workers add their sums in either order; average precision is that of one process.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

import livegnn as lg
from livegnn.distributed import ContinuousClusterTrainer, WorkerCache
from tests.unit.temporal.training import (
    KINDS,
    SOURCES,
    VERTICES,
    graph_of,
    habits,
    model_of,
    same_numbers,
    same_tensors,
)

WARM, SIZE, ATTRIBUTES = 300, 50, 2
SPARE = 6  # rounds more than losses
PAUSED = 5  # one loss of so many is a pause, the others are kills
TIMEOUT_S = 10.0  # after which a paused worker is replaced
AP_DIFFERENCE = 0.01  # of the mean, as docs/distributed-training.md says
PARTITIONS = ("hash", "metis", "ldg", "fennel")
RULES = ("hash", "ldg", "fennel")


class Stream:
    """A graph's batches, each with events and whatever else may happen."""

    def __init__(self, rng: np.random.Generator, rounds: int) -> None:
        self.rng, self.rounds, self.vertices = rng, rounds, VERTICES
        self.events = WARM + rounds * SIZE
        src, dst, _ = habits(self.events)
        self._edges = list(zip(src[:WARM].tolist(), dst[:WARM].tolist(), range(WARM), strict=True))
        self._next_id = WARM

    def graph(self) -> lg.Graph:
        """As it begins."""
        return graph_of(WARM, self.events, ATTRIBUTES)

    def batches(self) -> Iterator[lg.Updates]:
        """All of them, in order."""
        src, dst, time_ = habits(self.events)
        for first in range(WARM, self.events, SIZE):
            part, updates = slice(first, first + SIZE), lg.Updates()
            rows = self.rng.standard_normal((SIZE, ATTRIBUTES), dtype=np.float32)
            updates.add_edges(src[part], dst[part], time=time_[part], edge_attr=rows)
            self._note(zip(src[part].tolist(), dst[part].tolist(), strict=True))
            self._changes(updates, int(time_[part][-1]))
            yield updates

    def _note(self, ends: Any) -> None:
        for u, v in ends:
            self._edges.append((u, v, self._next_id))
            self._next_id += 1

    def _changes(self, updates: lg.Updates, now: int) -> None:
        rng = self.rng
        if rng.random() < 0.6:  # a newcomer, and its first events
            updates.add_vertex(self.vertices, np.eye(KINDS, dtype=np.float32)[int(rng.integers(KINDS))])
            ends = [(self.vertices, int(rng.integers(SOURCES, VERTICES))) for _ in range(3)]
            for u, v in ends:
                updates.add_edge(u, v, time=now, edge_attr=rng.standard_normal(ATTRIBUTES, dtype=np.float32))
            self._note(ends)
            self.vertices += 1
        updates.set_features(int(rng.integers(VERTICES)), rng.random(KINDS, dtype=np.float32))
        for place in rng.choice(len(self._edges), 3, replace=False).tolist():
            u, v, edge_id = self._edges[place]
            updates.set_edge_attr(u, v, rng.standard_normal(ATTRIBUTES, dtype=np.float32), edge_id=edge_id)
        for _ in range(int(rng.integers(3))):
            u, v, edge_id = self._edges.pop(int(rng.integers(len(self._edges))))
            updates.remove_edge(u, v, edge_id=edge_id)


class Losses:
    """Kills and pauses that reached a worker."""

    def __init__(self, rng: np.random.Generator, wanted: int) -> None:
        self._rng, self.wanted, self.kills, self.pauses = rng, wanted, 0, 0

    @property
    def count(self) -> int:
        """Of both kinds."""
        return self.kills + self.pauses

    def soon(self, trainer: ContinuousClusterTrainer, rounds_left: int) -> threading.Timer | None:
        """Loses a random worker at a random moment of the round that begins, or right behind it; None: not now."""
        left = self.wanted - self.count
        if self._rng.random() * (rounds_left - SPARE // 2) >= left or not left:
            return None
        rank, wait = int(self._rng.integers(2)), float(self._rng.uniform(0.0, 1.0))
        timer = threading.Timer(wait, self._lose, [trainer, rank])
        timer.start()
        return timer

    def _lose(self, trainer: ContinuousClusterTrainer, rank: int) -> None:
        pauses = self.count % PAUSED == PAUSED - 1
        with suppress(ProcessLookupError):  # a worker that is being replaced
            os.kill(trainer.worker_pids[rank], signal.SIGSTOP if pauses else signal.SIGKILL)
            self.pauses, self.kills = self.pauses + pauses, self.kills + (not pauses)


def soak(kills: int, seed: int) -> str:
    """One seed; what was done. Raises: AssertionError where workers that are lost change anything."""
    torch.set_num_threads(1)
    rng, begun = np.random.default_rng(seed), time.monotonic()
    rounds = kills + SPARE
    dropout = 0.0 if seed % 3 else 0.1
    model = model_of(str(rng.choice(["tgn", "tgat"])), edge_width=ATTRIBUTES, dropout=dropout)
    owners = {"partition": str(rng.choice(PARTITIONS)), "newcomers": str(rng.choice(RULES))}
    caches = {"vertex_features": WorkerCache(capacity=20), "edge_features": WorkerCache(capacity=200)}
    workers = {"workers": 2, "timeout_s": TIMEOUT_S, "restarts": 10, **owners, **(caches if rng.integers(2) else {})}
    losses, trained = Losses(rng, kills), []
    for disturbed, options in ((False, {}), (False, workers), (True, workers)):
        stream = Stream(np.random.default_rng(seed), rounds)
        trained.append(_trained(stream, copy.deepcopy(model), options, losses if disturbed else None))
        print(f"seed {seed}: {len(trained)} of 3 trainings, {time.monotonic() - begun:.0f} s", flush=True)
    alone, calm, lossy = trained
    assert losses.count == kills, f"expected {kills} losses, got {losses.count}"
    assert lossy.workers_replaced > 0.8 * losses.count  # a worker may be lost twice before it is replaced
    same_numbers(lossy.report, calm.report)
    same_tensors(lossy.model.state_dict(), calm.model.state_dict())
    if model.memory is not None:
        same_tensors(lossy.model.memory.state(), calm.model.memory.state())
        assert torch.equal(lossy.model.memory.state()["known"], alone.model.memory.state()["known"])
    assert [r.events for r in lossy.report.rounds] == [r.events for r in alone.report.rounds]
    if not dropout:  # which each worker draws by itself
        assert abs(lossy.report.mean_ap - alone.report.mean_ap) < AP_DIFFERENCE
    return (
        f"seed {seed}: {type(model).__name__}, {owners}, caches: {'vertex_features' in workers}; {rounds} rounds, "
        f"{losses.kills} kills, {losses.pauses} pauses, {lossy.workers_replaced} workers replaced; mean AP "
        f"{lossy.report.mean_ap:.4f}, of one process {alone.report.mean_ap:.4f}; {time.monotonic() - begun:.0f} s"
    )


def _trained(stream: Stream, model: Any, options: dict[str, Any], losses: Losses | None) -> lg.ContinuousTrainer:
    graph, make = stream.graph(), ContinuousClusterTrainer if options else lg.ContinuousTrainer
    sampler = lg.TemporalSampler(graph, fanouts=[5], strategy="recent", threads=1)
    with make(model, graph, sampler, batch_size=50, epochs=2, replay=0.4, chunks=4, **options) as trainer:
        trainer.fit()
        for left, updates in zip(range(stream.rounds, 0, -1), stream.batches(), strict=True):
            timer = losses.soon(trainer, left) if losses is not None else None
            list(trainer.run([updates]))
            if timer is not None:
                timer.join()
        if isinstance(trainer, ContinuousClusterTrainer):
            count = len(trainer.report.epochs)
            trainer.round()  # without events; finds a worker that was lost behind the last round
            del trainer.report.rounds[-1], trainer.report.epochs[count:]
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills and pauses workers of a training on Ray.")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    for line in [soak(options.kills, options.seed + number) for number in range(options.seeds)]:
        print(line)
    print("no failure")


if __name__ == "__main__":
    main()
