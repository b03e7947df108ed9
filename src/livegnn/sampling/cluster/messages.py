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
8 request    query features edge_ids edge_data at_least timeout_ms, or -1     seeds
9 response   version, then how many arrays of each field                    those of Response, then their shapes
10 error                                                                   class, text
11 heartbeat role worker step stamp
12 served    inbox, then those of a push                                   those of a push
13 part      sender step hop place parts                                   bytes of changes, or of a push (hop 0)

A message means the same whenever and however often it is read: (sender, step, hop) names changes, (sender, step) a push
to one receiver, and its content is a function of the history.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from livegnn import _native
from livegnn.errors import Facts, StoredStateInvalid
from livegnn.sampling.cluster.partition import Int32Array, Owners, PartitionState, ReasonArrays, Serving
from livegnn.sampling.presample.answers import Response
from livegnn.sampling.presample.source import ReadOptions
from livegnn.types import AnyArray, Float32Array, Int64Array

__all__ = ["Batches", "Checkpoint", "CountChanges", "Message", "Move", "Push", "Serve", "Step", "decode", "encode"]

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


class Request(NamedTuple):
    """A question of a front end."""

    options: ReadOptions
    seeds: Int64Array


class ErrorResponse(NamedTuple):
    """An error in place of a response: its class in livegnn.errors, its message and its fields."""

    error: str
    text: str
    facts: Facts


class Heartbeat(NamedTuple):
    """A sign of life. role: 0 sampling, 1 serving."""

    role: int
    worker: int
    step: int
    stamp: int


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


Message: TypeAlias = (
    CountChanges | Push | Part | Served | Step | PartitionState | Request | Response | ErrorResponse | Heartbeat
)

_MAGIC = b"LGM1"
_HEAD, _FIELDS, _ARRAY = struct.Struct("<4sI"), struct.Struct("<BBB"), struct.Struct("<BB")
_DTYPES = ("<u1", "<i4", "<i8", "<f4", "<u2", "<u8")
_CODES = {np.dtype(name): code for code, name in enumerate(_DTYPES)}
_REASON_DTYPES = ("<i4",) * 4
_PUSH_DTYPES = ("<u1", "<i4", "<i4", "<i4", "<i4", "<i8", "<f4", "<i4", "<i4", "<i4", "<f4", "<i4")
_EDGE_ROWS = 6  # place among them; pushes of livegnn 0.1 have no such array
_COLUMN_DTYPES = {"src": "<i8", "dst": "<i8", "id": "<i8", "weight": "<f4", "time": "<i8", "type": "<i4", "attr": "<f4"}
_ID_DTYPES = {"counts": "<i8", "taken": "<u1", "numbers": "<i8", "ids": "<i8", "text": "<u1", "offsets": "<i8"}
_NAMED_DTYPES = _COLUMN_DTYPES | {f"ids.{name}": dtype for name, dtype in _ID_DTYPES.items()}
_STATE_DTYPES = ("<u1", "<i4", "<i4", "<f4", *_REASON_DTYPES, "<u2", "<u8")


class _Layout(NamedTuple):
    """A message whose fields are so many numbers, then arrays of these dtypes."""

    message: Callable[..., Message]
    numbers: int
    arrays: tuple[str, ...] = ()


