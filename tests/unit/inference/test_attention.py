"""Split sums of separable attention: against the formula, across every border, and bit for bit."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.models import edges, ir
from livegnn.models.compile_layout import separate
from tests.unit.inference.attention_models import attention, check, model, scalar


def test_the_form_is_recognised_and_others_are_not():
    x, rng = ir.Input(4), np.random.default_rng(0)
    gather = attention(x, rng, 6, 2)
    parts = separate(gather)
    assert parts is not None
    assert parts.slope == 0.2
    score = gather.score
    assert isinstance(score, ir.Activation)
    for other in (
        ir.Activation(score.x, "relu"),
        ir.Activation(score.x, "leaky_relu", 1.5),
        ir.Activation(score.x, "leaky_relu", -0.1),
        ir.Activation(ir.Combine(((2.0, score.x),)), "leaky_relu", 0.2),
    ):
        assert separate(edges.Gather(gather.message, "softmax", other, 2)) is None
    scaled = edges.HeadScale(gather.message, ir.Slice(gather.message, 0, 2), 2)
    assert separate(edges.Gather(scaled, "softmax", score, 2)) is None


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
def test_a_target_that_moves_across_every_source(slope):
    features = np.array([[0, 0, 0]] + [[t, 0, t * t + 1] for t in (-7, -3, -0.5, 0, 0.5, 2, 6)], np.float32)
    src, dst = list(range(1, 8)), [0] * 7
    live = lg.Engine(scalar(slope), lg.Graph(features, src, dst), threads=1)
    for s in (0, 0.4, -0.4, 3, 3.5, -6, 8, -9, 0, -0.0, 100, -100, 0.5):
        features[0, 1] = s
        updates = lg.Updates()
        updates.set_features(0, features[0])
        live.apply(updates)
        check(live, features, src, dst, slope)


def test_sources_that_move_far_up_and_down():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((9, 3)).astype(np.float32)
    src, dst = [*range(1, 9), 1, 0], [0] * 9 + [3]
    live = lg.Engine(scalar(), lg.Graph(features, src, dst), threads=1)
    for _ in range(60):
        u = int(rng.integers(9))
        features[u] = rng.standard_normal(3) * rng.choice([0.1, 3, 30, 300], 3) * [1, 1, 0.1]
        updates = lg.Updates()
        updates.set_features(u, features[u])
        live.apply(updates)
        check(live, features, src, dst)


def test_edges_come_and_go_until_nothing_is_left():
    rng = np.random.default_rng(2)
    features = (rng.standard_normal((8, 3)) * 5).astype(np.float32)
    live = lg.Engine(scalar(), lg.Graph(features, [], []), threads=1)
    src: list[int] = []
    dst: list[int] = []
    for step in range(80):
        updates = lg.Updates()
        if src and (step > 60 or rng.integers(2)):
            i = int(rng.integers(len(src)))
            updates.remove_edge(src[i], dst[i])
            del src[i], dst[i]
        else:
            u, v = (int(each) for each in rng.integers(0, 8, 2))
            updates.add_edge(u, v)
            src.append(u)
            dst.append(v)
        live.apply(updates)
        check(live, features, src, dst)


def test_weights_far_below_the_top_do_not_disturb_it():
    features = np.array([[0, 0, 0], [50, 0, 1], [-50, 0, 1e3], [-500, 0, 1e3]], np.float32)
    live = lg.Engine(scalar(), lg.Graph(features, [1, 2, 3], [0, 0, 0]), threads=1)
    assert live.embeddings([0])[0, 0] == pytest.approx(1.0 + 1e3 * np.exp(-60.0), rel=1e-6)
    updates = lg.Updates()
    updates.remove_edge(1, 0)
    live.apply(updates)
    assert live.embeddings([0])[0, 0] == pytest.approx(1e3, rel=1e-6)
    live.verify()


@pytest.mark.parametrize("score", [2e6, -2e6, 1e10, -1e12, 3e38])
@pytest.mark.parametrize("column", [0, 1])
def test_a_score_without_bounds_is_refused_and_rolled_back(score, column):
    features = np.zeros((3, 3), np.float32)
    live = lg.Engine(scalar(), lg.Graph(features, [0], [1]), threads=1)
    before = live.state_digest()
    row = np.zeros(3)
    row[column] = score
    for vertex in (0, 1, 2):  # with out-edges, with in-edges, with none
        updates = lg.Updates()
        updates.set_features(vertex, row)
        with pytest.raises(lg.errors.RangeOverflow, match=rf"attention scores .* at vertex {vertex}"):
            live.apply(updates)
    assert live.state_digest() == before
    live.verify()
    for vertex in (0, 2):
        made = np.zeros((3, 3), np.float32)
        made[vertex, column] = score
        with pytest.raises(lg.errors.RangeOverflow, match=rf"attention scores .* at vertex {vertex}"):
            lg.Engine(scalar(), lg.Graph(made, [0, 2], [1, 0]), threads=1)


def test_a_row_that_is_not_finite_is_refused():
    x = ir.Input(1)
    model = lg.Model.from_output(edges.Gather(ir.Activation(edges.Source(x), "exp")))
    live = lg.Engine(model, lg.Graph(np.zeros((2, 1), np.float32), [0], [1]), threads=1)
    updates = lg.Updates()
    updates.set_features(0, [1000.0])
    with pytest.raises(lg.errors.RangeOverflow, match=r"expected finite messages .* at vertex 1"):
        live.apply(updates)
    live.verify()


@pytest.mark.parametrize("loops", ["keep", "drop", "replace"])
def test_constrained_and_incremental_are_the_same_state(loops):
    rng = np.random.default_rng(3)
    made = model(rng, loops=loops, size=3.0)
    n = 40
    features = rng.standard_normal((n, 5)).astype(np.float32)
    graph = lg.Graph(features, rng.integers(0, n, 160), rng.integers(0, n, 160))
    split = lg.Engine(made, graph, threads=2)
    constrained = lg.Engine(made, graph, "constrained", threads=1)
    gathered = lg.Engine(made, graph, "affected", threads=2)
    for _ in range(40):
        updates = lg.Updates()
        updates.set_features(int(rng.integers(n)), rng.standard_normal(5).astype(np.float32))
        updates.add_edges(rng.integers(0, n, 2), rng.integers(0, n, 2))
        listed = graph.edges()
        i = int(rng.integers(len(listed["src"])))
        updates.remove_edge(int(listed["src"][i]), int(listed["dst"][i]))
        graph.apply(updates)
        assert split.state_digest() == constrained.state_digest()
        assert split.embeddings(np.arange(n)).tobytes() == constrained.embeddings(np.arange(n)).tobytes()
        np.testing.assert_allclose(
            split.embeddings(np.arange(n)), gathered.embeddings(np.arange(n)), rtol=1e-4, atol=3e-6
        )
    split.verify()
    constrained.verify()
    gathered.verify()


def test_what_if_leaves_no_trace():
    rng = np.random.default_rng(4)
    made, n = model(rng), 30
    graph = lg.Graph(rng.standard_normal((n, 5)).astype(np.float32), rng.integers(0, n, 90), rng.integers(0, n, 90))
    live = lg.Engine(made, graph, threads=2)
    before = live.state_digest()
    for _ in range(30):
        updates = lg.Updates()
        updates.set_features(int(rng.integers(n)), rng.standard_normal(5).astype(np.float32) * 4)
        updates.add_edge(int(rng.integers(n)), int(rng.integers(n)))
        with live.what_if(updates):
            pass
        assert live.state_digest() == before
    live.verify()


def test_one_batch_or_many_give_the_same_state():
    rng = np.random.default_rng(5)
    made, n = model(rng), 30
    features = rng.standard_normal((n, 5)).astype(np.float32)
    src, dst = rng.integers(0, n, (2, 90))
    changes = [(int(rng.integers(n)), rng.standard_normal(5).astype(np.float32)) for _ in range(40)]
    added = rng.integers(0, n, (40, 2))
    digests = set()
    for size, threads in ((1, 1), (7, 2), (40, 2)):
        live = lg.Engine(made, lg.Graph(features, src, dst), threads=threads)
        for first in range(0, 40, size):
            updates = lg.Updates()
            for (v, row), (u, w) in zip(changes[first : first + size], added[first : first + size], strict=True):
                updates.set_features(v, row)
                updates.add_edge(int(u), int(w))
            live.apply(updates)
        live.verify()
        digests.add(live.state_digest())
    assert len(digests) == 1


def test_when_most_sources_move_all_rows_are_summed_again():
    """Three engines, three ways: in one batch (a sweep), vertex by vertex (pushes), and what a what_if leaves."""
    rng = np.random.default_rng(6)
    made, n = model(rng), 60
    src, dst = rng.integers(0, n, (2, 900))
    features = rng.standard_normal((n, 5)).astype(np.float32)
    at_once, one_by_one, asked = (
        lg.Engine(made, lg.Graph(features, src, dst), threads=threads) for threads in (2, 1, 2)
    )
    for _ in range(4):
        whole = lg.Updates()
        for v in range(n):
            row = rng.standard_normal(5).astype(np.float32)
            whole.set_features(v, row)
            single = lg.Updates()
            single.set_features(v, row)
            assert "sweep" not in {layer.path for layer in one_by_one.apply(single).stats.layers[:1]}
        before = asked.state_digest()
        with asked.what_if(whole):
            pass
        assert asked.state_digest() == before
        assert [layer.path for layer in at_once.apply(whole).stats.layers] == ["sweep", "sweep", "none"]
        asked.apply(whole)
        assert at_once.state_digest() == one_by_one.state_digest() == asked.state_digest()
        at_once.verify()
        few = lg.Updates()  # small moves after the sweep, which has dropped what was known of borders
        few.set_features(3, row + 0.01)
        few.add_edge(3, 4)
        for engine in (at_once, one_by_one, asked):
            engine.apply(few)
        at_once.verify()
