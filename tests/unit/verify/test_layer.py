"""Operators as layers: what each run is made of, and what is refused."""

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import ModelMismatch, ModelUnsupported, OperatorUnsound, UsageError, WidthMismatch
from livegnn.models import edges, ir
from livegnn.models.truth import EdgeList, true_rows
from livegnn.verify import Operator, OperatorLayer, layer, prove
from livegnn.verify.examples import example
from livegnn.verify.subject import Subject
from tests.unit.verify.samples import mean, table_report

W = np.random.default_rng(0).normal(size=(3, 2))


def made(operator, run=None, **options):
    return layer(operator, run, tests=20, **options)


def of_table(name, run=None):
    report = table_report(name)
    return layer(report.operator, report.strategy() if run is None else run, report=report)


def sums(one):
    """(kind, reduction, width, weighted, relation) of every sum over edges, in the order of the values."""
    found = []
    for value in ir.walk(lg.Model([one]).output):
        if isinstance(value, ir.Propagate):
            found.append(("rows", value.reduce, value.width, value.weighted, value.relation))
        if isinstance(value, edges.Gather):
            found.append(("edges", value.reduce, value.width, False, value.relation))
    return found


ROWS = {
    "MoNet": [("rows", "sum", 1, False, None)],
    "CommNet": [("rows", "sum", 3, False, None)],
    "GCN": [("rows", "sum", 1, False, None), ("rows", "sum", 3, False, None)],
    "GraphSAGE": [("rows", "sum", 3, False, None), ("rows", "sum", 1, False, None)],
    "PinSAGE": [("rows", "sum", 2, True, None), ("rows", "sum", 1, False, None)],
    "RGCN": [("rows", "sum", 2, False, 0), ("rows", "sum", 2, False, 1)]
    + [("rows", "sum", 1, False, r) for r in (0, 1)],
    "GAT": [("edges", "softmax", 2, False, None)],
    "G-GCN": [("edges", "sum", 3, False, None)],
    "A-GNN": [("edges", "sum", 3, False, None)],
    "RGAT": [("edges", "sum", 2, False, r) for r in (0, 1, 0, 1)],
}


@pytest.mark.parametrize("name", list(ROWS))
def test_table_ii_is_made_of(name):
    assert sorted(sums(of_table(name)), key=repr) == sorted(ROWS[name], key=repr)


def test_a_layer_says_what_it_runs():
    one = of_table("GCN")
    assert isinstance(one, OperatorLayer)
    assert isinstance(one, lg.models.layers.Layer)
    assert (one.run, one.report.sound, one.input_width) == ("incremental", True, 3)
    with pytest.raises(WidthMismatch, match="rows of width 3, got 5"):
        one.apply(ir.Input(5))


def test_weights_are_copied():
    weight = W.copy()
    one = made(mean(source_nn=lambda h_u: h_u @ weight))
    before = lg.Model([one]).to_arrays()[1]
    weight[:] = 0.0
    after = lg.Model([one]).to_arrays()[1]
    assert all(np.array_equal(before[name], after[name]) for name in before)


# ---- which runs are allowed


def reversed_division():
    return mean(msg_cbn=lambda nct, mlc: nct / (1 + mlc * mlc), msg_cbn_inverse=lambda nct, msg: msg * nct)


def test_a_refuted_operator_is_refused_with_its_counterexample_and_runs_in_full():
    report = prove(reversed_division(), tests=20)
    for run in (None, "incremental", "constrained"):
        with pytest.raises(OperatorUnsound, match=r"is refuted \(.*=.*run=\"full\""):
            layer(report.operator, run, report=report)
    assert sums(layer(report.operator, "full", report=report)) == [
        ("rows", "sum", 1, False, None),
        ("edges", "sum", 3, False, None),
    ]


def test_an_operator_that_sees_its_destination_is_refused_until_it_is_asked_for():
    report = table_report("G-GCN")
    with pytest.raises(OperatorUnsound, match=r"free of the destination is refuted \(.*run=\"constrained\""):
        layer(report.operator, report=report)


def test_tested_is_not_proved_unless_it_is_accepted():
    report = prove(mean(), tests=20, seconds=1e-9)
    assert {each.verdict for each in report.conditions} == {"proved", "tested, not proved"}
    with pytest.raises(OperatorUnsound, match="is tested, not proved"):
        layer(report.operator, report=report)
    accepted = layer(report.operator, report=report, accept_tested=True)
    assert sums(accepted) == sums(made(mean()))


def test_reports_belong_to_their_operator():
    with pytest.raises(UsageError, match="a report on this operator"):
        layer(mean(), report=table_report("GCN"))


# ---- what no value expresses


def test_functions_without_a_symbolic_run_are_refused_by_name():
    operator = Operator(3, source_nn=lambda h_u: np.sort(h_u, axis=1))
    with pytest.raises(ModelUnsupported, match=r"source_nn has no symbolic run: it calls numpy\.sort"):
        made(operator, "full")


def test_products_over_edges_are_refused():
    operator = Operator(3, source_nn=lambda h_u: h_u, aggregate=lambda msg: msg.prod(axis=0), name="products")
    with pytest.raises(ModelUnsupported, match=r"\[verify products\].*a product over edges in aggregate"):
        made(operator, "full")


