"""Operators as layers: what is proved of an operator decides how the engine runs it.

    incremental   a[v] = msg_cbn(nct[v], aggregate({mlc_uv * source_nn(h_u)})): contexts and aggregates of messages that
                  carry no context, kept as sums and extrema, and msg_cbn put on once per vertex (Algorithm 1, with the
                  unscaled aggregate kept instead of taken back by msg_cbn_inverse)
    constrained   the same, of messages that see both ends of their edge, computed edge by edge
    full          a[v] = aggregate({msg_cbn(nct[v], mlc_uv) * source_nn(h_u)}): as the operator says, edge by edge

Only Theorem 1 makes the first two equal to the third, so a run is refused unless its conditions are proved or the
caller asks for it. What the layer computes is compared with the operator's own functions before anybody gets it.

Source: NeutronRT, Equations 5 to 9, Theorem 1, section IV.C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from livegnn.errors import ModelMismatch, ModelUnsupported, UsageError, WidthMismatch
from livegnn.models import edges, ir
from livegnn.models.messages import ones
from livegnn.models.truth import EdgeList, true_rows
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.lower import Lowering, linear
from livegnn.verify.operator import Operator
from livegnn.verify.prove import prove
from livegnn.verify.report import Report, Run
from livegnn.verify.simplify import is_constant, variables
from livegnn.verify.subject import Subject
from livegnn.verify.weights import Parts, by_weight

_GRAPHS = 4  # random graphs on which a layer is compared with its operator
_ROUNDED = 1e-4  # between functions in float64 and values whose constants are float32, of the largest row


@dataclass(frozen=True, eq=False)
class OperatorLayer:
    """An operator as a layer of lg.Model. Made by `layer`.

    run: how messages are kept (see the module's docstring).   report: the verdict that allows it.
    """

    operator: Operator
    run: Run
    report: Report
    _subject: Subject = field(repr=False)
    _rest: bool = field(repr=False)  # whether msg_cbn and the like must be kept off vertices without in-edges

    @property
    def input_width(self) -> int:
        return self.operator.width

    def apply(self, x: ir.Value) -> ir.Value:
        if x.width != self.operator.width:
            raise WidthMismatch(
                f"[verify {self.operator.name}] expected rows of width {self.operator.width}, got {x.width}; check the "
                "layers before it"
            )
        builder = _Builder(self._subject, x, self.run)
        y = builder.transformed(builder.aggregated(), self._rest)
        if any(value is x for value in ir.walk(y)):
            return y
        return ir.Combine(
            ((1.0, y), (0.0, linear(builder.lowering.one, np.ones((y.width, 1)))))
        )  # a model has an input


def layer(
    operator: Operator,
    run: Run | None = None,
    *,
    accept_tested: bool = False,
    report: Report | None = None,
    seconds: float = 4.0,
    tests: int = 300,
    seed: int = 0,
) -> OperatorLayer:
    """The operator as a layer, proved sound for this run, lowered, and compared with its own functions.

    Args:     run: None asks for "incremental", the only run that needs no word of the caller; "constrained" or "full"
                  where the report allows no less (see the module's docstring).
              accept_tested: take "tested, not proved" for proved.
              report: what `prove(operator)` gave, so as not to prove again; seconds, tests, seed: as for `prove`.
    Raises:   OperatorUnsound with the counterexamples, where the conditions of the run are not proved;
              ModelUnsupported where a function has no symbolic run, or reduces in a way that no value expresses;
              ModelMismatch where the lowered layer and the functions differ on random graphs.
    Exactness: as every layer of the engine: bit-equal to a run from scratch.
    Cost:     a proof (docs/verify.md); nothing of the user's functions runs later.
    Source:   NeutronRT, Theorem 1, Algorithm 1, Table II.
    """
    if report is None:
        report = prove(operator, seconds=seconds, tests=tests, seed=seed)
    elif report.operator is not operator:
        raise UsageError(
            f"[verify {operator.name}] expected a report on this operator, got one on {report.operator.name}; pass "
            "what prove(operator) gave"
        )
    chosen: Run = "incremental" if run is None else run
    report.raise_if_unsound(chosen, accept_tested=accept_tested)
    subject = Subject(operator, seconds)
    alone = true_rows(_Builder(subject, ir.Input(operator.width), chosen).aggregated(), *_no_edges(operator))
    made = OperatorLayer(operator, chosen, report, subject, _rest=bool(alone.any()))
    for number in range(_GRAPHS):
        _compare(made, number)
    return made


def _no_edges(operator: Operator) -> tuple[Float64, EdgeList]:
    """One vertex without in-edges."""
    none = np.zeros(0, np.int64)
    return np.ones((1, operator.width)), EdgeList(
        none, none, np.zeros(0), np.zeros((0, operator.edge_attr_width)), none
    )


def _compare(made: OperatorLayer, seed: int) -> None:
    """Raises ModelMismatch unless the layer computes what the operator's own functions do, on one random graph.

    Every other graph has positive numbers only, for functions that have a value for no others.
    """
    subject, operator, count, total = made._subject, made.operator, 7, 18
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, count, total), rng.integers(0, count - 1, total)  # the last vertex has no in-edge
    types = rng.integers(0, max(operator.edge_type_count, 1), total)
    weight, rows = rng.normal(size=(total, 1)), rng.normal(size=(count, operator.width))
    attributes = rng.normal(size=(total, operator.edge_attr_width))
    if seed % 2:
        weight, rows, attributes = np.abs(weight), np.abs(rows), np.abs(attributes)
    everything = {
        "h_u": rows[src],
        "h_v": rows[dst],
        "weight": weight,
        "edge_attr": attributes,
        "edge_type": np.eye(max(operator.edge_type_count, 1))[types],
        "degree_u": np.bincount(dst, minlength=count)[src][:, None].astype(np.float64),
    }
    expected = [
        subject.layer({name: column[dst == v] for name, column in everything.items()})
        if (dst == v).any()
        else subject.transform(rows[v : v + 1], np.zeros((1, subject.aggregate_width)))
        for v in range(count)
    ]
    truth = np.concatenate(expected)
    edges_of = EdgeList(src, dst, weight[:, 0], attributes, types)
    got = true_rows(made.apply(ir.Input(operator.width)), rows, edges_of)
    known = np.isfinite(truth).all(axis=1)
    size = float(np.abs(truth[known]).max(initial=0.0)) or 1.0
    gap = np.abs(got - truth).max(axis=1)
    wrong = np.flatnonzero(known & ~(gap <= max(_ROUNDED, 2 * subject.tolerance) * size))
    if len(wrong) or not known.any():
        v = int(wrong[0]) if len(wrong) else 0
        raise ModelMismatch(
            f"[verify {operator.name}] expected {truth[v]} for vertex {v} of a random graph, as the functions say, got "
            f"{got[v]}; guard divisions by 0, and roots and logarithms of what has none, with where"
        )


class _Builder:
    """Builds the values of one layer on the rows `x`."""

    def __init__(self, subject: Subject, x: ir.Value, run: Run) -> None:
        self.subject, self.operator, self.run = subject, subject.operator, run
        self.name = self.operator.name
        asked = self.operator.parameters("msg_local")
        self.types = self.operator.edge_type_count if "edge_type" in asked else 0
        self.lowering = Lowering(self.name, ones(x), {"h_u": ("source", x), "h_v": ("target", x)})
        self.simple = self.lowering.simplifier.simple
        self._count: ir.Value | None = None
        self._sums_of: dict[tuple[str, Expr, int | None], ir.Value] = {}
        if "degree_u" in asked:
            self.lowering.rows["degree_u"] = ("source", self.count())
        if "weight" in asked:
            self.lowering.rows["weight"] = ("edge", edges.EdgeWeight())
        if "edge_attr" in asked:
            self.lowering.rows["edge_attr"] = ("edge", edges.EdgeAttribute(self.operator.edge_attr_width))
        self.message = self._message()
        self.source = self._given("source_nn")

    def _given(self, where: str, rows_width: int = 0) -> Expr:
        made = self.subject.expr(where, rows_width)
        if made is None:
            reason = self.subject.reasons.get(where, f"{where} has no symbolic run")
            raise ModelUnsupported(
                f"[verify {self.name}] expected functions that can be written down as values, got: {reason}; write "
                f"{where} with what docs/verify.md lists"
            )
        return made

    def _message(self) -> Expr:
        message = self._given("msg_local")
        if self.run == "incremental" and "h_v" in variables(message):
            anything = ex.constant(0.7390851 + 0.1 * np.arange(self.operator.width))  # it was shown to cancel
            message = ex.substitute(message, {"h_v": anything})
        return message

    # ---- the layer

    def transformed(self, a: ir.Value, rest: bool) -> ir.Value:
        """transform(h_v, a_v). rest: whether a is not 0 of itself for vertices without in-edges."""
        if rest:
            one_at_most = ex.elementwise("minimum", ex.variable("count", 1), ex.constant(1.0))
            self.lowering.rows["count"] = ("target", self.count())
            a = ir.Multiply(a, self.lowering.of_vertices(one_at_most))
        self.lowering.rows["a"] = ("target", a)
        return self.lowering.of_vertices(self._given("transform"))

    def aggregated(self) -> ir.Value:
        """a, for vertices that have in-edges."""
        a = self._softmax() if self.run != "incremental" else None
        return self._reduced_twice() if a is None else a

    def _reduced_twice(self) -> ir.Value:
        subject = self.subject
        context = self.reduced("nbr_ctx", self._given("nbr_ctx"), "nct", {"mlc": self.message})
        pool = self._given("aggregate")
        if self.run == "full":
            combine = self._given("msg_cbn")
            row = ex.substitute(combine, {"nct": context, "mlc": self.message}) * self.source
            return self.lowering.of_vertices(self.reduced("aggregate", pool, "a", {"msg": row}))
        row = self.message * self.source
        if row.width != subject.product_width:
            raise ModelUnsupported(
                f"[verify {self.name}] expected a msg_cbn that keeps the columns of messages, got {row.width} columns "
                f'before it and {subject.product_width} after; repeat the columns in msg_local, or choose run="full"'
            )
        pooled = self.reduced("aggregate", pool, "a", {"msg": row})
        combine = self._given("msg_cbn", subject.aggregate_width)
        made = ex.substitute(combine, {"nct": context, "mlc": pooled})
        return self.lowering.of_vertices(made)

    def _softmax(self) -> ir.Value | None:
        """Exponentials divided by their sum, as the one value that cannot overflow; None for anything else."""
        subject, message = self.subject, self.simple(self.message)
        combine = self._given("msg_cbn")
        divided = combine.op == "div" and [each.name for each in combine.inputs] == ["mlc", "nct"]
        forms = subject.states("nbr_ctx"), subject.states("aggregate")
        summed = all(form is not None and form.is_plain("sum_edges") for form in forms)
        if message.op != "exp" or not divided or not summed or self.types:
            return None
        source = ex.take(self.source, [0] * message.width) if self.source.width == 1 else self.source
        rows, score = self.lowering.of_edges(self.simple(source)), self.lowering.of_edges(message.inputs[0])
        return edges.Gather(rows, "softmax", score, message.width)

    # ---- reductions over edges

    def reduced(self, where: str, function: Expr, prefix: str, rows: Mapping[str, Expr]) -> Expr:
        """`function` of a neighbourhood as an expression over its reductions, each a variable of the destination."""
        found: list[ir.Value] = []

        def rule(each: Expr, inputs: list[Expr]) -> Expr:
            if each.op == "variable":
                return rows[each.name]
            if each.op not in ex.OVER_EDGES:
                return ex.with_inputs(each, inputs)
            found.append(self._reduction(where, each.op, inputs[0]))
            name = f"{prefix}.{len(found)}"
            self.lowering.rows[name] = ("target", found[-1])
            return ex.variable(name, found[-1].width)

        return ex.fold(rule, function)[0]

    def _reduction(self, where: str, op: str, row: Expr) -> ir.Value:
        if op == "count_edges":
            return self.count()
        if op == "product_edges":
            raise ModelUnsupported(
                f"[verify {self.name}] expected reductions by sum, count, maximum or minimum, got a product over edges "
                f"in {where}; multiply by adding logarithms"
            )
        reduce: Literal["sum", "max", "min"] = "sum" if op == "sum_edges" else "max" if op == "max_edges" else "min"
        if not self.types:
            return self._one_type(reduce, self.simple(row), None)
        if reduce != "sum":
            raise ModelUnsupported(
                f"[verify {self.name}] expected sums over edges that have types, got {op} in {where}; leave edge_type "
                "out, or add the types up"
            )
        terms = []
        for relation, kind in enumerate(np.eye(self.types)):
            mine = self.simple(row, {"edge_type": ex.constant(kind)})
            if not is_constant(mine, 0):
                terms.append((1.0, self._one_type(reduce, mine, relation)))
        return ir.Combine(tuple(terms)) if terms else self.lowering.of_vertices(ex.constant(np.zeros(row.width)))

    def _one_type(self, reduce: ir.Reduce, row: Expr, relation: int | None) -> ir.Value:
        """The reduction over the edges of one type, made once."""
        key = (reduce, row, relation)
        if key not in self._sums_of:
            self._sums_of[key] = self._reduced(reduce, row, relation)
        return self._sums_of[key]

    def _reduced(self, reduce: ir.Reduce, row: Expr, relation: int | None) -> ir.Value:
        """A reduction of rows of the source where that is enough, else of messages computed edge by edge."""
        if reduce == "sum":
            parts = by_weight(row, self.lowering.side)
            if parts is not None:
                return self._sums(parts, relation)
        elif self.lowering.side(row) in ("source", None):
            return ir.Propagate(self.lowering.of_vertices(row), reduce=reduce, relation=relation)
        return edges.Gather(self.lowering.of_edges(row), reduce, relation=relation)

    def _sums(self, parts: Parts, relation: int | None) -> ir.Value:
        """Sum of plain + weight * scaled over the edges of one type, both rows of the source."""
        terms: list[tuple[float, ir.Value]] = []
        simple = [self.simple(part) for part in parts]
        for weighted, part in [each for each in enumerate(simple) if not is_constant(each[1], 0)] or [(0, simple[0])]:
            rows = self.lowering.one if is_constant(part) else self.lowering.of_vertices(part)
            total: ir.Value = ir.Propagate(rows, weighted=bool(weighted), relation=relation)
            if is_constant(part):
                times = self.lowering.array(part)
                total = total if times.tolist() == [1.0] else linear(total, times[:, None])
            terms.append((1.0, total))
        return terms[0][1] if len(terms) == 1 else ir.Combine(tuple(terms))

    def count(self) -> ir.Value:
        """The number of in-edges; of those with one of the operator's types, where it distinguishes types."""
        if self._count is None:
            one = self.lowering.one
            counts = [ir.Propagate(one, relation=relation) for relation in range(self.types)] or [ir.Propagate(one)]
            self._count = counts[0] if len(counts) == 1 else ir.Combine(tuple((1.0, each) for each in counts))
        return self._count
