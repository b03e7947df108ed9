"""Whatever reads a graph whose features are in 16 bits sees what it sees of a twin with the rounded ones in float32."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.log import UpdateLog, open_log, replay
from livegnn.testing import graph_columns, random_graph, random_model
from tests.oracle.half_oracle import DTYPES, assert_twins, rounded, rounded_updates
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.property.test_hetero_machine import TRIPLES, WIDTHS, model

VERTICES = 30


def pair_of(dtype, rng, width=20):
    """A half graph with times and attributes, and its twin."""
    x = rng.standard_normal((VERTICES, width)).astype(np.float32)
    src, dst = rng.integers(0, VERTICES, (2, 200))
    columns = {
        "time": np.sort(rng.integers(0, 100, 200)),
        "edge_attr": rng.standard_normal((200, 2)).astype(np.float32),
    }
    return lg.Graph(x, src, dst, **columns, feature_dtype=dtype), lg.Graph(rounded(dtype, x), src, dst, **columns)


def a_batch(rng, width=20):
    """Edges, features, and a vertex that goes and comes again."""
    updates = lg.Updates()
    u, v = rng.integers(0, VERTICES, (2, 10))
    updates.add_edges(u, v, time=rng.integers(100, 200, 10), edge_attr=rng.standard_normal((10, 2)))
    ids = rng.integers(0, VERTICES, 5)
    updates.set_features(ids, rng.standard_normal((5, width)))
    updates.remove_vertex(int(ids[0]))
    updates.add_vertex(int(ids[0]), rng.standard_normal(width))
    return updates


def apply_both(dtype, graphs, rng):
    updates = a_batch(rng)
    graphs[0].apply(updates)
    graphs[1].apply(rounded_updates(dtype, updates))
    assert_twins(*graphs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_samplers(dtype):
    rng = np.random.default_rng(3)
    graphs = pair_of(dtype, rng)
    query = lg.query().in_().sample(3).in_().sample(2)
    ready = [lg.PreSampler(graph, query, seed=1, threads=2) for graph in graphs]
    others = [lg.AdHocSampler(graph, query, seed=1) for graph in graphs]
    others += [lg.LocalCluster(graph, query, seed=1, sampling=2, serving=2) for graph in graphs]
    seeds = np.arange(VERTICES)
    for _ in range(5):
        apply_both(dtype, graphs, rng)
        ready[0].follower.check_invariants()
        samples = [sampler.sample(seeds) for sampler in (*ready, *others)]
        for level in range(3):
            rows = [sample.features(level).tobytes() for sample in samples]
            assert len(set(rows)) == 1
    bytes_of = [sampler.stats.bytes["features"] for sampler in ready]
    assert bytes_of[0] < 0.6 * bytes_of[1]  # its own copy is in 16 bits, too
    with lg.SampleServer(ready[0]) as server:
        assert server.sample(seeds).features(1).tobytes() == samples[1].features(1).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_pins_and_caches(dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    graphs = pair_of(dtype, rng)
    samplers = [lg.TemporalSampler(graph, [4, 4]) for graph in graphs]
    caches = [lg.FeatureCache(graph, capacity=8, max_replace=1.0) for graph in graphs]
    ids = np.arange(VERTICES)
    for _ in range(4):
        before = graphs[0].features(ids).tobytes()
        with samplers[0].pin() as pin, samplers[1].pin() as other:
            for _ in range(2):
                apply_both(dtype, graphs, rng)
                assert pin.features(ids).tobytes() == other.features(ids).tobytes() == before
            hops = [sampler.sample(ids, np.full(VERTICES, 300)) for sampler in samplers]
            assert hops[0][1].src.tolist() == hops[1][1].src.tolist()
        for some in (ids[:10], ids[5:], ids):
            rows = [cache.fetch(some) for cache in caches]
            assert torch.equal(*rows)
            assert rows[0].dtype == torch.float32
        caches[0].verify()


@pytest.mark.parametrize("dtype", DTYPES)
def test_logs_files_and_offloading(dtype, tmp_path):
    rng = np.random.default_rng(5)
    graphs, again = pair_of(dtype, rng), pair_of(dtype, np.random.default_rng(5))
    with UpdateLog(open_log(f"sqlite:{tmp_path}/log.db")) as log:
        with log.attach(graphs[0]):
            for _ in range(3):
                apply_both(dtype, graphs, rng)
        replay(log, again[0])
    assert_twins(again[0], graphs[1])
    pytest.importorskip("pyarrow")
    digest, rows = graphs[0].digest(), graphs[0].features()
    graphs[0].offload(50, tmp_path / "old.parquet")
    assert graphs[0].offloaded.count > 0
    assert graphs[0].digest() == digest
    graphs[0].reload()
    assert_twins(*graphs)
    assert graphs[0].features().tobytes() == rows.tobytes()


@pytest.mark.parametrize("path", ["auto", "push", "pull", "sweep"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_types_with_widths_of_their_own(dtype, path):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        _, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
        found = mirror.columns()
        ends = [{triple: found[triple][0][end] for triple in TRIPLES} for end in (0, 1)]
        x = mirror.features()
        twin_x = {name: rounded(dtype, rows) for name, rows in x.items()}
        graphs = lg.Graph(x, *ends, feature_dtype=dtype), lg.Graph(twin_x, *ends)
        engines = [lg.Engine(model(), graph, path=path, threads=2) for graph in graphs]
        for _ in range(6):
            updates = random_typed_batch(rng, mirror, int(rng.integers(1, 25)))
            engines[0].apply(updates)
            engines[1].apply(rounded_updates(dtype, updates))
            assert_twins(*graphs)
            for name in WIDTHS:
                ids = graphs[0].vertices(name)
                rows = [engine.embeddings(ids, vertex_type=name).tobytes() for engine in engines]
                assert rows[0] == rows[1]
            assert engines[0].state_digest() == engines[1].state_digest()
            engines[0].verify()


@pytest.mark.parametrize("family", ["sage", "gin", "sgc", "gat", "gatv2", "edge_conv"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_batches_on_many_threads(dtype, family):
    """Enough rows and sources at once that every thread decodes some."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        net = random_model(rng, family=family, depth=2, weighted=False)
        columns = graph_columns(net)
        _, mirror = random_graph(rng, net.input_width, net.uses_weights, vertices=1500, **columns)
        x, src, dst, weight, _ = mirror.arrays()
        attributes, kinds = mirror.columns()
        given = {"weight": weight, "edge_attr": attributes, "edge_type": kinds}
        graphs = lg.Graph(x, src, dst, **given, feature_dtype=dtype), lg.Graph(rounded(dtype, x), src, dst, **given)
        engines = [lg.Engine(net, graph, threads=threads) for graph, threads in zip(graphs, (4, 1), strict=True)]
        for _ in range(3):
            ids = rng.permutation(1500)[:1000]
            updates = lg.Updates()
            updates.set_features(ids, rng.standard_normal((1000, net.input_width)))
            updates.remove_edges(src[:50], dst[:50], missing="ignore")
            updates.remove_vertex(int(ids[0]))
            updates.add_vertex(int(ids[0]), rng.standard_normal(net.input_width))
            engines[0].apply(updates)
            engines[1].apply(rounded_updates(dtype, updates))
            rows = [engine.embeddings(graphs[0].vertices()).tobytes() for engine in engines]
            assert rows[0] == rows[1]
        assert_twins(*graphs)
        engines[0].verify()
