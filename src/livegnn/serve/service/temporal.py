"""Routes of temporal engines, and predictions of samplers' models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import numpy as np
from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from livegnn.errors import UsageError
from livegnn.serve.service.bodies import Ids, RequestBody, RowsAnswer, Timeout, Version
from livegnn.serve.service.context import ServiceContext
from livegnn.serve.service.reads import finite
from livegnn.temporal.engine import TemporalEngine
from livegnn.types import AnyArray

Result = TypeVar("Result")
_Time = Annotated[int, Meta(gt=-(2**63), le=2**63 - 1)]
_Times = Annotated[
    _Time | Annotated[list[_Time], Meta(min_length=1)], Meta(description="one for all, or one for each row")
]
_EdgeType = Annotated[str | list[str] | None, Meta(description="a name, or all three; where vertices have types")]
_SCORES_MAX = 1_000_000  # candidates times sources of one request


class TimedBody(RequestBody, kw_only=True):
    """time: when, in the unit of the graph's times."""

    time: _Times
    at_least: Version | None = None
    timeout_ms: Timeout = 10_000.0


class TimedRowsBody(TimedBody, kw_only=True):
    """Rows of some vertices at times."""

    ids: Ids
    vertex_type: str | None = None


class LinksBody(TimedBody, kw_only=True):
    """Probabilities of links at times."""

    pairs: Annotated[list[tuple[int | str, int | str]], Meta(min_length=1)]
    edge_type: _EdgeType = None


class NextBody(TimedBody, kw_only=True):
    """What comes next.

    temporal: the engine's name, where there are several.  candidates: all destinations unless given.
    """

    src: Ids
    temporal: str | None = None
    candidates: Ids | None = None
    k: Annotated[int, Meta(ge=1, le=1000)] = 10
    edge_type: _EdgeType = None


class SeedsBody(RequestBody, kw_only=True):
    """Seeds whose samples the model is called with."""

    seeds: Ids
    at_least: Version | None = None
    timeout_ms: Timeout = 10_000.0


class LinksAnswer(Struct, frozen=True):
    """One probability for each pair, all of one version."""

    version: int
    engine: str
    model: str
    probabilities: list[float]


class NextAnswer(Struct, frozen=True):
    """For each source the most probable destinations, best first, all of one version."""

    version: int
    engine: str
    model: str
    dst: list[list[int | str]]
    probabilities: list[list[float]]


@post("/v1/temporal/{name:str}/embeddings", status_code=200, summary="Rows of vertices at times")
async def temporal_rows(
    name: FromPath[str], data: JSONBody[TimedRowsBody], context: NamedDependency[ServiceContext]
) -> RowsAnswer:
    """Rows by a temporal model, from the memory and the sampled past of one version."""
    ids, times = context.checked(data.ids), _times(data.time)
    found = await _read(name, data, context, lambda of: of.embeddings(ids, times, vertex_type=data.vertex_type))
    return RowsAnswer(*found[1:], finite(found[0]))


@post("/v1/temporal/{name:str}/links", status_code=200, summary="Probabilities of links at times")
async def temporal_links(
    name: FromPath[str], data: JSONBody[LinksBody], context: NamedDependency[ServiceContext]
) -> LinksAnswer:
    """Probabilities of links by a temporal model."""
    context.checked([each for pair in data.pairs for each in pair], 2 * context.limits.ids_max)
    src, dst = ([pair[side] for pair in data.pairs] for side in (0, 1))
    times, edge_type = _times(data.time), _edge_type(data.edge_type)
    found = await _read(name, data, context, lambda of: of.predict(src, dst, times, edge_type=edge_type))
    return LinksAnswer(*found[1:], found[0].tolist())


@post("/v1/next", status_code=200, summary="Most probable destinations")
async def what_next(data: JSONBody[NextBody], context: NamedDependency[ServiceContext]) -> NextAnswer:
    """The k most probable destinations of each source at a time. Costs a row for each candidate and distinct time."""
    src, times, edge_type = context.checked(data.src), _times(data.time), _edge_type(data.edge_type)
    candidates = None if data.candidates is None else context.checked(data.candidates)

    def work(of: TemporalEngine) -> Any:
        count = of.graph.vertex_count if candidates is None else len(candidates)
        if count * len(src) > max(_SCORES_MAX, count):
            raise UsageError(
                f"[next] expected at most {_SCORES_MAX} sources times candidates, got {len(src)} times {count}; ask "
                "for fewer sources at once"
            )
        return of.next(src, times, candidates=candidates, k=data.k, edge_type=edge_type)

    found = await _read(data.temporal, data, context, work)
    return NextAnswer(*found[1:], found[0].dst.tolist(), found[0].probability.tolist())


async def _read(
    name: str | None, data: TimedBody, context: ServiceContext, work: Callable[[TemporalEngine], Result]
) -> tuple[Result, int, str, str]:
    """What `work` reads of a temporal engine; version, its name and its model."""
    await context.reached(data.at_least, data.timeout_ms)
    deployment = context.deployment
    known = deployment.temporal
    if name is None and len(known) == 1:
        name = next(iter(known))
    if name is None or name not in known:
        names = ", ".join(known) or "none"
        raise UsageError(f"[temporal] expected a temporal engine among {names}, got {name!r}; name one of them")
    engine, lock = known[name], deployment.graph.host.lock

    def state() -> tuple[int, str]:
        with lock:
            return engine.version, deployment.consumers.temporal[name].key

    def read() -> tuple[Result, int, str, str]:
        before = state()
        found = work(engine)
        if state() != before:  # a batch came between: once more, while batches wait
            with lock:
                before, found = state(), work(engine)
        return found, before[0], name, before[1]

    return await context.aside(read)


@post("/v1/samplers/{name:str}/predict", status_code=200, summary="Predictions of a model on samples")
async def sampler_rows(
    name: FromPath[str], data: JSONBody[SeedsBody], context: NamedDependency[ServiceContext]
) -> RowsAnswer:
    """What the sampler's model gives for the samples of seeds, which many requests share: a row for each seed."""
    server, seeds = context.sampler(name)[1], context.checked(data.seeds, context.limits.seeds_max)
    found = await server.predict_async(seeds, at_least=data.at_least, timeout=data.timeout_ms / 1e3)
    return RowsAnswer(found.version, name, context.deployment.models[name], finite(found.values))


def _times(time: int | list[int]) -> int | AnyArray:
    return np.array(time, np.int64) if isinstance(time, list) else time


def _edge_type(given: str | list[str] | None) -> Any:
    return tuple(given) if isinstance(given, list) else given


HANDLERS: tuple[Any, ...] = (temporal_rows, temporal_links, what_next, sampler_rows)
