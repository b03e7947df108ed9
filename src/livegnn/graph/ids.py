"""How a graph's vertices are named: by their slots, or by ids: one space of ids for each type, one of slots for all.

    SlotIds             a vertex's id is its slot
    NamedIds, by type   counted: 0, 1, 2, ... without gaps, as slots of an array; or named (ids=): a dict id -> slot
    by slot             the id that the vertex has within its own type; -1 or None where the slot is free

A graph without types is one of one nameless type. A new id takes the smallest free slot, else the next one, so slots
depend on the log alone and not on how it was cut into batches. A batch is translated into an IdChange first; the ids
change only when that is committed, after the store has taken the batch.

A batch becomes slots by array look-ups alone, unless it adds or removes vertices: then each distinct id of the batch
has a place in a table, which the batch's updates read and write in order. Batches of a few updates go without arrays.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias

import numpy as np

from livegnn import _native
from livegnn.errors import (
    DtypeInvalid,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    VertexExists,
    VertexIdGap,
    VertexUnknown,
)
from livegnn.graph import checks
from livegnn.graph.checks import Int32Array
from livegnn.graph.schema import ADD_VERTEX, REMOVE_VERTEX, GraphSchema, no_type_names
from livegnn.graph.text_arrays import text_from_arrays, text_to_arrays
from livegnn.graph.updates import Batch, ExternalId, Updates
from livegnn.types import AnyArray, BoolArray, Int64Array

Before = Mapping[tuple[int, ExternalId], int]  # by type and id: the slot that it had, -1 where there was no such vertex
NO_CHANGE: Before = {}


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


class Counted:
    """Ids 0, 1, 2, ... of one type: slots in an array, -1 where the vertex was removed."""

    def __init__(self, slots: Int64Array) -> None:
        self._slots = slots
        self.count = len(slots)  # the next new id; the array may be longer

    def look_up(self, ids: AnyArray) -> Int64Array:
        """(k,) slots of (k,) int64 ids, -1 where there is no such vertex."""
        count = self.count  # first, since a writer raises it last
        known = self._slots[:count]
        if not count:
            return np.full(len(ids), -1, np.int64)
        inside = ids < count
        return known[ids] if inside.all() else np.where(inside, known[np.where(inside, ids, 0)], -1)

    def one(self, name: Any) -> int:
        """The slot of one id, -1 where there is none."""
        return int(self._slots[name]) if name < self.count else -1

    def put(self, name: Any, slot: int) -> None:
        """Gives an id its slot; -1 takes it away. An id beyond the count raises the count to it."""
        if name >= len(self._slots):
            more = np.full(max(name + 1, 2 * len(self._slots)) - len(self._slots), -1, np.int64)
            self._slots = np.concatenate([self._slots, more])
        self._slots[name] = slot
        self.count = max(self.count, name + 1)

    def append(self, slots: Int64Array) -> None:
        """Gives the next ids these slots."""
        end = self.count + len(slots)
        if end > len(self._slots):
            more = np.full(max(end, 2 * len(self._slots)) - len(self._slots), -1, np.int64)
            self._slots = np.concatenate([self._slots, more])
        self._slots[self.count : end] = slots
        self.count = end

    def copied(self) -> Counted:
        """These ids as they are now."""
        return Counted(self._slots[: self.count].copy())


class Named:
    """Ids of one type that the caller chose: int64, or strings."""

    count = -1  # of no meaning here

    def __init__(self, index: dict[ExternalId, int]) -> None:
        self._index = index

    def look_up(self, ids: AnyArray) -> Int64Array:
        """(k,) slots of (k,) ids, -1 where there is no such vertex."""
        get = self._index.get
        return np.fromiter((get(name, -1) for name in ids.tolist()), np.int64, len(ids))

    def one(self, name: Any) -> int:
        """The slot of one id, -1 where there is none."""
        return self._index.get(name, -1)

    def put(self, name: Any, slot: int) -> None:
        """Gives an id its slot; -1 takes it away."""
        if slot < 0:
            self._index.pop(name, None)
        else:
            self._index[name] = slot

    def copied(self) -> Named:
        """These ids as they are now."""
        return Named(dict(self._index))


class SlotIds:
    """NamedIds where a vertex's id is its slot. What is read is checked for dtype and sign only: the store knows what
    is live.
    """

    text = has_names = False

    def __init__(self, schema: GraphSchema, store: _native.GraphStore) -> None:
        self.schema = schema
        self._store = store

    def listed(self, where: str, name: str, ids: object) -> AnyArray:
        """(k,) int64."""
        return checks.id_array(where, name, ids)

    def slots(
        self, where: str, ids: object, vertex_type: object = None, *, name: str = "ids", before: Before = NO_CHANGE
    ) -> Int64Array:
        """The ids themselves."""
        self.schema.vertex_code(where, vertex_type)
        return checks.id_array(where, name, ids)

    def slot(self, where: str, vertex: object, vertex_type: object = None) -> int:
        """The id itself."""
        self.schema.vertex_code(where, vertex_type)
        return checks.vertex_id(where, "vertex", vertex)

    def find(self, where: str, ids: object, vertex_type: object = None) -> Int64Array:
        """The ids of live vertices, -1 for others."""
        slots, live = self.slots(where, ids, vertex_type), self._store.live()
        inside = slots < len(live)
        inside[inside] = live[slots[inside]]
        return np.where(inside, slots, -1)

    def external(self, slots: Int64Array) -> AnyArray:
        """The slots themselves."""
        return slots

    def translate(self, updates: Updates) -> tuple[_native.UpdateBuffer, IdChange | None]:
        """The updates' own buffer."""
        batch = Batch.of(updates)
        if batch.type_names:
            no_type_names(batch.kinds, batch.types, batch.type_names)
        if batch.keys and batch.u.size and int(batch.u.max()) >= 0:
            got = f"string ids ({batch.keys[0]!r})"
            raise UsageError(f"[apply] expected updates with int64 ids, got {got}; make the graph with ids=")
        return updates.buffer, None

    def copied(self) -> Self:
        """Itself: a slot is its own id in every version."""
        return self

    def to_arrays(self) -> dict[str, AnyArray]:
        """Nothing: the store has them."""
        return {}

    def captured(self) -> SlotIds:
        """Itself: there is nothing to copy."""
        return self


