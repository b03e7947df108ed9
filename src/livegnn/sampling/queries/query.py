"""Query: which neighbours to sample for a seed, hop by hop, as an immutable value; and `query`, which begins one.

A query alternates direction and sample. `Query` is a value at rest, between hops; `OpenHop` is a direction that waits
for its fan-out. The type of each says which calls may follow, and a call that may not is refused, with the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from livegnn.errors import QueryInvalid
from livegnn.graph.checks import shown
from livegnn.sampling.queries import as_json as query_json
from livegnn.sampling.queries import as_text as query_text
from livegnn.sampling.queries.hop import (
    Direction,
    EdgeTypeName,
    Hop,
    Strategy,
    called,
    edge_type_fault,
    fanout_fault,
    hops_fault,
    name_fault,
    plain,
    plain_edge_type,
    strategy_fault,
)


@dataclass(frozen=True, repr=False)
class Query:
    """A K-hop sampling query: an immutable value, made by `lg.query`, `Query.parse` or `Query.from_json`.

    samples[0] = the seeds;  samples[k] = up to fanout[k] edges of each vertex of samples[k - 1]

    Args:    vertex_type: the type of the seeds, None on a graph without vertex types.  hops: up to 16 of Hop.
             alias: a name for the seeds, kept for the reader.
    Raises:  QueryInvalid.
    Source:  Helios, Figure 1.

    >>> import livegnn as lg
    >>> lg.query("User").out("Click").sample(25, by="random").out("CoPurchase").sample(10, by="top_k").to_text()
    "g.V('User', ID).OutV('Click').sample(25).by('Random').OutV('CoPurchase').sample(10).by('TopK').values"
    """

    vertex_type: str | None = None
    hops: tuple[Hop, ...] = ()
    alias: str | None = None

    def __post_init__(self) -> None:
        for key, what in (("vertex_type", "a vertex type"), ("alias", "an alias")):
            value = getattr(self, key)
            if value is None:
                continue
            if fault := name_fault(what, value):
                raise QueryInvalid(f"[query] {fault}")
            object.__setattr__(self, key, plain(value))
        if not isinstance(self.hops, tuple) or not all(isinstance(hop, Hop) for hop in self.hops):
            raise QueryInvalid(f"[query] expected a tuple of Hop, got {shown(self.hops)}; build it with lg.query(...)")
        if fault := hops_fault(len(self.hops)):
            raise QueryInvalid(f"[query] {fault}")

    def out(self, edge_type: EdgeTypeName = None) -> OpenHop:
        """Follow edges from their source to their destination: all, or those of one type.

        Args:    edge_type: a relation name, a triple (src, relation, dst), an integer type, or None for all edges.
        Returns: the hop, which waits for its fan-out: `.sample(...)` comes next.
        Raises:  QueryInvalid.
        """
        return self._open("out", edge_type)

    def in_(self, edge_type: EdgeTypeName = None) -> OpenHop:
        """Follow edges from their destination to their source; otherwise as `out`."""
        return self._open("in_", edge_type)

    def both(self, edge_type: EdgeTypeName = None) -> OpenHop:
        """Follow edges either way; otherwise as `out`."""
        return self._open("both", edge_type)

    def sample(self, fanout: int, *, by: Strategy = "random") -> NoReturn:
        """Refused: a direction comes first.

        Raises:  QueryInvalid.
        """
        problem = f"expected a direction before .sample({shown(fanout)}), got none; put .out(...) before it"
        self._refuse(problem, "", f".sample({shown(fanout)})")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The query that text writes, in the paper's form.

        Raises:  QueryInvalid, with line, column and the line with a caret.

        >>> Query.parse("g.V('User', ID).alias('Seed').OutV('Click').sample(2).by('Random').values")
        lg.query('User', alias='Seed').out('Click').sample(2, by='random')
        """
        return cls(*query_text.parse(text))

    def to_text(self) -> str:
        """The paper's form, on one line; `Query.parse` gives this query back."""
        return self.rendered().text + ".values"

    @classmethod
    def from_json(cls, document: str | Mapping[str, Any]) -> Self:
        """The query that a JSON text, or the object decoded from one, writes; strict.

        Raises:  QueryInvalid, naming the path: "hops[1].fanout".
        """
        return cls(*query_json.from_json(document))

    def to_json(self) -> str:
        """JSON with its schema version; `Query.from_json` gives this query back."""
        return query_json.to_json((self.vertex_type, self.hops, self.alias))

    def rendered(self) -> query_text.Rendered:
        """The text without `.values`, and where in it each part of each hop is, for messages that point at it."""
        return query_text.render((self.vertex_type, self.hops, self.alias))

    def __repr__(self) -> str:
        seeds = [] if self.vertex_type is None else [repr(self.vertex_type)]
        seeds += [] if self.alias is None else [f"alias={self.alias!r}"]
        hops = (f".{hop.direction}({called(hop.edge_type)}).sample({hop.fanout}, by={hop.by!r})" for hop in self.hops)
        return f"lg.query({', '.join(seeds)}){''.join(hops)}"

    def _open(self, direction: Direction, edge_type: EdgeTypeName) -> OpenHop:
        if fault := edge_type_fault(edge_type):
            self._refuse(fault, query_text.step_text(direction, None)[:-1], shown(edge_type), ")")
        if fault := hops_fault(len(self.hops) + 1):
            self._refuse(fault, "", query_text.step_text(direction, edge_type))
        return OpenHop(self, direction, plain_edge_type(edge_type))

    def _refuse(self, problem: str, before: str, pointed: str, after: str = "") -> NoReturn:
        """Raises with this query's text and what was attempted next: before, the part to point at, after."""
        start = self.rendered().text + before
        place = query_text.underlined(start + pointed + after, len(start), len(start + pointed))
        raise QueryInvalid(f"[query, hop {len(self.hops) + 1}] {problem}{place}")


