"""The conditions of Theorem 1, each as proofs to try, counterexamples to look for, and a test on numbers.

A proof is a list of queries that must all be unsatisfiable; several proofs are alternatives. A hunt is a query whose
solution may be a counterexample. `replay` runs the user's functions on values and says whether the two sides differ.

Beyond the theorem's text: "factor" is used in its proof (Equation 11) without being listed; "zero" is the domain on
which the division by a context has a value; "inverse" is what Equation 12 needs (condition 4 as printed, monotony in
the context, does not give it: msg_cbn(z, m) = z is monotone in z and has no inverse).

Source: NeutronRT, section IV.C.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.report import Counterexample
from livegnn.verify.signs import ANY, NOT_NEGATIVE, Signs
from livegnn.verify.simplify import variables
from livegnn.verify.smt import SolverQuery, VariableFacts
from livegnn.verify.states import StateForm
from livegnn.verify.subject import Subject, random_edges

Values = Mapping[str, Float64]
_LARGE = 50.0  # rows above it may overflow in exp, which shows nothing
ADDS, AGAIN = "results add", "a result may stand for its rows"


@dataclass(frozen=True)
class Proof:
    """Queries that must all be unsatisfiable, and what that shows."""

    queries: tuple[SolverQuery, ...]
    shows: str


@dataclass(frozen=True)
class Task:
    """One condition. `given` is the reason where it holds by the form of the operator alone; `lacking` why there is
    nothing for the solver, if so.
    """

    key: str
    statement: str
    replay: Callable[[Values], Counterexample | None]
    sample: Callable[[np.random.Generator], Values]
    given: str = ""
    lacking: str = ""
    proofs: Sequence[Proof] = ()
    hunts: Sequence[SolverQuery] = ()


def differ(a: Float64, b: Float64, tolerance: float, between: Float64 | float = 0.0) -> bool:
    """Whether two finite results differ by more than rounding. Infinite or missing values are another condition's.

    Args:     between: numbers that were added on the way; where they cancel, they set the size of rounding.
    """
    if a.shape[-1] != b.shape[-1] and 1 not in (a.shape[-1], b.shape[-1]):
        return True
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    size = 1.0 + max(float(np.abs(each).max()) for each in (a, b, np.asarray(between)))
    return bool(np.abs(a - b).max() > tolerance * size)


def _holds(key: str, statement: str, reason: str) -> Task:
    return Task(key, statement, lambda _: None, lambda _: {}, given=reason)


@dataclass(frozen=True)
class _Equation:
    """Two sides that are equal where a condition holds. inputs: of `sides`, which gives both, and what was added on the
    way.   names: of the sides.
    """

    subject: Subject
    inputs: tuple[str, ...]
    names: tuple[str, str]
    sides: Callable[..., tuple[Float64, ...]]

    def replay(self, values: Values) -> Counterexample | None:
        given = _gathered(values)
        expected, got, *between = self.sides(**given)
        if not differ(expected, got, self.subject.tolerance, *between):
            return None
        return Counterexample({name: given[name] for name in self.inputs}, expected, got, self.names)

    def sample(self, rng: np.random.Generator) -> Values:
        """Of a random neighbourhood: its context, all products x, their aggregate; one message and one factor."""
        subject, edges = self.subject, _edges(self.subject, rng)
        message = subject.message(edges)
        ways: dict[str, Callable[[], Float64]] = {
            "nct": lambda: subject.context(message),
            "x": lambda: subject.times_source(message, edges),
            "a": lambda: subject.aggregate(subject.times_source(message, edges)),
            "mlc": lambda: message[:1],
            "f": lambda: subject.source(edges)[:1],
        }
        return {name: ways[name]() for name in self.inputs}


def _lacking(subject: Subject, *functions: str) -> str:
    return next((subject.reasons[each] for each in functions if each in subject.reasons), "")


def _draw(rng: np.random.Generator, count: int, width: int) -> Float64:
    rows: Float64 = rng.normal(size=(count, width)) * rng.choice([0.3, 1.0, 3.0])
    return np.rint(rows) if rng.random() < 0.3 else rows


def _edges(subject: Subject, rng: np.random.Generator) -> dict[str, Float64]:
    return random_edges(subject.operator, rng, int(rng.integers(1, 6)))


def _gathered(values: Values) -> dict[str, Float64]:
    """Rows by name, from one value per row ("x.0", "x.1")."""
    found: dict[str, list[Float64]] = {}
    for name in sorted(values):
        found.setdefault(name.split(".")[0], []).append(values[name])
    return {name: np.concatenate(rows) for name, rows in found.items()}


def _rows(name: str, count: int, width: int) -> list[Expr]:
    return [ex.variable(f"{name}.{i}", width) for i in range(count)]


# ---- conditions 1 and 2: contexts and aggregates of a union follow from those of its parts


def _merge_proofs(form: StateForm, rows: Signs) -> Iterator[Proof]:
    left, right = form.state("left"), form.state("right")
    facts = VariableFacts(*form.state_facts(("left", "right"), rows))
    union = form.finished(form.merge(left, right))
    valued = SolverQuery(defined=(form.finished(left),), facts=facts)
    yield Proof((SolverQuery(((union, form.finished(left) + form.finished(right)),), facts=facts), valued), ADDS)
    if form.finish.width == form.width:
        again = form.finished(form.merge(form.of_row(form.finished(left)), right))
        yield Proof((SolverQuery(((union, again),), facts=facts), valued), AGAIN)


def _merge_hunts(function: Expr, name: str, width: int, possible: Signs) -> Iterator[SolverQuery]:
    for lefts, rights in ((1, 1), (2, 1), (2, 2)):
        left, right = _rows("left", lefts, width), _rows("right", rights, width)
        whole, part, other = (ex.unroll(function, name, rows) for rows in ([*left, *right], left, right))
        pairs = [(whole, part + other)]
        if function.width == width:
            pairs.append((whole, ex.unroll(function, name, [part, *right])))
        named = {each.name: width for each in (*left, *right)}
        facts = VariableFacts(dict.fromkeys(named, possible))
        yield SolverQuery(tuple(pairs), facts=facts, named=named)
        yield SolverQuery(defined=(whole,), facts=facts, named=named)


def _merge_task(subject: Subject, where: str) -> Task:
    context = where == "nbr_ctx"
    key, statement = ("context", "contexts merge") if context else ("aggregate", "aggregates merge")
    if context and subject.operator.nbr_ctx is None:
        return _holds(key, statement, "there is no context")
    pooled, rows_name = (subject.context, "mlc") if context else (subject.aggregate, "msg")
    width = subject.message_width if context else subject.product_width
    function, form = subject.expr(where), subject.states(where)
    possible = subject.message_signs if context else ANY

    def replay(values: Values) -> Counterexample | None:
        shown = _gathered(values)
        left, right = shown["left"], shown["right"]
        both = np.concatenate([left, right])
        whole, part, other = pooled(both), pooled(left), pooled(right)
        if not np.isfinite(whole).all():
            sides = ("a finite row", f"{where}(left and right)")
            return None if np.abs(both).max() > _LARGE else Counterexample(shown, np.zeros_like(whole), whole, sides)
        turned = pooled(both[::-1])
        if differ(whole, turned, subject.tolerance):
            sides = (f"{where}(left and right)", f"{where} of the same rows in reverse order")
            return Counterexample(shown, whole, turned, sides)
        ways = [part + other]
        if part.shape[1] == width:
            ways.append(pooled(np.concatenate([part, right])))
        if not all(differ(whole, way, subject.tolerance) for way in ways):
            return None
        sides = (f"{where}(left and right)", f"{where}({where}(left), right)" if len(ways) > 1 else "the sum of both")
        return Counterexample(shown, whole, ways[-1], sides)

    def sample(rng: np.random.Generator) -> Values:
        if context:
            left, right = subject.message(_edges(subject, rng)), subject.message(_edges(subject, rng))
        else:
            left, right = (_draw(rng, int(rng.integers(1, 5)), width) for _ in range(2))
        return {"left": left, "right": right}

    return Task(
        key,
        statement,
        replay,
        sample,
        lacking=_lacking(subject, where) or ("" if form else f"{where} uses one reduction inside another"),
        proofs=[*_merge_proofs(form, possible)] if form else (),
        hunts=[*_merge_hunts(function, rows_name, width, possible)] if function else (),
    )


# ---- condition 3: msg_cbn distributes over aggregate


def _facts(subject: Subject, *supported: str) -> VariableFacts:
    """What is known of contexts and messages. supported: variables that a context of 0 makes 0, if any."""
    pairs = tuple(("nct", name) for name in supported) if subject.supported else ()
    counts = frozenset(("nct",)) if subject.context_counts else frozenset[str]()
    return VariableFacts({"nct": subject.context_signs, "mlc": subject.message_signs}, counts, pairs)


def _with(expr: Expr, name: str, value: Expr) -> Expr:
    return ex.substitute(expr, {name: value})


def _distributes_proof(subject: Subject, form: StateForm, row: Expr, pooled: Expr, merge: str) -> Proof:
    def merged(a: Expr, b: Expr) -> Expr:
        return a + b if merge == "add" else form.finished(form.merge(form.of_row(a), form.of_row(b)))

    x = ex.variable("x", subject.unscaled_width)
    single = form.finished(form.of_row(_with(row, "mlc", x))), _with(pooled, "mlc", form.finished(form.of_row(x)))
    a, b = (ex.variable(name, subject.aggregate_width) for name in "ab")
    union = _with(pooled, "mlc", merged(a, b)), merged(_with(pooled, "mlc", a), _with(pooled, "mlc", b))
    facts = _facts(subject, "x", "a", "b")
    return Proof(
        tuple(SolverQuery((pair,), facts=facts) for pair in (single, union)), "for one row and for two results"
    )


def distributes(subject: Subject, merge: str) -> Task:
    """aggregate({msg_cbn(z, x)}) = msg_cbn(z, aggregate({x})). merge: how aggregates were proved to merge, or ""."""
    key, statement = "distributes", "msg_cbn distributes over aggregate"
    if subject.operator.msg_cbn is None:
        return _holds(key, statement, "there is no msg_cbn")
    width = subject.unscaled_width
    row, pooled = subject.expr("msg_cbn", width), subject.expr("msg_cbn", subject.aggregate_width)
    function, form = subject.expr("aggregate"), subject.states("aggregate")
    hunts, proofs = [], []
    if row is not None and pooled is not None and function is not None and row.width == subject.product_width == width:
        if merge and form is not None:
            proofs = [_distributes_proof(subject, form, row, pooled, merge)]
        for count in (1, 2):
            rows = _rows("x", count, width)
            inside = ex.unroll(function, "msg", [_with(row, "mlc", each) for each in rows])
            outside = _with(pooled, "mlc", ex.unroll(function, "msg", rows))
            named = {"nct": subject.context_width, **{each.name: width for each in rows}}
            facts = _facts(subject, *(each.name for each in rows))
            hunts.append(SolverQuery(((inside, outside),), facts=facts, named=named))

    def sides(nct: Float64, x: Float64) -> tuple[Float64, ...]:
        combined = subject.combine(nct, x)
        return subject.aggregate(combined), subject.combine(nct, subject.aggregate(x)), combined

    equation = _Equation(subject, ("nct", "x"), ("aggregate of msg_cbn", "msg_cbn of aggregate"), sides)
    lacking = _lacking(subject, "msg_cbn", "aggregate", "nbr_ctx")
    lacking = lacking or ("" if merge else "aggregates are not proved to merge")
    return Task(key, statement, equation.replay, equation.sample, lacking=lacking, proofs=proofs, hunts=hunts)


# ---- used in the proof of Theorem 1: a message's context may be put on after source_nn


def _factor_task(subject: Subject) -> Task:
    key, statement = "factor", "msg_cbn commutes with source_nn"
    for missing in ("msg_cbn", "source_nn"):
        if getattr(subject.operator, missing) is None:
            return _holds(key, statement, f"there is no {missing}")
    before, after = subject.expr("msg_cbn"), subject.expr("msg_cbn", subject.unscaled_width)
    hunts: tuple[SolverQuery, ...] = ()
    if before is not None and after is not None:
        named = {"nct": subject.context_width, "mlc": subject.message_width, "f": subject.source_width}
        message, source = ex.variable("mlc", subject.message_width), ex.variable("f", subject.source_width)
        pair = (before * source, _with(after, "mlc", message * source))
        hunts = (SolverQuery((pair,), facts=_facts(subject, "mlc"), named=named),)

    def sides(nct: Float64, mlc: Float64, f: Float64) -> tuple[Float64, ...]:
        return subject.combine(nct, mlc) * f, subject.combine(nct, mlc * f)

    names = ("msg_cbn(nct, mlc) * f", "msg_cbn(nct, mlc * f)")
    equation = _Equation(subject, ("nct", "mlc", "f"), names, sides)
    proofs = (Proof(hunts, "for every message and every factor"),) if hunts else ()
    lacking = _lacking(subject, "msg_cbn", "nbr_ctx")
    return Task(key, statement, equation.replay, equation.sample, lacking=lacking, proofs=proofs, hunts=hunts)


# ---- condition 4: msg_cbn_inverse gives back the aggregate


def _inverse_task(subject: Subject) -> Task:
    key, statement = "inverse", "msg_cbn_inverse undoes msg_cbn"
    if subject.operator.msg_cbn is None:
        return _holds(key, statement, "there is no msg_cbn")
    width = subject.aggregate_width
    there, back = subject.expr("msg_cbn", width), subject.expr("msg_cbn_inverse", width)
    hunts: tuple[SolverQuery, ...] = ()
    if there is not None and back is not None and there.width == width:
        a = ex.variable("a", width)
        named = {"nct": subject.context_width, "a": width}
        pair = (_with(back, "msg", _with(there, "mlc", a)), a)
        hunts = (SolverQuery((pair,), facts=_facts(subject, "a"), named=named),)

    def sides(nct: Float64, a: Float64) -> tuple[Float64, ...]:
        return a, subject.uncombine(nct, subject.combine(nct, a))

    equation = _Equation(subject, ("nct", "a"), ("a", "msg_cbn_inverse(nct, msg_cbn(nct, a))"), sides)
    proofs = (Proof(hunts, "for every context and every aggregate"),) if hunts else ()
    lacking = _lacking(subject, "msg_cbn", "msg_cbn_inverse", "nbr_ctx")
    return Task(key, statement, equation.replay, equation.sample, lacking=lacking, proofs=proofs, hunts=hunts)


# ---- contexts that fall to zero: msg_cbn and its inverse have a value for every neighbourhood that is not empty


def _zero_hunts(subject: Subject, there: Expr, back: Expr) -> Iterator[SolverQuery]:
    """Neighbourhoods of one to three edges, from the rows of their sources on."""
    found = [subject.expr(where) for where in ("nbr_ctx", "msg_local", "source_nn", "aggregate")]
    asked = ("h_u", *subject.operator.parameters("msg_local"))
    if "edge_type" in asked:  # one-hot rows are left to the tests
        return
    for count in (1, 2, 3) if all(found) else ():
        context, message, source, pooled = (each for each in found if each is not None)
        named: dict[str, int] = {}
        rows, products = [], []
        for i in range(count):
            own = {}
            for name in asked:  # all edges of a neighbourhood have one destination
                own[name] = ex.variable(name if name == "h_v" else f"{name}.{i}", subject.operator.input_width(name))
                named[own[name].name] = own[name].width
            rows.append(ex.substitute(message, own))
            products.append(rows[-1] * ex.substitute(source, own))
        z, a = ex.unroll(context, "mlc", rows), ex.unroll(pooled, "msg", products)
        if a.width == subject.aggregate_width:
            made = ex.substitute(there, {"nct": z, "mlc": a})
            undone = ex.substitute(back, {"nct": z, "msg": made})
            facts = VariableFacts({f"degree_u.{i}": NOT_NEGATIVE for i in range(count)})
            yield SolverQuery((), (made, undone), (z, a), facts, named)


def _zero_task(subject: Subject) -> Task:
    key, statement = "zero", "contexts stay where msg_cbn has a value"
    if subject.operator.msg_cbn is None:
        return _holds(key, statement, "there is no msg_cbn")
    width = subject.aggregate_width
    there, back, on_messages = (
        subject.expr("msg_cbn", width),
        subject.expr("msg_cbn_inverse", width),
        subject.expr("msg_cbn"),
    )
    proofs: list[Proof] = []
    hunts: list[SolverQuery] = []
    if there is not None and back is not None and there.width == width:
        made = _with(there, "mlc", ex.variable("a", width))
        if on_messages is not None:
            whole = SolverQuery(defined=(made, _with(back, "msg", made)), facts=_facts(subject, "a"))
            alone = SolverQuery(defined=(on_messages,), facts=_facts(subject, "mlc"))
            proofs = [Proof((whole, alone), "for every message and every aggregate")]
        hunts = list(_zero_hunts(subject, there, back))

    def replay(values: Values) -> Counterexample | None:
        edges = _gathered(values)
        if "h_v" in edges:
            edges["h_v"] = np.repeat(edges["h_v"][:1], len(edges["h_u"]), axis=0)
        message = subject.message(edges)
        context, pooled = subject.context(message), subject.aggregate(subject.times_source(message, edges))
        if not (np.isfinite(context).all() and np.isfinite(pooled).all()):
            return None
        found = subject.uncombine(context, subject.combine(context, pooled))
        if np.isfinite(found).all():
            return None
        asked = {name: edges[name] for name in ("h_u", *subject.operator.parameters("msg_local"))}
        sides = ("aggregate before msg_cbn", "the same put on and taken off its context")
        return Counterexample({**asked, "nct": context}, pooled, found, sides)

    lacking = _lacking(subject, "msg_cbn", "msg_cbn_inverse", "nbr_ctx", "msg_local", "source_nn", "aggregate")
    sample = functools.partial(_edges, subject)
    return Task(key, statement, replay, sample, lacking=lacking, proofs=proofs, hunts=hunts)


# ---- section IV.C, the constraint: messages are free of the destination


def _destination_task(subject: Subject) -> Task:
    key, statement = "destination", "messages are free of the destination"
    names = subject.operator.parameters("msg_local")
    if "h_v" not in names:
        return _holds(key, statement, "msg_local does not ask for h_v")
    message = subject.expr("msg_local")
    hunts: tuple[SolverQuery, ...] = ()
    if message is not None:
        if "h_v" not in variables(message):
            return _holds(key, statement, "msg_local asks for h_v and does not use it")
        other = _with(message, "h_v", ex.variable("other", subject.operator.width))
        facts = VariableFacts(dict.fromkeys(("degree_u", "edge_type"), NOT_NEGATIVE))
        named = {name: subject.operator.input_width(name) for name in ("h_u", *names)}
        named["other"] = subject.operator.width
        hunts = (SolverQuery(((message, other),), facts=facts, named=named),)

    def sides(other: Float64, **edges: Float64) -> tuple[Float64, ...]:
        return subject.message(edges), subject.message({**edges, "h_v": other})

    def sample(rng: np.random.Generator) -> Values:
        edges = {name: rows[:1] for name, rows in _edges(subject, rng).items()}
        return {**edges, "other": _draw(rng, 1, subject.operator.width)}

    equation = _Equation(subject, (*names, "other"), ("msg_local with h_v", "with other"), sides)
    proofs = (Proof(hunts, "h_v cancels"),) if hunts else ()
    lacking = _lacking(subject, "msg_local")
    return Task(key, statement, equation.replay, sample, lacking=lacking, proofs=proofs, hunts=hunts)


def tasks(subject: Subject) -> list[Task]:
    """All conditions but `distributes`, which needs the verdict on aggregates; in the order of the report."""
    return [
        _merge_task(subject, "nbr_ctx"),
        _merge_task(subject, "aggregate"),
        _factor_task(subject),
        _inverse_task(subject),
        _zero_task(subject),
        _destination_task(subject),
    ]
