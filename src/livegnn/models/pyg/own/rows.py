"""What the tensors of an own layer stand for, and columns of rows with more than two dimensions.

A tensor of shape (rows, ...) is one row per vertex or per edge; as a value, a row is flat. What depends on one end of
an edge alone is computed at the vertex: f(Source(x)) is Source(f(x)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.edges import HeadScale, Source, Target
from livegnn.models.messages import linear
from livegnn.models.pyg.context import Import, Refusal, Shaped, Unfit, to_array

_SMOOTH = ("divide", "reciprocal", "sqrt", "exp", "log", "tanh", "sigmoid")
_MOST_SLICES = 16  # of a choice of columns that is not a product with a matrix of zeros and ones


@dataclass(frozen=True)
class EdgeChoice:
    """Which edges a list of edges holds: the graph's, and lists of loops with one for every vertex.

    own: whether self-loop edges are among the graph's.   relation: the one type of the graph's edges; None for all.
    added: how many lists of loops there are, `before` of them in front of the graph's edges.
    masks: numbers of the whole list's edges, 0 for those that are left out.
    joined: whether parallel edges are one, with the sum of their numbers. Here they are still several.
    """

    own: bool = True
    added: int = 0
    before: int = 0
    relation: int | None = None
    masks: tuple[Traced, ...] = ()
    joined: bool = False

    @property
    def plain(self) -> EdgeChoice:
        """The graph's edges among these, without masks."""
        return EdgeChoice(self.own, relation=self.relation)


@dataclass(frozen=True)
class EndIds:
    """The vertices at the ends of edges: 0, the sources; 1, the targets; None, both, the targets first if `turned`."""

    edges: EdgeChoice
    end: int | None = None
    turned: bool = False

    def of(self, row: int) -> EndIds:
        """One row of both ends."""
        return EndIds(self.edges, row % 2 ^ self.turned)


@dataclass(frozen=True)
class EdgeMask:
    """Which edges of a list are left: own, whether self-loops are; relation, of which type they are, None for all;
    numbers, of which they have one that is not 0, None for all.
    """

    edges: EdgeChoice
    own: bool = True
    relation: int | None = None
    numbers: Traced | None = None


@dataclass(frozen=True)
class EdgeTypes:
    """The types of edges, whole numbers."""

    edges: EdgeChoice


@dataclass(frozen=True)
class Chosen:
    """The vertices where `mask`, one number each, is not 0."""

    mask: Traced


@dataclass(frozen=True)
class Places:
    """The numbers of the edges or vertices where a truth holds, as torch.where and nonzero give them."""

    mask: Traced


@dataclass(frozen=True, eq=False)
class LoopWeight(ir.Value):
    """The weight of a vertex's last self-loop edge, `fill` without one. Known to degree-normalised sums alone."""

    fill: float

    def __post_init__(self) -> None:
        self._define(1, (), on_edges=False, vertex_type=None)


@dataclass(frozen=True, eq=False)
class Traced:
    """Rows: of vertices, or of `edges`, with `shape` left of each row.

    loops: what the rows of each list of added loops are, one row per vertex.   even: whether these are what `value` is
    on an edge from the vertex to itself.   whole: whether these are whole numbers, as the types of edges.
    """

    value: ir.Value
    shape: tuple[int, ...]
    edges: EdgeChoice | Chosen | None = None
    loops: tuple[ir.Value, ...] = ()
    even: bool = True
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Laid:
    """Rows of vertices, or of the graph's edges, whose dimension is not the first: x.unsqueeze(0), x.t()."""

    rows: Shaped
    edges: EdgeChoice | None


@dataclass(frozen=True)
class EndPairs:
    """edge_index.T: both ends of every edge, one edge after the other."""

    ends: EndIds


@dataclass(frozen=True)
class BothEnds:
    """x[edge_index]: all rows at one end, then all rows at the other."""

    ends: tuple[Traced, Traced]


@dataclass(frozen=True)
class Matrix:
    """A sparse matrix of as many rows and columns as there are vertices, a number for each edge of a list.

    rows: the end of the edges that numbers its rows; the other numbers its columns.
    """

    numbers: Traced
    rows: int


@dataclass(frozen=True)
class InfiniteEntries:
    """Where rows are infinite or have no value: nowhere, since a division by 0 gives 0 in the engine."""


def is_followed(value: Any) -> bool:
    """Whether a value, or anything in a list, tuple or dict, depends on the features or the graph."""
    if isinstance(value, (list, tuple)):
        return any(is_followed(each) for each in value)
    if isinstance(value, dict):
        return any(is_followed(each) for each in value.values())
    kinds = (Traced, Laid, EndIds, EndPairs, BothEnds, EdgeMask, EdgeTypes, Places, InfiniteEntries, Matrix, Refusal)
    return isinstance(value, kinds)


def at_ends(function: Callable[..., Any], *values: ir.Value) -> Any:
    """function(*values), computed at the vertices where all values are rows of the same end."""
    for end in (Source, Target):
        if values and all(isinstance(each, end) for each in values):
            result = function(*(each.inputs[0] for each in values))
            return tuple(map(end, result)) if isinstance(result, tuple) else end(result)
    return function(*values)


