"""Vertex types: the model of the property machine, which has every way along typed edges, under large batches."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegnn as lg
from livegnn.reference.evaluate import evaluate
from livegnn.testing.oracle import check_rows
from tests.property.test_hetero_machine import SCALES, TRIPLES, WIDTHS, model
from tests.soak.checks import apply_with_room, verify, with_room
from tests.soak.options import PATHS, one_of
from tests.soak.slices import Step
from tests.soak.world import Edges, Shape

_TYPES = list(WIDTHS)


class TypedWorld:
    """Vertices by type and edges by edge type, as arrays; rows hold small numbers, so that fixed scales will do."""

    def __init__(self, rng: np.random.Generator, vertices: int, edges: int) -> None:
        self.rng, self.vertices = rng, vertices
        self.alive = {name: np.ones(vertices, bool) for name in _TYPES}
        self.rows = {name: self._new_rows(name, vertices) for name in _TYPES}
        self.edges = {triple: Edges(Shape(1, edges=edges)) for triple in TRIPLES}
        for triple, mine in self.edges.items():
            mine.add(*self._pairs(triple, edges), {})

    def graph(self) -> lg.Graph:
        """A graph of the first vertices; made before any of them goes."""
        src = {triple: mine.src for triple, mine in self.edges.items()}
        return lg.Graph(self.rows, src, {triple: mine.dst for triple, mine in self.edges.items()})

    def batch(self, size: int) -> lg.Updates:
        """Edges of every type come and go, rows change, vertices of every type come and go."""
        updates = lg.Updates()
        for place in self.rng.permutation(len(TRIPLES)):
            triple = TRIPLES[place]
            mine, count = self.edges[triple], int(self.rng.integers(1, size // len(TRIPLES) + 2))
            if self.rng.integers(2) and len(mine) > mine.shape.edges // 2:
                rows = self.rng.choice(len(mine), min(count, len(mine) // 2), replace=False)
                updates.remove_edges(mine.src[rows], mine.dst[rows], edge_type=triple)
                kept = np.ones(len(mine), bool)
                kept[mine.newest(mine.keys(mine.src[rows], mine.dst[rows]))] = False
                mine.keep(kept)
            elif len(mine) < 2 * mine.shape.edges:
                src, dst = self._pairs(triple, count)
                updates.add_edges(src, dst, edge_type=triple)
                mine.add(src, dst, {})
        self._change_vertices(updates)
        return updates

    def _change_vertices(self, updates: lg.Updates) -> None:
        name = str(self.rng.choice(_TYPES))
        live, free = np.flatnonzero(self.alive[name]), np.flatnonzero(~self.alive[name])
        moved = self.rng.choice(live, len(live) // 10 + 1, replace=False)
        self.rows[name][moved] = self._new_rows(name, len(moved))
        updates.set_features(moved, self.rows[name][moved], vertex_type=name)
        if len(free):
            self.alive[name][free] = True
            self.rows[name][free] = self._new_rows(name, len(free))
            updates.add_vertices(free, self.rows[name][free], vertex_type=name)
        elif self.rng.integers(2):
            gone = self.rng.choice(live, 2, replace=False)
            self.alive[name][gone] = False
            updates.remove_vertices(gone, vertex_type=name)
            for (src, _, dst), mine in self.edges.items():
                lost = (src == name) & np.isin(mine.src, gone) | (dst == name) & np.isin(mine.dst, gone)
                mine.keep(~lost)

    def _new_rows(self, name: str, count: int) -> Any:
        return (self.rng.integers(-8, 9, (count, WIDTHS[name])) / 8).astype(np.float32)

    def _pairs(self, triple: tuple[str, str, str], count: int) -> tuple[Any, Any]:
        src, dst = (np.flatnonzero(self.alive[name]) for name in (triple[0], triple[2]))
        return self.rng.choice(src, count), self.rng.choice(dst, count)

    def truth(self, engine: lg.Engine, dtype: Any) -> dict[str, Any]:
        """The reference's rows of the live vertices by type."""
        start = dict(zip(_TYPES, np.arange(len(_TYPES)) * self.vertices, strict=True))
        features = np.zeros((len(_TYPES) * self.vertices, max(WIDTHS.values())), np.float32)
        codes = np.repeat(np.arange(len(_TYPES), dtype=np.int32), self.vertices)
        for name, rows in self.rows.items():
            features[start[name] :][: self.vertices, : WIDTHS[name]] = rows
        src = np.concatenate([mine.src + start[triple[0]] for triple, mine in self.edges.items()])
        dst = np.concatenate([mine.dst + start[triple[2]] for triple, mine in self.edges.items()])
        types = np.repeat(np.arange(len(TRIPLES), dtype=np.int32), [len(mine) for mine in self.edges.values()])
        spec, widths = engine.model.to_arrays(), engine.model.output_widths
        y = evaluate(spec, features, src, dst, dtype=dtype, types=types, vertex_types=codes)
        rows = {name: y[start[name] :][: self.vertices, : widths[name]] for name in _TYPES}
        return {name: rows[name][self.alive[name]] for name in _TYPES}


def run(step: Step) -> None:
    """One life of one engine."""
    rng, counts = step.rng, step.counts
    world = TypedWorld(rng, int(rng.integers(5, 300)), int(rng.integers(5, 1500)))
    options = {"threads": int(rng.integers(1, 3)), "path": one_of(rng, PATHS, usual=0.5)}
    engine = lg.Engine(model(), world.graph(), scales=SCALES, **options)
    counts.cover("family", "hetero")
    counts.cover("option", *(f"{name}={value}" for name, value in options.items()))
    size_max = int(10 ** rng.uniform(1, 3.7))
    for _ in range(int(rng.integers(20, 300))):
        if not step.tick():
            break
        updates = world.batch(int(rng.integers(1, size_max)))
        supposed = rng.random() < 0.1
        if supposed:
            ids = {name: np.flatnonzero(world.alive[name]) for name in _TYPES}
            with engine.what_if(updates) as view:
                shown = {name: view.embeddings(each, vertex_type=name).tobytes() for name, each in ids.items()}
            counts.add("what_ifs")
        apply_with_room(engine, updates, counts)
        if supposed:
            for name, each in ids.items():
                assert engine.embeddings(each, vertex_type=name).tobytes() == shown[name], "a what_if showed other rows"
        if rng.random() < 0.05:
            verify(engine, counts)
    verify(engine, counts)
    truth, float32 = world.truth(engine, np.float64), world.truth(engine, np.float32)
    for name in _TYPES:
        ids = np.flatnonzero(world.alive[name])
        got = with_room(engine, lambda ids=ids, name=name: engine.embeddings(ids, vertex_type=name), counts)
        assert sorted(engine.graph.vertices(name).tolist()) == ids.tolist(), f"{name}: other live vertices"
        check_rows(got, truth[name], float32[name], name, on_edges=True)
    counts.add("references")
