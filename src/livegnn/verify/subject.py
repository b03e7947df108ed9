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

__all__ = ["Rows", "Subject", "random_edges"]

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


@dataclass(eq=False)
class Subject:
    """See the module's docstring.

    Raises:   ModelError where a function fails, gives a shape that does not fit, mixes rows or is not pure.
    """

    operator: Operator
    seconds: float  # of the solver, where signs of messages are left open
    reasons: dict[str, str] = field(default_factory=dict)  # function -> why it has no symbolic run

    def __post_init__(self) -> None:
        self.library, self.dtype = self._library()
        self.tolerance = 1e-7 if self.dtype == "float64" else 1e-3
        rng = np.random.default_rng(0)
        edges = random_edges(self.operator, rng, 4)
        message = self.message(edges)
        self.message_width = message.shape[1]
        context = self.context(message)
        self.context_width = context.shape[1]
        self.combined_width = self.combine(context, message).shape[1]
        self.source_width = self.source(edges).shape[1]
        product = self.times_source(self.combine(context, message), edges)
        self.product_width = product.shape[1]
        self.unscaled_width = self.times_source(message, edges).shape[1]
        self.aggregate_width = self.aggregate(product).shape[1]
        for where in ("msg_local", "source_nn", "msg_cbn", "msg_cbn_inverse", "transform"):
            self._check_rows(where)

    # ---- the functions on numbers

    def _library(self) -> tuple[str, str]:
        error: Exception | None = None
        edges = random_edges(self.operator, np.random.default_rng(0), 3)
        for library, dtype in _LIBRARIES:
            self.library, self.dtype = library, dtype
            try:
                message = self.message(edges)
                context = self.context(message)
                scaled = self.combine(context, message)
                pooled = self.aggregate(self.times_source(scaled, edges))
                self.uncombine(context, pooled)
                if self.operator.transform is not None:
                    self.call("transform", {"h_v": edges["h_v"][:1], "a": pooled})
                return library, dtype
            except ModelError as failed:
                error = error or failed
            except ImportError:
                break
        assert error is not None
        raise error

    def call(self, where: str, arguments: Mapping[str, Any]) -> Float64:
        """The user's function on numbers; a named reduction in NumPy. Raises: ModelError."""
        if isinstance(getattr(self.operator, where), str):
            return self.operator.call(where, arguments)
        return self.operator.call(where, arguments, self.library, self.dtype)

    def _rowwise(self, where: str, arguments: Mapping[str, Any], count: int) -> Float64:
        result = self.call(where, arguments)
        if result.ndim != 2 or len(result) not in (1, count) or result.size == 0:
            raise ModelError(
                f"[verify {self.operator.name}] expected {where} to give shape ({count}, any), got {result.shape}; "
                "keep one row per row"
            )
        return np.array(np.broadcast_to(result, (count, result.shape[1])))

    def _pooled(self, where: str, rows: Float64) -> Float64:
        result = self.call(where, {"mlc" if where == "nbr_ctx" else "msg": rows})
        if result.ndim != 2 or len(result) != 1 or result.size == 0:
            raise ModelError(
                f"[verify {self.operator.name}] expected {where} of {len(rows)} rows to give one row (c,), got shape "
                f"{result.shape}; reduce over axis 0"
            )
        return result

    def message(self, edges: Rows) -> Float64:
        """mlc, (N, m)."""
        count = len(edges["h_u"])
        if self.operator.msg_local is None:
            return np.ones((count, 1))
        return self._rowwise("msg_local", edges, count)

    def context(self, message: Float64) -> Float64:
        """nct, (1, c)."""
        return np.ones((1, 1)) if self.operator.nbr_ctx is None else self._pooled("nbr_ctx", message)

    def combine(self, context: Float64, rows: Float64) -> Float64:
        """msg_cbn, on messages or on aggregates."""
        if self.operator.msg_cbn is None:
            return rows
        repeated = np.repeat(context, len(rows), axis=0)
        return self._rowwise("msg_cbn", {"nct": repeated, "mlc": rows}, len(rows))

    def uncombine(self, context: Float64, rows: Float64) -> Float64:
        """msg_cbn_inverse."""
        if self.operator.msg_cbn_inverse is None:
            return rows
        repeated = np.repeat(context, len(rows), axis=0)
        return self._rowwise("msg_cbn_inverse", {"nct": repeated, "msg": rows}, len(rows))

    def source(self, edges: Rows) -> Float64:
        """source_nn, (N, d); 1 where there is none."""
        count = len(edges["h_u"])
        if self.operator.source_nn is None:
            return np.ones((count, 1))
        return self._rowwise("source_nn", edges, count)

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

    def layer_of_none(self, row: Float64) -> Float64:
        """transform(h_v, 0) of a vertex without in-edges: (1, out)."""
        return self.transform(row, np.zeros((1, self.aggregate_width)))

    def transform(self, row: Float64, a: Float64) -> Float64:
        """transform(h_v, a), (1, out)."""
        return a if self.operator.transform is None else self._rowwise("transform", {"h_v": row, "a": a}, 1)

    def _samples(self, where: str, count: int, rng: np.random.Generator) -> dict[str, Float64]:
        edges = random_edges(self.operator, rng, count)
        widths = {
            "nct": self.context_width,
            "mlc": self.message_width,
            "msg": self.aggregate_width,
            "a": self.aggregate_width,
        }
        rest = {name: np.abs(rng.normal(size=(count, width))) + 0.5 for name, width in widths.items()}
        return {name: ({**edges, **rest})[name] for name in self.operator.parameters(where)}

    def _check_rows(self, where: str) -> None:
        if getattr(self.operator, where) is None:
            return
        rng = np.random.default_rng(1)
        arguments = self._samples(where, 5, rng)
        whole = self._rowwise(where, arguments, 5)
        again = self._rowwise(where, arguments, 5)
        if not np.array_equal(whole, again, equal_nan=True):
            raise ModelError(
                f"[verify {self.operator.name}] expected {where} to be a pure function, got two answers for one input; "
                "put modules into eval mode and take randomness out"
            )
        for row in range(5):
            alone = self._rowwise(where, {name: rows[row : row + 1] for name, rows in arguments.items()}, 1)
            if not np.allclose(alone, whole[row : row + 1], rtol=1e-4, atol=1e-5, equal_nan=True):
                raise ModelError(
                    f"[verify {self.operator.name}] expected row i of {where} to depend on row i alone, got another "
                    "result for the row on its own; only nbr_ctx and aggregate may look across rows"
                )

    # ---- the functions as expressions; None where there is no symbolic run, and `reasons` says why

    def _traced(self, where: str, widths: Mapping[str, int], edges: str = "") -> Expr | None:
        function = self.operator.function(where)
        assert function is not None
        arguments = {name: ex.variable(name, widths[name], per_edge=name == edges) for name in widths}
        taken = {name: arguments[name] for name in self.operator.parameters(where)}
        try:
            made = trace(function, taken, edges=taken.get(edges))
        except TraceError as error:
            self.reasons[where] = f"{where} has no symbolic run: {error}"
            return None
        rng = np.random.default_rng(2)
        for _ in range(8):
            rows = {name: rng.normal(size=(6, width)) for name, width in widths.items()}
            if edges == "":
                rows = {
                    name: np.abs(each) + 0.1 if name in ("nct", "degree_u") else each for name, each in rows.items()
                }
            real = self.call(where, {name: rows[name] for name in taken})
            with np.errstate(all="ignore"):
                seen = ex.evaluate(made, rows)
            seen, real = np.broadcast_arrays(seen, real) if seen.shape[1] == real.shape[1] else (seen, real)
            if seen.shape != real.shape or not np.allclose(seen, real, rtol=1e-3, atol=1e-4, equal_nan=True):
                self.reasons[where] = f"{where} computes something else than its symbolic run shows"
                return None
        return made

    @cached_property
    def message_expr(self) -> Expr | None:
        """mlc in the variables of EDGE_INPUTS."""
        if self.operator.msg_local is None:
            return ex.constant(1.0)
        names = self.operator.parameters("msg_local")
        return self._traced("msg_local", {name: self.operator.input_width(name) for name in names})

    @cached_property
    def source_expr(self) -> Expr | None:
        """source_nn in the variable h_u."""
        if self.operator.source_nn is None:
            return ex.constant(1.0)
        return self._traced("source_nn", {"h_u": self.operator.width})

    @cached_property
    def context_expr(self) -> Expr | None:
        """nct in the variable mlc, a row per edge."""
        if self.operator.nbr_ctx is None:
            return ex.constant(1.0)
        return self._traced("nbr_ctx", {"mlc": self.message_width}, "mlc")

    @cached_property
    def aggregate_expr(self) -> Expr | None:
        """a in the variable msg, a row per edge."""
        return self._traced("aggregate", {"msg": self.product_width}, "msg")

    def combine_expr(self, width: int) -> Expr | None:
        """msg_cbn in nct and mlc, for mlc of this width."""
        if self.operator.msg_cbn is None:
            return ex.variable("mlc", width)
        return self._traced("msg_cbn", {"nct": self.context_width, "mlc": width})

    def uncombine_expr(self, width: int) -> Expr | None:
        """msg_cbn_inverse in nct and msg, for msg of this width."""
        if self.operator.msg_cbn_inverse is None:
            return ex.variable("msg", width)
        return self._traced("msg_cbn_inverse", {"nct": self.context_width, "msg": width})

    @cached_property
    def transform_expr(self) -> Expr | None:
        """transform in the variables h_v and a."""
        if self.operator.transform is None:
            return ex.variable("a", self.aggregate_width)
        return self._traced("transform", {"h_v": self.operator.width, "a": self.aggregate_width})

    @cached_property
    def context_states(self) -> StateForm | None:
        """nbr_ctx in state form."""
        made = self.context_expr
        return None if made is None else state_form(made, ex.variable("mlc", self.message_width))

    @cached_property
    def aggregate_states(self) -> StateForm | None:
        """aggregate in state form."""
        made = self.aggregate_expr
        return None if made is None else state_form(made, ex.variable("msg", self.product_width))

    # ---- what is known of the values

    @cached_property
    def message_signs(self) -> Signs:
        """Signs of mlc, by the rules of `signs`, and where those leave a sign open, by the solver."""
        made = self.message_expr
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
        made = self.context_expr
        return ANY if made is None else signs(made, {"mlc": self.message_signs})

    @property
    def context_counts(self) -> bool:
        """Whether nct is the number of in-edges."""
        form = self.context_states
        return form is not None and form.finish.op == "variable" and form.reductions[0].op == "count_edges"

    @property
    def supported(self) -> bool:
        """Whether a column of nct that is 0 makes the same column of every message and of their aggregate 0.

        So it is where nct is the sum of messages that are never negative: such a sum is 0 only if all of them are.
        """
        context, pooled = self.context_states, self.aggregate_states
        return (
            context is not None
            and pooled is not None
            and context.is_plain("sum_edges")
            and -1 not in self.message_signs
            and pooled.is_plain()
            and self.message_width in (1, self.aggregate_width)
        )
