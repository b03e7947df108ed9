"""kill -9: an engine with a log, snapshots and a pre-sampler dies at any moment, starts again and catches up, until it
has all batches. What it then is must be what a process that was never disturbed has, bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.log import UpdateLog, open_log, replay
from tests.soak.options import engine_options, family_model, graph_shape, make_engine
from tests.soak.slices import Step
from tests.soak.victims import Victim, random_wait
from tests.soak.world import World

_PRELOAD = ["tests.soak.crash", "pyarrow"]
_QUERY_SEED = 11


class History:
    """A model, a graph, and batch k of them, as functions of a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.seed = seed
        self.family, self.model = family_model(rng)
        self.options = engine_options(rng, self.model)
        self.options.pop("memory_limit", None)
        shape = graph_shape(rng, self.model, int(rng.integers(10, 300)), int(rng.integers(1, 6)))
        self.world = World(rng, replace(shape, undirected=False))
        self.batches = int(rng.integers(30, 300))
        self.snapshot_every = int(rng.integers(5, 60))
        self.synchronous = ("FULL", "NORMAL")[int(rng.integers(2))]
        self._next = 0
        self.start = self.world.copy()

    def graph(self) -> lg.Graph:
        """As it was before the first batch."""
        return self.start.graph()

    def engine(self, graph: lg.Graph) -> lg.Engine:
        """With room for whatever comes, before the log begins."""
        engine = make_engine(self.model, graph, self.options)
        engine.rescale(headroom=2.0**14)
        return engine

    def sampler(self, graph: lg.Graph) -> lg.PreSampler:
        """Samples are a function of the graph, edge ids included."""
        query = lg.query().out().sample(3).in_().sample(2, by="random")
        return lg.PreSampler(graph, query, seed=_QUERY_SEED, threads=1)

    def skip(self, count: int) -> None:
        """Batches before this one are drawn and not used."""
        while self._next < count:
            self.batch()

    def batch(self) -> lg.Updates:
        """The next one."""
        rng = np.random.default_rng([self.seed, self._next])
        self._next += 1
        return self.world.batch(rng, int(rng.integers(1, 200)))

    def url(self, folder: Path) -> str:
        """Of the log."""
        return f"sqlite:{folder}/history.db"


def state(engine: lg.Engine, sampler: lg.PreSampler) -> tuple[int, str, str]:
    """Version, digest of the engine with its rows, digest of the samples."""
    rows = engine.embeddings(engine.graph.vertices()).tobytes()
    return engine.version, engine.state_digest() + hashlib.sha256(rows).hexdigest(), f"{sampler.digest():x}"


def live(connection: Connection, seed: int, folder: Path) -> None:
    """The victim: recovers what is there, says what it is, and goes on."""
    history = History(seed)
    snapshot = folder / "engine.livegnn"
    engine = lg.Engine.load(snapshot) if snapshot.exists() else history.engine(history.graph())
    sampler = history.sampler(engine.graph)
    with UpdateLog(open_log(history.url(folder), synchronous=history.synchronous)) as log:
        attached = log.attach(engine.graph)
        attached.catch_up()
        connection.send(("recovered", state(engine, sampler)))
        history.skip(engine.version)
        while engine.version < history.batches:
            engine.apply(history.batch())
            connection.send(("applied", engine.version))
            if engine.version % history.snapshot_every == 0:
                engine.save(snapshot)
        sampler.verify()
        engine.verify()
        connection.send(("ended", state(engine, sampler)))
        time.sleep(3600)  # until it is killed


class Undisturbed:
    """The same history in this process, without a log."""

    def __init__(self, seed: int) -> None:
        self.history = History(seed)
        self.engine = self.history.engine(self.history.graph())
        self.sampler = self.history.sampler(self.engine.graph)

    def at(self, version: int) -> tuple[int, str, str]:
        """Its state at a version; versions only grow."""
        while self.engine.version < version:
            self.engine.apply(self.history.batch())
        return state(self.engine, self.sampler)


def run(step: Step) -> None:
    """One history, killed again and again."""
    rng, counts = step.rng, step.counts
    seed = int(rng.integers(2**32))
    undisturbed, acknowledged, ended = Undisturbed(seed), 0, False
    lives = 0
    while not ended:
        lives += 1
        patient = lives > 12 or not step.tick()  # the last life is not disturbed
        with Victim(_PRELOAD, live, seed, step.folder) as victim:
            end = time.monotonic() + (1e9 if patient else random_wait(rng, 0.8))
            while time.monotonic() < end and not ended:
                said = victim.wait() if patient else victim.said(max(0.0, end - time.monotonic()))
                acknowledged, ended = _check(said, undisturbed, acknowledged)
            acknowledged, late = _check(victim.kill(), undisturbed, acknowledged)
            ended = ended or late
            counts.add("kills")
    counts.add("recoveries", lives)
    _check_log(step, seed, undisturbed)
    counts.cover("family", undisturbed.history.family)


def _check(said: list[Any], undisturbed: Undisturbed, acknowledged: int) -> tuple[int, bool]:
    """What a victim says of itself is what the undisturbed process says; nothing acknowledged is lost."""
    ended = False
    for kind, value in said:
        if kind == "applied":
            acknowledged = max(acknowledged, value)
            continue
        assert value[0] >= acknowledged, f"{kind} at version {value[0]}, after {acknowledged} was acknowledged"
        expected = undisturbed.at(value[0])
        assert tuple(value) == expected, f"{kind} as {value}, expected {expected}"
        ended = ended or kind == "ended"
    return acknowledged, ended


def _check_log(step: Step, seed: int, undisturbed: Undisturbed) -> None:
    """The log alone gives the same, and each batch is in it once."""
    history = History(seed)
    engine = history.engine(history.graph())
    sampler = history.sampler(engine.graph)
    with UpdateLog(open_log(history.url(step.folder))) as log:
        assert log.tail == history.batches, f"expected {history.batches} entries in the log, got {log.tail}"
        replay(log, engine.graph)
        step.counts.add("updates", sum(len(entry.updates) for entry in log.read()))
        step.counts.add("batches", log.tail)
    got, expected = state(engine, sampler), undisturbed.at(history.batches)
    assert got == expected, f"replayed as {got}, expected {expected}"
