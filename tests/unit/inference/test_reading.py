"""Reading outputs: rows, classes, probabilities, link scores."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.models import ir
from tests.unit.inference.samples import INT_IDS, STR_IDS, N, array, engine, graph, model, row, updates


def test_embeddings_are_rows_in_the_order_asked():
    e = engine()
    rows = e.embeddings([4, 0, 4])
    assert rows.dtype == np.float32
    assert rows.shape == (3, 3)
    np.testing.assert_array_equal(rows, e.recompute()[[4, 0, 4]])
    assert e.embeddings([]).shape == (0, 3)


def test_a_read_is_a_copy():
    e = engine()
    rows = e.embeddings([0])
    kept = rows.copy()
    rows[:] = 7
    np.testing.assert_array_equal(e.embeddings([0]), kept)
    e.apply(updates(("set_features", 0, row())))
    assert (rows == 7).all()


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([99], lg.errors.VertexUnknown, "99"),
        ([0, -1], lg.errors.ValueInvalid, "-1 at row 1"),
        (np.array([0.5]), lg.errors.DtypeInvalid, "float64"),
        (3, lg.errors.WidthMismatch, r"\(k,\)"),
        ([[0, 1]], lg.errors.WidthMismatch, r"\(k,\)"),
    ],
)
def test_bad_ids_are_named(ids, error, words):
    with pytest.raises(error, match=words):
        engine().embeddings(ids)


def test_a_removed_vertex_cannot_be_read_until_it_is_back():
    e = engine()
    e.apply(updates(("remove_vertex", 2)))
    with pytest.raises(lg.errors.VertexUnknown, match="2, which was removed"):
        e.embeddings([0, 2])
    e.apply(updates(("add_vertex", 2, row())))
    np.testing.assert_array_equal(e.embeddings([2]), e.recompute()[[2]])


def test_predict_is_the_largest_column():
    e = engine()
    classes = e.predict(range(N))
    assert classes.dtype == np.int64
    assert classes.tolist() == [int(np.argmax(r)) for r in e.embeddings(range(N))]
    assert len(set(classes.tolist())) > 1


def test_predict_of_one_column_is_its_sigmoid_without_overflow():
    wide = lg.Model([lg.layers.Dense(np.array([[1000.0, 0, 0, 0]], np.float32))])
    g = lg.Graph(np.eye(1, 4, dtype=np.float32) * np.array([[1], [-1], [0], [0.001]], np.float32), [], [])
    e = lg.Engine(wide, g)
    p = e.predict([0, 1, 2, 3])
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, [1, 0, 0.5, 1 / (1 + np.exp(-1))], rtol=1e-6)


def test_a_head_of_ones_own():
    e = engine()
    np.testing.assert_array_equal(e.predict([1, 2], head=lambda x: x.sum(axis=1)), e.embeddings([1, 2]).sum(axis=1))
    assert e.predict([1, 2], head=lambda x: x[:, 0].tolist()).shape == (2,)


def test_pairs_are_scored_by_the_dot_product():
    e = engine()
    scores = e.predict_edges([(0, 1), (1, 0), (3, 3)])
    rows = e.embeddings(range(N)).astype(np.float64)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, [rows[0] @ rows[1], rows[0] @ rows[1], rows[3] @ rows[3]], rtol=1e-6)
    assert e.predict_edges(np.empty((0, 2), np.int64)).shape == (0,)


def test_pairs_are_scored_by_the_models_edge_head():
    weight = array(1, 6, seed=5)
    plain = model()
    scored = lg.Model.from_output(plain.output, edge_head=ir.Linear(ir.Input(6), weight))
    e = lg.Engine(scored, graph())
    rows = e.embeddings([0, 1])
    scores = e.predict_edges([(0, 1), (1, 0)])
    np.testing.assert_allclose(scores, [weight[0] @ rows.ravel(), weight[0] @ rows[::-1].ravel()], rtol=1e-5)
    assert scores[0] != scores[1]


@pytest.mark.parametrize("pairs", [[0, 1], [(0, 1, 2)], np.zeros((2, 2, 2), np.int64)])
def test_pairs_of_another_shape_are_refused(pairs):
    with pytest.raises(lg.errors.WidthMismatch, match=r"\(k, 2\)"):
        engine().predict_edges(pairs)


@pytest.mark.parametrize("ids", [INT_IDS, STR_IDS])
def test_a_graph_with_ids_is_read_by_them(ids):
    plain, named = engine(), lg.Engine(model(), graph(ids), threads=1)
    np.testing.assert_array_equal(named.embeddings(ids[::-1]), plain.embeddings(range(N)[::-1]))
    np.testing.assert_array_equal(named.predict(ids), plain.predict(range(N)))
    pairs = [(ids[0], ids[1]), (ids[4], ids[2])]
    np.testing.assert_array_equal(named.predict_edges(pairs), plain.predict_edges([(0, 1), (4, 2)]))
    with pytest.raises(lg.errors.VertexUnknown):
        named.embeddings([ids[0], "zoe" if ids is STR_IDS else 7])


def test_recompute_has_zeros_for_removed_vertices_and_leaves_the_state_alone():
    e = engine()
    e.apply(updates(("remove_vertex", 1)))
    digest = e.state_digest()
    rows = e.recompute()
    assert rows.shape == (N, 3)
    assert not rows[1].any()
    assert rows[[0, 2, 3, 4, 5]].any(axis=1).all()
    rows[:] = 0
    assert e.state_digest() == digest
    assert e.recompute().any()
