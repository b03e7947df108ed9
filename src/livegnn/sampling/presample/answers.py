"""Between ids and slots, plans and native calls: what every way of answering a query shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from livegnn import _native
from livegnn._native import HopDirection, SampleBy
from livegnn.errors import ValueInvalid, VersionPending, VertexUnknown
from livegnn.graph import Graph
from livegnn.graph.checks import id_array, is_text, text_list
from livegnn.sampling.queries.decompose import OneHop
from livegnn.types import AnyArray, Float32Array, Int64Array

_BY = {"random": SampleBy.Random, "top_k": SampleBy.TopK, "weighted": SampleBy.Weighted}
_DIRECTIONS = {"out": HopDirection.Out, "in_": HopDirection.In, "both": HopDirection.Both}
_ANY_TYPE = -1
_ATTEMPTS = 3
_VALUES_MAX = 2**31


class Response(NamedTuple):
    """Vertices and columns of edges per hop, features per level, seeds first; () where left out."""

    version: int
    vertices: Sequence[Int64Array]
    edge_ids: Sequence[Int64Array]
    features: Sequence[Float32Array]
    edge_weights: Sequence[Float32Array] = ()
    edge_times: Sequence[Int64Array] = ()
    edge_attrs: Sequence[Float32Array] = ()


def native_hop(one_hop: OneHop, ttl: int) -> _native.OneHop:
    """A one-hop query as the core takes it."""
    return _native.OneHop(
        hop=one_hop.hop,
        edge_type=_ANY_TYPE if one_hop.edge_type is None else one_hop.edge_type,
        direction=_DIRECTIONS[one_hop.direction],
        by=_BY[one_hop.by],
        fanout=one_hop.fanout,
        ttl=ttl,
    )


def check_seed(where: str, seed: object) -> None:
    """Refuses what is no seed of ranks. Raises: ValueInvalid."""
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ValueInvalid(f"[{where}] expected a seed from 0 to 2^64 - 1, got {seed!r}; give a whole number")


def check_size(where: str, fanouts: Iterable[int], seeds: int = 1) -> None:
    """Refuses answers that are too large. Raises: ValueInvalid."""
    values = seeds * math.prod(fanouts)
    if values > _VALUES_MAX:
        size = f"{values * 8 / 2**30:,.0f} GiB of vertices alone"
        raise ValueInvalid(
            f"[{where}] expected an answer of at most 2^31 places in the last hop, got {values:,} ({size}); "
            "ask for fewer seeds at once, or sample less"
        )


def answered(
    graph: Graph | None, vertex_type: str | None, seeds: object, ask: Callable[[Int64Array, int | None], Response]
) -> tuple[AnyArray, Response, list[AnyArray] | None]:
    """The seeds by the graph's ids, what `ask` gives for their slots, and its vertices by their ids (None: slots).

    Ids and the answer are of one version. That is tried without waiting for a batch under way; if the ids move
    meanwhile, the batch is waited for.  ask: slots, and the version that it has to reach (None: any will do).

    Raises:  VertexUnknown, DtypeInvalid, naming the row; VersionPending inside a callback of a batch that the source
             has not followed yet.
    """
    if graph is None or (not graph.has_ids and graph.vertex_types is None):
        slots = id_array("sample", "seeds", seeds).copy()  # the caller may go on writing to its array
        return slots, ask(slots, None), None
    for _ in range(_ATTEMPTS):
        version = graph.host.ids_version
        try:
            found = _look_up(graph, vertex_type, seeds, version, ask)
        except (VertexUnknown, IndexError):  # perhaps of a version that is half there: the last word is below
            break
        if graph.host.ids_version == version == found[1].version:
            return found
    with graph.host.lock:
        version = graph.host.ids_version
        found = _look_up(graph, vertex_type, seeds, version, ask)
    if len(found[0]) and found[1].version < version:  # an answer of no seeds is of no version
        raise VersionPending(
            f"[sample] expected samples of version {version}, which the graph's ids are of, got {found[1].version}; "
            "sample after the batch, not in a callback"
        )
    return found


def _look_up(
    graph: Graph,
    vertex_type: str | None,
    seeds: object,
    version: int,
    ask: Callable[[Int64Array, int | None], Response],
) -> tuple[AnyArray, Response, list[AnyArray]]:
    given = seed_names(seeds)
    answer = ask(graph.host.ids.slots("sample", given, vertex_type), version)
    return given, answer, _names_of(graph, answer.vertices)


def seed_names(seeds: object) -> AnyArray:
    """Seeds as an array of the user's own ids, int64 or strings, that no other code writes to.

    Raises:  DtypeInvalid, ValueInvalid.
    """
    if is_text(seeds):
        return np.array(text_list("sample", "seeds", seeds), object)
    return id_array("sample", "seeds", seeds).copy()


def _names_of(graph: Graph, levels: Sequence[Int64Array]) -> list[AnyArray]:
    """The levels by the graph's own ids, -1 or None where there is no vertex."""
    flat = np.concatenate([level.reshape(-1) for level in levels])
    places: Int64Array | slice = slice(None)
    slots = flat
    if graph.vertex_types is None:  # ids in a list, looked up one by one: each once
        slots, places = np.unique(flat, return_inverse=True)
    there = slots >= 0
    found = graph.host.ids.external(slots[there])
    names: AnyArray = np.empty(len(slots), found.dtype)
    names[there] = found
    names[~there] = None if found.dtype == object else -1
    named, parts, start = names[places], [], 0
    for level in levels:
        parts.append(named[start : start + level.size].reshape(level.shape))
        start += level.size
    return parts
