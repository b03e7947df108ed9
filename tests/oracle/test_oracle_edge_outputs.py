"""Models with one row per edge: rows of edges, and which of them a batch changes, against runs from scratch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.models import edges, ir
from livegnn.models.messages import linear
from livegnn.models.model import Model
from livegnn.testing import check_edges, random_batch, random_graph, reference_edges
from livegnn.testing.edge_models import random_weights

WIDTH, ATTRIBUTES, TYPES = 5, 3, 3


def _both(x: ir.Value, more: ir.Value | None) -> ir.Value:
    ends = (edges.Source(x), edges.Target(x))
    return ir.Concat(ends if more is None else (*ends, more))


def _mlp(rng: np.random.Generator, x: ir.Value, hidden: int, out: int) -> ir.Value:
    """Two layers on edges, the first of them taken apart as the import does."""
    first = linear(x, random_weights(rng, hidden, x.width), rng.standard_normal(hidden).astype(np.float32))
    return ir.Linear(ir.Activation(first, "relu"), random_weights(rng, out, hidden))


def updated(rng: np.random.Generator) -> Model:
    """GINE with updates of the edges' rows between layers, and a classifier of edges: a money-laundering model."""
    x: ir.Value = ir.Linear(ir.Input(WIDTH), random_weights(rng, 6, WIDTH))
    e: ir.Value = ir.Linear(edges.EdgeAttribute(ATTRIBUTES), random_weights(rng, 6, ATTRIBUTES))
    for _ in range(2):
        message = ir.Activation(ir.Combine(((1.0, edges.Source(x)), (1.0, e))), "relu")
        total = ir.Combine(((1.0, edges.Gather(message)), (1.0, x)))
        x = ir.Activation(ir.Linear(total, random_weights(rng, 6, 6)), "relu")
        e = ir.Combine(((1.0, e), (0.5, _mlp(rng, _both(x, e), 6, 6))))
    return Model.from_edges(_mlp(rng, ir.Concat((_both(ir.Activation(x, "relu"), None), e)), 4, 2))


def plain(rng: np.random.Generator) -> Model:
    """Rows of the ends alone, of different widths at source and target."""
    x = ir.Activation(
        ir.Propagate(ir.Linear(ir.Input(WIDTH), random_weights(rng, 4, WIDTH)), "gcn", self_loops=True), "relu"
    )
    y = ir.Propagate(x, "mean")
    return Model.from_edges(ir.Concat((edges.Source(x), edges.Target(ir.Concat((y, x))))))


def weighted(rng: np.random.Generator) -> Model:
    """Reads the weight of the edge itself, and sums with weights."""
    x = ir.Propagate(ir.Linear(ir.Input(WIDTH), random_weights(rng, 4, WIDTH)), weighted=True)
    both = ir.Combine(((1.0, edges.Source(x)), (-1.0, edges.Target(x))))
    return Model.from_edges(ir.Multiply(ir.Activation(both, "tanh"), edges.EdgeWeight()))


def of_features(rng: np.random.Generator) -> Model:
    """No sum over edges at all."""
    x = ir.Input(WIDTH)
    return Model.from_edges(_mlp(rng, _both(x, edges.EdgeAttribute(ATTRIBUTES)), 6, 1))


def typed(rng: np.random.Generator) -> Model:
    """Reads the type of the edge, in sums and in the result."""
    x: ir.Value = ir.Linear(ir.Input(WIDTH), random_weights(rng, 4, WIDTH))
    gate = ir.Lookup(edges.EdgeRelation(), random_weights(rng, TYPES, 1))
    x = ir.Activation(edges.Gather(ir.Multiply(edges.Source(x), gate)), "tanh")
    return Model.from_edges(_mlp(rng, _both(x, ir.Lookup(edges.EdgeRelation(), random_weights(rng, TYPES, 2))), 5, 2))


def against(rng: np.random.Generator) -> Model:
    """Messages along the edges and against them, with weights that are computed of the edges' columns."""
    x: ir.Value = ir.Linear(ir.Input(WIDTH), random_weights(rng, 4, WIDTH))
    weight = ir.Activation(ir.Linear(edges.EdgeAttribute(ATTRIBUTES), random_weights(rng, 1, ATTRIBUTES)), "sigmoid")
    x = edges.Gather(ir.Multiply(edges.Source(x), weight), loops="drop", reversed=True)
    back = edges.Gather(ir.Combine(((1.0, edges.Source(x)), (-1.0, edges.Target(x)))), "max", reversed=True)
    y = ir.Propagate(ir.Combine(((1.0, back), (1.0, x))), "gcn", self_loops=True, reversed=True)
    return Model.from_edges(ir.Multiply(_mlp(rng, _both(y, edges.EdgeAttribute(ATTRIBUTES)), 6, 2), weight))


MODELS: dict[str, Callable[[np.random.Generator], Model]] = {
    each.__name__: each for each in (updated, plain, weighted, of_features, typed, against)
}
ENGINES: dict[str, dict[str, Any]] = {
    "eager": {},
    "on demand": {"mode": "on_demand"},
    "hybrid": {"mode": "hybrid", "hot": 3},
    "compact": {"state": "compact"},
    "affected": {"strategy": "affected"},
    "full": {"strategy": "full"},
}


def _made(name: str, seed: int, **options: Any) -> tuple[lg.Engine, Any, np.random.Generator]:
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    model = MODELS[name](rng)
    columns = {"attr_width": model.attribute_width or 0, "types": TYPES if model.uses_types else 0}
    graph, mirror = random_graph(rng, WIDTH, model.weights == "required", vertices=24, **columns)
    return lg.Engine(model, graph, **options), mirror, rng


