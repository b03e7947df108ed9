"""Sums along edges whose self-loops a forward has added, removed or filled, and their normalisation by degrees."""

from __future__ import annotations

from dataclasses import replace

from livegnn.models import ir
from livegnn.models.edges import Gather, Source
from livegnn.models.messages import ones
from livegnn.models.pyg.context import Import, Rewired
from livegnn.models.pyg.weighted import inverse_root, is_graphs, loop_rows, normalised, times_weight


def present_sum(x: ir.Value, edges: Rewired, record: Import) -> ir.Value:
    """The sum of the sources' rows, self-loops as the forward has left them; times the weights where it reads these."""
    weight = edges.weight
    message = Source(x) if weight is None else times_weight(x, weight)
    if edges.loops in ("keep", "add"):
        plain = ir.propagate(x, "sum", edges.weighted) if is_graphs(weight) else Gather(message, "sum")
        return plain if edges.loops == "keep" else ir.Combine(((1.0, plain), (edges.fill, x)))
    if edges.loops == "fill" and is_graphs(weight):
        return ir.Propagate(x, "sum", edges.weighted, True, edges.fill if edges.weighted else 1.0)
    dropped = Gather(message, "sum", loops="drop")
    if edges.loops == "drop":
        return dropped
    if edges.loops == "replace" or weight is None:
        return ir.Combine(((1.0, dropped), (edges.fill, x)))
    return ir.Combine(((1.0, dropped), (1.0, ir.Multiply(x, loop_rows(weight, record.constant(edges.fill))))))


def present_mean(x: ir.Value, edges: Rewired, record: Import) -> ir.Value:
    """That sum by the number of edges, which weights do not change; 0 where there is none."""
    count = present_sum(ones(x), replace(edges, weight=None, fill=1.0), record)
    return ir.Elementwise("divide", (present_sum(x, edges, record), count))


def normalised_sum(x: ir.Value, edges: Rewired, record: Import) -> ir.Value:
    """s_v * the sum of w_uv s_u x[u],  s = degree^-1/2, 0 where the degree is 0, over the edges as they are by now."""
    if edges.loops == "keep":
        return normalised(x, edges.weight, record, self_loops=False)
    if edges.loops == "fill" or (edges.loops == "replace" and not edges.weighted):
        return normalised(x, edges.weight, record, self_loops=True, fill=edges.fill)
    scale = inverse_root(present_sum(ones(x), edges, record), record)
    return ir.Multiply(present_sum(ir.Multiply(x, scale), edges, record), scale)
