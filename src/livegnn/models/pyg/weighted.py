"""Sums along edges with weights that a forward has computed from the edges' own columns.

Such a weight is a constant of its edge. So a sum is kept in fixed point, a message is replaced when its source's row or
its edge's columns change, and degrees are sums of the weights themselves.
"""

from __future__ import annotations

from typing import Any

from livegnn.models import ir
from livegnn.models.edges import AddedLoop, EdgeAttribute, EdgeWeight, Gather, Loops, Source, Target
from livegnn.models.layers import gcn_propagate
from livegnn.models.messages import constant, ones
from livegnn.models.pyg.context import Import


def is_graphs(weight: ir.Value | None) -> bool:
    """Whether these are the graph's own weights, or none, which a Propagate reads by itself."""
    return weight is None or isinstance(weight, EdgeWeight)


def times_weight(message: ir.Value, weight: ir.Value) -> ir.Value:
    """Rows of sources or of edges, each times the weight of its edge."""
    return ir.Multiply(message if message.on_edges else Source(message), weight)


def loop_rows(rows: ir.Value, others: ir.Value | Any, relation: int | None = None) -> ir.Value:
    """The row of every vertex's newest self-loop edge, of one type or of all; without one its row of `others`, or a
    constant.
    """
    both = Gather(ir.Concat((rows, ones(rows))), "newest", loops="only", relation=relation)
    newest, present = ir.Slice(both, 0, rows.width), ir.Slice(both, rows.width, both.width)
    others = others if isinstance(others, ir.Value) else constant(newest, others)
    return ir.Elementwise("where", (present, newest, others))


def normalised(
    x: ir.Value,
    weight: ir.Value | None,
    record: Import,
    *,
    self_loops: bool,
    fill: float = 1.0,
    reduce: ir.Reduce = "sum",
) -> ir.Value:
    """a[v] = s_v * (sum over edges (u, v) of w_uv s_u x[u] + L_v s_v x[v]), as ir.Propagate's norm "gcn"."""
    if is_graphs(weight):
        return gcn_propagate(x, weight is not None, self_loops, fill, reduce)
    assert weight is not None
    loop, factor = _factors(weight, self_loops, fill, record)
    scaled = ir.Multiply(x, factor)
    others: Loops = "drop" if self_loops else "keep"
    if reduce == "sum" or loop is None:
        y: ir.Value = Gather(times_weight(scaled, weight), reduce, loops=others)
        y = y if loop is None else ir.Combine(((1.0, y), (1.0, ir.Multiply(scaled, loop))))
    else:
        with_loops = ir.Elementwise("where", (AddedLoop(), Target(loop), weight))
        y = Gather(times_weight(scaled, with_loops), reduce, loops="replace")
    return ir.Multiply(y, factor)


def _factors(weight: ir.Value, self_loops: bool, fill: float, record: Import) -> tuple[ir.Value | None, ir.Value]:
    """(L_v, s_v), made once for all layers and hops that take the same weights in the same direction."""
    key = id(weight), self_loops, fill, record.against
    if key not in record.factors:
        own = loop_rows(weight, record.constant(fill)) if self_loops else None
        degree: ir.Value = Gather(weight, "sum", loops="drop" if self_loops else "keep")
        degree = degree if own is None else ir.Combine(((1.0, degree), (1.0, own)))
        record.factors[key] = weight, own, inverse_root(degree, record)
    _, loop, factor = record.factors[key]
    return loop, factor


def inverse_root(degree: ir.Value, record: Import) -> ir.Value:
    """degree^-1/2, 0 where the degree is not above 0; the comparison then draws attributes above 0."""
    record.positive = record.positive or any(isinstance(each, EdgeAttribute) for each in ir.walk(degree))
    return ir.Activation(ir.Activation(degree, "sqrt"), "reciprocal")
