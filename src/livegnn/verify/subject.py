"""An operator made ready for proofs: the shapes of its parts, its functions run on numbers, and their symbolic runs.

A symbolic run is believed only if it computes what the function itself computes on random rows. Functions that mix the
rows of a batch, or give two answers to one question, break the contract of `Operator` and are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from livegnn.errors import ModelError
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr, Float64
from livegnn.verify.operator import Operator
from livegnn.verify.signs import ANY, NOT_NEGATIVE, Signs, signs
from livegnn.verify.smt import SolverQuery, VariableFacts, solve
from livegnn.verify.states import StateForm, state_form
from livegnn.verify.tracer import TraceError, trace

Rows = Mapping[str, Float64]
_LIBRARIES = (("numpy", "float64"), ("torch", "float64"), ("torch", "float32"))


def random_edges(operator: Operator, rng: np.random.Generator, count: int) -> dict[str, Float64]:
    """Inputs of `msg_local` for `count` edges, of a kind drawn at random: plain, whole, zero, opposite or equal."""
    kind = rng.choice(["plain", "plain", "whole", "zero", "opposite", "equal"])
    shapes = {name: (count, operator.input_width(name)) for name in ("h_u", "h_v", "weight", "edge_attr")}
    found = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    if kind == "whole":
        found = {name: np.rint(2 * rows) for name, rows in found.items()}
    if kind == "zero":
        found["h_u"][0] = 0.0
    if kind == "opposite" and count > 1:
        found = {name: np.concatenate([rows[:1], -rows[:1], rows[2:]]) for name, rows in found.items()}
    if kind == "equal":
        found = {name: np.repeat(rows[:1], count, axis=0) for name, rows in found.items()}
    found["h_v"] = np.repeat(found["h_v"][:1], count, axis=0)  # all edges of one vertex
    types = max(operator.edge_type_count, 1)
    found["edge_type"] = np.eye(types)[rng.integers(0, types, count)]
    found["degree_u"] = rng.integers(0, 6, (count, 1)).astype(np.float64)
    return found


#: What the functions that may be left out then are: this argument; 1 for the others.
_LEFT_OUT = {"msg_cbn": "mlc", "msg_cbn_inverse": "msg", "transform": "a"}
_POOLS = {"nbr_ctx": "mlc", "aggregate": "msg"}  # functions of a neighbourhood, and their rows


@dataclass(eq=False)
class Subject:
    """See the module's docstring.

    Raises:   ModelError where a function fails, gives a shape that does not fit, mixes rows or is not pure.
    """

    operator: Operator
    seconds: float  # of the solver, where signs of messages are left open
    reasons: dict[str, str] = field(default_factory=dict)  # function -> why it has no symbolic run
    _exprs: dict[tuple[str, int], Expr | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._run_once()
        self.tolerance = 1e-7 if self.dtype == "float64" else 1e-3
        for where in ("msg_local", "source_nn", "msg_cbn", "msg_cbn_inverse", "transform"):
            self._check_rows(where)

    # ---- the functions on numbers

    def _run_once(self) -> None:
        """Finds the library that the functions are written for, and the widths of what they give."""
        errors: list[ModelError] = []
        edges = random_edges(self.operator, np.random.default_rng(0), 3)
        for self.library, self.dtype in _LIBRARIES:
            try:
                message = self.message(edges)
                context = self.context(message)
                product = self.times_source(self.combine(context, message), edges)
                pooled = self.aggregate(product)
                self.uncombine(context, pooled)
                self.transform(edges["h_v"][:1], pooled)
            except ModelError as error:
                errors.append(error)
                continue
            except ImportError:
                break
            self.message_width, self.context_width = message.shape[1], context.shape[1]
            self.source_width = self.source(edges).shape[1]
            self.product_width, self.aggregate_width = product.shape[1], pooled.shape[1]
            self.unscaled_width = self.times_source(message, edges).shape[1]
            return
        raise errors[0]

    def call(self, where: str, arguments: Mapping[str, Any]) -> Float64:
        """The user's function on numbers; a named reduction in NumPy. Raises: ModelError."""
        if isinstance(getattr(self.operator, where), str):
            return self.operator.call(where, arguments)
        return self.operator.call(where, arguments, self.library, self.dtype)

    def _rows(self, where: str, arguments: Mapping[str, Any], count: int) -> Float64:
        """A function that gives a row per row."""
        if getattr(self.operator, where) is None:
            return arguments[_LEFT_OUT[where]] if where in _LEFT_OUT else np.ones((count, 1))
        result = self.call(where, arguments)
        if result.ndim != 2 or len(result) not in (1, count) or result.size == 0:
            raise ModelError(
                f"[verify {self.operator.name}] expected {where} to give shape ({count}, any), got {result.shape}; "
                "keep one row per row"
            )
        return np.array(np.broadcast_to(result, (count, result.shape[1])))

    def _pooled(self, where: str, rows: Float64) -> Float64:
        """A function of a neighbourhood, which gives one row."""
        if getattr(self.operator, where) is None:
            return np.ones((1, 1))
        result = self.call(where, {_POOLS[where]: rows})
        if result.ndim != 2 or len(result) != 1 or result.size == 0:
            raise ModelError(
                f"[verify {self.operator.name}] expected {where} of {len(rows)} rows to give one row (c,), got shape "
                f"{result.shape}; reduce over axis 0"
            )
        return result

    def message(self, edges: Rows) -> Float64:
        """mlc, (N, m)."""
        return self._rows("msg_local", edges, len(edges["h_u"]))

    def context(self, message: Float64) -> Float64:
        """nct, (1, c)."""
        return self._pooled("nbr_ctx", message)

    def combine(self, context: Float64, rows: Float64) -> Float64:
        """msg_cbn, on messages or on aggregates."""
        return self._rows("msg_cbn", {"nct": np.repeat(context, len(rows), axis=0), "mlc": rows}, len(rows))

    def uncombine(self, context: Float64, rows: Float64) -> Float64:
        """msg_cbn_inverse."""
        return self._rows("msg_cbn_inverse", {"nct": np.repeat(context, len(rows), axis=0), "msg": rows}, len(rows))

    def source(self, edges: Rows) -> Float64:
        """source_nn, (N, d)."""
        return self._rows("source_nn", edges, len(edges["h_u"]))

    def times_source(self, rows: Float64, edges: Rows) -> Float64:
        """Messages times source_nn. Raises: ModelError for widths that do not fit."""
        source = self.source(edges)
        if 1 not in (rows.shape[1], source.shape[1]) and rows.shape[1] != source.shape[1]:
            raise ModelError(
                f"[verify {self.operator.name}] expected messages and source_nn of one width or 1, got "
                f"{rows.shape[1]} and {source.shape[1]}; repeat the columns of one"
            )
        return rows * source

    def aggregate(self, rows: Float64) -> Float64:
        """aggregate, (1, d')."""
        return self._pooled("aggregate", rows)

    def layer(self, edges: Rows) -> Float64:
        """transform(h_v, a) of the vertex whose in-edges these are, by Equations 5 to 9: (1, out)."""
        message = self.message(edges)
        a = self.aggregate(self.times_source(self.combine(self.context(message), message), edges))
        return self.transform(edges["h_v"][:1], a)

    def transform(self, row: Float64, a: Float64) -> Float64:
        """transform(h_v, a), (1, out)."""
        return self._rows("transform", {"h_v": row, "a": a}, 1)

    def _input_width(self, name: str, rows_width: int = 0) -> int:
        """Columns of an argument. rows_width: of mlc and msg, where they are not as wide as messages and aggregates."""
        if name in ("mlc", "msg") and rows_width:
            return rows_width
        widths = {"nct": self.context_width, "mlc": self.message_width}
        widths |= dict.fromkeys(("msg", "a"), self.aggregate_width)
        return widths[name] if name in widths else self.operator.input_width(name)

    def _check_rows(self, where: str) -> None:
        if getattr(self.operator, where) is None:
            return
        rng = np.random.default_rng(1)
        edges = random_edges(self.operator, rng, 5)
        arguments = {
            name: edges[name] if name in edges else np.abs(rng.normal(size=(5, self._input_width(name)))) + 0.5
            for name in self.operator.parameters(where)
        }
        whole = self._rows(where, arguments, 5)
        again = self._rows(where, arguments, 5)
        if not np.array_equal(whole, again, equal_nan=True):
            raise ModelError(
                f"[verify {self.operator.name}] expected {where} to be a pure function, got two answers for one input; "
                "put modules into eval mode and take randomness out"
            )
        for row in range(5):
            alone = self._rows(where, {name: rows[row : row + 1] for name, rows in arguments.items()}, 1)
            if not np.allclose(alone, whole[row : row + 1], rtol=1e-4, atol=1e-5, equal_nan=True):
                raise ModelError(
                    f"[verify {self.operator.name}] expected row i of {where} to depend on row i alone, got another "
                    "result for the row on its own; only nbr_ctx and aggregate may look across rows"
                )

    # ---- the functions as expressions

    def expr(self, where: str, rows_width: int = 0) -> Expr | None:
        """The function in variables called as its parameters; None without a symbolic run, and `reasons` says why.

        rows_width: of the rows that msg_cbn or its inverse is put on; 0: of messages, of aggregates.
        """
        if where == "aggregate":
            rows_width = self.product_width
        if (where, rows_width) not in self._exprs:
            self._exprs[where, rows_width] = self._made(where, rows_width)
        return self._exprs[where, rows_width]

    def _made(self, where: str, rows_width: int) -> Expr | None:
        function = self.operator.function(where)
        if function is None:
            name = _LEFT_OUT.get(where)
            return ex.variable(name, self._input_width(name, rows_width)) if name else ex.constant(1.0)
        widths = {name: self._input_width(name, rows_width) for name in self.operator.parameters(where)}
        rows = _POOLS.get(where)
        arguments = {name: ex.variable(name, width, per_edge=name == rows) for name, width in widths.items()}
        try:
            made = trace(function, arguments, edges=arguments.get(rows) if rows else None)
        except TraceError as error:
            self.reasons[where] = f"{where} has no symbolic run: {error}"
            return None
        rng = np.random.default_rng(2)
        for _ in range(8):
            given = {name: rng.normal(size=(6, width)) for name, width in widths.items()}
            given |= {name: np.abs(given[name]) + 0.1 for name in ("nct", "degree_u") if name in given}
            real = self.call(where, given)
            with np.errstate(all="ignore"):
                seen = ex.evaluate(made, given)
            seen, real = np.broadcast_arrays(seen, real) if seen.shape[1] == real.shape[1] else (seen, real)
            if seen.shape != real.shape or not np.allclose(seen, real, rtol=1e-3, atol=1e-4, equal_nan=True):
                self.reasons[where] = f"{where} computes something else than its symbolic run shows"
                return None
        return made

    def states(self, where: str) -> StateForm | None:
        """nbr_ctx or aggregate in state form."""
        made = self.expr(where)
        width = self.message_width if where == "nbr_ctx" else self.product_width
        return None if made is None else state_form(made, ex.variable(_POOLS[where], width))

    # ---- what is known of the values

    @cached_property
    def message_signs(self) -> Signs:
        """Signs of mlc, by the rules of `signs`, and where those leave a sign open, by the solver."""
        made = self.expr("msg_local")
        if made is None:
            return ANY
        inputs = {"degree_u": NOT_NEGATIVE, "edge_type": NOT_NEGATIVE}
        found = signs(made, inputs)
        if found != ANY:
            return found
        zero = ex.constant(0.0)
        cases = {
            -1: ex.elementwise("less", made, zero),
            0: ex.elementwise("equal", made, zero),
            1: ex.elementwise("less", zero, made),
        }
        queries = {sign: SolverQuery(((case, zero),), facts=VariableFacts(inputs)) for sign, case in cases.items()}
        return frozenset(sign for sign, query in queries.items() if solve(query, self.seconds / 3).verdict != "unsat")

    @cached_property
    def context_signs(self) -> Signs:
        """Signs of nct over all neighbourhoods that are not empty."""
        made = self.expr("nbr_ctx")
        return ANY if made is None else signs(made, {"mlc": self.message_signs})

    @property
    def context_counts(self) -> bool:
        """Whether nct is the number of in-edges."""
        form = self.states("nbr_ctx")
        return form is not None and form.finish.op == "variable" and form.reductions[0].op == "count_edges"

    @property
    def supported(self) -> bool:
        """Whether a column of nct that is 0 makes the same column of every message and of their aggregate 0.

        So it is where nct is the sum of messages that are never negative: such a sum is 0 only if all of them are.
        """
        context, pooled = self.states("nbr_ctx"), self.states("aggregate")
        return (
            context is not None
            and pooled is not None
            and context.is_plain("sum_edges")
            and -1 not in self.message_signs
            and pooled.is_plain()
            and self.message_width in (1, self.aggregate_width)
        )
