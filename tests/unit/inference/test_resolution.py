"""What verify() cannot see: a grid chosen for messages that are no longer there."""

import logging

import numpy as np
import pytest

import livegnn as lg
from tests.unit.inference.samples import array, row, updates, weighted_gcn, weighted_graph
from tests.unit.models.hetero_samples import by_hand, shop

V, WIDTH = 60, 4
SRC, DST = np.random.default_rng(1).integers(0, V, (2, 240))
X = array(V, WIDTH, seed=2)
W, R, W2, R2 = array(6, WIDTH, seed=3), array(6, WIDTH, seed=4), array(3, 6, seed=5), array(3, 6, seed=6)


def engine(outlier, **options):
    """Two layers; vertex 5's features were `outlier` times its own when the engine was made."""
    x = X.copy()
    x[5] *= outlier
    model = lg.Model([lg.layers.GraphConv(W, R, activation="relu"), lg.layers.GraphConv(W2, R2)])
    return lg.Engine(model, lg.Graph(x, SRC, DST), threads=1, **options)


def truth():
    """The same model in float64, without the outlier."""
    h = X.astype(np.float64)
    for weight, root, last in ((W, R, False), (W2, R2, True)):
        a = np.zeros_like(h)
        np.add.at(a, DST, h[SRC])
        h = a @ weight.T.astype(np.float64) + h @ root.T.astype(np.float64)
        h = h if last else np.maximum(h, 0)
    return h


def error(e):
    """The largest error of a row beside the largest row."""
    return np.abs(e.embeddings(range(V)) - truth()).max() / np.abs(truth()).max()


def test_an_outlier_that_has_left_is_told_and_rescale_mends_it(caplog):
    e = engine(1e7)
    assert all(not layer.lost_bits.any() and not layer.coarse.size for layer in e.resolution())
    e.apply(updates(("set_features", 5, X[5])))
    e.verify()  # equal to a run from scratch on the same grid, bit for bit
    assert error(e) > 2e-6
    with caplog.at_level(logging.WARNING, "livegnn"):
        first, second = e.resolution()
    assert [layer.name for layer in (first, second)] == [
        "aggregation 1 (sum, width 4, layer 1)",
        "aggregation 2 (sum, width 3, layer 2)",
    ]
    assert (first.lost_bits >= 17).all()
    assert first.coarse.tolist() == [0, 1, 2, 3]
    assert "layer 1), column 0, 1, 2, 3: the largest message at version 1 is 2^-" in caplog.text
    assert "call rescale()" in caplog.text

    caplog.clear()
    digest = e.state_digest()
    e.resolution()
    assert e.state_digest() == digest  # it only looks
    caplog.clear()
    e.rescale()
    assert error(e) < 5e-7
    assert all(not layer.lost_bits.any() for layer in e.resolution())
    assert "call rescale()" not in caplog.text


@pytest.mark.parametrize(("outlier", "coarse"), [(1.0, False), (100.0, False), (1e4, False), (1e6, True)])
def test_what_counts_as_coarse(outlier, coarse):
    """Below it the error is that of float32 arithmetic."""
    e = engine(outlier)
    e.apply(updates(("set_features", 5, X[5])))
    assert any(layer.coarse.size for layer in e.resolution()) == coarse
    assert coarse or error(e) < 5e-7


def test_one_column_of_one_layer_is_named():
    x = X.copy()
    x[5, 2] *= 1e7
    e = lg.Engine(lg.Model([lg.layers.LG()], input_width=WIDTH), lg.Graph(x, SRC, DST), threads=1)
    e.apply(updates(("set_features", 5, X[5])))
    [layer] = e.resolution()
    assert 2 in layer.coarse.tolist()
    assert layer.lost_bits.argmax() == 2


def test_messages_that_grow_and_headroom():
    e = engine(1.0)
    e.apply(updates(("set_features", 5, 100 * X[5])))
    assert min(layer.lost_bits.min() for layer in e.resolution()) < 0
    e.rescale(headroom=2.0**12)
    assert all((layer.lost_bits == 3).all() for layer in e.resolution())


@pytest.mark.parametrize(
    "options",
    [{"state": "compact"}, {"mode": "on_demand"}, {"strategy": "affected"}, {"strategy": "full"}],
)
def test_it_is_the_same_in_every_kind_of_engine(options):
    plain, other = engine(1e7), engine(1e7, **options)
    for e in (plain, other):
        e.apply(updates(("set_features", 5, X[5])))
    want, got = ([layer.lost_bits.tolist() for layer in e.resolution()] for e in (plain, other))
    assert got == want


def test_what_is_on_no_grid_loses_nothing():
    x = X.copy()
    x[5] *= 1e7
    e = lg.Engine(lg.Model([lg.layers.SAGE(W, R, aggregate="max")]), lg.Graph(x, SRC, DST), threads=1)
    e.apply(updates(("set_features", 5, X[5])))
    [layer] = e.resolution()
    assert layer.lost_bits.tolist() == [0] * len(layer.lost_bits)


def test_weighted_models_and_what_if():
    e = lg.Engine(weighted_gcn(), weighted_graph(), threads=1)
    assert [layer.lost_bits.tolist() for layer in e.resolution()] == [[0] * len(e.scales[0])]
    with (
        e.what_if(updates(("set_features", 0, row()))),
        pytest.raises(lg.errors.UsageError, match="expected a committed version"),
    ):
        e.resolution()


def test_attention_and_vertex_types():
    """Every layer has as many columns as its exponents, and a grid made for the present loses nothing."""
    attention = lg.layers.GAT(array(6, WIDTH), array(2, 3, seed=1), array(2, 3, seed=2))
    e = lg.Engine(lg.Model([attention]), lg.Graph(X, SRC, DST), threads=1)
    for each in (e, lg.Engine(by_hand(), shop(), threads=1)):
        layers = each.resolution()
        assert [len(layer.lost_bits) for layer in layers] == [len(exponents) for exponents in each.scales[:-1]]
        assert layers
        assert not any(layer.lost_bits.any() for layer in layers)
    x = X * np.float32(2.0**-20)
    e.apply(updates(*(("set_features", v, x[v]) for v in range(V))))
    [layer] = e.resolution()
    assert (layer.lost_bits == 20).all()
