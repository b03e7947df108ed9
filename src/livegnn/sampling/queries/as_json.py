"""Queries as JSON: one object, schema-versioned, read strictly.

    { "livegnn_query": 1, "vertex_type": string | null, "alias": string | null, "hops": [ hop, ... ] }
    hop = { "direction": "out" | "in_" | "both", "edge_type": string | [string, string, string] | integer | null,
            "fanout": integer, "by": "random" | "top_k" | "weighted" }

`vertex_type`, `alias` and `edge_type` may be left out for null. Unknown and repeated keys are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from livegnn.errors import QueryInvalid
from livegnn.graph.checks import shown
from livegnn.sampling.queries.hop import (
    HOP_FAULTS,
    Hop,
    Parts,
    hops_fault,
    length_fault,
    name_fault,
    nearest,
    whole,
)

JSON_VERSION = 1
_QUERY_KEYS = ("livegnn_query", "vertex_type", "alias", "hops")
_HOP_KEYS = ("direction", "edge_type", "fanout", "by")


def to_json(parts: Parts) -> str:
    """The query as one line of JSON."""
    vertex_type, hops, alias = parts
    values = (JSON_VERSION, vertex_type, alias, [vars(hop) for hop in hops])
    return json.dumps(dict(zip(_QUERY_KEYS, values, strict=True)), ensure_ascii=False)


def from_json(document: str | Mapping[str, Any]) -> Parts:
    """The parts of the query that a JSON text, or the object decoded from one, writes.

    Raises:  QueryInvalid, naming the path: "hops[1].fanout".
    """
    found = _object(_decoded(document) if isinstance(document, str) else document, "", _QUERY_KEYS)
    version = _required(found, "livegnn_query", "")
    if whole(version) != JSON_VERSION:
        _refuse(f"expected version {JSON_VERSION}, got {shown(version)}; write it anew", "livegnn_query")
    vertex_type, alias, hops = found.get("vertex_type"), found.get("alias"), _required(found, "hops", "")
    for key, value in (("vertex_type", vertex_type), ("alias", alias)):
        if value is not None:
            _check(name_fault("a name", value), key)
    if not isinstance(hops, list):
        _refuse(f"expected a list of hops, got {shown(hops)}; write [] for none", "hops")
    _check(hops_fault(len(hops)), "hops")
    return vertex_type, tuple(_hop(hop, f"hops[{place}]") for place, hop in enumerate(hops)), alias


def _hop(value: object, path: str) -> Hop:
    found = _object(value, path, _HOP_KEYS)
    parts = {key: _required(found, key, path) for key in ("direction", "fanout", "by")}
    edge_type = found.get("edge_type")
    parts["edge_type"] = tuple(edge_type) if isinstance(edge_type, list) else edge_type
    for key, fault_of in HOP_FAULTS.items():
        _check(fault_of(parts[key]), f"{path}.{key}")
    return Hop(**parts)


def _decoded(text: str) -> Any:
    _check(length_fault(text), "")
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except QueryInvalid:
        raise
    except (ValueError, RecursionError) as error:
        raise QueryInvalid(f"[query json] expected a JSON object, got {shown(text)} ({error}); fix it") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        _refuse(f"expected each key once, got {shown(repeated)} {keys.count(repeated)} times; keep one", "")
    return found


def _object(value: object, path: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(f"expected an object with the keys {', '.join(keys)}, got {shown(value)}; write one", path)
    for key in value:
        if key not in keys:
            close = nearest(key, keys) if isinstance(key, str) else None
            advice = f"did you mean {close!r}?" if close else "take it out"
            _refuse(f"expected the keys {', '.join(keys)}, got {shown(key)}; {advice}", path)
    return value


def _required(found: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in found:
        _refuse(f"expected the key {key!r}, got {shown(list(found))}; add it", path)
    return found[key]


def _check(fault: str | None, path: str) -> None:
    if fault:
        _refuse(fault, path)


def _refuse(problem: str, path: str) -> NoReturn:
    raise QueryInvalid(f"[query json{', ' if path else ''}{path}] {problem}")
