"""Reads tables by the Arrow PyCapsule interface, with ctypes alone.

An object that offers `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, pandas, DuckDB, ...) hands over C
structures whose layout the Arrow C data interface fixes. The reader copies the columns it wants into numpy arrays and
releases the rest.

    capsule "arrow_array_stream" -> schema, batch, batch, ..., a batch with release == NULL ends it
    a batch is a struct array; its offset counts for its children too

Types: (u)int8 to (u)int64, float32, float64, timestamp and date (as datetime64 of their unit), time and duration (as
integers of theirs), utf8, large_utf8, utf8_view, any of these dictionary-encoded, fixed_size_list, list and large_list
of float32 or float64, null.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from livegnn.errors import DtypeInvalid, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph.checks import AnyArray, BoolArray, shown


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_SCHEMA = ctypes.POINTER(_Schema)
_ARRAY = ctypes.POINTER(_Array)
_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(_SCHEMA)),
    ("dictionary", _SCHEMA),
    ("release", ctypes.CFUNCTYPE(None, _SCHEMA)),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(_ARRAY)),
    ("dictionary", _ARRAY),
    ("release", ctypes.CFUNCTYPE(None, _ARRAY)),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _SCHEMA)),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _ARRAY)),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ("private_data", ctypes.c_void_p),
]

_NUMBERS: dict[str, type[np.generic]] = {
    "c": np.int8,
    "C": np.uint8,
    "s": np.int16,
    "S": np.uint16,
    "i": np.int32,
    "I": np.uint32,
    "l": np.int64,
    "L": np.uint64,
    "f": np.float32,
    "g": np.float64,
    "tts": np.int32,
    "ttm": np.int32,
    "ttu": np.int64,
    "ttn": np.int64,
}


_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}  # of timestamps


@dataclass(frozen=True)
class Column:
    """One column: numbers (k,), strings (k,) of dtype object, or rows (k, width). valid None: nothing is null."""

    values: AnyArray
    valid: BoolArray | None = None


def _capsule_pointer(capsule: object, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(capsule, name))


def _buffer(array: Any, index: int, dtype: Any, first: int, count: int) -> AnyArray:
    """A copy of `count` items from item `first` of a buffer."""
    dtype = np.dtype(dtype)
    address = array.buffers[index]
    if count == 0 or not address:
        return np.zeros(count, dtype)
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address + first * dtype.itemsize)
    return np.frombuffer(raw, dtype).copy()


def _valid(array: Any, first: int, count: int) -> BoolArray | None:
    if array.null_count == 0 or array.n_buffers == 0 or not array.buffers[0] or count == 0:
        return None
    bits = _buffer(array, 0, np.uint8, first // 8, (first % 8 + count + 7) // 8)
    valid = np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + count].astype(np.bool_)
    return None if valid.all() else valid


def _objects(values: list[Any]) -> AnyArray:
    result = np.empty(len(values), object)
    result[:] = values
    return result


def _text(array: Any, offset_type: type[np.generic], first: int, count: int) -> AnyArray:
    offsets = _buffer(array, 1, offset_type, first, count + 1).tolist()
    start = offsets[0]
    data = _buffer(array, 2, np.uint8, start, offsets[-1] - start).tobytes()
    if data.isascii():
        whole = data.decode("ascii")
        return _objects([whole[a - start : b - start] for a, b in pairwise(offsets)])
    return _objects([data[a - start : b - start].decode("utf-8") for a, b in pairwise(offsets)])


def _text_view(array: Any, first: int, count: int, valid: BoolArray | None) -> AnyArray:
    """utf8_view: 16 bytes each, the text itself up to 12 bytes, else (length, prefix, buffer, offset)."""
    views = _buffer(array, 1, np.uint8, 16 * first, 16 * count).tobytes()
    result: list[str] = []
    for row in range(count):
        if valid is not None and not valid[row]:
            result.append("")
            continue
        view = views[16 * row : 16 * row + 16]
        length = int.from_bytes(view[:4], "little", signed=True)
        if length <= 12:
            result.append(view[4 : 4 + length].decode("utf-8"))
            continue
        index, offset = int.from_bytes(view[8:12], "little"), int.from_bytes(view[12:16], "little")
        result.append(_buffer(array, 2 + index, np.uint8, offset, length).tobytes().decode("utf-8"))
    return _objects(result)


def _rows(where: str, name: str, schema: Any, array: Any, first: int, count: int) -> AnyArray:
    kind = schema.format.decode()
    child_schema, child = schema.children[0].contents, array.children[0].contents
    if kind.startswith("+w:"):
        width = int(kind[3:])
        start, stop = first * width, (first + count) * width
    else:
        offsets = _buffer(array, 1, np.int32 if kind == "+l" else np.int64, first, count + 1)
        widths = np.diff(offsets)
        width = int(widths[0]) if count else 0
        if count and (widths != width).any():
            row = int(np.argmax(widths != width))
            got = f"{widths[row]} at row {row} of a batch"
            raise WidthMismatch(f"[{where}] expected rows of width {width} in column {name!r}, got {got}; pad the rows")
        start, stop = (int(offsets[0]), int(offsets[-1])) if count else (0, 0)
    column = _column(where, name, child_schema, child, start, stop - start)
    if column.valid is not None:
        raise ValueInvalid(f"[{where}] expected no nulls inside the rows of column {name!r}, got one; fill or drop it")
    return column.values.reshape(count, width)


def _column(where: str, name: str, schema: Any, array: Any, start: int, count: int) -> Column:
    """Rows [start, start + count) of one array, after the array's own offset."""
    first = array.offset + start
    kind = schema.format.decode()
    if kind == "n":
        return Column(np.zeros(count, np.int8), np.zeros(count, np.bool_))
    valid = _valid(array, first, count)
    if schema.dictionary:
        codes = _buffer(array, 1, _NUMBERS[kind], first, count)
        if valid is not None:
            codes[~valid] = 0
        entries = array.dictionary.contents
        words = _column(where, name, schema.dictionary.contents, entries, 0, entries.length)
        if not words.values.shape[0]:
            return Column(np.zeros(count, words.values.dtype), valid)
        if words.valid is not None:
            known = words.valid[codes]
            valid = known if valid is None else valid & known
        return Column(words.values[codes], valid)
    if kind in _NUMBERS:
        return Column(_buffer(array, 1, _NUMBERS[kind], first, count), valid)
    if kind == "tdD":
        return Column(_buffer(array, 1, np.int32, first, count).astype("datetime64[D]"), valid)
    if kind == "tdm" or kind.startswith(("ts", "tD")):
        numbers = _buffer(array, 1, np.int64, first, count)
        if kind.startswith("tD"):
            return Column(numbers, valid)
        return Column(numbers.view(f"datetime64[{_UNITS[kind[2]]}]"), valid)
    if kind in ("u", "U", "vu"):
        try:
            if kind == "vu":
                return Column(_text_view(array, first, count, valid), valid)
            return Column(_text(array, np.int32 if kind == "u" else np.int64, first, count), valid)
        except UnicodeDecodeError as cause:
            raise ValueInvalid(
                f"[{where}] expected UTF-8 in column {name!r}, got {shown(cause.object)}; fix the text"
            ) from cause
    if kind.startswith(("+w:", "+l", "+L")) and schema.children[0].contents.format in (b"f", b"g"):
        return Column(_rows(where, name, schema, array, first, count), valid)
    raise DtypeInvalid(
        f"[{where}] expected integers, floats, strings or rows of floats in column {name!r}, "
        f"got Arrow format {kind!r}; cast the column"
    )


