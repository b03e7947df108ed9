"""Engines on demand give an eager engine's bits, whatever is asked for and when."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.testing import graph_columns, random_batch, random_graph, random_model
from livegnn.testing.edge_models import EDGE_FAMILIES
from livegnn.testing.models import FAMILIES


def run(seed, mode, *, batches=12, family=None, threads=1):
    """Random batches and queries on one graph with an eager and a lazy engine attached."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, family=family, depth=int(rng.integers(1, 4)), on_edges=True)
    weighted = model.uses_weights or bool(rng.integers(2))
    graph, mirror = random_graph(rng, model.input_width, weighted, **graph_columns(model))
    eager = lg.Engine(model, graph, threads=1)
    lazy = lg.Engine(model, graph, mode=mode, hot=2, threads=threads, scales=eager.scales)
    for batch in range(batches):
        graph.apply(random_batch(rng, mirror, int(rng.integers(1, 7))))
        for _ in range(int(rng.integers(3))):
            live = graph.vertices()
            asked = rng.choice(live, int(rng.integers(1, min(4, len(live)) + 1)))
            assert lazy.embeddings(asked).tobytes() == eager.embeddings(asked).tobytes(), f"seed {seed} batch {batch}"
        if rng.integers(6) == 0:
            with lazy.what_if(random_batch(rng, mirror.copy(), 3)) as view:
                view.embeddings(view.vertices[:1])
        if rng.integers(5) == 0:
            assert lazy.state_digest() == eager.state_digest()
    live = graph.vertices()
    assert lazy.embeddings(live).tobytes() == eager.embeddings(live).tobytes()
    lazy.verify()
    assert lazy.state_digest() == eager.state_digest()


@settings(max_examples=80)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["on_demand", "hybrid"]), st.sampled_from([1, 2]))
def test_any_interleaving_of_updates_and_queries(seed, mode, threads):
    run(seed, mode, threads=threads)


@pytest.mark.parametrize("family", [*FAMILIES, *EDGE_FAMILIES])
def test_every_family(family):
    for seed in range(4):
        run(seed, "on_demand", family=family)


def big(mode):
    rng = np.random.default_rng(0)
    n = 3000
    layers = [
        lg.layers.SAGE(rng.standard_normal((8, 8)), rng.standard_normal((8, 8)), activation="relu") for _ in range(2)
    ]
    graph = lg.Graph(
        rng.standard_normal((n, 8)).astype(np.float32), rng.integers(0, n, 12_000), rng.integers(0, n, 12_000)
    )
    return lg.Engine(lg.Model(layers), graph, mode=mode, threads=1), rng, n


def change(rng, n, count):
    updates = lg.Updates()
    for v in rng.choice(n, count, replace=False):
        updates.set_features(int(v), rng.standard_normal(8).astype(np.float32))
    return updates


def test_a_query_for_one_vertex_computes_a_few_rows():
    live, rng, n = big("on_demand")
    for _ in range(5):
        live.apply(change(rng, n, 100))
    live.embeddings([0])
    assert not live.last_demand.whole
    assert live.last_demand.rows < 60
    live.embeddings([0])
    assert live.last_demand.rows == 0  # it is fresh now
    live.verify()


def test_a_query_for_all_brings_everything_up_to_date():
    live, rng, n = big("on_demand")
    live.apply(change(rng, n, 500))
    live.embeddings(np.arange(n))
    assert live.last_demand.whole
    live.embeddings([1])
    assert live.last_demand.rows == 0


def test_hot_vertices_are_fresh_before_they_are_asked_for():
    live, rng, n = big("hybrid")
    for _ in range(3):
        live.embeddings([7, 8])
    live.apply(change(rng, n, 200))
    live.embeddings([7, 8])
    assert live.last_demand.rows == 0
    live.verify()


def test_nothing_pending_costs_nothing():
    live, _, n = big("on_demand")
    live.embeddings(np.arange(n))
    assert live.last_demand == type(live.last_demand)()


