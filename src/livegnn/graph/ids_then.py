"""The ids of one version, while batches go on moving the ids of the graph.

Before a batch's ids are committed, what they were is noted here, by those who hold an old version: id -> slot then, -1
where there was no such vertex. An id that is not noted is where it was. A reader in another thread looks the id up in
the graph's own map first and here second; since notes are written before the map is, one of the two is right.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.graph.checks import Int64Array
from livegnn.graph.ids import Translation, look_up, slots_or_ids
from livegnn.graph.schema import no_vertex_type
from livegnn.graph.typed_ids import TypedTranslation
from livegnn.graph.updates import VertexType

if TYPE_CHECKING:
    from livegnn.graph.graph import Graph

__all__ = ["IdsThen", "OldIds"]


class IdsThen:
    """Slots of a graph's ids as they are when this is made."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._before: dict[Any, int] = {}  # by id, or by (code of a type, id)

    def note(self, before: Mapping[Any, int]) -> None:
        """What some ids stand for until now; what was noted first counts."""
        for key, slot in before.items():
            self._before.setdefault(key, slot)

    def slots(self, where: str, ids: object, vertex_type: VertexType | None) -> Int64Array:
        """(k,) slots. Raises: VertexUnknown, naming the row; ColumnMissing, ValueInvalid as Graph.to_slots."""
        typed, known, before = self._graph._typed, self._graph._ids, self._before
        if typed is not None:
            code = typed.schema.vertex_code(where, vertex_type)
            names = typed.listed(where, "ids", ids)
            slots = typed.maps[code].look_up(names)
            if before:
                pairs = zip(names.tolist(), slots.tolist(), strict=True)
                slots = np.fromiter((before.get((code, name), now) for name, now in pairs), np.int64, len(slots))
            return typed.refuse_unknown(where, slots, names, code)
        no_vertex_type(where, vertex_type)
        if known is None:
            return slots_or_ids(where, "ids", ids, None)
        index = known.index
        listed = known.listed(where, "ids", ids)
        return look_up(where, "ids", listed, lambda name: before.get(name, index.get(name, -1)))


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

    def before_commit(self, translation: Translation | TypedTranslation) -> None:
        """To be called by the writer before the ids of a batch that stands are committed."""
        if not self._holders:
            return
        before = translation.before()
        for each in self._holders:
            holder = each()
            if holder is not None:
                holder.note(before)
