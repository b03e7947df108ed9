"""Small moves of a hub's score look at what is next to the border alone; the sums are those of a look at everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.models import ir
from tests.unit.inference.attention_models import attention, check, model, scalar

HUB, SOURCES = 0, 400


def hub(rng, *, ties=False):
    """Features, src and dst of one hub whose in-neighbours' scores lie between -3 and 3."""
    features = rng.standard_normal((SOURCES + 1, 3)).astype(np.float32)
    if ties:
        features[:, 0] = np.round(features[:, 0] * 32) / 32
    features[HUB] = 0
    return features, list(range(1, SOURCES + 1)), [HUB] * SOURCES


def live_hub(seed, **options):
    rng = np.random.default_rng(seed)
    features, src, dst = hub(rng, **options)
    return rng, features, src, dst, lg.Engine(scalar(), lg.Graph(features, src, dst), threads=1)


def put(live, features, v):
    updates = lg.Updates()
    updates.set_features(v, features[v])
    return live.apply(updates).stats.layers[0].scanned


def creep(live, features, by):
    features[HUB, 1] += by
    return put(live, features, HUB)


@pytest.mark.parametrize("ties", [False, True])
def test_a_border_that_creeps_looks_at_a_window_and_one_that_leaps_at_everything(ties):
    _, features, src, dst, live = live_hub(0, ties=ties)
    looked_at = []
    for step in range(60):
        features[HUB, 1] = 0.001 * step * (-1) ** step  # ever wider, on both sides
        looked_at.append(put(live, features, HUB))
        check(live, features, src, dst)
    assert sorted(looked_at[2:])[len(looked_at) // 2] <= 64
    features[HUB, 1] = 2.0
    assert put(live, features, HUB) == SOURCES
    check(live, features, src, dst)


def test_sources_and_edges_come_into_a_window_and_leave_it():
    rng, features, src, dst, live = live_hub(1)
    by_window = 0
    for step in range(300):
        kind = step % 4
        if kind == 0:
            by_window += creep(live, features, 0.01 * rng.standard_normal()) < len(src)
        elif kind == 1:
            u = int(rng.integers(1, SOURCES + 1))
            features[u, :1] = -features[HUB, 1] + 0.05 * rng.standard_normal()
            put(live, features, u)
        else:
            updates = lg.Updates()
            i = int(rng.integers(len(src)))
            if kind == 2:  # a parallel edge, most often of a source that is listed
                near = np.abs(features[src, 0] + features[HUB, 1])
                src.append(src[int(np.argmin(near))])
                dst.append(HUB)
                updates.add_edge(src[-1], HUB)
            else:
                updates.remove_edge(src[i], HUB)
                del src[i], dst[i]
            live.apply(updates)
        if step % 5 == 0:
            check(live, features, src, dst)
    check(live, features, src, dst)
    assert by_window > 60


def test_more_sources_than_a_window_has_places_for():
    _, features, src, dst, live = live_hub(2)
    for s in (0.001, 0.002):
        features[HUB, 1] = s
        put(live, features, HUB)
    updates = lg.Updates()
    for u in range(1, 200):
        features[u, 0] = 0.0005 * (u - 100)
        updates.set_features(u, features[u])
    live.apply(updates)
    for s in (0.003, -0.001, 0.01, -0.03, 0.0, 0.05):
        features[HUB, 1] = s
        put(live, features, HUB)
        check(live, features, src, dst)


def test_a_what_if_leaves_windows_as_the_graph_has_them():
    rng, features, src, dst, live = live_hub(3)
    for step in range(30):
        creep(live, features, 0.003 * rng.standard_normal())
        other = lg.Updates()
        u = int(rng.integers(1, SOURCES + 1))
        other.set_features(u, np.array([-features[HUB, 1], 0, 1], np.float32))
        other.set_features(HUB, np.array([0, features[HUB, 1] + 0.004, 1], np.float32))
        other.remove_edge(1 + step, HUB)
        digest = live.state_digest()
        with live.what_if(other):
            pass
        assert live.state_digest() == digest
        check(live, features, src, dst)


def test_a_batch_that_is_refused_leaves_windows_as_the_graph_has_them():
    rng, features, src, dst, live = live_hub(4)
    for _ in range(10):
        creep(live, features, 0.003 * rng.standard_normal())
        bad = lg.Updates()
        bad.set_features(5, np.array([-features[HUB, 1], 0, 1], np.float32))
        bad.set_features(HUB, np.array([0, 2e6, 0], np.float32))
        with pytest.raises(lg.errors.RangeOverflow):
            live.apply(bad)
        check(live, features, src, dst)


def test_a_source_is_removed_and_its_place_taken():
    rng, features, src, dst, live = live_hub(5)
    for _ in range(20):
        creep(live, features, 0.003 * rng.standard_normal())
        u = int(np.argmin(np.abs(features[1:, 0] + features[HUB, 1]))) + 1
        gone = lg.Updates()
        gone.remove_vertex(u)
        live.apply(gone)
        features[u] = rng.standard_normal(3)
        again = lg.Updates()
        again.add_vertex(u, features[u])
        again.add_edge(u, HUB)
        live.apply(again)
        check(live, features, src, dst)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["keep", "drop", "replace"]))
