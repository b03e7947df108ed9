"""The rows that a batch moved, by the ids of their vertices and by vertex type.

The engine hands over slots, and rows as they were and as they are (core: OutputMoves). Where a batch adds or removes
vertices, a slot may have had another id before, and an id another slot: the batch says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from livegnn.deployment.filters import MovedRows
from livegnn.deployment.live import LiveModel
from livegnn.errors import ModelMismatch
from livegnn.graph.consumers import VertexChange
from livegnn.inference.hetero import cut, width_of
from livegnn.types import AnyArray, Int64Array

Moves: TypeAlias = tuple[Int64Array, int, AnyArray, AnyArray, AnyArray]  # as NativeChanges.take_moves() gives them
_Key: TypeAlias = tuple[int, Any]  # code of the type, and id


def moved_rows(engine: LiveModel, moves: Moves, batch: list[VertexChange]) -> Iterator[tuple[str | None, MovedRows]]:
    """Vertex type, None without types, and what moved, of all that moved.

    Args:    batch: the vertices that the batch added and removed.
    """
    slots, gone_count, is_new, before, after = moves
    live = len(slots) - gone_count
    rows = MovedRows(slots, before, after, is_new.view(np.bool_), np.zeros(len(slots), np.bool_))
    gone: list[_Key] = []
    if batch:
        rows, live, gone = _by_id(engine, rows, live, batch)
    graph, types = engine.graph, engine.graph.vertex_types
    ids = rows.ids[:live] if graph.host.ids_are_slots else graph.to_external(rows.ids[:live])
    if types is None:
        if len(rows.ids):
            yield None, rows._replace(ids=_with(ids, [name for _, name in gone]))
        return
    codes = np.concatenate([graph.slot_types(rows.ids[:live]), np.array([code for code, _ in gone], np.int32)])
    for code in np.unique(codes).tolist():
        try:
            width = width_of(engine.model, graph, "changes", types[code])
        except ModelMismatch:  # a type that the model has no output for
            continue
        of_type = codes == code
        named = _with(ids[of_type[:live]], [name for each, name in gone if each == code])
        part = MovedRows(named, *(each[of_type] for each in rows[1:]))
        yield types[code], part._replace(before=cut(part.before, width), after=cut(part.after, width))


def _by_id(
    engine: LiveModel, rows: MovedRows, live: int, batch: list[VertexChange]
) -> tuple[MovedRows, int, list[_Key]]:
    """Rows of ids in place of rows of slots: the live ones, how many they are, then those of ids that are gone, and
    these ids.
    """
    was: dict[_Key, int | None] = {}  # slots before and after the batch, of the ids that it names
    now: dict[_Key, int | None] = {}
    for one in batch:
        key = (one.code, one.id)
        was.setdefault(key, None if one.adds else one.slot)
        now[key] = one.slot if one.adds else None
    named = {slot for key in was if was[key] != now[key] for slot in (was[key], now[key]) if slot is not None}
    rows, live = _with_unmoved(engine, rows, live, np.array(sorted(named), np.int64))
    place = {slot: at for at, slot in enumerate(rows.ids.tolist())}
    before, is_new = rows.before[:live].copy(), rows.is_new[:live].copy()
    for key, slot in now.items():
        if slot in place:  # else the id came back to its slot, to the same row
            at, old = place[slot], was[key]
            is_new[at] = old is None
            before[at] = 0 if old is None else rows.before[place[old]]
    left = sorted((key, old) for key, old in was.items() if old is not None and now[key] is None)
    places = [place[old] for _, old in left]
    found = MovedRows(
        np.concatenate([rows.ids[:live], rows.ids[places]]) if places else rows.ids[:live],
        np.concatenate([before, rows.before[places]]),
        np.concatenate([rows.after[:live], np.zeros((len(left), before.shape[1]), np.float32)]),
        np.concatenate([is_new, np.zeros(len(left), np.bool_)]),
        np.arange(live + len(left)) >= live,
    )
    return found, live, [key for key, _ in left]


def _with_unmoved(engine: LiveModel, rows: MovedRows, live: int, slots: Int64Array) -> tuple[MovedRows, int]:
    """With the rows of slots that went from one id to another and kept the same bits, which is no move of a row."""
    missing = np.setdiff1d(slots, rows.ids)
    if not len(missing):
        return rows, live
    kept, none = engine.rows_at(missing), np.zeros(len(missing), np.bool_)
    more = MovedRows(missing, kept, kept, none, none)
    parts = [(each[:live], extra, each[live:]) for each, extra in zip(rows, more, strict=True)]
    return MovedRows(*map(np.concatenate, parts)), live + len(missing)


def _with(ids: AnyArray, gone: list[Any]) -> AnyArray:
    """Ids, and after them those that are gone."""
    if not gone:
        return ids
    names = np.array(gone, object if isinstance(gone[0], str) else np.int64)
    return np.concatenate([ids, names]) if len(ids) else names
