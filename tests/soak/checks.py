"""What holds for an engine after any history, against a world that was kept apart from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import livegnn as lg
from livegnn.testing.oracle import check_rows, nudged_outputs, reference_outputs
from tests.soak.counts import Counts
from tests.soak.world import World

Result = TypeVar("Result")

REFERENCE_EDGES_MAX = 6000  # the reference is slow and obvious


def apply_with_room(engine: lg.Engine, updates: lg.Updates, counts: Counts) -> int:
    """As engine.apply; the version. A batch out of range changes nothing, and is taken once there is room."""
    digest = engine.graph.digest()

    def apply() -> int:
        try:
            return engine.apply(updates).version
        except lg.errors.RangeOverflow:
            assert engine.graph.digest() == digest, "a refused batch has changed the graph"
            raise

    version = with_room(engine, apply, counts)
    counts.add("batches")
    counts.add("updates", len(updates))
    return version


def with_room(engine: lg.Engine, call: Callable[[], Result], counts: Counts) -> Result:
    """What a call returns; where a message leaves the fixed-point range, with more and more room for it."""
    for headroom in (2.0**12, 2.0**16, 2.0**20, None):
        try:
            return call()
        except lg.errors.RangeOverflow:
            if headroom is None:
                raise
            engine.rescale(headroom=headroom)
            counts.add("rescales")
    raise AssertionError("unreachable")


def verify(engine: lg.Engine, counts: Counts) -> None:
    """engine.verify(), counted."""
    with_room(engine, engine.verify, counts)
    counts.add("verifications")


def check_end(engine: lg.Engine, world: World, counts: Counts, note: str) -> None:
    """Vertices, state, a fresh engine on a graph made from the world, and the float64 reference all agree."""
    labels = world.labels()
    ids = world.ids(labels)
    got_ids = engine.graph.vertices()
    assert sorted(got_ids.tolist()) == sorted(np.asarray(ids).tolist()), f"{note}: other live vertices"
    verify(engine, counts)
    got = engine.embeddings(ids)
    check_fresh(engine, world, got, note)
    counts.add("fresh engines")
    if not world.shape.undirected and len(world.edges) <= REFERENCE_EDGES_MAX:
        check_reference(engine, world, got, note)
        counts.add("references")


def check_fresh(engine: lg.Engine, world: World, got: Any, note: str) -> None:
    """The graph equals one made from the world; an engine on that one gives the same bits, but for models whose sums
    follow the order of edge ids, which must only be near.
    """
    graph = world.graph()
    if world.names is None:
        assert engine.graph.digest() == graph.digest(), f"{note}: another graph than the one that the updates make"
    fresh = lg.Engine(engine.model, graph, engine.strategy, scales=engine.scales, threads=1)
    expected = fresh.embeddings(world.ids(world.labels()))
    if engine.model.uses_edges:
        size = np.abs(expected).max(axis=1, keepdims=True, initial=1.0)
        assert (np.abs(got - expected) <= 1e-3 * size).all(), f"{note}: outputs far from those of a fresh engine"
        return
    assert got.tobytes() == expected.tobytes(), f"{note}: outputs differ from those of a fresh engine"
    if world.names is None:
        assert engine.state_digest() == fresh.state_digest(), f"{note}: another digest than that of a fresh engine"


def check_reference(engine: lg.Engine, world: World, got: Any, note: str) -> None:
    """Outputs are as near to float64 as plain float32 is."""
    labels, mirror = world.labels(), world.mirror()
    with np.errstate(all="ignore"):
        truth = reference_outputs(engine.model, mirror)[labels]
        float32 = reference_outputs(engine.model, mirror, np.float32)[labels]
        check_rows(
            got,
            truth,
            float32,
            note,
            on_edges=engine.model.uses_edges,
            more_float32=lambda: [rows[labels] for rows in nudged_outputs(engine.model, mirror)],
        )
