"""What a version's terms were made of: rows as they are now, with what later versions replaced put back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from livegnn.errors import UsageError, VertexUnknown
from livegnn.graph.checks import Int32Array
from livegnn.types import AnyArray, Float32Array, Int64Array


class OldRows(NamedTuple):
    """Rows that a batch replaced, by slot, ascending."""

    slots: Int64Array
    rows: Float32Array

    @classmethod
    def of(cls, slots: Int64Array, rows: Float32Array) -> OldRows:
        """In any order."""
        order = np.argsort(slots)
        return cls(slots[order], rows[order])

    @classmethod
    def first_of(cls, parts: Sequence[OldRows]) -> OldRows:
        """Of each slot the row of the first part that has it."""
        slots, places = np.unique(np.concatenate([part.slots for part in parts]), return_index=True)
        return cls(slots, np.concatenate([part.rows for part in parts])[places])

    def put_back(self, slots: Int64Array, rows: Float32Array) -> None:
        """Writes them over the rows of these slots."""
        if not len(self.slots) or not len(slots):
            return
        places = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        found = self.slots[places] == slots
        rows[found] = self.rows[places[found], : rows.shape[1]]

    @property
    def bytes(self) -> int:
        """Of the arrays."""
        return self.slots.nbytes + self.rows.nbytes


class InEdges(NamedTuple):
    """Edges whose messages come to one vertex: slots of the senders, ids, weights, codes of types."""

    src: Int64Array
    ids: Int64Array
    weights: Float32Array
    types: Int32Array

    def chosen(self, places: AnyArray) -> InEdges:
        """Some of them."""
        return InEdges(self.src[places], self.ids[places], self.weights[places], self.types[places])

    def without(self, other: InEdges) -> InEdges:
        """Those that are not in `other`. An undirected edge is there both ways, under one id."""
        return self if not len(other.ids) else self.chosen(~self.among(other))

    def among(self, other: InEdges) -> AnyArray:
        """Which of them are in `other`."""
        known = set(zip(other.ids.tolist(), other.src.tolist(), strict=True))
        return np.array([key in known for key in zip(self.ids.tolist(), self.src.tolist(), strict=True)], np.bool_)

    def and_also(self, other: InEdges) -> InEdges:
        """Both, one after the other."""
        return InEdges(
            np.concatenate([self.src, other.src]),
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.types, other.types]),
        )


def edges_of(columns: Mapping[str, AnyArray], sender: str = "src") -> InEdges:
    """From the store's columns. sender: which end sends, "src" or "dst"."""
    count = len(columns["id"])
    weights = columns["weight"] if "weight" in columns else np.ones(count, np.float32)
    types = columns["type"] if "type" in columns else np.zeros(count, np.int32)
    return InEdges(columns[sender].astype(np.int64), columns["id"], weights, types)


class GoneVertex(NamedTuple):
    """A vertex that a batch removed: its id, and the code of its type."""

    id: Any
    code: int


@dataclass(frozen=True)
class VersionRecord:
    """What one version replaced: rows by table, contexts (s, L), features; its edges, sorted by target; `changed` slots
    of outputs; `gone`: vertices that it removed, by slot.
    """

    version: int
    tables: Mapping[int, OldRows]
    contexts: Mapping[int, OldRows]
    edges: Mapping[str, Mapping[str, AnyArray]]
    changed: Int64Array
    gone: Mapping[int, GoneVertex]
    bytes: int

    @classmethod
    def of(
        cls, version: int, replaced: Mapping[str, Any], changed: Int64Array, gone: Mapping[int, GoneVertex]
    ) -> VersionRecord:
        """From the native record of a batch."""
        tables = {number: OldRows.of(slots, rows) for number, slots, rows in replaced["tables"]}
        tables[-1] = OldRows.of(*replaced["features"][1:])
        contexts = {number: OldRows.of(slots, rows) for number, slots, rows in replaced["contexts"]}
        edges = {name: _by_target(replaced[name]) for name in ("added", "removed", "reweighted")}
        size = sum(each.bytes for each in (*tables.values(), *contexts.values())) + changed.nbytes + 64 * len(gone)
        size += sum(column.nbytes for columns in edges.values() for column in columns.values()) + 2048
        return cls(version, tables, contexts, edges, changed, gone, size)

    def edges_into(self, slot: int, kind: str, against: bool = False) -> dict[str, AnyArray]:
        """Those of its edges whose messages lead to a slot. against: they go from dst to src."""
        columns = self.edges[kind]
        if against:
            here = columns["src"] == slot
            return {name: column[here] for name, column in columns.items()}
        first, last = np.searchsorted(columns["dst"], (slot, slot + 1))
        return {name: column[first:last] for name, column in columns.items()}

    def changes(self, slot: int) -> bool:
        """Whether it changed the output of a slot."""
        place = int(np.searchsorted(self.changed, slot))
        return place < len(self.changed) and int(self.changed[place]) == slot


