"""Routes that read: embeddings, predictions, scores of pairs, what-if, models."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from livegnn.serve.json_bodies import updates_of
from livegnn.serve.service.bodies import (
    ModelsAnswer,
    PairsBody,
    PredictionsAnswer,
    ReadBody,
    RowsAnswer,
    ScoresAnswer,
    ShadowAnswer,
    WhatIfAnswer,
    WhatIfBody,
)
from livegnn.serve.service.context import ServiceContext
from livegnn.serve.service.forms import RowsOperation, answer_form, binary
from livegnn.serve.writing import JSON
from livegnn.types import AnyArray

QueryIds = Annotated[list[str], QueryParameter(name="ids", description="vertices; once for each id", min_items=1)]
QueryText = Annotated[str | None, QueryParameter(required=False, description="as in the body of POST")]
QueryVersion = Annotated[int | None, QueryParameter(required=False, ge=0, le=2**63 - 1, description="to wait for")]
QueryTimeout = Annotated[float, QueryParameter(required=False, gt=0, le=60_000, description="milliseconds")]

EMBEDDINGS, PREDICT = "/v1/embeddings", "/v1/predict"
DIRECT = frozenset({EMBEDDINGS, PREDICT})


@post(EMBEDDINGS, status_code=200, summary="Output rows of vertices", operation_class=RowsOperation)
async def embeddings(
    data: JSONBody[ReadBody], request: Request[Any, Any, Any], context: NamedDependency[ServiceContext]
) -> Response[RowsAnswer]:
    """Rows of the model's output, all of one version; by Accept in JSON, an Arrow stream, or a frame."""
    return await _rows(data, request, context)


@get(EMBEDDINGS, summary="Output rows of vertices", operation_class=RowsOperation)
async def embeddings_of(
    request: Request[Any, Any, Any],
    context: NamedDependency[ServiceContext],
    ids: QueryIds,
    engine: QueryText = None,
    vertex_type: QueryText = None,
    output: QueryText = None,
    at_least: QueryVersion = None,
    timeout_ms: QueryTimeout = 10_000.0,
) -> Response[RowsAnswer]:
    """As POST, for a few vertices: ?ids=4&ids=2."""
    of: dict[str, Any] = {"engine": engine, "vertex_type": vertex_type, "output": output}
    named = context.queried(ids)
    return await _rows(ReadBody(ids=named, at_least=at_least, timeout_ms=timeout_ms, **of), request, context)


async def _rows(data: ReadBody, request: Request[Any, Any, Any], context: ServiceContext) -> Response[Any]:
    form, ids, how = answer_form(request), context.checked(data.ids), _how(data)
    read = await context.read(data, len(ids), lambda of: of.embeddings(ids, **how))
    if form != JSON:
        return binary(form, ids, read, "row")
    return Response(RowsAnswer(read.version, read.engine, read.model, finite(read.found)))


@post(PREDICT, status_code=200, summary="Predictions of vertices", operation_class=RowsOperation)
async def predict(
    data: JSONBody[ReadBody], request: Request[Any, Any, Any], context: NamedDependency[ServiceContext]
) -> Response[PredictionsAnswer]:
    """Classes, or for one column probabilities, all of one version; by Accept in JSON, an Arrow stream, or a frame."""
    return await _predictions(data, request, context)


@get(PREDICT, summary="Predictions of vertices", operation_class=RowsOperation)
async def predict_of(
    request: Request[Any, Any, Any],
    context: NamedDependency[ServiceContext],
    ids: QueryIds,
    engine: QueryText = None,
    vertex_type: QueryText = None,
    output: QueryText = None,
    at_least: QueryVersion = None,
    timeout_ms: QueryTimeout = 10_000.0,
) -> Response[PredictionsAnswer]:
    """As POST, for a few vertices: ?ids=4&ids=2."""
    of: dict[str, Any] = {"engine": engine, "vertex_type": vertex_type, "output": output}
    named = context.queried(ids)
    return await _predictions(ReadBody(ids=named, at_least=at_least, timeout_ms=timeout_ms, **of), request, context)