@dataclass(frozen=True, repr=False)
class OpenHop:
    """A query and the direction of its next hop, which waits for `.sample`.

    >>> import livegnn as lg
    >>> lg.query("User").out("Click")
    lg.query('User').out('Click')
    """

    before: Query
    direction: Direction
    edge_type: EdgeTypeName

    def sample(self, fanout: int, *, by: Strategy = "random") -> Query:
        """The query with this hop.

        Args:    fanout: up to this many edges for each vertex, 1 to 65535.  by: "random" (uniform), "top_k" (latest by
                 time) or "weighted" (by edge weight).
        Raises:  QueryInvalid.
        """
        step = query_text.step_text(self.direction, self.edge_type)
        if fault := fanout_fault(fanout):
            self.before._refuse(fault, f"{step}.sample(", shown(fanout), ")")
        if fault := strategy_fault(by):
            self.before._refuse(fault, f"{step}.sample({fanout}).by(", shown(by), ")")
        hop = Hop(self.direction, self.edge_type, fanout, by)
        return Query(self.before.vertex_type, (*self.before.hops, hop), self.before.alias)

    def out(self, edge_type: EdgeTypeName = None) -> NoReturn:
        """Refused: the hop has a direction already.

        Raises:  QueryInvalid.
        """
        self._refuse_second("out", edge_type)

    def in_(self, edge_type: EdgeTypeName = None) -> NoReturn:
        """Refused, as `out`."""
        self._refuse_second("in_", edge_type)

    def both(self, edge_type: EdgeTypeName = None) -> NoReturn:
        """Refused, as `out`."""
        self._refuse_second("both", edge_type)

    def __repr__(self) -> str:
        return f"{self.before!r}.{self.direction}({called(self.edge_type)})"

    def _refuse_second(self, direction: Direction, edge_type: EdgeTypeName) -> NoReturn:
        argument = edge_type if edge_type is None or edge_type_fault(edge_type) is None else shown(edge_type)
        problem = f"expected .sample(fan-out) after .{self.direction}({called(self.edge_type)}), got a second direction"
        step = query_text.step_text(self.direction, self.edge_type)
        self.before._refuse(f"{problem}; put .sample(...) between", step, query_text.step_text(direction, argument))


def query(vertex_type: str | None = None, *, alias: str | None = None) -> Query:
    """Begin a sampling query at seeds of vertex_type, or at any vertex of a graph without vertex types.

    Args:    vertex_type: the type of the seeds.  alias: a name for the seeds, kept for the reader.
    Returns: a query of no hops; `.out(...)`, `.in_(...)` or `.both(...)` comes next.
    Raises:  QueryInvalid.
    Source:  Helios, Figure 1.

    >>> import livegnn as lg
    >>> lg.query().out().sample(25, by="random").in_(3).sample(10, by="weighted")
    lg.query().out().sample(25, by='random').in_(3).sample(10, by='weighted')
    """
    return Query(vertex_type, (), alias)
