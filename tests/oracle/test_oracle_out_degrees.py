"""Layers over out-degrees: one new edge moves all that its source sends ("rw"), its own row (None), or both ("sym"), in
every way that an engine can work.
"""

import numpy as np
import pytest

import livegnn as lg
from livegnn.testing import check_engine, random_batch, random_graph, random_model

NORMALIZATIONS = ["sym", "rw", None]
CHANGED = {"sym": [0, 1, 2, 3], "rw": [1, 2, 3], None: [0, 3]}  # by a second way out of 0, to 3
WAYS = [
    *({"strategy": each} for each in ("incremental", "affected", "khop", "full")),
    *({"path": each} for each in ("push", "pull", "sweep")),
    {"state": "compact"},
    *({"state": "compact", "path": each} for each in ("push", "sweep")),
    {"strategy": "sampled", "fanout": 10_000},
    {"mode": "on_demand"},
    {"mode": "hybrid", "hot": 2},
]


def model(normalization, hops=2, width=4, seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((3, width)).astype(np.float32) for _ in range(hops + 1)]
    return lg.Model([lg.layers.Cheb(weights, normalization=normalization, lambda_max=None if normalization else 30.0)])


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_a_new_edge_changes_what_it_should_and_nothing_else(normalization):
    rng = np.random.default_rng(1)
    src, dst = [0, 0, 1, 2, 3, 4], [1, 2, 3, 3, 0, 4]
    for given in WAYS:
        graph = lg.Graph(rng.standard_normal((6, 4)).astype(np.float32), src, dst)
        engine = lg.Engine(model(normalization, 1), graph, **given)
        engine.embeddings(range(6))
        updates = lg.Updates()
        updates.add_edge(0, 3)
        changes = engine.apply(updates)
        if "mode" not in given:
            assert changes.vertices.tolist() == CHANGED[normalization], given
        got = engine.embeddings(range(6))
        fresh = lg.Engine(model(normalization, 1), graph, scales=engine.scales)
        assert got.tobytes() == fresh.embeddings(range(6)).tobytes(), given


