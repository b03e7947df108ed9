"""Medians of hubs and of small rows equal a sort after every batch, whatever their windows have seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import RangeOverflow, ValueInvalid
from livegnn.models import edges, ir

SOURCES, HUBS, WIDTH = 60, 3, 5
OPTIONS = [
    {},
    {"threads": 2},
    *({"path": path} for path in ("push", "pull", "sweep")),
    {"state": "compact"},
    {"mode": "on_demand"},
    {"mode": "hybrid", "hot": 2},
    {"memory_limit": "4MiB"},
    {"strategy": "affected"},
    {"strategy": "khop"},
]


def model(kind):
    """The median of the in-neighbours' rows: as they are, times weights, in GCN, or of messages on edges."""
    x = ir.Input(WIDTH)
    made = {
        "plain": lambda: ir.propagate(x, "median"),
        "weighted": lambda: ir.propagate(x, "median", weighted=True),
        "gcn": lambda: ir.Propagate(x, "gcn", self_loops=True, reduce="median"),
        "on edges": lambda: edges.Gather(ir.Multiply(edges.Source(x), edges.EdgeWeight()), "median"),
    }
    return lg.Model.from_output(made[kind]())


def formula(kind, graph):
    columns = graph.edges()
    src, dst, weight = columns["src"], columns["dst"], columns["weight"].astype(np.float64)
    rows = graph.features(graph.vertices()).astype(np.float64)
    if kind == "gcn":
        own = np.arange(len(rows))
        src, dst = np.concatenate([src[src != dst], own]), np.concatenate([dst[src != dst], own])
        factor = np.bincount(dst) ** -0.5
        weight = factor[src] * factor[dst]
    weight = np.ones(len(src)) if kind == "plain" else weight
    result = np.zeros_like(rows)
    for v in range(len(rows)):
        terms = np.sort(weight[dst == v, None] * rows[src[dst == v]], axis=0)
        if len(terms):
            result[v] = terms[(len(terms) - 1) // 2]
    return result


def rows_of(rng, count, ties):
    return (rng.integers(-2, 3, (count, WIDTH)) if ties else rng.standard_normal((count, WIDTH))).astype(np.float32)


def batch(rng, graph, ties):
    updates, there = lg.Updates(), graph.edges()
    pairs = list(zip(there["src"].tolist(), there["dst"].tolist(), strict=True))
    for _ in range(int(rng.integers(1, 30))):
        kind = rng.integers(4)
        if kind == 0 and pairs:
            updates.remove_edge(*pairs.pop(int(rng.integers(len(pairs)))))
        elif kind == 1 and pairs:
            updates.set_weight(*pairs[int(rng.integers(len(pairs)))], float(rng.random() + 0.1))
        elif kind == 2:
            updates.set_features(int(rng.integers(SOURCES)), rows_of(rng, 1, ties)[0])
        else:
            u, v = int(rng.integers(SOURCES)), SOURCES + int(rng.integers(HUBS)) if rng.integers(2) else 0
            updates.add_edge(u, v, weight=float(rng.random() + 0.1))
    return updates


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plain", "weighted", "gcn", "on edges"]),
    st.sampled_from(OPTIONS),
    st.booleans(),
)
def test_after_every_batch(seed, kind, options, ties):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 120))
    src, dst = rng.integers(0, SOURCES, count), rng.integers(SOURCES, SOURCES + HUBS, count)
    weight = (rng.random(count) + 0.1).astype(np.float32)
    graph = lg.Graph(rows_of(rng, SOURCES + HUBS, ties), src, dst, weight=weight)
    engine = lg.Engine(model(kind), graph, **{"threads": 1, **options})
    for _ in range(6):
        engine.apply(batch(rng, graph, ties))
        got = engine.embeddings(graph.vertices())
        np.testing.assert_allclose(got, formula(kind, graph), rtol=1e-6, atol=1e-6)
        engine.verify()
        if engine.is_eager and engine.strategy == "incremental":
            with engine.what_if(batch(rng, graph, ties)):
                pass
            engine.verify()


@pytest.mark.parametrize("kind", ["plain", "on edges"])
def test_what_has_no_place_in_an_order_is_refused(kind):
    graph = lg.Graph(np.full((2, WIDTH), 3e38, np.float32), [0], [1], weight=np.ones(1, np.float32))
    twice = ir.Combine(((1.0, ir.Input(WIDTH)),))
    rows = ir.Activation(twice, "exp")
    made = ir.propagate(rows, "median") if kind == "plain" else edges.Gather(edges.Source(rows), "median")
    with pytest.raises((ValueInvalid, RangeOverflow), match="expected finite messages"):
        lg.Engine(lg.Model.from_output(made), graph)
