"""What a deployment keeps live on its graph, made from the configuration and, where there is one, from a snapshot."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from livegnn.deployment.config import SHADOW_SUFFIX, DeploymentConfig, EngineConfig
from livegnn.deployment.live import GraphSource, LiveModel, in_process
from livegnn.deployment.registry import Registry
from livegnn.deployment.shadow import Shadow
from livegnn.deployment.snapshots import EngineEntry, EnginePart
from livegnn.deployment.temporal import TemporalPart, TemporalUse, made
from livegnn.deployment.training import TrainingThread
from livegnn.graph import Graph
from livegnn.inference import Engine, Readout
from livegnn.models.model import Model
from livegnn.sampling import PreSampler, SampleServer
from livegnn.sampling.queries.query import Query

if TYPE_CHECKING:
    from livegnn.distributed.cluster.cluster import Cluster
    from livegnn.temporal.models.interface import TemporalModel
    from livegnn.temporal.report import RoundReport

_log = logging.getLogger("livegnn")


class Consumers:
    """The engines, readouts, samplers and temporal engines of a deployment, by name. servers: one for each sampler.

    An engine of a snapshot goes on with the model, the scales and the registry key that it had: a newer version in the
    registry takes over by a swap alone, which is an entry of the log. Options that change no output (threads, mode,
    state, memory_limit) are those of the configuration.
    A shadow that refuses a batch is set aside: the batch stands without it. on_replaced: called with the name of a
    shadow that was set aside, or is back, under the graph's lock.
    configured: engine name -> what the configuration said of its model, when that last counted.
    source: the graph, or the folder of its parts, for workers.
    graph: that batches are applied to: the given one, or of an engine over workers its own.
    """

    def __init__(
        self,
        config: DeploymentConfig,
        source: GraphSource,
        registry: Registry,
        stored: Mapping[str, EnginePart],
        temporal: Mapping[str, TemporalPart],
        data: Path,
    ) -> None:
        self.engines: dict[str, LiveModel] = {}
        self.shadows: dict[str, Shadow] = {}
        self.configured: dict[str, str] = {}
        self.on_replaced: list[Callable[[str], object]] = []
        self._options = {one.name: one for one in config.engine}
        self._cluster, self._source = config.cluster, source
        self._workers_folder = data / "workers" if config.snapshots.in_parts else None
        self.graph = graph = source if isinstance(source, Graph) else source.graph
        self._keys: WeakKeyDictionary[Model, str] = WeakKeyDictionary()  # registry keys
        self.readouts: dict[str, Readout] = {}
        self.samplers: dict[str, PreSampler] = {}
        self.servers: dict[str, SampleServer] = {}
        self.temporal: dict[str, TemporalUse] = {}
        self.training: dict[str, TrainingThread] = {}
        try:
            self._make(config, graph, registry, stored)
            for one in config.temporal:
                self.temporal[one.name] = made(one, registry, graph, temporal.get(one.name))
        except BaseException:
            self.close()
            raise

    def _make(
        self, config: DeploymentConfig, graph: Graph, registry: Registry, stored: Mapping[str, EnginePart]
    ) -> None:
        for one in config.engine:
            self._add_engine(one, one.name, one.model, graph, registry, stored)
            if one.shadow:
                shadow = one.name + SHADOW_SUFFIX
                self._add_engine(one, shadow, one.shadow, graph, registry, stored)
                self._follow_shadow(one.name)
        for name in stored:
            if name not in self.engines:
                _log.warning("[start] engine %r of the snapshot is not in the configuration, and is left out", name)
        for readout in config.readout:
            vertex_type = readout.vertex_type or None
            engine = in_process("readout", self.engines[readout.engine])
            self.readouts[readout.name] = Readout(engine, readout.kind, vertex_type=vertex_type)
        for sampler in config.sampler:
            options: dict[str, Any] = {"seed": sampler.seed, "edge_data": sampler.edge_data}
            wanted = Query.parse(sampler.query)
            source = PreSampler(graph, wanted, threads=sampler.threads or None, **options)
            self.samplers[sampler.name] = source
            module = registry.module(registry.key(sampler.model))[0] if sampler.model else None
            self.servers[sampler.name] = SampleServer(source, module, inputs=sampler.inputs, merge=sampler.merge)

    def _add_engine(
        self,
        config: EngineConfig,
        name: str,
        reference: str,
        graph: Graph,
        registry: Registry,
        stored: Mapping[str, EnginePart],
    ) -> None:
        part = stored.get(name)
        if part is None:
            key = registry.key(reference)
            model, self.configured[name] = registry.load(key), reference
            self.note_key(model, str(key))
        else:
            model, self.configured[name] = part.model, part.entry.configured
            self.note_key(model, part.entry.model)
        scales = None if part is None else part.scales
        if self._cluster.workers:
            cluster = self._over_workers(config, name, model, scales)
            self.engines[name], self.graph = cluster, cluster.graph
        else:
            self.engines[name] = self._engine(config, name, model, scales)

    def _over_workers(self, config: EngineConfig, name: str, model: Model, scales: list[list[int]] | None) -> Cluster:
        from livegnn.distributed.cluster.cluster import Cluster

        options, folder = self._cluster, self._workers_folder
        if folder is not None:  # of a life before: the history has its own snapshots
            shutil.rmtree(folder, ignore_errors=True)
        return Cluster(
            model,
            self._source,
            options.workers,
            options.address or None,
            partition=options.partition if isinstance(self._source, Graph) else None,  # as it was saved
            newcomers=options.newcomers,
            threads=config.threads or 1,
            timeout_s=options.timeout_s,
            snapshot_batches=options.snapshot_batches,
            snapshots=folder,
            scales=scales,
            name=name,
        )

    def _engine(self, config: EngineConfig, name: str, model: Model, scales: list[list[int]] | None) -> Engine:
        return Engine(
            model,
            self.graph,
            mode=config.mode,
            state=config.state,
            threads=config.threads or None,
            memory_limit=config.memory_limit or None,
            scales=scales,
            name=name,
        )

    # ---- shadows

    def _follow_shadow(self, name: str) -> None:
        engine, shadow = (in_process("shadow", self.engines[each]) for each in (name, name + SHADOW_SUFFIX))
        self.shadows[name] = Shadow(engine, shadow)
        self.graph.host.excuse(shadow, lambda error: self.set_aside(name + SHADOW_SUFFIX, str(error)))

    def is_aside(self, name: str) -> bool:
        """Whether this engine is a shadow that was set aside."""
        return name not in self.engines and name.removesuffix(SHADOW_SUFFIX) in self.shadows

    def set_aside(self, name: str, reason: str) -> None:
        """Ends a shadow: it has refused a batch, which stands without it. The caller holds the graph's lock."""
        _log.error("[shadow] %r is set aside from version %d on: %s", name, self.graph.version, reason)
        self.shadows[name.removesuffix(SHADOW_SUFFIX)].end(f"version {self.graph.version}: {reason}")
        self.engines.pop(name).close()
        self._say_replaced(name)

    def revive(self, name: str, model: Model, scales: list[list[int]] | None = None) -> Engine:
        """Begins a shadow anew that was set aside, on the graph as it is. Raises: as Engine."""
        main = name.removesuffix(SHADOW_SUFFIX)
        with self.graph.host.lock:
            self.engines[name] = revived = self._engine(self._options[main], name, model, scales)
            self._follow_shadow(main)
            self._say_replaced(name)
        return revived

    def _say_replaced(self, name: str) -> None:
        for each in self.on_replaced:
            each(name)

    def note_key(self, model: Model, key: str) -> None:
        """Remembers the registry key of a model."""
        self._keys[model] = key

    def key_of(self, model: Model) -> str:
        """The registry key of a model, "" for one that did not come from it."""
        return self._keys.get(model, "")

    def parts(self) -> dict[str, EnginePart]:
        """What of the engines goes into a snapshot. The caller holds the graph's lock."""
        return {
            name: EnginePart(
                engine.model,
                engine.scales,
                engine.settings,
                EngineEntry(self.key_of(engine.model), self.configured[name]),
            )
            for name, engine in self.engines.items()
        }

    def train(self, config: DeploymentConfig, publish: Callable[[str, TemporalModel, RoundReport], object]) -> None:
        """Begins the training of those temporal engines that the configuration says so of."""
        for one in config.temporal:
            if one.train:
                self.training[one.name] = TrainingThread(one, self.temporal[one.name], partial(publish, one.name))

    def end_training(self) -> None:
        """Ends it; rounds under way are waited for."""
        for thread in self.training.values():
            thread.close()

    def close(self) -> None:
        """Detaches everything from the graph."""
        self.end_training()
        for server in self.servers.values():
            server.close()
        for temporal in self.temporal.values():
            temporal.engine.close()
        for readout in self.readouts.values():
            readout.close()
        for sampler in self.samplers.values():
            sampler.close()
        for engine in self.engines.values():
            engine.close()
