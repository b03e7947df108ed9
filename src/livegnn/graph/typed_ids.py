"""Vertex ids of a graph whose vertices have types: one space of ids for each type, one space of slots for all.

    ids of one type     counted: 0, 1, 2, ... without gaps, as slots of an array; or named (ids=): a dict id -> slot
    by slot             the id that the vertex has within its own type; -1 or None where the slot is free

The store knows the type of each slot. A batch becomes slots by array look-ups alone, unless it adds or removes
vertices: then each distinct id of the batch has a place in a table, which the batch's updates read and write in order.
Batches of a few updates go without arrays. As with one kind of vertex (ids.py), the map changes only when the
translation is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from livegnn.errors import DtypeInvalid, StoredStateInvalid, ValueInvalid, VertexExists, VertexIdGap, VertexUnknown
from livegnn.graph import checks
from livegnn.graph.checks import AnyArray, Int32Array, Int64Array
from livegnn.graph.ids import ExternalId, SlotPlan, VertexOps, text_from_arrays, text_to_arrays
from livegnn.graph.schema import ADD_VERTEX, REMOVE_VERTEX, Kinds, Schema, TypeName


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


@dataclass(frozen=True)
class Batch:
    """What a batch says of vertices. u, v: (k,) ids, -1 where none, or places in keys. kinds: (k,). types: (k,) codes,
    none, or -1 - place in type_names. ops: runs of updates that add or remove vertices.
    """

    u: Int64Array
    v: Int64Array
    kinds: Kinds
    types: Int32Array
    type_names: Sequence[TypeName]
    keys: Sequence[str] | None
    ops: VertexOps


class TypedIds:
    """Ids of one graph with types. All types have ids of one kind: int64 or strings."""

    small_max = 32  # updates of a batch that is looked at one by one; tests make it 0

    def __init__(
        self, schema: Schema, text: bool, maps: list[Counted | Named], names: AnyArray, slot_count: int
    ) -> None:
        self.schema = schema
        self.text = text
        self.maps = maps
        self.slot_count = slot_count
        self.free: list[int] = np.flatnonzero(_is_free(names[:slot_count], text)).tolist()  # sorted: a heap
        self.names = names  # by slot; may be longer than slot_count

    @property
    def has_ids(self) -> bool:
        """Whether vertices of some type have ids of their own."""
        return any(isinstance(each, Named) for each in self.maps)

    def listed(self, where: str, name: str, ids: object) -> AnyArray:
        """Ids of this graph's kind as an array: int64, or strings with dtype object."""
        if self.text:
            return _objects(checks.text_list(where, name, ids))
        if checks.is_text(ids):
            raise DtypeInvalid(
                f"[{where}] expected int64 ids in {name}, got strings; use the ids that the graph was made with"
            )
        return checks.id_array(where, name, ids)

    def one(self, where: str, vertex: object) -> ExternalId:
        """One id of this graph's kind."""
        if not self.text:
            return checks.vertex_id(where, "vertex", vertex)
        if isinstance(vertex, str):
            return checks.text(where, "vertex", vertex)
        raise DtypeInvalid(
            f"[{where}] expected a string as vertex id, got {vertex!r} of {checks.count_of(vertex)}; use the ids that "
            "the graph was made with"
        )

    def find(self, where: str, ids: object, vertex_type: object) -> Int64Array:
        """(k,) slots of ids of one type, -1 where there is no such vertex."""
        code = self.schema.vertex_code(where, vertex_type)
        return self.maps[code].look_up(self.listed(where, "ids", ids))

    def slots(self, where: str, ids: object, vertex_type: object) -> Int64Array:
        """(k,) slots of ids of one type. Raises: VertexUnknown, naming the row."""
        code = self.schema.vertex_code(where, vertex_type)
        names = self.listed(where, "ids", ids)
        return self.refuse_unknown(where, self.maps[code].look_up(names), names, code)

    def refuse_unknown(self, where: str, slots: Int64Array, names: AnyArray, code: int) -> Int64Array:
        """The slots of ids of one type, none of them -1. Raises: VertexUnknown, naming the row."""
        if slots.size and slots.min() < 0:
            row = int(np.argmax(slots < 0))
            kind, got = self.schema.vertex_types[code], names[row : row + 1].tolist()[0]
            raise VertexUnknown(
                f"[{where}] expected ids of live vertices of type {kind!r}, got {got!r} at row {row}; add the vertex "
                "first"
            )
        return slots

    def external(self, where: str, slots: Int64Array) -> AnyArray:
        """(k,) ids of slots, each within its own type. Raises: VertexUnknown for a slot that is free."""
        inside = (slots >= 0) & (slots < self.slot_count)
        if self.slot_count:
            found = self.names[np.where(inside, slots, 0)]
            inside &= ~_is_free(found, self.text)
        if not inside.all():
            row = int(np.argmax(~inside))
            raise VertexUnknown(
                f"[{where}] expected slots of live vertices, got {slots[row]} at row {row}; read the slots again"
            )
        return found if self.slot_count else np.zeros(0, object if self.text else np.int64)

    def translate(self, batch: Batch) -> tuple[Int64Array, Int64Array, Int32Array, TypedTranslation]:
        """Slots and codes of types for a batch, in order: what an update adds or removes holds from there on.

        Raises:  VertexUnknown, VertexExists, VertexIdGap, ColumnMissing, ValueInvalid, naming the update; DtypeInvalid
                 if the ids are of the other kind.
        """
        if batch.u.size and int(batch.u.max()) >= 0 and self.text != (batch.keys is not None):
            got, expected = ("int64", "string") if self.text else ("string", "int64")
            raise DtypeInvalid(
                f"[apply] expected updates with {expected} ids, got {got} ids; use the ids that the graph was made with"
            )
        translation = TypedTranslation(self)
        if batch.u.size <= self.small_max:
            return (*_one_by_one(translation, batch), translation)
        codes = self.schema.resolve(batch.kinds, batch.types, batch.type_names)
        slots_u, slots_v = _Walk(translation, batch, codes).run()
        return slots_u, slots_v, codes, translation

    def to_arrays(self) -> dict[str, AnyArray]:
        """The map as arrays without objects: ids by slot, and how many ids each type has counted, -1 where named."""
        counts = np.array([each.count for each in self.maps], np.int64)
        names = self.names[: self.slot_count]
        if not self.text:
            return {"counts": counts, "numbers": names}
        taken = ~_is_free(names, True)
        return {"counts": counts, "taken": taken, **text_to_arrays(name or "" for name in names.tolist())}

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Mapping[str, AnyArray], types: Int32Array) -> TypedIds:
        """The map that to_arrays() described; types: (slots,) as the store has them. Raises: StoredStateInvalid."""
        text = "text" in arrays
        if text:
            pairs = zip(text_from_arrays(arrays), arrays["taken"].tolist(), strict=True)
            names = _objects([name if taken else None for name, taken in pairs])
        else:
            names = arrays["numbers"].astype(np.int64)
        if len(names) != len(types) or bool((_is_free(names, text) != (types < 0)).any()):
            raise StoredStateInvalid("[load] expected ids of live vertices, got others; save the graph again")
        maps: list[Counted | Named] = []
        for code, count in enumerate(arrays["counts"].tolist()):
            slots = np.flatnonzero(types == code)
            maps.append(_map_of(names[slots], slots, count))
        if len(maps) != len(schema.vertex_types):
            raise StoredStateInvalid("[load] expected ids for every vertex type, got others; save the graph again")
        return cls(schema, text, maps, names, len(names))


