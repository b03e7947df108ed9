"""Continuous training and live temporal serving, killed at any moment and started again on their folder: they end with
the numbers, weights and memory of a run that was never disturbed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

import livegnn as lg
from livegnn.temporal.checkpoint import read_checkpoint
from tests.soak.slices import Step
from tests.soak.victims import Victim, random_wait
from tests.unit.temporal.training import KINDS, VERTICES, model_of, numbers

_PRELOAD = ["tests.soak.training"]
_SOURCES = 30


class Plan:
    """A stream, a model and the options of a trainer, as functions of a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        count = int(rng.integers(200, 500))
        self.src, self.dst = rng.integers(0, _SOURCES, count), rng.integers(_SOURCES, VERTICES, count)
        self.time = np.cumsum(rng.integers(0, 3, count))
        self.warm, self.size = count // 3, int(rng.integers(40, 120))
        self.name = ("tgn", "tgat")[int(rng.integers(2))]
        self.options: dict[str, Any] = {"batch_size": 50, "epochs": int(rng.integers(1, 3))}
        self.options["replay"] = float(rng.choice([0.0, 0.3]))
        self.options["train_every"] = int(rng.choice([1, 1, 2]))

    def graph(self) -> lg.Graph:
        """As it is when training begins."""
        x = np.eye(KINDS, dtype=np.float32)[np.arange(VERTICES) % KINDS]
        part = slice(0, self.warm)
        return lg.Graph(x, self.src[part], self.dst[part], time=self.time[part], undirected=True)

    def batches(self) -> Iterator[lg.Updates]:
        """What comes afterwards."""
        for begin in range(self.warm, len(self.src), self.size):
            part, updates = slice(begin, begin + self.size), lg.Updates()
            updates.add_edges(self.src[part], self.dst[part], time=self.time[part])
            yield updates

    def sampler(self, graph: lg.Graph) -> lg.TemporalSampler:
        """Of the model's hops."""
        return lg.TemporalSampler(graph, fanouts=[5], threads=1)


def train(connection: Connection, seed: int, folder: Path) -> None:
    """The victim: begins, or goes on where its folder says."""
    torch.set_num_threads(1)
    plan = Plan(seed)
    graph = plan.graph()
    trainer = lg.ContinuousTrainer(
        model_of(plan.name), graph, plan.sampler(graph), seed=seed, folder=folder / "training", **plan.options
    )
    connection.send(("rounds", trainer.rounds))
    trainer.fit()
    connection.send(("rounds", trainer.rounds))
    for _ in trainer.run(plan.batches()):
        connection.send(("rounds", trainer.rounds))
    connection.send(("ended", _digest(trainer)))
    time.sleep(3600)  # until it is killed


def serve(connection: Connection, seed: int, folder: Path) -> None:
    """The victim: a temporal engine that saves itself after each batch; the batches are its log."""
    torch.set_num_threads(1)
    plan = Plan(seed)
    graph, path = plan.graph(), folder / "temporal.pt"
    batches = list(plan.batches())
    saved = read_checkpoint(path, "soak")["version"] if path.exists() else 0
    for updates in batches[:saved]:
        graph.apply(updates)
    sampler = plan.sampler(graph)
    if path.exists():
        engine = lg.TemporalEngine.load(path, model_of(plan.name), graph, sampler)
    else:
        engine = lg.TemporalEngine(model_of(plan.name), graph, sampler, memory_step=64)
    for number, updates in enumerate(batches[saved:], start=saved + 1):
        engine.apply(updates)
        engine.save(path)
        connection.send(("rounds", number))
    rows = engine.predict(plan.src[:9], plan.dst[:9], 10**6)
    connection.send(("ended", f"{engine.state_digest():x} {rows.tobytes().hex()}"))
    time.sleep(3600)  # until it is killed


def _digest(trainer: lg.ContinuousTrainer) -> str:
    """Of what clocks say nothing of: losses and scores, weights, memory."""
    rounds, epochs = numbers(trainer.report)
    hashed = hashlib.sha256(rounds.tobytes() + repr(epochs).encode())
    parts = dict(trainer.model.state_dict())
    memory = getattr(trainer.model, "memory", None)
    parts |= {f"memory.{name}": value for name, value in memory.state().items()} if memory is not None else {}
    for name, value in sorted(parts.items()):
        hashed.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def _end_of(said: list[Any], rounds: int) -> tuple[int, str]:
    """The rounds and the digest that were reported; rounds that are done are not lost."""
    digest = ""
    for kind, value in said:
        if kind == "ended":
            digest = value
        else:
            assert value >= rounds, f"started again at round {value}, after {rounds} was reported"
            rounds = value
    return rounds, digest


def _whole_life(work: Any, seed: int, folder: Path) -> tuple[str, float]:
    """The digest of an undisturbed run, and how long it took."""
    begun = time.monotonic()
    with Victim(_PRELOAD, work, seed, folder) as victim:
        digest = ""
        while not digest:
            digest = _end_of(victim.wait(), 0)[1]
    return digest, time.monotonic() - begun


def run(step: Step) -> None:
    """One stream trained on, or served, first undisturbed, then with kills."""
    rng, counts = step.rng, step.counts
    seed = int(rng.integers(2**32))
    work = (train, serve)[step.number % 2]
    for name in ("whole", "killed"):
        (step.folder / name).mkdir()
    expected, seconds = _whole_life(work, seed, step.folder / "whole")
    rounds, digest, lives = 0, "", 0
    while not digest:
        lives += 1
        patient = lives > 6 or not step.tick()  # the last life is not disturbed
        with Victim(_PRELOAD, work, seed, step.folder / "killed") as victim:
            end = time.monotonic() + (1e9 if patient else random_wait(rng, 1.2 * seconds))
            while time.monotonic() < end and not digest:
                said = victim.wait() if patient else victim.said(max(0.0, end - time.monotonic()))
                rounds, digest = _end_of(said, rounds)
            rounds, late = _end_of(victim.kill(), rounds)
            digest = digest or late
            counts.add("kills")
    assert digest == expected, f"killed {lives - 1} times it ended as {digest}, expected {expected}"
    counts.add("recoveries", lives)
    counts.cover("model", Plan(seed).name)
