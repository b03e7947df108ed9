"""Values with one row per edge, and how they come back to vertices.

    score = ir.Activation(ir.Combine(((1, Source(s)), (1, Target(t)))), "leaky_relu", 0.2)
    y = Gather(Source(x), "softmax", score, heads=4)

Source and Target take a vertex's row to an edge; every row-local value of `livegnn.models.ir` may stand on edges, too.
`HeadDot`, `HeadScale` and `RowMatrix` are row-local values that mostly do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from livegnn.errors import ModelError, WidthMismatch
from livegnn.models.ir import AGGREGATES, Aggregate, Value

Gathering: TypeAlias = Literal[Aggregate, "newest", "softmax"]
Loops: TypeAlias = Literal["keep", "drop", "replace", "only"]


@dataclass(frozen=True, eq=False)
class _End(Value):
    x: Value

    def __post_init__(self) -> None:
        if self.x.on_edges:
            where = type(self).__name__
            raise ModelError(f"[{where}] expected rows of vertices, got rows of edges; gather them first")
        self._define(self.x.width, (self.x,), on_edges=True)


class Source(_End):
    """y[(u, v)] = x[u]: the row of the vertex that the message comes from."""


class Target(_End):
    """y[(u, v)] = x[v]: the row of the vertex that the message goes to."""


@dataclass(frozen=True, eq=False)
class EdgeAttribute(Value):
    """The edge's row of attributes, `columns` wide, as the graph has it."""

    columns: int

    def __post_init__(self) -> None:
        self._define(self.columns, (), on_edges=True)


@dataclass(frozen=True, eq=False)
class EdgeWeight(Value):
    """The edge's weight, one column."""

    def __post_init__(self) -> None:
        self._define(1, (), on_edges=True)


@dataclass(frozen=True, eq=False)
class EdgeRelation(Value):
    """The edge's type as a number, one column."""

    def __post_init__(self) -> None:
        self._define(1, (), on_edges=True)


@dataclass(frozen=True, eq=False)
class AddedLoop(Value):
    """1 on a loop that a Gather with loops="replace" adds, 0 on every edge of the graph."""

    def __post_init__(self) -> None:
        self._define(1, (), on_edges=True)


@dataclass(frozen=True, eq=False)
class Gather(Value):
    """y[v] = the messages of v's in-edges reduced, 0 for a vertex without.

    sum, mean (by the number of edges), max, min, median (of two the smaller one): column by column.
    newest:  the message of the edge with the largest id.
    softmax: `message` has `heads` blocks of columns, `score` one column per head;
             y[v, h] = sum over edges e of exp(score[e, h] - m) message[e, h] / (sum over e of exp(score[e, h] - m)
             + 1e-16), m the largest score of head h among v's edges.

    loops:    "keep": self-loop edges are ordinary edges.  "drop": they do not count.  "only": only they count.
              "replace": they do not count, and every vertex has one loop of its own instead, whose attributes are
              `fill`: "mean", the mean of v's other in-edges' attributes (0 without any), or a number.
    relation: only edges of that type count (a loop of "replace" always does); a tuple: edges of these types.
    target:   the type of the vertices that the edges lead to; None where vertices have no types.
    reversed: messages go against the edges, as if every edge (u, v) were (v, u): to its source, from its destination.

    Source: torch_geometric.nn.MessagePassing, torch_geometric.utils.softmax, add_self_loops.
    """

    message: Value
    reduce: Gathering = "sum"
    score: Value | None = None
    heads: int = 1
    loops: Loops = "keep"
    fill: Literal["mean"] | float = "mean"
    relation: int | tuple[int, ...] | None = None
    target: int | None = None
    reversed: bool = False

    def __post_init__(self) -> None:
        if self.reduce not in (*AGGREGATES, "newest", "softmax"):
            raise ModelError(
                f"[Gather] expected reduce {', '.join(AGGREGATES)}, newest or softmax, got {self.reduce!r}; choose one"
            )
        if self.loops not in ("keep", "drop", "replace", "only"):
            raise ModelError(f"[Gather] expected loops keep, drop, replace or only, got {self.loops!r}; choose one")
        if (self.score is not None) != (self.reduce == "softmax"):
            raise ModelError(f"[Gather] expected a score with softmax and with nothing else, got {self.reduce}; fix it")
        parts = (self.message,) if self.score is None else (self.message, self.score)
        if not all(part.on_edges for part in parts):
            raise ModelError("[Gather] expected rows of edges, got rows of vertices; use Source or Propagate")
        if self.message.width % self.heads != 0 or (self.score is not None and self.score.width != self.heads):
            got = None if self.score is None else self.score.width
            raise WidthMismatch(
                f"[Gather] expected {self.heads} heads of equal width and a score each, got messages of width "
                f"{self.message.width} and scores of width {got}; check the heads"
            )
        sources, targets = end_types(parts)
        if self.target is None and (sources or targets):
            raise ModelError("[Gather] expected target= for rows of vertices that have types, got none; name the type")
        if targets - {self.target}:
            raise ModelError(
                f"[Gather] expected rows of the target's type {self.target}, got {sorted(targets)}; fix the message"
            )
        if self.loops == "replace" and sources - {self.target}:
            raise ModelError(
                f"[Gather] expected loops within one vertex type, got sources of {sorted(sources)}; use loops='keep'"
            )
        self._define(self.message.width, parts, on_edges=False, vertex_type=self.target)


