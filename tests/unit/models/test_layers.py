"""Layer specs against the reference's formulas, and models in an engine against the reference."""

import json

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ColumnMissing, ModelError, StoredStateInvalid, WidthMismatch
from livegnn.models import ir, layers
from livegnn.models.model import Model
from livegnn.reference.evaluate import evaluate
from livegnn.testing.oracle import check_rows
from tests.unit.models import layer_formulas as truth

rng = np.random.default_rng(7)
N, M, F = 9, 40, 4
SRC, DST = rng.integers(0, N - 2, M), rng.integers(0, N - 2, M)
SRC[:6] = DST[:6]  # self-loops, two of them doubled
SRC[6:8], DST[6:8] = SRC[:2], DST[:2]
WEIGHT = rng.uniform(0.1, 3, M).astype(np.float32)
X = rng.standard_normal((N, F)).astype(np.float32)


def array(*shape):
    return rng.standard_normal(shape).astype(np.float32)


W, V, B, P, C = array(3, F), array(3, F), array(3), array(F, F), array(F)
GRAPH = (X.astype(np.float64), SRC, DST)


def run(model, weight):
    """The reference's outputs, which an engine's come near."""
    structure, arrays = model.for_graph(weight is not None).to_arrays()
    truth_rows, float32 = (evaluate((structure, arrays), X, SRC, DST, weight, dtype) for dtype in (float, np.float32))

    def moved():
        """Every parameter a unit of its last place away: what float32 may lose."""
        for end in np.float32([-np.inf, np.inf]):
            spec = (structure, {name: np.nextafter(values, end) for name, values in arrays.items()})
            yield evaluate(spec, X, SRC, DST, weight, np.float32)

    engine = lg.Engine(model, lg.Graph(X, SRC, DST, weight=weight), threads=1)
    check_rows(engine.embeddings(np.arange(N)), truth_rows, float32, "engine", on_edges=True, more_float32=moved)
    return truth_rows


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("options", [{}, {"improved": True}, {"self_loops": False}, {"normalize": False}])
def test_gcn(options, weight):
    got = run(Model([layers.GCN(W, B, weighted=weight is not None, **options)]), weight)
    np.testing.assert_allclose(got, truth.gcn(*GRAPH, weight, W, B, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_graph_conv(aggregate, weight):
    got = run(Model([layers.GraphConv(W, V, B, aggregate=aggregate, weighted=weight is not None)]), weight)
    want = truth.graph_conv(*GRAPH, weight, W, V, B, aggregate=aggregate)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize("project", [None, (P, C)])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("root", [None, V])
def test_sage(root, normalize, project, aggregate):
    options = {"aggregate": aggregate, "project": project, "normalize": normalize}
    got = run(Model([layers.SAGE(W, root, B, **options)]), None)
    np.testing.assert_allclose(got, truth.sage(*GRAPH, W, root, B, **options), rtol=1e-9, atol=1e-12)


def test_gin():
    mean, var, gamma, beta = array(3), array(3) ** 2 + 0.1, array(3), array(3)
    mlp = [
        layers.Dense(W, B),
        layers.BatchNorm(mean, var, gamma, beta),
        layers.Activate("relu"),
        layers.Dense(array(2, 3)),
    ]
    got = run(Model([layers.GIN(mlp, eps=0.25)]), None)

    def formula(rows):
        h = rows @ W.astype(np.float64).T + B
        h = (h - mean) / np.sqrt(var.astype(np.float64) + 1e-5) * gamma + beta
        return np.maximum(h, 0) @ mlp[3].weight.astype(np.float64).T

    np.testing.assert_allclose(got, truth.gin(*GRAPH, formula, 0.25), rtol=2e-6, atol=2e-6)  # float32 scale and shift


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_propagations(weight):
    weighted = weight is not None
    for self_loops in (True, False):
        got = run(Model([layers.SGC(W, B, hops=3, self_loops=self_loops, weighted=weighted)]), weight)
        want = truth.sgc(*GRAPH, weight, W, B, hops=3, self_loops=self_loops)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    for normalize in (True, False):
        spec = layers.APPNP(2, 0.3, normalize=normalize, weighted=weighted)
        want = truth.appnp(*GRAPH, weight, hops=2, alpha=0.3, normalize=normalize)
        np.testing.assert_allclose(run(Model([spec], input_width=F), weight), want, rtol=1e-9, atol=1e-12)
        got = run(Model([layers.LG(normalize=normalize, weighted=weighted)], input_width=F), weight)
        np.testing.assert_allclose(got, truth.lg(*GRAPH, weight, normalize=normalize), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "options", [{}, {"lambda_max": 1.5}, {"normalization": "rw"}, {"normalization": None, "lambda_max": 7.0}]
)
@pytest.mark.parametrize("hops", [1, 2, 4])
def test_cheb(hops, options, weight):
    weights = [array(3, F) for _ in range(hops)]
    got = run(Model([layers.Cheb(weights, B, weighted=weight is not None, **options)]), weight)
    np.testing.assert_allclose(got, truth.cheb(*GRAPH, weight, weights, B, **options), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (layers.Cheb([]), "at least 1, got none"),
        (layers.Cheb([W], normalization="row"), "'sym', 'rw' or None, got 'row'"),
        (layers.Cheb([W, W], normalization=None), "lambda_max where normalization is None"),
        (layers.Cheb([W], lambda_max=0.0), "lambda_max above 0, got 0"),
        (layers.Cheb([W], lambda_max=float("nan")), "lambda_max above 0, got nan"),
    ],
)
def test_cheb_refuses(layer, match):
    with pytest.raises(ModelError, match=match):
        Model([layer])
    with pytest.raises(WidthMismatch, match="values of one width"):
        Model([layers.Cheb([W, array(2, F)])])


@pytest.mark.parametrize("norm", ["laplacian", "walk", "difference"])
def test_sums_over_out_degrees_have_no_extremes_no_loops_and_divide_by_no_negative_weights(norm):
    x = ir.Input(F)
    with pytest.raises(ModelError, match=f"norm sum or gcn with reduce max, got {norm}"):
        ir.Propagate(x, norm, reduce="max")
    with pytest.raises(ModelError, match=f"self_loops with norm gcn or a sum, got {norm}"):
        ir.Propagate(x, norm, self_loops=True)
    below = np.where(SRC == DST, -1.0, WEIGHT)  # self-loops leave the sum, whatever they weigh
    model = Model.from_output(ir.Propagate(x, norm, True))
    run(model, below)
    below[np.flatnonzero(SRC != DST)[0]] = -0.5
    if norm == "difference":
        run(model, below)
        return
    with pytest.raises(ValueError, match=r"edge weights of at least 0, got -0\.5"):
        evaluate(model.to_arrays(), X, SRC, DST, below)


@pytest.mark.parametrize("kind", [*ir.ACTIVATIONS, "softmax", "log_softmax"])
def test_activations_agree(kind):
    run(Model([layers.Dense(20 * W, B, activation=kind)]), None)


@pytest.mark.parametrize("kind", [*ir.ELEMENTWISE])
@pytest.mark.parametrize("narrow", [None, 0, 1])
def test_functions_of_several_values_agree(kind, narrow):
    x = ir.Input(F)
    inputs = [x, ir.Propagate(x), ir.Activation(x, "relu")][: ir.ELEMENTWISE[kind]]
    inputs.reverse()
    if narrow is not None:
        inputs[narrow] = ir.Slice(inputs[narrow], 1, 2)
    run(Model.from_output(ir.Elementwise(kind, tuple(inputs))), None)


def everything():
    """One value of every class of ir."""
    x = ir.Input(F)
    a = ir.Propagate(ir.PReLU(x, C), "gcn", True, True, 2.0)
    b = ir.LayerNorm(ir.Affine(ir.Linear(a, P, C), C, C), C, None, 1e-3)
    c = ir.Multiply(ir.Combine(((0.1, b), (-3.0, x))), ir.Slice(ir.Propagate(x, "mean"), 1, 2))
    d = ir.Maximum((ir.L2Normalize(c), ir.Softmax(a), ir.LogSoftmax(x)))
    e = ir.Elementwise("where", (ir.Elementwise("less", (x, b)), ir.Elementwise("divide", (d, ir.Slice(x, 0, 1))), a))
    output = ir.Concat((ir.Elementwise("minimum", (d, e)), ir.Activation(ir.Propagate(d), "leaky_relu", 0.2)))
    head = ir.Activation(ir.Linear(ir.Input(4 * F), array(1, 4 * F)), "sigmoid")
    return Model.from_output(output, edge_head=head, names={id(a): "first"})


def test_the_stored_form_is_json_and_arrays_and_loses_nothing():
    model = everything()
    structure, arrays = model.to_arrays()
    again = Model.from_arrays(json.loads(json.dumps(structure)), arrays)
    back, arrays_back = again.to_arrays()
    assert back == structure
    assert {key: value.tobytes() for key, value in arrays.items()} == {k: v.tobytes() for k, v in arrays_back.items()}
    assert again.name_of(ir.walk(again.output)[2]) == "first"
    assert again.edge_head is not None
    run(again, WEIGHT)


def test_optional_weights_survive_storing():
    x = ir.Input(F)
    model = Model.from_output(ir.Propagate(x, "sum", True), unweighted=ir.Propagate(x, "sum"))
    again = Model.from_arrays(*model.to_arrays())
    assert again.weights == "optional"
    assert again.for_graph(False).weights == "none"
    assert again.for_graph(True).weights == "required"
    spec = model.to_arrays()
    np.testing.assert_allclose(evaluate(spec, X, SRC, DST), truth.sum_messages(*GRAPH, None))
    np.testing.assert_allclose(evaluate(spec, X, SRC, DST, WEIGHT), truth.sum_messages(*GRAPH, WEIGHT))


@pytest.mark.parametrize(
    "damage",
    [
        lambda s, a: s.update(format=2),
        lambda s, a: s.pop("values"),
        lambda s, a: s["values"].pop(),
        lambda s, a: s["values"][1].update(inputs=[5]),
        lambda s, a: s["values"][1].update(op="Exec"),
        lambda s, a: a.popitem(),
        lambda s, a: a.update({key: value[:1] for key, value in a.items()}),
        lambda s, a: s.update(output=None),
    ],
)
def test_damaged_data_are_refused(damage):
    structure, arrays = everything().to_arrays()
    damage(structure, arrays)
    with pytest.raises(StoredStateInvalid, match=r"load a backup|version that wrote it"):
        Model.from_arrays(structure, arrays)


def test_models_of_specs():
    model = Model(
        [
            layers.JumpingKnowledge([[layers.GCN(P, C, activation="relu")], layers.SAGE(P, P)], "cat"),
            layers.Residual([layers.Dense(array(8, 8), activation=layers.Activate("elu", 0.5))]),
            layers.Residual(
                [layers.LayerNorm(), layers.L2Normalize(), layers.Dense(array(2, 8))], layers.Dense(array(2, 8))
            ),
            layers.LogSoftmax(),
        ]
    )
    assert (model.input_width, model.output_width, model.depth, model.weights) == (F, 2, 2, "none")
    assert model.name_of(ir.walk(model.output)[1]) == "layers[0] (JumpingKnowledge)"
    run(model, None)


def test_a_model_that_needs_weights_refuses_a_graph_without():
    model = Model([layers.GCN(W, weighted=True)])
    assert model.weights == "required"
    with pytest.raises(ColumnMissing, match=r"edge weights, which layers\[0\] \(GCN\) reads"):
        model.for_graph(False)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Model([]), ModelError, "at least one layer"),
        (lambda: Model([layers.LG()]), ModelError, "pass input_width="),
        (lambda: Model(["GCN"], input_width=3), ModelError, "expected a layer at position 0, got str"),
        (lambda: Model([layers.GCN(W), layers.GCN(W)]), WidthMismatch, "expected shape"),
        (lambda: Model([layers.SAGE(W, aggregate="mul")]), ModelError, "sum, max, min, median or mean, got 'mul'"),
        (lambda: Model([layers.SGC(W, hops=0)]), ModelError, "at least 1, got 0"),
        (lambda: Model([layers.APPNP(2, "a")], input_width=2), ModelError, "alpha as a number, got 'a'"),
        (lambda: Model([layers.LG()], input_width="a"), ModelError, "input_width as an int, got 'a'"),
        (lambda: Model([layers.LG()], input_width=2.0), ModelError, "input_width as an int, got 2.0"),
        (lambda: Model([layers.GCN("x")]), ModelError, r"shape \(out, in\), got 'x'"),
        (lambda: Model([layers.Dense(W)], edge_head=ir.Input(3)), ModelError, "row-local edge head"),
        (lambda: Model.from_output(ir.Concat((ir.Input(1), ir.Input(1)))), ModelError, "exactly one Input, got 2"),
    ],
)
def test_models_that_do_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        make()
