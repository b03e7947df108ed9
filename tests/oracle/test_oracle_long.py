"""Long histories: a million updates on a graph of arxiv's shape, one history cut in many ways, many what-ifs."""

import numpy as np

import livegnn as lg
from benchmarks.engine.generate import SHAPES, chung_lu
from livegnn.testing import random_batch, random_graph, random_model

WIDTH = 8


def two_layers(rng):
    """GraphConv-sum, 8 -> 16 -> 8, its weights small enough for a hub of thousands of edges."""

    def weights(out, width):
        return (rng.standard_normal((out, width)) / np.sqrt(width)).astype(np.float32)

    first = lg.layers.GraphConv(weights(16, WIDTH), weights(16, WIDTH), rng.random(16, np.float32), activation="relu")
    return lg.Model([first, lg.layers.GraphConv(weights(8, 16), weights(8, 16))])


class Feed:
    """Edges held as one array; each batch removes and adds as many, and sets as many feature rows."""

    def __init__(self, rng, src, dst, vertices):
        self.rng, self.vertices = rng, vertices
        self.src, self.dst = src.astype(np.int64), dst.astype(np.int64)

    def batch(self, size):
        """About `size` updates in equal shares; parallel edges and self-loops come up."""
        third = size // 3
        gone = self.rng.choice(len(self.src), third, replace=False)
        new_src = self.src[self.rng.integers(len(self.src), size=third)]
        new_dst = self.dst[self.rng.integers(len(self.dst), size=third)]
        ids = self.rng.integers(self.vertices, size=size - 2 * third)
        updates = lg.Updates()
        updates.remove_edges(self.src[gone], self.dst[gone])
        updates.add_edges(new_src, new_dst)
        updates.set_features(ids, self.rng.standard_normal((len(ids), WIDTH), np.float32))
        self.src[gone], self.dst[gone] = new_src, new_dst
        return updates


def test_a_million_updates_leave_no_error():
    shape, rng = SHAPES["arxiv-like"], np.random.default_rng(20)
    src, dst = chung_lu(shape, 20)
    features = rng.standard_normal((shape.vertices, WIDTH), np.float32)
    engine = lg.Engine(two_layers(rng), lg.Graph(features, src, dst))
    feed = Feed(rng, src, dst, shape.vertices)
    before = engine.embeddings(np.arange(shape.vertices))
    for _ in range(1000):
        engine.apply(feed.batch(1000))
    assert engine.version == 1000
    edges = engine.graph.edges()
    held, expected = (np.sort(u * shape.vertices + v) for u, v in ((edges["src"], edges["dst"]), (feed.src, feed.dst)))
    np.testing.assert_array_equal(held, expected)
    engine.verify()
    assert (engine.embeddings(np.arange(shape.vertices)) != before).any(axis=1).mean() > 0.5


def single_updates(seed, count):
    """A graph, and a history of single updates of every kind that is legal on it, as plain calls."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, depth=2, weighted=True, family="graph_conv")
    graph, mirror = random_graph(np.random.default_rng(seed), model.input_width, True, vertices=60)
    return model, graph, [random_batch(rng, mirror, 1) for _ in range(count)]


def test_one_history_cut_in_many_ways_has_one_digest():
    seed, count = 31, 20_000
    model, first, history = single_updates(seed, count)
    scales = lg.Engine(model, first).scales
    ends = {}
    for size in (1, 7, 1000, count):
        for threads in (1, 2):
            graph, _ = random_graph(np.random.default_rng(seed), model.input_width, True, vertices=60)
            engine = lg.Engine(model, graph, threads=threads, scales=scales)
            start_digest = engine.state_digest()
            for start in range(0, count, size):
                batch = lg.Updates()
                for each in history[start : start + size]:
                    batch.extend(each)
                engine.apply(batch)
            engine.verify()
            assert engine.version == -(-count // size)
            assert engine.state_digest() != start_digest
            ends[size, threads] = engine.state_digest()
    assert len(set(ends.values())) == 1, f"seed {seed}: {ends}"


def test_ten_thousand_what_ifs_leave_every_bit():
    rng = np.random.default_rng(41)
    model = random_model(rng, depth=2)
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights, vertices=25)
    engine = lg.Engine(model, graph, threads=1)
    digest, vertices = engine.state_digest(), graph.vertices()
    rows, changed = engine.embeddings(vertices), 0
    for question in range(10_000):
        supposed = mirror.copy()
        updates = random_batch(rng, supposed, int(rng.integers(1, 6)))
        with engine.what_if(updates) as view:
            kept = np.array(sorted(supposed.rows.keys() & mirror.rows.keys()), np.int64)
            changed += view.embeddings(kept).tobytes() != rows[kept].tobytes()
        assert engine.state_digest() == digest, f"question {question}"
    engine.verify()
    assert changed > 5_000
    assert engine.version == 0
    np.testing.assert_array_equal(engine.embeddings(vertices), rows)
