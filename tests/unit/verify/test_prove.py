"""Verdicts on operators: right ones are proved, wrong ones refuted by numbers that were run, the rest tested."""

import dataclasses
import functools
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from livegnn.errors import ModelError, OperatorUnsound, UsageError
from livegnn.verify import Operator
from livegnn.verify import prove as prove_at_length
from livegnn.verify.examples import TABLE, example
from livegnn.verify.subject import Subject
from tests.unit.verify.samples import mean, table_report

W = np.random.default_rng(0).normal(size=(3, 1))
prove = functools.partial(prove_at_length, tests=40)
KEYS = ["context", "aggregate", "distributes", "factor", "inverse", "zero", "destination"]


def attention(**changes):
    given = {
        "msg_local": lambda h_u: np.exp(h_u @ W),
        "nbr_ctx": "sum",
        "msg_cbn": lambda nct, mlc: mlc / nct,
        "msg_cbn_inverse": lambda nct, msg: msg * nct,
        "source_nn": lambda h_u: h_u,
    }
    return Operator(3, **{**given, **changes})


def guarded(**changes):
    return attention(
        msg_cbn=lambda nct, mlc: np.where(nct == 0, 0, mlc / np.where(nct == 0, 1, nct)),
        msg_cbn_inverse=lambda nct, msg: np.where(nct == 0, 0, msg * nct),
        **changes,
    )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_table_ii_has_its_verdicts(row):
    report = table_report(row.name)
    assert [each.key for each in report.conditions] == KEYS
    assert report.strategy() == row.run
    failed = {each.key: each.verdict for each in report.conditions if each.verdict != "proved"}
    assert failed == ({} if row.run == "incremental" else {"destination": "refuted"})
    assert report.deletions == "subtract"


