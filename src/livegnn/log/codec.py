"""A batch of updates, or a switch of an engine (its swap or rescale), as an Arrow IPC stream, bit for bit, and back.

payload = one Arrow IPC stream: schema, dictionaries, one record batch

Batch: one row for each update.
schema metadata: "livegnn.schema" = "1"; where types have names, "livegnn.types" = JSON list of "name" or
                 ["src", "name", "dst"]: a type -1 - k is the k-th of them; where the writer noted something,
                 "livegnn.note": its bytes, which change no updates

column          type                       null means                        there
kind            uint8, 0 to 7              (never)                           always
u, v            int64, or dictionary       the update has none               always
                <int64, utf8>: string ids, both columns with one dictionary
weight          float32                    not given                         where an update gives one
time            int64                      not given                         "
type            int32                      not given                         "
edge_id         int64                      not given                         "
row             large_list<float32>        no features or attributes         "
missing_ignore  bool                       (never)                           where one is true

kind: 0 add_edge, 1 remove_edge, 2 remove_edges_before, 3 set_weight, 4 set_edge_attr, 5 set_features, 6 add_vertex,
7 remove_vertex. A reader refuses another version and any column that it does not know: a batch that is half understood
would be a different history.

Switch: one row for each of its arrays.
schema metadata: "livegnn.schema" = "2", so that livegnn 0.1, which knows batches of updates alone, refuses the entry;
                 "livegnn.switch" = JSON {"name": of the engine, "kind": "swap" or "rescale", "data": {...}}

column          type                       what
array           utf8                       its name
shape           large_list<int64>
values          large_list<float32>        row by row
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from livegnn.errors import LiveGnnError, LogDamaged, ValueInvalid
from livegnn.graph import Updates
from livegnn.graph.consumers import Recorded, Switch
from livegnn.optional import need
from livegnn.types import AnyArray, BoolArray

_BATCH, _SWITCH = 1, 2  # the schema's version
_VERSION_KEY, _TYPES_KEY, _SWITCH_KEY = b"livegnn.schema", b"livegnn.types", b"livegnn.switch"
_NOTE_KEY = b"livegnn.note"
_NO_VERTEX, _NO_EDGE = -1, -1
_TEXT_BYTES_MAX = 2**31 - 1
_UNSET_TIME, _UNSET_TYPE = -(2**63), -(2**31)
_PLAIN = {  # column: (dtype, what stands for "not given")
    "weight": (np.float32, 1.0),
    "time": (np.int64, _UNSET_TIME),
    "type": (np.int32, _UNSET_TYPE),
    "edge_id": (np.int64, _NO_EDGE),
}
_NAMES = ("kind", "u", "v", *_PLAIN, "row", "missing_ignore")


def encode(recorded: Recorded, note: bytes = b"") -> bytes:
    """The payload of a batch or of a switch, with the writer's note. Raises: DataMissing."""
    arrow = need("pyarrow", "arrow")
    noted = {_NOTE_KEY: note} if note else {}
    if isinstance(recorded, Switch):
        return _switch_payload(recorded, noted, arrow)
    columns, keys, types = recorded.to_columns()
    parts: dict[str, Any] = {"kind": _column(arrow, columns["kind"])}
    names = None if keys is None else _texts(arrow, keys)
    for name in ("u", "v"):
        places = _column(arrow, columns[name], columns[name] == _NO_VERTEX)
        parts[name] = places if names is None else arrow.DictionaryArray.from_arrays(places, names)
    for name, (_, unset) in _PLAIN.items():
        missing = columns["has_weight"] == 0 if name == "weight" else columns[name] == unset
        if not missing.all():
            parts[name] = _column(arrow, columns[name], missing)
    widths = columns["row_width"]
    if (widths >= 0).any():
        ends = np.cumsum(np.maximum(widths, 0), dtype=np.int64)
        rows = _column(arrow, columns["rows"])
        buffers = [_valid(arrow, widths < 0), arrow.py_buffer(np.concatenate([[0], ends]))]
        parts["row"] = arrow.Array.from_buffers(arrow.large_list(rows.type), len(widths), buffers, children=[rows])
    if columns["missing_ignore"].any():
        ignore = arrow.py_buffer(np.packbits(columns["missing_ignore"] != 0, bitorder="little"))
        parts["missing_ignore"] = arrow.Array.from_buffers(arrow.bool_(), len(widths), [None, ignore])
    metadata = noted | ({_TYPES_KEY: json.dumps(types).encode()} if types else {})
    return _payload(_BATCH, parts, metadata, arrow)