def on_edges(parts: Sequence[Value]) -> list[Value]:
    """The values on edges among these parts and what they are computed from, up to the rows of the ends."""
    found = {id(part): part for part in parts if part.on_edges}
    todo = [*found.values()]
    while todo:
        new = {id(x): x for x in todo.pop().inputs if x.on_edges and id(x) not in found}
        found |= new
        todo += new.values()
    return [*found.values()]


def end_types(parts: Sequence[Value]) -> tuple[set[int], set[int]]:
    """The types of the rows that values on edges read of (sources, targets)."""
    found: tuple[set[int], set[int]] = (set(), set())
    for value in on_edges(parts):
        if isinstance(value, Source | Target) and value.x.vertex_type is not None:
            found[isinstance(value, Target)].add(value.x.vertex_type)
    return found


@dataclass(frozen=True, eq=False)
class ByRelation(Value):
    """y[e] = parts[i][e] for an edge e of type relations[i]; for a Gather over these types alone."""

    parts: tuple[Value, ...]
    relations: tuple[int, ...]

    def __post_init__(self) -> None:
        parts, relations = tuple(self.parts), tuple(int(each) for each in self.relations)
        if not parts or len(parts) != len(relations) or len(set(relations)) != len(relations):
            raise ModelError(f"[ByRelation] expected a value for each edge type, got types {relations}; fix the parts")
        if len({part.width for part in parts}) != 1 or not all(part.on_edges for part in parts):
            raise WidthMismatch("[ByRelation] expected rows of edges of one width, got others; check the parts")
        self._define(parts[0].width, parts, on_edges=True, parts=parts, relations=relations)


@dataclass(frozen=True, eq=False)
class HeadDot(Value):
    """y[h] = sum over the columns c of head h of a[h, c] b[h, c]; a and b of one width, y one column per head."""

    a: Value
    b: Value
    heads: int = 1

    def __post_init__(self) -> None:
        if self.a.width != self.b.width or self.a.width % self.heads != 0:
            raise WidthMismatch(
                f"[HeadDot] expected two rows of one width, a multiple of {self.heads}, got {self.a.width} and "
                f"{self.b.width}; check the heads"
            )
        self._define(self.heads, (self.a, self.b))


@dataclass(frozen=True, eq=False)
class HeadScale(Value):
    """y[h, c] = a[h, c] s[h], s one column per head."""

    a: Value
    s: Value
    heads: int = 1

    def __post_init__(self) -> None:
        if self.s.width != self.heads or self.a.width % self.heads != 0:
            raise WidthMismatch(
                f"[HeadScale] expected {self.heads} factors and a multiple of as many columns, got {self.s.width} and "
                f"{self.a.width}; check the heads"
            )
        self._define(self.a.width, (self.a, self.s))


@dataclass(frozen=True, eq=False)
class RowMatrix(Value):
    """y[j] = sum over i of a[i] m[i * out + j]: every row has a matrix of its own, (in, out) row by row."""

    a: Value
    m: Value

    def __post_init__(self) -> None:
        if self.m.width % self.a.width != 0:
            raise WidthMismatch(
                f"[RowMatrix] expected a matrix of {self.a.width} rows, got {self.m.width} numbers; check the widths"
            )
        self._define(self.m.width // self.a.width, (self.a, self.m))
