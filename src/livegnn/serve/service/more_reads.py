"""Routes that read more than rows of an engine: best vertices, readouts, samples."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta, Struct

from livegnn.deployment import Deployment, topk
from livegnn.errors import UsageError
from livegnn.serve import frames, json_bodies
from livegnn.serve.service.bodies import EngineBody, Ids, RequestBody, Timeout, Version
from livegnn.serve.service.context import ServiceContext
from livegnn.serve.service.forms import FRAME, SAMPLE_FORMS, answer_form
from livegnn.serve.service.reads import finite
from livegnn.serve.writing import JSON

_GroupIds = Annotated[list[int] | None, QueryParameter(name="groups", description="groups; all unless given")]


class TopKBody(EngineBody, kw_only=True):
    """The best vertices for a vertex, or for a row of numbers.

    metric: "dot", "cosine" or "l2" (smallest distance first) of output rows; "model": the score of the model's edge
    head, or the dot product. Unless given "dot", or the index's own.  linked: False leaves out the out-neighbours of
    the vertex.  index: one of the configuration, in place of a pass over all rows.
    """

    vertex: int | str | None = None
    row: list[float] | None = None
    k: Annotated[int, Meta(ge=1, le=1000)] = 10
    metric: Literal["dot", "cosine", "l2", "model"] | None = None
    index: str | None = None
    vertex_type: str | None = None
    candidate_type: str | None = None
    linked: bool = True


class TopKAnswer(Struct, frozen=True):
    """The best first. exact: every live vertex was compared; else `recall` is the index's, when it was last measured,
    and `version` that of its rows.
    """

    version: int
    engine: str
    model: str
    vertices: list[int | str]
    scores: list[float]
    exact: bool
    recall: float


class ReadoutAnswer(Struct, frozen=True):
    """One row for each group."""

    version: int
    name: str
    groups: list[int]
    rows: list[list[float | None]]


class SamplesBody(RequestBody, kw_only=True):
    """Samples of seeds. sampler: its name, where the deployment has several."""

    seeds: Ids
    sampler: str | None = None
    features: bool = True
    edge_ids: bool = True
    edge_data: bool = True
    at_least: Version | None = None
    timeout_ms: Timeout = 10_000.0


@post("/v1/topk", status_code=200, summary="Best vertices by live rows")
async def top_k(data: JSONBody[TopKBody], context: NamedDependency[ServiceContext]) -> TopKAnswer:
    """The k vertices whose output rows are nearest, or score best. Costs one pass over all rows; with index=, less."""
    await context.reached(data.at_least, data.timeout_ms)
    if data.index is not None:
        return await context.aside(lambda: _by_index(data, data.index or "", context.deployment))
    name, live = context.engine(data.engine)

    def work() -> TopKAnswer:
        found = topk.best(
            live,
            vertex=data.vertex,
            row=None if data.row is None else np.asarray(data.row, np.float32),
            k=data.k,
            metric=data.metric or "dot",
            vertex_type=data.vertex_type,
            candidate_type=data.candidate_type,
            linked=data.linked,
        )
        model = context.deployment.key_of(found.model)
        return TopKAnswer(found.version, name, model, found.vertices.tolist(), found.scores.tolist(), True, 1.0)

    return await context.aside(work)


def _by_index(data: TopKBody, name: str, deployment: Deployment) -> TopKAnswer:
    index = deployment.indexes.get(name)
    if index is None:
        known = ", ".join(deployment.indexes) or "none"
        raise UsageError(f"[topk] expected an index among {known}, got {name!r}; name one, or leave index out")
    own = index.config
    said = [
        ("engine", data.engine, own.engine),
        ("metric", data.metric, own.metric),
        ("vertex_type", data.vertex_type, own.vertex_type or None),
        ("candidate_type", data.candidate_type, own.vertex_type or None),
    ]
    for key, given, wanted in said:
        if given is not None and given != wanted:
            raise UsageError(
                f"[topk] expected {key} {wanted!r}, which index {name!r} is of, got {given!r}; leave {key} or index out"
            )
    found = index.nearest(
        vertex=data.vertex,
        row=None if data.row is None else np.asarray(data.row, np.float32),
        k=data.k,
        linked=data.linked,
        timeout=data.timeout_ms / 1e3,
        at_least=data.at_least or 0,
    )
    vertices, scores, model = found.vertices.tolist(), found.scores.tolist(), deployment.key_of(found.model)
    return TopKAnswer(found.version, own.engine, model, vertices, scores, False, found.recall)


@get("/v1/readouts/{name:str}", summary="Rows of a readout")
async def readout(
    name: FromPath[str], context: NamedDependency[ServiceContext], groups: _GroupIds = None
) -> ReadoutAnswer:
    """The readout's row of each group, all of one version."""
    known = context.deployment.readouts
    if name not in known:
        raise UsageError(f"[readout] expected one of {', '.join(known) or 'none'}, got {name!r}; name one of them")
    one = known[name]

    def work() -> ReadoutAnswer:
        with context.deployment.graph.host.lock:
            ids = one.group_ids.tolist() if groups is None else groups
            return ReadoutAnswer(one.version, name, ids, finite(one.rows(ids)))

    return await context.aside(work)


@post("/v1/sample", status_code=200, summary="Samples that are kept ready", media_type=JSON)
async def sample(
    data: JSONBody[SamplesBody], request: Request[Any, Any, Any], context: NamedDependency[ServiceContext]
) -> Response[bytes]:
    """Samples of the neighbourhoods of seeds, all of one version, as the sample server's /v1/sample gives them; by
    Accept in JSON or as a frame.
    """
    form, server = answer_form(request, SAMPLE_FORMS), context.sampler(data.sampler)[1]
    wanted: dict[str, Any] = {"features": data.features, "edge_ids": data.edge_ids, "edge_data": data.edge_data}
    seeds = context.checked(data.seeds, context.limits.seeds_max)
    found = await server.sample_async(seeds, at_least=data.at_least, timeout=data.timeout_ms / 1e3, **wanted)
    encode = frames.encode_sample if form == FRAME else json_bodies.encode_sample
    return Response(await context.aside(lambda: encode(found, **wanted)), media_type=form)


HANDLERS = (top_k, readout, sample)
