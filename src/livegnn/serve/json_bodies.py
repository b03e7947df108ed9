"""JSON bodies: what a request may say, and answers.

    request  = { "seeds": [integer | string, ...], "query": integer, "features": bool, "edge_ids": bool,
                 "at_least": integer, "timeout_ms": number }                     all but seeds may be left out or null
    updates  = { "updates": [ { "op": name of a method of Updates, its arguments by name }, ... ] }

Unknown keys are refused. Answers are written in pieces of a bounded size, so that a large one, written in a thread,
lets the event loop go on in between.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from livegnn.errors import UpdateError
from livegnn.graph import Updates
from livegnn.sampling import Prediction, Sample
from livegnn.serve.envelope import Refused
from livegnn.types import AnyArray

__all__ = ["OPERATIONS", "decode", "decode_request", "decode_updates", "encode_prediction", "encode_sample"]

_PIECE = 4096  # numbers written at once
_REQUEST_KEYS = {
    "seeds": (list,),
    "query": (int, type(None)),
    "features": (bool,),
    "edge_ids": (bool,),
    "at_least": (int, type(None)),
    "timeout_ms": (int, float, type(None)),
}
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


def _signature(name: str) -> dict[str, bool]:
    """Arguments of a method of Updates, and whether each is needed."""
    parameters = list(inspect.signature(getattr(Updates, name)).parameters.values())[1:]
    return {one.name: one.default is inspect.Parameter.empty for one in parameters}


OPERATIONS: dict[str, dict[str, bool]] = {name: _signature(name) for name in _NAMES}


def decode(body: bytes) -> dict[str, Any]:
    """A body as a JSON object. Raises: Refused."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as cause:
        raise Refused(400, "BodyInvalid", f"[body] expected JSON, got {cause}; mend the body") from cause
    if not isinstance(found, dict):
        raise Refused(400, "BodyInvalid", f"[body] expected a JSON object, got {_kind(found)}; put it into one")
    return found


def decode_request(body: bytes, keys: tuple[str, ...]) -> dict[str, Any]:
    """Those of these keys of a sample or predict request that were given, seeds among them. Raises: Refused."""
    found = decode(body)
    for key, value in found.items():
        if key not in keys:
            raise _refused(f"keys from {', '.join(keys)}", repr(key[:40]), "leave it out")
        allowed = _REQUEST_KEYS[key]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
            raise _refused(f"{key} as {names}", _kind(value), "mend the value")
    if "seeds" not in found:
        raise _refused("seeds, a list of ids", "none", 'as in {"seeds": [0, 1]}')
    kinds = {type(seed) for seed in found["seeds"]}
    if kinds - {int} and kinds - {str}:
        raise _refused(
            "seeds of one kind, integers or strings", ", ".join(sorted(k.__name__ for k in kinds)), "mend it"
        )
    return found


def decode_updates(body: bytes, count_max: int) -> Updates:
    """A batch of updates. Raises: Refused, naming the update by its place; UpdateError of the update itself."""
    found = decode(body)
    if set(found) != {"updates"} or not isinstance(found["updates"], list):
        raise _refused("one key, updates, a list", ", ".join(map(repr, found)) or "none", "mend the body")
    items = found["updates"]
    if not 1 <= len(items) <= count_max:
        raise Refused(
            413, "TooMany", f"[updates] expected from 1 to {count_max} updates in a batch, got {len(items)}; split it"
        )
    updates = Updates()
    for place, item in enumerate(items):
        _add(updates, place, item)
    return updates


def _add(updates: Updates, place: int, item: object) -> None:
    operation = item.get("op") if isinstance(item, dict) else None
    known = OPERATIONS.get(operation) if isinstance(operation, str) else None
    if not isinstance(item, dict) or known is None:
        raise _refused(f"op from {', '.join(OPERATIONS)} in update {place}", f"{operation!r}", "use one of them")
    given = {key: value for key, value in item.items() if key != "op" and value is not None}
    unknown = [key for key in given if key not in known]
    missing = [key for key, needed in known.items() if needed and key not in given]
    if unknown or missing:
        got = f"unknown {', '.join(unknown)}" if unknown else f"no {', '.join(missing)}"
        raise _refused(f"{', '.join(known)} for {operation} in update {place}", got, "mend the update")
    if isinstance(given.get("edge_type"), list):
        given["edge_type"] = tuple(given["edge_type"])
    add: Callable[..., None] = getattr(updates, str(operation))
    try:
        add(**given)
    except UpdateError:
        raise
    except (TypeError, ValueError, OverflowError) as cause:
        raise _refused(f"arguments that {operation} takes in update {place}", str(cause), "mend them") from cause


def encode_sample(sample: Sample, *, features: bool, edge_ids: bool) -> bytes:
    """{"version", "seeds", "hops": [level 1 ... K], "edge_ids": likewise, "features": [level 0 ... K]}."""
    levels = range(1, sample.hops + 1)
    parts = [b'{"version":%d' % sample.version, *_levels("seeds", [sample.seeds])]
    parts += _levels("hops", [sample.hop(k) for k in levels], nested=True)
    if edge_ids:
        parts += _levels("edge_ids", [sample.edge_ids(k) for k in levels], nested=True)
    if features:
        parts += _levels("features", [sample.features(k) for k in range(sample.hops + 1)], nested=True)
    return b"".join([*parts, b"}"])


def encode_prediction(prediction: Prediction) -> bytes:
    """{"version", "predictions": (B, d)}; what is not finite is null."""
    return b"".join([b'{"version":%d' % prediction.version, *_levels("predictions", [prediction.values]), b"}"])


def _levels(key: str, arrays: list[AnyArray], nested: bool = False) -> Iterator[bytes]:
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
        yield _text(array[first : first + rows].tolist())[1:-1]
    yield b"]"


def _text(values: list[Any]) -> bytes:
    try:
        return json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # a model may give what JSON has no word for
        return json.dumps(_finite(values), separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if value is None or abs(value) < float("inf") else None


def _kind(value: object) -> str:
    return "null" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"


def _refused(expected: str, got: str, instead: str) -> Refused:
    return Refused(400, "BodyInvalid", f"[body] expected {expected}, got {got}; {instead}")
