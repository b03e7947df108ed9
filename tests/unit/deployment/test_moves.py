"""Rows that a batch moved, by ids: against rows read before and after it, whatever the slots do."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment.config import ChangesConfig
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.hub import Hub
from livegnn.errors import LiveGnnError

FEW, MOST = 4, 20  # vertices
NAMES = {"slots": lambda k: k, "integers": lambda k: 10**15 + k, "texts": lambda k: f"v{k}"}


def engine_of(rng, ids, weight=1.0):
    places = rng.integers(0, 12, (2, 30)).tolist()
    given = {} if ids == "slots" else {"ids": [NAMES[ids](k) for k in range(12)]}
    src, dst = ([NAMES[ids](k) for k in each] for each in places)
    graph = lg.Graph(rng.normal(size=(12, 4)).astype(np.float32), src, dst, **given)
    layers = [
        lg.layers.GCN(weight * rng.normal(size=(5, 4)), activation="relu"),
        lg.layers.GCN(rng.normal(size=(3, 5))),
    ]
    return lg.Engine(lg.Model(layers), graph)


def batch_of(rng, graph, name):
    updates, there = lg.Updates(), set(graph.vertices().tolist())
    for _ in range(rng.integers(1, 7)):
        known, kind = sorted(there), rng.integers(4)
        one, other = rng.choice(len(known), 2).tolist()
        if kind == 0 and len(there) > FEW:
            updates.remove_vertex(known[one])
            there.discard(known[one])
        elif kind == 1 and len(there) < MOST:
            new = str if isinstance(known[0], str) else int
            free = sorted({name(k) for k in range(MOST)} - there)
            vertex = new(rng.choice(free))
            updates.add_vertex(vertex, rng.normal(size=4))
            there.add(vertex)
        elif kind == 2:
            updates.add_edge(known[one], known[other])
        else:
            updates.set_features(known[one], rng.normal(size=4))
    if rng.integers(5) == 0:  # mostly no edge: the batch is refused
        updates.remove_edge(known[one], known[other])
    return updates


def rows_of(engine):
    live = engine.graph.vertices().tolist()
    return dict(zip(live, engine.embeddings(live).copy(), strict=True))


def assert_moves(follow, version, before, after):
    span = follow.since(version)
    assert span.floor <= version, span.reason
    found = {}
    for one in span.versions:
        (part,) = one.parts.values()
        rows = zip(part.is_new.tolist(), part.is_gone.tolist(), part.before, part.after, strict=True)
        found |= zip(part.ids.tolist(), rows, strict=True)
    for vertex in before.keys() | after.keys():
        was, now = before.get(vertex), after.get(vertex)
        if was is None or now is None or not np.array_equal(was, now):
            assert vertex in found
        if vertex in found:
            is_new, is_gone, old, new = found[vertex]
            assert (is_new, is_gone) == (was is None, now is None)
            np.testing.assert_array_equal(old, np.zeros(3) if was is None else was)
            np.testing.assert_array_equal(new, np.zeros(3) if now is None else now)


@pytest.mark.parametrize("ids", NAMES)
def test_moves_are_the_rows_before_and_after(ids):
    refused = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        engine = engine_of(rng, ids)
        follow = Hub({"e": engine}, lambda name: "m", ChangesConfig()).follow(ChangeFilter(engine="e"))
        for _ in range(40):
            updates, before, version = batch_of(rng, engine.graph, NAMES[ids]), rows_of(engine), engine.version
            try:
                if rng.integers(3) == 0:
                    with engine.what_if(updates):
                        pass
                engine.apply(updates)
            except LiveGnnError:
                refused += 1
            assert_moves(follow, version, before, rows_of(engine))
    assert refused > 5


def test_an_id_that_takes_over_a_slot_with_the_same_row_is_new():
    engine = engine_of(np.random.default_rng(0), "texts", weight=0.0)  # all rows are zeros
    follow = Hub({"e": engine}, lambda name: "m", ChangesConfig()).follow(ChangeFilter(engine="e"))
    before, updates = rows_of(engine), lg.Updates()
    for gone, new in (("v3", "w"), ("v5", "v5")):
        updates.remove_vertex(gone)
        updates.add_vertex(new, np.ones(4))
    engine.apply(updates)
    assert_moves(follow, 0, before, rows_of(engine))
    (part,) = follow.since(0).versions[0].parts.values()
    assert {"v3", "w"} <= set(part.ids.tolist())
