"""Explanations of a deployment's engines, and what they keep for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from livegnn.deployment.config_explain import ExplainConfig
from livegnn.deployment.live import LiveModel, in_process
from livegnn.errors import LiveGnnError, ModelError, UsageError
from livegnn.inference import Engine
from livegnn.inference.explain.contributions import Contributions
from livegnn.inference.explain.history import MessageHistory

_log = logging.getLogger("livegnn")


class Explanations:
    """Engine.contributions of every engine; begins to keep messages as the configuration says."""

    def __init__(self, engines: Mapping[str, LiveModel], config: ExplainConfig) -> None:
        self._engines, self._config = engines, config
        self._kept: dict[str, tuple[Engine, MessageHistory | None]] = {}  # a shadow that is back is another engine
        if config.record == "always":
            for name in engines:
                self._begin(name)

    def of(self, name: str, vertex: Any, **how: Any) -> Contributions:
        """Engine.contributions of an engine. Raises: as that does."""
        found = in_process("explain", self._engines[name])
        with found.graph.host.lock:
            if self._config.record != "never":
                self._begin(name)
            return found.contributions(vertex, edges_max=self._config.edges_max, **how)

    def _begin(self, name: str) -> None:
        engine = in_process("explain", self._engines[name])
        if name in self._kept and self._kept[name][0] is engine:
            return
        try:
            kept = engine.keep_messages(self._config.keep_versions, self._config.keep_bytes)
        except (UsageError, ModelError) as error:  # its changes are not explained, and the answer says so
            _log.info("[explain] engine %s keeps no messages: %s", name, error)
            kept = None
        self._kept[name] = engine, kept

    @property
    def bytes(self) -> int:
        """Of what is kept."""
        return sum(kept.bytes for _, kept in self._kept.values() if kept is not None)

    def close(self) -> None:
        """Keeps no more."""
        for _, kept in self._kept.values():
            try:
                if kept is not None:
                    kept.close()
            except LiveGnnError:
                _log.exception("[explain] closing failed")
        self._kept.clear()
