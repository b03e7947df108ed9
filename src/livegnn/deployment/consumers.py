"""What a deployment keeps live on its graph, made from the configuration and, where there is one, from a snapshot."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from livegnn.deployment.config import DeploymentConfig, EngineConfig
from livegnn.deployment.registry import Registry
from livegnn.deployment.shadow import Shadow
from livegnn.deployment.snapshots import EnginePart
from livegnn.graph import Graph
from livegnn.inference import Engine, Readout
from livegnn.sampling import PreSampler
from livegnn.sampling.queries.query import Query

SHADOW_SUFFIX = ".shadow"
_log = logging.getLogger("livegnn")


class Consumers:
    """The engines, readouts and samplers of a deployment, by name.

    An engine of a snapshot goes on with the model, the scales and the registry key that it had: a newer version in the
    registry takes over by a swap alone, which is an entry of the log. Options that change no output (threads, mode,
    state, memory_limit) are those of the configuration. references: engine name -> registry key of its model.
    """

    def __init__(
        self, config: DeploymentConfig, graph: Graph, registry: Registry, stored: Mapping[str, EnginePart]
    ) -> None:
        self.engines: dict[str, Engine] = {}
        self.shadows: dict[str, Shadow] = {}
        self.references: dict[str, str] = {}
        self.readouts: dict[str, Readout] = {}
        self.samplers: dict[str, PreSampler] = {}
        try:
            self._make(config, graph, registry, stored)
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
                self.shadows[one.name] = Shadow(self.engines[one.name], self.engines[shadow])
        for name in stored:
            if name not in self.engines:
                _log.warning("[start] engine %r of the snapshot is not in the configuration, and is left out", name)
        for readout in config.readout:
            vertex_type = readout.vertex_type or None
            engine = self.engines[readout.engine]
            self.readouts[readout.name] = Readout(engine, readout.kind, vertex_type=vertex_type)
        for sampler in config.sampler:
            options: dict[str, Any] = {"seed": sampler.seed, "edge_data": sampler.edge_data}
            wanted = Query.parse(sampler.query)
            self.samplers[sampler.name] = PreSampler(graph, wanted, threads=sampler.threads or None, **options)

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
            model, self.references[name] = registry.load(key), str(key)
        else:
            model, self.references[name] = part.model, part.reference
        self.engines[name] = Engine(
            model,
            graph,
            mode=config.mode,
            state=config.state,
            threads=config.threads or None,
            memory_limit=config.memory_limit or None,
            scales=None if part is None else part.scales,
            name=name,
        )

    def parts(self) -> dict[str, EnginePart]:
        """What of the engines goes into a snapshot. The caller holds the graph's lock."""
        return {
            name: EnginePart(engine.model, engine.scales, engine.settings, self.references[name])
            for name, engine in self.engines.items()
        }

    def close(self) -> None:
        """Detaches everything from the graph."""
        for readout in self.readouts.values():
            readout.close()
        for sampler in self.samplers.values():
            sampler.close()
        for engine in self.engines.values():
            engine.close()
