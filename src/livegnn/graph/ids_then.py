"""The ids of one version, while batches go on moving the ids of the graph.

Before a batch's ids are committed, what they were is noted here, by those who hold an old version: id -> slot then, -1
where there was no such vertex. An id that is not noted is where it was. A reader in another thread looks the id up in
the graph's own map first and here second; since notes are written before the map is, one of the two is right.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from livegnn.graph.ids import IdChange, VertexIds
from livegnn.graph.updates import VertexType
from livegnn.types import Int64Array


class IdsThen:
    """Slots of a graph's ids as they are when this is made."""

    def __init__(self, ids: VertexIds) -> None:
        self._ids = ids
        self._before: dict[Any, int] = {}  # by (code of a type, id)

    def note(self, before: Mapping[Any, int]) -> None:
        """What some ids stand for until now; what was noted first counts."""
        for key, slot in before.items():
            self._before.setdefault(key, slot)

    def slots(self, where: str, ids: object, vertex_type: VertexType | None) -> Int64Array:
        """(k,) slots. Raises: VertexUnknown, naming the row; ColumnMissing, ValueInvalid as Graph.to_slots."""
        return self._ids.slots(where, ids, vertex_type, before=self._before)


class OldIds:
    """Those who hold the ids of an old version of a graph."""

    def __init__(self) -> None:
        self._holders: tuple[weakref.ref[IdsThen], ...] = ()
        self._lock = threading.Lock()

    def hold(self, holder: IdsThen) -> None:
        """Notes for it what ids were, from here on and for as long as it is referred to."""
        with self._lock:
            living = (each for each in self._holders if each() is not None)
            self._holders = (*living, weakref.ref(holder))

    def drop(self, holder: IdsThen) -> None:
        """Ends that."""
        with self._lock:
            self._holders = tuple(each for each in self._holders if each() not in (None, holder))

    def before_commit(self, change: IdChange) -> None:
        """To be called by the writer before the ids of a batch that stands are committed."""
        if not self._holders:
            return
        before = change.before()
        for each in self._holders:
            holder = each()
            if holder is not None:
                holder.note(before)
