"""WrittenVertices: what a PartsWriter keeps of the vertices that it has written: their ids, and their types.

Slots are those of Graph(dicts): vertices of one type lie one after another, types in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from livegnn.errors import ColumnMissing, DtypeInvalid, ValueInvalid, WidthMismatch
from livegnn.graph import checks
from livegnn.graph.ids import Counted, Named, NamedIds
from livegnn.graph.schema import NAMELESS, EdgeTriple, GraphSchema
from livegnn.types import AnyArray, Int64Array

_WHERE = "add_vertices"


@dataclass
class _TypeSoFar:
    """Vertices of one type. index: slots by id, where they have ids of their own."""

    width: int
    known: Counted | Named = field(default_factory=lambda: Counted(np.zeros(0, np.int64)))
    index: dict[Any, int] | None = None
    count: int = 0


class VertexChunk(NamedTuple):
    """A checked chunk. name: of its type.  names: its own ids, None without.  text: whether they are strings, None
    where that is open.
    """

    name: str
    code: int
    slots: Int64Array
    width: int
    names: list[Any] | None
    text: bool | None


class WrittenVertices:
    """All vertices so far. A chunk is checked, and is among them once take() has it."""

    def __init__(self) -> None:
        self.count = 0
        self._types: dict[str, _TypeSoFar] = {}
        self._text: bool | None = None

    @property
    def typed(self) -> bool:
        """Whether vertices have types."""
        return bool(self._types) and tuple(self._types) != NAMELESS

    @property
    def widths(self) -> dict[str, int]:
        """Of features, by type; of a graph without types by ""."""
        return {name: each.width for name, each in self._types.items()}

    def schema(self, edge_types: tuple[EdgeTriple, ...]) -> GraphSchema:
        """The types so far, with these edge types."""
        widths = self.widths or {NAMELESS[0]: 0}
        return GraphSchema(tuple(widths), edge_types, tuple(widths.values()))

    def checked(self, rows: AnyArray, ids: object, vertex_type: object) -> VertexChunk:
        """The next vertices. rows: their features. Raises: as PartsWriter.add_vertices; then nothing has changed."""
        name = self._name(vertex_type)
        now = self._types.get(name, _TypeSoFar(rows.shape[1]))
        of_type = f" of type {name!r}" if name else ""
        if now.width != rows.shape[1]:
            raise WidthMismatch(
                f"[{_WHERE}] expected features{of_type} of width {now.width}, as before, got {rows.shape[1]}; pad them"
            )
        if (now.count or now.index is not None) and len(rows) and (ids is None) != (now.index is None):
            raise ColumnMissing(
                f"[{_WHERE}] expected ids{of_type} for all chunks or for none, got both; give them for all, or leave "
                "them out"
            )
        names = None if ids is None else self._new_names(ids, len(rows), now)
        text = checks.is_text(ids) if names and self._text is None else self._text
        self._refuse_mixed(name, names, now, text)
        slots = np.arange(self.count, self.count + len(rows), dtype=np.int64)
        return VertexChunk(name, self._code(name), slots, rows.shape[1], names, text)

    def take(self, chunk: VertexChunk) -> None:
        """A chunk that was checked last."""
        now = self._types.setdefault(chunk.name, _TypeSoFar(chunk.width))
        if chunk.names is not None and now.index is None and not now.count:
            now.index = {}
            now.known = Named(now.index)
        if now.index is not None:
            now.index.update(zip(chunk.names or (), chunk.slots.tolist(), strict=True))
        elif isinstance(now.known, Counted):
            now.known.append(chunk.slots)
        now.count += len(chunk.slots)
        self.count += len(chunk.slots)
        self._text = chunk.text

    def slots(self, name: str, ids: object, vertex_type: str | None) -> Int64Array:
        """Of the ends of edges. name: of the argument. Raises: VertexUnknown, naming the row; DtypeInvalid."""
        return self._ids().slots("add_edges", ids, vertex_type, name=name)

    def graph_arguments(self, edge_types: tuple[EdgeTriple, ...], columns: dict[str, AnyArray]) -> dict[str, Any]:
        """What Graph(...) is given to have these vertices, without features and edges. columns: of no edges."""
        ids = {name: list(each.index) for name, each in self._types.items() if each.index is not None}
        rows = {name: np.zeros((each.count, 0), np.float32) for name, each in self._types.items()}
        if not self.typed:
            named = {"ids": ids[NAMELESS[0]]} if ids else {}
            return {"features": rows[NAMELESS[0]], "src": [], "dst": [], **columns, **named}
        ends: dict[str, Any] = {"src": [], "dst": [], **columns}
        by_type = {name: dict.fromkeys(edge_types, column) for name, column in ends.items()}
        return {"features": rows, "ids": ids, **by_type}

    def _ids(self) -> NamedIds:
        maps = [each.known for each in self._types.values()] or [Counted(np.zeros(0, np.int64))]
        return NamedIds(self.schema(()), bool(self._text), maps, np.zeros(0, np.int64), 0)

    def _code(self, name: str) -> int:
        """Of a type that is there, or comes next."""
        return list(self._types).index(name) if name in self._types else len(self._types)

    def _name(self, vertex_type: object) -> str:
        """The type of a chunk; NAMELESS without types."""
        if self._types and (vertex_type is not None) != self.typed:
            raise ColumnMissing(
                f"[{_WHERE}] expected vertex_type for all chunks or for none, got {vertex_type!r}; give it for all, or "
                "leave it out"
            )
        if vertex_type is None:
            return NAMELESS[0]
        if not isinstance(vertex_type, str) or not vertex_type:
            raise DtypeInvalid(
                f"[{_WHERE}] expected the name of a vertex type as a string, got {vertex_type!r}; name the type"
            )
        name = checks.text(_WHERE, "the name of a vertex type", vertex_type)
        if name in self._types and name != list(self._types)[-1]:
            raise ValueInvalid(
                f"[{_WHERE}] expected vertices of type {list(self._types)[-1]!r} or of a new one, got {name!r} again; "
                "add all of one type before the next"
            )
        return name

    def _new_names(self, ids: object, count: int, now: _TypeSoFar) -> list[Any]:
        """The ids of a chunk, none of which is there."""
        if count == 0 and np.size(ids) == 0:  # type: ignore[arg-type]  # an empty list has no kind of id
            return []
        text = checks.is_text(ids) if self._text is None else self._text
        names = NamedIds(GraphSchema.nameless(0), text, [], np.zeros(0, np.int64), 0).listed(_WHERE, "ids", ids)
        checks.same_length(_WHERE, "ids", names, count, "features")
        listed: list[Any] = names.tolist()
        seen: set[Any] = set()
        for row, name in enumerate(listed):
            if name in seen or name in (now.index or ()):
                raise ValueInvalid(f"[{_WHERE}] expected ids that differ, got {name!r} at row {row} again; drop one")
            seen.add(name)
        return listed

    def _refuse_mixed(self, name: str, names: list[Any] | None, now: _TypeSoFar, text: bool | None) -> None:
        """String ids of some types, and none of others."""
        counted = [other for other, each in self._types.items() if each.index is None and other != name]
        if names is None and now.index is None:
            counted.append(name)
        if text and counted:
            raise DtypeInvalid(
                f"[{_WHERE}] expected string ids for every vertex type, as some have, got none for {counted[0]!r}; "
                "give each type string ids, or int64 ids throughout"
            )
