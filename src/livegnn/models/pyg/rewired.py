"""Sums along edges whose self-loops a forward has added, removed or filled, and their normalisation by degrees."""

from __future__ import annotations

from dataclasses import replace

from livegnn.models import ir
from livegnn.models.edges import EdgeWeight, Gather, Source
from livegnn.models.layers import gcn_propagate
from livegnn.models.messages import ones
from livegnn.models.pyg.context import Rewired


def present_sum(x: ir.Value, edges: Rewired) -> ir.Value:
    """The sum of the sources' rows, self-loops as the forward has left them; times the weights where it reads these."""
    if edges.loops == "keep":
        return ir.propagate(x, "sum", edges.weighted)
    if edges.loops == "fill":
        return ir.Propagate(x, "sum", edges.weighted, True, edges.fill if edges.weighted else 1.0)
    if edges.loops == "add":
        return ir.Combine(((1.0, ir.propagate(x, "sum", edges.weighted)), (edges.fill, x)))
    message = ir.Multiply(Source(x), EdgeWeight()) if edges.weighted else Source(x)
    dropped = Gather(message, "sum", loops="drop")
    if edges.loops == "drop":
        return dropped
    return ir.Combine(((1.0, dropped), (edges.fill, x)))


def present_mean(x: ir.Value, edges: Rewired) -> ir.Value:
    """That sum by the number of edges, which weights do not change; 0 where there is none."""
    count = present_sum(ones(x), replace(edges, weighted=False, fill=1.0))
    return ir.Elementwise("divide", (present_sum(x, edges), count))


def normalised_sum(x: ir.Value, edges: Rewired) -> ir.Value:
    """s_v * the sum of w_uv s_u x[u],  s = degree^-1/2, 0 where the degree is 0, over the edges as they are by now."""
    if edges.loops == "keep":
        return gcn_propagate(x, edges.weighted, False)
    if edges.loops == "fill" or (edges.loops == "replace" and not edges.weighted):
        return gcn_propagate(x, edges.weighted, True, edges.fill)
    degree = present_sum(ones(x), edges)
    scale = ir.Activation(ir.Activation(degree, "sqrt"), "reciprocal")
    return ir.Multiply(present_sum(ir.Multiply(x, scale), edges), scale)
