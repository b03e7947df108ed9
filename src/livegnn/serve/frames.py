"""Binary bodies of /v1/sample and /v1/predict: fixed headers and whole arrays, little-endian. For servers and clients.

    request    = "LGQ1" flags:u32 query:i32 timeout_ms:u32 at_least:i64 seed_count:u32 zero:u32 seed:i64 * seed_count ;
    sample     = "LGS1" flags:u32 version:i64 seed_count:u32 hop_count:u32 fanout:u32 * K width:u32 * (K + 1)
                 { attr_width:u32 } pad { vertices:i64 of level 1 ... K } { edge ids:i64 of level 1 ... K }
                 { times:i64 of level 1 ... K } { features:f32 of level 0 ... K } { weights:f32 of level 1 ... K }
                 { attributes:f32 of level 1 ... K } ;
    prediction = "LGP1" zero:u32 version:i64 seed_count:u32 columns:u32 value:f32 * (seed_count * columns) ;

Flags of a request: 1 features, 2 edge ids, 4 weights, times and attributes of edges. Flags of a sample: 1 features, 2
edge ids, 4 weights, 8 times, 16 attributes (then attr_width is there). What is not flagged is left out. query and
at_least: -1 for none. timeout_ms: 0 for the server's default. K is hop_count, pad fills up to a multiple of 8. Level k
has seed_count * C1 * ... * Ck entries, -1 where there is no vertex, and its edges have zeros there; its features have
width k columns each. Seeds are int64: graphs with string ids take JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import checks
from livegnn.sampling import Prediction, Sample
from livegnn.sampling.presample.sample import EdgeLevels
from livegnn.types import AnyArray, Float32Array, Int64Array

CONTENT_TYPE = "application/vnd.livegnn.frame"
_REQUEST = struct.Struct("<4sIiIqII")
_ANSWER = struct.Struct("<4sIqII")
_FEATURES, _EDGE_IDS, _EDGE_DATA = 1, 2, 4  # of a request
_WEIGHTS, _TIMES, _ATTRS = 4, 8, 16  # of a sample, which has the first two likewise
_INT64, _FLOAT32 = np.dtype("<i8"), np.dtype("<f4")


class FrameRequest(NamedTuple):
    """A request as it was sent; timeout_ms None for the server's default."""

    seeds: Int64Array
    query: int | None
    features: bool
    edge_ids: bool
    at_least: int | None
    timeout_ms: int | None
    edge_data: bool = False


@dataclass(frozen=True)
class FrameSample:
    """A sample as it came: hops[k - 1] is hop(k), edge_ids likewise, features[k] is level k; () where left out.

    edge_weights, edge_times, edge_attrs: as edge_ids.
    """

    version: int
    hops: tuple[Int64Array, ...]
    edge_ids: tuple[Int64Array, ...]
    features: tuple[Float32Array, ...]
    edge_weights: tuple[Float32Array, ...] = ()
    edge_times: tuple[Int64Array, ...] = ()
    edge_attrs: tuple[Float32Array, ...] = ()


def encode_request(
    seeds: AnyArray,
    *,
    query: int | None = None,
    features: bool = True,
    edge_ids: bool = True,
    edge_data: bool = True,
    at_least: int | None = None,
    timeout_ms: int | None = None,
) -> bytes:
    """A request's body.

    Args:    seeds: (B,) int64.  query, at_least, timeout_ms: from 0, from 0 and from 1; None for the server's own.
    Raises:  DtypeInvalid, ValueInvalid: -1 and 0 would read as None.
    """
    ids = checks.id_array("frame", "seeds", seeds)
    flags = _FEATURES * features | _EDGE_IDS * edge_ids | _EDGE_DATA * edge_data
    numbers = (
        -1 if query is None else _whole("query", query, 0, 2**31 - 1),
        0 if timeout_ms is None else _whole("timeout_ms", timeout_ms, 1, 2**32 - 1),
        -1 if at_least is None else checks.version("frame", "at_least", at_least),
    )
    return _REQUEST.pack(b"LGQ1", flags, *numbers, len(ids), 0) + ids.astype(_INT64).tobytes()


def _whole(name: str, value: object, least: int, most: int) -> int:
    number = checks.whole_number("frame", name, value)
    if not least <= number <= most:
        got = checks.shown(number)
        raise ValueInvalid(f"[frame] expected {name} from {least} to {most}, got {got}; fix it, or leave it out")
    return number


def decode_request(body: bytes) -> FrameRequest:
    """Reads a request. Raises: ValueInvalid."""
    if len(body) < _REQUEST.size:
        raise _damaged(f"a request of at least {_REQUEST.size} bytes", f"{len(body)}")
    magic, flags, query, timeout_ms, at_least, count, zero = _REQUEST.unpack_from(body)
    if magic != b"LGQ1" or flags > _FEATURES | _EDGE_IDS | _EDGE_DATA or zero:
        raise _damaged("a request that begins with LGQ1, flags up to 7 and no unknown parts", f"{body[:32]!r}")
    if len(body) != _REQUEST.size + 8 * count:
        raise _damaged(f"{_REQUEST.size + 8 * count} bytes for {count} seeds", f"{len(body)}")
    if query < -1 or at_least < -1:
        raise _damaged("-1 for no query and no at_least", f"{query} and {at_least}")
    return FrameRequest(
        np.frombuffer(body, _INT64, count, _REQUEST.size),
        None if query < 0 else query,
        bool(flags & _FEATURES),
        bool(flags & _EDGE_IDS),
        None if at_least < 0 else at_least,
        timeout_ms or None,
        bool(flags & _EDGE_DATA),
    )


