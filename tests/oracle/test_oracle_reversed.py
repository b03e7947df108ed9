"""Messages against the edges, alone and next to messages along them, in every family and every way of an engine.

What they are is tested against the same model on the graph with every edge turned round: the same bits.
"""

import numpy as np
import pytest

import livegnn as lg
from livegnn.inference import memory
from livegnn.models import ir
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph, random_model
from livegnn.testing.edge_models import EDGE_FAMILIES
from livegnn.testing.models import FAMILIES

WAYS = [
    *({"strategy": each} for each in ("incremental", "affected", "khop", "full", "constrained")),
    *({"path": each} for each in ("push", "pull", "sweep")),
    {"state": "compact"},
    *({"state": "compact", "path": each} for each in ("push", "sweep")),
    {"strategy": "sampled", "fanout": 10_000},
    {"mode": "on_demand"},
    {"mode": "hybrid", "hot": 2},
    {"memory_limit": "4MiB"},
]
ALL = [*FAMILIES, *EDGE_FAMILIES]


def apply(engine, updates):
    try:
        engine.apply(updates)
    except lg.errors.RangeOverflow:
        engine.rescale(headroom=2.0**20)
        engine.apply(updates)
        engine.rescale()


def stream(seed, family, reversed, batches=4, **given):
    rng = np.random.default_rng(seed)
    edges = family in EDGE_FAMILIES or family is None
    model = random_model(rng, family=family, depth=1 + seed % 3, on_edges=edges, reversed=reversed)
    weighted = model.uses_weights or bool(rng.integers(2))
    graph, mirror = random_graph(rng, model.input_width, weighted, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1 + seed % 2, **given)
    check_engine(engine, mirror, f"seed {seed} at creation")
    for batch in range(batches):
        apply(engine, random_batch(rng, mirror, int(rng.integers(1, 12))))
        check_engine(engine, mirror, f"seed {seed} batch {batch} {given}")
        if given.get("strategy", "incremental") == "incremental":
            before = engine.state_digest()
            with engine.what_if(random_batch(rng, mirror.copy(), 6)):
                pass
            assert engine.state_digest() == before
    return engine


@pytest.mark.parametrize("state", ["fast", "compact"])
@pytest.mark.parametrize("family", ALL)
def test_every_family(family, state):
    for seed in range(6):
        stream(seed, family, reversed=True, state=state)


@pytest.mark.parametrize("given", WAYS, ids=str)
def test_every_way_of_an_engine(given):
    for seed in range(12):
        stream(100 + seed, None, reversed=None if seed % 2 else True, **given)


@pytest.mark.parametrize("family", ALL)
def test_the_same_bits_as_on_the_turned_graph(family):
    """Outputs and the vertices that change, after every batch."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        against = random_model(np.random.default_rng(seed), family=family, depth=2, reversed=True)
        along = random_model(np.random.default_rng(seed), family=family, depth=2)
        columns = graph_columns(along)
        graph, mirror = random_graph(rng, along.input_width, along.uses_weights, vertices=20, **columns)
        features, src, dst, weight, _ = mirror.arrays()
        attributes, kinds = mirror.columns()
        turned = lg.Graph(features, dst, src, weight=weight, edge_attr=attributes, edge_type=kinds)
        engines = lg.Engine(against, graph), lg.Engine(along, turned)
        for _ in range(4):
            u, v = (rng.integers(0, 20, 6) for _ in range(2))
            given = {
                "weight": rng.random(6).astype(np.float32) + 0.1 if along.uses_weights else None,
                "edge_attr": None if attributes is None else rng.standard_normal((6, attributes.shape[1])),
                "edge_type": None if kinds is None else rng.integers(0, columns["types"], 6),
            }
            given = {key: each for key, each in given.items() if each is not None}
            changes = []
            for engine, (a, b) in zip(engines, ((u, v), (v, u)), strict=True):
                updates = lg.Updates()
                updates.add_edges(a, b, **given)
                updates.set_features(int(u[0]), features[int(v[0])])
                updates.remove_edge(int(a[1]), int(b[1]))
                changes.append(engine.apply(updates).vertices.tolist())
            assert changes[0] == changes[1], family
            rows = [engine.embeddings(range(20)).tobytes() for engine in engines]
            assert rows[0] == rows[1], family
            assert engines[0].scales == engines[1].scales


def both_ways(norm="gcn", reduce="sum", width=5):
    """Norms of either direction in one model, one of them of what the other has made."""
    x = ir.Input(width)
    parts = [ir.Propagate(x, norm, reduce=reduce, reversed=each) for each in (False, True)]
    twice = ir.Propagate(ir.Activation(ir.Combine(((1.0, parts[0]), (0.5, parts[1]))), "tanh"), norm, reversed=True)
    return lg.Model.from_output(ir.Concat((*parts, twice)))


@pytest.mark.parametrize("norm", ["sum", "mean", "gcn", "laplacian", "walk", "difference"])
def test_degrees_exist_per_direction(norm):
    rng = np.random.default_rng(3)
    for given in WAYS:
        graph, mirror = random_graph(rng, 5, False, vertices=25)
        engine = lg.Engine(both_ways(norm), graph, **given)
        for batch in range(4):
            apply(engine, random_batch(rng, mirror, 8))
            check_engine(engine, mirror, f"{norm} {given} batch {batch}")


@pytest.mark.parametrize("given", WAYS, ids=str)
def test_sums_over_filled_self_loops(given):
    """A vertex's last self-loop edge counts, or a number where it has none; other self-loops do not."""
    rng = np.random.default_rng(8)
    x = ir.Input(5)
    kinds = ((True, False), (True, True), (False, False))
    parts = [ir.Propagate(x, "sum", weighted, True, 0.25, reversed=each) for weighted, each in kinds]
    filled = ir.Propagate(ir.Activation(parts[0], "tanh"), "sum", True, True, -2.0)
    model = lg.Model.from_output(ir.Concat((*parts, filled)))
    graph, mirror = random_graph(rng, 5, True, vertices=8)
    engine = lg.Engine(model, graph, **given)
    for batch in range(8):
        apply(engine, random_batch(rng, mirror, 6))
        check_engine(engine, mirror, f"{given} batch {batch}")


