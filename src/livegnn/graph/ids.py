"""External vertex ids (int64 or strings) and the dense slots that stand for them inside.

    index  id -> slot        names  slot -> id, None where the slot is free        free  heap of free slots

A new id takes the smallest free slot, else the next one, so slots depend on the log alone and not on how it was cut
into batches. A batch is translated into a Translation first; the map changes only when that is committed, after the
store has taken the batch. Dropping the Translation instead leaves everything as it was.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from livegnn.errors import DtypeInvalid, StoredStateInvalid, ValueInvalid, VertexExists, VertexUnknown, WidthMismatch
from livegnn.graph.checks import AnyArray, Int64Array, count_of, id_array, is_text, shown, text, text_list, vertex_id

ExternalId = int | str
VertexOps = Sequence[tuple[int, int, bool]]  # (first update, one past the last, whether they add)


class SlotPlan:
    """What one batch takes of the free slots and gives back; `free` is read as the heap that it is, until commit()."""

    def __init__(self, free: list[int], slot_count: int) -> None:
        self._free = free
        self._frontier = [(free[0], 0)] if free else []  # (slot, place in free): the smallest not yet taken
        self._taken = 0  # how many of free, smallest first
        self._freed: list[int] = []
        self.slot_count = slot_count

    def take(self) -> int:
        """The smallest free slot, else the next one."""
        if self._freed and (not self._frontier or self._freed[0] < self._frontier[0][0]):
            return heapq.heappop(self._freed)
        if self._frontier:
            slot, place = heapq.heappop(self._frontier)
            self._taken += 1
            for child in range(2 * place + 1, min(2 * place + 3, len(self._free))):
                heapq.heappush(self._frontier, (self._free[child], child))
            return slot
        self.slot_count += 1
        return self.slot_count - 1

    def give(self, slot: int) -> None:
        """A slot that is free from here on."""
        heapq.heappush(self._freed, slot)

    def commit(self) -> None:
        """Makes the heap what the batch made of it."""
        for _ in range(self._taken):
            heapq.heappop(self._free)
        for slot in self._freed:
            heapq.heappush(self._free, slot)


class Translation:
    """What one batch does to an IdMap: looked up through by the batch itself, committed or dropped afterwards."""

    def __init__(self, base: IdMap) -> None:
        self._base = base
        self._changed: dict[ExternalId, int] = {}  # id -> slot, -1 where removed
        self._plan = SlotPlan(base.free, len(base.names))

    def slot(self, name: ExternalId) -> int:
        """The slot of an id, -1 where there is none."""
        slot = self._changed.get(name)
        return self._base.index.get(name, -1) if slot is None else slot

    def add(self, where: str, name: ExternalId) -> int:
        """Gives a new id its slot. Raises: VertexExists."""
        if self.slot(name) >= 0:
            raise VertexExists(
                f"[{where}] expected a vertex id that is new, got {name!r}, which is live; use set_features"
            )
        slot = self._changed[name] = self._plan.take()
        return slot

    def remove(self, name: ExternalId, slot: int) -> None:
        """Frees the slot of an id."""
        self._changed[name] = -1
        self._plan.give(slot)

    def name(self, slot: int) -> ExternalId | None:
        """The id that a slot stands for once the batch is in, None where it is free."""
        names = self._base.names
        for name, taken in self._changed.items():
            if taken == slot:
                return name
        name_before = names[slot] if slot < len(names) else None
        return None if name_before in self._changed else name_before

    def before(self) -> dict[ExternalId, int]:
        """Slots that the ids of this batch's vertices have until it is committed, -1 where there is none."""
        return {name: self._base.index.get(name, -1) for name in self._changed}

    def commit(self) -> None:
        """Makes the map what the batch made of it."""
        if not self._changed:
            return
        base = self._base
        base.names.extend([None] * (self._plan.slot_count - len(base.names)))
        for name in self._changed:
            slot = base.index.pop(name, -1)
            if slot >= 0:
                base.names[slot] = None
        for name, slot in self._changed.items():
            if slot >= 0:
                base.index[name] = slot
                base.names[slot] = name
        self._plan.commit()

    def slots(self, where: str, ids: object) -> Int64Array:
        """Slots of external ids as this batch leaves them. Raises: VertexUnknown."""
        return look_up(where, "ids", self._base.listed(where, "ids", ids), self.slot)


