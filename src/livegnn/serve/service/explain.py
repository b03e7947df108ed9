"""The route of explanations: what a vertex's output is made of, and what moved it last. docs/explain-live.md."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Annotated, Any
from urllib.parse import quote, unquote

import numpy as np
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from livegnn.errors import VertexUnknown
from livegnn.graph import Graph
from livegnn.inference.explain.contributions import (
    ContributionChange,
    Contributions,
    ShareChange,
    SourceChange,
    SourceContributions,
    holders,
)
from livegnn.inference.explain.shares import Shares
from livegnn.serve.envelope import Refused
from livegnn.serve.service.context import ServiceContext
from livegnn.serve.writing import Scope
from livegnn.types import AnyArray

PREFIX = "/v1/explain/"


def spelled(scope: Scope) -> tuple[Scope, str]:
    """A request's scope and path. The path has a vertex as the client has spelled it, so that its slashes are %2F."""
    root = scope.get("root_path", "")
    path = scope["path"][len(root) :]
    if not path.startswith(PREFIX):
        return scope, path
    raw = scope.get("raw_path")
    path = PREFIX + quote(path.removeprefix(PREFIX)) if raw is None else raw[len(root) :].decode("latin-1")
    return {**scope, "path": root + path}, path


class SourceShare(Struct, frozen=True):
    """One in-edge: its source, what it adds to the output's column or to the aggregate, and its part of the sum."""

    vertex: int | str
    type: str | None
    edge: int
    weight: float
    factor: float
    prediction: int | float | None
    share: float
    attention: list[float] | None
    columns: list[int] | None
    term: list[int] | None
    message: list[float] | None


class OwnShare(Struct, frozen=True):
    """The vertex's own term in the sum."""

    share: float
    attention: list[float] | None
    columns: list[int] | None
    term: list[int] | None


class OtherShares(Struct, frozen=True):
    """All in-edges that are not listed."""

    count: int
    share: float
    term: list[int] | None


class ExplainedAggregate(Struct, frozen=True):
    """One aggregate: in_neighbours, own and others sum to it, integer for integer."""

    name: str
    family: str
    exponents: list[int]
    finish: float | list[list[float]]
    aggregate: list[int | float] | None
    exact: bool
    in_neighbours: list[SourceShare]
    own: OwnShare | None
    others: OtherShares


class MovedShare(Struct, frozen=True):
    """One in-edge that a version moved. why: added, removed, weight, message, factor, held."""

    vertex: int | str
    type: str | None
    edge: int
    why: list[str]
    share: float
    before: list[int] | None
    after: list[int] | None
    difference: list[int] | None


class MovedRest(Struct, frozen=True):
    """count: in-edges whose messages stayed. What they gained, a degree or a softmax's sum has moved."""

    count: int
    share: float
    difference: list[int] | None


class ExplainedChange(Struct, frozen=True):
    """What a version did to one aggregate."""

    name: str
    family: str
    exponents: list[int]
    finish_before: float | list[list[float]]
    finish: float | list[list[float]]
    difference: list[int] | None
    in_neighbours: list[MovedShare]
    own: MovedRest | None
    others: MovedRest


class SourceExplained(Struct, frozen=True):
    """An in-neighbour's own aggregates, one layer before."""

    vertex: int | str
    type: str | None
    aggregations: list[ExplainedAggregate]


class SourceMoved(Struct, frozen=True):
    """What the version did to an in-neighbour's own aggregates, one layer before."""

    vertex: int | str
    type: str | None
    aggregations: list[ExplainedChange]


class LatestChange(Struct, frozen=True):
    """The last version that changed the vertex's output."""

    version: int
    aggregations: list[ExplainedChange]
    sources: list[SourceMoved]


