"""What the service answers. Fields that a newer service adds are left out."""

from __future__ import annotations

from typing import Any, NamedTuple

Prediction = int | float


class WriteReply(NamedTuple):
    """A write that is durable, and visible from `version` on.

    repeated: it was there before, by its key.  offset: of its entry in the log, -1 from a service that does not say.
    """

    version: int
    updates: int
    repeated: bool
    offset: int = -1


class RowsReply(NamedTuple):
    """One row for each id, all of one version. None: a number that is not finite."""

    version: int
    engine: str
    model: str
    rows: list[list[float | None]]


class PredictionsReply(NamedTuple):
    """One prediction for each id, all of one version: a class, or the probability of the one class."""

    version: int
    engine: str
    model: str
    predictions: list[Prediction]


class ScoresReply(NamedTuple):
    """One score for each pair, all of one version."""

    version: int
    engine: str
    model: str
    scores: list[float]


class TopReply(NamedTuple):
    """The best vertices, the best first. recall: of the index where not exact, and `version` that of its rows."""

    version: int
    engine: str
    model: str
    vertices: list[int | str]
    scores: list[float]
    exact: bool
    recall: float


class ExplainReply(NamedTuple):
    """What one output is made of, and what moved it last: as docs/explain-live.md shows it."""

    version: int
    engine: str
    model: str
    vertex: int | str
    type: str | None
    prediction: Prediction | None
    column: int
    linear: bool
    aggregations: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    change: dict[str, Any] | None
    change_missing: str | None
    recorded_since: int | None


class WhatIfReply(NamedTuple):
    """Predictions now, and as they would be."""

    version: int
    engine: str
    model: str
    now: list[Prediction]
    then: list[Prediction]


class LinksReply(NamedTuple):
    """One probability for each pair, all of one version."""

    version: int
    engine: str
    model: str
    probabilities: list[float]


class NextReply(NamedTuple):
    """For each source the most probable destinations, best first, all of one version."""

    version: int
    engine: str
    model: str
    dst: list[list[int | str]]
    probabilities: list[list[float]]


class ModelsReply(NamedTuple):
    """engines: their models.  registry: names and versions.  shadows: what they have found, by engine."""

    engines: dict[str, str]
    registry: dict[str, list[int]]
    shadows: dict[str, dict[str, Any]]


class PipesReply(NamedTuple):
    """Where each source and sink stands, as docs/pipes.md lists it: their "name", "kind", "state", "error", ..."""

    version: int
    sources: list[dict[str, Any]]
    sinks: list[dict[str, Any]]


class HealthReply(NamedTuple):
    """The process answers; version: the newest that can be read."""

    status: str
    version: int


class SnapshotReply(NamedTuple):
    """pause_ms: for how long writes were stopped."""

    version: int
    pause_ms: float


class RepartitionReply(NamedTuple):
    """workers: that serve now.  version: when they had taken over.  seconds: that it took."""

    workers: int
    version: int
    seconds: float
