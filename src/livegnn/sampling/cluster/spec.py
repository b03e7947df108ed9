"""What all workers of a cluster agree on: queries, the graph's types and columns, seed, expiry. A value, also as JSON.

{ "livegnn_cluster": 1, "queries": [query, ...], "schema": {...}, "feature_width": integer, "seed": integer,
  "ttl": [[edge type code or null, duration], ...], "edge_columns": [bool, bool, integer], "feature_dtype": string }

query: as in as_json.py.  edge_columns: weight, time, attributes of edges that samples carry; none if left out
feature_dtype: float32 if left out
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from livegnn import _native
from livegnn._native import EdgePolicy
from livegnn.documents import DocumentFault, converted
from livegnn.errors import QueryInvalid, UsageError
from livegnn.graph import Graph
from livegnn.sampling.presample.sample import NO_COLUMNS, EdgeDataSpec
from livegnn.sampling.presample.source import check_seed, check_size, graph_facts, native_hop
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.plan import Plan
from livegnn.sampling.queries.query import Query
from livegnn.sampling.queries.schema import EdgeType, Schema

JSON_VERSION = 1
_ANY = -1


class _SchemaDocument(Struct, forbid_unknown_fields=True):
    vertex_types: tuple[str, ...] | None
    edge_types: dict[str, EdgeType] | None
    integer_types: bool
    has_time: bool
    has_weight: bool
    undirected: bool
    feature_width: int | dict[str, int] | None


class _SpecDocument(Struct, forbid_unknown_fields=True):
    livegnn_cluster: Literal[1]
    queries: list[dict[str, Any]]
    schema: _SchemaDocument
    feature_width: int
    seed: int
    ttl: list[tuple[int | None, int]]
    edge_columns: EdgeDataSpec = NO_COLUMNS  # not in files of livegnn 0.1, nor is
    feature_dtype: str = "float32"


@dataclass(frozen=True)
class ClusterSpec:
    """The agreement of a cluster's workers; `ClusterSpec.of(graph, queries)` makes one.

    Args:    queries: at least one, numbered from 1.  schema: of the graph.  feature_width: F, of the widest type.
             seed: 0 to 2^64 - 1.  ttl: durations by code of edge type, None for types without one of their own.
             edge_columns: columns of edges that samples carry.  feature_dtype: that the graph rounds features to.
    Raises:  QueryInvalid for a query that the graph cannot answer; ValueInvalid.
    """

    queries: tuple[Query, ...]
    schema: Schema
    feature_width: int
    seed: int = 0
    ttl: Mapping[int | None, int] = field(default_factory=dict, hash=False)
    edge_columns: EdgeDataSpec = NO_COLUMNS
    feature_dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", tuple(self.queries))
        object.__setattr__(self, "ttl", MappingProxyType(dict(self.ttl)))
        if not self.queries:
            raise QueryInvalid("[cluster] expected at least one query, got none; make one with lg.query()")
        check_seed("cluster", self.seed)
        for table in self.plan.tables:
            expiry.of_hop(table.one_hop, self.ttl, self.schema)
        for query in self.queries:
            check_size("cluster", (hop.fanout for hop in query.hops))

    @classmethod
    def of(
        cls,
        graph: Graph,
        queries: Query | Iterable[Query],
        *,
        seed: int = 0,
        ttl: expiry.Ttl = None,
        edge_data: bool = False,
    ) -> Self:
        """The spec for a graph. ttl, edge_data: as PreSampler takes them. Raises: as the class; UsageError."""
        schema, durations, columns = graph_facts("cluster", graph, ttl, edge_data)
        many = (queries,) if isinstance(queries, Query) else tuple(queries)
        return cls(many, schema, graph.feature_width, seed, durations, columns, graph.feature_dtype)

    @cached_property
    def plan(self) -> Plan:
        """The one-hop queries and what feeds what."""
        return Plan.of(self.queries, self.schema)

    @cached_property
    def places(self) -> dict[int, int]:
        """Place, from 0, of each table by its number in the plan: how messages and native tables name it."""
        return {table.number: place for place, table in enumerate(self.plan.tables)}

    @property
    def policy(self) -> EdgePolicy:
        """Which ends of an edge decide where it is kept."""
        directions = {table.one_hop.direction for table in self.plan.tables}
        if self.schema.undirected or directions not in ({"out"}, {"in_"}):
            return EdgePolicy.Both
        return EdgePolicy.BySource if directions == {"out"} else EdgePolicy.ByDestination

    @property
    def fanouts(self) -> list[int]:
        """By place of the table."""
        return [table.one_hop.fanout for table in self.plan.tables]

    @property
    def weighted_types(self) -> list[int]:
        """Codes of edge types that are sampled by weight, -1 for all: negative weights of these are refused."""
        hops = [table.one_hop for table in self.plan.tables if table.one_hop.by == "weighted"]
        return [_ANY if hop.edge_type is None else hop.edge_type for hop in hops]

    def tables_of(self, query: int) -> list[int]:
        """Places of a query's tables, hop by hop. Raises: UsageError for a query that is not there."""
        return [self.places[number] for number in self.plan.query(query).tables]

    def widths_of(self, query: int) -> list[int]:
        """Feature columns of each level of a query, seeds first. Raises: UsageError for a query that is not there."""
        planned = self.plan.query(query)
        return self.plan.level_widths(planned) or [self.feature_width] * (1 + len(planned.tables))

    def new_store(self) -> _native.GraphStore:
        """An empty store for a partition: no features, and duplicates as the history has them."""
        schema = self.schema
        return _native.GraphStore(
            has_weight=schema.has_weight,
            has_time=schema.has_time,
            has_type=schema.vertex_types is not None or schema.integer_types or bool(schema.edge_types),
            attr_width=self.edge_columns.attr_width,
            undirected=schema.undirected,
            **schema.of_ids().store_options(),
        )

    def new_tables(self) -> _native.ServingTables:
        """Empty tables for a serving worker, in memory."""
        columns = _native.EdgeColumns(**self.edge_columns._asdict())
        return _native.ServingTables(self.fanouts, self.feature_width, columns)

    def add_tables(self, reservoirs: _native.Reservoirs) -> list[_native.SubscribedTable]:
        """Adds a table for each one-hop query, in their order.

        Returns: for each its number in the reservoirs, its hop, the places of the tables that it feeds, and the codes
                 of the types of its seeds (-1: any).
        """
        added = []
        for table in self.plan.tables:
            hop = table.one_hop
            number = reservoirs.add_table(native_hop(hop, expiry.of_hop(hop, self.ttl, self.schema)))
            feeds = [self.places[fed] for fed in self.plan.feeds(table.number)]
            types = self._seed_types(table.number) if hop.hop == 1 else []
            added.append(_native.SubscribedTable(reservoir=number, hop=hop.hop, feeds=feeds, seed_types=types))
        return added

    def _seed_types(self, table: int) -> list[int]:
        """Codes of the vertex types that the queries of a table at hop 1 begin at."""
        types = self.schema.vertex_types
        names = [planned.query.vertex_type for planned in self.plan.queries if planned.tables[0] == table]
        return [_ANY] if types is None else sorted({types.index(str(name)) for name in names})

    # ---- as JSON

    def to_json(self) -> str:
        """This value as one line of JSON."""
        document = {
            "livegnn_cluster": JSON_VERSION,
            "queries": [json.loads(query.to_json()) for query in self.queries],
            "schema": vars(self.schema),
            "feature_width": self.feature_width,
            "seed": self.seed,
            "ttl": list(self.ttl.items()),
            "edge_columns": self.edge_columns,
            "feature_dtype": self.feature_dtype,
        }
        return json.dumps(document, default=dict)  # of the views of mappings

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Self:
        """The value that to_json() wrote, or the object decoded from it. Raises: UsageError; QueryInvalid."""
        try:
            found = converted(msgspec.json.decode(text) if isinstance(text, str) else text, _SpecDocument)
            queries = tuple(Query.from_json(query) for query in found.queries)
            schema = Schema(**msgspec.structs.asdict(found.schema))
            ttl, columns = dict(found.ttl), found.edge_columns
            return cls(queries, schema, found.feature_width, found.seed, ttl, columns, found.feature_dtype)
        except (msgspec.DecodeError, DocumentFault) as cause:
            raise UsageError(
                f"[cluster] expected the JSON of a cluster, got what is none ({cause}); write it anew"
            ) from cause
