"""How layers put messages together: what depends on one end of an edge alone stays with the vertex.

A linear step over [x_target, x_source - x_target, attributes] is taken apart into one step per vertex and end, brought
to the edge by Source and Target, so that an edge costs additions only.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.models import ir
from livegnn.models.edges import AddedLoop, Gather, Source, Target

Term = tuple[float, ir.Value]
Part = tuple[float, ir.Value, int]  # coefficient, rows, first column of the weight that they meet


def total(terms: list[Term]) -> ir.Value:
    """The sum of coef * value."""
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1.0 else ir.Combine(tuple(terms))


def ones(x: ir.Value) -> ir.Value:
    """A column of ones, one row where `x` has one."""
    return ir.Affine(x if x.width == 1 else ir.Slice(x, 0, 1), np.zeros(1, np.float32), np.ones(1, np.float32))


def constant(x: ir.Value, row: Any) -> ir.Value:
    """The same row, of the width of `x` or one number, where `x` has a row."""
    return ir.Affine(x, np.zeros(x.width, np.float32), np.broadcast_to(np.asarray(row), (x.width,)))


def filled(rows: ir.Value, fill: ir.Aggregate | Any) -> ir.Value:
    """Rows of edges, and of loops that a Gather adds: an aggregate of the vertex's other in-edges', or a constant."""
    text = isinstance(fill, str)
    loop = Target(Gather(rows, fill, loops="drop")) if text else constant(rows, fill)
    return ir.Elementwise("where", (AddedLoop(), loop, rows))


def shift(x: ir.Value, bias: Any) -> ir.Value:
    """x + bias, bias (w,) or None."""
    return x if bias is None else ir.Affine(x, np.ones(x.width, np.float32), bias)


def block_rows(blocks: Any) -> NDArray[Any]:
    """(h, c) to (h, h c): row i holds blocks[i] in its own block of columns and 0 elsewhere."""
    blocks = np.asarray(blocks)
    heads, columns = blocks.shape
    weight = np.zeros((heads, heads, columns), blocks.dtype)
    weight[np.arange(heads), np.arange(heads)] = blocks
    return weight.reshape(heads, heads * columns)


def mean_of_heads(x: ir.Value, heads: int) -> ir.Value:
    """The mean of the `heads` blocks of columns."""
    columns = x.width // heads
    blocks = [ir.Slice(x, h * columns, (h + 1) * columns) for h in range(heads)]
    return x if heads == 1 else ir.Combine(tuple((1.0 / heads, block) for block in blocks))


def linear(x: ir.Value, weight: Any, bias: Any = None) -> ir.Value:
    """W x + b. On edges, every part of `x` that is one end's row is multiplied at its vertex, once."""
    parts = _parts(x, 0) if x.on_edges else []
    at_ends = [(coef, part, start) for coef, part, start in parts if isinstance(part, Source | Target)]
    if not at_ends or weight.shape[1] != x.width:
        return ir.Linear(x, weight, bias)
    uses = Counter((id(part.x), start) for _, part, start in at_ends)
    known: dict[tuple[int, int], ir.Value] = {}
    ends: dict[type, list[Term]] = {Target: [], Source: []}
    for coef, end, start in at_ends:
        key = (id(end.x), start)
        if key not in known:
            own = bias if uses[key] == 1 and coef == 1.0 else None
            known[key] = ir.Linear(end.x, weight[:, start : start + end.width], own)
            bias = None if own is not None else bias
        ends[type(end)].append((coef, known[key]))
    terms: list[Term] = []
    for take, rows in ends.items():
        if rows:
            terms.append((1.0, take(shift(total(rows), bias))))
            bias = None
    others: dict[tuple[int, int], list[Term]] = {}
    for coef, part, start in parts:
        if not isinstance(part, Source | Target):
            others.setdefault((start, start + part.width), []).append((coef, part))
    terms += [(1.0, ir.Linear(total(rows), weight[:, start:stop])) for (start, stop), rows in others.items()]
    return total(terms)


def _parts(x: ir.Value, start: int) -> list[Part]:
    """`x` as a sum of rows, each in its own columns; sums that hold no end's row stay together."""
    if isinstance(x, ir.Concat):
        found: list[Part] = []
        for each in x.xs:
            found += _parts(each, start)
            start += each.width
        return found
    if isinstance(x, ir.Combine):
        found = [(coef * c, part, at) for coef, each in x.terms for c, part, at in _parts(each, start)]
        if any(isinstance(part, Source | Target) for _, part, _ in found):
            return found
    return [(1.0, x, start)]


def split_target(message: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """(own, rest) with message = Target(own) + rest, both of vertices where they can be; own None if there is none."""
    if not message.on_edges:
        return None, message
    parts = [(coef, part) for coef, part, _ in _parts(message, 0)] if isinstance(message, ir.Combine) else []
    if not parts or any(part.width != message.width for _, part in parts):
        return None, message.x if isinstance(message, Source) else message
    own = [(coef, part.x) for coef, part in parts if isinstance(part, Target)]
    source = [(coef, part.x) for coef, part in parts if isinstance(part, Source)]
    others = [(coef, part) for coef, part in parts if not isinstance(part, Source | Target)]
    if own and not source and not others:
        return None, message
    rest = total(others) if others else total(source)
    if source and others:
        rest = ir.Combine(((1.0, Source(total(source))), *others))
    return (total(own) if own else None), rest
