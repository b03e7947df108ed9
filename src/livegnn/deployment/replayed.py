"""The log's tail at a start, applied to the graph before the engines are made on it.

The state of an engine is a function of graph, model and scales. So the tail may move the graph alone, and each engine
is then made once: a row is computed once, and not by each batch that moves it. Where something follows batch by batch,
the engines come first and take part in the replay.
"""

from __future__ import annotations

from collections.abc import Mapping

from livegnn.deployment.config import DeploymentConfig
from livegnn.deployment.note import Note
from livegnn.deployment.snapshots import EngineEntry, EnginePart
from livegnn.errors import LogDamaged
from livegnn.inference import storage
from livegnn.log import UpdateEntry


def engines_can_wait(config: DeploymentConfig) -> bool:
    """Whether nothing asks what each batch of the tail does.

    Sinks, samplers, temporal engines and kept messages do. A shadow may refuse a batch, and is then set aside. An
    engine that computes on demand may have left a batch that it refuses.
    """
    follows = config.sink or config.sampler or config.temporal or config.explain.record == "always"
    return not follows and all(one.mode == "eager" and not one.shadow for one in config.engine)


class SwitchedParts:
    """Engines that are not made yet, as the switches of the tail leave them. parts: by name."""

    def __init__(self, config: DeploymentConfig, parts: Mapping[str, EnginePart]) -> None:
        self.parts = dict(parts)
        self._configured = {one.name: one.model for one in config.engine}

    def follow(self, note: Note, entry: UpdateEntry) -> None:
        """Takes the model and the scales of an entry that is a switch. Raises: LogDamaged, StoredStateInvalid."""
        switch = entry.switch
        if switch is None or switch.kind not in ("swap", "rescale") or switch.name not in self._configured:
            return
        part = self.parts.get(switch.name)
        if switch.kind == "rescale":
            if part is None:
                raise LogDamaged(
                    f"[offset {entry.offset}] expected engine {switch.name!r} in the snapshot or in an entry before "
                    "its rescale, got none; restore snapshots and log from one copy"
                )
            model, scales = storage.switched(switch, part.model)
            about = part.entry
        else:
            model, scales = storage.swapped(switch)
            before = self._configured[switch.name] if part is None else part.entry.configured
            about = EngineEntry(note.model, note.configured or before)
        self.parts[switch.name] = EnginePart(model, scales, {} if part is None else part.settings, about)
