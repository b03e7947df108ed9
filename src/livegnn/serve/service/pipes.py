"""The route and the metrics of sources and sinks."""

from __future__ import annotations

from typing import Literal

from litestar import get
from litestar.di import NamedDependency
from msgspec import Struct

from livegnn.deployment import Deployment
from livegnn.serve.metrics import Facts
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

PIPE_METRICS = {
    "livegnn_source_up": ("gauge", "1 while a source runs or has ended, 0 while it waits or has failed, by source."),
    "livegnn_source_records_total": ("counter", "Records read since the start, by source."),
    "livegnn_source_bad_records_total": ("counter", "Records that went to the dead letters, by source."),
    "livegnn_source_updates_total": ("counter", "Updates that they became, by source."),
    "livegnn_source_retries_total": ("counter", "Tries that failed, by source."),
    "livegnn_source_lag": ("gauge", "What is there and was not read, by source and unit."),
    "livegnn_sink_up": ("gauge", "1 while a sink delivers, 0 while it waits or has failed, by sink."),
    "livegnn_sink_events_total": ("counter", "Events delivered since the start, by sink."),
    "livegnn_sink_missed_total": ("counter", "Events that say that versions were missed, by sink."),
    "livegnn_sink_retries_total": ("counter", "Deliveries that failed, by sink."),
    "livegnn_sink_lag_versions": ("gauge", "Versions that were not delivered yet, by sink."),
}


def pipe_facts(deployment: Deployment) -> Facts:
    """The metrics of sources and sinks."""
    facts: dict[str, list[tuple[str, object]]] = {name: [] for name in PIPE_METRICS}
    for source in deployment.pipes.sources:
        label = f'{{source="{source.name}"}}'
        facts["livegnn_source_up"].append((label, int(source.life in ("running", "ended"))))
        facts["livegnn_source_records_total"].append((label, source.records))
        facts["livegnn_source_bad_records_total"].append((label, source.bad))
        facts["livegnn_source_updates_total"].append((label, source.updates))
        facts["livegnn_source_retries_total"].append((label, source.retries))
        if source.lag is not None:
            of_unit = f'{{source="{source.name}",unit="{source.lag.unit}"}}'
            facts["livegnn_source_lag"].append((of_unit, source.lag.amount))
    for sink in deployment.pipes.sinks:
        label = f'{{sink="{sink.name}"}}'
        facts["livegnn_sink_up"].append((label, int(sink.life in ("running", "ended"))))
        facts["livegnn_sink_events_total"].append((label, sink.events))
        facts["livegnn_sink_missed_total"].append((label, sink.missed))
        facts["livegnn_sink_retries_total"].append((label, sink.retries))
        facts["livegnn_sink_lag_versions"].append((label, sink.lag))
    return {name: found for name, found in facts.items() if found}