def _by_id(engine: lg.Engine) -> dict[int, bytes]:
    found = engine.graph.edges()
    return {int(e): row.tobytes() for e, row in zip(found["id"], engine.edge_outputs(found), strict=True)}


@pytest.mark.parametrize("how", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_rows_of_edges_follow_every_batch(name: str, how: str) -> None:
    engine, mirror, rng = _made(name, 1, **ENGINES[how])
    check_edges(engine, mirror, f"{name}, {how}: at first")
    for batch in range(8):
        engine.apply(random_batch(rng, mirror, int(rng.integers(1, 7))))
        check_edges(engine, mirror, f"{name}, {how}: batch {batch}")


@pytest.mark.parametrize("name", MODELS)
def test_changes_name_every_edge_whose_row_has_changed(name: str) -> None:
    engine, mirror, rng = _made(name, 2)
    spared = 0
    for batch in range(40):
        before = _by_id(engine)
        changes = engine.apply(random_batch(rng, mirror, 1))
        after, listed = _by_id(engine), changes.edges
        ids = [int(e) for e in listed["id"]]
        assert ids == sorted(set(ids)), "an edge twice, or out of order"
        assert [mirror.edges[e][:2] for e in ids] == [*zip(listed["src"], listed["dst"], strict=True)]
        moved = {e for e, row in after.items() if before.get(e) != row}
        assert moved <= {*ids}, f"batch {batch}: edges {moved - {*ids}} changed and are not listed"
        if ids:
            assert [row.tobytes() for row in engine.edge_outputs(listed)] == [after[e] for e in ids]
        spared += len(after) - len(ids)
    assert spared > 0, "all edges were listed by every batch"


def test_a_pair_means_its_newest_edge() -> None:
    engine, mirror, rng = _made("updated", 3)
    for _ in range(2):
        updates = lg.Updates()
        attribute = rng.standard_normal(ATTRIBUTES).astype(np.float32)
        updates.add_edge(4, 4, edge_attr=attribute)
        mirror.add_edge(4, 4, 1.0, attribute)
        engine.apply(updates)
    newest, ids = mirror.newest(4, 4), sorted(mirror.edges)
    truth = reference_edges(engine.model, mirror)
    rows = engine.edge_outputs([(4, 4)])
    np.testing.assert_allclose(rows[0], truth[ids.index(newest)], rtol=1e-4, atol=1e-5)
    assert rows.tobytes() == engine.edge_outputs([newest]).tobytes()
    assert rows.tobytes() != engine.edge_outputs([newest - 1]).tobytes()


@pytest.mark.parametrize("how", ["eager", "on demand", "compact"])
def test_what_if_reads_the_edges_that_would_be(how: str) -> None:
    engine, mirror, rng = _made("updated", 4, **ENGINES[how])
    engine.edge_outputs(np.zeros(0, np.int64))  # the index of ids is there before the block
    for _ in range(6):
        before, supposed = _by_id(engine), mirror.copy()
        added = supposed.next_edge
        updates = random_batch(rng, supposed, 4)
        attribute = rng.standard_normal(ATTRIBUTES).astype(np.float32)
        u = sorted(supposed.rows)[0]
        updates.add_edge(u, u, edge_attr=attribute)
        supposed.add_edge(u, u, 1.0, attribute)
        truth, ids = reference_edges(engine.model, supposed), sorted(supposed.edges)
        with engine.what_if(updates) as view:
            np.testing.assert_allclose(view.edge_outputs(np.array(ids)), truth, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(view.edge_outputs([(u, u)])[0], truth[-1], rtol=1e-3, atol=1e-5)
        assert _by_id(engine) == before
        with pytest.raises(lg.errors.EdgeMissing, match=f"an edge with id {max(ids)}, got none"):
            engine.edge_outputs([max(ids)])
        assert added == mirror.next_edge
        mirror_updates = random_batch(rng, mirror, 2)
        engine.apply(mirror_updates)
        check_edges(engine, mirror)


def test_undirected_edges_have_a_row_in_each_direction() -> None:
    rng = np.random.default_rng(5)
    graph = lg.Graph(rng.standard_normal((6, WIDTH)).astype(np.float32), [0, 1, 2, 2], [1, 2, 2, 4], undirected=True)
    engine = lg.Engine(plain(rng), graph)
    changes = engine.apply(_added(1, 5))
    assert {(1, 5), (5, 1)} <= {*zip(changes.edges["src"].tolist(), changes.edges["dst"].tolist(), strict=True)}
    there, back = engine.edge_outputs([(1, 5)])[0], engine.edge_outputs([(5, 1)])[0]
    pairs = np.array([[0, 1], [1, 2], [2, 2], [2, 4], [1, 5]])
    directed = np.concatenate([pairs, pairs[pairs[:, 0] != pairs[:, 1]][:, ::-1]])
    other = lg.Engine(engine.model, lg.Graph(graph.features(), directed[:, 0], directed[:, 1]))
    np.testing.assert_allclose([there, back], other.edge_outputs([(1, 5), (5, 1)]), rtol=1e-5, atol=1e-6)
    assert engine.edge_outputs([4]).tobytes() == there.tobytes()
    engine.verify()


def _added(u: object, v: object, **columns: Any) -> lg.Updates:
    updates = lg.Updates()
    updates.add_edge(u, v, **columns)
    return updates
