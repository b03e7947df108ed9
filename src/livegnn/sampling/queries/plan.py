"""The plan of several queries: one-hop queries, each kept in one table, and which table feeds which.

A query of K hops becomes K one-hop queries. Two queries share a table where their one-hop queries are equal, hop number
included: the key of an edge in a reservoir depends on the hop, so equal one-hop queries at different hops sample
differently. Table k of a query feeds its table k + 1, so the tables form a directed acyclic graph, ordered by hop.

Invariants: a number is given once and never again; dropping a query drops the tables that no other uses, and no other
changes its number. Source: Helios, 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import NamedTuple, Self

from livegnn.errors import UsageError
from livegnn.graph.checks import shown
from livegnn.sampling.queries.decompose import OneHop, decompose
from livegnn.sampling.queries.query import Query
from livegnn.sampling.queries.schema import Schema

_BY = {"random": "at random", "top_k": "latest by time", "weighted": "by edge weight"}
_FEATURE_BYTES = 4  # float32


class PlannedTable(NamedTuple):
    """A one-hop query and the number of its table."""

    number: int
    one_hop: OneHop


class PlannedQuery(NamedTuple):
    """A query, its number, and its tables, one a hop."""

    number: int
    query: Query
    tables: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Queries, their tables and the next numbers: an immutable value. Start with `Plan.of` or `plan`."""

    schema: Schema
    queries: tuple[PlannedQuery, ...] = ()
    tables: tuple[PlannedTable, ...] = ()
    next_query: int = 1
    next_table: int = 1

    @classmethod
    def of(cls, queries: Iterable[Query], schema: Schema) -> Self:
        """The plan of these queries, numbered from 1 in their order.

        Raises:  QueryInvalid.
        """
        made = cls(schema)
        for query in queries:
            made, _ = made.add(query)
        return made

    def add(self, query: Query) -> tuple[Self, int]:
        """The plan with one more query, and the number that the query got.

        Raises:  QueryInvalid, pointing at the hop that the graph cannot answer.
        """
        numbers = {table.one_hop: table.number for table in self.tables}
        one_hops = decompose(query, self.schema)
        new = [one_hop for one_hop in one_hops if one_hop not in numbers]
        numbers.update((one_hop, self.next_table + place) for place, one_hop in enumerate(new))
        added = PlannedQuery(self.next_query, query, tuple(numbers[one_hop] for one_hop in one_hops))
        grown = replace(
            self,
            queries=(*self.queries, added),
            tables=(*self.tables, *(PlannedTable(numbers[one_hop], one_hop) for one_hop in new)),
            next_query=self.next_query + 1,
            next_table=self.next_table + len(new),
        )
        return grown, added.number

    def drop(self, number: int) -> Self:
        """The plan without a query, and without the tables that only this query used.

        Raises:  UsageError if no query has this number.
        """
        self.query(number)
        left = tuple(planned for planned in self.queries if planned.number != number)
        used = {table for planned in left for table in planned.tables}
        return replace(self, queries=left, tables=tuple(table for table in self.tables if table.number in used))

    def query(self, number: int | None, where: str = "plan") -> PlannedQuery:
        """The query of this number.

        Raises:  UsageError.
        """
        for planned in self.queries:
            if planned.number == number and type(number) is int:
                return planned
        running = ", ".join(str(planned.number) for planned in self.queries) or "none"
        raise UsageError(
            f"[{where}] expected the number of a running query ({running}), got {shown(number)}; see plan.queries"
        )

    def level_types(self, planned: PlannedQuery) -> tuple[str | None, ...]:
        """The vertex type of each level of a query, seeds first; None where it is not one type, or there are none."""
        return (planned.query.vertex_type, *(self.one_hop(table).to_type for table in planned.tables))

    def level_widths(self, planned: PlannedQuery) -> list[int]:
        """Feature columns of each level, seeds first; [] if the schema does not say all of them."""
        widths = [self.schema.columns_max(vertex_type) for vertex_type in self.level_types(planned)]
        known = [width for width in widths if width is not None]
        return known if len(known) == len(widths) else []

    def one_hop(self, table: int) -> OneHop:
        """The one-hop query of the table of this number.

        Raises:  UsageError.
        """
        for planned in self.tables:
            if planned.number == table:
                return planned.one_hop
        there = ", ".join(str(planned.number) for planned in self.tables) or "none"
        raise UsageError(f"[plan] expected the number of a table ({there}), got {shown(table)}; see plan.tables")

    def feeds(self, table: int) -> tuple[int, ...]:
        """Tables whose vertices the samples of this table are, by number; none for the last hop of every query.

        Raises:  UsageError.
        """
        self.one_hop(table)
        return tuple(sorted({after for before, after in self._edges() if before == table}))

    def fed_by(self, table: int) -> tuple[int, ...]:
        """Tables whose samples are the vertices of this one, by number; none at hop 1, where they are the seeds.

        Raises:  UsageError.
        """
        self.one_hop(table)
        return tuple(sorted({before for before, after in self._edges() if after == table}))

    def queries_of(self, table: int) -> tuple[int, ...]:
        """Numbers of the queries that read this table.

        Raises:  UsageError.
        """
        self.one_hop(table)
        return tuple(planned.number for planned in self.queries if table in planned.tables)

    def explain(self) -> str:
        """The plan to read: queries with what an answer costs, one-hop queries with what feeds what.

        Lookups of one seed, with fan-outs C1 ... CK: 1 + C1 + C1 C2 + ... + C1...C(K-1) in the sample tables, and one
        more term in the feature tables. They bound every answer, whatever the degrees. Source: Helios, section 6.
        """
        shared = sum(len(self.queries_of(table.number)) > 1 for table in self.tables)
        counts = (len(self.queries), ""), (len(self.tables), "one-hop ")
        title = "plan: " + ", ".join(f"{count} {kind}{_query(count)}" for count, kind in counts)
        parts = [title + (f" ({shared} shared)" if shared else "")]
        parts += [_explain_query(self, planned) for planned in self.queries]
        if self.tables:
            parts.append(_explain_tables(self))
        return "\n\n".join(parts)

    def _edges(self) -> set[tuple[int, int]]:
        return {pair for planned in self.queries for pair in zip(planned.tables, planned.tables[1:], strict=False)}


