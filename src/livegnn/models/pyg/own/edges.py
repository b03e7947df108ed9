"""Lists of edges that a forward makes of edge_index: with loops joined to them, with edges left out, put together.

Loops are numbers of all vertices, arange(N), in both ends; rows of loops are rows of vertices. An edge is left out by
a mask; its rows are still computed, and count for nothing where they are reduced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.edges import Source
from livegnn.models.pyg.context import Import, Unfit
from livegnn.models.pyg.own.rows import (
    Chosen,
    EdgeChoice,
    EdgeMask,
    EdgeTypes,
    EndIds,
    Places,
    Traced,
    constant_like,
    mapped,
    row_of,
    spread,
)
from livegnn.models.pyg.own.ways import Ways


class Tracing(Protocol):
    """What a handler may use of the layer that is read; vertices, edges: how many the run's graph has."""

    record: Import
    reducer: Ways
    from_zeros: bool
    vertices: int
    edges: int
    masks: dict[Any, Traced]

    def constant(self, like: Traced, row: Any, shape: tuple[int, ...]) -> Traced: ...


SINGLE_EDGES = "it picks single edges, and the edges of a graph that changes are not fixed"


def on_edges_of(tracing: Tracing, index: EndIds, row: Any, shape: tuple[int, ...]) -> Traced:
    """The constant `row` on every edge of a list."""
    constant = constant_like(tracing.reducer.anchor, row)
    return Traced(Source(constant), shape, index.edges, (constant,) * index.edges.added)


def constant_rows(tracing: Tracing, tensor: Any, edges: EdgeChoice, shape: tuple[int, ...]) -> Traced:
    """A constant tensor on every edge of a list: one row on the graph's edges, and one on each list of loops.

    Raises: Unfit where rows of single edges or vertices differ.
    """
    if not edges.added or not isinstance(tensor, torch.Tensor) or tensor.ndim != len(shape) + 1 or len(tensor) == 1:
        count = len(tensor) if isinstance(tensor, torch.Tensor) and tensor.ndim else 1
        return on_edges_of(tracing, EndIds(edges), row_of(tensor, count, shape, tracing.record), shape)
    lists = [tracing.vertices] * edges.added
    lists.insert(edges.before, len(tensor) - sum(lists))
    rows = [row_of(part, len(part), shape, tracing.record) for part in torch.split(tensor, lists)]
    own = rows.pop(edges.before)
    loops = tuple(constant_like(tracing.reducer.anchor, row) for row in rows)
    same = all(np.array_equal(row, own) for row in rows)
    if same:
        return on_edges_of(tracing, EndIds(edges), own, shape)
    return Traced(Source(constant_like(tracing.reducer.anchor, own)), shape, edges, loops, even=False)


# ---- lists put together


def cat_ends(tracing: Tracing, tensors: Sequence[Any], dim: int) -> EndIds:
    """torch.cat of edge_index, or of one of its rows, and loops. Raises: Unfit."""
    lists = [each for each in tensors if isinstance(each, EndIds)]
    if len(lists) != 1:
        raise Unfit(
            "it joins several lists of edges of the graph", "call the layers once for each, and add the results"
        )
    (ids,) = lists
    if dim != (1 if ids.end is None else 0):
        raise Unfit("it does not join edges to edges", "join edge_index by dim=1")
    counts = [0 if each is ids else _loops_in(tracing, each) for each in tensors]
    place = next(i for i, each in enumerate(tensors) if each is ids)
    return dataclasses.replace(ids, edges=extended(tracing, ids.edges, sum(counts[:place]), sum(counts[place:])))


def _loops_in(tracing: Tracing, tensor: Any) -> int:
    """How many times a constant lists all vertices, in every row. Raises: Unfit for other numbers."""
    if isinstance(tensor, torch.Tensor) and tensor.numel():
        rows = tensor.reshape(-1, tensor.shape[-1])
        times, rest = divmod(rows.shape[1], tracing.vertices)
        if not rest and bool((rows == torch.arange(tracing.vertices).repeat(times)).all()):
            return times
    raise Unfit("it joins edges of its own, and those of the graph come and go", "join loops, torch.arange(x.size(0))")