# Arrays are made of their buffers: arrow.array() would copy the values, and import pandas in the first batch.


def _column(arrow: Any, values: AnyArray, missing: BoolArray | None = None) -> Any:
    valid = None if missing is None else _valid(arrow, missing)
    kind = arrow.from_numpy_dtype(values.dtype)
    return arrow.Array.from_buffers(kind, len(values), [valid, arrow.py_buffer(values)])


def _valid(arrow: Any, missing: BoolArray) -> Any:
    """The bitmap of what is there; None for all of it."""
    return arrow.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None


def _texts(arrow: Any, texts: list[str]) -> Any:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] > _TEXT_BYTES_MAX:
        raise ValueInvalid(
            f"[append] expected ids of at most {_TEXT_BYTES_MAX} bytes in a batch, got {ends[-1]}; split the batch"
        )
    buffers = [None, arrow.py_buffer(ends.astype(np.int32)), arrow.py_buffer(b"".join(encoded))]
    return arrow.Array.from_buffers(arrow.utf8(), len(texts), buffers)


def _switch_payload(switch: Switch, noted: dict[bytes, bytes], arrow: Any) -> bytes:
    shapes = [np.array(array.shape, np.int64) for array in switch.arrays.values()]
    values = [np.ascontiguousarray(array, np.float32).reshape(-1) for array in switch.arrays.values()]
    parts = {
        "array": arrow.array([*switch.arrays], arrow.utf8()),
        "shape": _lists(arrow, shapes, np.int64),
        "values": _lists(arrow, values, np.float32),
    }
    about = {"name": switch.name, "kind": switch.kind, "data": switch.data}
    return _payload(_SWITCH, parts, noted | {_SWITCH_KEY: json.dumps(about).encode()}, arrow)


def _lists(arrow: Any, rows: list[Any], dtype: Any) -> Any:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return arrow.LargeListArray.from_arrays(offsets, np.concatenate([np.zeros(0, dtype), *rows]))


def _payload(version: int, parts: dict[str, Any], metadata: dict[bytes, bytes], arrow: Any) -> bytes:
    batch = arrow.record_batch(parts).replace_schema_metadata({_VERSION_KEY: str(version).encode(), **metadata})
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def decode(log: str, offset: int, payload: bytes) -> Recorded:
    """The batch or the switch of a payload. Raises: LogDamaged naming the offset; DataMissing."""
    return decode_noted(log, offset, payload)[0]


def decode_noted(log: str, offset: int, payload: bytes) -> tuple[Recorded, bytes]:
    """The same, and the writer's note, b"" without one."""
    arrow = need("pyarrow", "arrow")
    where = f"[{log}, offset {offset}]"
    try:
        with arrow.ipc.open_stream(payload) as stream:
            version = _checked_version(where, stream.schema)
            if version == _BATCH:
                _check_schema(where, stream.schema, arrow)
            batches = list(stream)
        if len(batches) != 1:
            raise ValueError(f"{len(batches)} record batches")
        batch = batches[0]
        batch.validate(full=True)
        note = (batch.schema.metadata or {}).get(_NOTE_KEY, b"")
        return (_updates_of(batch, arrow) if version == _BATCH else _switch_of(batch, arrow)), note
    except LogDamaged:
        raise
    except (arrow.ArrowException, KeyError, TypeError, ValueError, OSError, OverflowError, LiveGnnError) as cause:
        raise LogDamaged(
            f"{where} expected a batch of updates or a switch, got bytes that are none ({cause}); "
            "restore the log from a copy"
        ) from cause


