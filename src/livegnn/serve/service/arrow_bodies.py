"""Arrow streams as bodies: read within a bound, whatever they say of themselves.

A body is small, and what it decodes to need not be: a compressed buffer, or one long text that every row names (by a
dictionary or by views), is a thousand times its size. So compressed streams are refused, and texts are counted first.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from livegnn.graph import Updates
from livegnn.optional import need
from livegnn.serve.envelope import Refused
from livegnn.types import AnyArray

_DICTIONARY, _RECORDS = 2, 3  # kinds of messages, org.apache.arrow.flatbuf.MessageHeader
_TEXT_MAX = 1 << 26  # bytes of a column of texts, when it is decoded


def updates_of_arrow(body: bytes, most: int) -> Updates:
    """A batch of 1 to `most` updates. Raises: Refused; as Updates.from_arrow."""
    arrow = need("pyarrow", "arrow")
    try:
        for message in arrow.ipc.MessageReader.open_stream(body):
            _refuse_compressed(message.metadata)
        with arrow.ipc.open_stream(body) as stream:
            table = stream.read_all()
            table.validate(full=True)
    except (arrow.ArrowException, OSError, ValueError, struct.error) as cause:
        raise Refused(400, "BodyInvalid", f"[body] expected an Arrow stream, got: {cause}; correct the body") from cause
    if not 1 <= table.num_rows <= most:
        raise Refused(413, "TooMany", f"[updates] expected from 1 to {most} updates, got {table.num_rows}; split it")
    for name, column in zip(table.column_names, table.columns, strict=True):
        size = sum(int(_lengths(arrow, name, chunk).sum()) for chunk in column.chunks)
        if size > _TEXT_MAX:
            raise Refused(
                413,
                "TooMany",
                f"[updates] expected up to {_TEXT_MAX} bytes of text in column {name!r}, got {size}; split the batch",
            )
    return Updates.from_arrow(table)


def _refuse_compressed(metadata: Any) -> None:
    """Raises: Refused for a message whose buffers are compressed. metadata: a flatbuffer that Arrow has checked."""
    data = memoryview(metadata)
    message = struct.unpack_from("<I", data)[0]
    kind, header = _field(data, message, 1), _field(data, message, 2)
    if not kind or not header or data[kind] not in (_DICTIONARY, _RECORDS):
        return
    batch = _pointed(data, header)
    if data[kind] == _DICTIONARY:
        batch = _pointed(data, _field(data, batch, 1))
    if _field(data, batch, 3):
        raise Refused(
            415, "ContentTypeUnknown", "[body] expected an Arrow stream without compression, got one; leave it out"
        )


def _pointed(data: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a field of a table is, 0 where it is not given."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, fields + place)[0])
    return table + offset if offset else 0


def _lengths(arrow: Any, name: str, column: Any) -> AnyArray:
    """Bytes of each text of a column, none for one of numbers."""
    kind, types = column.type, arrow.types
    if types.is_dictionary(kind):
        if types.is_nested(kind.value_type):
            got = f"[updates] expected texts or numbers in the dictionary of column {name!r}, got {kind.value_type}"
            raise Refused(422, "DtypeInvalid", f"{got}; cast the column")
        of_each = _lengths(arrow, name, column.dictionary)
        return of_each[column.indices.drop_null().to_numpy()] if len(of_each) else of_each
    if types.is_string(kind) or types.is_large_string(kind):
        found: AnyArray = need("pyarrow.compute", "arrow").binary_length(column.drop_null()).to_numpy().astype(np.int64)
        return found
    if str(kind) == "string_view" and len(column):
        views = np.frombuffer(column.buffers()[1], np.int32, 4 * (column.offset + len(column)))
        return views[4 * column.offset :: 4].astype(np.int64)
    return np.zeros(0, np.int64)