_PLAIN = {
    3: _Layout(Batches, 3),
    4: _Layout(Serve, 2, ("<u8",)),
    5: _Layout(Move, 2, ("<u2",)),
    6: _Layout(Checkpoint, 2),
    11: _Layout(Heartbeat, 4),
    13: _Layout(Part, 5, ("<u1",)),
}


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    match message:
        case CountChanges():
            return _pack(1, message[:5], message.reasons)
        case Push():
            return _pack(2, _push_numbers(message), (message.seeds, *message.arrays))
        case Served(place, push):
            return _pack(12, (place, *_push_numbers(push)), (push.seeds, *push.arrays))
        case PartitionState():
            return _pack_state(message)
        case Request():
            query, features, edge_ids, at_least, timeout, edge_data = message.options
            limits = (-1 if at_least is None else at_least, -1 if timeout is None else round(timeout * 1000))
            wanted = (int(features), int(edge_ids), int(edge_data))
            return _pack(8, (query, *wanted, *limits), (message.seeds,))
        case Response():
            parts: tuple[Any, ...] = message
            arrays: list[AnyArray] = [array for part in parts[1:] for array in part]
            flat = [array.reshape(-1) for array in arrays]
            shapes = [np.array(array.shape, np.int64) for array in arrays]
            return _pack(9, (parts[0], *map(len, parts[1:])), (*flat, *shapes))
        case ErrorResponse():
            return _pack(10, (), tuple(_text_array(text) for text in (*message[:2], json.dumps(message.facts))))
        case _:
            kind, layout = next((kind, layout) for kind, layout in _PLAIN.items() if layout.message is type(message))
            fields: tuple[Any, ...] = message
            return _pack(kind, fields[: layout.numbers], fields[layout.numbers :])


def decode(payload: bytes) -> Message:
    """The message of its bytes. Raises: StoredStateInvalid for bytes that are none."""
    try:
        kind, numbers, arrays = _unpack(payload)
        return _message(kind, numbers, arrays)
    except (struct.error, ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError) as cause:
        raise StoredStateInvalid(
            f"[message] expected a message between workers, got {len(payload)} bytes that are none ({cause}); "
            "restore the log or file that it is from"
        ) from cause


# ---- inside


def _message(kind: int, numbers: list[int], arrays: list[AnyArray]) -> Message:
    def expect(count: int, dtypes: Sequence[str] = ()) -> None:
        found = tuple(array.dtype.newbyteorder("<").str.replace("|", "<") for array in arrays)
        if len(numbers) != count or found != tuple(dtypes):
            raise ValueError(f"kind {kind} with {len(numbers)} numbers and arrays {found}")

    if kind == 1:
        expect(5, _REASON_DTYPES)
        _check_lengths(arrays)
        sender, senders, receiver, step, hop = numbers
        return CountChanges(sender, senders, receiver, step, hop, (arrays[0], arrays[1], arrays[2], arrays[3]))
    if kind in (2, 12) and len(arrays) == len(_PUSH_DTYPES) - 1:
        arrays.insert(_EDGE_ROWS, np.empty((len(arrays[_EDGE_ROWS - 1]), 0), np.float32))
    if kind == 2:
        expect(8, _PUSH_DTYPES)
        return _push(numbers, arrays)
    if kind == 12:
        expect(9, _PUSH_DTYPES)
        return Served(numbers[0], _push(numbers[1:], arrays))
    if kind in _PLAIN:
        made, count, dtypes = _PLAIN[kind]
        expect(count, dtypes)
        return _checked(made(*numbers, *arrays))
    if kind == 7:
        return _state(numbers, arrays)
    if kind == 8:
        expect(6, ["<i8"])
        query, features, edge_ids, edge_data, at_least, timeout_ms = numbers
        limits = (None if at_least < 0 else at_least, None if timeout_ms < 0 else timeout_ms / 1000)
        return Request(ReadOptions(query, bool(features), bool(edge_ids), *limits, bool(edge_data)), arrays[0])
    if kind == 9:
        return _response(numbers, arrays)
    if kind == 10:
        expect(0, ["<u1"] * 3)
        error, text, facts = (array.tobytes().decode() for array in arrays)
        return ErrorResponse(error, text, json.loads(facts))
    raise ValueError(f"kind {kind}")


def _checked(message: Message) -> Message:
    if isinstance(message, Part) and not 0 <= message.place < message.parts:
        raise ValueError(f"part {message.place} of {message.parts}")
    if isinstance(message, Serve | Move) and len(message[-1]) != _native.BUCKETS:
        raise ValueError(f"a map of {len(message[-1])} buckets")
    return message