def far(value=1e7):
    updates = lg.Updates()
    updates.set_features(5, np.full(8, value, np.float32))
    return updates


def test_an_overflow_shows_every_time_it_is_asked_for_until_it_is_mended():
    live, rng, n = big("on_demand")
    live.apply(far(1e20))
    for _ in range(4):
        with pytest.raises(lg.errors.RangeOverflow):
            live.complete()
        with pytest.raises(lg.errors.RangeOverflow):
            live.embeddings(np.arange(n))
    live.apply(change(rng, n, 20))
    with pytest.raises(lg.errors.RangeOverflow):
        live.complete()
    live.apply(far(1.0))
    assert live.embeddings(np.arange(n)).tobytes() == live.recompute().tobytes()
    live.verify()


def test_rescale_mends_an_overflow():
    live, _, _ = big("on_demand")
    live.apply(far())
    with pytest.raises(lg.errors.RangeOverflow):
        live.complete()
    live.rescale()
    live.verify()
    assert live.embeddings([5]).tobytes() == live.recompute()[[5]].tobytes()


def test_a_batch_that_is_refused_while_an_overflow_is_pending():
    rng = np.random.default_rng(1)
    n = 60
    weight = rng.random(200).astype(np.float32)
    graph = lg.Graph(rng.standard_normal((n, 8)).astype(np.float32), *rng.integers(0, n, (2, 200)), weight=weight)
    sums = [lg.layers.SAGE(rng.standard_normal((8, 8)), aggregate="sum") for _ in range(2)]
    first = lg.Engine(lg.Model(sums), graph, mode="on_demand", threads=1)
    second = lg.Engine(lg.Model([lg.layers.GCN(np.eye(8), weighted=True)]), graph, mode="on_demand", threads=1)
    first.apply(far(1e20))
    updates = lg.Updates()
    updates.add_edge(1, 2, weight=-100.0)
    with pytest.raises(lg.errors.DegreeNegative):
        graph.apply(updates)
    graph.apply(far(1.0))
    for engine in (first, second):
        engine.verify()
        assert engine.embeddings(np.arange(n)).tobytes() == engine.recompute().tobytes()


def test_hot_vertices_out_of_range_do_not_fail_the_batch():
    live, _, n = big("hybrid")
    seen = []
    live.on_change(lambda changes: seen.append(changes.version))
    live.embeddings(np.arange(0, 100))
    live.apply(far(1e20))
    assert seen == [1]
    with pytest.raises(lg.errors.RangeOverflow):
        live.embeddings(np.arange(n))


def test_beside_the_what_if_of_another_engine():
    live, rng, n = big("on_demand")
    other = lg.Engine(live.model, live.graph, threads=1)
    live.apply(change(rng, n, 50))
    with other.what_if(change(rng, n, 5)):
        assert live.embeddings(np.arange(n)).tobytes() == other.embeddings(np.arange(n)).tobytes()
    live.verify()


def test_a_closed_engine_keeps_its_last_rows():
    live, rng, n = big("on_demand")
    live.apply(change(rng, n, 50))
    expected = live.recompute()
    live.close()
    live.graph.apply(change(rng, n, 50))
    assert live.embeddings(np.arange(n)).tobytes() == expected.tobytes()


