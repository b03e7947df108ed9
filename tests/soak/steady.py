"""Steady: one engine with a log, a pre-sampler, a callback and what_ifs on a graph that stays as large as it is, for a
whole slice. Memory at rest must not grow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import livegnn as lg
from livegnn.log import UpdateLog, open_log
from tests.soak.checks import apply_with_room, verify, with_room
from tests.soak.options import cover, engine_options, family_model, graph_shape, make_engine
from tests.soak.slices import Step
from tests.soak.streams import Follower
from tests.soak.world import World

_TICKS_PER_REST = 25


def run(step: Step) -> None:
    """One life for the whole slice."""
    rng, counts = step.rng, step.counts
    family, model = family_model(rng)
    options = engine_options(rng, model)
    shape = replace(graph_shape(rng, model, 400, 4), kept=16)
    world = World(rng, shape)
    engine = make_engine(model, world.graph(), options)
    cover(counts, family, options, shape)
    kept = world.ids(np.arange(16))
    sampler = lg.PreSampler(engine.graph, lg.query().out().sample(3).out().sample(2), threads=1)
    with UpdateLog(open_log(f"sqlite:{step.folder}/history.db", synchronous="NORMAL")) as log:
        log.attach(engine.graph, at=0)
        while step.tick():
            follower = Follower(engine)
            for _ in range(4):
                apply_with_room(engine, world.batch(rng, int(rng.integers(1, 800))), counts)
            other = world.copy()
            try:
                with engine.what_if(other.batch(rng, 50)) as view:
                    view.embeddings(kept)
                counts.add("what_ifs")
            except lg.errors.RangeOverflow:
                pass
            with_room(engine, lambda: engine.embeddings(kept), counts)
            sampler.sample(kept)
            counts.add("reads")
            counts.add("samples", len(kept))
            follower.check()
            follower.handle.cancel()
            if step.ticks % _TICKS_PER_REST == 0:
                verify(engine, counts)
                sampler.verify()
                del other
                step.rest()
    sampler.close()
    engine.close()
