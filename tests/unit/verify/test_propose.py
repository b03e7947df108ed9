"""Formulas come apart by rules; a model's answers are judged, and told what is wrong with them."""

import numpy as np
import pytest

from livegnn.errors import DataMissing, ModelError, ModelUnsupported, OperatorUnsound, UsageError
from livegnn.verify import propose, smt
from livegnn.verify.examples import TABLE, example, weights
from livegnn.verify.formula import Formula
from livegnn.verify.subject import Subject, random_edges
from tests.unit.verify import recorded

W = np.arange(6.0).reshape(3, 2) / 4 - 0.5
SAGE = "relu(mean_u(h_u) @ W)"
FAST = {"tests": 30}


class Model:
    """Gives recorded answers in order, and keeps the prompts."""

    def __init__(self, *answers):
        self.answers, self.prompts = list(answers), []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        return self.answers[len(self.prompts) - 1]


# ---- by rules


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_rules_cover_table_ii(row):
    found = propose(row.formula, params=weights(row.shapes), width=3, edge_type_count=row.edge_type_count, **FAST)
    assert found.report.strategy() == row.run, str(found.report)
    assert found.agreement.startswith("tested, not proved: equal to the formula on 30")
    assert found.attempts == ()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_the_worked_examples_compute_their_formulas(row):
    formula, operator = Formula(row.formula, weights(row.shapes)), row.operator()
    layer = Subject(operator, 1.0).layer
    rng = np.random.default_rng(0)
    for count in range(1, 30):
        edges = random_edges(operator, rng, count)
        np.testing.assert_allclose(layer(edges), formula.value(edges), rtol=1e-9, atol=1e-12)


def test_a_name_of_the_table_stands_for_its_formula():
    found = propose("GraphSAGE", **FAST)
    assert 'nbr_ctx = "count"' in found.source
    assert found.report.sound


MORE = {
    "weighted mean": ("mean_u(weight * h_u) @ W", "incremental"),
    "both degrees": ("sum_u(h_u / (degree_v * maximum(degree_u, 1)))", "incremental"),
    "maximum": ("max_u(relu(h_u @ W))", "incremental"),
    "minimum of a mean": ("min_u(h_u / count_u())", "incremental"),
    "gate of the destination": ("sum_u(sigmoid(h_v @ W)[:, :1] * h_u)", "incremental"),
    "softmax of the source": ("sum_u(softmax_u(h_u @ W[:, :1]) * h_u)", "incremental"),
    "scaled softmax": ("sum_u(0.5 * softmax_u(h_u @ W[:, :1]) * h_u) + h_v", "incremental"),
    "difference to the destination": ("sum_u(square(h_u - h_v))", "constrained"),
    "as a definition": ("def layer(h_u):\n  z = h_u @ W\n  return relu(sum_u(z * z))", "incremental"),
    "assigned": ("h_new = mean_u(h_u)", "incremental"),
}


@pytest.mark.parametrize("name", MORE)
def test_rules_take_more_apart_than_the_table(name):
    formula, run = MORE[name]
    found = propose(formula, params={"W": W}, width=3, **FAST)
    assert found.report.strategy() == run, str(found.report)


@pytest.mark.parametrize(
    ("formula", "error", "message"),
    [
        ("sum_u(h_u) / sum_u(weight)", ModelUnsupported, "2 reductions"),
        ("relu(h_v @ W)", ModelUnsupported, "0 reductions"),
        ("sum_u(softmax_u(h_u) * weight * h_u)", ModelUnsupported, "normalised message by more"),
        ("sum_u(relu(softmax_u(h_u)) * h_u)", ModelUnsupported, "inside another function"),
        ("mean_u(softmax_u(h_u) * h_u)", ModelUnsupported, "by a sum and by a degree"),
        ("sum_u(h_u * (degree_v + h_u))", ModelUnsupported, "joins degree_v"),
        ("sum_u(h_u) / degree_v", ModelUnsupported, "uses degree_v outside of the reduction"),
        ("sum_u(median(h_u))", ModelUnsupported, "got median"),
        ("sum_u(h_u @ Q)", ModelError, "none for Q"),
        ("sum_u(h_u @ W) @ W", ModelError, "check the widths"),
        ("h_u @ W + sum_u(h_u)[:, :2]", ModelError, "one row per vertex"),
        ("sum over u of h_u", ModelUnsupported, "expected Python"),
    ],
)
def test_what_no_rule_takes_apart_is_refused(formula, error, message):
    with pytest.raises(error, match=message):
        propose(formula, params={"W": W}, width=3, **FAST)


def test_weights_and_widths_are_asked_for():
    with pytest.raises(UsageError, match="pass width="):
        propose("mean_u(h_u)")
    with pytest.raises(ModelError, match="weights of other names, got a"):
        propose("mean_u(h_u) @ a", params={"a": W}, width=3)
    assert propose("mean_u(h_u @ W)", params={"W": W}, **FAST).operator.width == 3
    with pytest.raises(UsageError, match="at least one attempt"):
        propose(SAGE, attempts=0)