class ExplainAnswer(Struct, frozen=True):
    """What one output is made of, and what moved it last. All is of one version."""

    version: int
    engine: str
    model: str
    vertex: int | str
    type: str | None
    prediction: int | float | None
    column: int
    linear: bool
    aggregations: list[ExplainedAggregate]
    sources: list[SourceExplained]
    change: LatestChange | None
    change_missing: str | None
    recorded_since: int | None


def _query(name: str, about: str) -> QueryParameter:
    return QueryParameter(name=name, required=False, description=about)


@get("/v1/explain/{vertex:path}", summary="What an output is made of")
async def explain(
    vertex: FromPath[str],
    context: NamedDependency[ServiceContext],
    engine: Annotated[str | None, _query("engine", "its name, where there are several")] = None,
    vertex_type: Annotated[str | None, _query("type", "of the vertex, where they have types")] = None,
    column: Annotated[int | None, _query("column", "of the output; the predicted class unless given")] = None,
    hops: Annotated[int, _query("hops", "2: the in-neighbours' own shares, too")] = 1,
    limit: Annotated[int, _query("limit", "entries of each list")] = 100,
    rows: Annotated[bool, _query("rows", "false leaves rows of numbers out")] = True,
    at_least: Annotated[int | None, _query("at_least", "a version to wait for")] = None,
    timeout_ms: Annotated[float, _query("timeout_ms", "milliseconds to wait for it")] = 10_000.0,
) -> ExplainAnswer:
    """Which in-neighbours' messages the vertex's output is made of, exactly, and which of them moved it last.

    The writer waits for the answer, and the answer for a batch under way. Costs the vertex's in-edges.
    """
    _check(at_least, timeout_ms, limit, hops, context)
    await context.reached(at_least, timeout_ms)
    name, found = context.engine(engine)
    wanted = _id_of(unquote(vertex.removeprefix("/")), found.graph)
    deployment = context.deployment

    def work() -> ExplainAnswer:
        with found.graph.host.lock:
            how = {"vertex_type": vertex_type, "column": column, "hops": hops, "limit": limit}
            answer = deployment.explanations.of(name, wanted, **how)
            prediction = None
            if len(found.model.outputs) < 2:
                prediction = found.predict([wanted], vertex_type=vertex_type).tolist()[0]
            model = deployment.key_of(found.model)
        return _Writer(limit, rows).answer(answer, name, model, prediction)

    return await context.aside(work)


def _check(at_least: int | None, timeout_ms: float, limit: int, hops: int, context: ServiceContext) -> None:
    if at_least is not None and not 0 <= at_least < 2**63:
        raise _refused("at_least as a version", at_least)
    if not 0 < timeout_ms <= context.limits.timeout_ms_max:
        raise _refused(f"timeout_ms up to {context.limits.timeout_ms_max}", timeout_ms)
    most = context.limits.ids_max if hops == 1 else isqrt(context.limits.ids_max)  # lists of lists
    if not 1 <= limit <= most:
        raise _refused(f"a limit from 1 to {most}", limit)


def _refused(expected: str, got: object) -> Refused:
    return Refused(400, "QueryInvalid", f"[explain] expected {expected}, got {got}; correct it")


def _id_of(text: str, graph: Graph) -> int | str:
    if graph.host.ids.text:
        return text
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 19:
        raise VertexUnknown(f"[explain] expected a vertex id, which are integers here, got {text[:40]!r}; correct it")
    return int(text)