def test_a_batch_that_fails_elsewhere_leaves_what_was_pending():
    live, rng, n = big("on_demand")
    strict = lg.Engine(live.model, live.graph, threads=1)
    live.graph.apply(change(rng, n, 50))
    updates = lg.Updates()
    updates.set_features(5, np.full(8, 1e7, np.float32))
    with pytest.raises(lg.errors.RangeOverflow):
        live.graph.apply(updates)
    asked = np.arange(0, n, 7)
    assert live.embeddings(asked).tobytes() == strict.embeddings(asked).tobytes()
    live.verify()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "lazy"}, "expected mode to be one of eager, on_demand, hybrid, got 'lazy'"),
        ({"mode": "on_demand", "state": "compact"}, "with mode='on_demand'"),
        ({"mode": "hybrid", "strategy": "full"}, "with mode='hybrid'"),
        ({"mode": "hybrid", "hot": 0}, "expected hot as an int of at least 1, got 0"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    engine, _, _ = big("eager")
    with pytest.raises(lg.errors.ValueInvalid, match=message):
        lg.Engine(engine.model, engine.graph, **options)


def test_a_saved_engine_keeps_its_mode(tmp_path):
    live, rng, n = big("on_demand")
    live.apply(change(rng, n, 30))
    live.save(tmp_path / "engine.lg")
    loaded = lg.Engine.load(tmp_path / "engine.lg")
    assert loaded.mode == "on_demand"
    assert loaded.state_digest() == live.state_digest()


def twins(model, x, src, dst, **columns):
    """An eager engine and one on demand, with the same units, on graphs of their own."""
    eager = lg.Engine(model, lg.Graph(x, src, dst, **columns), threads=1)
    lazy = lg.Engine(model, lg.Graph(x, src, dst, **columns), threads=1, mode="on_demand", scales=eager.scales)
    return eager, lazy


def apply_to_both(engines, change_of):
    for engine in engines:
        updates = lg.Updates()
        change_of(updates)
        engine.apply(updates)


def test_what_a_query_does_not_need_cannot_fail_it():
    """Vertex 0 loses its in-edges and shrinks: its old row with its new degree factor would be out of range."""
    n, many = 200, 63
    src = np.concatenate([np.arange(1, many + 1), [0], np.arange(100, 199)])
    dst = np.concatenate([np.zeros(many, np.int64), [150], np.arange(101, 200)])
    eye = np.eye(4, dtype=np.float32)
    both = twins(lg.Model([lg.layers.GCN(eye), lg.layers.GCN(eye)]), np.ones((n, 4), np.float32), src, dst)
    eager, lazy = both
    apply_to_both(both, lambda u: u.set_features(0, np.full(4, 1500.0, np.float32)))
    lazy.complete()

    def shrink(updates):
        for v in range(1, many + 1):
            updates.remove_edge(v, 0)
        updates.remove_edge(0, 150)
        updates.set_features(0, np.ones(4, np.float32))
        updates.set_features(180, np.full(4, 2.0, np.float32))

    apply_to_both(both, shrink)
    for asked in ([180], [150], [0]):
        assert lazy.embeddings(asked).tobytes() == eager.embeddings(asked).tobytes()
    lazy.verify()


def test_batches_that_fit_one_by_one_fit_together():
    """Merged, the old message of vertex 5 would travel along its new, heavy edge before the new one takes its place."""
    n, eye = 50, np.eye(4, dtype=np.float32)
    model = lg.Model([lg.layers.GraphConv(eye, eye, weighted=True) for _ in range(2)])
    src = np.arange(n - 1)
    both = twins(model, np.ones((n, 4), np.float32), src, src + 1, weight=np.ones(n - 1, np.float32))
    eager, lazy = both
    apply_to_both(both, lambda u: u.set_features(5, np.full(4, 200.0, np.float32)))
    lazy.complete()
    apply_to_both(both, lambda u: u.set_features(5, np.ones(4, np.float32)))
    apply_to_both(both, lambda u: u.add_edge(5, 20, weight=100.0))
    assert lazy.embeddings([20]).tobytes() == eager.embeddings([20]).tobytes()
    assert lazy.state_digest() == eager.state_digest()
    lazy.verify()


def test_what_is_pending_does_not_grow_without_end():
    live, rng, n = big("on_demand")
    since, longest = 0, 0
    for _ in range(60):
        live.apply(change(rng, n, 20))
        live.embeddings([int(rng.integers(n))])
        since = 0 if live.last_demand.whole else since + 1
        longest = max(longest, since)
    assert 0 < longest < 20
    live.verify()
