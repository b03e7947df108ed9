"""Messages between workers, and their bytes.

message  = "LGM1" checksum kind number_count array_count { number } { array }        integers little-endian
checksum = uint32, CRC-32 (zlib) of all that follows it
kind     = uint8       number_count, array_count = uint8       number = int64
array    = dtype (uint8: 0 uint8, 1 int32, 2 int64, 3 float32, 4 uint16, 5 uint64) dimensions (uint8, 1 or 2)
           { length (uint64) } values in C order

kind         numbers                                                       arrays
1 changes    sender senders receiver step hop                              table vertex serving change
2 push       sender senders receiver step version stamp fresh checkpoint   seeds, then those of PushArrays
3 batches    step last stamp
4 serve      step stamp                                                    serving
5 move       step stamp                                                    owners
6 checkpoint step stamp
7 state      step offset next_edge_id now inbox, then which columns and ids  see partition.py
12 served    inbox, then those of a push                                   those of a push
13 part      sender step hop place parts                                   bytes of changes, or of a push (hop 0)

Kinds 8 to 11 were questions, answers and heartbeats, which Ray carries since 0.2.

A message means the same whenever and however often it is read: (sender, step, hop) names changes, (sender, step) a push
to one receiver, and its content is a function of the history.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from livegnn import _native
from livegnn.errors import StoredStateInvalid
from livegnn.sampling.cluster.partition import COLUMNS, Int32Array, Owners, PartitionState, ReasonArrays, Serving
from livegnn.types import AnyArray, Float32Array, Int64Array

# samples: table, vertex, count of entries, neighbours, edge ids, rows of edge columns; dropped: table, vertex;
# features: vertex, rows, dropped
PushArrays: TypeAlias = tuple[
    Int32Array,
    Int32Array,
    Int32Array,
    Int32Array,
    Int64Array,
    Float32Array,
    Int32Array,
    Int32Array,
    Int32Array,
    Float32Array,
    Int32Array,
]


class CountChanges(NamedTuple):
    """Changes of counts that a sampling worker passes on to another at the end of a hop."""

    sender: int
    senders: int
    receiver: int
    step: int
    hop: int
    reasons: ReasonArrays


class Push(NamedTuple):
    """What a serving worker needs of a sampling worker for one step.

    fresh: the receiver begins with this step, with empty tables.  checkpoint: it is to write its content after it.
    seeds: (1024,) uint8, the buckets whose seeds are the receiver's.  stamp: ms since the epoch when the newest batch
    of the step was put into the steps.
    """

    sender: int
    senders: int
    receiver: int
    step: int
    version: int
    stamp: int
    fresh: bool
    checkpoint: bool
    seeds: AnyArray
    arrays: PushArrays


class Batches(NamedTuple):
    """The step of the entries of the history up to, not including, `last`."""

    step: int
    last: int
    stamp: int


class Serve(NamedTuple):
    """The step from which on serving[b], a bit a serving worker, own the seeds of bucket b."""

    step: int
    stamp: int
    serving: Serving


class Move(NamedTuple):
    """The step after which sampling worker owners[b] owns bucket b."""

    step: int
    stamp: int
    owners: Owners


class Checkpoint(NamedTuple):
    """The step after which every worker writes its state."""

    step: int
    stamp: int


Step: TypeAlias = Batches | Serve | Move | Checkpoint


class Served(NamedTuple):
    """The state of a serving worker: its content as a push, and the place in its inbox to go on from."""

    inbox: int
    push: Push


class Part(NamedTuple):
    """A piece of a message that is too large for one entry of a log: the place-th of so many."""

    sender: int
    step: int
    hop: int
    place: int
    parts: int
    content: AnyArray


Message: TypeAlias = CountChanges | Push | Part | Served | Step | PartitionState

_MAGIC = b"LGM1"
_HEAD, _FIELDS, _ARRAY = struct.Struct("<4sI"), struct.Struct("<BBB"), struct.Struct("<BB")
_DTYPES = ("<u1", "<i4", "<i8", "<f4", "<u2", "<u8")
_CODES = {np.dtype(name): code for code, name in enumerate(_DTYPES)}

# dtypes of arrays; those with the same word after it have the same length
_REASONS = ("<i4 reason",) * 4
_ROWS = ("<i4 row", "<i4 row", "<i4 row", "<i4 entry", "<i8 entry", "<f4 entry")
_PUSH = ("<u1 bucket", *_ROWS, "<i4 dropped", "<i4 dropped", "<i4 feature", "<f4 feature", "<i4")
_EDGE_ROWS = 6  # place among them; pushes of livegnn 0.1 have no such array
_STATE = ("<u1", "<i4", "<i4 feature", "<f4 feature", *_REASONS, "<u2 bucket", "<u8 bucket")
_COLUMN_DTYPES = {"src": "<i8", "dst": "<i8", "id": "<i8", "weight": "<f4", "time": "<i8", "type": "<i4", "attr": "<f4"}
_ID_DTYPES = {"counts": "<i8", "taken": "<u1", "numbers": "<i8", "ids": "<i8", "text": "<u1", "offsets": "<i8"}
_NAMED = {name: f"{dtype} edge" for name, dtype in _COLUMN_DTYPES.items()}
_NAMED |= {f"ids.{name}": dtype for name, dtype in _ID_DTYPES.items()}


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    kind = next(kind for kind, layout in _LAYOUTS.items() if layout.message is type(message))
    numbers: list[int] = []
    arrays: list[AnyArray] = []
    _sort(_fields(message), numbers, arrays)
    return _pack(kind, numbers, arrays)


def decode(payload: bytes) -> Message:
    """The message of its bytes. Raises: StoredStateInvalid for bytes that are none."""
    try:
        kind, numbers, arrays = _unpack(payload)
        layout = _LAYOUTS[kind]
        if layout.arrays is None:
            return layout.read(numbers, arrays)
        if layout.arrays is _PUSH and len(arrays) == len(_PUSH) - 1:
            arrays.insert(_EDGE_ROWS, np.empty((len(arrays[_EDGE_ROWS - 1]), 0), np.float32))
        if len(numbers) != layout.numbers:
            raise ValueError(f"kind {kind} with {len(numbers)} numbers")
        _check(arrays, layout.arrays)
        return layout.read(*numbers, *arrays)
    except (struct.error, ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError) as cause:
        raise StoredStateInvalid(
            f"[message] expected a message between workers, got {len(payload)} bytes that are none ({cause}); "
            "restore the log or file that it is from"
        ) from cause


# ---- messages as numbers and arrays


def _fields(message: Message) -> tuple[Any, ...]:
    """The numbers and arrays of a message, in tuples."""
    return _state_fields(message) if isinstance(message, PartitionState) else message


def _sort(fields: tuple[Any, ...], numbers: list[int], arrays: list[AnyArray]) -> None:
    for field in fields:
        if isinstance(field, tuple):
            _sort(field, numbers, arrays)
        elif isinstance(field, np.ndarray):
            arrays.append(field)
        else:
            numbers.append(int(field))


def _push(*fields: Any) -> Push:
    content: PushArrays = fields[9:]
    _, _, count, neighbours, _, edge_rows, _, _, _, rows, _ = content
    if rows.ndim != 2 or edge_rows.ndim != 2 or int(count.sum()) != len(neighbours) or (count < 1).any():
        raise ValueError("a push whose rows and entries do not agree")
    return Push._make((*fields[:6], *map(bool, fields[6:8]), fields[8], content))


def _part(*fields: Any) -> Part:
    part = Part(*fields)
    if not 0 <= part.place < part.parts:
        raise ValueError(f"part {part.place} of {part.parts}")
    return part


def _state_fields(state: PartitionState) -> tuple[Any, ...]:
    named = {**state.edges, **{f"ids.{name}": array for name, array in state.ids.items()}}
    numbers = (state.step, state.offset, state.next_edge_id, state.now, state.inbox)
    columns = (list(_NAMED).index(name) for name in named)
    graph = (state.live, state.vertex_types, state.feature_vertices, state.features)
    flags = (array.view(np.uint8) if array.dtype == np.bool_ else array for array in named.values())
    return *numbers, *columns, *graph, state.counts, state.owners, state.serving, *flags


def _state(numbers: list[int], arrays: list[AnyArray]) -> PartitionState:
    names = [list(_NAMED)[number] for number in numbers[5:]]
    _check(arrays, (*_STATE, *(_NAMED[name] for name in names)))
    live, types, vertices, rows, table, vertex, serving_worker, count, owners, serving = arrays[:10]
    named = dict(zip(names, arrays[10:], strict=True))
    edges = {name: array for name, array in named.items() if name in COLUMNS}
    ids = {name.removeprefix("ids."): array for name, array in named.items() if name not in COLUMNS}
    if "taken" in ids:
        ids["taken"] = ids["taken"] != 0
    if rows.ndim != 2:
        raise ValueError(f"features of shape {rows.shape}")
    counts = (table, vertex, serving_worker, count)
    step, offset, next_edge_id, now, inbox = numbers[:5]
    return PartitionState(
        live, types, edges, vertices, rows, counts, owners, serving, next_edge_id, now, step, offset, inbox, ids
    )


class _Layout(NamedTuple):
    """A kind of message: its class, and what makes one of so many numbers, then arrays of these dtypes.

    arrays: None where the numbers say which there are; `read` gets two lists then, and checks them.
    """

    message: type[tuple[Any, ...]] | type[PartitionState]
    read: Callable[..., Message]
    numbers: int = 0
    arrays: tuple[str, ...] | None = None


_LAYOUTS = {
    1: _Layout(CountChanges, lambda *fields: CountChanges._make((*fields[:5], fields[5:])), 5, _REASONS),
    2: _Layout(Push, _push, 8, _PUSH),
    3: _Layout(Batches, Batches, 3, ()),
    4: _Layout(Serve, Serve, 2, ("<u8 bucket",)),
    5: _Layout(Move, Move, 2, ("<u2 bucket",)),
    6: _Layout(Checkpoint, Checkpoint, 2, ()),
    7: _Layout(PartitionState, _state),
    12: _Layout(Served, lambda inbox, *push: Served(inbox, _push(*push)), 9, _PUSH),
    13: _Layout(Part, _part, 5, ("<u1",)),
}


# ---- bytes


def _check(arrays: Sequence[AnyArray], expected: Sequence[str]) -> None:
    """Raises: ValueError where dtypes differ, or lengths that have one name."""
    lengths = {"bucket": _native.BUCKETS}
    for array, each in zip(arrays, expected, strict=True):
        dtype, _, length = each.partition(" ")
        if array.dtype != dtype or (length and len(array) != lengths.setdefault(length, len(array))):
            raise ValueError(f"an array of {len(array)} {array.dtype} in place of {each}")


def _pack(kind: int, numbers: Sequence[int], arrays: Sequence[AnyArray]) -> bytes:
    parts = [_FIELDS.pack(kind, len(numbers), len(arrays)), struct.pack(f"<{len(numbers)}q", *numbers)]
    for array in arrays:
        parts.append(_ARRAY.pack(_CODES[array.dtype], array.ndim) + struct.pack(f"<{array.ndim}Q", *array.shape))
        parts.append(array.tobytes())
    body = b"".join(parts)
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body


def _unpack(payload: bytes) -> tuple[int, list[int], list[AnyArray]]:
    magic, checksum = _HEAD.unpack_from(payload)
    if magic != _MAGIC or zlib.crc32(memoryview(payload)[_HEAD.size :]) != checksum:
        raise ValueError("the checksum or the beginning is wrong")
    at = _HEAD.size
    kind, number_count, array_count = _FIELDS.unpack_from(payload, at)
    at += _FIELDS.size
    numbers = list(struct.unpack_from(f"<{number_count}q", payload, at))
    at += 8 * number_count
    arrays = []
    for _ in range(array_count):
        code, dimensions = _ARRAY.unpack_from(payload, at)
        at += _ARRAY.size
        shape = struct.unpack_from(f"<{dimensions}Q", payload, at)
        at += 8 * dimensions
        dtype = np.dtype(_DTYPES[code])
        count = int(np.prod(shape, dtype=object))
        if dimensions not in (1, 2) or at + count * dtype.itemsize > len(payload):
            raise ValueError("an array longer than the message")
        arrays.append(np.frombuffer(payload, dtype, count, at).reshape(shape).copy())
        at += count * dtype.itemsize
    if at != len(payload):
        raise ValueError("bytes behind the end")
    return kind, numbers, arrays