def encode_sample(sample: Sample, *, features: bool, edge_ids: bool, edge_data: bool = True) -> bytes:
    """An answer's body. Raises: UsageError on a graph with string ids."""
    levels = range(1, sample.hops + 1)
    vertices = [sample.hop(k) for k in levels]
    if any(level.dtype == object for level in vertices):
        raise UsageError("[sample] expected integer ids in a binary body, got string ids; ask for application/json")
    rows = [sample.features(k) for k in range(sample.hops + 1)] if features else []
    widths = [level.shape[-1] for level in rows] or [0] * (sample.hops + 1)
    shape = vertices[-1].shape[1:] if vertices else ()
    columns = sample.edge_levels if edge_data else EdgeLevels()
    flags = _FEATURES * features | _EDGE_IDS * edge_ids
    flags |= _WEIGHTS * bool(columns.weight) | _TIMES * bool(columns.time) | _ATTRS * bool(columns.attr)
    numbers = (*shape, *widths, *(level.shape[-1] for level in columns.attr[:1]))
    head = _ANSWER.pack(b"LGS1", flags, sample.version, len(sample), sample.hops)
    head += struct.pack(f"<{len(numbers)}I", *numbers)
    parts: list[AnyArray] = [*vertices, *([sample.edge_ids(k) for k in levels] if edge_ids else ()), *columns.time]
    parts += [*rows, *columns.weight, *columns.attr]
    return b"".join([head, bytes(-len(head) % 8), *[np.ascontiguousarray(part).data for part in parts]])


def decode_sample(body: bytes) -> FrameSample:
    """Reads an answer; the arrays are views of the body. Raises: ValueInvalid."""
    magic, flags, version, count, hops = _answer_head(body)
    number_count = 2 * hops + 1 + bool(flags & _ATTRS)
    if magic != b"LGS1" or len(body) < _ANSWER.size + 4 * number_count:
        raise _damaged("a sample that begins with LGS1 and has its shape", f"{body[:24]!r} in {len(body)} bytes")
    numbers = struct.unpack_from(f"<{number_count}I", body, _ANSWER.size)
    shapes: list[tuple[int, ...]] = [(count,)]
    for fanout in numbers[:hops]:
        shapes.append((*shapes[-1], fanout))
    at = _ANSWER.size + 4 * number_count
    at += -at % 8

    def taken(there: int, shapes: Iterable[tuple[int, ...]], dtype: np.dtype[Any]) -> tuple[AnyArray, ...]:
        nonlocal at
        arrays: list[AnyArray] = []
        for shape in shapes if there else ():
            size = int(np.prod(shape, dtype=object))
            if at + size * dtype.itemsize > len(body):
                raise _damaged("a sample with all of its arrays", f"{len(body)} bytes")
            arrays.append(np.frombuffer(body, dtype, size, at).reshape(shape))
            at += size * dtype.itemsize
        return tuple(arrays)

    of_edges, widths = shapes[1:], numbers[hops : 2 * hops + 1]
    vertices, edge_ids = taken(True, of_edges, _INT64), taken(flags & _EDGE_IDS, of_edges, _INT64)
    times = taken(flags & _TIMES, of_edges, _INT64)
    rows = [(*shape, width) for shape, width in zip(shapes, widths, strict=True)]
    features = taken(flags & _FEATURES, rows, _FLOAT32)
    weights = taken(flags & _WEIGHTS, of_edges, _FLOAT32)
    attrs = taken(flags & _ATTRS, [(*shape, numbers[-1]) for shape in of_edges], _FLOAT32)
    return FrameSample(version, vertices, edge_ids, features, weights, times, attrs)


def encode_prediction(prediction: Prediction) -> bytes:
    """An answer's body."""
    values = np.ascontiguousarray(prediction.values, _FLOAT32)
    return _ANSWER.pack(b"LGP1", 0, prediction.version, *values.shape) + values.tobytes()


def decode_prediction(body: bytes) -> Prediction:
    """Reads an answer; the values are a view of the body. Raises: ValueInvalid."""
    magic, _, version, count, columns = _answer_head(body)
    if magic != b"LGP1" or len(body) != _ANSWER.size + 4 * count * columns:
        raise _damaged("a prediction that begins with LGP1 and has all of its values", f"{len(body)} bytes")
    return Prediction(np.frombuffer(body, _FLOAT32, -1, _ANSWER.size).reshape(count, columns), version)


def _answer_head(body: bytes) -> tuple[bytes, int, int, int, int]:
    if len(body) < _ANSWER.size:
        raise _damaged(f"an answer of at least {_ANSWER.size} bytes", f"{len(body)}")
    magic, flags, version, count, last = _ANSWER.unpack_from(body)
    return magic, flags, version, count, last


def _damaged(expected: str, got: str) -> ValueInvalid:
    return ValueInvalid(f"[frame] expected {expected}, got {got}; see livegnn.serve.frames for the form")