def _checked_version(where: str, schema: Any) -> int:
    version = (schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version not in (str(_BATCH), str(_SWITCH)):
        raise LogDamaged(f"{where} expected schema {_BATCH} or {_SWITCH}, got {version}; read it with a newer livegnn")
    return int(version)


def _check_schema(where: str, schema: Any, arrow: Any) -> None:
    unknown = [name for name in schema.names if name not in _NAMES]
    if unknown:
        raise LogDamaged(
            f"{where} expected columns among {', '.join(_NAMES)}, got {unknown[0]!r}; read it with a newer livegnn"
        )
    types = {name: arrow.from_numpy_dtype(dtype) for name, (dtype, _) in _PLAIN.items()}
    types |= {"kind": arrow.uint8(), "row": arrow.large_list(arrow.float32()), "missing_ignore": arrow.bool_()}
    text = arrow.dictionary(arrow.int64(), arrow.utf8())
    for field in schema:
        good = field.type in (arrow.int64(), text) if field.name in ("u", "v") else field.type == types[field.name]
        if not good:
            raise LogDamaged(f"{where} expected column {field.name} of a known type, got {field.type}; restore the log")


def _updates_of(batch: Any, arrow: Any) -> Updates:
    count = batch.num_rows
    there = {name: batch.column(name) for name in batch.schema.names}
    for name in ("kind", "missing_ignore"):
        if name in there and there[name].null_count:
            raise ValueError(f"nulls in column {name}")
    columns: dict[str, AnyArray] = {"kind": _values(there["kind"], 0)}
    keys = _ids_into(columns, there, arrow)
    for name, (dtype, unset) in _PLAIN.items():
        columns[name] = _values(there[name], unset) if name in there else np.full(count, unset, dtype)
    columns["has_weight"] = _given(there.get("weight"), count).astype(np.uint8)
    ignore = _bits(there["missing_ignore"], 1) if "missing_ignore" in there else np.zeros(count)
    columns["missing_ignore"] = ignore.astype(np.uint8)
    columns["row_width"], columns["rows"] = np.full(count, -1, np.int32), np.empty(0, np.float32)
    if "row" in there:
        columns["row_width"] = _values(there["row"].value_lengths(), -1).astype(np.int32)
        columns["rows"] = _values(there["row"].flatten(), np.nan)
    return Updates.from_columns(columns, keys, _type_names(batch.schema.metadata.get(_TYPES_KEY, b"[]")))


def _switch_of(batch: Any, arrow: Any) -> Switch:
    """The switch of a record batch. Raises: KeyError, TypeError, ValueError for one that is damaged."""
    about = json.loads(batch.schema.metadata[_SWITCH_KEY])
    name, kind, data = about["name"], about["kind"], about["data"]
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(data, dict):
        raise ValueError(f"a switch {kind!r} of {name!r}")
    types = {
        "array": arrow.utf8(),
        "shape": arrow.large_list(arrow.int64()),
        "values": arrow.large_list(arrow.float32()),
    }
    if {field.name: field.type for field in batch.schema} != types:
        raise ValueError(f"columns {batch.schema.names} of other types")
    arrays = {}
    for place, array in enumerate(batch.column("array").to_pylist()):
        shape = batch.column("shape")[place].values.to_numpy(zero_copy_only=False)
        values = batch.column("values")[place].values.to_numpy(zero_copy_only=False)
        arrays[array] = np.array(values, np.float32).reshape(shape.tolist())
    return Switch(name, kind, data, arrays)


def _type_names(text: bytes) -> list[str | tuple[str, str, str]]:
    found: list[str | tuple[str, str, str]] = []
    for name in json.loads(text):
        parts = [name] if isinstance(name, str) else name
        if not all(isinstance(part, str) for part in parts) or len(parts) not in (1, 3):
            raise ValueError(f"a type named {name!r}")
        found.append(name if isinstance(name, str) else (parts[0], parts[1], parts[2]))
    return found


def _ids_into(columns: dict[str, AnyArray], there: dict[str, Any], arrow: Any) -> list[str] | None:
    """Fills in u and v; the string ids behind them, None where ids are integers."""
    u, v = there["u"], there["v"]
    if u.type != v.type:
        raise ValueError("u and v of different types")
    if u.type == arrow.int64():
        columns["u"], columns["v"] = _values(u, _NO_VERTEX), _values(v, _NO_VERTEX)
        return None
    if not u.dictionary.equals(v.dictionary):
        raise ValueError("u and v with different dictionaries")
    columns["u"], columns["v"] = _values(u.indices, _NO_VERTEX), _values(v.indices, _NO_VERTEX)
    keys: list[str] = u.dictionary.to_pylist()
    return keys


# Their buffers are read as they are: to_numpy() would import pandas.


def _values(column: Any, unset: float) -> AnyArray:
    """A column as an array of its own dtype, contiguous and writable, nulls as `unset`."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    values = np.empty(len(column), dtype)
    if len(column):
        values[:] = np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)
    if column.null_count:
        values[~_bits(column, 0)] = unset
    return values


def _bits(column: Any, place: int) -> BoolArray:
    """One of a column's buffers that holds a bit for each value."""
    packed = np.frombuffer(column.buffers()[place] or b"", np.uint8)
    bits = np.unpackbits(packed, bitorder="little", count=column.offset + len(column))
    return bits[column.offset :].astype(np.bool_)


def _given(column: Any, count: int) -> BoolArray:
    if column is None or column.null_count == 0:
        return np.full(count, column is not None)
    return _bits(column, 0)
