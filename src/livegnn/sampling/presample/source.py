"""SampleSource: the read contract of everything that samples come from, and its arguments, in one place.

A source answers in slots (`answer`). What all sources share is here: the check of the arguments, the query that is
meant, the waiting for a version, the way between ids and slots, and the Sample made of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple, TypedDict

from livegnn.errors import UsageError
from livegnn.graph import Graph, checks
from livegnn.sampling.presample.answers import Response, answered
from livegnn.sampling.presample.sample import NO_COLUMNS, EdgeDataSpec, EdgeLevels, Sample
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.plan import Plan, PlannedQuery
from livegnn.sampling.queries.schema import Schema
from livegnn.types import Int64Array


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
