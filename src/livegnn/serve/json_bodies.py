"""JSON bodies: what a request may say, and answers.

    request  = { "seeds": [integer | string, ...], "query": integer, "features": bool, "edge_ids": bool,
                 "edge_data": bool, "at_least": integer, "timeout_ms": number }    all but seeds may be left out
    updates  = { "updates": [ { "op": name of a method of Updates, its arguments by name }, ... ] }
               where "time" is an integer, or text: a date in ISO 8601 becomes microseconds since 1970, as in files,
               or counts in the unit of the graph's times, where they were given as numpy.datetime64

Unknown keys are refused. Answers are written in pieces of a bounded size, so that a large one, written in a thread,
lets the event loop go on in between.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from livegnn.documents import DocumentFault, converted
from livegnn.errors import UpdateError
from livegnn.files import microseconds, whole_number
from livegnn.graph import Updates
from livegnn.sampling import Prediction, Sample
from livegnn.sampling.presample.sample import NO_EDGES
from livegnn.serve.envelope import Refused
from livegnn.types import AnyArray

_PIECE = 4096  # numbers written at once
_NAMES = (
    "add_edge",
    "remove_edge",
    "remove_edges_before",
    "set_weight",
    "set_edge_attr",
    "set_features",
    "add_vertex",
    "remove_vertex",
)


class PredictBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a predict request may say."""

    seeds: list[int | str]
    at_least: int | None = None
    timeout_ms: int | float | None = None


class SampleBody(PredictBody, kw_only=True, forbid_unknown_fields=True):
    """What a sample request may say."""

    query: int | None = None
    features: bool = True
    edge_ids: bool = True
    edge_data: bool = True


class UpdatesBody(Struct, forbid_unknown_fields=True):
    """A batch of updates; Updates checks their arguments."""

    updates: list[dict[str, Any]]


Body = TypeVar("Body", bound=Struct)


def _signature(name: str) -> dict[str, bool]:
    """Arguments of a method of Updates, and whether each is needed."""
    parameters = list(inspect.signature(getattr(Updates, name)).parameters.values())[1:]
    return {one.name: one.default is inspect.Parameter.empty for one in parameters}


OPERATIONS: dict[str, dict[str, bool]] = {name: _signature(name) for name in _NAMES}


def decode_request(body: bytes, kind: type[PredictBody]) -> dict[str, Any]:
    """The fields of a sample or predict request by name. Raises: Refused."""
    found = _decoded(body, kind)
    if len(kinds := {type(seed).__name__ for seed in found.seeds}) > 1:
        raise _refused("seeds of one kind, integers or strings", " and ".join(sorted(kinds)), "keep one kind")
    return msgspec.structs.asdict(found)


def _decoded(body: bytes, kind: type[Body]) -> Body:
    try:
        return converted(msgspec.json.decode(body), kind)
    except DocumentFault as fault:
        raise Refused(400, "BodyInvalid", f"[body] {fault}; correct the body") from fault
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        got = str(cause).removeprefix("JSON is malformed: ")
        raise Refused(
            400, "BodyInvalid", f"[body] expected JSON, got malformed JSON: {got}; correct the body"
        ) from cause


def decode_updates(body: bytes, count_max: int, unit: str | None = None) -> Updates:
    """A batch of updates. unit: of the graph's times.

    Raises:  Refused, naming the update by its place; UpdateError of the update itself.
    """
    return updates_of(_decoded(body, UpdatesBody).updates, count_max, unit)


def updates_of(items: list[dict[str, Any]], count_max: int, unit: str | None = None) -> Updates:
    """A batch from its items. Raises: as decode_updates."""
    if not 1 <= len(items) <= count_max:
        raise Refused(
            413, "TooMany", f"[updates] expected from 1 to {count_max} updates in a batch, got {len(items)}; split it"
        )
    updates = Updates()
    for place, item in enumerate(items):
        _add(updates, place, item, unit)
    return updates