def test_a_formula_is_evaluated_for_one_vertex():
    edges = {"h_u": np.array([[1.0, 0.0], [3.0, 2.0]]), "h_v": np.array([[1.0, 1.0]]), "weight": np.ones((2, 1))}
    assert Formula("h_v + mean_u(h_u) * degree_v", {}).value(edges).tolist() == [[5.0, 3.0]]
    assert Formula("sum_u(share_u(h_u))", {}).value(edges).tolist() == [[1.0, 1.0]]
    assert Formula("max_u(h_u) - min_u(h_u) + count_u()", {}).value(edges).tolist() == [[4.0, 4.0]]
    np.testing.assert_allclose(Formula("sum_u(softmax_u(h_u))", {}).value(edges), [[1.0, 1.0]])
    with pytest.raises(ModelError, match="one row per vertex"):
        Formula("h_u", {}).value(edges)


# ---- by a model, with recorded answers


def test_a_good_answer_is_taken_at_once():
    model = Model(recorded.GCN_GOOD)
    found = propose("GCN", model, **FAST)
    assert found.report.sound
    assert [each.problem for each in found.attempts] == [""]
    prompt = model.prompts[0]
    assert all(row.formula in prompt and row.source.strip() in prompt for row in TABLE)
    assert prompt.rstrip().endswith("Answer:")
    assert example("GCN").formula in prompt.split("Formula: ")[-1]


def test_the_counterexample_goes_back_to_the_model():
    model = Model(recorded.GATED_UNGUARDED, recorded.GATED_GOOD)
    found = propose("sum_u(share_u(relu(h_u @ s)) * h_u)", model, params={"s": W[:, :1]}, **FAST)
    assert found.report.sound
    assert len(found.attempts) == 2
    assert "does not compute the formula" in found.attempts[0].problem
    assert "nan" in found.attempts[0].problem
    assert found.attempts[0].problem in model.prompts[1]
    assert recorded.GATED_UNGUARDED.split("\n")[1] in model.prompts[1]


def test_a_needless_destination_is_given_another_chance():
    formula = "sum_u(softmax_u(h_u @ s + h_v @ t) * h_u)"
    params = {"s": W[:, :1], "t": W[:, 1:]}
    model = Model(recorded.SEPARABLE_CONSTRAINED, recorded.SEPARABLE_GOOD)
    found = propose(formula, model, params=params, **FAST)
    assert found.report.sound
    assert "free of the destination: refuted" in found.attempts[0].problem
    stubborn = Model(*[recorded.SEPARABLE_CONSTRAINED] * 3)
    found = propose(formula, stubborn, params=params, **FAST)
    assert found.report.strategy() == "constrained"
    assert len(found.attempts) == 2


def test_functions_that_compute_something_else_are_never_returned():
    model = Model(recorded.SAGE_SUM, recorded.SAGE_GOOD)
    found = propose(SAGE, model, params={"W": W}, width=3, **FAST)
    assert "does not compute the formula" in found.attempts[0].problem
    assert found.report.sound
    with pytest.raises(OperatorUnsound, match="got none in 2 answers; the last one: it does not compute"):
        propose(SAGE, Model(recorded.SAGE_SUM, recorded.SAGE_SUM), attempts=2, params={"W": W}, width=3, **FAST)


def test_the_best_of_several_answers_is_returned():
    model = Model(recorded.SAGE_MEAN, recorded.GCN_REVERSED, recorded.REFUSAL)
    found = propose(SAGE, model, params={"W": W}, width=3, **FAST)
    assert found.report.strategy() == "full"
    assert found.report["aggregate"].verdict == "refuted"
    with pytest.raises(OperatorUnsound, match="aggregates merge is refuted"):
        found.report.raise_if_unsound()
    assert [bool(each.problem) for each in found.attempts] == [True] * 3


def test_hostile_and_useless_answers_are_refused():
    model = Model(recorded.HOSTILE, recorded.REFUSAL, "")
    with pytest.raises(OperatorUnsound, match="in 3 answers"):
        propose("GCN", model, **FAST)
    assert "import os" in model.prompts[1]
    assert "expected Python" in model.prompts[2]
    with pytest.raises(UsageError, match="llm to return a str, got int"):
        propose("GCN", lambda prompt: 3, **FAST)


def test_reversed_division_is_found_out():
    model = Model(recorded.GCN_REVERSED, recorded.GCN_GOOD)
    found = propose("GCN", model, **FAST)
    assert "does not compute the formula: h_u =" in found.attempts[0].problem
    assert found.report.sound


def test_a_text_that_is_no_formula_needs_a_model_and_is_not_checked():
    text = r"h_v = ReLU(\frac{1}{|N(v)|} \sum_{u \in N(v)} h_u W)"
    with pytest.raises(ModelUnsupported):
        propose(text, params={"W": W}, width=3)
    found = propose(text, Model(recorded.SAGE_GOOD), params={"W": W}, width=3, **FAST)
    assert found.report.sound
    assert found.agreement.startswith("not checked")


def test_without_the_solver_nothing_is_proposed(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(smt.importlib, "import_module", missing)
    with pytest.raises(DataMissing, match=r"livegnn\[verify\]"):
        propose("GCN")
