"""Readers and what_if in threads, a writer at the same time: every read is of one whole version, one that was there.

The writer notes a hash of the rows of the kept vertices after each version; a reader notes the versions before and
after its read, and the hash of what it read. They are compared when all have ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import livegnn as lg
from livegnn.errors import RangeOverflow, UpdateError
from tests.soak.checks import apply_with_room, check_end, verify, with_room
from tests.soak.counts import Counts
from tests.soak.options import cover, engine_options, family_model, graph_shape, make_engine
from tests.soak.slices import Step
from tests.soak.world import World

_KEPT = 16  # vertices that never go
_READS_MAX = 20_000  # of one thread in one step


class Threads:
    """Functions called again and again in threads until the block ends; what one raises is raised then."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self._over, self.failures = threading.Event(), list[BaseException]()
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def _run(self, work: Callable[[], object]) -> None:
        try:
            while not self._over.is_set():
                work()
        except BaseException as failure:  # raised in the main thread
            self.failures.append(failure)

    def __enter__(self) -> Threads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]


class Watched:
    """An engine, what its rows were at each version, and what readers saw."""

    def __init__(self, engine: lg.Engine, world: World, counts: Counts) -> None:
        self.engine, self.ids, self.counts = engine, world.ids(np.arange(_KEPT)), counts
        self.rows: dict[int, int] = {}
        self.seen: list[tuple[int, int, int]] = []

    def note(self, version: int) -> None:
        """By the writer, after a batch. (During a what_if, engine.version may be the supposed one.)"""
        rows = with_room(self.engine, lambda: self.engine.embeddings(self.ids), self.counts)
        self.rows[version] = hash(rows.tobytes())

    def read(self) -> None:
        """By a reader."""
        if len(self.seen) >= _READS_MAX:
            return
        first = self.engine.version
        try:
            got = hash(self.engine.embeddings(self.ids).tobytes())
        except RangeOverflow:  # on demand: the writer makes room
            return
        self.seen.append((first, self.engine.version, got))

    def compare(self, note: str) -> None:
        """Each read is what was there at one of its versions. A batch counts from its publication, or just before."""
        for first, last, got in self.seen:
            there = {self.rows[version] for version in range(first - 1, last + 2) if version in self.rows}
            assert got in there, f"a read between versions {first} and {last} gave rows of no version: {note}"


def supposing(engine: lg.Engine, world: World, rng: np.random.Generator, counts: Counts) -> None:
    """One what_if: its rows stay the same while it lasts."""
    kept, columns = np.arange(_KEPT), world.edges.random_columns(rng, 20, 100)
    updates = lg.Updates()
    src, dst = rng.choice(kept, (2, 20))
    updates.add_edges(world.ids(src), world.ids(dst), **columns)
    updates.remove_edges(world.ids(dst), world.ids(src), missing="ignore")
    updates.set_features(world.ids(kept), rng.standard_normal((_KEPT, world.shape.width), dtype=np.float32))
    try:
        with engine.what_if(updates) as view:
            first, again = (view.embeddings(world.ids(kept)).tobytes() for _ in range(2))
    except UpdateError:  # a parallel edge of a simple graph, a message out of range
        return
    assert first == again, "a what_if showed two versions"
    counts.add("what_ifs")


def run(step: Step) -> None:
    """One engine, two readers, one thread of what_ifs."""
    rng, counts = step.rng, step.counts
    family, model = family_model(rng)
    options = engine_options(rng, model)
    shape = graph_shape(rng, model, int(rng.integers(2 * _KEPT, 400)), int(rng.integers(1, 6)))
    shape = replace(shape, kept=_KEPT)
    world = World(rng, shape)
    engine = make_engine(model, world.graph(), options)
    cover(counts, family, options, shape)
    watched = Watched(engine, world, counts)
    watched.note(engine.version)
    fixed = world.copy()  # what threads read of the world
    other = np.random.default_rng(step.number)
    rescales = counts.totals["rescales"]
    with Threads(watched.read, watched.read, lambda: supposing(engine, fixed, other, counts)) as threads:
        for _ in range(int(rng.integers(50, 400))):
            if not step.tick() or threads.failures:
                break
            version = apply_with_room(engine, world.batch(rng, int(rng.integers(1, 300))), counts)
            watched.note(version)
            if rng.random() < 0.05:
                verify(engine, counts)
    counts.add("reads", len(watched.seen))
    if counts.totals["rescales"] == rescales:  # which changes rows within a version
        watched.compare(f"{family} {options} {shape}")
    check_end(engine, world, counts, f"{family} {options} {shape}")
    engine.close()