class CapturedIds(NamedTuple):
    """NamedIds at one version. counts: ids that each type has counted.  names: by slot."""

    has_types: bool
    text: bool
    counts: list[int]
    names: AnyArray

    def to_arrays(self) -> dict[str, AnyArray]:
        """As NamedIds.to_arrays."""
        taken = ~_is_free(self.names, self.text)
        parts = {"counts": np.array(self.counts, np.int64)} if self.has_types else {"taken": taken}
        if self.text:
            return {**parts, "taken": taken, **text_to_arrays(name or "" for name in self.names.tolist())}
        if self.has_types:
            return {**parts, "numbers": self.names}
        return {**parts, "ids": np.where(taken, self.names, 0)}


class NamedIds:
    """Ids that are not slots: within the types of a graph, or of its nameless type. All are int64, or all strings.

    text: whether they are strings.  has_names: whether vertices of some type have ids of their own.
    """

    small_max = 32  # updates of a batch that is looked at one by one; tests make it 0

    def __init__(
        self, schema: GraphSchema, text: bool, maps: list[Counted | Named], names: AnyArray, slot_count: int
    ) -> None:
        self.schema = schema
        self.text = text
        self.maps = maps
        self.has_names = any(isinstance(each, Named) for each in maps)
        self.slot_count = slot_count
        self.free: list[int] = np.flatnonzero(_is_free(names[:slot_count], text)).tolist()  # sorted: a heap
        self.names = names  # by slot; may be longer than slot_count

    def listed(self, where: str, name: str, ids: object) -> AnyArray:
        """(k,) ids of this graph's kind: int64, or strings with dtype object."""
        if self.text:
            return np.array(checks.text_list(where, name, ids), object)
        if checks.is_text(ids):
            got = checks.count_of(ids)
            raise DtypeInvalid(
                f"[{where}] expected int64 ids in {name}, got {got}; use the ids that the graph was made with"
            )
        return checks.id_array(where, name, ids)

    def slot(self, where: str, vertex: object, vertex_type: object = None) -> int:
        """The slot of one id. Raises: VertexUnknown."""
        code = self.schema.vertex_code(where, vertex_type)
        slot = self.maps[code].one(self._one(where, vertex))
        if slot < 0:
            raise VertexUnknown(
                f"[{where}] expected the id of a live vertex{self.schema.of_type(code)}, got {vertex!r}; add the "
                "vertex first"
            )
        return slot

    def _one(self, where: str, vertex: object) -> ExternalId:
        if not self.text:
            return checks.vertex_id(where, "vertex", vertex)
        if isinstance(vertex, str):
            return checks.text(where, "vertex", vertex)
        raise DtypeInvalid(
            f"[{where}] expected a string as vertex id, got {checks.shown(vertex)} of {checks.count_of(vertex)}; use "
            "the ids that the graph was made with"
        )

    def find(self, where: str, ids: object, vertex_type: object = None) -> Int64Array:
        """(k,) slots of ids of one type, -1 where there is no such vertex."""
        code = self.schema.vertex_code(where, vertex_type)
        return self.maps[code].look_up(self.listed(where, "ids", ids))

    def slots(
        self, where: str, ids: object, vertex_type: object = None, *, name: str = "ids", before: Before = NO_CHANGE
    ) -> Int64Array:
        """(k,) slots of ids of one type; what `before` says of an id counts. Raises: VertexUnknown, naming the row."""
        code = self.schema.vertex_code(where, vertex_type)
        names = self.listed(where, name, ids)
        slots = self.maps[code].look_up(names)
        if before:
            pairs = zip(names.tolist(), slots.tolist(), strict=True)
            slots = np.fromiter((before.get((code, one), now) for one, now in pairs), np.int64, len(slots))
        return self.schema.refuse_unknown(where, name, slots, names, code)

    def external(self, slots: Int64Array) -> AnyArray:
        """(k,) ids of slots, each within its own type. Raises: VertexUnknown for a slot that is free."""
        inside = (slots >= 0) & (slots < self.slot_count)
        if self.slot_count:
            found = self.names[np.where(inside, slots, 0)]
            inside &= ~_is_free(found, self.text)
        if not inside.all():
            row = int(np.argmax(~inside))
            raise VertexUnknown(
                f"[to_external] expected slots of live vertices, got {slots[row]} at row {row}; read the slots again"
            )
        return found if self.slot_count else np.zeros(0, object if self.text else np.int64)

    def translate(self, updates: Updates) -> tuple[_native.UpdateBuffer, IdChange | None]:
        """A batch in slots, as a buffer of its own, and what it does to the ids; None if nothing.

        Raises:  VertexUnknown, VertexExists, VertexIdGap, ColumnMissing, ValueInvalid, naming the update; DtypeInvalid,
                 UsageError if the ids are of the other kind.
        """
        batch = Batch.of(updates)
        if batch.u.size and int(batch.u.max()) >= 0 and self.text != (batch.keys is not None):
            got, expected = ("int64", "string") if self.text else ("string", "int64")
            raise DtypeInvalid(
                f"[apply] expected updates with {expected} ids, got {got} ids; use the ids that the graph was made with"
            )
        translation = IdChange(self)
        if batch.u.size <= self.small_max:
            slots_u, slots_v, codes = _one_by_one(translation, batch)
        else:
            codes = self.schema.resolve(batch.kinds, batch.types, batch.type_names)
            slots_u, slots_v = _Walk(translation, batch, codes).run()
        return updates.in_slots(slots_u, slots_v, codes if self.schema.has_types else None), translation

    def copied(self) -> Self:
        """These ids as they are now, for reading, whatever batches do to the graph's."""
        result = copy.copy(self)
        result.maps, result.names = [each.copied() for each in self.maps], self.names.copy()
        return result

    def to_arrays(self) -> dict[str, AnyArray]:
        """Ids by slot, and how many ids each type has counted, -1 where named; without types what is taken."""
        return self.captured().to_arrays()

    def captured(self) -> CapturedIds:
        """A copy that to_arrays() can be called of later, without the graph's lock."""
        counts = [each.count for each in self.maps]
        return CapturedIds(self.schema.has_types, self.text, counts, self.names[: self.slot_count].copy())

    @classmethod
    def from_arrays(cls, schema: GraphSchema, arrays: Mapping[str, AnyArray], types: Int32Array) -> NamedIds:
        """The map that to_arrays() described; types: (slots,) codes, -1 where free, as the store has them.

        Raises: StoredStateInvalid, KeyError, ValueError.
        """
        text, taken = "text" in arrays, arrays.get("taken")
        if taken is not None and taken.dtype != np.bool_:
            raise ValueError(f"flags of {taken.dtype}")
        if text:
            pairs = zip(text_from_arrays(arrays), arrays["taken"].tolist(), strict=True)
            names = np.array([name if there else None for name, there in pairs], object)
        elif schema.has_types:
            names = arrays["numbers"].astype(np.int64)
        else:
            names = np.where(arrays["taken"], arrays["ids"].astype(np.int64), -1)
        if len(names) != len(types) or bool((_is_free(names, text) != (types < 0)).any()):
            raise StoredStateInvalid("[load] expected ids of live vertices, got others; save the graph again")
        maps: list[Counted | Named] = []
        for code, count in enumerate(arrays["counts"].tolist() if schema.has_types else [-1]):
            slots = np.flatnonzero(types == code)
            maps.append(_map_of(names[slots], slots, count))
        if len(maps) != len(schema.vertex_types):
            raise StoredStateInvalid("[load] expected ids for every vertex type, got others; save the graph again")
        return cls(schema, text, maps, names, len(names))


