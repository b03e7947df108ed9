"""All sources and sinks of a deployment: made with it, started after its recovery, ended before it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from livegnn.deployment.config import DeploymentConfig
from livegnn.deployment.config_pipes import SinkConfig, SourceConfig
from livegnn.deployment.hub import Hub
from livegnn.deployment.pipes.dead_letters import DeadLetters
from livegnn.deployment.pipes.files import FileReader
from livegnn.deployment.pipes.kafka import KafkaReader, KafkaTarget
from livegnn.deployment.pipes.mapping import SourceMapping
from livegnn.deployment.pipes.nats import NatsReader, NatsTarget
from livegnn.deployment.pipes.parquet import ParquetTarget
from livegnn.deployment.pipes.records import Reader
from livegnn.deployment.pipes.sink import PositionFile, SinkRunner, SinkTarget
from livegnn.deployment.pipes.source import SourceRunner, Submit
from livegnn.deployment.pipes.standard_input import StdinReader
from livegnn.deployment.pipes.states import SinkState, SourceState
from livegnn.deployment.pipes.webhook import WebhookTarget
from livegnn.deployment.places import Place
from livegnn.graph import Graph
from livegnn.optional import need

DRAIN_S = 5.0  # that closing waits for sinks
_JOIN_S = 30.0
_NEEDS = {"kafka": ("confluent_kafka", "kafka"), "nats": ("nats", "nats"), "parquet": ("pyarrow", "arrow")}


class Pipes:
    """The sources and sinks.

    Args:    folder: of relative paths.  data: of dead letters and positions.  once: sources end where nothing is left.
    """

    def __init__(self, config: DeploymentConfig, folder: Path, data: Path, *, once: bool) -> None:
        self._source_configs, self._sink_configs = config.source, config.sink
        self._engines = [one.name for one in config.engine]
        self._folder, self._data, self._once = folder, data, once
        self._sources: list[SourceRunner] = []
        self._sinks: list[SinkRunner] = []
        self._stack = ExitStack()

    @property
    def oldest_position(self) -> int | None:
        """The version of the sink that is behind most: the history from there on is of use to it."""
        found = [PositionFile(self._data, one.name).version for one in self._sink_configs]
        return min((version for version in found if version is not None), default=None)

    def follow(self, hub: Hub, graph: Graph) -> None:
        """Before the log's tail is applied: sinks follow, so that they get what it changes.

        Raises:  as SinkRunner; UsageError for a secret that is not there; DataMissing for a missing extra.
        """
        for config in self._sink_configs:
            target = self._target(config, graph.host.ids.text)
            self._sinks.append(SinkRunner(config, config.engine or self._engines[0], hub, target, self._data))

    def start(self, graph: Graph, places: Callable[[str], Place], submit: Submit) -> None:
        """After recovery: everything runs. Raises: ValueInvalid, ColumnMissing for rules that do not fit the graph."""
        mappings = [SourceMapping(config, graph) for config in self._source_configs]
        for config in self._source_configs:
            if config.kind in _NEEDS:
                need(*_NEEDS[config.kind])
        if self._source_configs:
            letters = DeadLetters(self._data)
            self._stack.callback(letters.close)
            for config, mapping in zip(self._source_configs, mappings, strict=True):
                place = places(config.name)
                opened = self._opener(config, mapping)
                if not place:
                    self._check(config, mapping)
                self._sources.append(SourceRunner(config, mapping, opened, submit, letters, place))
        for sink in self._sinks:
            sink.begin(graph.version)
        for source in self._sources:
            source.start()

    def _check(self, config: SourceConfig, mapping: SourceMapping) -> None:
        """Before a source's first record: does its first file have the columns? Raises: ColumnMissing, FileMissing."""
        if config.kind in ("csv", "parquet", "jsonl"):
            FileReader(config, self._folder, {}, mapping.columns, self._once).check_first()

    def _opener(self, config: SourceConfig, mapping: SourceMapping) -> Callable[[Place], Reader]:
        def opened(place: Place) -> Reader:
            if config.kind == "kafka":
                return KafkaReader(config, place, self._once)
            if config.kind == "nats":
                return NatsReader(config, place, self._once)
            if config.kind == "stdin":
                return StdinReader(config, place, mapping.columns)
            return FileReader(config, self._folder, place, mapping.columns, self._once)

        return opened

    def _target(self, config: SinkConfig, text_ids: bool) -> Callable[[], SinkTarget]:
        def made() -> SinkTarget:
            if config.kind == "kafka":
                return KafkaTarget(config)
            if config.kind == "nats":
                return NatsTarget(config)
            if config.kind == "webhook":
                return WebhookTarget(config, self._folder)
            return ParquetTarget(config, self._folder, text_ids)

        return made

    @property
    def sources(self) -> list[SourceState]:
        """Of each source."""
        return [one.state for one in self._sources]

    @property
    def sinks(self) -> list[SinkState]:
        """Of each sink."""
        return [one.state for one in self._sinks]

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until all sources have ended or failed; False where that takes longer."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for one in self._sources:
            if not one.finished.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                return False
        return True

    def drain(self, seconds: float) -> bool:
        """Waits until the sinks have delivered all that was changed; False where that takes longer."""
        deadline = time.monotonic() + seconds
        drained = [one.drain(max(0.0, deadline - time.monotonic())) for one in self._sinks]  # all of them begin
        return all(drained)

    def stop_sources(self) -> None:
        """Ends the sources, after their batches under way."""
        for one in self._sources:
            one.stop()
        for one in self._sources:
            one.join(_JOIN_S)

    def close(self) -> None:
        """Ends everything; sinks that are behind have a while to deliver."""
        self.stop_sources()
        if self._sinks:
            self.drain(DRAIN_S)
        for one in self._sinks:
            one.stop()
        for one in self._sinks:
            one.join(_JOIN_S)
        self._stack.close()