def extended(tracing: Tracing, edges: EdgeChoice, before: int, after: int) -> EdgeChoice:
    """A list with more loops in front of it and at its end; what is masked stays masked."""

    def longer(mask: Traced) -> Traced:
        key = id(mask), before, after
        if key not in tracing.masks:
            one = constant_like(tracing.reducer.anchor, [1.0])
            loops = ((one,) * before, mask.loops, (one,) * after)
            tracing.masks[key] = dataclasses.replace(mask, loops=sum(loops, ()))
        return tracing.masks[key]

    if not before + after:
        return edges
    masks = tuple(map(longer, edges.masks))
    return dataclasses.replace(edges, added=edges.added + before + after, before=edges.before + before, masks=masks)


def cat_rows(tracing: Tracing, tensors: Sequence[Any], shape: tuple[int, ...]) -> Traced:
    """torch.cat by dim=0 of rows of edges and rows of loops, which are rows of vertices. Raises: Unfit."""
    found = [i for i, each in enumerate(tensors) if isinstance(each, Traced) and isinstance(each.edges, EdgeChoice)]
    found = found or [i for i, each in enumerate(tensors) if _is_of_edges(tracing, each)]
    if len(found) != 1:
        raise Unfit("dim=0 joins rows of vertices or edges", "join columns by dim=-1")
    (place,) = found
    rows = tensors[place]
    if not isinstance(rows, Traced):
        rows = constant_rows(tracing, rows, EdgeChoice(), shape)
    parts = [_rows_of_loops(tracing, each, shape) for i, each in enumerate(tensors) if i != place]
    before, after = sum(parts[:place], ()), sum(parts[place:], ())
    edges = extended(tracing, rows.edges, len(before), len(after))  # type: ignore[arg-type]
    return Traced(rows.value, shape, edges, (*before, *rows.loops, *after), even=False)


