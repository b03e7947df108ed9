"""What all workers of a cluster agree on: queries, the graph's columns, seed, expiry. A value, also as JSON.

{ "livegnn_cluster": 1, "queries": [query, ...], "schema": {...}, "feature_width": integer, "seed": integer,
  "ttl": [[edge type or null, duration], ...] }                    query: as in query_json.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from livegnn import _native
from livegnn.errors import ModelUnsupported, QueryInvalid, UsageError
from livegnn.graph import Graph
from livegnn.sampling.plan import Plan
from livegnn.sampling.query import Query
from livegnn.sampling.schema import Schema

__all__ = ["ClusterSpec"]

JSON_VERSION = 1
_DIRECTIONS = {"out": 0, "in_": 1, "both": 2}
_STRATEGIES = {"random": 0, "top_k": 1, "weighted": 2}
_BY_SOURCE, _BY_DESTINATION, _BY_EITHER = 0, 1, 2
_SEED_MAX = 2**64 - 1


@dataclass(frozen=True)
class ClusterSpec:
    """The agreement of a cluster's workers.

    Args:    queries: at least one, numbered from 1.  schema: of the graph.  feature_width: F.  seed: 0 to 2^64 - 1.
             ttl: by edge type as a query names it by code (None: hops without a type), the duration after which edges
             are no longer sampled.
    Raises:  QueryInvalid for a query that the graph cannot answer; ModelUnsupported for typed vertices; UsageError.
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
        if self.schema.vertex_types is not None:
            raise ModelUnsupported(
                "[cluster] expected a graph without vertex types, got one with them; keep its samples in one process"
            )
        if type(self.seed) is not int or not 0 <= self.seed <= _SEED_MAX:
            raise UsageError(f"[cluster] expected a seed from 0 to 2^64 - 1, got {self.seed!r}; choose another")
        self._check_ttl()
        _ = self.plan  # refuses what cannot be answered

    def _check_ttl(self) -> None:
        for edge_type, duration in self.ttl.items():
            if edge_type is not None and type(edge_type) is not int:
                raise UsageError(f"[cluster] expected ttl by codes of edge types, got {edge_type!r}; give the code")
            if type(duration) is not int or not 0 < duration < 2**63:
                raise UsageError(f"[cluster] expected a ttl above 0, got {duration!r}; leave it out for none")
        if self.ttl and not self.schema.has_time:
            raise UsageError("[cluster] expected edges with times for a ttl, got a graph without; leave ttl out")

    @classmethod
    def of(
        cls, graph: Graph, queries: Query | Iterable[Query], seed: int = 0, ttl: Mapping[int | None, int] | None = None
    ) -> Self:
        """The spec for a graph. Raises: as the class; UsageError for a graph with ids= of its own."""
        if not isinstance(graph, Graph):
            raise UsageError(f"[cluster] expected a livegnn.Graph, got {type(graph).__name__}; make one")
        if graph.has_ids:
            raise UsageError(
                "[cluster] expected a graph whose ids are its slots, got one with ids=; number the vertices"
            )
        many = (queries,) if isinstance(queries, Query) else tuple(queries)
        return cls(many, Schema.of(graph), graph.feature_width, seed, dict(ttl or {}))

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

    def tables_of(self, query: int) -> list[int]:
        """Places of a query's tables, hop by hop. Raises: UsageError for a query that is not there."""
        return [self.places[number] for number in self.plan.query(query).tables]

    def new_store(self) -> _native.GraphStore:
        """An empty store for a partition: no features, no attributes, and duplicates as the history has them."""
        schema = self.schema
        has_type = schema.integer_types or schema.edge_types is not None
        return _native.GraphStore(0, schema.has_weight, schema.has_time, has_type, 0, schema.undirected, False)

    def add_tables(self, reservoirs: _native.Reservoirs) -> list[tuple[int, int, list[int]]]:
        """Adds a table for each one-hop query; (number in the reservoirs, hop, places of the tables that it feeds)."""
        added = []
        for table in self.plan.tables:
            hop = table.one_hop
            code = -1 if hop.edge_type is None else hop.edge_type
            kind = (_DIRECTIONS[hop.direction], _STRATEGIES[hop.by])
            number = reservoirs.add_table(hop.hop, code, *kind, hop.fanout, self.ttl.get(hop.edge_type, 0))
            added.append((number, hop.hop, [self.places[fed] for fed in self.plan.feeds(table.number)]))
        return added

    def to_json(self) -> str:
        """This value as one line of JSON."""
        schema = self.schema
        edge_types = None if schema.edge_types is None else {key: list(t) for key, t in schema.edge_types.items()}
        shape = {"edge_types": edge_types, "integer_types": schema.integer_types, "has_time": schema.has_time}
        shape |= {"has_weight": schema.has_weight, "undirected": schema.undirected}
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
        from livegnn.sampling.schema import EdgeType

        try:
            found: dict[str, Any] = json.loads(text)
            if found["livegnn_cluster"] != JSON_VERSION:
                raise ValueError(f"version {found['livegnn_cluster']}")
            shape = dict(found["schema"])
            named = shape.pop("edge_types")
            edge_types = None if named is None else {key: EdgeType(*parts) for key, parts in named.items()}
            width = int(found["feature_width"])
            schema = Schema(edge_types=edge_types, feature_width=width, **shape)
            queries = tuple(Query.from_json(query) for query in found["queries"])
            return cls(queries, schema, width, int(found["seed"]), dict(found["ttl"]))
        except (ValueError, KeyError, TypeError) as cause:
            if isinstance(cause, QueryInvalid):
                raise
            raise UsageError(
                f"[cluster] expected the JSON of a cluster, got what is none ({cause}); write it anew"
            ) from cause