class _Writer:
    """Contributions as the structs above: the largest shares one by one, the others in one."""

    def __init__(self, limit: int, rows: bool) -> None:
        self._limit, self._rows = limit, rows

    def answer(self, found: Contributions, engine: str, model: str, prediction: Any) -> ExplainAnswer:
        return ExplainAnswer(
            found.version,
            engine,
            model,
            found.vertex,
            found.vertex_type,
            prediction,
            found.column,
            found.is_linear,
            [self._shares(each) for each in found.aggregations],
            [self._source(each) for each in found.sources],
            None if found.change is None else self._latest(found.change),
            found.change_missing,
            found.recorded_since,
        )

    def _source(self, one: SourceContributions) -> SourceExplained:
        return SourceExplained(one.vertex, one.vertex_type, [self._shares(each) for each in one.aggregations])

    def _shares(self, found: Shares) -> ExplainedAggregate:
        listed, left = self._split(found.scores)
        held = holders(found.held)
        in_neighbours = [
            SourceShare(
                *_named(found, place),
                float(found.weights[place]),
                float(found.factors[place]),
                found.predictions[place],
                float(found.scores[place]),
                None if found.attention is None else found.attention[place].tolist(),
                None if held is None else held[place],
                self._row(found.terms, place),
                found.messages[place].tolist() if self._rows else None,
            )
            for place in listed
        ]
        return ExplainedAggregate(
            found.name,
            found.family,
            list(found.exponents),
            _finish(found.finish),
            found.aggregate.tolist() if self._rows else None,
            found.terms is not None or found.held is not None,
            in_neighbours,
            self._own(found),
            OtherShares(len(left), float(found.scores[left].sum()), self._sum(found.terms, left)),
        )

    def _own(self, found: Shares) -> OwnShare | None:
        if found.own_score is None:
            return None
        return OwnShare(
            found.own_score,
            None if found.own_attention is None else found.own_attention.tolist(),
            None if found.own_held is None else np.flatnonzero(found.own_held).tolist(),
            found.own.tolist() if self._rows and found.own is not None else None,
        )

    def _latest(self, change: ContributionChange) -> LatestChange:
        sources = [self._moved_source(each) for each in change.sources]
        return LatestChange(change.version, [self._change(each) for each in change.aggregations], sources)

    def _moved_source(self, one: SourceChange) -> SourceMoved:
        return SourceMoved(one.vertex, one.vertex_type, [self._change(each) for each in one.aggregations])

    def _change(self, found: ShareChange) -> ExplainedChange:
        listed, left = self._split(found.scores)
        steps = None if found.before is None or found.after is None else found.after - found.before
        in_neighbours = [
            MovedShare(
                *_named(found, place),
                list(found.why[place]),
                float(found.scores[place]),
                self._row(found.before, place),
                self._row(found.after, place),
                self._row(steps, place),
            )
            for place in listed
        ]
        own_step = None if found.own_before is None or found.own_after is None else found.own_after - found.own_before
        own = None
        if found.own_score is not None:
            own = MovedRest(1, found.own_score, own_step.tolist() if self._rows and own_step is not None else None)
        rest = found.rest_score + float(found.scores[left].sum())
        return ExplainedChange(
            found.name,
            found.family,
            list(found.exponents),
            _finish(found.finish_before),
            _finish(found.finish),
            found.difference.tolist() if self._rows and found.difference is not None else None,
            in_neighbours,
            own,
            MovedRest(found.rest_count + len(left), rest, self._sum(steps, left)),
        )

    def _split(self, scores: AnyArray) -> tuple[list[int], list[int]]:
        """Places by size, the first `limit` and the others."""
        order = np.argsort(-np.abs(scores), kind="stable").tolist()
        return order[: self._limit], order[self._limit :]

    def _row(self, rows: AnyArray | None, place: int) -> list[int] | None:
        return None if rows is None or not self._rows else list(rows[place].tolist())

    def _sum(self, rows: AnyArray | None, places: Sequence[int]) -> list[int] | None:
        return None if rows is None or not self._rows else list(rows[list(places)].sum(axis=0).tolist())


def _named(found: Shares | ShareChange, place: int) -> tuple[int | str, str | None, int]:
    vertex = found.vertices[place]
    return (
        vertex if isinstance(vertex, str) else int(vertex),
        None if found.types is None else found.types[place],
        int(found.edge_ids[place]),
    )


def _finish(finish: Any) -> float | list[list[float]]:
    return float(finish) if isinstance(finish, float) else finish.tolist()


HANDLERS = (explain,)
