"""A switch of an engine (its swap or rescale) as an Arrow IPC stream, bit for bit, and back.

payload = one Arrow IPC stream: schema, one record batch with one row for each array of the switch
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

from livegnn.graph.consumers import Switch
from livegnn.optional import need

__all__ = ["SCHEMA_VERSION", "encode", "switch_of"]

SCHEMA_VERSION = 2
_SWITCH_KEY = b"livegnn.switch"


def encode(switch: Switch, version_key: bytes) -> bytes:
    """The payload of a switch. Raises: DataMissing."""
    arrow = need("pyarrow", "arrow")
    names = [*switch.arrays]
    shapes = [np.array(array.shape, np.int64) for array in switch.arrays.values()]
    values = [np.ascontiguousarray(array, np.float32).reshape(-1) for array in switch.arrays.values()]
    parts = {
        "array": arrow.array(names, arrow.utf8()),
        "shape": _lists(arrow, shapes, np.int64),
        "values": _lists(arrow, values, np.float32),
    }
    about = {"name": switch.name, "kind": switch.kind, "data": switch.data}
    metadata = {version_key: str(SCHEMA_VERSION).encode(), _SWITCH_KEY: json.dumps(about).encode()}
    batch = arrow.record_batch(parts).replace_schema_metadata(metadata)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def _lists(arrow: Any, rows: list[Any], dtype: Any) -> Any:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return arrow.LargeListArray.from_arrays(offsets, np.concatenate([np.zeros(0, dtype), *rows]))


def switch_of(batch: Any, arrow: Any) -> Switch:
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
