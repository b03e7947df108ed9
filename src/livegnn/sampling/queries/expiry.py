"""How long edges count: a duration in the unit of their times, one for all edges or one for each edge type."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from livegnn.errors import QueryInvalid, ValueInvalid
from livegnn.graph.checks import shown
from livegnn.sampling.queries.decompose import OneHop
from livegnn.sampling.queries.hop import EdgeTypeName
from livegnn.sampling.queries.schema import Schema

Ttl = int | Mapping[EdgeTypeName, int] | None

_DURATION_MAX = 2**62


def durations(ttl: Ttl, schema: Schema) -> Mapping[int | None, int]:
    """Durations by edge type code; the key None is for types without one of their own. 0: never.

    Raises:  QueryInvalid for an unknown type or a graph without times; ValueInvalid for a duration below 1.
    """
    if ttl is None:
        return {}
    if not schema.has_time:
        raise QueryInvalid("[ttl] expected edges with times, got a graph without; give it time=, or leave ttl out")
    found: dict[int | None, int] = {}
    for name, given in (ttl if isinstance(ttl, Mapping) else {None: ttl}).items():
        duration = _duration(name, given)
        if name is None or (type(name) is int and schema.integer_types):
            found[name] = duration
            continue
        types = schema.named(name)
        if not types:
            there = ", ".join(schema.label(edge_type.code) for edge_type in schema.named(None)) or "none"
            raise QueryInvalid(f"[ttl] expected an edge type of the graph ({there}), got {shown(name)}; fix the name")
        found.update((edge_type.code, duration) for edge_type in types)
    return found


def of_hop(one_hop: OneHop, by_type: Mapping[int | None, int], schema: Schema) -> int:
    """The duration of a one-hop query's edges, 0 for none.

    Raises:  QueryInvalid for a hop over all edges where types differ in their durations.
    """
    default = by_type.get(None, 0)
    if one_hop.edge_type is not None:
        return by_type.get(one_hop.edge_type, default)
    every = {by_type.get(edge_type.code, default) for edge_type in schema.named(None)}
    if len(every) == 1:
        return every.pop()
    others = {code: duration for code, duration in by_type.items() if code is not None and duration != default}
    if others:
        raise QueryInvalid(
            f"[ttl] expected one duration for hop {one_hop.hop}, which follows edges of every type, got {others} "
            f"next to {default}; name the edge type of the hop, or give one ttl for all"
        )
    return default


def _duration(name: object, value: object) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and 1 <= value <= _DURATION_MAX:
        return int(value)
    which = "" if name is None else f" for edge type {shown(name)}"
    raise ValueInvalid(
        f"[ttl] expected a duration from 1 to 2^62{which}, in the unit of the times, got {shown(value)}; fix it"
    )