def _call(stream: Any, function: Callable[..., int], target: Any) -> None:
    if function(ctypes.addressof(stream), ctypes.byref(target)) != 0:
        reason = stream.get_last_error(ctypes.addressof(stream))
        raise UsageError(f"[from_arrow] the source stopped: {(reason or b'no reason given').decode()}; fix the source")


def _release(target: Any) -> None:
    if target.release:
        target.release(ctypes.byref(target))


def _batches(table: Any) -> Iterator[tuple[Any, Any]]:
    """(schema, batch) pairs of a stream or of one array; each is released when the next is asked for."""
    if hasattr(table, "__arrow_c_stream__"):
        capsule = table.__arrow_c_stream__()
        stream = _Stream.from_address(_capsule_pointer(capsule, b"arrow_array_stream"))
        schema = _Schema()
        _call(stream, stream.get_schema, schema)
        try:
            yield schema, None
            while True:
                batch = _Array()
                _call(stream, stream.get_next, batch)
                if not batch.release:
                    return
                try:
                    yield schema, batch
                finally:
                    _release(batch)
        finally:
            _release(schema)
            if stream.release:
                stream.release(ctypes.addressof(stream))
    elif hasattr(table, "__arrow_c_array__"):
        capsules = table.__arrow_c_array__()  # their destructors release what they hold
        schema = _Schema.from_address(_capsule_pointer(capsules[0], b"arrow_schema"))
        yield schema, None
        yield schema, _Array.from_address(_capsule_pointer(capsules[1], b"arrow_array"))
    else:
        raise DtypeInvalid(
            f"[from_arrow] expected an object with __arrow_c_stream__ or __arrow_c_array__, "
            f"got {type(table).__name__}; pass an Arrow table, a polars or pandas frame"
        )


def _joined(where: str, name: str, parts: list[Column]) -> Column:
    rows = [part.values for part in parts if part.values.shape[0]]
    if len({part.shape[1:] for part in rows}) > 1:
        raise WidthMismatch(
            f"[{where}] expected rows of one width in column {name!r}, got {sorted({p.shape[1] for p in rows})}; pad"
        )
    values = np.concatenate(rows) if rows else parts[0].values if parts else np.zeros(0, np.int64)
    if all(part.valid is None for part in parts):
        return Column(values)
    ones = [np.ones(part.values.shape[0], np.bool_) if part.valid is None else part.valid for part in parts]
    return Column(values, np.concatenate(ones))


def read_columns(where: str, table: object, wanted: Collection[str]) -> dict[str, Column]:
    """The wanted columns that the table has, all batches joined. Other columns are not looked at.

    Raises: DtypeInvalid if the object speaks no Arrow, is not a table, or a wanted column is of a type not listed
            above;
    WidthMismatch if the rows of a list column differ in width; ValueInvalid for a null row of the table itself.
    """
    parts: dict[str, list[Column]] = {}
    places: list[tuple[int, str]] = []
    for schema, batch in _batches(table):
        if batch is None:
            if schema.format != b"+s":
                raise DtypeInvalid(
                    f"[{where}] expected a table, got Arrow format {schema.format.decode()!r}; name its columns"
                )
            names = [(schema.children[i].contents.name or b"").decode() for i in range(schema.n_children)]
            places = [(i, name) for i, name in enumerate(names) if name in wanted]
            parts = {name: [] for _, name in places}
            if len(places) != len(parts):
                raise ValueInvalid(
                    f"[{where}] expected each column once, got {sorted(n for _, n in places)}; rename them"
                )
            continue
        if _valid(batch, batch.offset, batch.length) is not None:
            raise ValueInvalid(f"[{where}] expected no null rows, got one; drop it")
        for i, name in places:
            child = batch.children[i].contents
            parts[name].append(_column(where, name, schema.children[i].contents, child, batch.offset, batch.length))
    return {name: _joined(where, name, columns) for name, columns in parts.items()}
