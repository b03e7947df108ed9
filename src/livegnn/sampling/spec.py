"""What all workers of a cluster agree on: queries, the graph's types and columns, seed, expiry. A value, also as JSON.

{ "livegnn_cluster": 1, "queries": [query, ...], "schema": {...}, "feature_width": integer, "seed": integer,
  "ttl": [[edge type code or null, duration], ...] }                    query: as in query_json.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from livegnn import _native
from livegnn.errors import QueryInvalid, UsageError
from livegnn.graph import Graph
from livegnn.sampling import expiry
from livegnn.sampling.answers import check_seed, check_size, native_hop
from livegnn.sampling.plan import Plan, PlannedQuery
from livegnn.sampling.query import Query
from livegnn.sampling.schema import EdgeType, Schema

__all__ = ["ClusterSpec"]

JSON_VERSION = 1
_BY_SOURCE, _BY_DESTINATION, _BY_EITHER = 0, 1, 2
_ANY = -1


@dataclass(frozen=True)
class ClusterSpec:
    """The agreement of a cluster's workers; `ClusterSpec.of(graph, queries)` makes one.

    Args:    queries: at least one, numbered from 1.  schema: of the graph.  feature_width: F, of the widest type.
             seed: 0 to 2^64 - 1.  ttl: durations by code of edge type, None for types without one of their own.
    Raises:  QueryInvalid for a query that the graph cannot answer; ValueInvalid.
    """

    queries: tuple[Query, ...]
    schema: Schema
    feature_width: int
    seed: int = 0
    ttl: Mapping[int | None, int] = field(default_factory=dict, hash=False)

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
    def of(cls, graph: Graph, queries: Query | Iterable[Query], *, seed: int = 0, ttl: expiry.Ttl = None) -> Self:
        """The spec for a graph. ttl: as PreSampler takes it. Raises: as the class; UsageError."""
        if not isinstance(graph, Graph):
            raise UsageError(f"[cluster] expected a Graph, got {type(graph).__name__}; make one with livegnn.Graph")
        if graph.feature_dtype != "float32":
            raise UsageError(
                f'[cluster] expected a graph with feature_dtype="float32", got "{graph.feature_dtype}"; make it with '
                "that, as workers keep no features in 16 bits, or use a PreSampler"
            )
        many = (queries,) if isinstance(queries, Query) else tuple(queries)
        schema = Schema.of(graph)
        return cls(many, schema, graph.feature_width, seed, expiry.durations(ttl, schema))

    @cached_property
    def plan(self) -> Plan:
        """The one-hop queries and what feeds what."""
        return Plan.of(self.queries, self.schema)

    @cached_property
    def places(self) -> dict[int, int]:
        """Place, from 0, of each table by its number in the plan: how messages and native tables name it."""
        return {table.number: place for place, table in enumerate(self.plan.tables)}

    @property
    def policy(self) -> int:
        """Which ends of an edge decide where it is kept: 0 its source, 1 its destination, 2 either."""
        directions = {table.one_hop.direction for table in self.plan.tables}
        if self.schema.undirected or directions not in ({"out"}, {"in_"}):
            return _BY_EITHER
        return _BY_SOURCE if directions == {"out"} else _BY_DESTINATION

    @property
    def fan_outs(self) -> list[int]:
        """By place of the table."""
        return [table.one_hop.fanout for table in self.plan.tables]

    @property
    def weighted_types(self) -> list[int]:
        """Codes of edge types that are sampled by weight, -1 for all: negative weights of these are refused."""
        hops = [table.one_hop for table in self.plan.tables if table.one_hop.by == "weighted"]
        return [_ANY if hop.edge_type is None else hop.edge_type for hop in hops]

    def query(self, number: int | None) -> PlannedQuery:
        """The query of this number; None means the only one. Raises: UsageError."""
        if number is None and len(self.plan.queries) > 1:
            running = ", ".join(str(planned.number) for planned in self.plan.queries)
            raise UsageError(
                f"[sample] expected query= to name one of the running queries ({running}), got none; add it"
            )
        return self.plan.query(1 if number is None else number)

    def tables_of(self, query: int) -> list[int]:
        """Places of a query's tables, hop by hop. Raises: UsageError for a query that is not there."""
        return [self.places[number] for number in self.plan.query(query).tables]

    def widths_of(self, query: int) -> list[int]:
        """Feature columns of each level of a query, seeds first. Raises: UsageError for a query that is not there."""
        planned = self.plan.query(query)
        types = (planned.query.vertex_type, *(self.plan.one_hop(table).to_type for table in planned.tables))
        widths = [self.schema.columns_max(vertex_type) for vertex_type in types]
        return [self.feature_width if width is None else width for width in widths]

    def new_store(self) -> _native.GraphStore:
        """An empty store for a partition: no features, no attributes, and duplicates as the history has them."""
        schema = self.schema
        named = schema.named(None)
        has_type = schema.integer_types or bool(named)
        columns = (schema.has_weight, schema.has_time, has_type)
        if schema.vertex_types is None:
            return _native.GraphStore(0, *columns, 0, schema.undirected, False)
        code = {name: place for place, name in enumerate(schema.vertex_types)}
        ends = [[code[str(end)] for end in (edge_type.src, edge_type.dst)] for edge_type in named]
        types = ([0] * len(code), [src for src, _ in ends], [dst for _, dst in ends])
        return _native.GraphStore(0, *columns[:2], True, 0, schema.undirected, False, 128, *types)

    def add_tables(self, reservoirs: _native.Reservoirs) -> list[tuple[int, int, list[int], list[int]]]:
        """Adds a table for each one-hop query, in their order.

        Returns: for each its number in the reservoirs, its hop, the places of the tables that it feeds, and the codes
                 of its seeds' types (-1: any).
        """
        added = []
        for table in self.plan.tables:
            hop = table.one_hop
            number = reservoirs.add_table(*native_hop(hop, expiry.of_hop(hop, self.ttl, self.schema)))
            feeds = [self.places[fed] for fed in self.plan.feeds(table.number)]
            added.append((number, hop.hop, feeds, self._seed_types(table.number) if hop.hop == 1 else []))
        return added

    def _seed_types(self, table: int) -> list[int]:
        """Codes of the vertex types that the queries of a table at hop 1 begin at."""
        types = self.schema.vertex_types
        names = [planned.query.vertex_type for planned in self.plan.queries if planned.tables[0] == table]
        return [_ANY] if types is None else sorted({types.index(str(name)) for name in names})

    # ---- as JSON

    def to_json(self) -> str:
        """This value as one line of JSON."""
        schema = self.schema
        edge_types = None if schema.edge_types is None else {key: list(t) for key, t in schema.edge_types.items()}
        width = schema.feature_width
        shape = {
            "vertex_types": None if schema.vertex_types is None else list(schema.vertex_types),
            "edge_types": edge_types,
            "integer_types": schema.integer_types,
            "has_time": schema.has_time,
            "has_weight": schema.has_weight,
            "undirected": schema.undirected,
            "feature_width": dict(width) if isinstance(width, Mapping) else width,
        }
        document = {
            "livegnn_cluster": JSON_VERSION,
            "queries": [json.loads(query.to_json()) for query in self.queries],
            "schema": shape,
            "feature_width": self.feature_width,
            "seed": self.seed,
            "ttl": [[edge_type, duration] for edge_type, duration in self.ttl.items()],
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The value that to_json() wrote. Raises: UsageError; QueryInvalid."""
        try:
            found: dict[str, Any] = json.loads(text)
            if found["livegnn_cluster"] != JSON_VERSION:
                raise ValueError(f"version {found['livegnn_cluster']}")
            shape = dict(found["schema"])
            types, named = shape.pop("vertex_types"), shape.pop("edge_types")
            edge_types = None if named is None else {key: EdgeType(*parts) for key, parts in named.items()}
            schema = Schema(None if types is None else tuple(types), edge_types, **shape)
            queries = tuple(Query.from_json(query) for query in found["queries"])
            return cls(queries, schema, int(found["feature_width"]), int(found["seed"]), dict(found["ttl"]))
        except (ValueError, KeyError, TypeError) as cause:
            if isinstance(cause, QueryInvalid):
                raise
            raise UsageError(
                f"[cluster] expected the JSON of a cluster, got what is none ({cause}); write it anew"
            ) from cause
