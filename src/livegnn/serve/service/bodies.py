"""Bodies of the deployment's routes, as msgspec structs: what a request may say, and what an answer says.

Unknown keys are refused. The OpenAPI document is made from these, their docstrings included.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from livegnn.deployment.config_cluster import WORKERS_MAX, PartitionerName

Version = Annotated[int, Meta(ge=0, le=2**63 - 1, description="version of the graph")]
Ids = Annotated[list[int | str], Meta(min_length=1, description="ids of vertices, all integers or all strings")]
Timeout = Annotated[float, Meta(gt=0, le=60_000, description="milliseconds to wait for at_least")]
EXAMPLE_UPDATES: list[dict[str, Any]] = [{"op": "add_edge", "u": 4, "v": 2}]


class RequestBody(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A body whose keys are all known."""


class EngineBody(RequestBody, kw_only=True):
    """engine: its name, where the deployment has several.  at_least: a version to wait for."""

    engine: str | None = None
    at_least: Version | None = None
    timeout_ms: Timeout = 10_000.0


class ReadBody(EngineBody, kw_only=True):
    """Rows of some vertices."""

    ids: Ids
    vertex_type: str | None = None
    output: str | None = None


class PairsBody(EngineBody, kw_only=True):
    """Scores of pairs of vertices."""

    pairs: Annotated[list[tuple[int | str, int | str]], Meta(min_length=1)]
    vertex_types: tuple[str, str] | None = None


class WhatIfBody(EngineBody, kw_only=True):
    """Rows of some vertices as they would be after a batch. Nothing is changed."""

    updates: Annotated[list[dict[str, Any]], Meta(examples=[EXAMPLE_UPDATES])]
    ids: Ids
    vertex_type: str | None = None
    output: str | None = None


class SwapBody(RequestBody, kw_only=True):
    """model: NAME or NAME/VERSION of the registry."""

    engine: str
    model: str


class RepartitionBody(RequestBody, kw_only=True):
    """workers: how many there are to be; as many as there are where it is left out.

    balance: what workers are to have the same of; "work" needs a partitioner that reads edges.
    """

    partition: PartitionerName = "metis"
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None
    balance: Literal["edges", "work"] = "edges"


class AppliedAnswer(Struct, frozen=True):
    """A batch that is durable and visible from `version` on.

    repeated: its Idempotency-Key had come before.  offset: of its entry in the log.
    """

    version: int
    updates: int
    repeated: bool
    offset: int


class RowsAnswer(Struct, frozen=True):
    """One row for each id, all of one version, by the engine's model."""

    version: int
    engine: str
    model: str
    rows: list[list[float | None]]


class PredictionsAnswer(Struct, frozen=True):
    """One prediction for each id, all of one version: a class, or the probability of the one class."""

    version: int
    engine: str
    model: str
    predictions: list[int | float]


class ScoresAnswer(Struct, frozen=True):
    """One score for each pair, all of one version."""

    version: int
    engine: str
    model: str
    scores: list[float]


class WhatIfAnswer(Struct, frozen=True):
    """Predictions now and as they would be."""

    version: int
    engine: str
    model: str
    now: list[int | float]
    then: list[int | float]


class HealthAnswer(Struct, frozen=True):
    """status: "ok" while the deployment takes requests."""

    status: str
    version: int


class ModelsAnswer(Struct, frozen=True):
    """engines: their models.  registry: names and versions.  shadows: engine -> what its shadow has found."""

    engines: dict[str, str]
    registry: dict[str, list[int]]
    shadows: dict[str, ShadowAnswer]


class ShadowAnswer(Struct, frozen=True):
    """compared, differing: predictions of changed vertices.  newest: [vertex, served, shadow] of those that differ.

    refusal: version and reason where the shadow refused a batch, and was set aside; "" while it follows.
    """

    model: str
    compared: int
    differing: int
    newest: list[tuple[int | str, int | float | bool, int | float | bool]]
    refusal: str = ""


class SnapshotAnswer(Struct, frozen=True):
    """pause_ms: for how long writes were stopped."""

    version: int
    pause_ms: float


class RepartitionAnswer(Struct, frozen=True):
    """workers: that serve now.  version: when they had taken over.  seconds: that it took."""

    workers: int
    version: int
    seconds: float
