"""What the verdicts are about: Algorithm 1, run in place on numbers, gives what a run from scratch gives.

Source: NeutronRT, Algorithm 1; deletions as negative messages, where contexts and aggregates add.
"""

import numpy as np
import pytest

from livegnn.verify import Operator, prove
from livegnn.verify.conditions import AGAIN
from livegnn.verify.examples import TABLE
from livegnn.verify.subject import Subject, random_edges
from tests.unit.verify.combinations import drawn
from tests.unit.verify.samples import mean, table_report


class InPlace:
    """Keeps nct and a of one vertex, and merges edges into them."""

    def __init__(self, subject, report, edges):
        self.subject = subject
        self.again = {key: report[key].reason == AGAIN for key in ("context", "aggregate")}
        self.nct, self.a = self.from_scratch(edges)

    def parts(self, edges):
        message = self.subject.message(edges)
        return message, self.subject.times_source(message, edges)

    def from_scratch(self, edges):
        message, _ = self.parts(edges)
        nct = self.subject.context(message)
        products = self.subject.times_source(self.subject.combine(nct, message), edges)
        return nct, self.subject.aggregate(products)

    def _merge(self, key, pooled, old, rows, sign):
        if key == "context" and self.subject.operator.nbr_ctx is None:
            return old
        return pooled(np.concatenate([old, rows])) if self.again[key] else old + sign * pooled(rows)

    def change(self, edges, sign):
        message, products = self.parts(edges)
        nct = self._merge("context", self.subject.context, self.nct, message, sign)
        without = self.subject.uncombine(self.nct, self.a)
        merged = self._merge("aggregate", self.subject.aggregate, without, products, sign)
        self.nct, self.a = nct, self.subject.combine(nct, merged)


def some_edges(operator, seed, count):
    edges = random_edges(operator, np.random.default_rng(seed), count)
    edges["h_v"] = np.repeat(random_edges(operator, np.random.default_rng(0), 1)["h_v"], count, axis=0)
    return edges


def joined(*parts):
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def largest_gap(operator, report, deletions):
    gap, subject = 0.0, Subject(operator, 1.0)
    for seed in range(20):
        first, second, third = (some_edges(operator, 3 * seed + i, 1 + (seed + i) % 3) for i in range(3))
        live = InPlace(subject, report, joined(first, second))
        live.change(third, +1)
        expected = live.from_scratch(joined(first, second, third))[1]
        gap = max(gap, np.abs(live.a - expected).max())
        if deletions:
            live.change(second, -1)
            expected = live.from_scratch(joined(first, third))[1]
            gap = max(gap, np.abs(live.a - expected).max())
    return gap


EXTREMES = [
    mean(aggregate="max", name="mean of maxima"),
    Operator(3, source_nn=lambda h_u: h_u, aggregate=lambda msg: np.sqrt((msg**2).sum(axis=0)), name="root of squares"),
]


@pytest.mark.parametrize("operator", [*(row.operator() for row in TABLE), *EXTREMES], ids=lambda each: each.name)
def test_what_is_proved_runs_in_place(operator):
    in_table = operator.name in {row.name for row in TABLE}
    report = table_report(operator.name) if in_table else prove(operator, tests=20)
    assert report.strategy() in ("incremental", "constrained")
    assert largest_gap(operator, report, report.deletions == "subtract") < 1e-9


def check_combinations(count, seed):
    proved = 0
    for chosen, operator in drawn(count, seed):
        report = prove(operator, tests=20, seconds=2.0)
        if report.strategy() != "full":
            proved += 1
            assert largest_gap(operator, report, report.deletions == "subtract") < 1e-6, (seed, chosen, str(report))
    assert proved


def test_combinations_that_are_proved_run_in_place():
    check_combinations(12, seed=3)


@pytest.mark.soak
def test_many_combinations_that_are_proved_run_in_place():
    check_combinations(1500, seed=4)


REFUTED = [
    mean(msg_cbn=lambda nct, mlc: nct / mlc, name="reversed division"),
    mean(msg_cbn=lambda nct, mlc: mlc + nct, msg_cbn_inverse=lambda nct, msg: msg - nct, name="shift"),
    mean(msg_cbn_inverse=lambda nct, msg: msg, name="no inverse"),
    mean(nbr_ctx=lambda mlc: np.log1p(mlc.sum(axis=0)), name="context that does not merge"),
    Operator(3, source_nn=lambda h_u: h_u, aggregate="mean", name="mean of means"),
]


@pytest.mark.parametrize("operator", REFUTED, ids=lambda each: each.name)
def test_what_is_refuted_goes_wrong_in_place(operator):
    report = prove(operator, tests=20)
    assert report.strategy() == "full"
    assert not largest_gap(operator, report, deletions=False) < 1e-3