VertexIds: TypeAlias = SlotIds | NamedIds


class IdChange:
    """What one batch does to NamedIds: looked up through by the batch itself, committed or dropped afterwards."""

    def __init__(self, base: NamedIds) -> None:
        self.base = base
        self._changed: dict[tuple[int, ExternalId], int] = {}  # (type, id) -> slot, -1 where removed
        self._counts = [each.count for each in base.maps]
        self._plan = SlotPlan(base.free, base.slot_count)
        self.end_types: Sequence[Sequence[int] | Int32Array] = ()  # of u, of v: codes of types by update, -1 where none

    def slot(self, code: int, name: ExternalId) -> int:
        """The slot of an id, -1 where there is none."""
        slot = self._changed.get((code, name))
        return self.base.maps[code].one(name) if slot is None else slot

    def add(self, where: str, code: int, name: Any) -> int:
        """Gives a new id its slot. Raises: VertexExists, VertexIdGap."""
        of_type = self.base.schema.of_type(code)
        if self.slot(code, name) >= 0:
            raise VertexExists(
                f"[{where}] expected a vertex id{of_type} that is new, got {name!r}, which is live; use set_features"
            )
        count = self._counts[code]
        if 0 <= count < name:
            raise VertexIdGap(
                f"[{where}] expected the next id {count}{of_type} or a removed one, got {name}; number the "
                "vertices of a type without gaps"
            )
        if count == name:
            self._counts[code] += 1
        slot = self._changed[code, name] = self._plan.take()
        return slot

    def remove(self, where: str, code: int, name: ExternalId) -> int:
        """Frees the slot of an id and returns it. Raises: VertexUnknown."""
        slot = self.slot(code, name)
        if slot < 0:
            of_type = self.base.schema.of_type(code)
            raise VertexUnknown(f"[{where}] expected a live vertex{of_type}, got {name!r}; drop the update")
        self._changed[code, name] = -1
        self._plan.give(slot)
        return slot

    def vertex_at(self, slot: int) -> tuple[int, ExternalId] | None:
        """Type and id of the vertex that a slot stands for once the batch is in; None where it is free."""
        for vertex, taken in self._changed.items():
            if taken == slot:
                return vertex
        if self.base.schema.has_types or slot >= self.base.slot_count:
            return None
        name = self.base.names[slot : slot + 1].tolist()[0]
        return None if name in (None, -1) or (0, name) in self._changed else (0, name)

    def vertices_of(self, update: int, names: Sequence[ExternalId]) -> list[tuple[int, ExternalId]]:
        """Types and ids of the vertices that an update names."""
        codes = [int(each[update]) for each in self.end_types if each[update] >= 0]
        return list(zip(codes, names, strict=True))

    def slots(self, where: str, ids: object, vertex_type: object = None) -> Int64Array:
        """Slots of ids of one type as this batch leaves them. Raises: VertexUnknown, ColumnMissing."""
        code = self.base.schema.vertex_code(where, vertex_type)
        names = self.base.listed(where, "ids", ids)
        slots = np.fromiter((self.slot(code, name) for name in names.tolist()), np.int64, len(names))
        return self.base.schema.refuse_unknown(where, "ids", slots, names, code)

    def before(self) -> dict[tuple[int, ExternalId], int]:
        """Slots that the ids of this batch's vertices have until it is committed, by type; -1 where there is none."""
        return {(code, name): self.base.maps[code].one(name) for code, name in self._changed}

    def commit(self) -> None:
        """Makes the map what the batch made of it."""
        if not self._changed:
            return
        base, free = self.base, None if self.base.text else -1
        if self._plan.slot_count > len(base.names):
            longer = np.full(max(self._plan.slot_count, 2 * len(base.names)), free, base.names.dtype)
            longer[: base.slot_count] = base.names[: base.slot_count]
            base.names = longer
        base.slot_count = self._plan.slot_count
        for code, name in self._changed:
            slot = base.maps[code].one(name)
            if slot >= 0:
                base.names[slot] = free
        for (code, name), slot in self._changed.items():
            base.maps[code].put(name, slot)
            if slot >= 0:
                base.names[slot] = name
        self._plan.commit()