def _is_of_edges(tracing: Tracing, each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.ndim > 0 and len(each) == tracing.edges


def _rows_of_loops(tracing: Tracing, each: Any, shape: tuple[int, ...]) -> tuple[ir.Value, ...]:
    if isinstance(each, Traced):
        if each.edges is not None or each.shape != shape:
            raise Unfit("it joins rows of several lists of edges", "join them in the order of the edges, loops last")
        return (each.value,)
    if not isinstance(each, torch.Tensor) or each.ndim != len(shape) + 1 or len(each) % tracing.vertices:
        raise Unfit("it joins rows that are neither those of edges nor one for each vertex", "join rows of loops")
    parts = torch.split(each, tracing.vertices)
    rows = [row_of(part, len(part), shape, tracing.record) for part in parts]
    return tuple(constant_like(tracing.reducer.anchor, row) for row in rows)


# ---- edges and vertices left out


def compared_ends(a: Any, b: Any, *, equal: bool) -> EdgeMask:
    """row != col. Raises: Unfit for row == col, or other comparisons of ends."""
    ends = [each.end for each in (a, b) if isinstance(each, EndIds)]
    if sorted(ends, key=str) != [0, 1] or a.edges != b.edges:
        raise Unfit("it compares ends of edges with something else than their other ends", "compare row and col")
    if equal:
        raise Unfit("it picks self-loops alone", "pick the other edges by row != col, and join loops of all vertices")
    return EdgeMask(a.edges, own=False)


def of_type(types: EdgeTypes, kind: Any) -> EdgeMask:
    """edge_type == kind. Raises: Unfit for anything but a whole number from 0."""
    if isinstance(kind, torch.Tensor) and kind.numel() == 1:
        kind = int(kind)
    if not isinstance(kind, int) or isinstance(kind, bool):
        raise Unfit("it compares edge_type with something else than a number", "compare it with one type's number")
    if kind < 0:
        raise Unfit(f"it compares edge_type with {kind}, and types are numbers from 0", "number the types from 0")
    return EdgeMask(types.edges, relation=kind)


def both(a: Any, b: Any) -> EdgeMask:
    """a & b, of masks of the same edges. Raises: Unfit."""
    a, b = as_mask(a), as_mask(b)
    if a.edges != b.edges or (a.relation is not None and b.relation is not None):
        raise Unfit("it joins masks of different edges", "mask one after the other")
    relation = b.relation if a.relation is None else a.relation
    numbers = [each.numbers for each in (a, b) if each.numbers is not None]
    joined = mapped(ir.Multiply, (), *numbers) if len(numbers) == 2 else numbers[0] if numbers else None
    return EdgeMask(a.edges, a.own and b.own, relation, joined)


def as_mask(mask: Any) -> EdgeMask:
    """A truth of edges as a mask. Raises: Unfit for anything else."""
    if isinstance(mask, EdgeMask):
        return mask
    if isinstance(mask, Places):
        mask = mask.mask
    if not isinstance(mask, Traced) or not isinstance(mask.edges, EdgeChoice) or mask.shape != ():
        raise Unfit(SINGLE_EDGES, "pick edges by a comparison of their own numbers, such as weight > 0")
    return EdgeMask(mask.edges, numbers=mask)


def left_of(tracing: Tracing, edges: EdgeChoice, mask: EdgeMask) -> EdgeChoice:
    """A list of edges without those that a mask leaves out. Raises: Unfit for a mask of another list."""
    if mask.edges != edges:
        raise Unfit("its mask is not one of these edges", "compute the mask of the edges that it picks from")
    if mask.relation is not None:
        if edges.added or edges.relation is not None:
            raise Unfit("it picks a type from edges that loops were added to", "pick the type first")
        edges = dataclasses.replace(edges, relation=mask.relation)
    if mask.numbers is not None:
        edges = dataclasses.replace(edges, masks=(*edges.masks, mask.numbers))
    return edges if mask.own else without_loops(tracing, edges)


def without_loops(tracing: Tracing, edges: EdgeChoice) -> EdgeChoice:
    """A list without self-loops, the graph's and those that were added."""

    def shorter(mask: Traced) -> Traced:
        if mask.loops and id(mask) not in tracing.masks:
            tracing.masks[id(mask)] = dataclasses.replace(mask, loops=())
        return tracing.masks[id(mask)] if mask.loops else mask

    return dataclasses.replace(edges, own=False, added=0, before=0, masks=tuple(map(shorter, edges.masks)))


def rows_left(tracing: Tracing, rows: Traced, mask: EdgeMask) -> Traced:
    """Rows of those edges that a mask leaves. Raises: Unfit."""
    if not isinstance(rows.edges, EdgeChoice):
        raise Unfit("it picks rows of vertices by a mask of edges", "mask rows of the same edges")
    edges = left_of(tracing, rows.edges, mask)
    return dataclasses.replace(rows, edges=edges, loops=rows.loops if mask.own else ())


# ---- vertices chosen by a truth


def chosen(rows: Traced, mask: Traced) -> Traced:
    """x[mask], of vertices: the rows of all, of which those of other vertices are not read. Raises: Unfit."""
    if rows.edges is not None or mask.edges is not None or mask.shape != ():
        raise Unfit("it picks rows, and the rows of a graph that changes are not fixed", "pick columns only")
    return dataclasses.replace(rows, edges=Chosen(mask))


def written(tracing: Tracing, rows: Any, mask: Any, given: Any, shape: tuple[int, ...]) -> Traced:
    """x[mask] = given, mask a truth of vertices or edges: where(mask, given, x). Raises: Unfit."""
    mask = mask.mask if isinstance(mask, Places) else mask
    if isinstance(mask, EdgeMask) and mask.own and mask.relation is None:
        mask = mask.numbers
    if not isinstance(mask, Traced):
        raise Unfit("it changes single entries", "write by a comparison of the rows' own numbers")
    if not isinstance(rows, Traced):
        rows = constant_with(tracing, rows, mask, shape)
    if isinstance(given, Traced) and isinstance(given.edges, Chosen):
        if given.edges.mask is not mask:
            raise Unfit("what it writes was picked by another mask", "use one mask for both")
        given = dataclasses.replace(given, edges=mask.edges)
    if not isinstance(given, Traced):
        given = constant_with(tracing, given, rows, shape)
    if rows.shape != shape or (mask.shape and len(mask.shape) != len(shape)):
        raise Unfit("it changes single entries", "write to whole rows")

    def pick(truth: ir.Value, new: ir.Value, old: ir.Value) -> ir.Value:
        truth = truth if truth.width == 1 else spread(truth, mask.shape, shape)
        return ir.Elementwise("where", (truth, spread(new, given.shape, shape), old))

    return mapped(pick, shape, mask, given, rows)


def constant_with(tracing: Tracing, tensor: Any, like: Traced, shape: tuple[int, ...]) -> Traced:
    """A constant in the rows' place, where `like` has rows."""
    if isinstance(like.edges, EdgeChoice):
        return constant_rows(tracing, tensor, like.edges, shape)
    count = len(tensor) if isinstance(tensor, torch.Tensor) and tensor.ndim else 1
    row = row_of(tensor, count, shape, tracing.record)
    return Traced(constant_like(tracing.reducer.anchor, row), shape, like.edges)
