"""Routes that read: embeddings, predictions, scores of pairs, what-if, models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from livegnn.inference import Engine
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
from livegnn.serve.service.context import ServiceContext, one_kind
from livegnn.types import AnyArray

Result = TypeVar("Result")


async def _of_one_version(
    context: ServiceContext, name: str, engine: Engine, count: int, work: Callable[[Any], Result]
) -> tuple[Result, int, str]:
    """What `work` reads of one version, that version, and the model that it is of."""

    def read() -> tuple[Result, int, str]:
        with engine.snapshot() as view:
            return work(view), view.version, context.deployment.models[name]

    return await context.read(engine, count, read)


@post("/v1/embeddings", status_code=200, summary="Output rows of vertices")
async def embeddings(data: JSONBody[ReadBody], context: NamedDependency[ServiceContext]) -> RowsAnswer:
    """Rows of the model's output, all of one version."""
    await context.reached(data.at_least, data.timeout_ms)
    name, engine = context.engine(data.engine)
    ids = one_kind(data.ids)
    rows, version, model = await _of_one_version(
        context,
        name,
        engine,
        len(ids),
        lambda view: view.embeddings(ids, vertex_type=data.vertex_type, output=data.output),
    )
    return RowsAnswer(version, name, model, finite(rows))


@post("/v1/predict", status_code=200, summary="Predictions of vertices")
async def predict(data: JSONBody[ReadBody], context: NamedDependency[ServiceContext]) -> PredictionsAnswer:
    """Classes, or for one column probabilities, all of one version."""
    await context.reached(data.at_least, data.timeout_ms)
    name, engine = context.engine(data.engine)
    ids = one_kind(data.ids)
    found, version, model = await _of_one_version(
        context,
        name,
        engine,
        len(ids),
        lambda view: view.predict(ids, vertex_type=data.vertex_type, output=data.output),
    )
    return PredictionsAnswer(version, name, model, found.tolist())


@post("/v1/edges", status_code=200, summary="Scores of pairs of vertices")
async def edges(data: JSONBody[PairsBody], context: NamedDependency[ServiceContext]) -> ScoresAnswer:
    """The model's edge head, or the dot product of the two output rows."""
    await context.reached(data.at_least, data.timeout_ms)
    name, engine = context.engine(data.engine)
    one_kind([each for pair in data.pairs for each in pair])
    scores, version, model = await _of_one_version(
        context,
        name,
        engine,
        len(data.pairs),
        lambda view: view.predict_edges(data.pairs, vertex_types=data.vertex_types),
    )
    return ScoresAnswer(version, name, model, scores.tolist())


@post("/v1/what-if", status_code=200, summary="Predictions as they would be")
async def what_if(data: JSONBody[WhatIfBody], context: NamedDependency[ServiceContext]) -> WhatIfAnswer:
    """Predictions now, and as they would be after a batch that is not applied. Writes wait meanwhile."""
    name, engine = context.engine(data.engine)
    ids, updates = one_kind(data.ids), updates_of(data.updates, context.limits.updates_max)

    def work() -> WhatIfAnswer:
        with context.deployment.graph.host.lock:
            now = engine.predict(ids, vertex_type=data.vertex_type)
            version, model = engine.version, context.deployment.models[name]
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
        shadows[name] = ShadowAnswer(in_use[f"{name}.shadow"], found.compared, found.differing, newest)
    return ModelsAnswer(in_use, await context.aside(deployment.registry.versions), shadows)


def finite(rows: AnyArray) -> list[list[float | None]]:
    """Rows as lists; what is not finite is null."""
    if np.isfinite(rows).all():
        return list(rows.tolist())
    return [[value if np.isfinite(value) else None for value in row] for row in rows.tolist()]


HANDLERS = (embeddings, predict, edges, what_if, models)
