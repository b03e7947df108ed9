"""The route of sources and sinks."""

from __future__ import annotations

from typing import Literal

from litestar import get
from litestar.di import NamedDependency
from msgspec import Struct

from livegnn.serve.service.context import ServiceContext


class LagAnswer(Struct, frozen=True):
    """unit: "records" or "bytes"."""

    amount: int
    unit: str


class SourceAnswer(Struct, frozen=True):
    """A source. records: read since the start, bad ones among them.  bad: dead letters.  retries: tries that failed.

    state: "waiting" while the other side does not answer, "failed" until a person acts; error says why.
    lag: what is there and was not read.  place: what of it is in the log: how far each part of it was read.
    """

    name: str
    kind: str
    state: Literal["running", "waiting", "ended", "failed"]
    error: str
    records: int
    bad: int
    updates: int
    retries: int
    lag: LagAnswer | None
    place: dict[str, int]


class SinkAnswer(Struct, frozen=True):
    """A sink. events, changes: delivered since the start.  missed: of these, events that say what cannot be listed.

    version: up to which everything was delivered.  lag: versions after it.
    """

    name: str
    kind: str
    state: Literal["running", "waiting", "ended", "failed"]
    error: str
    events: int
    changes: int
    missed: int
    retries: int
    version: int
    lag: int


class PipesAnswer(Struct, frozen=True):
    """All sources and sinks of the configuration."""

    version: int
    sources: list[SourceAnswer]
    sinks: list[SinkAnswer]


@get("/v1/pipes", summary="Sources and sinks")
async def pipes(context: NamedDependency[ServiceContext]) -> PipesAnswer:
    """Where each source and sink stands, and what it waits for."""
    found, version = context.deployment.pipes, context.deployment.version
    sources = [
        SourceAnswer(
            *each[:8], None if each.lag is None else LagAnswer(each.lag.amount, each.lag.unit), dict(each.place)
        )
        for each in found.sources
    ]
    return PipesAnswer(version, sources, [SinkAnswer(*each) for each in found.sinks])


HANDLERS = (pipes,)
