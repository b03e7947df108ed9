"""Specs that read edges' attributes and types, against their formulas written out vertex by vertex."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ModelError, WidthMismatch
from livegnn.reference.evaluate import evaluate
from livegnn.testing.oracle import check_rows

rng = np.random.default_rng(11)
N, M, F, H, C, A = 8, 30, 4, 2, 3, 2
SRC, DST = rng.integers(0, N - 2, M), rng.integers(0, N - 2, M)
SRC[:4] = DST[:4]  # self-loops
SRC[4:6], DST[4:6] = SRC[:2], DST[:2]
TYPES = rng.integers(0, 3, M)


def array(*shape):
    return rng.standard_normal(shape).astype(np.float32)


X, E = array(N, F), array(M, A)
W, W2, WE, A1, A2, AE = array(H * C, F), array(H * C, F), array(H * C, A), array(H, C), array(H, C), array(H, C)


def run(layers):
    """The reference's outputs, which an engine's come near; also after storing."""
    model = lg.Model(layers)
    stored = lg.Model.from_arrays(*model.to_arrays())
    got, float32, again = (
        evaluate(each.to_arrays(), X, SRC, DST, None, dtype, E, TYPES)
        for each, dtype in ((model, np.float64), (model, np.float32), (stored, np.float64))
    )
    graph = lg.Graph(X, SRC, DST, edge_attr=E if model.attribute_width else None, edge_type=TYPES)
    engine = lg.Engine(model, graph, threads=1)
    check_rows(engine.embeddings(np.arange(N)), got, float32, "engine", on_edges=True)
    np.testing.assert_array_equal(again, got)
    return got


def in_edges(self_loops, fill):
    """Per vertex, its (source, attributes) pairs."""
    for v in range(N):
        chosen = [e for e in range(M) if DST[e] == v and not (self_loops and SRC[e] == v)]
        pairs = [(SRC[e], E[e].astype(np.float64)) for e in chosen]
        if self_loops:
            mean = np.mean([attributes for _, attributes in pairs], axis=0) if pairs else np.zeros(A)
            pairs.append((v, mean if fill == "mean" else np.full(A, fill)))
        yield v, pairs


def attend(score, message, self_loops, fill="mean"):
    """Softmax attention written out: score(u, v, e) (H,), message(u) (H, C); (N, H, C)."""
    y = np.zeros((N, H, C))
    for v, pairs in in_edges(self_loops, fill):
        if pairs:
            power = np.exp([score(u, v, attributes) for u, attributes in pairs])
            y[v] = np.einsum("eh,ehc->hc", power / power.sum(0), [message(u) for u, _ in pairs])
    return y


def leaky(x, slope):
    return np.where(x > 0, x, slope * x)


@pytest.mark.parametrize("fill", ["mean", 0.5])
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("edge", [True, False])
def test_gat(edge, self_loops, fill):
    h, e = (X.astype(np.float64) @ W.T).reshape(N, H, C), WE.astype(np.float64).reshape(H, C, A)

    def score(u, v, attributes):
        plain = (h[u] * A1).sum(1) + (h[v] * A2).sum(1)
        return leaky(plain + edge * ((e @ attributes) * AE).sum(1), 0.3)

    want = attend(score, lambda u: h[u], self_loops, fill).reshape(N, -1)
    options = {"weight_edge": WE, "att_edge": AE} if edge else {}
    got = run([lg.layers.GAT(W, A1, A2, slope=0.3, self_loops=self_loops, fill=fill, **options)])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)  # both edge weights are folded into one float32


def test_gat_options():
    bias, residual = array(C), array(C, F)
    h, t = (X.astype(np.float64) @ W.T).reshape(N, H, C), (X.astype(np.float64) @ W2.T).reshape(N, H, C)
    y = attend(lambda u, v, _: leaky((h[u] * A1).sum(1) + (t[v] * A2).sum(1), 0.2), lambda u: h[u], True)
    want = np.maximum(y.mean(1) + X.astype(np.float64) @ residual.T + bias, 0)
    layer = lg.layers.GAT(W, A1, A2, bias, weight_target=W2, concat=False, residual=residual, activation="relu")
    np.testing.assert_allclose(run([layer]), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_gatv2(self_loops, share):
    bias_source, bias_target = array(H * C), array(H * C)
    s = (X.astype(np.float64) @ W.T + bias_source).reshape(N, H, C)
    t = s if share else (X.astype(np.float64) @ W2.T + bias_target).reshape(N, H, C)
    e = WE.astype(np.float64).reshape(H, C, A)

    def score(u, v, attributes):
        return (leaky(s[u] + t[v] + e @ attributes, 0.2) * A1).sum(1)

    want = attend(score, lambda u: s[u], self_loops).reshape(N, -1)
    target = {} if share else {"weight_target": W2, "bias_target": bias_target}
    layer = lg.layers.GATv2(W, A1, weight_edge=WE, bias_source=bias_source, self_loops=self_loops, **target)
    np.testing.assert_allclose(run([layer]), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max", "min"])
def test_gine(aggregate):
    edge, bias, dense = array(F, A), array(F), array(2, F)
    messages = np.maximum(X[SRC].astype(np.float64) + E.astype(np.float64) @ edge.T + bias, 0)
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[aggregate]
    a = [reduce(messages[v == DST], axis=0) if (v == DST).any() else np.zeros(F) for v in range(N)]
    want = (1.25 * X.astype(np.float64) + a) @ dense.T
    got = run([lg.layers.GINE([lg.layers.Dense(dense)], edge, bias, eps=0.25, aggregate=aggregate)])
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max", "min"])
def test_rgcn(aggregate):
    weight, root, bias = array(2, 3, F), array(3, F), array(3)  # type 2 is not known and counts for nothing
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[aggregate]
    want = X.astype(np.float64) @ root.T + bias
    for r in range(2):
        for v in range(N):
            rows = X[SRC[(v == DST) & (r == TYPES)]].astype(np.float64)
            if len(rows):
                want[v] += weight[r] @ reduce(rows, axis=0)
    layer = lg.layers.RGCN(weight, root, bias, aggregate=aggregate)
    np.testing.assert_allclose(run([layer]), want, rtol=1e-9, atol=1e-12)
    assert lg.Model([layer]).uses_types


def test_widths_are_told():
    model = lg.Model([lg.layers.GAT(W, A1, A2, weight_edge=WE, att_edge=AE), lg.layers.RGCN(array(2, 3, H * C))])
    assert (model.input_width, model.output_width, model.attribute_width, model.depth) == (F, 3, A, 2)
    assert lg.Model([lg.layers.GINE([lg.layers.Dense(array(3, F))])]).attribute_width == F


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: lg.layers.GAT(W, array(H, C + 1), A2),
            r"\[GAT.weight\] expected an array of shape \(8, in\), got \(6, 4\)",
        ),
        (
            lambda: lg.layers.GAT(W, array(H * C), A2),
            r"\[GAT.att_source\] expected an array of shape \(heads, columns\)",
        ),
        (lambda: lg.layers.GAT(W, A1, A2, weight_edge=array(5, A), att_edge=AE), r"\[GAT.weight_edge\]"),
        (lambda: lg.layers.GATv2(W, A1, weight_target=array(3, F)), r"\[GATv2.weight_target\]"),
        (lambda: lg.layers.RGCN(array(3, F)), r"\[RGCN\] expected weights of shape \(types, out, in\)"),
        (lambda: lg.layers.GINE([lg.layers.Dense(array(3, F))], array(3, A)), r"\[GINE.weight_edge\]"),
    ],
)
def test_shapes_that_do_not_fit(make, message):
    with pytest.raises(WidthMismatch, match=message):
        lg.Model([make()])


def test_what_cannot_be():
    with pytest.raises(ModelError, match="got one of them; pass both or neither"):
        lg.Model([lg.layers.GAT(W, A1, A2, weight_edge=WE)])
    with pytest.raises(ModelError, match=r"\[RGCN\] expected aggregate sum, max, min, median or mean, got 'mul'"):
        lg.Model([lg.layers.RGCN(array(2, 3, F), aggregate="mul")])
    with pytest.raises(WidthMismatch, match=r"attributes of one width, got layers that read \[2, 6\]"):
        lg.Model(
            [lg.layers.GAT(W, A1, A2, weight_edge=WE, att_edge=AE), lg.layers.GINE([lg.layers.Dense(array(2, H * C))])]
        )