def _add(updates: Updates, place: int, item: dict[str, Any], unit: str | None) -> None:
    operation = item.get("op")
    known = OPERATIONS.get(operation) if isinstance(operation, str) else None
    if known is None:
        raise _refused(f"op from {', '.join(OPERATIONS)} in update {place}", f"{operation!r}", "use one of them")
    given = {key: value for key, value in item.items() if key != "op" and value is not None}
    unknown = [key for key in given if key not in known]
    missing = [key for key, needed in known.items() if needed and key not in given]
    if unknown or missing:
        got = f"unknown {', '.join(unknown)}" if unknown else f"no {', '.join(missing)}"
        raise _refused(f"{', '.join(known)} for {operation} in update {place}", got, "correct the update")
    if isinstance(given.get("edge_type"), list):
        given["edge_type"] = tuple(given["edge_type"])
    if isinstance(given.get("time"), str):
        given["time"] = _date(given["time"], str(operation), place, unit)
    add: Callable[..., None] = getattr(updates, str(operation))
    try:
        add(**given)
    except UpdateError:
        raise
    except (TypeError, ValueError, OverflowError) as cause:
        raise _refused(f"arguments that {operation} takes in update {place}", str(cause), "correct them") from cause


def _date(text: str, operation: str, place: int, unit: str | None) -> int:
    where = f"time of {operation} in update {place}"
    found = microseconds(text) if whole_number(text) is None else None
    if found is None:
        what = f"{where} as an integer or a date in ISO 8601"
        raise _refused(what, repr(text[:40]), "write it as 2026-05-31T12:30:00Z, or as a number without quotes")
    if unit is None:
        return found
    date = np.datetime64(found, "us")
    counted = date.astype(f"datetime64[{unit}]")
    if counted.astype("datetime64[us]") != date:  # rounded, or beyond int64
        raise _refused(f"{where} that datetime64[{unit}], the unit of the graph's times, holds", text, "round it")
    return int(counted.view(np.int64))


def encode_sample(sample: Sample, *, features: bool, edge_ids: bool, edge_data: bool = True) -> bytes:
    """{"version", "seeds", "hops": [level 1 ... K], "features": [level 0 ... K]}; as "hops", where the sample has them,
    "edge_ids", "edge_weights", "edge_times" and "edge_attrs".
    """
    levels = range(1, sample.hops + 1)
    weights, times, attrs = sample.edge_levels if edge_data else NO_EDGES
    nested: dict[str, Sequence[AnyArray]] = {
        "hops": [sample.hop(k) for k in levels],
        "edge_ids": [sample.edge_ids(k) for k in levels] if edge_ids else (),
        "edge_weights": weights,
        "edge_times": times,
        "edge_attrs": attrs,
        "features": [sample.features(k) for k in range(sample.hops + 1)] if features else (),
    }
    parts = [b'{"version":%d' % sample.version, *_levels("seeds", [sample.seeds])]
    for key, arrays in nested.items():
        if arrays:
            parts += _levels(key, arrays, nested=True)
    return b"".join([*parts, b"}"])


def encode_prediction(prediction: Prediction) -> bytes:
    """{"version", "predictions": (B, d)}; what is not finite is null."""
    return b"".join([b'{"version":%d' % prediction.version, *_levels("predictions", [prediction.values]), b"}"])


def _levels(key: str, arrays: Sequence[AnyArray], nested: bool = False) -> Iterator[bytes]:
    yield b',"%s":%s' % (key.encode(), b"[" if nested else b"")
    for number, array in enumerate(arrays):
        if number:
            yield b","
        yield from _pieces(array)
    if nested:
        yield b"]"


def _pieces(array: AnyArray) -> Iterator[bytes]:
    rows = max(1, _PIECE // max(1, array[:1].size))
    yield b"["
    for first in range(0, len(array), rows):
        if first:
            yield b","
        yield msgspec.json.encode(array[first : first + rows].tolist())[1:-1]  # null for what is not finite
    yield b"]"


def _refused(expected: str, got: str, instead: str) -> Refused:
    return Refused(400, "BodyInvalid", f"[body] expected {expected}, got {got}; {instead}")