@pytest.mark.parametrize("given", WAYS, ids=str)
def test_streams_of_updates(given):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        made = random_model(rng, family="cheb", depth=1 + seed % 3)
        graph, mirror = random_graph(rng, made.input_width, made.uses_weights)
        engine = lg.Engine(made, graph, threads=1 + seed % 2, **given)
        for batch in range(5):
            engine.apply(random_batch(rng, mirror, int(rng.integers(1, 12))))
            check_engine(engine, mirror, f"seed {seed} batch {batch}")
            before = engine.state_digest()
            if given.get("strategy", "incremental") == "incremental":
                with engine.what_if(random_batch(rng, mirror.copy(), 6)):
                    pass
            assert engine.state_digest() == before


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("state", ["fast", "compact"])
def test_large_batches_in_bins(state, normalization):
    """So many edges that rows are finished bin by bin, while vertices move whose rows get no message."""
    rng = np.random.default_rng(5)
    n, m = 4000, 40_000
    features = rng.standard_normal((n, 4)).astype(np.float32)
    graph = lg.Graph(features, rng.integers(0, n, m), rng.integers(0, n // 2, m))
    engine = lg.Engine(model(normalization), graph, threads=2, state=state, path="push")
    for size in (600, 5, 2000):
        updates = lg.Updates()
        updates.add_edges(rng.integers(0, n, size), rng.integers(0, n // 2, size))
        edges = graph.edges()
        gone = np.unique(np.stack([edges["src"], edges["dst"]])[:, rng.integers(0, m, size)], axis=1)
        updates.remove_edges(*gone)
        engine.apply(updates)
        engine.verify()


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_an_undirected_graph_equals_one_with_both_directions(normalization):
    rng = np.random.default_rng(3)
    n, m = 12, 30
    features, src, dst = rng.standard_normal((n, 4)).astype(np.float32), *rng.integers(0, n, (2, m))
    weight = (rng.random(m) + 0.1).astype(np.float32)
    options = {"normalization": normalization, "lambda_max": 12.0, "weighted": True}
    made = lg.Model([lg.layers.Cheb([np.eye(4, dtype=np.float32)] * 3, **options)])
    one = lg.Engine(made, lg.Graph(features, src, dst, weight=weight, undirected=True))
    own = src == dst
    columns = [np.concatenate([a, b[~own]]) for a, b in ((src, dst), (dst, src), (weight, weight))]
    both = lg.Engine(made, lg.Graph(features, *columns[:2], weight=columns[2]), scales=one.scales)
    for _ in range(4):
        u, v = (int(each) for each in rng.choice(n, 2, replace=False))
        alone, paired = lg.Updates(), lg.Updates()
        alone.add_edge(u, v, weight=0.5)
        paired.add_edge(u, v, weight=0.5)
        paired.add_edge(v, u, weight=0.5)
        one.apply(alone)
        both.apply(paired)
        assert one.embeddings(range(n)).tobytes() == both.embeddings(range(n)).tobytes()
        one.verify()


@pytest.mark.parametrize("normalization", ["sym", "rw"])
def test_a_degree_that_falls_from_many_to_one_stays_in_range(normalization):
    """What a vertex sends along an edge grows 3000 times ("rw"), more than the headroom over what was sent at first."""
    count = 3000
    src, dst = np.repeat([0, 1, 2], count), np.repeat([1, 2, 0], count)  # parallel edges
    graph = lg.Graph(np.ones((3, 4), np.float32), src, dst)
    engine = lg.Engine(model(normalization, 1), graph)
    updates = lg.Updates()
    updates.remove_edges(src[: count - 1], dst[: count - 1])
    engine.apply(updates)
    engine.verify()


@pytest.mark.parametrize("state", ["fast", "compact"])
@pytest.mark.parametrize("path", ["auto", "push"])
@pytest.mark.parametrize("normalization", ["sym", "rw"])
def test_an_edge_may_outweigh_its_source_s_degree_without_bounds(normalization, path, state):
    """The old message, 1e7 times the weight's share, must not travel along the new edge."""
    rng = np.random.default_rng(6)
    n = 10
    graph = lg.Graph(
        rng.standard_normal((n, 4)).astype(np.float32), *rng.integers(0, n, (2, 30)), weight=np.ones(30, np.float32)
    )
    weights = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(3)]
    made = lg.Model([lg.layers.Cheb(weights, normalization=normalization, weighted=True)])
    engine = lg.Engine(made, graph, path=path, state=state)
    slight, heavy = lg.Updates(), lg.Updates()
    for u, v in zip(graph.edges()["src"], graph.edges()["dst"], strict=True):
        if u == 0:
            slight.remove_edge(0, int(v))
    slight.add_edge(0, 1, weight=1e-7)
    heavy.add_edge(0, 2, weight=1.0)
    heavy.set_features(3, np.ones(4, np.float32))
    for updates in (slight, heavy):
        engine.apply(updates)
        engine.verify()
    before = engine.state_digest()
    again = lg.Updates()
    again.add_edge(0, 3, weight=1e4)
    with engine.what_if(again):
        pass
    assert engine.state_digest() == before


def test_a_saved_engine_is_the_same(tmp_path):
    rng = np.random.default_rng(2)
    made = random_model(rng, family="cheb", depth=2, weighted=True)
    graph, mirror = random_graph(rng, made.input_width, True, vertices=15)
    engine = lg.Engine(made, graph)
    engine.apply(random_batch(rng, mirror, 10))
    engine.save(tmp_path / "engine.lg")
    loaded = lg.Engine.load(tmp_path / "engine.lg")
    assert loaded.state_digest() == engine.state_digest()
    updates = random_batch(rng, mirror, 10)
    engine.apply(updates)
    loaded.apply(updates)
    assert loaded.state_digest() == engine.state_digest()
    loaded.verify()
