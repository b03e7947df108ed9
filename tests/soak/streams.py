"""Streams by a deadline, with everything that happens to an engine in between: callbacks, swap, rescale, save and load
in mid-stream, old edges that go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import livegnn as lg
from tests.soak.checks import check_end, verify
from tests.soak.options import cover, engine_options, family_model, graph_shape, make_engine
from tests.soak.slices import Step
from tests.soak.world import World

_HEADROOM = 2.0**14  # a stream must not leave the range: what it cuts into batches is its own choice


class Follower:
    """A callback that hears of every version once, in order, and of the vertices that have changed."""

    def __init__(self, engine: lg.Engine) -> None:
        self.engine, self.heard = engine, engine.version
        self.handle = engine.on_change(self._hear)
        self.fault = ""

    def _hear(self, changes: lg.Changes) -> None:
        if changes.version != self.heard + 1:
            self.fault = self.fault or f"heard of version {changes.version} after {self.heard}"
        self.heard = changes.version

    def check(self) -> None:
        """What an exception in a callback would have hidden."""
        assert not self.fault, self.fault
        assert self.heard == self.engine.version, f"heard of {self.heard} versions, got {self.engine.version}"


class Source:
    """Items of a stream: batches kept whole and single updates, in random turn; the world follows as they are made."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng, self.updates = world, rng, 0

    def items(self, count: int) -> Iterator[Any]:
        """So many of them."""
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.05 and self.world.shape.times:
                item: Any = lg.Updates()
                self.world.expire(item, int(np.quantile(self.world.edges.columns["time"], 0.05)))
            elif kind < 0.3:
                item = self.world.batch(self.rng, int(self.rng.integers(1, 100)))
            else:
                item = self._single()
            self.updates += len(item) if isinstance(item, lg.Updates) else 1
            yield item

    def _single(self) -> Any:
        world, rng = self.world, self.rng
        if rng.random() < 0.5:
            label = rng.choice(world.labels(), 1)
            row = rng.standard_normal((1, world.shape.width), dtype=np.float32)
            world.rows[label] = world.rounded(row)
            return "set_features", plain(world.ids(label)[0]), row[0]
        src, dst = world._new_pairs(rng, 1)
        if not len(src):  # a parallel edge of a simple graph
            return world.batch(rng, 1)
        columns = world.edges.random_columns(rng, 1, world.now)
        world.edges.add(src, dst, columns)
        given = {name: values[0] if name == "edge_attr" else values[0].item() for name, values in columns.items()}
        return "add_edge", plain(world.ids(src)[0]), plain(world.ids(dst)[0]), given


def plain(value: Any) -> Any:
    """An int or a str."""
    return value if isinstance(value, str) else int(value)


def nudged(model: lg.Model, rng: np.random.Generator) -> lg.Model:
    """The same network with other weights, as after a little more training."""
    structure, arrays = model.to_arrays()
    near = dict(arrays)
    for name, values in arrays.items():
        if values.dtype == np.float32:
            near[name] = (values * np.float32(rng.uniform(0.9, 1.1))).astype(np.float32)
    return lg.Model.from_arrays(structure, near)


def run(step: Step) -> None:
    """One engine, and the ones that are loaded from it."""
    rng, counts = step.rng, step.counts
    family, model = family_model(rng)
    options = engine_options(rng, model)
    shape = graph_shape(rng, model, int(rng.integers(10, 300)), int(rng.integers(1, 6)))
    shape = replace(shape, times=bool(rng.integers(2)))
    world = World(rng, shape)
    engine = make_engine(model, world.graph(), options)
    engine.rescale(headroom=_HEADROOM)
    cover(counts, family, options, shape)
    source = Source(world, rng)
    while step.tick():
        follower = Follower(engine)
        _stream(engine, source, rng, counts)
        follower.check()
        follower.handle.cancel()
        verify(engine, counts)
        chance = rng.random()
        if chance < 0.3:
            engine = _reload(engine, step, options)
        elif chance < 0.5:
            engine.rescale(headroom=_HEADROOM)
            counts.add("rescales")
        elif chance < 0.7:
            engine.swap(nudged(engine.model, rng))
            engine.rescale(headroom=_HEADROOM)
            counts.add("swaps")
        if step.ticks >= 30:
            break
    check_end(engine, world, counts, f"{family} {options} {shape}")
    engine.close()


def _stream(engine: lg.Engine, source: Source, rng: np.random.Generator, counts: Any) -> None:
    """A stretch of the stream; now and then it ends early, and the rest is applied by hand."""
    before, items = source.updates, source.items(int(rng.integers(5, 200)))
    listed: Any = list(items) if rng.integers(2) else items  # a sequence is read here, an iterable by a thread
    stop = int(rng.integers(1, 30)) if rng.random() < 0.3 else 10**9
    done = 0
    with engine.stream(listed, "3ms") as stream:
        for number, batch in enumerate(stream, start=1):
            done += batch.size
            assert stream.position == done, f"expected position {done}, got {stream.position}"
            counts.add("batches")
            if number == stop:
                break
    rest = stream.remaining()
    if listed is items:
        rest = [*_read_ahead(stream, rest), *items]
    else:  # the list's own rest has not been taken
        rest = listed[stream.item_count :]
    for item in rest:
        updates = item
        if not isinstance(item, lg.Updates):
            updates, (name, *given) = lg.Updates(), item
            named = given.pop() if isinstance(given[-1], dict) else {}
            getattr(updates, name)(*given, **named)
        engine.apply(updates)
        counts.add("batches")
    counts.add("updates", source.updates - before)


def _read_ahead(stream: Any, rest: list[Any]) -> list[Any]:
    """What was taken from an iterable and not applied, once the thread that reads it has ended."""
    for thread in threading.enumerate():
        if thread.name == "livegnn stream":
            thread.join()
    again = stream.remaining()
    return again if len(again) > len(rest) else rest


def _reload(engine: lg.Engine, step: Step, options: dict[str, Any]) -> lg.Engine:
    """The engine from its file, with the same digest, version and rows."""
    path = step.folder / "engine.livegnn"
    engine.save(path)
    loaded = lg.Engine.load(path, threads=options["threads"])
    ids = engine.graph.vertices()
    assert loaded.version == engine.version, f"expected version {engine.version}, got {loaded.version}"
    assert loaded.state_digest() == engine.state_digest(), "a loaded engine has another digest"
    assert loaded.embeddings(ids).tobytes() == engine.embeddings(ids).tobytes(), "a loaded engine has other rows"
    engine.close()
    step.counts.add("saves and loads")
    return loaded
