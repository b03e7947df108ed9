"""A query taken apart into one-hop queries, against the schema of a graph; what cannot be answered is refused here.

Vertex types are followed through the hops: `reached` is the set of types that a hop may give, or None where edges do
not say what they join. A hop may go on if one of these types has such edges; vertices of the others have empty samples.
Source: Helios, 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from livegnn.errors import QueryInvalid
from livegnn.graph.checks import shown
from livegnn.sampling.queries.as_text import step_text, underlined
from livegnn.sampling.queries.hop import Direction, Strategy, called, nearest
from livegnn.sampling.queries.query import OpenHop, Query
from livegnn.sampling.queries.schema import EdgeType, Schema

_LISTED_MAX = 12  # names in a message


@dataclass(frozen=True)
class OneHop:
    """A one-hop query: what one reservoir table holds for each of its vertices.

    `edge_type` is a code, or None for all edges. `direction` is "out" on an undirected graph, where a vertex has one
    list of edges. `from_type` is the type of the table's vertices, `to_type` that of what they sample; None means any.
    """

    hop: int  # from 1
    edge_type: int | None
    direction: Direction
    fanout: int
    by: Strategy
    from_type: str | None
    to_type: str | None


def decompose(query: Query, schema: Schema) -> tuple[OneHop, ...]:
    """The one-hop queries of a query, one a hop.

    Raises:  QueryInvalid, pointing at the hop that the graph cannot answer.
    """
    if isinstance(query, OpenHop):
        text = query.before.rendered().text + step_text(query.direction, query.edge_type)
        problem = f"expected .sample(fan-out) at the end, got {shown(query)}; add .sample(10)"
        raise QueryInvalid(f"[plan] {problem}{underlined(text, len(text), len(text))}")
    if not isinstance(query, Query):
        raise QueryInvalid(f"[plan] expected a Query, got {shown(query)}; make it with lg.query(...) or Query.parse")
    _check_seeds(query, schema)
    reached = None if query.vertex_type is None else frozenset([query.vertex_type])
    found = []
    for number, hop in enumerate(query.hops, start=1):
        for by, there, column in (("top_k", schema.has_time, "time"), ("weighted", schema.has_weight, "weight")):
            if hop.by == by and not there:
                problem = f"expected edges with {column}s for {by}, got a graph without; give it {column}="
                _refuse(query, number, "by", problem)
        one_hop, reached = _HopResolver(query, number, schema, reached).resolve()
        found.append(one_hop)
    return tuple(found)


def _check_seeds(query: Query, schema: Schema) -> None:
    types, given = schema.vertex_types, query.vertex_type
    if types is None and given is not None:
        advice = "write lg.query() or g.V(ID)"
        _refuse(query, 0, "seeds", f"expected no vertex type on a graph without them, got {given!r}; {advice}")
    if types is not None and given not in types:
        there = f"one of {_listed(types)}"
        if given is None:
            _refuse(query, 0, "seeds", f"expected a vertex type for the seeds, {there}, got none; name it first")
        _refuse(query, 0, "seeds", f"expected a vertex type, {there}, got {given!r}; {_advice(given, types)}")
    if not query.hops:
        _refuse(query, 0, "", "expected at least one hop, got none; add .out().sample(10)")


class _HopResolver:
    """One hop against the schema: which edge types it may mean, and from and to which vertex types they lead."""

    def __init__(self, query: Query, number: int, schema: Schema, reached: frozenset[str] | None) -> None:
        self._query, self._number, self._schema = query, number, schema
        self._hop = query.hops[number - 1]
        self._reached = reached  # types that the hop before gives; None if they are not known

    def resolve(self) -> tuple[OneHop, frozenset[str] | None]:
        hop = self._hop
        direction: Direction = "out" if self._schema.undirected else hop.direction
        code, meant = self._edge_types()
        if not meant:
            from_type, to_type, reached = _only(self._reached), None, None
        else:
            ways = self._ways(meant)
            from_type = _only(frozenset(start for start, _ in ways))
            ends = frozenset(end for _, end in ways)
            to_type, reached = _only(ends), None if None in ends else frozenset(filter(None, ends))
        return OneHop(self._number, code, direction, hop.fanout, hop.by, from_type, to_type), reached

    def _edge_types(self) -> tuple[int | None, list[EdgeType]]:
        """The code, None for all, and the named edge types that it may mean; none of these if edges have no names."""
        name, schema = self._hop.edge_type, self._schema
        if isinstance(name, int):
            self._check_integer(name)
            return name, []
        if name is None:
            return None, schema.named(None)
        if schema.edge_types is None:
            has, advice = "without edge types", "leave it out: .out()"
            if schema.integer_types:
                has, advice = "whose edge types are integers", "write its number, as in .out(3)"
            self._refuse(f"expected no edge type by name on a graph {has}, got {name!r}; {advice}")
        meant = schema.named(name)
        if not meant:
            known = sorted({edge_type.name for edge_type in schema.named(None)})
            there = _cut([str(edge_type) for edge_type in schema.named(None)])
            asked = name if isinstance(name, str) else name[1]
            self._refuse(f"expected an edge type, one of {there}, got {name!r}; {_advice(asked, known)}")
        if len(meant) > 1:
            triples = " or ".join(str((edge_type.src, edge_type.name, edge_type.dst)) for edge_type in meant)
            self._refuse(f"expected one edge type, got {name!r}, which {len(meant)} have; write {triples}")
        return meant[0].code, meant

    def _check_integer(self, code: int) -> None:
        if self._schema.integer_types:
            return
        named = self._schema.named(None)
        if not named:
            self._refuse(f"expected no edge type on a graph without them, got {code}; leave it out: .out()")
        by_code = [edge_type.name for edge_type in named if edge_type.code == code]
        there = _cut([str(edge_type) for edge_type in named])
        advice = f"did you mean {by_code[0]!r}?" if by_code else f"name one of {there}"
        self._refuse(f"expected an edge type by name on a graph that has names, got {code}; {advice}")

    def _ways(self, meant: list[EdgeType]) -> list[tuple[str | None, str | None]]:
        """The (from, to) pairs of vertex types by which the hop can go on from where the hop before ended."""
        direction = "both" if self._schema.undirected else self._hop.direction
        if direction == "both" and self._hop.edge_type is not None and not self._schema.undirected:
            only = meant[0]
            if only.src != only.dst:
                name = called(self._hop.edge_type)
                advice = f"use .out({name}) or .in_({name})"
                problem = f"expected an edge type that joins vertices of one type for both, got {only}; {advice}"
                self._refuse(problem, "direction")
        ways = [pair for edge_type in meant for pair in _pairs(edge_type, direction)]
        open_ways = [way for way in ways if self._reached is None or way[0] is None or way[0] in self._reached]
        if not open_ways:
            self._refuse_cannot_follow(ways)
        return open_ways

    def _refuse_cannot_follow(self, ways: list[tuple[str | None, str | None]]) -> NoReturn:
        reached = self._reached or frozenset()
        source = "as seeds" if self._number == 1 else f"from hop {self._number - 1}"
        needed = _listed(sorted({str(start) for start, _ in ways}))
        follow = [
            f".{direction}({called(self._schema.reference(edge_type))})"
            for edge_type in self._schema.named(None)
            for direction in ("out", "in_")
            if any(start is None or start in reached for start, _ in _pairs(edge_type, direction))
        ]
        advice = f"from there go by {_cut(follow)}" if follow else "no edge type touches it"
        hop = f".{self._hop.direction}({called(self._hop.edge_type)})"
        problem = f"expected vertices of type {needed} for {hop}, got {_listed(sorted(reached))} {source}; {advice}"
        self._refuse(problem)

    def _refuse(self, problem: str, part: str = "edge_type") -> NoReturn:
        _refuse(self._query, self._number, part, problem)


def _pairs(edge_type: EdgeType, direction: str) -> list[tuple[str | None, str | None]]:
    forth, back = (edge_type.src, edge_type.dst), (edge_type.dst, edge_type.src)
    return {"out": [forth], "in_": [back], "both": [forth, back]}[direction]


def _only(types: frozenset[str | None] | frozenset[str] | None) -> str | None:
    """The type, if there is one and no other."""
    return next(iter(types)) if types is not None and len(types) == 1 else None


def _listed(names: Iterable[str]) -> str:
    return _cut([repr(name) for name in names])


def _cut(parts: list[str]) -> str:
    left_out = len(parts) - _LISTED_MAX
    return (", ".join(parts[:_LISTED_MAX]) or "none") + (f" and {left_out} more" if left_out > 0 else "")


def _advice(given: str, known: Iterable[str]) -> str:
    close = nearest(given, known)
    return f"did you mean {close!r}?" if close else "name one of them"


def _refuse(query: Query, number: int, part: str, problem: str) -> NoReturn:
    """Raises with the text of the query and a caret under a part of hop `number`, or after the end for no part."""
    text, spans = query.rendered()
    start, end = spans[number, part] if part else (len(text), len(text))
    if start == end and part == "edge_type":
        start, end = spans[number, "direction"]
    where = f"plan, hop {number}" if number else "plan, seeds" if part else "plan"
    raise QueryInvalid(f"[{where}] {problem}{underlined(text, start, end)}")