def test_a_new_edge_changes_its_source_only():
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0, 1], [1, 2])
    engine = lg.Engine(lg.Model([lg.layers.Reversed([lg.layers.SAGE(np.eye(4))])]), graph)
    assert engine.embeddings([0, 1, 2]).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    updates = lg.Updates()
    updates.add_edge(3, 0)
    assert engine.apply(updates).vertices.tolist() == [3]


def test_undirected_graphs_have_one_direction():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((12, 4)).astype(np.float32)
    weights = rng.standard_normal((3, 4)).astype(np.float32)
    src, dst = rng.integers(0, 12, (2, 30))
    rows = []
    for layers in ([lg.layers.GCN(weights)], [lg.layers.Reversed([lg.layers.GCN(weights)])]):
        engine = lg.Engine(lg.Model(layers), lg.Graph(features, src, dst, undirected=True))
        updates = lg.Updates()
        updates.add_edges([0, 1], [5, 1])
        engine.apply(updates)
        engine.verify()
        rows.append(engine.embeddings(range(12)).tobytes())
    assert rows[0] == rows[1]


def test_the_range_is_of_out_degrees():
    """Scales that were chosen for few out-edges refuse a vertex of many, though all in-degrees are small."""
    n = 70_000
    features = np.ones((n, 1), np.float32)
    graph = lg.Graph(features, [0], [1])
    engine = lg.Engine(lg.Model([lg.layers.Reversed([lg.layers.LG()])], input_width=1), graph)
    updates = lg.Updates()
    updates.add_edges(np.zeros(n - 2, np.int64), np.arange(2, n))
    digest = engine.state_digest()
    with pytest.raises(lg.errors.RangeOverflow, match="out-degrees below 65536"):
        engine.apply(updates)
    assert engine.state_digest() == digest
    engine.close()
    forward = lg.Engine(lg.Model([lg.layers.LG(normalize=False)], input_width=1), graph)
    forward.apply(updates)
    forward.verify()


@pytest.mark.parametrize("options", [{}, {"mode": "on_demand"}], ids=str)
def test_the_same_bits_in_less_memory(options, monkeypatch):
    monkeypatch.setattr(memory, "LEAST_LIMIT", 1)
    rng = np.random.default_rng(4)
    x = ir.Input(8)
    weights = rng.standard_normal((24, 8)).astype(np.float32)
    sums = [ir.Propagate(x, "gcn", reversed=each) for each in (False, True)]
    hidden = [ir.Activation(ir.Linear(each, weights), "relu") for each in sums]
    joined = ir.Propagate(ir.Combine(((1.0, hidden[0]), (1.0, hidden[1]))), "mean", reversed=True)
    graph, mirror = random_graph(rng, 8, False, vertices=500)
    model = lg.Model.from_output(joined)
    whole = lg.Engine(model, graph, **options)
    limited = lg.Engine(model, graph, threads=2, memory_limit=64 << 10, **options)
    for size in (1, 8, 40, 400):
        limited.apply(random_batch(rng, mirror, size))
        ids = graph.vertices()
        assert limited.embeddings(ids).tobytes() == whole.embeddings(ids).tobytes()
    limited.verify()
    assert limited.memory.pages_out > 0


def test_edges_in_files(tmp_path):
    """Lists are read whole, in memory or not, whichever way messages go."""
    rng = np.random.default_rng(6)
    features = rng.standard_normal((30, 5)).astype(np.float32)
    src, dst = rng.integers(0, 30, (2, 200))
    graph = lg.Graph(features, src, dst, time=np.arange(200))
    plain = lg.Graph(features, src, dst, time=np.arange(200))
    engines = [lg.Engine(both_ways(), each) for each in (graph, plain)]
    graph.offload(120, tmp_path / "old")
    for step in range(3):
        for engine in engines:
            updates = lg.Updates()
            updates.add_edges([step, 4], [7, step], time=[300 + step] * 2)
            updates.set_features(step, features[9])
            engine.apply(updates)
    engines[0].verify()
    assert engines[0].embeddings(range(30)).tobytes() == engines[1].embeddings(range(30)).tobytes()


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(1)
    graph, mirror = random_graph(rng, 5, False, vertices=20)
    engine = lg.Engine(both_ways(), graph)
    engine.apply(random_batch(rng, mirror, 10))
    engine.save(tmp_path / "engine")
    loaded = lg.Engine.load(tmp_path / "engine")
    assert loaded.state_digest() == engine.state_digest()
    loaded.apply(random_batch(rng, mirror, 10))
    check_engine(loaded, mirror, "loaded")


def test_swap_to_the_other_direction():
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((3, 5)).astype(np.float32)
    graph, mirror = random_graph(rng, 5, False, vertices=20)
    engine = lg.Engine(lg.Model([lg.layers.GCN(weights)]), graph)
    engine.swap(lg.Model([lg.layers.Reversed([lg.layers.GCN(weights)])]))
    for _ in range(3):
        engine.apply(random_batch(rng, mirror, 6))
        check_engine(engine, mirror, "swapped")
