"""Binary bodies of /v1/updates: runs of one operation as whole arrays, little-endian. For servers and clients.

    updates = "LGU1" run_count:u32 { run } ;
    run     = op:u8 flags:u8 type_bytes:u16 length:u32 width:u32 zero:u32
              { type:utf8 } pad { u:i64 } { v:i64 } { time:i64 } { edge id:i64 } { weight:f32 } { type code:i32 }
              { row:f32 * width } pad ;

op           its method of Updates     has                     may have
0            add_edges                 u, v                    weights, times, type, rows
1            remove_edges              u, v                    times, edge ids, type, missing
2            remove_edges_before       times                   type
3            set_weights               u, v, weights           edge ids, type
4            set_edge_attr             u, v, rows              edge ids, type
5, 6         set_features, add_vertex  u, rows                 type
7            remove_vertex             u                       type

Flags: 1 weights, 2 times, 4 edge ids, 8 type codes, 16 a type by its name, 32 rows, 64 missing="ignore". Each array has
`length` entries, at least one. A name is that of a vertex or edge type; of an edge type also all three of its names,
with a zero byte between them. pad fills up to a multiple of 8. Ids are int64: graphs with string ids take other forms.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import Updates
from livegnn.graph.checks import INT64_MIN, TYPE_UNSET
from livegnn.types import AnyArray, Float32Array, Int64Array

_HEAD, _RUN = struct.Struct("<4sI"), struct.Struct("<BBHIII")
_WEIGHTS, _TIMES, _EDGE_IDS, _CODES, _NAME, _ROWS, _MISSING = (1 << bit for bit in range(7))
_INT64, _INT32, _FLOAT32 = np.dtype("<i8"), np.dtype("<i4"), np.dtype("<f4")
_ADD_EDGE, _REMOVE_EDGE, _REMOVE_BEFORE, _SET_WEIGHT, _SET_ATTR, _SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX = range(8)
_TYPE = _CODES | _NAME
_FLAGS = {  # op: (needed, allowed)
    _ADD_EDGE: (0, _WEIGHTS | _TIMES | _TYPE | _ROWS),
    _REMOVE_EDGE: (0, _TIMES | _EDGE_IDS | _TYPE | _MISSING),
    _REMOVE_BEFORE: (_TIMES, _TIMES | _TYPE),
    _SET_WEIGHT: (_WEIGHTS, _WEIGHTS | _EDGE_IDS | _TYPE),
    _SET_ATTR: (_ROWS, _ROWS | _EDGE_IDS | _TYPE),
    _SET_FEATURES: (_ROWS, _ROWS | _TYPE),
    _ADD_VERTEX: (_ROWS, _ROWS | _TYPE),
    _REMOVE_VERTEX: (0, _TYPE),
}
_OF_EDGES = (_ADD_EDGE, _REMOVE_EDGE, _SET_WEIGHT, _SET_ATTR)


class _Run(NamedTuple):
    """One operation, `length` times. name: of the type of all; codes: of each; None where not given, as each array."""

    op: int
    length: int
    name: str | tuple[str, ...] | None
    u: Int64Array | None
    v: Int64Array | None
    times: Int64Array | None
    edge_ids: Int64Array | None
    weights: Float32Array | None
    codes: AnyArray | None
    rows: Float32Array | None
    missing: bool


# ---- reading


def decode_updates(body: bytes, count_max: int) -> Updates:
    """Reads a batch. Raises: ValueInvalid; as the methods of Updates for a bad value."""
    if len(body) < _HEAD.size:
        raise _damaged(f"updates of at least {_HEAD.size} bytes", f"{len(body)}")
    magic, run_count = _HEAD.unpack_from(body)
    if magic != b"LGU1" or not 1 <= run_count <= count_max:
        raise _damaged(f"updates that begin with LGU1 and 1 to {count_max} runs", f"{body[:8]!r}")
    updates, at = Updates(), _HEAD.size
    for number in range(run_count):
        run, at = _read(body, at, number, count_max - len(updates))
        _add(updates, run)
    if at != len(body):
        raise _damaged(f"{at} bytes for {run_count} runs", f"{len(body)}")
    return updates


def _read(body: bytes, at: int, number: int, most: int) -> tuple[_Run, int]:
    """The run that begins there, and where it ends."""
    if at + _RUN.size > len(body):
        raise _damaged(f"a head of run {number} of {_RUN.size} bytes", f"{len(body) - at}")
    op, flags, name_bytes, count, width, zero = _RUN.unpack_from(body, at)
    needed, allowed = _FLAGS.get(op, (0, 0))
    if op not in _FLAGS or flags & needed != needed or flags & ~allowed or zero or flags & _TYPE == _TYPE:
        raise _damaged(f"an op from 0 to 7 in run {number}, with the flags that it has", f"op {op}, flags {flags}")
    if not 1 <= count <= most or bool(name_bytes) != bool(flags & _NAME) or (width and not flags & _ROWS):
        raise _damaged(f"1 to {most} updates in run {number}, a width with rows, a name with its flag", f"{count}")
    at += _RUN.size
    end = at + name_bytes
    name = _name(body[at:end], number) if name_bytes else None
    at = end + -end % 8

    def taken(there: int | bool, dtype: np.dtype[Any], columns: int | None = None) -> Any:
        nonlocal at
        if not there:
            return None
        size = count * (1 if columns is None else columns)
        if at + size * dtype.itemsize > len(body):
            raise _damaged(f"all arrays of run {number}", f"{len(body)} bytes")
        values = np.frombuffer(body, dtype, size, at)
        at += size * dtype.itemsize
        return values if columns is None else values.reshape(count, columns)

    u, v = taken(op != _REMOVE_BEFORE, _INT64), taken(op in _OF_EDGES, _INT64)
    times, edge_ids = taken(flags & _TIMES, _INT64), taken(flags & _EDGE_IDS, _INT64)
    weights, codes = taken(flags & _WEIGHTS, _FLOAT32), taken(flags & _CODES, _INT32)
    rows = taken(flags & _ROWS, _FLOAT32, width)
    run = _Run(op, count, name, u, v, times, edge_ids, weights, codes, rows, bool(flags & _MISSING))
    return run, at + -at % 8


def _name(part: bytes, number: int) -> str | tuple[str, ...]:
    try:
        names = part.decode().split("\0")
    except UnicodeDecodeError as cause:
        raise _damaged(f"a type of run {number} in UTF-8", f"{part[:40]!r}") from cause
    return names[0] if len(names) == 1 else tuple(names)


def _add(updates: Updates, run: _Run) -> None:
    """Adds a run by the methods of Updates, which check its values."""
    if run.op >= _SET_FEATURES:
        _add_vertex_run(updates, run)
        return
    kind: Any = run.name if run.codes is None else run.codes
    if run.op == _ADD_EDGE:
        updates.add_edges(run.u, run.v, weight=run.weights, time=run.times, edge_type=kind, edge_attr=run.rows)
    elif run.op == _REMOVE_EDGE and run.times is None and run.edge_ids is None:
        updates.remove_edges(run.u, run.v, edge_type=kind, missing="ignore" if run.missing else "error")
    elif run.op == _SET_WEIGHT and run.edge_ids is None:
        updates.set_weights(run.u, run.v, run.weights, edge_type=kind)
    else:
        _add_one_by_one(updates, run)


def _add_one_by_one(updates: Updates, run: _Run) -> None:
    """Operations that have no method for arrays."""
    for u, v, time, edge_id, weight, kind, row in _each(run):
        which = {"edge_type": kind, "edge_id": edge_id}
        if run.op == _REMOVE_BEFORE:
            updates.remove_edges_before(time, edge_type=kind)
        elif run.op == _REMOVE_EDGE:
            updates.remove_edge(u, v, time=time, missing="ignore" if run.missing else "error", **which)
        elif run.op == _SET_WEIGHT:
            updates.set_weight(u, v, weight, **which)
        else:
            updates.set_edge_attr(u, v, row, **which)


def _each(run: _Run) -> Iterator[tuple[Any, ...]]:
    columns = [run.u, run.v, run.times, run.edge_ids, run.weights, run.codes, run.rows]
    listed: list[Any] = [[None] * run.length if one is None else one for one in columns]
    listed[:6] = [one.tolist() if isinstance(one, np.ndarray) else one for one in listed[:6]]
    if run.name is not None:
        listed[5] = [run.name] * run.length
    return zip(*listed, strict=True)


def _add_vertex_run(updates: Updates, run: _Run) -> None:
    """Vertices of one type at a time, as the methods take them."""
    assert run.u is not None  # all but one operation have it
    bounds = [0, run.length] if run.codes is None else _bounds([run.codes])
    for first, last in pairwise(bounds):
        kind: Any = run.name if run.codes is None else int(run.codes[first])
        ids = run.u[first:last]
        if run.op == _REMOVE_VERTEX:
            updates.remove_vertices(ids, vertex_type=kind)
            continue
        assert run.rows is not None
        add = updates.set_features if run.op == _SET_FEATURES else updates.add_vertices
        add(ids, run.rows[first:last], vertex_type=kind)


# ---- writing


def encode_updates(updates: Updates) -> bytes:
    """The body of a batch. Raises: UsageError with string ids."""
    columns, keys, types = updates.to_columns()
    if keys is not None:
        raise UsageError("[updates] expected integer ids in a binary body, got string ids; send Arrow or JSON")
    given = {
        _WEIGHTS: columns["has_weight"] != 0,
        _TIMES: columns["time"] != INT64_MIN,
        _EDGE_IDS: columns["edge_id"] >= 0,
        _CODES: columns["type"] >= 0,
        _NAME: (columns["type"] < 0) & (columns["type"] != TYPE_UNSET),
        _ROWS: columns["row_width"] >= 0,
        _MISSING: columns["missing_ignore"] != 0,
    }
    flags = sum((flag * there.astype(np.int64) for flag, there in given.items()), np.zeros(len(updates), np.int64))
    named = np.where(given[_NAME], columns["type"], 0)
    bounds = _bounds([columns["kind"], flags, columns["row_width"], named])
    starts = np.concatenate([[0], np.cumsum(np.maximum(columns["row_width"], 0), dtype=np.int64)])
    parts = [_HEAD.pack(b"LGU1", len(bounds) - 1)]
    for first, last in pairwise(bounds):
        name = types[-1 - int(named[first])] if named[first] else None
        rows = columns["rows"][starts[first] : starts[last]]
        parts += _written(columns, slice(first, last), int(flags[first]), name, rows)
    return b"".join(parts)


def _written(
    columns: dict[str, AnyArray], run: slice, flags: int, name: str | tuple[str, str, str] | None, rows: AnyArray
) -> Iterator[bytes]:
    op, count, width = int(columns["kind"][run.start]), run.stop - run.start, int(columns["row_width"][run.start])
    text = b"" if name is None else (name if isinstance(name, str) else "\0".join(name)).encode()
    yield _RUN.pack(op, flags, len(text), count, max(0, width), 0) + text + bytes(-len(text) % 8)
    arrays = (
        (op != _REMOVE_BEFORE, "u", _INT64),
        (op in _OF_EDGES, "v", _INT64),
        (flags & _TIMES, "time", _INT64),
        (flags & _EDGE_IDS, "edge_id", _INT64),
        (flags & _WEIGHTS, "weight", _FLOAT32),
        (flags & _CODES, "type", _INT32),
    )
    size = 0
    for there, column, dtype in arrays:
        if there:
            yield (part := columns[column][run].astype(dtype).tobytes())
            size += len(part)
    yield (part := rows.astype(_FLOAT32).tobytes())
    yield bytes(-(size + len(part)) % 8)


def _bounds(columns: list[AnyArray]) -> list[int]:
    """Where runs of equal rows begin, and the end."""
    count = len(columns[0])
    turns = np.zeros(max(0, count - 1), np.bool_)
    for column in columns:
        turns |= column[1:] != column[:-1]
    return [0, *(np.flatnonzero(turns) + 1).tolist(), count]


def _damaged(expected: str, got: str) -> ValueInvalid:
    return ValueInvalid(f"[frame] expected {expected}, got {got}; see livegnn.serve.update_frames for the form")
