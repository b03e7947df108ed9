"""The metrics of sources and sinks."""

from __future__ import annotations

from livegnn.deployment import Deployment
from livegnn.serve.metrics import Facts

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