def test_extremes_over_typed_edges_are_refused():
    operator = Operator(3, msg_local=lambda h_u, edge_type: h_u * edge_type[:, :1], aggregate="max", edge_type_count=2)
    with pytest.raises(ModelUnsupported, match="max_edges in aggregate; leave edge_type out"):
        made(operator)


def test_a_layer_that_differs_from_its_functions_is_never_handed_out(monkeypatch):
    monkeypatch.setattr(Subject, "layer", lambda self, edges: np.full((1, 3), 2.0))
    with pytest.raises(ModelMismatch, match=r"as the functions say, got"):
        made(mean())


def test_results_that_pass_through_infinity_are_refused():
    operator = mean(
        msg_local=lambda h_u: np.maximum(h_u, 0), msg_cbn=lambda nct, mlc: nct / mlc, aggregate="min", source_nn=None
    )
    with pytest.raises(ModelMismatch, match="guard divisions by 0"):
        made(operator, "full")


# ---- what the values compute


def computed(one, x, src, dst, **columns):
    return true_rows(lg.Model([one]).output, np.asarray(x, float), EdgeList(np.array(src), np.array(dst), **columns))


def test_vertices_without_in_edges_have_a_of_0():
    operator = mean(
        msg_cbn=lambda nct, mlc: (mlc + nct) / nct - 1,
        msg_cbn_inverse=lambda nct, msg: msg * nct,
        transform=lambda h_v, a: a + 10 * h_v,
    )
    one = made(operator)
    x = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
    assert one._rest
    assert np.allclose(computed(one, x, [0], [1]), [[10, 20, 30], [41, 52, 73]])
    assert not made(mean())._rest


def test_a_destination_that_cancels_needs_no_edges():
    one = made(mean(msg_local=lambda h_u, h_v: np.exp(h_u + h_v) / np.exp(h_v)))
    assert {kind for kind, *_ in sums(one)} == {"rows"}


def test_attention_keeps_columns_apart():
    operator = Operator(
        3,
        msg_local=lambda h_u, h_v: np.exp(h_u * h_v),
        nbr_ctx="sum",
        msg_cbn=lambda nct, mlc: mlc / nct,
        msg_cbn_inverse=lambda nct, msg: msg * nct,
        source_nn=lambda h_u: h_u[:, :1],
    )
    one = made(operator, "constrained")
    assert sums(one) == [("edges", "softmax", 3, False, None)]
    x = np.array([[1.0, -1.0, 0.5], [0.3, 0.7, 2.0], [-1.0, 1.0, 1.0]])
    power = np.exp(x[:2] * x[2])
    expected = (power / power.sum(0) * x[:2, :1]).sum(0)
    assert np.allclose(computed(one, x, [0, 1], [2, 2])[2], expected)


def test_scores_that_overflow_as_exponentials_do_not_as_attention():
    operator = Operator(
        1,
        msg_local=lambda h_u, h_v: np.exp(h_u * h_v),
        nbr_ctx="sum",
        msg_cbn=lambda nct, mlc: mlc / nct,
        msg_cbn_inverse=lambda nct, msg: msg * nct,
        source_nn=lambda h_u: h_u,
    )
    model = lg.Model([made(operator, "constrained")])
    graph = lg.Graph(np.array([[100.0], [99.0], [10.0]], np.float32), np.array([0, 1]), np.array([2, 2]))
    assert np.allclose(lg.Engine(model, graph).embeddings([2]), [[100.0]], atol=1e-3)


def test_the_same_sum_is_kept_once():
    operator = Operator(
        3,
        msg_local=lambda h_u: np.exp(h_u),
        nbr_ctx="sum",
        msg_cbn=lambda nct, mlc: mlc / nct,
        msg_cbn_inverse=lambda nct, msg: msg * nct,
    )
    assert sums(made(operator)) == [("rows", "sum", 3, False, None)]


def test_modules_of_torch():
    torch.manual_seed(0)
    message, out = torch.nn.Linear(3, 4), torch.nn.Linear(7, 2)
    operator = Operator(
        3,
        source_nn=lambda h_u: torch.nn.functional.elu(message(h_u)),
        transform=lambda h_v, a: torch.nn.functional.leaky_relu(out(torch.cat([h_v, a], dim=1))),
    )
    one = made(operator)
    x = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    with torch.no_grad():
        rows = torch.from_numpy(x)
        a = torch.nn.functional.elu(message(rows))[:2].sum(0, keepdim=True)
        expected = torch.nn.functional.leaky_relu(out(torch.cat([rows[2:], a], dim=1)))
    assert np.allclose(computed(one, x, [0, 1], [2, 2])[2], expected.numpy(), atol=1e-5)


def test_operators_that_read_no_row_still_make_a_model():
    one = made(Operator(3, msg_local=lambda weight: weight, aggregate="max"))
    got = computed(one, np.ones((3, 3)), [0, 1], [2, 2], weight=np.array([0.5, -1.0]))
    assert got.tolist() == [[0.0], [0.0], [0.5]]


def test_edges_of_other_types_do_not_count():
    one = layer(example("RGCN").operator(), report=None, tests=20)
    x = np.random.default_rng(1).normal(size=(4, 3))
    typed = computed(one, x, [0, 1, 2], [3, 3, 3], types=np.array([0, 1, 9]))
    assert np.allclose(typed, computed(one, x, [0, 1], [3, 3], types=np.array([0, 1])))
