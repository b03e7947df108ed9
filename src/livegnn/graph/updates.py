"""Updates: changes to a graph, in the order in which they shall be applied.

A value is checked where it is given (dtype, sign, NaN, infinity, int64 and float32 range, lengths), so that the line
that made the mistake raises, naming the update by its place. What depends on the graph (unknown vertex, missing edge,
width, columns) is checked by apply. A call either adds all of its updates or, when it raises, none.

Scalar methods are kept light: where the arguments are plain Python numbers, a few comparisons and one native call.
String ids are interned here; the native buffer holds their places in `_keys`, and the graph maps them when it applies
the batch. So are names of types: the buffer's type column holds a code, nothing (the smallest int32), or -1 - k for the
k-th name in `_types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.errors import DtypeInvalid, UsageError, ValueInvalid
from livegnn.graph import checks, tables
from livegnn.graph import float16 as halves
from livegnn.graph.checks import FLOAT32_MAX as _FLOAT_MAX
from livegnn.graph.checks import INT64_MAX as _ID_MAX
from livegnn.graph.checks import INT64_MIN as _TIME_UNSET
from livegnn.graph.checks import TYPE_MAX as _TYPE_MAX
from livegnn.graph.checks import TYPE_UNSET as _TYPE_UNSET
from livegnn.graph.checks import Int32Array
from livegnn.types import AnyArray, Float32Array, Int64Array

ExternalId = int | str
VertexKey = int | str | np.integer[Any]
Missing = Literal["error", "ignore"]
VertexType = str | int  # a name, or a place in graph.vertex_types
EdgeType = int | str | tuple[str, str, str]  # a place in graph.edge_types, a name, or all of (src, name, dst)

_ADD_VERTEX, _REMOVE_VERTEX = _native.UpdateKind.AddVertex.value, _native.UpdateKind.RemoveVertex.value


class Updates:
    """Changes to a graph, applied in order and all or none by graph.apply(updates) or engine.apply(updates).

    graph[k + 1] = u_n(... u_2(u_1(graph[k])))     for a batch of updates u_1 ... u_n

    Vertices are named by int64 ids or by strings, as the graph names them; one object holds one kind. Where the graph's
    vertices have types, every update of a vertex says vertex_type=, and every update of an edge says edge_type=, which
    also names the types of its ends. The object may be applied again, to the same graph or to another one, and is left
    as it is by that. It is not safe to fill from two threads at once.

    >>> import livegnn as lg
    >>> updates = lg.Updates()
    >>> updates.add_edge(0, 1)
    >>> updates.remove_edge(4, 2)
    >>> len(updates)
    2
    """

    __slots__ = ("_buffer", "_keys", "_places", "_types", "_vertex_ops", "time_unit")

    def __init__(self) -> None:
        self._buffer = _native.UpdateBuffer()
        self._keys: list[str] | None = None  # string ids in order of appearance; None while ids are integers
        self._places: dict[str, int] = {}
        self._types: dict[str | tuple[str, str, str], int] = {}  # names of types -> -1 - place, in order of appearance
        self._vertex_ops: list[tuple[int, int, bool]] = []  # runs of updates that add (True) or remove vertices
        self.time_unit: str | None = None  # of the datetime64 values that were given; numbers have none

    def __len__(self) -> int:
        return len(self._buffer)

    def __repr__(self) -> str:
        return f"Updates({len(self)})"

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for another process."""
        given = {name: getattr(self, name) for name in self.__slots__ if name != "_buffer"}
        return {**given, "_buffer": self._buffer.to_arrays()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What __getstate__() gave."""
        self._buffer = _native.UpdateBuffer()
        self._buffer.from_arrays(state["_buffer"])
        for name in self.__slots__:
            if name != "_buffer":
                setattr(self, name, state[name])

    def clear(self) -> None:
        """Forgets all updates; the object may then be filled again, with ids of either kind."""
        self._buffer.clear()
        self._keys = None
        self._places.clear()
        self._types.clear()
        self._vertex_ops.clear()
        self.time_unit = None

    def extend(self, other: Updates) -> None:
        """Appends the updates of another object, in order. Raises: DtypeInvalid if its ids are of the other kind."""
        if not isinstance(other, Updates):
            raise UsageError(
                f"[extend] expected Updates, got {type(other).__name__}; use from_arrow or from_pandas for tables"
            )
        unit = checks.same_unit(self._where("extend"), "times", self.time_unit, other.time_unit)
        has_names = self._keys is not None or other._keys is not None or bool(other._types)
        buffer = self._renamed(other) if has_names else other._buffer
        start = len(self._buffer)
        runs = [(start + first, start + last, adds) for first, last, adds in other._vertex_ops]
        self._buffer.extend(buffer)
        self._vertex_ops.extend(runs)
        self.time_unit = unit

    def _renamed(self, other: Updates) -> _native.UpdateBuffer:
        """Another object's updates, with the places that its string ids and types have here."""
        buffer = _native.UpdateBuffer()
        buffer.extend(other._buffer)
        u, v = buffer.ids()
        named = bool(u.size) and int(u.max()) >= 0
        if other._keys is not None and named:
            places = self._intern(self._where("extend"), "other", other._keys)
            buffer.set_ids(*(np.where(x >= 0, places[x], -1) for x in (u, v)))
        elif named and self._holds_text():
            self._refuse_kind(self._where("extend"), "other", "int64 ids")
        if other._types:
            types, codes = buffer.types(), [self._type_place(name) for name in other._types]
            named_types = (types < 0) & (types != _TYPE_UNSET)
            types[named_types] = np.array(codes, np.int32)[-1 - types[named_types]]
            buffer.set_types(types)
        return buffer

    # ---- edges, one at a time

    def add_edge(
        self,
        u: VertexKey,
        v: VertexKey,
        *,
        weight: float | None = None,
        time: int | None = None,
        edge_type: EdgeType | None = None,
        edge_attr: object = None,
    ) -> None:
        """Adds an edge u -> v; it gets the next edge id. Parallel edges are kept (refused by apply if simple=True).

        Args:    weight: finite float32.  time: int64, the user's unit.  edge_type: int32 from 0; where vertices have
                 types also a name, or (src type, name, dst type).  edge_attr: (A,) float32.
        Raises:  ValueInvalid, DtypeInvalid here; by apply VertexUnknown, EdgeDuplicate, WidthMismatch, and
                 ColumnMissing if the graph has no such column or has one that is not given.
        """
        if not (type(u) is int and type(v) is int and self._keys is None and 0 <= u <= _ID_MAX and 0 <= v <= _ID_MAX):
            u, v = self._pair("add_edge", u, v)
        unit = self.time_unit
        if weight is not None and (type(weight) is not float or not -_FLOAT_MAX <= weight <= _FLOAT_MAX):
            weight = checks.finite_float(self._where("add_edge"), "weight", weight)
        if time is not None and (type(time) is not int or not _TIME_UNSET < time <= _ID_MAX):
            time, unit = self._time("add_edge", time)
        if edge_type is not None and (type(edge_type) is not int or not 0 <= edge_type <= _TYPE_MAX):
            edge_type = self._edge_type("add_edge", edge_type)
        if edge_attr is None:
            self._buffer.add_edge(u, v, weight, time, edge_type)
        else:
            self._buffer.add_edge(u, v, weight, time, edge_type, self._row("add_edge", "edge_attr", edge_attr))
        self.time_unit = unit

    def remove_edge(
        self,
        u: VertexKey,
        v: VertexKey,
        *,
        time: int | None = None,
        edge_type: EdgeType | None = None,
        edge_id: int | None = None,
        missing: Missing = "error",
    ) -> None:
        """Removes the edge u -> v with the largest id among those that match time, edge_type and edge_id where given.

        Raises:  by apply EdgeMissing if nothing matches, unless missing="ignore"; VertexUnknown.
        """
        if not (type(u) is int and type(v) is int and self._keys is None and 0 <= u <= _ID_MAX and 0 <= v <= _ID_MAX):
            u, v = self._pair("remove_edge", u, v)
        ignore = missing != "error" and self._ignores("remove_edge", missing)
        if time is None and edge_type is None and edge_id is None:
            self._buffer.remove_edge(u, v, None, None, None, ignore)
            return
        unit = self.time_unit
        if time is not None:
            time, unit = self._time("remove_edge", time)
        if edge_type is not None:
            edge_type = self._edge_type("remove_edge", edge_type)
        self._buffer.remove_edge(u, v, time, edge_type, self._edge_id("remove_edge", edge_id), ignore)
        self.time_unit = unit

    def remove_edges_before(self, time: int, *, edge_type: EdgeType | None = None) -> None:
        """Removes every edge (of one type) with a time below `time`.

        Raises:  by apply ColumnMissing if the graph has no times, or no types.
        """
        before, unit = self._time("remove_edges_before", time)
        kind = None if edge_type is None else self._edge_type("remove_edges_before", edge_type)
        self._buffer.remove_edges_before(before, kind)
        self.time_unit = unit

    def set_weight(
        self, u: VertexKey, v: VertexKey, w: float, *, edge_type: EdgeType | None = None, edge_id: int | None = None
    ) -> None:
        """Sets the weight of edge u -> v: the one with the largest id among those that match edge_type and edge_id.

        Raises:  ValueInvalid, DtypeInvalid here; by apply EdgeMissing, VertexUnknown, ColumnMissing.
        """
        if not (type(u) is int and type(v) is int and self._keys is None and 0 <= u <= _ID_MAX and 0 <= v <= _ID_MAX):
            u, v = self._pair("set_weight", u, v)
        if type(w) is not float or not -_FLOAT_MAX <= w <= _FLOAT_MAX:
            w = checks.finite_float(self._where("set_weight"), "weight", w)
        if edge_type is None:
            self._buffer.set_weight(u, v, w, self._edge_id("set_weight", edge_id))
            return
        edge_type = self._edge_type("set_weight", edge_type)
        self._buffer.set_weight(u, v, w, self._edge_id("set_weight", edge_id), edge_type)

    def set_edge_attr(
        self, u: VertexKey, v: VertexKey, attr: object, *, edge_type: EdgeType | None = None, edge_id: int | None = None
    ) -> None:
        """Sets the attributes of edge u -> v, (A,) float32; the edge is chosen as in set_weight.

        Raises:  ValueInvalid, DtypeInvalid here; by apply EdgeMissing, VertexUnknown, ColumnMissing, WidthMismatch.
        """
        u, v = self._pair("set_edge_attr", u, v)
        row, chosen = self._row("set_edge_attr", "attr", attr), self._edge_id("set_edge_attr", edge_id)
        kind = None if edge_type is None else self._edge_type("set_edge_attr", edge_type)
        self._buffer.set_edge_attr(u, v, row, chosen, kind)

    # ---- edges, arrays at once

    def add_edges(
        self,
        src: object,
        dst: object,
        *,
        weight: object = None,
        time: object = None,
        edge_type: object = None,
        edge_attr: object = None,
    ) -> None:
        """Adds the edges src[i] -> dst[i], i = 0, 1, ...

        Args:    src, dst: (k,) integers or strings.  weight: (k,) float32.  time: (k,) int64.  edge_type: (k,) int32,
                 or one type for all.  edge_attr: (k, A) float32.
        Raises:  as add_edge, naming the row; WidthMismatch if lengths differ.
        """
        where = self._where("add_edges")
        sources, targets = self._pairs(where, src, dst)
        count = len(sources)
        weights = None if weight is None else checks.float_array(where, "weight", weight, 1)
        times = None if time is None else checks.time_array(where, "time", time)
        types = self._edge_types(where, edge_type, count)
        attrs = None if edge_attr is None else checks.float_array(where, "edge_attr", edge_attr, 2)
        columns: dict[str, AnyArray | None] = {"weight": weights, "time": times, "edge_attr": attrs}
        for name, column in columns.items():
            if column is not None:
                checks.same_length(where, name, column, count, "src")
        unit = checks.same_unit(where, "time", self.time_unit, checks.time_unit(time))
        self._buffer.add_edges(sources, targets, weights, times, types, attrs)
        self.time_unit = unit

    def remove_edges(self, src: object, dst: object, *, edge_type: object = None, missing: Missing = "error") -> None:
        """For each i removes the edge src[i] -> dst[i] with the largest id at that point.

        Args:    edge_type: (k,) int32, or one type for all; only edges of that type are looked at.
        Raises:  as remove_edge.
        """
        where = self._where("remove_edges")
        ignore = missing != "error" and self._ignores(where, missing)
        sources, targets = self._pairs(where, src, dst)
        types = self._edge_types(where, edge_type, len(sources))
        self._buffer.remove_edges(sources, targets, ignore, types)

    def set_weights(self, src: object, dst: object, w: object, *, edge_type: object = None) -> None:
        """Sets the weight of edge src[i] -> dst[i] to w[i], (k,) float32, for each i; edge_type as in remove_edges.

        Raises:  as set_weight.
        """
        where = self._where("set_weights")
        sources, targets = self._pairs(where, src, dst)
        weights = checks.float_array(where, "weight", w, 1)
        checks.same_length(where, "weight", weights, len(sources), "src")
        self._buffer.set_weights(sources, targets, weights, self._edge_types(where, edge_type, len(sources)))

    # ---- vertices

    def set_features(self, u: object, x: object, *, vertex_type: VertexType | None = None) -> None:
        """Sets the features of one vertex, x (F,), or of many of one type, u (k,) ids and x (k, F); float32.

        Raises:  ValueInvalid, DtypeInvalid, WidthMismatch here; by apply VertexUnknown, and WidthMismatch if F is not
                 the graph's.
        """
        kind = None if vertex_type is None else self._vertex_type("set_features", vertex_type)
        if type(u) is int or isinstance(u, str) or np.ndim(u) == 0:  # type: ignore[arg-type]
            u = self._one("set_features", u)
            self._buffer.set_features(u, self._feature_row("set_features", x), kind)
            return
        where = self._where("set_features")
        ids, rows = self._ids_and_rows(where, u, x)
        self._buffer.set_features_rows(ids, rows, kind)

    def add_vertex(self, u: VertexKey, x: object, *, vertex_type: VertexType | None = None) -> None:
        """Adds a vertex with features x, (F,) float32, and no edges.

        u is a new id: in a graph without ids= the next integer (of its type) or that of a removed vertex; with ids= any
        id that is not taken.

        Raises:  ValueInvalid, DtypeInvalid here; by apply VertexExists, VertexIdGap, WidthMismatch.
        """
        kind = None if vertex_type is None else self._vertex_type("add_vertex", vertex_type)
        u = self._one("add_vertex", u)
        self._buffer.add_vertex(u, self._feature_row("add_vertex", x), kind)
        self._vertex_ops.append((len(self._buffer) - 1, len(self._buffer), True))

    def add_vertices(self, ids: object, x: object, *, vertex_type: VertexType | None = None) -> None:
        """Adds the vertices ids, (k,), of one type, with features x, (k, F) float32.

        Raises:  as add_vertex, naming the row.
        """
        where = self._where("add_vertices")
        kind = None if vertex_type is None else self._vertex_type("add_vertices", vertex_type)
        new, rows = self._ids_and_rows(where, ids, x)
        start = len(self._buffer)
        self._buffer.add_vertices(new, rows, kind)
        self._vertex_ops.append((start, len(self._buffer), True))

    def remove_vertex(self, u: VertexKey, *, vertex_type: VertexType | None = None) -> None:
        """Removes a vertex and all its edges. Its id may be added again. Raises: by apply VertexUnknown."""
        kind = None if vertex_type is None else self._vertex_type("remove_vertex", vertex_type)
        self._buffer.remove_vertex(self._one("remove_vertex", u), kind)
        self._vertex_ops.append((len(self._buffer) - 1, len(self._buffer), False))

    def remove_vertices(self, ids: object, *, vertex_type: VertexType | None = None) -> None:
        """Removes the vertices ids, (k,), of one type, and all their edges. Raises: by apply VertexUnknown."""
        where = self._where("remove_vertices")
        kind = None if vertex_type is None else self._vertex_type("remove_vertices", vertex_type)
        gone = self._ids(where, "ids", ids)
        start = len(self._buffer)
        self._buffer.remove_vertices(gone, kind)
        self._vertex_ops.append((start, len(self._buffer), False))

    # ---- tables

    @classmethod
    def from_arrow(cls, table: object, **columns: str | None) -> Self:
        """Updates from an Arrow table or stream, one for each row, in order; see docs/updates.md.

        Args:    table: any object with __arrow_c_stream__ or __arrow_c_array__ (pyarrow reads it: livegnn[arrow]).
                 columns: names of the table's columns, as src="from", weight="amount"; src and dst are needed, op,
                 weight, time, edge_type ("type" unless given) and edge_attr are read where there, None leaves one out.
                 Others are ignored. op: "add" (the default), "remove" or "set_weight".
        Raises:  ColumnMissing, ValueInvalid (nulls, NaN, overflow, an unknown op), DtypeInvalid, WidthMismatch, naming
                 the row; DataMissing without pyarrow.
        """
        updates = cls()
        updates._append_rows(tables.arrow_rows(table, columns))
        return updates

    @classmethod
    def from_pandas(cls, frame: Any, **columns: str | None) -> Self:
        """Updates from a pandas.DataFrame, one for each row, in order. Arguments and errors are those of from_arrow."""
        updates = cls()
        updates._append_rows(tables.pandas_rows(frame, columns))
        return updates

    @classmethod
    def from_temporal_data(
        cls, data: Any, *, time: bool = True, edge_attr: bool = True, edge_type: EdgeType | None = None
    ) -> Self:
        """The events of a torch_geometric.data.TemporalData as added edges: src -> dst at time t with attributes msg.

        Args:    time, edge_attr: False leaves that column out, for a graph that has none.  edge_type: of all events;
                 where vertices have types, src and dst are then ids of the types that it joins.
        Raises:  ColumnMissing if data has no src or dst; ValueInvalid, DtypeInvalid, WidthMismatch, naming the row.
        """
        updates = cls()
        src, dst, times, attrs = tables.temporal_columns(data, time=time, edge_attr=edge_attr)
        updates.add_edges(src, dst, time=times, edge_type=edge_type, edge_attr=attrs)
        return updates

    def _append_rows(self, rows: tables.TableRows) -> None:
        """Appends the rows of a table, runs of one op at once. Into an empty object: nothing was given before."""
        self.time_unit = rows.time_unit
        bounds = [*np.flatnonzero(np.diff(rows.op, prepend=-1)).tolist(), len(rows.op)]
        for start, stop in pairwise(bounds):
            self._append_run(rows, int(rows.op[start]), slice(start, stop))

    def _append_run(self, rows: tables.TableRows, op: int, run: slice) -> None:
        src, dst = rows.src[run], rows.dst[run]
        if op == tables.ADD:
            weight, time, kind, attr = (
                None if c is None else c[run] for c in (rows.weight, rows.time, rows.edge_type, rows.edge_attr)
            )
            self.add_edges(src, dst, weight=weight, time=time, edge_type=kind, edge_attr=attr)
        elif op == tables.SET_WEIGHT:
            assert rows.weight is not None  # a table without weights has no such row
            self.set_weights(src, dst, rows.weight[run])
        else:
            types = None if rows.edge_type is None else rows.edge_type[run]
            self._buffer.remove_edges(*self._pairs(self._where("remove_edges"), src, dst), False, types)

    # ---- for logs and parts of a graph

    def in_slots(self, u: Int64Array, v: Int64Array, types: Int32Array | None) -> _native.UpdateBuffer:
        """The updates with other ids, and types if given, as a buffer of its own."""
        buffer = _native.UpdateBuffer()
        buffer.extend(self._buffer)
        buffer.set_ids(u, v)
        if types is not None:
            buffer.set_types(types)
        return buffer

    @property
    def buffer(self) -> _native.UpdateBuffer:
        """The updates with ids as they were given, or places of string ids."""
        return self._buffer

    def rewritten(self, buffer: _native.UpdateBuffer) -> Updates:
        """A copy that holds the updates of another buffer, in the same ids and names."""
        made = Updates()
        made._buffer, made.time_unit = buffer, self.time_unit
        made._keys, made._places, made._types = self._keys, self._places, self._types
        made._vertex_ops = _vertex_runs(buffer.kinds())
        return made

    @property
    def slot_buffer(self) -> _native.UpdateBuffer | None:
        """The updates as a store takes them, ids being slots; None with string ids or names of types."""
        return None if self._keys is not None or self._types else self._buffer

    def to_columns(self) -> tuple[dict[str, AnyArray], list[str] | None, list[str | tuple[str, str, str]]]:
        """What the object holds, one value an update (see UpdateBuffer in _core.pyi), its string ids, and the names of
        types: a type -1 - k is the k-th of them.
        """
        return self._buffer.to_arrays(), None if self._keys is None else list(self._keys), list(self._types)

    @classmethod
    def from_columns(
        cls, columns: dict[str, AnyArray], keys: list[str] | None, types: list[str | tuple[str, str, str]]
    ) -> Self:
        """The object that to_columns() described. Raises: KeyError, TypeError, UpdateError where it did not."""
        updates = cls()
        updates._buffer.from_arrays(columns)
        if keys is not None:
            updates._keys = keys
            updates._places = {key: place for place, key in enumerate(keys)}
        updates._types = {name: -1 - place for place, name in enumerate(types)}
        named = columns["type"][columns["type"] != _TYPE_UNSET]
        if len(updates._types) != len(types) or (named.size and int(named.min()) < -len(types)):
            raise ValueInvalid(f"[updates] expected types among {len(types)} names, got others; save them again")
        updates._vertex_ops = _vertex_runs(columns["kind"])
        return updates

    # ---- inside

    def _where(self, method: str) -> str:
        return f"{method}, update {len(self._buffer)}"

    def _time(self, method: str, time: object) -> tuple[int, str | None]:
        """The number, and the unit that times have once this update is in."""
        where = self._where(method)
        number = checks.edge_time(where, "time", time)
        return number, checks.same_unit(where, "time", self.time_unit, checks.time_unit(time))

    def _pair(self, method: str, u: object, v: object) -> tuple[int, int]:
        if isinstance(u, str) != isinstance(v, str):  # or the place of a string would stand next to an id
            where = self._where(method)
            checks.vertex_id(where, *(("v", v) if isinstance(u, str) else ("u", u)))
            raise DtypeInvalid(f"[{where}] expected u and v of one kind, got {u!r} and {v!r}; use one kind of id")
        return self._one(method, u, "u"), self._one(method, v, "v")

    def _one(self, method: str, u: object, name: str = "u") -> int:
        """An id for the buffer: the integer itself, or the place of a string."""
        if type(u) is int and self._keys is None and 0 <= u <= _ID_MAX:
            return u
        where = self._where(method)
        if isinstance(u, str):
            return int(self._intern(where, name, [checks.text(where, name, u)])[0])
        number = checks.vertex_id(where, name, u)
        if self._holds_text():
            self._refuse_kind(where, name, repr(number))
        return number

    def _ids(self, where: str, name: str, ids: object) -> Int64Array:
        if checks.is_text(ids):
            return self._intern(where, name, checks.text_list(where, name, ids))
        numbers = checks.id_array(where, name, ids)
        if numbers.size and self._holds_text():
            self._refuse_kind(where, name, "int64 ids")
        return numbers

    def _pairs(self, where: str, src: object, dst: object) -> tuple[Int64Array, Int64Array]:
        if checks.is_text(src) != checks.is_text(dst) and np.size(src) and np.size(dst):  # type: ignore[arg-type]
            raise DtypeInvalid(
                f"[{where}] expected src and dst of one kind, got strings and numbers; use one kind of id"
            )
        sources, targets = self._ids(where, "src", src), self._ids(where, "dst", dst)
        checks.same_length(where, "dst", targets, len(sources), "src")
        return sources, targets

    def _ids_and_rows(self, where: str, ids: object, x: object) -> tuple[Int64Array, Float32Array]:
        numbers, rows = self._ids(where, "ids", ids), checks.float_array(where, "x", halves.widened(where, "x", x), 2)
        checks.same_length(where, "x", rows, len(numbers), "ids")
        return numbers, rows

    def _row(self, method: str, name: str, x: object) -> Float32Array:
        if type(x) is np.ndarray and x.dtype == np.float32 and x.ndim == 1 and x.flags.c_contiguous:
            return x
        return checks.feature_row(self._where(method), name, x)

    def _feature_row(self, method: str, x: object) -> Float32Array:
        """The same for features, which may be in 16 bits."""
        if type(x) is np.ndarray and x.dtype == np.float32 and x.ndim == 1 and x.flags.c_contiguous:
            return x
        return self._row(method, "x", halves.widened(self._where(method), "x", x))

    def _edge_type(self, method: str, value: object) -> int:
        """A type of edge for the buffer: the code itself, or the place of a name."""
        if isinstance(value, (str, tuple)):
            return self._type_name(self._where(method), value)
        return checks.edge_type(self._where(method), "edge_type", value)

    def _edge_types(self, where: str, values: object, count: int) -> Int32Array | None:
        """One type for each of `count` edges: given so, or one for all."""
        if values is None:
            return None
        if isinstance(values, str) or (isinstance(values, tuple) and any(isinstance(part, str) for part in values)):
            return np.full(count, self._type_name(where, values), np.int32)
        if isinstance(values, (int, np.integer)):
            return np.full(count, checks.edge_type(where, "edge_type", values), np.int32)
        types = checks.type_array(where, "edge_type", values)
        checks.same_length(where, "edge_type", types, count, "src")
        return types

    def _vertex_type(self, method: str, value: object) -> int:
        """A type of vertex for the buffer: the code itself, or the place of a name."""
        if isinstance(value, str):
            return self._type_place(checks.text(self._where(method), "vertex_type", value))
        return checks.edge_type(self._where(method), "vertex_type", value)

    def _type_name(self, where: str, value: str | tuple[object, ...]) -> int:
        if isinstance(value, str):
            return self._type_place(checks.text(where, "edge_type", value))
        parts = [checks.text(where, "edge_type", part) for part in value if isinstance(part, str)]
        if not len(value) == len(parts) == 3:
            got = checks.shown(value)
            raise ValueInvalid(
                f"[{where}] expected edge_type as a name or (src type, name, dst type), got {got}; use one of them"
            )
        return self._type_place((parts[0], parts[1], parts[2]))

    def _type_place(self, name: str | tuple[str, str, str]) -> int:
        """-1 - k for the k-th name, a new one appended."""
        return self._types.setdefault(name, -1 - len(self._types))

    def _edge_id(self, method: str, edge_id: int | None) -> int | None:
        if edge_id is None:
            return None
        number = checks.whole_number(self._where(method), "edge_id", edge_id)
        if not 0 <= number <= _ID_MAX:
            raise ValueInvalid(
                f"[{self._where(method)}] expected an edge id from 0 to {_ID_MAX}, got {number}; fix the id"
            )
        return number

    def _ignores(self, where: str, missing: object) -> bool:
        if missing not in ("error", "ignore"):
            raise ValueInvalid(
                f'[{where}] expected missing="error" or missing="ignore", got {missing!r}; use one of them'
            )
        return missing == "ignore"

    def _intern(self, where: str, name: str, keys: list[str]) -> Int64Array:
        """Places of string ids, new ones appended."""
        if self._keys is None:
            if self._holds_ids():
                self._refuse_kind(where, name, repr(keys[0]) if keys else "strings")
            self._keys = []
        places, known = self._places, self._keys
        for key in keys:
            if key not in places:
                places[key] = len(known)
                known.append(key)
        return np.fromiter((places[key] for key in keys), np.int64, len(keys))

    def _holds_text(self) -> bool:
        """Whether ids are strings so far; strings of refused calls alone do not count."""
        if self._keys is not None and not self._holds_ids():
            self._keys = None
            self._places.clear()
        return self._keys is not None

    def _holds_ids(self) -> bool:
        u, _ = self._buffer.ids()
        return bool(u.size) and int(u.max()) >= 0

    def _refuse_kind(self, where: str, name: str, got: str) -> None:
        kind = "int64" if self._keys is None else "string"
        raise DtypeInvalid(
            f"[{where}] expected {kind} ids as in the updates before, got {got} as {name}; use one kind of id"
        )


def _vertex_runs(kinds: npt.NDArray[np.uint8]) -> list[tuple[int, int, bool]]:
    """Runs of updates that add (True) or remove vertices."""
    turns = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)] if len(kinds) else [0]
    of_vertices = (_ADD_VERTEX, _REMOVE_VERTEX)
    return [
        (first, last, bool(kinds[first] == _ADD_VERTEX))
        for first, last in pairwise(turns)
        if kinds[first] in of_vertices
    ]


@dataclass(frozen=True)
class Batch:
    """What updates say of vertices. u, v: (k,) ids, -1 where none, or places in keys. kinds: (k,). types: (k,) codes,
    none, or -1 - place in type_names. ops: runs of updates that add or remove vertices.
    """

    u: Int64Array
    v: Int64Array
    kinds: npt.NDArray[np.uint8]
    types: Int32Array
    type_names: Sequence[str | tuple[str, str, str]]
    keys: Sequence[str] | None
    ops: Sequence[tuple[int, int, bool]]  # (first update, one past the last, whether they add)

    @classmethod
    def of(cls, updates: Updates) -> Batch:
        """The parts of an Updates."""
        given, names = updates._buffer, list(updates._types)
        return cls(*given.ids(), given.kinds(), given.types(), names, updates._keys, updates._vertex_ops)