class IdMap:
    """External ids of one graph. All of one kind: int64 or strings."""

    def __init__(self, where: str, ids: object) -> None:
        self.text = is_text(ids)
        self.names: list[ExternalId | None] = list(self.listed(where, "ids", ids))
        self.index: dict[ExternalId, int] = {name: slot for slot, name in enumerate(self.names) if name is not None}
        self.free: list[int] = []
        if len(self.index) != len(self.names):
            row = next(slot for slot, name in enumerate(self.names) if name is not None and self.index[name] != slot)
            raise ValueInvalid(
                f"[{where}] expected ids that differ, got {self.names[row]!r} at row {row} and again later; drop one"
            )

    def listed(self, where: str, name: str, ids: object) -> list[Any]:
        """Ids of this map's kind as a list of Python values."""
        if self.text:
            return text_list(where, name, ids)
        if is_text(ids):
            raise DtypeInvalid(
                f"[{where}] expected int64 ids in {name}, got {count_of(ids)}; use the ids that the graph was made with"
            )
        values: list[int] = id_array(where, name, ids).tolist()
        return values

    def one(self, where: str, vertex: object) -> ExternalId:
        """One id of this map's kind."""
        if not self.text:
            return vertex_id(where, "vertex", vertex)
        if isinstance(vertex, str):
            return text(where, "vertex", vertex)
        message = f"[{where}] expected a string as vertex id, got {shown(vertex)} of {count_of(vertex)}"
        raise DtypeInvalid(f"{message}; use the ids that the graph was made with")

    def slots(self, where: str, name: str, ids: object) -> Int64Array:
        """(k,) int64 slots of external ids. Raises: VertexUnknown, naming the row."""
        index = self.index
        return look_up(where, name, self.listed(where, name, ids), lambda key: index.get(key, -1))

    def external(self, where: str, slots: Int64Array) -> AnyArray:
        """(k,) ids of slots: int64, or strings with dtype object. Raises: VertexUnknown for a slot that is free."""
        names, count = self.names, len(self.names)
        found = [names[slot] if slot < count else None for slot in slots.tolist()]
        if None in found:
            row = found.index(None)
            raise VertexUnknown(
                f"[{where}] expected slots of live vertices, got {slots[row]} at row {row}; read the slots again"
            )
        result: AnyArray = np.empty(len(found), object if self.text else np.int64)
        result[:] = found
        return result

    def translate(
        self, u: Int64Array, v: Int64Array, keys: Sequence[str] | None, ops: VertexOps
    ) -> tuple[AnyArray, AnyArray, Translation]:
        """Slots for the ids of a batch, in order: what an update adds or removes holds from there on.

        Args:    u, v: (k,) int64, -1 where an update has none; places in `keys` where ids are strings.
        Raises:  VertexUnknown and VertexExists, naming the update; DtypeInvalid if the ids are of the other kind.
        """
        named = bool(u.size) and (int(u.max()) >= 0)
        if named and self.text != (keys is not None):
            got, expected = ("string", "int64") if keys is not None else ("int64", "string")
            raise DtypeInvalid(
                f"[apply] expected updates with {expected} ids, got {got} ids; use the ids that the graph was made with"
            )
        translation = Translation(self)
        places_u, places_v, names = _places(u, v, keys)
        table = np.fromiter((translation.slot(name) for name in names), np.int64, len(names))
        table = np.append(table, -1)  # place -1 reads this one
        slots_u, slots_v = np.full(u.size, -1, np.int64), np.full(u.size, -1, np.int64)
        done = 0
        for first, last, adds in ops:
            _fill(done, first, (places_u, slots_u), (places_v, slots_v), table, names)
            for i in range(first, last):
                name = names[places_u[i]]
                where = f"apply, update {i}"
                if adds:
                    slot = translation.add(where, name)
                else:
                    slot = translation.slot(name)
                    if slot < 0:
                        raise VertexUnknown(f"[{where}] expected a live vertex, got {name!r}; drop the update")
                    translation.remove(name, slot)
                table[places_u[i]] = slot if adds else -1
                slots_u[i] = slot
            done = last
        _fill(done, u.size, (places_u, slots_u), (places_v, slots_v), table, names)
        return slots_u, slots_v, translation

    def to_arrays(self) -> dict[str, AnyArray]:
        """The map as arrays without objects: int64 ids, or UTF-8 bytes and offsets; and which slots are taken."""
        taken = np.array([name is not None for name in self.names], np.bool_)
        if not self.text:
            return {"taken": taken, "ids": np.array([0 if name is None else name for name in self.names], np.int64)}
        return {"taken": taken, **text_to_arrays("" if name is None else str(name) for name in self.names)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, AnyArray]) -> IdMap:
        """The map that to_arrays() described. Raises: StoredStateInvalid."""
        try:
            if arrays["taken"].dtype != np.bool_:
                raise ValueError(f"flags of {arrays['taken'].dtype}")
            taken: list[bool] = arrays["taken"].tolist()
            if "text" in arrays:
                listed: Iterable[ExternalId] = text_from_arrays(arrays)
            else:
                listed = arrays["ids"].tolist()
            names = [name if there else None for name, there in zip(listed, taken, strict=True)]
        except (KeyError, ValueError, TypeError) as cause:
            raise StoredStateInvalid(
                f"[load] expected an id map, got one that cannot be read ({cause}); save again"
            ) from cause
        result = cls.__new__(cls)
        result.text = "text" in arrays
        result.names = names
        result.index = {name: slot for slot, name in enumerate(names) if name is not None}
        result.free = [slot for slot, name in enumerate(names) if name is None]
        if len(result.index) + len(result.free) != len(names):
            raise StoredStateInvalid("[load] expected an id map of distinct ids, got one id twice; save again")
        return result