def _one_by_one(translation: IdChange, batch: Batch) -> tuple[Int64Array, Int64Array, Int32Array]:
    """Slots of u and v, and codes, of a batch of few updates, for which arrays would cost more than they save."""
    schema, keys = translation.base.schema, batch.keys
    codes = schema.resolve_few(batch.kinds.tolist(), batch.types.tolist(), batch.type_names)
    slots: tuple[list[int], list[int]] = ([], [])
    ends: tuple[list[int], list[int]] = ([], [])
    for i, (kind, code, *names) in enumerate(
        zip(batch.kinds.tolist(), codes, batch.u.tolist(), batch.v.tolist(), strict=True)
    ):
        types = schema.types_named(kind, code)
        for row in (0, 1):
            ends[row].append(types[row])
            if types[row] < 0:
                slots[row].append(-1)
                continue
            name = names[row] if keys is None else keys[names[row]]
            if kind == ADD_VERTEX:
                slot = translation.add(f"apply, update {i}", types[row], name)
            elif kind == REMOVE_VERTEX:
                slot = translation.remove(f"apply, update {i}", types[row], name)
            else:
                slot = translation.slot(types[row], name)
                if slot < 0:
                    _refuse_unknown(i, schema.of_type(types[row]), name)
            slots[row].append(slot)
    translation.end_types = ends
    return np.array(slots[0], np.int64), np.array(slots[1], np.int64), np.array(codes, np.int32)


