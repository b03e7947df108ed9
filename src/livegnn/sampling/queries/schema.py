"""Schema: what a graph has, as far as a query can ask for it.

Types are named by the user and numbered by their place. A graph has no edge types, integer edge types
(`integer_types`), or named ones (`edge_types`), each of which may say what it joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from livegnn.errors import QueryInvalid
from livegnn.graph import Graph
from livegnn.graph.schema import GraphSchema
from livegnn.sampling.queries.hop import EdgeTypeName


class EdgeType(NamedTuple):
    """A named edge type: its code in the store, its relation name, and the vertex types that it joins (None: any)."""

    code: int
    name: str
    src: str | None = None
    dst: str | None = None

    def __str__(self) -> str:
        return f"{self.name!r} ({self.src or 'any'} -> {self.dst or 'any'})"


@dataclass(frozen=True)
class Schema:
    """The types and columns of a graph.

    Args:    vertex_types: names, code = place; None for a graph without.  edge_types: by a key of the caller's;
             None for a graph without names.  integer_types: edges have plain integer types.  has_time, has_weight:
             edges have them.  undirected: an edge is its two ways at once.  feature_width: float32 columns of a
             vertex, one number or by vertex type; None if not known.
    Raises:  QueryInvalid for parts that contradict each other.
    """

    vertex_types: tuple[str, ...] | None = None
    edge_types: Mapping[str, EdgeType] | None = field(default=None, hash=False)
    integer_types: bool = False
    has_time: bool = False
    has_weight: bool = False
    undirected: bool = False
    feature_width: int | Mapping[str, int] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for key in ("edge_types", "feature_width"):
            if isinstance(getattr(self, key), Mapping):
                object.__setattr__(self, key, MappingProxyType(dict(getattr(self, key))))
        if self.edge_types is None:
            return
        if self.integer_types:
            raise QueryInvalid("[Schema] expected integer types or named ones, got both; give one of them")
        codes = [edge_type.code for edge_type in self.edge_types.values()]
        if len(set(codes)) < len(codes):
            raise QueryInvalid(
                f"[Schema] expected a code of its own for each edge type, got {codes}; number them apart"
            )
        ends = {end for edge_type in self.edge_types.values() for end in (edge_type.src, edge_type.dst)} - {None}
        unknown = sorted(str(end) for end in ends if end not in (self.vertex_types or ()))
        if unknown:
            there = ", ".join(map(repr, self.vertex_types or ())) or "none"
            raise QueryInvalid(f"[Schema] expected edge types between vertex types {there}, got {unknown}; add them")

    def __reduce__(self) -> tuple[Any, ...]:
        """Mapping views do not pickle; the mappings under them do."""
        return Schema, tuple(dict(each) if isinstance(each, Mapping) else each for each in vars(self).values())

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The schema of a Graph, with or without named types."""
        edge_types = None
        if graph.edge_types is not None:
            names = [name for _, name, _ in graph.edge_types]
            edge_types = {
                name if names.count(name) == 1 else "__".join((src, name, dst)): EdgeType(code, name, src, dst)
                for code, (src, name, dst) in enumerate(graph.edge_types)
            }
        return cls(
            graph.vertex_types,
            edge_types,
            integer_types=edge_types is None and graph.has_type,
            has_time=graph.has_time,
            has_weight=graph.has_weight,
            undirected=graph.undirected,
            feature_width=graph.feature_widths or graph.feature_width,
        )

    def of_ids(self) -> GraphSchema:
        """What ids need to know of it: types and what edges join; widths are left out."""
        if self.vertex_types is None:
            return GraphSchema.nameless(0)
        triples = tuple((str(t.src), t.name, str(t.dst)) for t in self.named(None))
        return GraphSchema(self.vertex_types, triples, (0,) * len(self.vertex_types))

    def named(self, name: EdgeTypeName) -> list[EdgeType]:
        """The edge types that a name, a triple, or None for all, may mean, by code; none for an integer."""
        found = sorted((self.edge_types or {}).values())
        if name is None:
            return found
        return [
            edge_type for edge_type in found if name in (edge_type.name, (edge_type.src, edge_type.name, edge_type.dst))
        ]

    def reference(self, edge_type: EdgeType) -> EdgeTypeName:
        """How a query names an edge type: by its relation if no other has that, else by the triple."""
        if len(self.named(edge_type.name)) == 1 or edge_type.src is None or edge_type.dst is None:
            return edge_type.name
        return edge_type.src, edge_type.name, edge_type.dst

    def label(self, code: int) -> str:
        """How an edge type is shown: its name, with what it joins where several have that name."""
        found = next((edge_type for edge_type in self.named(None) if edge_type.code == code), None)
        if found is None:
            return f"type {code}"
        reference = self.reference(found)
        return ".".join(reference) if isinstance(reference, tuple) else str(reference)

    def columns_max(self, vertex_type: str | None) -> int | None:
        """Feature columns of a vertex of this type, or of the widest type for None; None if not known."""
        width = self.feature_width
        if not isinstance(width, Mapping):
            return width
        if vertex_type is not None:
            return width.get(vertex_type)
        known = set(self.vertex_types or ()) <= set(width)
        return max(width.values(), default=0) if known else None