def text_to_arrays(strings: Iterable[str]) -> dict[str, AnyArray]:
    """Strings as arrays without objects: UTF-8 bytes, and where each begins."""
    encoded = [text.encode() for text in strings]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {"text": np.frombuffer(b"".join(encoded), np.uint8), "offsets": offsets}


def text_from_arrays(arrays: Mapping[str, AnyArray]) -> list[str]:
    """The strings that text_to_arrays() described. Raises: KeyError, ValueError for arrays that are not such."""
    if arrays["text"].dtype != np.uint8 or arrays["offsets"].dtype != np.int64:
        raise ValueError(f"strings of {arrays['text'].dtype} at {arrays['offsets'].dtype}")
    data, offsets = arrays["text"].tobytes(), arrays["offsets"].tolist()
    if offsets[-1:] != [len(data)] or offsets[0] != 0 or any(a > b for a, b in pairwise(offsets)):
        raise ValueError(f"strings of {len(data)} bytes, not {offsets[0]} to {offsets[-1]} in order")
    return [data[a:b].decode() for a, b in pairwise(offsets)]


def look_up(where: str, name: str, names: list[Any], slot_of: Callable[[Any], int]) -> Int64Array:
    """(k,) int64 slots of names. Raises: VertexUnknown where slot_of gives -1, naming the row."""
    slots = np.fromiter(map(slot_of, names), np.int64, len(names))
    if slots.size and slots.min() < 0:
        row = int(np.argmax(slots < 0))
        raise VertexUnknown(
            f"[{where}] expected ids of live vertices in {name}, got {names[row]!r} at row {row}; add the vertex first"
        )
    return slots


def _places(u: Int64Array, v: Int64Array, keys: Sequence[str] | None) -> tuple[Int64Array, Int64Array, list[Any]]:
    """u and v as places in a list of distinct ids, -1 where an update has none."""
    if keys is not None:
        return u, v, list(keys)
    if u.size <= 32:
        names = list(dict.fromkeys(u.tolist() + v.tolist()))
        place = {name: i for i, name in enumerate(names)}
        place[-1] = -1
        both = np.array([place[x] for x in u.tolist() + v.tolist()], np.int64)
        return both[: u.size], both[u.size :], names
    distinct, inverse = np.unique(np.concatenate([u, v]), return_inverse=True)
    inverse = inverse.reshape(-1).astype(np.int64)
    inverse[distinct[inverse] == -1] = -1
    return inverse[: u.size], inverse[u.size :], distinct.tolist()


_Pair = tuple[Int64Array, Int64Array]  # places, and the slots to be filled in


def _fill(first: int, last: int, u: _Pair, v: _Pair, table: Int64Array, names: list[Any]) -> None:
    """Slots of the updates [first, last), which neither add nor remove a vertex."""
    if first == last:
        return
    unknown = np.zeros(last - first, np.bool_)
    for places, slots in (u, v):
        slots[first:last] = table[places[first:last]]
        unknown |= (slots[first:last] < 0) & (places[first:last] >= 0)
    if unknown.any():
        i = first + int(np.argmax(unknown))
        name = names[u[0][i] if u[1][i] < 0 else v[0][i]]
        raise VertexUnknown(f"[apply, update {i}] expected a live vertex, got {name!r}; add the vertex first")


def slots_or_ids(where: str, name: str, ids: object, known: IdMap | None) -> Int64Array:
    """Slots of what a reader named: mapped where the graph has ids of its own, else checked for dtype and sign only."""
    return id_array(where, name, ids) if known is None else known.slots(where, name, ids)


def check_ids(where: str, ids: object, count: int) -> IdMap:
    """The map for a new graph of `count` vertices. Raises: WidthMismatch, ValueInvalid, DtypeInvalid."""
    known = IdMap(where, ids)
    if len(known.names) != count:
        raise WidthMismatch(
            f"[{where}] expected ids with {count} rows like features, got {len(known.names)}; give each vertex one"
        )
    return known