def test_dense_graphs_in_any_batching_and_mode(seed, loops):
    """Two layers of two heads on graphs of hubs alone: what is listed of the second layer follows from the first."""
    rng = np.random.default_rng(seed)
    n, edges = 10, 900
    made = model(rng, loops=loops)
    features = rng.standard_normal((n, 5)).astype(np.float32)
    src, dst = rng.integers(0, n, (2, edges))

    def graph():
        return lg.Graph(features, src, dst)

    live = [
        lg.Engine(made, graph(), threads=threads, strategy=strategy)
        for threads, strategy in ((1, "incremental"), (2, "incremental"), (1, "constrained"))
    ]
    asked = lg.Engine(made, graph(), mode="on_demand", threads=1, scales=live[0].scales)
    merged = lg.Updates()
    for _ in range(24):
        updates = lg.Updates()
        kind = int(rng.integers(3))
        if kind == 0:
            v = int(rng.integers(n))
            features[v] += (0.02 * rng.standard_normal(5)).astype(np.float32)
            updates.set_features(v, features[v])
        else:
            u, v = (int(x) for x in rng.integers(0, n, 2))
            updates.add_edge(u, v)
            if kind == 2:
                updates.remove_edge(u, v)
                updates.add_edge(v, u)
        merged.extend(updates)
        live[0].apply(updates)
        live[2].apply(updates)
        asked.apply(updates)
        if rng.integers(3) == 0:
            live[1].apply(merged)
            merged = lg.Updates()
            assert live[1].state_digest() == live[0].state_digest()
        if rng.integers(3) == 0:
            v = [int(rng.integers(n))]
            assert asked.embeddings(v).tobytes() == live[0].embeddings(v).tobytes()
    live[1].apply(merged)
    assert len({engine.state_digest() for engine in (*live, asked)}) == 1
    for engine in (*live, asked):
        engine.verify()


def test_a_what_if_before_any_batch():
    _, features, src, dst, live = live_hub(6)
    refused = lg.Updates()
    refused.set_features(HUB, np.array([0, 2e6, 0], np.float32))
    with pytest.raises(lg.errors.RangeOverflow), live.what_if(refused):
        pass
    fine = lg.Updates()
    fine.set_features(HUB, np.array([0, 0.5, 0], np.float32))
    with live.what_if(fine):
        pass
    check(live, features, src, dst)