def mapped(function: Callable[..., ir.Value], shape: Sequence[int], *rows: Traced) -> Traced:
    """A row-local function of rows of the same vertices or edges. Raises: Unfit for others."""
    edges = rows[0].edges
    if any(each.edges != edges for each in rows):
        raise Unfit("it joins rows of vertices with rows of edges, or rows of different edges")
    value = at_ends(function, *(each.value for each in rows))
    refuse_cut(edges, value, rows)
    loops = []
    for place in range(len(rows[0].loops)):
        known = all(isinstance(each.value, Source | Target) and each.value.x is each.loops[place] for each in rows)
        joined = known and isinstance(value, Source | Target)
        loops.append(value.x if joined else function(*(each.loops[place] for each in rows)))
    return Traced(value, tuple(shape), edges, tuple(loops), all(each.even for each in rows))


def refuse_cut(edges: Any, value: ir.Value, rows: Sequence[Traced]) -> None:
    """Refuses a function of a coalesced matrix's numbers that no comparison shows. Raises: Unfit."""
    if isinstance(edges, EdgeChoice) and edges.joined and not _is_smooth(value, {id(each.value) for each in rows}):
        raise Unfit(
            "it compares or cuts off sums over parallel edges, which a coalesced matrix has",
            "do that with the edges' own numbers, before they make a matrix",
        )


def _is_smooth(value: ir.Value, known: set[int]) -> bool:
    """Whether a function of known rows has one formula everywhere, so that a few parallel edges show what it does."""
    if id(value) in known or isinstance(value, Source | Target):  # rows of one end are those of all parallel edges
        return True
    if isinstance(value, ir.Maximum | ir.PReLU | ir.Lookup) or getattr(value, "kind", "exp") not in _SMOOTH:
        return False
    return all(_is_smooth(each, known) for each in value.inputs)


def columns(value: ir.Value, index: Any) -> ir.Value:
    """The columns of `value` that `index` lists, in that order."""
    index = np.asarray(index, np.int64).reshape(-1)
    if np.array_equal(index, np.arange(value.width)):
        return value
    breaks = np.flatnonzero(np.diff(index) != 1) + 1
    if isinstance(value, ir.Concat):  # a run stays within one part, so that one end's columns stay that end's
        starts = np.cumsum([0, *(each.width for each in value.xs)])
        breaks = np.union1d(breaks, np.flatnonzero(np.isin(index[1:], starts)) + 1)
    if len(breaks) < _MOST_SLICES and not (value.width == 1 and len(index) > 1):
        runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(index, breaks)]
        parts = tuple(_slice(value, *run) for run in runs)
        return parts[0] if len(parts) == 1 else ir.Concat(parts)
    return linear(value, np.eye(value.width, dtype=np.float32)[index])


def _slice(value: ir.Value, start: int, stop: int) -> ir.Value:
    """Columns start to stop, of a Concat's part where they lie in one."""
    if isinstance(value, ir.Concat):
        at = 0
        for each in value.xs:
            if at <= start and stop <= at + each.width:
                return _slice(each, start - at, stop - at)
            at += each.width
    if (start, stop) == (0, value.width):
        return value
    return at_ends(lambda x: ir.Slice(x, start, stop), value)  # type: ignore[no-any-return]


def spread(value: ir.Value, shape: tuple[int, ...], wanted: tuple[int, ...]) -> ir.Value:
    """Rows of `shape` repeated to the shape `wanted`, as torch broadcasts them."""
    if shape == wanted:
        return value
    return columns(value, np.broadcast_to(np.arange(value.width).reshape(shape), wanted))


def constant_like(value: ir.Value, row: Any) -> ir.Value:
    """The constant `row`, one where `value` has a row."""
    row = np.asarray(row).reshape(-1)
    first = value if value.width == 1 else ir.Slice(value, 0, 1)
    return ir.Linear(first, np.zeros((len(row), 1), np.float32), row)


def constant_row(value: ir.Value) -> Any:
    """The flat row of a constant that `constant_like` made, brought to edges or not; None for anything else."""
    x = value.x if isinstance(value, Source | Target) else value
    return x.bias if isinstance(x, ir.Linear) and x.bias is not None and not x.weight.any() else None


def row_of(tensor: Any, count: int, shape: tuple[int, ...], record: Import) -> Any:
    """A constant tensor, broadcast to rows of `shape`, as one flat row. Raises: Unfit where its rows differ."""
    if not isinstance(tensor, torch.Tensor):
        return record.constant(np.full(shape, float(tensor))).reshape(-1)
    array = to_array(tensor)
    if array.ndim == len(shape) + 1:
        if len(array) not in (1, count) or (array != array[:1]).any():
            raise Unfit(
                "it takes numbers of its own for each vertex or edge, and these come and go",
                "give them to the graph as features or attributes",
            )
        array = array[0]
    try:
        return record.constant(np.broadcast_to(array, shape)).reshape(-1)
    except ValueError:
        raise Unfit(f"a constant of shape {tuple(tensor.shape)} does not fit rows of shape {shape}") from None


def times(a: Traced, b: Traced, shape: tuple[int, ...]) -> Traced:
    """The product of two rows, each repeated to `shape`."""
    if prod(a.shape) < prod(b.shape):
        a, b = b, a
    size, factors = prod(shape), prod(b.shape)
    repeated = np.broadcast_to(np.arange(factors).reshape(b.shape), shape).reshape(-1)
    in_blocks = size % factors == 0 and np.array_equal(repeated, np.repeat(np.arange(factors), size // factors))

    def product(x: ir.Value, y: ir.Value) -> ir.Value:
        x = spread(x, a.shape, shape)
        if not in_blocks:
            return ir.Multiply(x, spread(y, b.shape, shape))
        return ir.Multiply(x, y) if factors in (1, size) else HeadScale(x, y, factors)

    return mapped(product, shape, a, b)


def prod(shape: Sequence[int]) -> int:
    """The number of columns of a row."""
    return int(np.prod(shape, dtype=np.int64))
