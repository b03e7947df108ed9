"""Proposes an operator for a formula: by rules, or by a language model of the user's choice, judged by the solver.

No proposal is trusted for where it comes from. It is text in a small language that is interpreted and never executed
(restricted); it has to compute the formula on random neighbourhoods; and `prove` says how it may be run. What a model
got wrong goes back to it with the counterexample.

Source: NeutronRT, section V.A (operator decomposition by a language model, checked by a solver).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.errors import LiveGnnError, ModelError, ModelUnsupported, OperatorUnsound, UsageError
from livegnn.verify.conditions import differ
from livegnn.verify.examples import WIDTH, find, weights
from livegnn.verify.expr import Float64
from livegnn.verify.formula import Formula
from livegnn.verify.operator import Operator
from livegnn.verify.prompt import answer_text, first_prompt, next_prompt
from livegnn.verify.prove import prove
from livegnn.verify.report import RUNS, Counterexample, Report
from livegnn.verify.restricted import operator_from_source
from livegnn.verify.rules import decompose
from livegnn.verify.smt import load_z3
from livegnn.verify.subject import Subject, random_edges


@dataclass(frozen=True)
class Attempt:
    """One answer of the model. problem: why it was not accepted at once; "" if it was."""

    answer: str
    problem: str


@dataclass(frozen=True, eq=False)
class Proposal:
    """An operator for a formula.

    source: its functions, as text.   report: the verdict of `prove`.   agreement: how it was held against the formula.
    attempts: what the model answered, in order; empty where rules did.
    """

    source: str
    operator: Operator
    report: Report
    agreement: str
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True)
class _Layer:
    """What is asked for. formula: None where the text is not in the language of formulas."""

    text: str
    formula: Formula | None
    weights: Mapping[str, Float64]
    widths: Mapping[str, int]  # width, edge_attr_width and edge_type_count of the operator
    seconds: float
    tests: int

    def operator(self, source: str) -> Operator:
        return operator_from_source(source, self.weights, **self.widths, name="proposal")


def propose(
    formula_or_source: str,
    llm: Callable[[str], str] | None = None,
    *,
    attempts: int = 3,
    params: Mapping[str, Any] | None = None,
    width: int | None = None,
    edge_attr_width: int = 0,
    edge_type_count: int = 0,
    seconds: float = 4.0,
    tests: int = 300,
) -> Proposal:
    """An operator that computes the formula, with the verdict on it.

    Args:     formula_or_source: one expression or a def in the language of formulas (docs/verify.md), or the name of a
                  row of Table II. With a model, any text; then it cannot be checked that the operator computes it.
              llm: any function from a prompt to an answer. None: rules, which cover Table II.
              attempts: of the model; each failure goes back to it with its counterexample.
              params: the weights by the names that the formula uses.   width: columns of h_u; needed where no product
                  `h_u @ weight` gives it.   edge_attr_width, edge_type_count: as in Operator.
              seconds, tests: as in prove.
    Returns:  the Proposal that needs the least work of those that compute the formula: look at `report` before it is
              used.
    Raises:   ModelUnsupported for a formula that no rule takes apart; OperatorUnsound if no answer of the model is an
              operator that computes the formula; ModelError for missing weights; DataMissing without z3-solver.
    """
    load_z3()
    if attempts < 1:
        raise UsageError(f"[propose] expected at least one attempt, got {attempts}; raise it")
    widths = {"width": width, "edge_attr_width": edge_attr_width, "edge_type_count": edge_type_count}
    layer = _layer(formula_or_source, llm is not None, params, widths, seconds, tests)
    if llm is not None:
        return _asked(layer, llm, attempts)
    assert layer.formula is not None
    source = decompose(layer.formula.tree)
    operator = layer.operator(source)
    wrong = _disagreement(layer, operator)
    if wrong is not None:
        raise OperatorUnsound(
            f"[propose] expected functions that compute the formula, got a difference: {wrong}; "
            "pass llm=, or write the Operator by hand"
        )
    return Proposal(source, operator, prove(operator, seconds=seconds, tests=tests), _agreement(layer))


def _layer(
    text: str,
    free: bool,
    params: Mapping[str, Any] | None,
    widths: Mapping[str, int | None],
    seconds: float,
    tests: int,
) -> _Layer:
    row = find(text)
    found: dict[str, Any] = {name: each for name, each in widths.items() if each is not None}
    if row is not None:
        text, found["edge_type_count"] = row.formula, row.edge_type_count
        if params is None:
            found.setdefault("width", WIDTH)
    given = weights(row.shapes) if row is not None and params is None else dict(params or {})
    values = {name: np.asarray(array, np.float64) for name, array in given.items()}
    formula: Formula | None = None
    try:
        formula = Formula(text, values)
    except ModelUnsupported:
        if not free:
            raise
    if formula is not None and "width" not in found:
        found |= _shown_width(formula)
    if "width" not in found:
        raise UsageError("[propose] expected the columns of h_u, got none; pass width=")
    if formula is not None:
        formula.value(random_edges(Operator(**found), np.random.default_rng(0), 3))  # raises where the formula fails
    return _Layer(text, formula, values, found, seconds, tests)


def _shown_width(formula: Formula) -> dict[str, int]:
    """The width that a product `h_u @ weight` shows, if there is one."""
    for part in ast.walk(formula.tree):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult) and isinstance(part.right, ast.Name):
            left = part.left
            if isinstance(left, ast.Name) and left.id in ("h_u", "h_v") and part.right.id in formula.weights:
                return {"width": int(formula.weights[part.right.id].shape[0])}
    return {}


def _agreement(layer: _Layer) -> str:
    if layer.formula is None:
        return "not checked: the text is not in the language of formulas"
    return f"tested, not proved: equal to the formula on {layer.tests} random neighbourhoods"


def _disagreement(layer: _Layer, operator: Operator) -> Counterexample | None:
    """A neighbourhood for which the operator and the formula give different rows."""
    if layer.formula is None:
        return None
    subject = Subject(operator, layer.seconds)
    rng = np.random.default_rng(3)
    for _ in range(layer.tests):
        edges = random_edges(operator, rng, int(rng.integers(1, 6)))
        expected, got = layer.formula.value(edges), subject.layer(edges)
        lost = bool(np.isfinite(expected).all() and not np.isfinite(got).all())
        if lost or differ(expected, got, subject.tolerance):
            used = {name: edges[name] for name in ("h_u", "h_v", "weight", "degree_u", "edge_type")}
            return Counterexample(used, expected, got, ("formula", "functions"))
    return None


def _asked(layer: _Layer, llm: Callable[[str], str], attempts: int) -> Proposal:
    first = prompt = first_prompt(layer.text, layer.weights)
    tried: list[Attempt] = []
    best: Proposal | None = None
    for _ in range(attempts):
        answer = llm(prompt)
        if not isinstance(answer, str):
            raise UsageError(f"[propose] expected llm to return a str, got {type(answer).__name__}; wrap it")
        source = answer_text(answer)
        proposal, problem = _judged(layer, source)
        tried.append(Attempt(answer, problem))
        if proposal is not None:
            stands = best is not None and best.report.strategy() == proposal.report.strategy() == "constrained"
            if best is None or RUNS.index(proposal.report.strategy()) < RUNS.index(best.report.strategy()):
                best = proposal
            if best.report.sound or stands:  # warned of the destination once, the model stands by it
                break
        prompt = next_prompt(first, source, problem)
    if best is None:
        raise OperatorUnsound(
            f"[propose] expected functions that compute the formula, got none in {len(tried)} answers; the last one: "
            f"{tried[-1].problem}; try another model, or write the Operator by hand"
        )
    return Proposal(best.source, best.operator, best.report, best.agreement, tuple(tried))


def _judged(layer: _Layer, source: str) -> tuple[Proposal | None, str]:
    """The proposal that the text makes, if it makes one, and what is wrong with it."""
    try:
        operator = layer.operator(source)
        wrong = _disagreement(layer, operator)
        if wrong is not None:
            return None, f"it does not compute the formula: {wrong}"
        report = prove(operator, seconds=layer.seconds, tests=layer.tests)
    except LiveGnnError as error:
        if not isinstance(error, ModelError):
            raise
        return None, str(error)
    failed = [each for each in report.conditions if each.verdict != "proved"]
    problem = "; ".join(f"{each.statement}: {each.verdict}, {each.counterexample or each.reason}" for each in failed)
    return Proposal(source, operator, report, _agreement(layer)), problem
