"""A batch of updates as an Arrow IPC stream, bit for bit, and back. switches.py has the other kind of entry.

payload = one Arrow IPC stream: schema, dictionaries, one record batch with one row for each update
schema metadata: "livegnn.schema" = "1"; where types have names, "livegnn.types" = JSON list of "name" or
                 ["src", "name", "dst"]: a type -1 - k is the k-th of them

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
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from livegnn.errors import LiveGnnError, LogDamaged
from livegnn.graph import Updates
from livegnn.graph.consumers import Recorded, Switch
from livegnn.log import switches
from livegnn.optional import need
from livegnn.types import AnyArray, BoolArray

__all__ = ["SCHEMA_VERSION", "decode", "encode"]

SCHEMA_VERSION = 1
_VERSION_KEY = b"livegnn.schema"
_TYPES_KEY = b"livegnn.types"
_NO_VERTEX, _NO_EDGE = -1, -1
_UNSET_TIME, _UNSET_TYPE = -(2**63), -(2**31)
_PLAIN = {  # column: (dtype, what stands for "not given")
    "weight": (np.float32, 1.0),
    "time": (np.int64, _UNSET_TIME),
    "type": (np.int32, _UNSET_TYPE),
    "edge_id": (np.int64, _NO_EDGE),
}
_NAMES = ("kind", "u", "v", *_PLAIN, "row", "missing_ignore")


def encode(recorded: Recorded) -> bytes:
    """The payload of a batch or of a switch. Raises: DataMissing."""
    arrow = need("pyarrow", "arrow")
    if isinstance(recorded, Switch):
        return switches.encode(recorded, _VERSION_KEY)
    columns, keys, types = recorded.to_columns()
    parts: dict[str, Any] = {"kind": arrow.array(columns["kind"])}
    names = None if keys is None else arrow.array(keys, arrow.utf8())
    for name in ("u", "v"):
        places = arrow.array(columns[name], mask=columns[name] == _NO_VERTEX)
        parts[name] = places if names is None else arrow.DictionaryArray.from_arrays(places, names)
    for name, (_, unset) in _PLAIN.items():
        missing = columns["has_weight"] == 0 if name == "weight" else columns[name] == unset
        if not missing.all():
            parts[name] = arrow.array(columns[name], mask=missing)
    widths = columns["row_width"]
    if (widths >= 0).any():
        offsets = np.concatenate([[0], np.cumsum(np.maximum(widths, 0), dtype=np.int64)])
        parts["row"] = arrow.LargeListArray.from_arrays(offsets, columns["rows"], mask=arrow.array(widths < 0))
    if columns["missing_ignore"].any():
        parts["missing_ignore"] = arrow.array(columns["missing_ignore"] != 0)
    metadata = {_VERSION_KEY: str(SCHEMA_VERSION).encode()}
    if types:
        metadata[_TYPES_KEY] = json.dumps(types).encode()
    batch = arrow.record_batch(parts).replace_schema_metadata(metadata)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def decode(log: str, offset: int, payload: bytes) -> Recorded:
    """The batch or the switch of a payload. Raises: LogDamaged naming the offset; DataMissing."""
    arrow = need("pyarrow", "arrow")
    where = f"[{log}, offset {offset}]"
    try:
        with arrow.ipc.open_stream(payload) as stream:
            version = _checked_version(where, stream.schema)
            if version == SCHEMA_VERSION:
                _check_schema(where, stream.schema, arrow)
            batches = list(stream)
        if len(batches) != 1:
            raise ValueError(f"{len(batches)} record batches")
        batch = batches[0]
        batch.validate(full=True)
        return _updates_of(batch, arrow) if version == SCHEMA_VERSION else switches.switch_of(batch, arrow)
    except LogDamaged:
        raise
    except (arrow.ArrowException, KeyError, TypeError, ValueError, OSError, OverflowError, LiveGnnError) as cause:
        raise LogDamaged(
            f"{where} expected a batch of updates or a switch, got bytes that are none ({cause}); "
            "restore the log from a copy"
        ) from cause


def _checked_version(where: str, schema: Any) -> int:
    known = (SCHEMA_VERSION, switches.SCHEMA_VERSION)
    version = (schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version not in map(str, known):
        raise LogDamaged(
            f"{where} expected schema {known[0]} or {known[1]}, got {version}; read it with a newer livegnn"
        )
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
    ignore = there["missing_ignore"].to_numpy(zero_copy_only=False) if "missing_ignore" in there else np.zeros(count)
    columns["missing_ignore"] = ignore.astype(np.uint8)
    columns["row_width"], columns["rows"] = np.full(count, -1, np.int32), np.empty(0, np.float32)
    if "row" in there:
        columns["row_width"] = _values(there["row"].value_lengths(), -1).astype(np.int32)
        columns["rows"] = np.ascontiguousarray(there["row"].flatten().to_numpy(zero_copy_only=False))
    return Updates.from_columns(columns, keys, _type_names(batch.schema.metadata.get(_TYPES_KEY, b"[]")))


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


def _values(column: Any, unset: float) -> AnyArray:
    """A column as an array of its own dtype, contiguous and writable, nulls as `unset`."""
    filled = column.fill_null(unset) if column.null_count else column
    return np.array(filled.to_numpy(zero_copy_only=False))


def _given(column: Any, count: int) -> BoolArray:
    if column is None:
        return np.zeros(count, np.bool_)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
