"""MessageHistory: what the newest versions replaced, so that a vertex's latest change can be looked up.

    batch -> the engine's old rows (native, for the length of the batch) -> VersionRecord -> ring of versions
    terms as of version X = terms now, with the records of later versions put back, newest first (moments.py)

Memory: of each version the rows that it replaced in the last two layers, its features, degrees and edges. The ring
drops the oldest beyond `versions` or `bytes`. One version larger than `bytes` empties it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from livegnn.graph.consumers import VertexChange
from livegnn.inference.explain.layout import ModelLayout
from livegnn.inference.explain.moments import GoneVertex, VersionRecord
from livegnn.models.model import Model
from livegnn.types import Int64Array


class Recorded(Protocol):
    """What is recorded: an Engine."""

    native: Any

    @property
    def version(self) -> int:
        """Of its rows."""

    def explained_layout(self) -> ModelLayout:
        """Of its model."""

    def _follow(self, follower: Any) -> None: ...

    def _unfollow(self, follower: Any) -> None: ...


class MessageHistory:
    """The newest versions of one engine; Engine.keep_messages() makes it. Used under the graph's lock."""

    def __init__(self, engine: Recorded, versions: int, size: int) -> None:
        self._engine, self._versions_max, self._bytes_max = engine, versions, size
        self._kept: deque[VersionRecord] = deque()
        self._bytes = 0
        self._gone: dict[int, GoneVertex] = {}
        self.floor = engine.version
        self._begin()
        engine._follow(self)

    @property
    def bytes(self) -> int:
        """Of what is kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def latest(self, slot: int) -> int | None:
        """The last version that changed the output of a slot; None where it is not kept."""
        return next((record.version for record in reversed(self._kept) if record.changes(slot)), None)

    def after(self, version: int) -> Sequence[VersionRecord]:
        """The records of later versions, oldest first."""
        return [record for record in self._kept if record.version > version]

    def close(self) -> None:
        """Forgets all, and records no more."""
        self._clear()
        self._engine.native.record([], False)
        self._engine._unfollow(self)

    # ---- as a Follower of the engine

    def _before(self, batch: list[VertexChange]) -> None:
        self._gone = {}
        added: set[int] = set()
        for one in batch:
            if one.adds:
                added.add(one.slot)
            elif one.slot not in added:  # else it came in this batch
                self._gone.setdefault(one.slot, GoneVertex(one.id, one.code))

    def _after(self, changed: Int64Array, version: int) -> None:
        gone, self._gone = self._gone, {}
        replaced = self._engine.native.recorded()
        if replaced is None:
            self._clear()
            return
        record = VersionRecord.of(version, replaced, np.sort(changed), gone)
        self._kept.append(record)
        self._bytes += record.bytes
        while self._kept and (len(self._kept) > self._versions_max or self._bytes > self._bytes_max):
            oldest = self._kept.popleft()
            self._bytes -= oldest.bytes
            self.floor = oldest.version

    def _suits(self, model: Model) -> None:
        """Every model can be recorded, or refuses contributions() anyway."""

    def _rebuilt(self) -> None:
        self._clear()
        self._begin()

    def _clear(self) -> None:
        self._kept.clear()
        self._bytes, self.floor = 0, self._engine.version

    def _begin(self) -> None:
        made = self._engine.explained_layout().recorded()
        tables = sorted(set[int]().union(*(each.tables for each in made)))
        self._engine.native.record(tables, True)
