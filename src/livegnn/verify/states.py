"""Functions of a neighbourhood in state form: reductions over edges first, a row-local finish after.

mean, for example, is finish(s, n) = s / n of the states s = sum of rows and n = their number. States merge by the
operation of their reduction (sums add, maxima by maximum), whatever the number of rows. So a statement about states
holds for neighbourhoods of every size, and needs no induction.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegnn.models.ir import walk
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr
from livegnn.verify.signs import Signs, signs


@dataclass(frozen=True, eq=False)
class StateForm:
    """F(rows) = finish(state0, state1, ...), where state i is reductions[i] over the rows.

    rows: name of the variable with a row per edge.   width: its width.   finish: in variables state0, state1, ...
    """

    rows: str
    width: int
    reductions: tuple[Expr, ...]
    finish: Expr

    def is_plain(self, op: str | None = None) -> bool:
        """Whether F is one reduction of the rows as they are (and that one, if named)."""
        if len(self.reductions) != 1 or self.finish.op != "variable":
            return False
        reduction = self.reductions[0]
        return reduction.inputs[0].op == "variable" and reduction.op != "count_edges" and op in (None, reduction.op)

    def state(self, side: str) -> list[Expr]:
        """One variable per state, called by the side."""
        return [ex.variable(f"{side}{i}", each.width) for i, each in enumerate(self.reductions)]

    def finished(self, states: list[Expr]) -> Expr:
        """F where the states are these."""
        return ex.substitute(self.finish, {f"state{i}": each for i, each in enumerate(states)})

    def merge(self, left: list[Expr], right: list[Expr]) -> list[Expr]:
        """The states of a union from the states of its parts."""
        ops = [ex.OVER_EDGES[each.op][1] for each in self.reductions]
        return [ex.elementwise(op, a, b) for op, a, b in zip(ops, left, right, strict=True)]

    def of_row(self, row: Expr) -> list[Expr]:
        """The states of a neighbourhood of one row."""
        found = []
        for each in self.reductions:
            counts = each.op == "count_edges"
            found.append(ex.constant(1.0) if counts else ex.substitute(each.inputs[0], {self.rows: row}))
        return found

    def state_facts(self, sides: tuple[str, ...], rows: Signs) -> tuple[dict[str, Signs], frozenset[str]]:
        """Signs of the variables of `state`, where rows have these signs, and the names of those that count edges."""
        states = {f"{side}{i}": each for side in sides for i, each in enumerate(self.reductions)}
        found = {name: signs(each, {self.rows: rows}) for name, each in states.items()}
        return found, frozenset(name for name, each in states.items() if each.op == "count_edges")


def state_form(function: Expr, rows: Expr) -> StateForm | None:
    """The state form of a function of the variable `rows`; None where one reduction feeds another."""
    reductions = [each for each in walk(function) if each.op in ex.OVER_EDGES]
    if any(inner.op in ex.OVER_EDGES for each in reductions for inner in walk(*each.inputs)):
        return None
    states = {id(each): ex.variable(f"state{i}", each.width) for i, each in enumerate(reductions)}

    def rule(each: Expr, inputs: list[Expr]) -> Expr:
        return states.get(id(each)) or (each if each.per_edge else ex.with_inputs(each, inputs))

    return StateForm(rows.name, rows.width, tuple(reductions), ex.fold(rule, function)[0])