def _by_target(columns: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    order = np.argsort(columns["dst"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


class EdgeBudget:
    """How many edges one answer may still read; None: any number."""

    def __init__(self, most: int | None) -> None:
        self._most = self._left = most

    def take(self, count: int) -> None:
        """Raises: UsageError beyond the limit."""
        if self._left is None:
            return
        self._left -= count
        if self._left < 0:
            raise UsageError(
                f"[contributions] expected an answer that reads up to {self._most} edges (edges_max), got more; ask "
                "with hops=1 or a smaller limit, or raise edges_max"
            )


class Moment:
    """An engine's operands as of one version. The caller holds the graph's lock.

    later: records of all versions after it, oldest first; none for now.
    """

    def __init__(
        self, native: Any, store: Any, input_width: int, budget: EdgeBudget, later: Sequence[VersionRecord] = ()
    ) -> None:
        self.native, self._store, self._input_width, self._later = native, store, input_width, later
        self._budget = budget
        self._replaced: dict[tuple[str, int], OldRows] = {}
        self._gone = {slot: name for record in reversed(later) for slot, name in record.gone.items()}

    @property
    def is_now(self) -> bool:
        """Whether nothing is put back."""
        return not self._later

    def rows(self, table: int, slots: Int64Array, width: int) -> Float32Array:
        """Stored rows, or with -1 features, first `width` columns."""
        full = self._input_width if table < 0 else width
        rows: Float32Array = self.native.stored_rows(table, slots, full)[:, :width].copy()
        self._put_back("tables", table, slots, rows)
        return rows

    def factors(self, context: int, slots: Int64Array) -> Float32Array:
        """The factor s and the loop's weight L of each, (n, 2)."""
        pairs: Float32Array = self.native.factors(context, slots)
        self._put_back("contexts", context, slots, pairs)
        return pairs

    def _put_back(self, kind: str, number: int, slots: Int64Array, rows: Float32Array) -> None:
        """A slot has the row that the oldest of the later versions replaced."""
        if (kind, number) not in self._replaced:
            kept: Iterator[Mapping[int, OldRows]] = (getattr(record, kind) for record in self._later)
            parts = [each[number] for each in kept if number in each and len(each[number].slots)]
            if not parts:
                return
            self._replaced[kind, number] = OldRows.first_of(parts)
        self._replaced[kind, number].put_back(slots, rows)

    def edges_into(self, slot: int, against: bool = False) -> InEdges:
        """The edges whose messages lead to a slot. against: they go from dst to src."""
        sender = "dst" if against else "src"
        try:
            found = edges_of(self._store.out_neighbours(slot) if against else self._store.in_neighbours(slot), sender)
        except VertexUnknown:  # it was removed since
            found = _none()
        for record in reversed(self._later):
            reweighted = record.edges_into(slot, "reweighted", against)
            if len(reweighted["id"]):
                found = _with_weights(found, edges_of(reweighted, sender))
            found = found.without(edges_of(record.edges_into(slot, "added", against), sender))
            removed = edges_of(record.edges_into(slot, "removed", against), sender)
            found = found.and_also(removed) if len(removed.ids) else found
        self._budget.take(len(found.ids))
        order = np.lexsort((found.src, found.ids))
        return found.chosen(order)

    def edge_terms(self, number: int, slot: int, width: int) -> tuple[InEdges, Float32Array]:
        """The edges whose messages were computed for a slot, and these, as of now."""
        columns, messages = self.native.edge_terms(number, slot, width)
        found = edges_of(columns)
        self._budget.take(len(found.ids))
        return found, messages

    def was(self, slot: int) -> GoneVertex | None:
        """The vertex that had a slot, where it has been removed since; None where it has not."""
        return self._gone.get(slot)


def _none() -> InEdges:
    return InEdges(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int32))


def _with_weights(found: InEdges, before: InEdges) -> InEdges:
    old = dict(zip(zip(before.ids.tolist(), before.src.tolist(), strict=True), before.weights.tolist(), strict=True))
    keys = zip(found.ids.tolist(), found.src.tolist(), strict=True)
    weights = [old.get(key, weight) for key, weight in zip(keys, found.weights.tolist(), strict=True)]
    return found._replace(weights=np.array(weights, np.float32))