def _refuse_unknown(update: int, of_type: str, name: ExternalId) -> NoReturn:
    raise VertexUnknown(f"[apply, update {update}] expected a live vertex{of_type}, got {name!r}; add the vertex first")


class _Walk:
    """One batch on its way from ids to slots."""

    def __init__(self, translation: IdChange, batch: Batch, codes: Int32Array) -> None:
        schema = translation.base.schema
        self._types = schema.end_types(batch.kinds, codes)
        self._ids = np.stack([batch.u, batch.v])
        self._slots = np.full((2, codes.size), -1, np.int64)
        self._batch, self._translation, self._maps = batch, translation, translation.base.maps
        self._keys = None if batch.keys is None else np.array(batch.keys, object)
        translation.end_types = self._types[0], self._types[1]

    def run(self) -> tuple[Int64Array, Int64Array]:
        """Slots of u and of v, -1 where an update has none."""
        if self._batch.ops:
            self._in_order()
        else:
            for code, known in enumerate(self._maps):
                mask = self._types == code
                if mask.any():
                    self._slots[mask] = self._look_up(known, self._ids[mask])
            self._refuse_unknown(0, self._batch.u.size)
        return self._slots[0], self._slots[1]

    def _look_up(self, known: Counted | Named, ids: Int64Array) -> Int64Array:
        return known.look_up(ids) if self._keys is None else known.look_up(self._keys)[ids]

    def _in_order(self) -> None:
        """Each distinct vertex has a place in a table of slots; updates that add or remove vertices write it."""
        places, table, names = self._table()
        add, remove = self._translation.add, self._translation.remove
        done = 0
        for first, last, adds in self._batch.ops:
            self._fill(places, table, done, first)
            for i in range(first, last):
                place = int(places[0, i])
                slot = (add if adds else remove)(f"apply, update {i}", *names[place])
                table[place] = slot if adds else -1
                self._slots[0, i] = slot
            done = last
        self._fill(places, table, done, self._batch.u.size)

    def _table(self) -> tuple[Int64Array, Int64Array, list[tuple[int, ExternalId]]]:
        """Places (2, k) of the batch's vertices, -1 where none; by place the slot, and the type and id."""
        places = np.full(self._ids.shape, -1, np.int64)
        slots: list[Int64Array] = []
        names: list[tuple[int, ExternalId]] = []
        for code, known in enumerate(self._maps):
            mask = self._types == code
            if not mask.any():
                continue
            distinct, inverse = np.unique(self._ids[mask], return_inverse=True)
            places[mask] = len(names) + inverse.reshape(-1)
            slots.append(self._look_up(known, distinct))
            listed = distinct if self._keys is None else self._keys[distinct]
            names.extend((code, name) for name in listed.tolist())
        slots.append(np.full(1, -1, np.int64))  # place -1 reads this one
        return places, np.concatenate(slots), names

    def _fill(self, places: Int64Array, table: Int64Array, first: int, last: int) -> None:
        """Slots of the updates [first, last), which neither add nor remove a vertex."""
        self._slots[:, first:last] = table[places[:, first:last]]
        self._refuse_unknown(first, last)

    def _refuse_unknown(self, first: int, last: int) -> None:
        unknown = (self._slots[:, first:last] < 0) & (self._types[:, first:last] >= 0)
        if not unknown.any():
            return
        i = int(np.argmax(unknown.any(axis=0)))
        row, i = int(np.argmax(unknown[:, i])), first + i
        name, of_type = int(self._ids[row, i]), self._translation.base.schema.of_type(self._types[row, i])
        _refuse_unknown(i, of_type, name if self._batch.keys is None else self._batch.keys[name])


