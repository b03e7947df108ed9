"""Statements about expressions, put to the z3 solver over the real numbers.

Every transcendental value (and every quotient and root) becomes a fresh real variable, one for each distinct argument,
with true facts about it as axioms: exp is positive, increasing, and turns sums into products; a root is not negative
and squares to its argument. So a query is plain polynomial arithmetic, `unsat` is a proof for the true functions, and
`sat` is a proposal: its numbers have to be tried on the functions themselves.

Divisions by zero, logarithms of numbers not above zero and roots of negative numbers have no value: an expression
carries the condition under which it has one.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.errors import DataMissing
from livegnn.models.ir import walk
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.signs import ANY, Signs

Pair: TypeAlias = tuple[Expr, Expr]
_TERMS_MAX = 4000  # numbers in a query; more would not come back in time
_ONE_AT_A_TIME = threading.Lock()  # z3's terms belong to one thread at a time
_PAIRS_MAX = 12  # arguments of one function that are compared with each other


def load_z3() -> Any:
    """The module z3. Raises: DataMissing naming the extra that brings it."""
    try:
        return importlib.import_module("z3")
    except ModuleNotFoundError as error:
        raise DataMissing(
            "[verify] expected the package z3-solver, got none installed; run: pip install 'livegnn[verify]'"
        ) from error


@dataclass(frozen=True)
class VariableFacts:
    """What is known of the variables.

    signs: possible signs by name.   counts: names of whole numbers of at least 1.   support: pairs (z, a) where a
    column of z that is 0 makes that column of a 0 (every column, if z has one).
    """

    signs: Mapping[str, Signs] = field(default_factory=dict)
    counts: frozenset[str] = frozenset()
    support: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SolverQuery:
    """Asks for values of the variables that make all `differ` pairs differ, or one of `defined` undefined.

    Everything in `differ` and in `assumed` is taken to be defined. An answer also has a value for each of `named`
    (name -> width), whether anything depends on it or not.
    """

    differ: tuple[Pair, ...] = ()
    defined: tuple[Expr, ...] = ()
    assumed: tuple[Expr, ...] = ()
    facts: VariableFacts = VariableFacts()
    named: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SolverAnswer:
    """unsat: there are no such values; sat: `values` (name -> (1, w)) may be such; unknown: `reason`."""

    verdict: Literal["unsat", "sat", "unknown"]
    values: Mapping[str, Float64] = field(default_factory=dict)
    reason: str = ""


class _TooLarge(Exception):
    """A query has more numbers than the solver answers in time."""


class _Terms:
    """z3 terms for the columns of expressions, with the axioms and conditions that go with them."""

    def __init__(self, z3: Any) -> None:
        self.z3 = z3
        self.axioms: list[Any] = []
        self.variables: dict[str, list[Any]] = {}
        self._columns: dict[tuple[Expr, int], Any] = {}
        self._defined: dict[tuple[Expr, int], Any] = {}
        self._values: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._applied: dict[str, list[tuple[Any, Any]]] = {}
        self._kept: list[Any] = []  # ids of terms are reused once a term is gone
        self._sizes: Counter[int] = Counter()  # numbers in columns, and in conditions

    def number(self, value: float) -> Any:
        return self.z3.RealVal(str(Fraction(float(value))))

    def column(self, expr: Expr, at: int) -> Any:
        """One column of the expression, made of no more columns than it needs. Raises: _TooLarge."""
        return self._known(self._columns, self._made, expr, at)

    def defined(self, expr: Expr, at: int) -> Any:
        """The condition under which a column of the expression has a value."""
        return self._known(self._defined, self._condition, expr, at)

    def _known(self, known: dict[tuple[Expr, int], Any], rule: Callable[..., Any], expr: Expr, at: int) -> Any:
        """What the rule makes of a column, from what it makes of the columns that this one reads; made once."""
        pending = [(expr, at)]
        while pending:
            column = pending[-1]
            reads = ex.reads(*column)
            missing = [each for each in reads if each not in known]
            if missing and column not in known:
                pending += reversed(missing)
            elif pending.pop() not in known:
                self._sizes[id(known)] += len(reads) if column[0].op == "matmul" else 1
                if self._sizes[id(known)] > _TERMS_MAX:
                    raise _TooLarge
                known[column] = rule(*column, [known[each] for each in reads])
        return known[expr, at]

    def _made(self, expr: Expr, at: int, inputs: list[Any]) -> Any:
        z3 = self.z3
        if expr.op == "variable":
            if expr.name not in self.variables:
                self.variables[expr.name] = [z3.Real(f"{expr.name}[{column}]") for column in range(expr.width)]
            return self.variables[expr.name][at]
        if expr.op == "constant":
            assert expr.array is not None
            return self.number(expr.array[at])
        if expr.op == "matmul":
            assert expr.array is not None
            return z3.Sum([x * self.number(w) for x, w in zip(inputs, expr.array[:, at], strict=True)])
        if expr.op in ("take", "concat"):
            return inputs[0]
        if expr.op in ex.OVER_COLUMNS:
            op = {"sum_columns": "add", "max_columns": "maximum", "min_columns": "minimum"}[expr.op]
            return reduce(lambda a, b: self._apply(op, [a, b]), inputs)
        return self._apply(expr.op, inputs)

    def _apply(self, op: str, x: list[Any]) -> Any:
        z3 = self.z3
        one, zero = z3.RealVal(1), z3.RealVal(0)
        plain: dict[str, Callable[[], Any]] = {
            "neg": lambda: -x[0],
            "abs": lambda: z3.If(x[0] >= 0, x[0], -x[0]),
            "add": lambda: x[0] + x[1],
            "sub": lambda: x[0] - x[1],
            "mul": lambda: x[0] * x[1],
            "maximum": lambda: z3.If(x[0] >= x[1], x[0], x[1]),
            "minimum": lambda: z3.If(x[0] <= x[1], x[0], x[1]),
            "less": lambda: z3.If(x[0] < x[1], one, zero),
            "less_equal": lambda: z3.If(x[0] <= x[1], one, zero),
            "equal": lambda: z3.If(x[0] == x[1], one, zero),
            "not": lambda: z3.If(x[0] != 0, zero, one),
            "and": lambda: z3.If(z3.And(x[0] != 0, x[1] != 0), one, zero),
            "or": lambda: z3.If(z3.Or(x[0] != 0, x[1] != 0), one, zero),
            "where": lambda: z3.If(x[0] != 0, x[1], x[2]),
        }
        return plain[op]() if op in plain else self._fresh(op, x)

    def _fresh(self, op: str, arguments: list[Any]) -> Any:
        z3 = self.z3
        terms = [z3.simplify(each, som=True) for each in arguments]
        if op == "div" and z3.is_rational_value(terms[1]) and not z3.is_true(z3.simplify(terms[1] == 0)):
            return arguments[0] / terms[1]
        key = (op, tuple(each.get_id() for each in terms))
        if key not in self._values:
            value = z3.Real(f"{op}#{len(self._values)}")
            self._kept += [*terms, value]
            self._values[key] = value
            self.axioms += self._axioms(op, terms, value)
            if len(terms) == 1:
                self.axioms += self._joint(op, terms[0], value)
                self._applied.setdefault(op, []).append((terms[0], value))
        return self._values[key]

    def _axioms(self, op: str, terms: list[Any], value: Any) -> list[Any]:
        z3, x = self.z3, terms[0]
        if op == "div":
            return [z3.Implies(terms[1] != 0, value * terms[1] == x)]
        if op == "sqrt":
            return [z3.Implies(x >= 0, z3.And(value >= 0, value * value == x))]
        if op == "exp":
            found = [value > 0, z3.Implies(x == 0, value == 1), value >= x + 1]
            if z3.is_add(x) and 2 <= x.num_args() <= 4:
                found.append(value == z3.Product([self._fresh("exp", [part]) for part in x.children()]))
            found += [z3.Implies(z3.And(t > 0, x == result), value == t) for t, result in self._of("log")]
            return [*found, *(z3.Implies(x + t == 0, value * result == 1) for t, result in self._of("exp"))]
        if op == "log":
            found = [z3.Implies(x == result, value == t) for t, result in self._of("exp")]
            return [*found, z3.Implies(x == 1, value == 0)]
        if op == "tanh":
            return [value > -1, value < 1, (x > 0) == (value > 0), (x < 0) == (value < 0)]
        return [value > 0, value < 1, (x > 0) == (value > z3.Q(1, 2)), (x < 0) == (value < z3.Q(1, 2))]

    def _of(self, op: str) -> list[tuple[Any, Any]]:
        return self._applied.get(op, [])

    def _joint(self, op: str, x: Any, value: Any) -> list[Any]:
        """All these functions increase strictly where they are defined."""
        z3 = self.z3
        starts: dict[str, Callable[[Any], Any]] = {"sqrt": lambda t: t >= 0, "log": lambda t: t > 0}
        start = starts.get(op)
        found = []
        for other, result in self._of(op)[-_PAIRS_MAX:]:
            both = z3.And(start(x), start(other)) if start else z3.BoolVal(True)
            found.append(z3.Implies(both, z3.And((x < other) == (value < result), (x == other) == (value == result))))
        return found

    def _condition(self, expr: Expr, at: int, inputs: list[Any]) -> Any:
        z3, reads = self.z3, ex.reads(expr, at)
        if expr.op == "where":
            (chosen, first, second), pick = inputs, self.column(*reads[0])
            return z3.And(chosen, z3.Implies(pick != 0, first), z3.Implies(pick == 0, second))
        rules: dict[str, Callable[[Any], Any]] = {
            "div": lambda t: t != 0,
            "log": lambda t: t > 0,
            "sqrt": lambda t: t >= 0,
        }
        own = [rules[expr.op](self.column(*reads[-1]))] if expr.op in rules else [z3.BoolVal(True)]
        return z3.And(inputs + own)

    def facts(self, facts: VariableFacts) -> list[Any]:
        z3, found = self.z3, []
        rules: dict[int, Callable[[Any], Any]] = {-1: lambda t: t < 0, 0: lambda t: t == 0, 1: lambda t: t > 0}
        for name, columns in self.variables.items():
            possible = facts.signs.get(name, ANY)
            if possible != ANY:
                found += [z3.Or([rules[sign](column) for sign in sorted(possible)]) for column in columns]
            if name in facts.counts:
                found += [column >= 1 for column in columns]
        for z, a in facts.support:
            if z in self.variables and a in self.variables:
                whole = self.variables[z] * len(self.variables[a]) if len(self.variables[z]) == 1 else self.variables[z]
                found += [z3.Implies(p == 0, q == 0) for p, q in zip(whole, self.variables[a], strict=True)]
        return found


def solve(query: SolverQuery, seconds: float) -> SolverAnswer:
    """Puts a query to z3.

    Where all columns are treated alike, one column stands for all (expr.narrow), so that widths cost nothing; else
    the columns of a single pair are asked for one after the other.

    Args:     seconds: the solver gives up after about this long.
    Raises:   DataMissing without z3-solver.
    """
    z3 = load_z3()
    with _ONE_AT_A_TIME:
        return _solve(z3, query, seconds)


def _solve(z3: Any, query: SolverQuery, seconds: float) -> SolverAnswer:
    exprs = [each for pair in query.differ for each in pair] + [*query.defined, *query.assumed]
    widths = {**query.named, **{each.name: each.width for each in walk(*exprs) if each.op == "variable"}}
    narrowed = ex.narrow(*exprs)
    if narrowed is not None:
        left = iter(narrowed)
        differ = tuple((next(left), next(left)) for _ in query.differ)
        defined = tuple(next(left) for _ in query.defined)
        return _solve_one(z3, replace(query, differ=differ, defined=defined, assumed=tuple(left)), widths, seconds)
    if len(query.differ) != 1 or query.defined:
        return _solve_one(z3, query, widths, seconds)
    end = time.monotonic() + seconds
    for column in range(max(each.width for each in query.differ[0])):
        left_over = end - time.monotonic()
        if left_over <= 0:
            return SolverAnswer("unknown", reason=f"the solver gave up after {seconds:g} s")
        answer = _solve_one(z3, query, widths, left_over, column)
        if answer.verdict != "unsat":
            return answer
    return SolverAnswer("unsat")


def _solve_one(
    z3: Any, query: SolverQuery, widths: Mapping[str, int], seconds: float, column: int | None = None
) -> SolverAnswer:
    """column: the one in which the pairs are to differ; None: any."""
    terms = _Terms(z3)

    def asked(each: Expr) -> list[int]:
        return [*range(each.width)] if column is None or each.width == 1 else [column]

    try:
        wrong, assumed = [], []
        for pair in query.differ:
            left, right = ([terms.column(each, at) for at in asked(each)] for each in pair)
            count = max(len(left), len(right))
            left, right = (each * count if len(each) == 1 else each for each in (left, right))
            wrong.append(z3.Or([a != b for a, b in zip(left, right, strict=True)]))
            assumed += [terms.defined(each, at) for each in pair for at in asked(each)]
        assumed += [terms.defined(each, at) for each in query.assumed for at in range(each.width)]
        if query.defined:
            conditions = [terms.defined(each, at) for each in query.defined for at in range(each.width)]
            wrong.append(z3.Not(z3.And(conditions)))
    except _TooLarge:
        return SolverAnswer("unknown", reason=f"more than {_TERMS_MAX} numbers are too many for the solver")
    formula = [*wrong, *assumed, *terms.facts(query.facts), *terms.axioms]
    verdict, model = _ask(z3, formula, 0.75 * seconds)
    if verdict != "sat":
        return SolverAnswer(verdict, reason="" if verdict == "unsat" else f"the solver gave up after {seconds:.2g} s")
    plain = [z3.And(column >= -8, column <= 8) for columns in terms.variables.values() for column in columns]
    for name in query.facts.counts:
        plain += [z3.Or([column == i for i in range(1, 9)]) for column in terms.variables.get(name, [])]
    better, plainer = _ask(
        z3, formula + plain, 0.25 * seconds
    )  # numbers that a reader can follow, where there are some
    if better == "sat":
        model = plainer
    values = {
        name: _values(model, terms.variables[name], width)
        if name in terms.variables
        else _free(query.facts, name, width)
        for name, width in widths.items()
    }
    return SolverAnswer("sat", values)


def _ask(z3: Any, formula: list[Any], seconds: float) -> tuple[Literal["unsat", "sat", "unknown"], Any]:
    for logic in ("QF_NRA", None):  # complete for polynomials; the general solver where that one gives up
        solver = z3.SolverFor(logic) if logic else z3.Solver()
        solver.set("timeout", max(1, int(seconds * 500)))
        solver.add(*formula)
        result = solver.check()
        if result == z3.unsat:
            return "unsat", None
        if result == z3.sat:
            return "sat", solver.model()
    return "unknown", None


def _free(facts: VariableFacts, name: str, width: int) -> Float64:
    """A value that the facts allow, of a variable that nothing depends on."""
    return np.full((1, width), float(max(facts.signs.get(name, ANY))))


def _values(model: Any, columns: list[Any], width: int) -> Float64:
    found = [_float(model.eval(column, model_completion=True)) for column in columns]
    return np.resize(np.asarray(found, np.float64), (1, width))


def _float(value: Any) -> float:
    if hasattr(value, "as_fraction"):
        return float(value.as_fraction())
    return float(value.approx(20).as_fraction()) if hasattr(value, "approx") else 0.0
