"""Volume: large batches of every kind through every family and option, compared at the end with a fresh engine on a
graph that was made from the arrays alone, and with the reference.
"""

from __future__ import annotations

from typing import Any

import livegnn as lg
from tests.soak.checks import apply_with_room, check_end, verify, with_room
from tests.soak.options import cover, engine_options, family_model, graph_shape, make_engine
from tests.soak.slices import Step
from tests.soak.world import World

_SLOW = ("khop", "full", "affected")  # strategies whose batches cost as much as the graph


def run(step: Step) -> None:
    """One life of one engine."""
    rng, counts = step.rng, step.counts
    family, model = family_model(rng)
    options = engine_options(rng, model)
    slow = options["strategy"] in _SLOW or model.uses_edges
    vertices = int(rng.integers(20, 300 if slow else 1500))
    shape = graph_shape(rng, model, vertices, int(rng.integers(1, 9)))
    world = World(rng, shape)
    engine = make_engine(model, world.graph(), options)
    cover(counts, family, options, shape)
    note = f"{family} {options} {shape}"
    size_max = int(10 ** rng.uniform(2, 3 if rng.random() < 0.2 else 4.3))
    for _ in range(int(rng.integers(20, 400))):
        if not step.tick():
            break
        size = int(rng.integers(1, size_max + 1))
        if rng.random() < 0.04:
            suppose(engine, world, rng, size, counts, note)
        try:
            apply_with_room(engine, world.batch(rng, size), counts)
        except lg.errors.RangeOverflow:  # beyond any headroom: the batch is refused, and the world is ahead
            counts.add("steps out of range")
            return engine.close()
        if rng.random() < 0.2:
            ids = world.ids(rng.choice(world.labels(), 10))
            with_room(engine, lambda: engine.embeddings(ids), counts)  # noqa: B023 called at once
            counts.add("reads")
        if rng.random() < 0.05:
            verify(engine, counts)
    check_end(engine, world, counts, note)
    engine.close()


def suppose(engine: lg.Engine, world: World, rng: Any, size: int, counts: Any, note: str) -> None:
    """What a view shows is what the same batch brings; leaving it puts every bit back."""
    other = world.copy()
    updates = other.batch(rng, size)
    ids = other.ids(other.labels())
    digest = with_room(engine, engine.state_digest, counts)
    try:
        with engine.what_if(updates) as view:
            shown = view.embeddings(ids)
    except lg.errors.RangeOverflow:
        assert engine.state_digest() == digest, f"{note}: a refused what_if has changed the state"
        return
    assert engine.state_digest() == digest, f"{note}: a what_if has changed the state"
    counts.add("what_ifs")
    if rng.random() < 0.5:
        apply_with_room(engine, updates, counts)
        assert engine.embeddings(ids).tobytes() == shown.tobytes(), f"{note}: a what_if showed other rows"
        world.__dict__.update(other.__dict__)
