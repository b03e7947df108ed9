"""Routes that read: embeddings, predictions, scores of pairs, what-if, models."""

from __future__ import annotations

from typing import Any

import numpy as np
from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

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
from livegnn.types import AnyArray


@post("/v1/embeddings", status_code=200, summary="Output rows of vertices")
async def embeddings(data: JSONBody[ReadBody], context: NamedDependency[ServiceContext]) -> RowsAnswer:
    """Rows of the model's output, all of one version."""
    ids, how = context.checked(data.ids), _how(data)
    read = await context.read(data, len(ids), lambda of: of.embeddings(ids, **how))
    return RowsAnswer(read.version, read.engine, read.model, finite(read.found))


@post("/v1/predict", status_code=200, summary="Predictions of vertices")
async def predict(data: JSONBody[ReadBody], context: NamedDependency[ServiceContext]) -> PredictionsAnswer:
    """Classes, or for one column probabilities, all of one version."""
    ids, how = context.checked(data.ids), _how(data)
    read = await context.read(data, len(ids), lambda of: of.predict(ids, **how))
    return PredictionsAnswer(read.version, read.engine, read.model, read.found.tolist())


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
    ids, updates = context.checked(data.ids), updates_of(data.updates, context.limits.updates_max)

    def work() -> WhatIfAnswer:
        with context.deployment.graph.host.lock:
            now = engine.predict(ids, vertex_type=data.vertex_type)
            version, model = engine.version, context.deployment.key_of(engine.model)
            with engine.what_if(updates) as view:
                then = view.predict(ids, vertex_type=data.vertex_type)
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


HANDLERS = (embeddings, predict, edges, what_if, models)
