"""The conditions of Theorem 1, each as proofs to try, counterexamples to look for, and a test on numbers.

A proof is a list of queries that must all be unsatisfiable; several proofs are alternatives. A hunt is a query whose
solution may be a counterexample. `replay` runs the user's functions on values and says whether the two sides differ.

Beyond the theorem's text: "factor" is used in its proof (Equation 11) without being listed; "zero" is the domain on
which the division by a context has a value; "inverse" is what Equation 12 needs (condition 4 as printed, monotony in
the context, does not give it: msg_cbn(z, m) = z is monotone in z and has no inverse).

Source: NeutronRT, section IV.C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.report import Counterexample
from livegnn.verify.signs import ANY, NOT_NEGATIVE, Signs
from livegnn.verify.smt import SolverQuery, VariableFacts
from livegnn.verify.states import StateForm
from livegnn.verify.subject import Subject, random_edges

__all__ = ["AGAIN", "Proof", "Task", "Values", "differ", "tasks"]

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
    proofs: tuple[Proof, ...] = ()
    hunts: tuple[SolverQuery, ...] = ()


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


def _lacking(subject: Subject, *functions: str) -> str:
    return next((subject.reasons[each] for each in functions if each in subject.reasons), "")


def _draw(rng: np.random.Generator, count: int, width: int) -> Float64:
    rows: Float64 = rng.normal(size=(count, width)) * rng.choice([0.3, 1.0, 3.0])
    return np.rint(rows) if rng.random() < 0.3 else rows


def _edges(subject: Subject, rng: np.random.Generator) -> dict[str, Float64]:
    return random_edges(subject.operator, rng, int(rng.integers(1, 6)))


# ---- conditions 1 and 2: contexts and aggregates of a union follow from those of its parts


def merged(form: StateForm, merge: str, a: Expr, b: Expr) -> Expr:
    """Two results of a function of a neighbourhood, merged: by addition ("add"), or as its rows ("self")."""
    if merge == "add":
        return ex.elementwise("add", a, b)
    return form.finished(form.merge(form.of_row(a), form.of_row(b)))


def _merge_proofs(form: StateForm, rows: Signs) -> list[Proof]:
    left, right = form.state("left"), form.state("right")
    found, counts = form.state_facts(("left", "right"), rows)
    facts = VariableFacts(found, counts)
    union = form.finished(form.merge(left, right))
    proofs = []
    total = ex.elementwise("add", form.finished(left), form.finished(right))
    valued = SolverQuery(defined=(form.finished(left),), facts=facts)
    proofs.append(Proof((SolverQuery(((union, total),), facts=facts), valued), ADDS))
    if form.finish.width == form.width:
        again = form.finished(form.merge(form.of_row(form.finished(left)), right))
        proofs.append(Proof((SolverQuery(((union, again),), facts=facts), valued), AGAIN))
    return proofs


def _merge_hunts(function: Expr, rows: str, width: int, possible: Signs) -> list[SolverQuery]:
    hunts = []
    for lefts, rights in ((1, 1), (2, 1), (2, 2)):
        left = [ex.variable(f"left{i}", width) for i in range(lefts)]
        right = [ex.variable(f"right{i}", width) for i in range(rights)]
        whole = ex.unroll(function, rows, [*left, *right])
        part, other = ex.unroll(function, rows, left), ex.unroll(function, rows, right)
        pairs = [(whole, ex.elementwise("add", part, other))]
        if function.width == width:
            pairs.append((whole, ex.unroll(function, rows, [part, *right])))
        facts, named = VariableFacts({each.name: possible for each in (*left, *right)}), _named(*left, *right)
        hunts.append(SolverQuery(tuple(pairs), facts=facts, named=named))
        hunts.append(SolverQuery(defined=(whole,), facts=facts, named=named))
    return hunts


def _named(*variables: Expr) -> dict[str, int]:
    return {each.name: each.width for each in variables}


def _stacked(values: Values, side: str) -> Float64:
    names = sorted(name for name in values if name.startswith(side))
    return np.concatenate([values[name] for name in names])


def _merge_task(subject: Subject, where: str) -> Task:
    context = where == "nbr_ctx"
    pooled = subject.context if context else subject.aggregate
    rows_name = "mlc" if context else "msg"
    width = subject.message_width if context else subject.product_width
    if context and subject.operator.nbr_ctx is None:
        return _holds("context", "contexts merge", "there is no context")
    function = subject.context_expr if context else subject.aggregate_expr
    form = subject.context_states if context else subject.aggregate_states
    possible = subject.message_signs if context else ANY

    def replay(values: Values) -> Counterexample | None:
        left, right = _stacked(values, "left"), _stacked(values, "right")
        whole, part, other = pooled(np.concatenate([left, right])), pooled(left), pooled(right)
        if not np.isfinite(whole).all():
            if max(float(np.abs(left).max()), float(np.abs(right).max())) > _LARGE:
                return None
            sides = ("a finite row", f"{where}(left and right)")
            return Counterexample({"left": left, "right": right}, np.zeros_like(whole), whole, sides)
        turned = pooled(np.concatenate([left, right])[::-1])
        if differ(whole, turned, subject.tolerance):
            sides = (f"{where}(left and right)", f"{where} of the same rows in reverse order")
            return Counterexample({"left": left, "right": right}, whole, turned, sides)
        ways = [part + other]
        if part.shape[1] == width:
            ways.append(pooled(np.concatenate([part, right])))
        if not all(differ(whole, way, subject.tolerance) for way in ways):
            return None
        sides = (f"{where}(left and right)", f"{where}({where}(left), right)" if len(ways) > 1 else "the sum of both")
        return Counterexample({"left": left, "right": right}, whole, ways[-1], sides)

    def sample(rng: np.random.Generator) -> Values:
        if context:
            left, right = subject.message(_edges(subject, rng)), subject.message(_edges(subject, rng))
        else:
            left, right = (_draw(rng, int(rng.integers(1, 5)), width) for _ in range(2))
        return {"left": left, "right": right}

    return Task(
        "context" if context else "aggregate",
        "contexts merge" if context else "aggregates merge",
        replay,
        sample,
        lacking=_lacking(subject, where) or ("" if form else f"{where} uses one reduction inside another"),
        proofs=tuple(_merge_proofs(form, possible)) if form else (),
        hunts=tuple(_merge_hunts(function, rows_name, width, possible)) if function else (),
    )


def _holds(key: str, statement: str, reason: str) -> Task:
    return Task(key, statement, lambda _: None, lambda _: {}, given=reason)


# ---- condition 3: msg_cbn distributes over aggregate


def _context_facts(subject: Subject, *supported: str) -> VariableFacts:
    pairs = tuple(("nct", name) for name in supported) if subject.supported else ()
    counts = frozenset(("nct",)) if subject.context_counts else frozenset[str]()
    return VariableFacts({"nct": subject.context_signs}, counts, pairs)


def _message_facts(subject: Subject) -> VariableFacts:
    facts = _context_facts(subject, "mlc")
    return VariableFacts({**facts.signs, "mlc": subject.message_signs}, facts.counts, facts.support)


def _with(expr: Expr, name: str, value: Expr) -> Expr:
    return ex.substitute(expr, {name: value})


def _distributes_proofs(subject: Subject, row: Expr, pooled: Expr, merge: str) -> list[Proof]:
    form = subject.aggregate_states
    assert form is not None
    x = ex.variable("x", subject.unscaled_width)
    single = (
        form.finished(form.of_row(_with(row, "mlc", x))),
        _with(pooled, "mlc", form.finished(form.of_row(x))),
    )
    a, b = (ex.variable(name, subject.aggregate_width) for name in "ab")
    union = (
        _with(pooled, "mlc", merged(form, merge, a, b)),
        merged(form, merge, _with(pooled, "mlc", a), _with(pooled, "mlc", b)),
    )
    facts = _context_facts(subject, "x", "a", "b")
    return [
        Proof(
            (SolverQuery((single,), facts=facts), SolverQuery((union,), facts=facts)), "for one row and for two results"
        )
    ]


def distributes(subject: Subject, merge: str) -> Task:
    """aggregate({msg_cbn(z, x)}) = msg_cbn(z, aggregate({x})). merge: how aggregates were proved to merge, or ""."""
    key, statement = "distributes", "msg_cbn distributes over aggregate"
    if subject.operator.msg_cbn is None:
        return _holds(key, statement, "there is no msg_cbn")
    width = subject.unscaled_width
    row, pooled = subject.combine_expr(width), subject.combine_expr(subject.aggregate_width)
    function = subject.aggregate_expr
    hunts, proofs = [], []
    if row is not None and pooled is not None and function is not None and row.width == subject.product_width == width:
        if merge and subject.aggregate_states is not None:
            proofs = _distributes_proofs(subject, row, pooled, merge)
        for count in (1, 2):
            rows = [ex.variable(f"x{i}", width) for i in range(count)]
            inside = ex.unroll(function, "msg", [_with(row, "mlc", each) for each in rows])
            outside = _with(pooled, "mlc", ex.unroll(function, "msg", rows))
            facts = _context_facts(subject, *(each.name for each in rows))
            named = {"nct": subject.context_width, **_named(*rows)}
            hunts.append(SolverQuery(((inside, outside),), facts=facts, named=named))

    def replay(values: Values) -> Counterexample | None:
        rows, context = _stacked(values, "x"), values["nct"]
        combined = subject.combine(context, rows)
        inside, outside = subject.aggregate(combined), subject.combine(context, subject.aggregate(rows))
        if not differ(inside, outside, subject.tolerance, combined):
            return None
        sides = ("aggregate of msg_cbn", "msg_cbn of aggregate")
        return Counterexample({"nct": context, "x": rows}, inside, outside, sides)

    def sample(rng: np.random.Generator) -> Values:
        edges = _edges(subject, rng)
        message = subject.message(edges)
        return {"nct": subject.context(message), "x": subject.times_source(message, edges)}

    lacking = _lacking(subject, "msg_cbn", "aggregate", "nbr_ctx") or (
        "" if merge else "aggregates are not proved to merge"
    )
    return Task(key, statement, replay, sample, lacking=lacking, proofs=tuple(proofs), hunts=tuple(hunts))


# ---- used in the proof of Theorem 1: a message's context may be put on after source_nn


def _factor_task(subject: Subject) -> Task:
    key, statement = "factor", "msg_cbn commutes with source_nn"
    if subject.operator.msg_cbn is None or subject.operator.source_nn is None:
        missing = "msg_cbn" if subject.operator.msg_cbn is None else "source_nn"
        return _holds(key, statement, f"there is no {missing}")
    before, after = subject.combine_expr(subject.message_width), subject.combine_expr(subject.unscaled_width)
    proofs, hunts = [], []
    if before is not None and after is not None:
        message, source = ex.variable("mlc", subject.message_width), ex.variable("f", subject.source_width)
        pair = (ex.elementwise("mul", before, source), _with(after, "mlc", ex.elementwise("mul", message, source)))
        named = {"nct": subject.context_width, **_named(message, source)}
        query = SolverQuery((pair,), facts=_message_facts(subject), named=named)
        proofs, hunts = [Proof((query,), "for every message and every factor")], [query]

    def replay(values: Values) -> Counterexample | None:
        context, message, source = values["nct"], values["mlc"], values["f"]
        before = subject.combine(context, message) * source
        after = subject.combine(context, message * source)
        if not differ(before, after, subject.tolerance):
            return None
        sides = ("msg_cbn(nct, mlc) * f", "msg_cbn(nct, mlc * f)")
        return Counterexample({"nct": context, "mlc": message, "f": source}, before, after, sides)

    def sample(rng: np.random.Generator) -> Values:
        edges = _edges(subject, rng)
        message = subject.message(edges)
        return {"nct": subject.context(message), "mlc": message[:1], "f": subject.source(edges)[:1]}

    lacking = _lacking(subject, "msg_cbn", "nbr_ctx")
    return Task(key, statement, replay, sample, lacking=lacking, proofs=tuple(proofs), hunts=tuple(hunts))


# ---- condition 4: msg_cbn_inverse gives back the aggregate


def _inverse_task(subject: Subject) -> Task:
    key, statement = "inverse", "msg_cbn_inverse undoes msg_cbn"
    if subject.operator.msg_cbn is None:
        return _holds(key, statement, "there is no msg_cbn")
    width = subject.aggregate_width
    there, back = subject.combine_expr(width), subject.uncombine_expr(width)
    proofs, hunts = [], []
    if there is not None and back is not None and there.width == width:
        a = ex.variable("a", width)
        pair = (_with(back, "msg", _with(there, "mlc", a)), a)
        named = {"nct": subject.context_width, "a": width}
        query = SolverQuery((pair,), facts=_context_facts(subject, "a"), named=named)
        proofs, hunts = [Proof((query,), "for every context and every aggregate")], [query]

    def replay(values: Values) -> Counterexample | None:
        context, pooled = values["nct"], values["a"]
        found = subject.uncombine(context, subject.combine(context, pooled))
        if not differ(pooled, found, subject.tolerance):
            return None
        sides = ("a", "msg_cbn_inverse(nct, msg_cbn(nct, a))")
        return Counterexample({"nct": context, "a": pooled}, pooled, found, sides)

    def sample(rng: np.random.Generator) -> Values:
        edges = _edges(subject, rng)
        message = subject.message(edges)
        return {"nct": subject.context(message), "a": subject.aggregate(subject.times_source(message, edges))}

    lacking = _lacking(subject, "msg_cbn", "msg_cbn_inverse", "nbr_ctx")
    return Task(key, statement, replay, sample, lacking=lacking, proofs=tuple(proofs), hunts=tuple(hunts))


# ---- contexts that fall to zero: msg_cbn and its inverse have a value for every neighbourhood that is not empty


def _zero_hunts(subject: Subject, there: Expr, back: Expr) -> list[SolverQuery]:
    """Neighbourhoods of one to three edges, from the rows of their sources on."""
    context, message, source = subject.context_expr, subject.message_expr, subject.source_expr
    pooled = subject.aggregate_expr
    if context is None or message is None or source is None or pooled is None:
        return []
    hunts = []
    shared = {"h_v"}  # all edges of a neighbourhood have one destination
    for count in (1, 2, 3):
        rows: list[Expr] = []
        products: list[Expr] = []
        facts: dict[str, Signs] = {}
        for i in range(count):
            named = {
                each.name: ex.variable(each.name if each.name in shared else f"{each.name}.{i}", each.width)
                for each in ex.walk(message, source)
                if each.op == "variable"
            }
            facts |= {f"{name}.{i}": NOT_NEGATIVE for name in ("degree_u", "edge_type")}
            rows.append(ex.substitute(message, named))
            products.append(ex.elementwise("mul", rows[-1], ex.substitute(source, named)))
        if "edge_type" in subject.operator.parameters("msg_local"):
            return []  # one-hot rows are left to the tests
        z = ex.unroll(context, "mlc", rows)
        a = ex.unroll(pooled, "msg", products)
        if a.width != subject.aggregate_width:
            return []
        made = ex.substitute(there, {"nct": z, "mlc": a})
        undone = ex.substitute(back, {"nct": z, "msg": made})
        asked = {
            name: subject.operator.input_width(name) for name in ("h_u", *subject.operator.parameters("msg_local"))
        }
        per_edge = {f"{name}.{i}": width for name, width in asked.items() if name not in shared for i in range(count)}
        whole = {name: width for name, width in asked.items() if name in shared}
        query = SolverQuery((), (made, undone), (z, a), VariableFacts(facts), {**per_edge, **whole})
        hunts.append(query)
    return hunts


def _gathered(values: Values) -> dict[str, Float64]:
    """Rows of edges, from one value per edge."""
    found: dict[str, list[Float64]] = {}
    for name in sorted(values):
        found.setdefault(name.split(".")[0], []).append(values[name])
    return {name: np.concatenate(rows) for name, rows in found.items()}


def _zero_task(subject: Subject) -> Task:
    key, statement = "zero", "contexts stay where msg_cbn has a value"
    if subject.operator.msg_cbn is None:
        return _holds(key, statement, "there is no msg_cbn")
    width = subject.aggregate_width
    there, back = subject.combine_expr(width), subject.uncombine_expr(width)
    proofs: list[Proof] = []
    hunts: list[SolverQuery] = []
    if there is not None and back is not None and there.width == width:
        a = ex.variable("a", width)
        made = _with(there, "mlc", a)
        facts = _context_facts(subject, "a")
        on_messages = subject.combine_expr(subject.message_width)
        queries = [SolverQuery(defined=(made, _with(back, "msg", made)), facts=facts)]
        if on_messages is not None:
            queries.append(SolverQuery(defined=(on_messages,), facts=_message_facts(subject)))
            proofs = [Proof(tuple(queries), "for every message and every aggregate")]
        hunts = _zero_hunts(subject, there, back)

    def replay(values: Values) -> Counterexample | None:
        edges = _gathered(values)
        count = max((len(rows) for rows in edges.values()), default=1)
        zeros = {name: np.zeros((count, subject.operator.input_width(name))) for name in ("h_u", "h_v")}
        edges = {**zeros, **edges}
        edges["h_v"] = np.repeat(edges["h_v"][:1], count, axis=0)
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
    sample: Callable[[np.random.Generator], Values] = lambda rng: _edges(subject, rng)  # noqa: E731
    return Task(key, statement, replay, sample, lacking=lacking, proofs=tuple(proofs), hunts=tuple(hunts))


# ---- section IV.C, the constraint: messages are free of the destination


def _destination_task(subject: Subject) -> Task:
    key, statement = "destination", "messages are free of the destination"
    names = subject.operator.parameters("msg_local")
    if "h_v" not in names:
        return _holds(key, statement, "msg_local does not ask for h_v")
    message = subject.message_expr
    proofs, hunts = [], []
    if message is not None:
        if not any(each.op == "variable" and each.name == "h_v" for each in ex.walk(message)):
            return _holds(key, statement, "msg_local asks for h_v and does not use it")
        other = ex.substitute(message, {"h_v": ex.variable("other", subject.operator.width)})
        facts = VariableFacts({"degree_u": NOT_NEGATIVE, "edge_type": NOT_NEGATIVE})
        named = {**{name: subject.operator.input_width(name) for name in names}, "other": subject.operator.width}
        query = SolverQuery(((message, other),), facts=facts, named=named)
        proofs, hunts = [Proof((query,), "h_v cancels")], [query]

    def replay(values: Values) -> Counterexample | None:
        shapes = {name: (1, subject.operator.input_width(name)) for name in names}
        edges = {name: values.get(name, np.zeros(shape))[:1] for name, shape in shapes.items()}
        edges.setdefault("h_u", np.zeros((1, subject.operator.width)))
        first = subject.message(edges)
        second = subject.message({**edges, "h_v": values["other"]})
        if not differ(first, second, subject.tolerance):
            return None
        sides = ("msg_local with h_v", "with other")
        return Counterexample({**{name: edges[name] for name in names}, "other": values["other"]}, first, second, sides)

    def sample(rng: np.random.Generator) -> Values:
        edges = {name: rows[:1] for name, rows in _edges(subject, rng).items()}
        return {**edges, "other": _draw(rng, 1, subject.operator.width)}

    lacking = _lacking(subject, "msg_local")
    return Task(key, statement, replay, sample, lacking=lacking, proofs=tuple(proofs), hunts=tuple(hunts))


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
