"""Temporal samples of a graph whose edges come late, go, expire and move to files, against their definition on a twin
that keeps everything in memory; pins against copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import livegnn as lg
from livegnn.errors import EdgeOffloaded
from livegnn.temporal import TemporalSampler
from tests.soak.options import one_of
from tests.soak.slices import Step
from tests.soak.world import Rng, Shape, World
from tests.unit.temporal.past import FIELDS, check, edges_of

_TARGETS = 6


def random_sampler(rng: Rng, graph: lg.Graph) -> TemporalSampler:
    """Any options that go together."""
    strategy = one_of(rng, ("recent", "uniform"))
    window = one_of(rng, (None, 3, 20, 200))
    return TemporalSampler(
        graph,
        [int(fanout) for fanout in rng.choice([1, 2, 4, -1], int(rng.integers(1, 3)), p=[0.3, 0.3, 0.3, 0.1])],
        strategy,
        bool(rng.integers(2)),
        window,
        int(rng.integers(2**32)),
        int(rng.integers(1, 3)),
        prop_time=bool(rng.integers(2)),
        replace=strategy == "uniform" and bool(rng.integers(2)),
        unique=bool(rng.integers(2)),
        snapshots=1 if window is None else int(rng.integers(1, 3)),
    )


def run(step: Step) -> None:
    """One graph and its twin."""
    rng, counts = step.rng, step.counts
    vertices = int(rng.integers(4, 200))
    undirected = bool(rng.integers(2))
    world = World(rng, Shape(2, vertices, vertices * int(rng.integers(1, 8)), times=True, undirected=undirected))
    graph, twin = world.graph(), world.graph()
    for number in range(int(rng.integers(5, 60))):
        if not step.tick():
            break
        updates = world.batch(rng, int(10 ** rng.uniform(0, 2.5)))
        if rng.random() < 0.1:
            world.expire(updates, world.now - 25)
        _apply(graph, twin, updates, counts)
        if rng.random() < 0.2:
            graph.offload(world.now - int(rng.integers(5, 40)), step.folder / f"{number}.parquet")
            counts.add("offloads")
        elif rng.random() < 0.2 and graph.offloaded.count:
            graph.reload(since=int(world.now - 30))
        assert graph.digest() == twin.digest(), "a graph with edges in files has another digest than its twin"
        _sample(rng, world, graph, twin, counts)
        if rng.random() < 0.2:
            _pin(rng, world, graph, twin, counts)
    graph.reload()
    assert graph.digest() == twin.digest(), "a reloaded graph has another digest than its twin"
    edges, theirs = graph.edges(), twin.edges()
    for name in edges:
        np.testing.assert_array_equal(edges[name], theirs[name])


def _apply(graph: lg.Graph, twin: lg.Graph, updates: lg.Updates, counts: Any) -> None:
    """To both; a batch that needs an edge in a file is taken after a reload."""
    digest = graph.digest()
    try:
        graph.apply(updates)
    except EdgeOffloaded:
        assert graph.digest() == digest, "a refused batch has changed the graph"
        graph.reload()
        graph.apply(updates)
    twin.apply(updates)
    counts.add("batches", 2)
    counts.add("updates", 2 * len(updates))


def _targets(rng: Rng, world: World) -> tuple[Any, Any]:
    return rng.choice(world.labels(), _TARGETS), rng.integers(world.now - 60, world.now + 2, _TARGETS)


def _sample(rng: Rng, world: World, graph: lg.Graph, twin: lg.Graph, counts: Any) -> None:
    """As defined on the twin's edges, or refused because of a file, and then right after a reload."""
    targets = _targets(rng, world)
    sampler = random_sampler(rng, graph)
    try:
        check(sampler, *targets, edges_of(twin))
    except EdgeOffloaded:
        graph.reload()
        check(sampler, *targets, edges_of(twin))
    counts.add("samples", _TARGETS)


def _pin(rng: Rng, world: World, graph: lg.Graph, twin: lg.Graph, counts: Any) -> None:
    """A pinned version samples as it was, whatever is applied meanwhile."""
    graph.reload()
    sampler = random_sampler(rng, graph)
    with sampler.pin() as pinned:
        targets = _targets(rng, world)
        call = sampler.calls
        before = sampler.sample_snapshots(*targets)
        for _ in range(int(rng.integers(1, 4))):
            _apply(graph, twin, world.batch(rng, 30), counts)
        sampler.calls = call
        after = pinned.sample_snapshots(*targets)
    for mine, theirs in zip(after, before, strict=True):
        for got, want in zip(mine, theirs, strict=True):
            for name in FIELDS:
                np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    counts.add("samples", 2 * _TARGETS)
