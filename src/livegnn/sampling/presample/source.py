"""SampleSource: the read contract of everything that samples come from, and its arguments, in one place.

A source answers in slots (`answer`). What all sources share is here: the check of the arguments, the query that is
meant, the waiting for a version, the way between ids and slots, and the Sample made of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import numpy as np

from livegnn import _native
from livegnn._native import HopDirection, SampleBy
from livegnn.errors import UsageError, ValueInvalid, VersionPending, VertexUnknown
from livegnn.graph import Graph, checks
from livegnn.graph.checks import id_array, is_text, text_list
from livegnn.sampling.presample.sample import NO_COLUMNS, EdgeDataSpec, EdgeLevels, Sample
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.decompose import OneHop
from livegnn.sampling.queries.plan import Plan, PlannedQuery
from livegnn.sampling.queries.schema import Schema
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


class ReadOptions(NamedTuple):
    """What a reader wants of a query, at least which version (None: any), and how many seconds to wait (None: ever)."""

    query: int
    features: bool = True
    edge_ids: bool = True
    at_least: int | None = None
    timeout: float | None = None
    edge_data: bool = True


class ReadArguments(TypedDict, total=False):
    """What SampleSource.sample takes by name."""

    query: int | None
    features: bool
    edge_ids: bool
    edge_data: bool
    at_least: int | None
    timeout: float | None


class SampleSource(ABC):
    """Where samples come from: a pre-sampler, a cluster, a serving worker. `sample` reads; a subclass says how.

    graph: whose ids the seeds and the samples have; None: both are slots.  edge_columns: columns of edges in samples.
    """

    graph: Graph | None = None
    edge_columns: EdgeDataSpec = NO_COLUMNS

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The queries and their tables."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The newest version that a reader can ask for."""

    def sample(
        self,
        seeds: object,
        *,
        query: int | None = None,
        features: bool = True,
        edge_ids: bool = True,
        edge_data: bool = True,
        at_least: int | None = None,
        timeout: float | None = 30.0,
    ) -> Sample:
        """The samples of a batch of seeds, in their order, all of one version; does not wait for a batch under way.

        Args:    seeds: (B,) ids of live vertices of the query's vertex type, repeats allowed; slots where `graph` is
                 None.  query: its number where several run.  features, edge_ids, edge_data (weights, times and
                 attributes of edges, where the source keeps them): False leaves them out, and saves their time.
                 at_least: the smallest version that will do.  timeout: seconds to wait for it, and for workers
                 that are being replaced; None for ever.
        Raises:  VertexUnknown, naming the row; DtypeInvalid, ValueInvalid; UsageError; VersionPending if at_least is
                 not reached in time; WorkerUnavailable.
        """
        plan = self.plan
        asked: ReadArguments = {
            "query": query,
            "features": features,
            "edge_ids": edge_ids,
            "edge_data": edge_data,
            "at_least": at_least,
            "timeout": checks.timeout("sample", timeout),
        }
        options = read_options("sample", plan, asked)
        planned = plan.query(options.query)
        if options.at_least is not None:
            self.wait_for(options.at_least, options.timeout)

        def ask(slots: Int64Array, version: int | None) -> Response:
            return self.answer(slots, options if version is None else options._replace(at_least=version))

        given, response, names = answered(self.graph, planned.query.vertex_type, seeds, ask)
        return Sample(planned, plan, given, *response[:4], names, EdgeLevels(*response[4:]))

    @abstractmethod
    def wait_for(self, version: int, timeout: float | None) -> None:
        """Returns once `version` can be read, or at once where `answer` waits. Raises: VersionPending."""

    @abstractmethod
    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """What `sample` makes a Sample of. Raises: as sample."""


def graph_facts(
    where: str, graph: Graph, ttl: expiry.Ttl, edge_data: bool
) -> tuple[Schema, Mapping[int | None, int], EdgeDataSpec]:
    """What queries of a graph need to know of it: its schema, durations of edges, and the columns that samples carry.

    Raises:  UsageError; DtypeInvalid; as expiry.durations.
    """
    if not isinstance(graph, Graph):
        raise UsageError(f"[{where}] expected a Graph, got {type(graph).__name__}; make one with livegnn.Graph")
    schema, columns = Schema.of(graph), NO_COLUMNS
    if checks.flag(where, "edge_data", edge_data):
        columns = EdgeDataSpec(graph.has_weight, graph.has_time, graph.attr_width)
    return schema, expiry.durations(ttl, schema), columns


def read_options(where: str, plan: Plan, asked: ReadArguments) -> ReadOptions:
    """The arguments of a read, checked all but the timeout. Raises: UsageError; DtypeInvalid; ValueInvalid."""
    flags = (checks.flag(where, name, asked.get(name, True)) for name in ("features", "edge_ids", "edge_data"))
    features, edge_ids, edge_data = flags
    least = asked.get("at_least")
    version = None if least is None else checks.version(where, "at_least", least)
    number = planned_query(plan, asked.get("query"), where).number
    return ReadOptions(number, features, edge_ids, version, asked.get("timeout"), edge_data)


def planned_query(plan: Plan, query: int | None, where: str = "sample") -> PlannedQuery:
    """The query of this number; None means the only one. Raises: UsageError."""
    if query is None and len(plan.queries) == 1:
        return plan.queries[0]
    return plan.query(query, where)


# ---- between ids and slots, plans and native calls


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