def _push_numbers(push: Push) -> tuple[int, ...]:
    return (*push[:6], int(push.fresh), int(push.checkpoint))


def _push(numbers: list[int], arrays: list[AnyArray]) -> Push:
    seeds, table, vertex, count, neighbours, edge_ids, edge_rows, dropped_table, dropped, owners, rows, gone = arrays
    _check_lengths([table, vertex, count])
    _check_lengths([neighbours, edge_ids, edge_rows])
    _check_lengths([dropped_table, dropped])
    if rows.ndim != 2 or edge_rows.ndim != 2 or len(rows) != len(owners) or len(seeds) != _native.BUCKETS:
        raise ValueError(f"a push with features of shape {rows.shape} and edge rows of shape {edge_rows.shape}")
    if int(count.sum()) != len(neighbours) or (count < 1).any():
        raise ValueError("a push whose rows and entries do not agree")
    content = (table, vertex, count, neighbours, edge_ids, edge_rows, dropped_table, dropped, owners, rows, gone)
    sender, senders, receiver, step, version, stamp, fresh, checkpoint = numbers
    return Push(sender, senders, receiver, step, version, stamp, bool(fresh), bool(checkpoint), seeds, content)


def _pack_state(state: PartitionState) -> bytes:
    named = {**state.edges, **{f"ids.{name}": array for name, array in state.ids.items()}}
    numbers = [state.step, state.offset, state.next_edge_id, state.now, state.inbox]
    columns = [list(_NAMED_DTYPES).index(name) for name in named]
    fixed = (
        state.live,
        state.vertex_types,
        state.feature_vertices,
        state.features,
        *state.counts,
        state.owners,
        state.serving,
    )
    flags = (array.view(np.uint8) if array.dtype == np.bool_ else array for array in named.values())
    return _pack(7, numbers + columns, (*fixed, *flags))


def _state(numbers: list[int], arrays: list[AnyArray]) -> PartitionState:
    names = [list(_NAMED_DTYPES)[number] for number in numbers[5:]]
    dtypes = (*_STATE_DTYPES, *(_NAMED_DTYPES[name] for name in names))
    if tuple(array.dtype.newbyteorder("<").str.replace("|", "<") for array in arrays) != dtypes:
        raise ValueError("a state with other arrays than it names")
    live, types, vertices, rows, table, vertex, serving_worker, count, owners, serving = arrays[:10]
    named = dict(zip(names, arrays[10:], strict=True))
    edges = {name: array for name, array in named.items() if name in _COLUMN_DTYPES}
    ids = {name.removeprefix("ids."): array for name, array in named.items() if name not in _COLUMN_DTYPES}
    if "taken" in ids:
        ids["taken"] = ids["taken"] != 0
    _check_lengths(list(edges.values()))
    _check_lengths([table, vertex, serving_worker, count])
    if rows.ndim != 2 or len(rows) != len(vertices) or not len(owners) == len(serving) == _native.BUCKETS:
        raise ValueError("a state whose arrays do not agree")
    step, offset, next_edge_id, now, inbox = numbers[:5]
    counts = (table, vertex, serving_worker, count)
    return PartitionState(
        live, types, edges, vertices, rows, counts, owners, serving, next_edge_id, now, step, offset, inbox, ids
    )


def _response(numbers: list[int], arrays: list[AnyArray]) -> Response:
    version, *counts = numbers
    half = len(arrays) // 2
    if len(counts) != len(Response._fields) - 1 or sum(counts) != half:
        raise ValueError(f"a response with {half} arrays for {counts}")
    shaped = iter([array.reshape(tuple(shape)) for array, shape in zip(arrays[:half], arrays[half:], strict=True)])
    return Response(version, *(tuple(islice(shaped, count)) for count in counts))


def _check_lengths(arrays: Sequence[AnyArray]) -> None:
    if len({len(array) for array in arrays}) > 1:
        raise ValueError("arrays of different lengths")


def _text_array(text: str) -> AnyArray:
    return np.frombuffer(text.encode(), np.uint8)


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