class TypedTranslation:
    """What one batch does to TypedIds: looked up through by the batch itself, committed or dropped afterwards."""

    def __init__(self, base: TypedIds) -> None:
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
        kind = self.base.schema.vertex_types[code]
        if self.slot(code, name) >= 0:
            raise VertexExists(
                f"[{where}] expected a vertex id of type {kind!r} that is new, got {name!r}, which is live; use "
                "set_features"
            )
        count = self._counts[code]
        if 0 <= count < name:
            raise VertexIdGap(
                f"[{where}] expected the next id {count} of type {kind!r} or a removed one, got {name}; number the "
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
            kind = self.base.schema.vertex_types[code]
            raise VertexUnknown(f"[{where}] expected a live vertex of type {kind!r}, got {name!r}; drop the update")
        self._changed[code, name] = -1
        self._plan.give(slot)
        return slot

    def name(self, slot: int) -> str | None:
        """The vertex that a slot stands for once the batch is in, with its type; None where the slot is free."""
        kinds = self.base.schema.vertex_types
        for (code, name), taken in self._changed.items():
            if taken == slot:
                return f"{kinds[code]} {name!r}"
        return None

    def kinds_of(self, update: int) -> list[str]:
        """Names of the types of the vertices that an update names."""
        return [self.base.schema.vertex_types[codes[update]] for codes in self.end_types if codes[update] >= 0]

    def slots(self, where: str, ids: object, vertex_type: object = None) -> Int64Array:
        """Slots of ids of one type as this batch leaves them. Raises: VertexUnknown, ColumnMissing."""
        code = self.base.schema.vertex_code(where, vertex_type)
        names = self.base.listed(where, "ids", ids).tolist()
        slots = np.fromiter((self.slot(code, name) for name in names), np.int64, len(names))
        if slots.size and slots.min() < 0:
            kind, got = self.base.schema.vertex_types[code], names[int(np.argmax(slots < 0))]
            raise VertexUnknown(f"[{where}] expected ids of live vertices of type {kind!r}, got {got!r}; add it first")
        return slots

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


def _one_by_one(translation: TypedTranslation, batch: Batch) -> tuple[Int64Array, Int64Array, Int32Array]:
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
                    _refuse_unknown(i, schema.vertex_types[types[row]], name)
            slots[row].append(slot)
    translation.end_types = ends
    return np.array(slots[0], np.int64), np.array(slots[1], np.int64), np.array(codes, np.int32)


def _refuse_unknown(update: int, kind: str, name: ExternalId) -> NoReturn:
    raise VertexUnknown(
        f"[apply, update {update}] expected a live vertex of type {kind!r}, got {name!r}; add the vertex first"
    )


class _Walk:
    """One batch on its way from ids to slots."""

    def __init__(self, translation: TypedTranslation, batch: Batch, codes: Int32Array) -> None:
        schema = translation.base.schema
        of_vertex, of_edge = schema.parts(batch.kinds)
        self._types = np.full((2, codes.size), -1, np.int32)
        self._types[0, of_vertex] = codes[of_vertex]
        for row, ends in enumerate(schema.ends):
            self._types[row, of_edge] = ends[codes[of_edge]]
        self._ids = np.stack([batch.u, batch.v])
        self._slots = np.full((2, codes.size), -1, np.int64)
        self._batch, self._translation, self._maps = batch, translation, translation.base.maps
        self._keys = None if batch.keys is None else _objects(list(batch.keys))
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
        name, kind = int(self._ids[row, i]), self._translation.base.schema.vertex_types[self._types[row, i]]
        _refuse_unknown(i, kind, name if self._batch.keys is None else self._batch.keys[name])


def counted_and_named(where: str, schema: Schema, counts: Sequence[int], ids: Mapping[str, object]) -> TypedIds:
    """The map of a new graph, whose types lie one after another.

    Args:    counts: vertices by type.  ids: (count,) int64 or strings, of the types that have ids of their own.
    Raises:  ValueInvalid, DtypeInvalid, WidthMismatch, naming the type.
    """
    text = any(
        checks.is_text(each) or (isinstance(each, np.ndarray) and each.dtype.kind == "O") for each in ids.values()
    )
    parts: list[AnyArray] = []
    maps: list[Counted | Named] = []
    first = 0
    for name, count in zip(schema.vertex_types, counts, strict=True):
        slots = np.arange(first, first + count, dtype=np.int64)
        first += count
        if name in ids:
            names = _own_names(where, name, ids[name], count, text)
            maps.append(_named(where, name, names, slots))
            parts.append(names)
        elif text:
            raise DtypeInvalid(
                f"[{where}] expected string ids for every vertex type, as some have, got none for {name!r}; give each "
                "type string ids, or int64 ids throughout"
            )
        else:
            maps.append(Counted(slots))
            parts.append(np.arange(count, dtype=np.int64))
    return TypedIds(schema, text, maps, np.concatenate(parts), first)


def _own_names(where: str, name: str, ids: object, count: int, text: bool) -> AnyArray:
    label = f"ids[{name!r}]"
    names = _objects(checks.text_list(where, label, ids)) if text else checks.id_array(where, label, ids)
    checks.same_length(where, label, names, count, f"features[{name!r}]")
    return names


def _named(where: str, name: str, names: AnyArray, slots: Int64Array) -> Named:
    index = dict(zip(names.tolist(), slots.tolist(), strict=True))
    if len(index) != len(names):
        row, got = next((row, each) for row, each in enumerate(names.tolist()) if index[each] != slots[row])
        raise ValueInvalid(
            f"[{where}] expected ids[{name!r}] that differ, got {got!r} at row {row} and again later; drop one"
        )
    return Named(index)


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


def _is_free(names: AnyArray, text: bool) -> checks.BoolArray:
    return np.array([name is None for name in names.tolist()], np.bool_) if text else names < 0


def _objects(values: Sequence[object]) -> AnyArray:
    result: AnyArray = np.empty(len(values), object)
    result[:] = values
    return result