async def _predictions(data: ReadBody, request: Request[Any, Any, Any], context: ServiceContext) -> Response[Any]:
    form, ids, how = answer_form(request), context.checked(data.ids), _how(data)
    read = await context.read(data, len(ids), lambda of: of.predict(ids, **how))
    if form != JSON:
        return binary(form, ids, read, "prediction")
    return Response(PredictionsAnswer(read.version, read.engine, read.model, read.found.tolist()))


async def read_directly(context: ServiceContext, route: str, body: bytes) -> bytes | None:
    """What POST of a route among DIRECT answers in JSON; None for a body that is no ReadBody: Litestar refuses it.

    Service calls it for such requests: see app.py.
    """
    try:
        data = msgspec.json.decode(body, type=ReadBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    ids, how = context.checked(data.ids), _how(data)
    if route == PREDICT:
        read = await context.read(data, len(ids), lambda of: of.predict(ids, **how))
        return msgspec.json.encode(PredictionsAnswer(read.version, read.engine, read.model, read.found.tolist()))
    read = await context.read(data, len(ids), lambda of: of.embeddings(ids, **how))
    return msgspec.json.encode(RowsAnswer(read.version, read.engine, read.model, finite(read.found)))


def _how(data: ReadBody) -> dict[str, Any]:
    return {"vertex_type": data.vertex_type, "output": data.output}


@post("/v1/edges", status_code=200, summary="Scores of pairs of vertices")
async def edges(data: JSONBody[PairsBody], context: NamedDependency[ServiceContext]) -> ScoresAnswer:
    """The model's edge head, or the dot product of the two output rows."""
    context.checked([each for pair in data.pairs for each in pair], 2 * context.limits.ids_max)
    pairs, types = data.pairs, data.vertex_types
    read = await context.read(data, len(pairs), lambda of: of.predict_edges(pairs, vertex_types=types))
    return ScoresAnswer(read.version, read.engine, read.model, read.found.tolist())


@post("/v1/what-if", status_code=200, summary="Predictions as they would be")
async def what_if(data: JSONBody[WhatIfBody], context: NamedDependency[ServiceContext]) -> WhatIfAnswer:
    """Predictions now, and as they would be after a batch that is not applied. Writes wait meanwhile."""
    await context.reached(data.at_least, data.timeout_ms)
    name, engine = context.engine(data.engine)
    ids, unit = context.checked(data.ids), context.deployment.graph.host.time_unit
    updates = updates_of(data.updates, context.limits.updates_max, unit)
    of: dict[str, Any] = {"vertex_type": data.vertex_type, "output": data.output}

    def work() -> WhatIfAnswer:
        with context.deployment.graph.host.lock:
            now = engine.predict(ids, **of)
            version, model = engine.version, context.deployment.key_of(engine.model)
            with engine.what_if(updates) as view:
                then = view.predict(ids, **of)
        return WhatIfAnswer(version, name, model, now.tolist(), then.tolist())

    return await context.aside(work)


@get("/v1/models", summary="Models and their versions")
async def models(context: NamedDependency[ServiceContext]) -> ModelsAnswer:
    """The model of each engine, what the registry has, and what shadows have found."""
    deployment = context.deployment
    in_use = deployment.models
    shadows = {}
    for name, shadow in deployment.shadows.items():
        found = shadow.disagreement
        newest = [(vertex, *pair) for vertex, pair in found.newest.items()]
        model = deployment.key_of(shadow.shadow.model)
        shadows[name] = ShadowAnswer(model, found.compared, found.differing, newest, shadow.refusal)
    return ModelsAnswer(in_use, await context.aside(deployment.registry.versions), shadows)


def finite(rows: AnyArray) -> list[list[float | None]]:
    """Rows as lists; what is not finite is null."""
    if np.isfinite(rows).all():
        return list(rows.tolist())
    return [[value if np.isfinite(value) else None for value in row] for row in rows.tolist()]


HANDLERS = (embeddings, embeddings_of, predict, predict_of, edges, what_if, models)
