"""Temporal engines of a deployment: made from registry or snapshot, written into snapshots.

The memory of a model is a function of its weights and of every batch since, so a snapshot holds both. `about` says how
to make such an engine again: class and arguments of the model, and the settings of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livegnn.deployment.config_temporal import TemporalConfig
from livegnn.deployment.model_files import module_of
from livegnn.deployment.registry import ModelKey, Registry
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.graph.consumers import Switch
from livegnn.temporal.checkpoint import fitting, read_checkpoint, write_checkpoint
from livegnn.temporal.engine import TemporalEngine
from livegnn.temporal.sampler import TemporalSampler
from livegnn.temporal.switches import switched

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.interface import TemporalModel

_KIND = "deployment"


@dataclass(frozen=True)
class TemporalPart:
    """What of a temporal engine goes into a snapshot. state: TemporalEngine.state()."""

    about: dict[str, Any]
    state: dict[str, torch.Tensor]
    key: str  # of the registry
    configured: str


@dataclass
class TemporalUse:
    """A temporal engine, its model's key, and what the configuration said of the model when that last counted."""

    engine: TemporalEngine
    about: dict[str, Any]
    key: str
    configured: str

    def part(self) -> TemporalPart:
        """For a snapshot. The caller holds the graph's lock."""
        return TemporalPart(self.about, self.engine.state(), self.key, self.configured)


def temporal_model(registry: Registry, key: ModelKey) -> tuple[TemporalModel, str, dict[str, Any]]:
    """A model of the registry, its class's path, and the class's arguments. Raises: as Registry.module; UsageError."""
    from livegnn.temporal.models.interface import TemporalModel

    module, named, arguments = registry.module(key)
    if not isinstance(module, TemporalModel) or not named:
        raise UsageError(
            f"[temporal] expected {key} as a TemporalModel with model.toml and weights.pt, got "
            f"{type(module).__name__}; write such files"
        )
    return module, named, arguments


def made(config: TemporalConfig, registry: Registry, graph: Graph, part: TemporalPart | None) -> TemporalUse:
    """An engine of the configuration; where a snapshot has it, with the snapshot's weights and memory.

    Raises:  UsageError where the configuration has other settings than the snapshot; as TemporalEngine.
    """
    if part is not None:
        known = part.about["settings"]
        for name, value in config.settings.items():
            if known.get(name) != value:
                raise UsageError(
                    f"[temporal {config.name}] expected {name} = {known.get(name)!r}, as in the history, got "
                    f"{value!r}; keep it, or give the engine another name"
                )
        return remade(config.name, part, graph, config.threads)
    key = registry.key(config.model)
    model, named, arguments = temporal_model(registry, key)
    about = {"class": named, "arguments": arguments, "settings": config.settings}
    return TemporalUse(_engine(config.name, model, about, graph, config.threads), about, str(key), config.model)


def remade(name: str, part: TemporalPart, graph: Graph, threads: int = 0) -> TemporalUse:
    """The engine of a snapshot, on the graph of the same version. Raises: UsageError, StoredStateInvalid."""
    model: Any = module_of(part.about["class"], part.about["arguments"], f"temporal {name}")
    weights = {key.removeprefix("weights."): each for key, each in part.state.items() if key.startswith("weights.")}
    memory = {key.removeprefix("memory."): each for key, each in part.state.items() if key.startswith("memory.")}
    with fitting(None, f"temporal {name}"):
        model.load_state_dict(weights)
        engine = _engine(name, model, part.about, graph, threads, memory or None)
    return TemporalUse(engine, part.about, part.key, part.configured)


def joined(switch: Switch, graph: Graph) -> TemporalUse:
    """The engine that a swap of the log brought, on the graph of the swap's version. Raises: as remade."""
    weights, memory = switched(switch)
    model: Any = module_of(switch.data["about"]["class"], switch.data["about"]["arguments"], f"temporal {switch.name}")
    with fitting(None, f"temporal {switch.name}"):
        model.load_state_dict(weights)
        engine = _engine(switch.name, model, switch.data["about"], graph, 0, memory)
    return TemporalUse(engine, switch.data["about"], "", "")


def _engine(
    name: str,
    model: TemporalModel,
    about: dict[str, Any],
    graph: Graph,
    threads: int,
    memory: dict[str, torch.Tensor] | None = None,
) -> TemporalEngine:
    settings = about["settings"]
    options = {"strategy": settings["strategy"], "window": settings["window"] or None, "seed": settings["seed"]}
    sampler = TemporalSampler(
        graph, settings["fanouts"], threads=threads or None, snapshots=model.snapshot_count, **options
    )
    return TemporalEngine(
        model,
        graph,
        sampler,
        edge_types=settings["edge_types"] or None,
        edge_columns=settings["edge_columns"],
        memory_step=settings["memory_step"],
        memory=memory,
        name=name,
        about=about,
    )


def write_part(path: Path, part: TemporalPart) -> None:
    """Writes a part as a file of its own. Raises: StorageFailed."""
    state = {"kind": _KIND, "about": part.about, "state": part.state}
    write_checkpoint(path, state, "snapshot")


def read_part(path: Path, key: str, configured: str) -> TemporalPart:
    """What write_part wrote. Raises: StoredStateInvalid."""
    stored = read_checkpoint(path, "snapshot")
    with fitting(path, "snapshot"):
        if stored["kind"] != _KIND:
            raise ValueError(f"a {stored['kind']}")
        return TemporalPart(stored["about"], stored["state"], key, configured)