def counted_and_named(where: str, schema: GraphSchema, counts: Sequence[int], ids: Mapping[str, object]) -> NamedIds:
    """The ids of a new graph, whose types lie one after another.

    Args:    counts: vertices by type.  ids: (count,) int64 or strings, of the types that have ids of their own; of the
             nameless one by "".
    Raises:  ValueInvalid, DtypeInvalid, WidthMismatch, naming the type.
    """
    text = any(
        checks.is_text(each) or (schema.has_types and isinstance(each, np.ndarray) and each.dtype.kind == "O")
        for each in ids.values()
    )
    parts: list[AnyArray] = []
    maps: list[Counted | Named] = []
    first = 0
    for name, count in zip(schema.vertex_types, counts, strict=True):
        slots = np.arange(first, first + count, dtype=np.int64)
        first += count
        if name in ids:
            names, known = _own_names(where, f"[{name!r}]" if name else "", ids[name], slots, text)
            maps.append(known)
            parts.append(names)
        elif text:
            raise DtypeInvalid(
                f"[{where}] expected string ids for every vertex type, as some have, got none for {name!r}; give each "
                "type string ids, or int64 ids throughout"
            )
        else:
            maps.append(Counted(slots))
            parts.append(np.arange(count, dtype=np.int64))
    return NamedIds(schema, text, maps, np.concatenate(parts), first)


def _own_names(where: str, key: str, ids: object, slots: Int64Array, text: bool) -> tuple[AnyArray, Named]:
    label = f"ids{key}"
    names = np.array(checks.text_list(where, label, ids), object) if text else checks.id_array(where, label, ids)
    checks.same_length(where, label, names, len(slots), f"features{key}")
    index = dict(zip(names.tolist(), slots.tolist(), strict=True))
    if len(index) != len(names):
        row, got = next((row, each) for row, each in enumerate(names.tolist()) if index[each] != slots[row])
        raise ValueInvalid(
            f"[{where}] expected {label} that differ, got {got!r} at row {row} and again later; drop one"
        )
    return names, Named(index)


def _map_of(names: AnyArray, slots: Int64Array, count: int) -> Counted | Named:
    """The map of one type from what was saved: ids and slots of its live vertices."""
    if len(set(names.tolist())) != len(names):
        raise StoredStateInvalid("[load] expected ids that differ within a type, got one twice; save the graph again")
    if count < 0:
        return Named(dict(zip(names.tolist(), slots.tolist(), strict=True)))
    if len(names) and int(names.max()) >= count:
        raise StoredStateInvalid(f"[load] expected ids below {count}, got {names.max()}; save the graph again")
    known = np.full(count, -1, np.int64)
    known[names] = slots
    return Counted(known)


def _is_free(names: AnyArray, text: bool) -> BoolArray:
    return np.array([name is None for name in names.tolist()], np.bool_) if text else names < 0