def plan(query: Query, schema: Schema) -> Plan:
    """The plan of one query.

    Raises:  QueryInvalid, pointing at the hop that the graph cannot answer.

    >>> import livegnn as lg
    >>> made = plan(lg.query().out().sample(25).out().sample(10), Schema())
    >>> made.one_hop(2)
    OneHop(hop=2, edge_type=None, direction='out', fanout=10, by='random', from_type=None, to_type=None)
    >>> made.feeds(1)
    (2,)
    """
    return Plan.of([query], schema)


def _explain_query(plan: Plan, planned: PlannedQuery) -> str:
    levels = list(accumulate((hop.fanout for hop in planned.query.hops), mul, initial=1))
    seeds = "seeds" if planned.query.vertex_type is None else f"{planned.query.vertex_type} seeds"
    costs = [f"{_sum(levels[:-1])} sample lookup{'s' if len(levels) > 2 else ''}", f"{_sum(levels)} feature lookups"]
    if widths := plan.level_widths(planned):
        costs.append(f"at most {_size(_FEATURE_BYTES * sum(map(mul, levels, widths)))} of features")
    path = " -> ".join([seeds, *(f"Q{table}" for table in planned.tables)])
    return f"query {planned.number}   {planned.query.to_text()}\n  path      {path}\n  per seed  {', '.join(costs)}"


def _explain_tables(plan: Plan) -> str:
    rows = [
        (
            f"Q{number}",
            f"hop {one_hop.hop}",
            _pattern(one_hop, plan.schema),
            f"{one_hop.fanout} {_BY[one_hop.by]}",
            f"fed by {_tables(plan.fed_by(number)) if one_hop.hop > 1 else 'the seeds'}",
            f"feeds {_tables(plan.feeds(number))}" if plan.feeds(number) else "",
            f"of {_queries(plan.queries_of(number))}" if len(plan.queries) > 1 else "",
        )
        for number, one_hop in plan.tables
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip() for row in rows
    )


def _pattern(one_hop: OneHop, schema: Schema) -> str:
    """An arrow as edges point, from the table's vertices on the left to their samples on the right."""
    anything = "vertex" if schema.vertex_types is None else "any"
    label = "" if one_hop.edge_type is None else f"[{schema.label(one_hop.edge_type)}]"
    left = "<-" if one_hop.direction in ("in_", "both") else "-"
    right = "->" if one_hop.direction in ("out", "both") and not schema.undirected else "-"
    return f"{one_hop.from_type or anything} {left}{label}{right} {one_hop.to_type or anything}"


def _sum(levels: list[int]) -> str:
    return " + ".join(f"{level:,}" for level in levels) + (f" = {sum(levels):,}" if len(levels) > 1 else "")


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _query(count: int) -> str:
    return "query" if count == 1 else "queries"


def _tables(numbers: tuple[int, ...]) -> str:
    return ", ".join(f"Q{number}" for number in numbers)


def _queries(numbers: tuple[int, ...]) -> str:
    return f"{_query(len(numbers))} {', '.join(map(str, numbers))}"
