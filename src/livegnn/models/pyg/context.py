"""What the importer's parts share: symbols that stand for tensors, refusals, and the record of one import.

While a module is read, every tensor that depends on the features or the graph is a `Symbol`: an `ir.Value` (one row
per vertex, or per edge, as the graph's attributes are), a `Flat` (a value of width 1 that the module holds as a
vector), a `Shaped` (rows of any shape), a `Folded` (rows under each other), a `TablePart` (rows of some vertices),
`EDGES`, `WEIGHTS`, `TYPES`, `BATCH`, a `Count`, a `Rewired`, an `End` or a `Refusal`, an unsupported result that
matters only if something reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livegnn.errors import ModelUnsupported
from livegnn.models import ir


@dataclass(frozen=True)
class Relation:
    """An edge type: its number in the model, and those of the vertex types that it joins."""

    number: int
    src: int
    dst: int


@dataclass(frozen=True, eq=False)
class Marker:
    """A tensor of the graph itself; where edges have types in a dict, that of one type.

    turned: of edge_index, whether every edge is turned round.
    """

    what: str
    relation: Relation | None = None
    turned: bool = False


EDGES = Marker("edge_index")
WEIGHTS = Marker("edge_weight")
TYPES = Marker("edge_type")
BATCH = Marker("batch")


@dataclass(frozen=True, eq=False)
class Count(Marker):
    """The number of rows of a value, `times` a whole number. The comparison finds a count of another vertex type."""

    what: str = "the number of vertices"
    of: ir.Value | None = field(default=None, repr=False)
    times: int = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Count) and other.times == self.times

    def __hash__(self) -> int:
        return hash((Count, self.times))


VERTEX_COUNT = Count()
#: Of the graph of a recording (check.example), where types have no names: unlike any width, as a dimension of that size
#: is taken for the vertices' or the edges'.
EXAMPLE_VERTICES, EXAMPLE_EDGES = 211, 601


@dataclass(frozen=True)
class Rewired:
    """edge_index, or edge_weight, after PyG's functions have changed self-loops or normalised.

    loops:    "keep" all as they are; "drop" them; "add" one of weight `fill` to every vertex; "replace" all by such
              ones; "fill": one for every vertex, of its last self-loop's weight, or of `fill` without one.
    weight: what the edges' weights are, the graph's or computed; None without.   norm: "gcn" where these are divided by
    degrees.   turned: of edge_index, whether every edge is turned round; of weights, whether their degrees are of such
    edges.
    """

    what: str = EDGES.what
    loops: str = "keep"
    fill: float = 1.0
    weight: ir.Value | None = None
    norm: str | None = None
    turned: bool = False

    @property
    def weighted(self) -> bool:
        return self.weight is not None


@dataclass(frozen=True)
class End:
    """edge_index[0] or edge_index[1]: the sources or the targets of all edges."""

    edges: Rewired
    place: int


@dataclass(frozen=True)
class Pairs:
    """edge_index with one row per edge, (source, target): edge_index.T."""

    edges: Rewired


@dataclass(frozen=True, eq=False)
class Flat:
    """A value of width 1, squeezed to a vector."""

    value: ir.Value


@dataclass(frozen=True, eq=False)
class Shaped:
    """A tensor of any shape of which one dimension, `axis`, is that of the vertices.

    tensor[i.., v, j..] = source[v, index[i.., j..]].   whole: as integers, without their fractions.
    """

    source: ir.Value
    index: NDArray[np.int64]
    axis: int = 0
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Folded:
    """A tensor of which one dimension holds all vertices, and each of them several times: `view(-1, columns)` of heads.

    It is `rows` with three dimensions seen as one: the one in front of the vertices', the vertices', the one behind.
    """

    rows: Shaped

    @property
    def place(self) -> int:
        """Which dimension that is."""
        return self.rows.axis - 1

    @property
    def counts(self) -> tuple[int, int]:
        """How often all vertices come one after the other, and how often each of them does there."""
        before, after = self.rows.index.shape[self.place : self.place + 2]
        return int(before), int(after)


@dataclass(frozen=True, eq=False)
class TablePart:
    """The rows of the vertices from `start` to `stop` (exclusive), which are those of one table of several."""

    rows: Any
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Refusal:
    """The result of something unsupported; raised when it is read."""

    error: ModelUnsupported


class Unfit(Exception):
    """Why a function is refused as it is called: reason and remedy."""

    def __init__(self, reason: str, remedy: str = "see docs/models.md for the operations supported") -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


class NotTraceable(Exception):
    """torch.fx cannot read this module; a recording may."""


def is_edges(value: Any) -> bool:
    """Whether a symbol is edge_index, as it is or changed."""
    return isinstance(value, (Rewired, Marker)) and value.what == EDGES.what


def is_symbol(value: Any) -> bool:
    """Whether a value, or anything in a list, tuple or dict, depends on the features or the graph."""
    if isinstance(value, (list, tuple)):
        return any(is_symbol(each) for each in value)
    if isinstance(value, dict):
        return any(is_symbol(each) for each in value.values())
    kinds = (ir.Value, Marker, Rewired, End, Pairs, Flat, Shaped, Folded, TablePart, Refusal)
    return isinstance(value, kinds)


def is_of_edges(value: Any) -> bool:
    """Whether a value, or anything in a list, tuple or dict, is of edges: their ends, columns, or rows."""
    if isinstance(value, (list, tuple)):
        return any(is_of_edges(each) for each in value)
    if isinstance(value, dict):
        return any(is_of_edges(each) for each in value.values())
    rows = value.value if isinstance(value, Flat) else value
    if isinstance(rows, ir.Value):
        return rows.on_edges
    if isinstance(value, Marker):
        return value.relation is None and value.what in {each.what for each in (EDGES, WEIGHTS, TYPES)}
    return isinstance(value, (Rewired, End))


def first_refusal(values: Any) -> Refusal | None:
    """The first Refusal in lists, tuples and dicts."""
    if isinstance(values, Refusal):
        return values
    if isinstance(values, (list, tuple, dict)):
        parts = values.values() if isinstance(values, dict) else values
        return next((found for each in parts if (found := first_refusal(each)) is not None), None)
    return None


def refuse(where: str, reason: str, remedy: str) -> ModelUnsupported:
    """The error for something that cannot be kept exact: `where` names the layer and its type."""
    expected = "a model that can be kept exact"
    return ModelUnsupported(where="from_pyg", expected=expected, got=f"{where}: {reason}", advice=remedy)


def refuse_cached(where: str) -> ModelUnsupported:
    """The error for a layer with cached=True."""
    reason, advice = "cached=True keeps the first graph for ever", "set cached=False, or pass ignore_cached=True"
    return refuse(where, reason, advice)


def to_array(tensor: Any) -> Any:
    """A tensor as float64 NumPy; None stays None."""
    if tensor is None:
        return None
    return tensor.detach().to("cpu", torch.float64).numpy()


class Pools:
    """What one reading of a forward has pooled.

    batched: whether the forward is given a batch; else it is of one graph, and pools all rows.
    """

    def __init__(self, batched: bool) -> None:
        self.batched = batched
        self.made: dict[tuple[str, int], ir.Input] = {}
        self.sources: dict[int, tuple[str, ir.Value]] = {}  # id of a pooled row -> kind, rows of vertices

    def of(self, kind: str, rows: ir.Value) -> ir.Value:
        """The row of a graph; kind: add, mean, max or min. A minimum is kept as the maximum of -rows."""
        if kind == "min":
            return ir.Combine(((-1.0, self.of("max", self._negative(rows))),))
        key = kind, id(rows)
        if key not in self.made:
            self.made[key] = ir.Input(rows.width)
            self.sources[id(self.made[key])] = kind, rows
        return self.made[key]

    def _negative(self, rows: ir.Value) -> ir.Value:
        for kind, known in self.sources.values():  # one for several minima of the same rows
            if kind == "max" and isinstance(known, ir.Combine) and known.terms == ((-1.0, rows),):
                return known
        return ir.Combine(((-1.0, rows),))


@dataclass
class Import:
    """The record of one import: names of values, and whether any constant had to be rounded to float32.

    pools: of a module with one row per graph, what it has pooled; None where a row per vertex is wanted.
    features: those of the vertices, where these have no types.
    categories: columns of the features (-1 - those of the attributes) that name rows of tables -> how many rows.
    whole: whether features and attributes are integers.   tables: id of a parameter -> its rows, by vertex.
    operators: what the user's own classes are read as, by class.
    suspects, followed: names of modules that compute with edges in a way that was refused, and those that are followed.
    factors: of degree normalisations by computed weights.   against: whether the layer that is read goes against the
    edges.   changed: rows of edges with their ends changed over, by id (models/turning.py).
    positive: whether a degree of computed weights has no root if these are below 0.
    relations: the number of types of edges, of which every table that is indexed by them has a row.
    """

    rounded: bool = False
    recorded: bool = False
    forced: bool = False  # whether the forward is recorded even where torch.fx reads it
    pools: Pools | None = None
    features: ir.Value | None = None
    categories: dict[int, int] = field(default_factory=dict)
    whole: bool = False
    tables: dict[int, Any] = field(default_factory=dict)
    ends: tuple[int, ...] = ()  # where each of several tables ends, from 0
    example_rows: int | None = None  # of the graph of a recorded run
    rows: ir.Value | None = None  # any rows of vertices, for what a forward computes of the edges alone
    operators: Mapping[type, Any] = field(default_factory=dict)
    nowhere: dict[int, ir.Value] = field(default_factory=dict)  # by id: which entries are infinite, as rows have it
    suspects: dict[str, None] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    unfollowed: ModelUnsupported | None = None  # why the forward is refused where none are followed
    names: dict[int, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, tuple[int, int]] = field(default_factory=dict)  # columns of several results that are kept
    weights_from: set[str] = field(default_factory=set)  # columns handed to layers as weights: edge_weight, edge_attr
    factors: dict[tuple[int, bool, float, bool], Any] = field(default_factory=dict)
    against: bool = False
    changed: dict[int, tuple[ir.Value, ir.Value]] = field(default_factory=dict)
    positive: bool = False
    relations: int | None = None
    attribute_relations: dict[int, Relation] = field(default_factory=dict)  # id of an EdgeAttribute -> whose it is

    def constant(self, array: Any) -> Any:
        """A float64 constant of the model's own making, noted if float32 cannot hold it."""
        exact = np.asarray(array, np.float64)
        with np.errstate(over="ignore"):
            self.rounded = self.rounded or bool((exact.astype(np.float32) != exact).any())
        return exact

    def name(self, result: Any, where: str) -> Any:
        """Gives every new value below `result` the name `where`; returns `result`."""
        todo = [result]
        while todo:
            each = todo.pop()
            if isinstance(each, (list, tuple)):
                todo.extend(each)
            elif isinstance(each, dict):
                todo.extend(each.values())
            elif isinstance(each, Flat):
                todo.append(each.value)
            elif isinstance(each, Shaped):
                todo.append(each.source)
            elif isinstance(each, Folded):
                todo.append(each.rows.source)
            elif isinstance(each, TablePart):
                todo.append(each.rows)
            elif isinstance(each, ir.Value) and id(each) not in self.names:
                self.names[id(each)] = where
                self.keep.append(each)
                todo.extend(each.inputs)
        return result

    keep: list[ir.Value] = field(default_factory=list)  # named values live as long as their ids are keys