SOUND = {
    "mean": (mean(), "subtract"),
    "mean of extremes": (mean(aggregate="max"), "recompute"),
    "root of squares": (mean(aggregate=lambda msg: np.sqrt((msg**2).sum(axis=0)), nbr_ctx=None), "recompute"),
    "softmax": (attention(), "subtract"),
    "softmax in logarithms": (
        attention(
            msg_cbn=lambda nct, mlc: mlc * np.exp(-np.log(nct)),
            msg_cbn_inverse=lambda nct, msg: msg * np.exp(np.log(nct)),
        ),
        "subtract",
    ),
    "messages that may all be zero, guarded": (guarded(msg_local=lambda h_u: np.maximum(h_u @ W, 0)), "subtract"),
    "positive by completing the square": (attention(msg_local=lambda h_u: (h_u**2 + h_u + 1)[:, :1]), "subtract"),
    "a destination that cancels": (mean(msg_local=lambda h_u, h_v: np.exp(h_u + h_v) / np.exp(h_v)), "subtract"),
    "a destination that is asked for only": (mean(msg_local=lambda h_u, h_v: h_u * 2), "subtract"),
    "context of exponentials": (
        attention(msg_local=lambda h_u: h_u @ W, nbr_ctx=lambda mlc: np.exp(mlc).sum(axis=0)),
        "subtract",
    ),
    "columns of their own": (
        mean(
            msg_cbn=lambda nct, mlc: mlc * np.array([1.0, 2.0, 3.0]) / nct,
            msg_cbn_inverse=lambda nct, msg: msg * nct / np.array([1.0, 2.0, 3.0]),
        ),
        "subtract",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_operators_are_proved(name):
    operator, deletions = SOUND[name]
    report = prove(operator)
    if name == "root of squares":
        report = prove(dataclasses.replace(operator, msg_cbn=None, msg_cbn_inverse=None))
    assert report.sound, str(report)
    assert report.deletions == deletions
    report.raise_if_unsound()


UNSOUND = {
    "Listing 1 divides the wrong way round": (attention(msg_cbn=lambda nct, mlc: nct / mlc), "distributes"),
    "Listing 1's inverse does not undo it": (attention(msg_cbn=lambda nct, mlc: nct / mlc), "inverse"),
    "a mean without its count": (Operator(3, source_nn=lambda h_u: h_u, aggregate="mean"), "aggregate"),
    "a mean of means": (Operator(3, aggregate=lambda msg: msg.sum(axis=0) / msg.shape[0]), "aggregate"),
    "a deviation": (
        Operator(
            3, msg_local=lambda h_u: h_u, aggregate=lambda msg: np.sqrt(((msg - msg.mean(axis=0)) ** 2).mean(axis=0))
        ),
        "aggregate",
    ),
    "a median": (Operator(3, msg_local=lambda h_u: h_u, aggregate=lambda msg: np.median(msg, axis=0)), "aggregate"),
    "the first message": (Operator(3, msg_local=lambda h_u: h_u, aggregate=lambda msg: msg[0]), "aggregate"),
    "a root that loses its value": (
        Operator(3, msg_local=lambda h_u: h_u, aggregate=lambda msg: np.sqrt(msg.sum(axis=0)) ** 2),
        "aggregate",
    ),
    "a context that does not merge": (mean(nbr_ctx=lambda mlc: np.log1p(mlc.sum(axis=0))), "context"),
    "a square of a count": (mean(nbr_ctx=lambda mlc: np.ones(1) * mlc.shape[0] ** 2), "context"),
    "no context in it, and no inverse": (mean(msg_cbn=lambda nct, mlc: -mlc), "inverse"),
    "a mean as a context": (attention(nbr_ctx=lambda mlc: mlc.mean(axis=0)), "context"),
    "a shift does not distribute over a sum": (
        mean(msg_cbn=lambda nct, mlc: mlc + nct, msg_cbn_inverse=lambda nct, msg: msg - nct),
        "distributes",
    ),
    "a context of both signs turns a maximum round": (
        attention(msg_local=lambda h_u: h_u @ W, aggregate="max"),
        "distributes",
    ),
    "a shift distributes over a maximum and not over a factor": (
        mean(aggregate="max", msg_cbn=lambda nct, mlc: mlc + nct, msg_cbn_inverse=lambda nct, msg: msg - nct),
        "factor",
    ),
    "an inverse that is none": (mean(msg_cbn_inverse=lambda nct, msg: msg * nct * nct), "inverse"),
    "monotone in the context and without an inverse": (
        mean(msg_cbn=lambda nct, mlc: mlc * 0 + nct, msg_cbn_inverse=lambda nct, msg: msg),
        "inverse",
    ),
    "a context that cancels to zero": (attention(msg_local=lambda h_u: h_u @ W), "zero"),
    "a context that falls to zero with its messages": (attention(msg_local=lambda h_u: np.maximum(h_u @ W, 0)), "zero"),
    "a guard that forgets what it had": (guarded(msg_local=lambda h_u: h_u @ W), "inverse"),
    "a message that knows its destination": (
        attention(msg_local=lambda h_u, h_v: np.exp((h_u + h_v) @ W)),
        "destination",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_operators_are_refuted_by_numbers_that_were_run(name):
    operator, key = UNSOUND[name]
    report = prove(operator)
    condition = report[key]
    assert condition.verdict == "refuted", str(report)
    assert ("solver" in condition.reason) == (name not in ("a median", "the first message"))
    assert not report.sound
    example = condition.counterexample
    gap = np.abs(example.expected - example.got)
    assert not np.isfinite(example.got).all() or gap.max() > 1e-7
    with pytest.raises(OperatorUnsound, match="refuted"):
        report.raise_if_unsound()


def test_a_type_that_no_in_edge_has_leaves_its_context_at_zero():
    by_type = dataclasses.replace(
        example("RGAT").operator(), msg_cbn=lambda nct, mlc: mlc / nct, msg_cbn_inverse=lambda nct, msg: msg * nct
    )
    condition = prove(by_type)["zero"]
    assert condition.verdict == "refuted"
    assert (condition.counterexample.inputs["nct"] == 0).any()


def test_sums_of_messages_that_are_never_negative_are_zero_only_with_all_of_them():
    def supported(operator):
        return Subject(operator, 1.0).supported

    assert supported(guarded(msg_local=lambda h_u: np.maximum(h_u @ W, 0)))
    assert not supported(guarded(msg_local=lambda h_u: h_u @ W))
    assert not supported(guarded(nbr_ctx="max"))
    assert not supported(mean())
    assert not supported(guarded(aggregate=lambda msg: np.exp(msg).sum(axis=0)))


def test_a_counterexample_can_be_run_again_by_hand():
    operator = attention(msg_cbn=lambda nct, mlc: nct / mlc)
    example = prove(operator)["inverse"].counterexample
    nct, a = example.inputs["nct"], example.inputs["a"]
    np.testing.assert_allclose(example.got, operator.msg_cbn_inverse(nct, operator.msg_cbn(nct, a)))
    np.testing.assert_array_equal(example.expected, a)


TESTED = {
    "a function that is not known": (attention(msg_local=lambda h_u: 2 + np.arctan(h_u @ W)), "zero", "numpy.arctan"),
    "a count by len": (mean(nbr_ctx=lambda mlc: np.array([len(mlc)])), "context", r"shape\[0\]"),
    "a branch on the width": (mean(aggregate=lambda msg: np.einsum("ij->j", msg)), "aggregate", "einsum"),
    "logarithms that the solver does not know": (
        Operator(
            2,
            msg_local=lambda h_u: h_u,
            nbr_ctx="max",
            msg_cbn=lambda nct, mlc: mlc - nct,
            msg_cbn_inverse=lambda nct, msg: msg + nct,
            aggregate=lambda msg: np.log(np.exp(msg).sum(axis=0)),
        ),
        "distributes",
        "neither",
    ),
}


@pytest.mark.parametrize("name", TESTED)
def test_what_cannot_be_decided_is_tested_and_says_so(name):
    operator, key, reason = TESTED[name]
    report = prove(operator, tests=40)
    condition = report[key]
    assert condition.verdict == "tested, not proved", str(report)
    assert condition.tests == 40
    assert condition.tolerance > 0
    assert re.search(reason, condition.reason), condition.reason
    assert not report.sound
    assert report.strategy() == "full"
    with pytest.raises(OperatorUnsound, match="tested, not proved"):
        report.raise_if_unsound()
    report.raise_if_unsound(accept_tested=True)


def test_constrained_and_full_runs_are_a_choice():
    constrained = table_report("GAT")
    constrained.raise_if_unsound("constrained")
    with pytest.raises(OperatorUnsound, match='choose run="constrained"'):
        constrained.raise_if_unsound()
    wrong = prove(attention(msg_cbn=lambda nct, mlc: nct / mlc))
    wrong.raise_if_unsound("full")
    with pytest.raises(OperatorUnsound, match='choose run="full"'):
        wrong.raise_if_unsound("constrained")
    both = prove(dataclasses.replace(example("GAT").operator(), msg_cbn=lambda nct, mlc: nct / mlc))
    assert both["destination"].verdict == "refuted"
    assert both.strategy() == "full"
    with pytest.raises(UsageError, match="incremental, constrained, full"):
        wrong.raise_if_unsound("fast")


def test_a_report_reads_as_a_table():
    report = table_report("GCN")
    lines = str(report).splitlines()
    assert lines[0] == "GCN: sound, run incremental, deletions subtract"
    assert len(lines) == 1 + len(KEYS)
    assert all("proved" in line for line in lines[1:])
    with pytest.raises(UsageError, match="context, aggregate"):
        report["colour"]


class Attention(torch.nn.Module):
    def __init__(self, heads=2, columns=4):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(16, heads * columns, bias=False)
        self.of_source = torch.nn.Parameter(torch.randn(heads * columns, heads))
        self.of_destination = torch.nn.Parameter(torch.randn(heads * columns, heads))
        self.columns = columns

    def forward(self, h_u, h_v):
        logits = self.linear(h_u) @ self.of_source + self.linear(h_v) @ self.of_destination
        return torch.exp(torch.nn.functional.leaky_relu(logits, 0.2)).repeat_interleave(self.columns, dim=1)


def test_functions_may_be_torch_modules():
    module = Attention()
    operator = Operator(
        16,
        msg_local=module,
        nbr_ctx=lambda mlc: torch.sum(mlc, dim=0),
        msg_cbn=lambda nct, mlc: torch.div(mlc, nct),
        msg_cbn_inverse=lambda nct, msg: torch.mul(msg, nct),
        source_nn=lambda h_u: module.linear(h_u),
        transform=lambda a: torch.nn.functional.elu(a),
    )
    report = prove(operator, tests=40)
    assert report.strategy() == "constrained", str(report)
    assert report["zero"].verdict == "proved"
    reversed_division = dataclasses.replace(operator, msg_cbn=lambda nct, mlc: torch.div(nct, mlc))
    assert prove(reversed_division, tests=40)["inverse"].verdict == "refuted"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"msg_local": lambda h_u: h_u - h_u.mean(axis=0)}, "row i of msg_local to depend on row i alone"),
        ({"msg_local": lambda h_u: np.random.rand(*h_u.shape)}, "pure function"),  # noqa: NPY002
        ({"msg_local": lambda h_u: h_u @ np.ones((2, 2))}, "expected msg_local to work on arrays"),
        ({"msg_local": lambda h_u: h_u[:2]}, "keep one row per row"),
        ({"msg_local": lambda source: source}, "named among h_u, h_v"),
        ({"msg_local": lambda edge_attr: edge_attr}, "edge_attr_width of at least 1"),
        ({"aggregate": "median"}, "one of sum, mean, max, min"),
        ({"nbr_ctx": "mean"}, "one of sum, count, max, min"),
        ({"nbr_ctx": lambda mlc: mlc}, "reduce over axis 0"),
        ({"nbr_ctx": lambda: 1}, "expected nbr_ctx to take mlc"),
        ({"msg_cbn": lambda nct, mlc: mlc}, "together"),
        ({"source_nn": lambda h_u: h_u[:, :2], "msg_local": lambda h_u: h_u}, "of one width or 1, got 3 and 2"),
        ({"msg_local": np.exp}, "named"),
        ({"width": 0}, "width of at least 1"),
    ],
)
def test_functions_that_break_the_contract_are_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        prove(Operator(**{"width": 3, **changes}))


def test_arguments_are_checked():
    with pytest.raises(UsageError, match="expected an Operator"):
        prove(lambda h_u: h_u)
    with pytest.raises(UsageError, match="tests >= 1"):
        prove(mean(), tests=0)


def test_an_example_is_found_by_name():
    assert example(" g-gcn ").name == "G-GCN"
    assert example("GGCN").name == "G-GCN"
    with pytest.raises(UsageError, match="MoNet, CommNet"):
        example("GATv2")


def test_verdicts_are_the_same_each_time():
    operator = attention(msg_local=lambda h_u: 2 + np.arctan(h_u @ W), msg_cbn=lambda nct, mlc: nct / mlc)
    assert str(prove(operator, tests=20)) == str(prove(operator, tests=20))


def test_the_solver_has_a_time_for_each_condition():
    report = prove(mean(), seconds=1e-6)
    assert report["inverse"].verdict == "tested, not proved"
    assert "gave up after 1e-06 s" in report["inverse"].reason
    assert report["destination"].verdict == "proved"


def test_importing_the_package_brings_neither_the_solver_nor_torch():
    code = "import sys, livegnn.verify; print({'z3', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
