"""Between ids and slots, plans and native calls: what every way of answering a query shares."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from livegnn.graph import Graph
from livegnn.graph.checks import id_array, is_text, text_list
from livegnn.sampling.decompose import OneHop
from livegnn.sampling.plan import Plan, PlannedQuery
from livegnn.types import AnyArray, Int64Array

__all__ = ["HopNumbers", "held", "names_of", "native_hop", "seeds_of", "widths_of"]

HopNumbers = tuple[int, int, int, int, int, int]

_DIRECTIONS = {"out": 0, "in_": 1, "both": 2}
_STRATEGIES = {"random": 0, "top_k": 1, "weighted": 2}
_ANY_TYPE = -1


def native_hop(one_hop: OneHop, ttl: int) -> HopNumbers:
    """A one-hop query as the core takes it: hop, edge type, direction, strategy, fan-out, ttl."""
    edge_type = _ANY_TYPE if one_hop.edge_type is None else one_hop.edge_type
    return (
        one_hop.hop,
        edge_type,
        _DIRECTIONS[one_hop.direction],
        _STRATEGIES[one_hop.by],
        one_hop.fanout,
        ttl,
    )


def widths_of(graph: Graph, plan: Plan, planned: PlannedQuery) -> list[int]:
    """Feature columns of each level of a query."""
    types = (planned.query.vertex_type, *(plan.one_hop(table).to_type for table in planned.tables))
    widths = [plan.schema.columns_max(vertex_type) for vertex_type in types]
    return [graph.feature_width if width is None else width for width in widths]


def held(graph: Graph) -> AbstractContextManager[Any]:
    """Keeps batches away where ids are not slots, or a slot could go to another vertex between look-up and answer.

    A graph without ids of its own needs no such thing: its reads do not wait for a batch under way.
    """
    return graph._lock if graph.has_ids else nullcontext()


def seeds_of(graph: Graph, seeds: object) -> tuple[AnyArray, Int64Array]:
    """Seeds as an array of the user's own ids, and their slots, (B,). Raises: VertexUnknown, DtypeInvalid."""
    if not graph.has_ids:
        slots = id_array("sample", "seeds", seeds)
        return slots, slots
    slots = graph.to_slots(seeds)
    if is_text(seeds):
        return np.array(text_list("sample", "seeds", seeds), object), slots
    return id_array("sample", "seeds", seeds), slots


def names_of(graph: Graph, levels: Sequence[Int64Array]) -> list[AnyArray] | None:
    """The levels by the graph's own ids, -1 or None where there is no vertex; None where slots are the ids."""
    if not graph.has_ids:
        return None
    flat = np.concatenate([level.reshape(-1) for level in levels])
    slots, places = np.unique(flat, return_inverse=True)
    there = slots >= 0
    found = graph.to_external(slots[there])
    names: AnyArray = np.empty(len(slots), found.dtype)
    names[there] = found
    names[~there] = None if found.dtype == object else -1
    ends = np.cumsum([level.size for level in levels])
    parts = np.split(names[places.reshape(-1)], ends[:-1])
    return [part.reshape(level.shape) for part, level in zip(parts, levels, strict=True)]