def test_a_what_if_after_a_batch_that_was_refused():
    _, features, src, dst, live = live_hub(7)
    for step in range(8):
        creep(live, features, 0.002)
        bad = lg.Updates()
        bad.set_features(HUB, np.array([0, 2e6, 0], np.float32))
        with pytest.raises(lg.errors.RangeOverflow):
            live.apply(bad)
        with pytest.raises(lg.errors.RangeOverflow), live.what_if(bad):
            pass
        other = lg.Updates()
        other.set_features(1 + step, np.array([-features[HUB, 1], 0, 1], np.float32))
        with live.what_if(other):
            pass
        check(live, features, src, dst)


def test_windows_take_at_most_a_quarter_of_the_rows():
    """Beside a constrained engine, which has all the scratch but windows and a pointer a vertex to find them by."""
    rng = np.random.default_rng(8)
    n, degree = 300, 60
    features = rng.standard_normal((n, 3)).astype(np.float32)
    graph = lg.Graph(features, rng.integers(0, n, n * degree), np.repeat(np.arange(n), degree))
    live, without = (lg.Engine(scalar(), graph, strategy, threads=2) for strategy in ("incremental", "constrained"))
    moved = lg.Updates()
    for v in range(n):
        features[v, 1] += 0.001
        moved.set_features(v, features[v])
    graph.apply(moved)
    bytes_of = live.state_bytes()
    windows = bytes_of["scratch"] - without.state_bytes()["scratch"] - 8 * (n + n // 2 + 16)
    assert 524 <= windows <= bytes_of["aggregates"] / 4 < 524 * n
    live.verify()


@pytest.mark.parametrize("options", [{"path": "push"}, {"path": "sweep"}, {"path": "pull"}, {"memory_limit": "4MiB"}])
def test_every_way_gives_the_same_state_on_an_undirected_graph_of_hubs(options):
    """Nine heads, so that what is done eight heads at a time is done again."""
    rng = np.random.default_rng(9)
    x: ir.Value = ir.Input(5)
    for _ in range(2):
        x = ir.Activation(attention(x, rng, 18, 9), "elu", 1.0)
    made, n = lg.Model.from_output(x), 12
    features = rng.standard_normal((n, 5)).astype(np.float32)
    src, dst = rng.integers(0, n, (2, 500))
    auto = lg.Engine(made, lg.Graph(features, src, dst, undirected=True), threads=1)
    other = lg.Engine(made, lg.Graph(features, src, dst, undirected=True), threads=2, scales=auto.scales, **options)
    for step in range(20):
        updates = lg.Updates()
        v = int(rng.integers(n))
        features[v] += (0.01 * rng.standard_normal(5)).astype(np.float32)
        updates.set_features(v, features[v])
        if step % 3 == 0:
            updates.add_edge(int(rng.integers(n)), int(rng.integers(n)))
        for engine in (auto, other):
            engine.apply(updates)
        assert auto.state_digest() == other.state_digest()
    for engine in (auto, other):
        engine.verify()


@pytest.mark.parametrize("change", ["swap", "rescale"])
def test_another_state_begins_without_windows(change):
    _, features, src, dst, live = live_hub(10)
    for step in range(12):
        creep(live, features, 0.002)
        if step % 4 == 3:
            live.swap(scalar(0.5)) if change == "swap" else live.rescale()
            check(live, features, src, dst, 0.5 if change == "swap" else 0.2)
    check(live, features, src, dst, 0.5 if change == "swap" else 0.2)


def test_a_query_on_demand_below_a_hub_counts_what_it_reads():
    """A source with nearly all edges has moved, and one vertex below it is asked for."""
    rng = np.random.default_rng(11)
    n = 2000
    features = rng.standard_normal((n, 3)).astype(np.float32)
    live = lg.Engine(
        scalar(), lg.Graph(features, np.zeros(n - 1, np.int64), np.arange(1, n)), mode="on_demand", threads=1
    )
    features[0] = rng.standard_normal(3)
    updates = lg.Updates()
    updates.set_features(0, features[0])
    live.apply(updates)
    got = live.embeddings([7])[0, 0]
    assert got == pytest.approx(features[0, 2], rel=1e-6)
    assert not live.last_demand.whole
    assert live.last_demand.edges < 10
    live.verify()
