"""Layers given as weights that read more of an edge than its source: attention, edge attributes, edge types.

    model = lg.Model([lg.layers.GAT(w, a_source, a_target, activation="elu"), lg.layers.Dense(w2)])

As in `livegnn.models.layers`, weights are (out, in), and every layer computes what the PyG layer named in its
docstring computes. `x || y` is x and y side by side, h runs over heads, c over one head's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from livegnn.errors import ModelError, WidthMismatch
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute, Gather, Source, Target
from livegnn.models.layers import Activate, Aggregate, Layer, Weights, activate, apply_all, first_input_width
from livegnn.models.messages import block_rows, linear, mean_of_heads, shift

__all__ = ["GAT", "GATv2", "GINE", "RGCN"]

Fill = Literal["mean"] | float


def _matrix(array: Weights, where: str, rows: int | None = None) -> Any:
    matrix = np.asarray(array)
    if matrix.ndim != 2 or (rows is not None and matrix.shape[0] != rows):
        wanted = "(out, in)" if rows is None else f"({rows}, in)"
        raise WidthMismatch(f"[{where}] expected an array of shape {wanted}, got {matrix.shape}; check the weights")
    return matrix


def _heads(array: Weights, where: str) -> Any:
    att = np.asarray(array)
    if att.ndim != 2:
        raise WidthMismatch(f"[{where}] expected an array of shape (heads, columns), got {att.shape}; reshape it")
    return att


@dataclass(frozen=True, eq=False, kw_only=True)
class _Attention:
    weight_edge: Weights | None = None
    concat: bool = True
    slope: float = 0.2
    self_loops: bool = True
    fill: Fill = "mean"
    residual: Weights | None = None
    activation: str | Activate | None = None

    def attended(self, own: ir.Value, source: ir.Value, score: ir.Value, bias: Weights | None) -> ir.Value:
        """Messages shared out by their scores; heads side by side or their mean; residual, bias, activation."""
        heads, loops = score.width, "replace" if self.self_loops else "keep"
        y: ir.Value = Gather(Source(source), "softmax", score, heads, loops, self.fill)  # type: ignore[arg-type]
        if not self.concat:
            y = mean_of_heads(y, heads)
        if self.residual is not None:
            y = ir.Combine(((1.0, y), (1.0, ir.Linear(own, _matrix(self.residual, "residual")))))
        return activate(shift(y, bias), self.activation)


@dataclass(frozen=True, eq=False)
class GAT(_Attention):
    """y[v] = f(||_h sum over edges (u, v) of p_uv[h] W[h] x[u] + R x[v] + b),  p a softmax over v's edges of
    leaky_relu(a_source[h] . W[h] x[u] + a_target[h] . W[h] x[v] + a_edge[h] . E[h] e_uv, slope).

    With `self_loops`, self-loop edges leave the sum and every vertex gets one of its own, with attributes `fill`: the
    mean of its other in-edges' (0 without any), or a number.

    Args:     weight: (heads columns, in).   att_source, att_target: (heads, columns).   bias: as wide as y.
              weight_edge: (heads columns, attributes) and att_edge: (heads, columns), both or neither.
              weight_target: (heads columns, in) in place of W in a_target's term.
              concat: False takes the heads' mean.   residual: R, (width of y, in).
    Exactness: without edge attributes split sums, a function of the graph bit for bit; with them messages are gathered
              edge by edge (docs/attention.md).
    Source: Velickovic et al. 2018, eq. 1 to 6; torch_geometric.nn.GATConv.
    """

    weight: Weights
    att_source: Weights
    att_target: Weights
    bias: Weights | None = None
    att_edge: Weights | None = field(default=None, kw_only=True)
    weight_target: Weights | None = field(default=None, kw_only=True)

    @property
    def input_width(self) -> int:
        return int(_matrix(self.weight, "GAT.weight").shape[1])

    def folded_edge_weight(self) -> Any:
        """(heads, attributes): what an edge's attributes add to its scores; None without attributes."""
        if (self.weight_edge is None) != (self.att_edge is None):
            raise ModelError("[GAT] expected weight_edge and att_edge, got one of them; pass both or neither")
        if self.weight_edge is None:
            return None
        att = block_rows(_heads(self.att_edge, "GAT.att_edge"))
        return att @ _matrix(self.weight_edge, "GAT.weight_edge", att.shape[1])

    def apply(self, x: ir.Value) -> ir.Value:
        edge = self.folded_edge_weight()
        return self.over(x, None if edge is None else EdgeAttribute(edge.shape[1]))

    def over(self, x: ir.Value, attributes: ir.Value | None, own: ir.Value | None = None) -> ir.Value:
        """The layer on other attributes than the graph's own, rows of edges; own: the targets' rows, if not x."""
        own = x if own is None else own
        att_source, att_target = _heads(self.att_source, "GAT.att_source"), _heads(self.att_target, "GAT.att_target")
        source: ir.Value = linear(x, _matrix(self.weight, "GAT.weight", att_source.size))
        weight_target = self.weight if self.weight_target is None and own is not x else self.weight_target
        target = source
        if weight_target is not None:
            target = linear(own, _matrix(weight_target, "GAT.weight_target", att_target.size))
        terms: list[tuple[float, ir.Value]] = [
            (1.0, Source(ir.Linear(source, block_rows(att_source)))),
            (1.0, Target(ir.Linear(target, block_rows(att_target)))),
        ]
        edge = self.folded_edge_weight()
        if edge is not None and attributes is not None:
            terms.append((1.0, linear(attributes, edge)))
        score = ir.Activation(ir.Combine(tuple(terms)), "leaky_relu", self.slope)
        return self.attended(own, source, score, self.bias)


@dataclass(frozen=True, eq=False)
class GATv2(_Attention):
    """y[v] = f(||_h sum over edges (u, v) of p_uv[h] s_u[h] + R x[v] + b),  p a softmax over v's edges of
    a[h] . leaky_relu(s_u[h] + t_v[h] + E[h] e_uv, slope),  s_u = S x[u] + b_s,  t_v = T x[v] + b_t.

    Args:     weight_source, weight_target: S and T, (heads columns, in); weight_target None shares S and b_s.
              att: (heads, columns).   bias: as wide as y.   bias_source, bias_target: (heads columns,).
              weight_edge: (heads columns, attributes).   Loops, concat and residual are as in GAT.
    Exactness: messages are gathered edge by edge; bit for bit a run from scratch on the same history.
    Source: Brody et al. 2022, eq. 7; torch_geometric.nn.GATv2Conv.
    """

    weight_source: Weights
    att: Weights
    bias: Weights | None = None
    weight_target: Weights | None = field(default=None, kw_only=True)
    bias_source: Weights | None = field(default=None, kw_only=True)
    bias_target: Weights | None = field(default=None, kw_only=True)

    @property
    def input_width(self) -> int:
        return int(_matrix(self.weight_source, "GATv2.weight_source").shape[1])

    def apply(self, x: ir.Value) -> ir.Value:
        edge = self.weight_edge
        return self.over(x, None if edge is None else EdgeAttribute(_matrix(edge, "GATv2.weight_edge").shape[1]))

    def over(self, x: ir.Value, attributes: ir.Value | None, own: ir.Value | None = None) -> ir.Value:
        """The layer on other attributes than the graph's own, rows of edges; own: the targets' rows, if not x."""
        own = x if own is None else own
        att = _heads(self.att, "GATv2.att")
        source = linear(x, _matrix(self.weight_source, "GATv2.weight_source", att.size), self.bias_source)
        target = source
        if self.weight_target is not None:
            target = linear(own, _matrix(self.weight_target, "GATv2.weight_target", att.size), self.bias_target)
        elif own is not x:
            target = linear(own, _matrix(self.weight_source, "GATv2.weight_source", att.size), self.bias_source)
        terms: list[tuple[float, ir.Value]] = [(1.0, Source(source)), (1.0, Target(target))]
        if self.weight_edge is not None and attributes is not None:
            terms.append((1.0, linear(attributes, _matrix(self.weight_edge, "GATv2.weight_edge", att.size))))
        hidden = ir.Activation(ir.Combine(tuple(terms)), "leaky_relu", self.slope)
        return self.attended(own, source, ir.Linear(hidden, block_rows(att)), self.bias)


@dataclass(frozen=True, eq=False)
class GINE:
    """y[v] = mlp((1 + eps) x[v] + sum (mean, max, min) over edges (u, v) of relu(x[u] + E e_uv + c)).

    Args:     mlp: row-local layers.   weight_edge: E, (in, attributes), None where attributes are as wide as x.
              bias_edge: c, (in,).
    Exactness: messages are gathered edge by edge; bit for bit a run from scratch on the same history.
    Source: Hu et al. 2020, eq. A.1; torch_geometric.nn.GINEConv.
    """

    mlp: Sequence[Layer]
    weight_edge: Weights | None = None
    bias_edge: Weights | None = None
    eps: float = field(default=0.0, kw_only=True)
    aggregate: Aggregate = field(default="sum", kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    @property
    def input_width(self) -> int | None:
        return first_input_width(self.mlp)

    def apply(self, x: ir.Value) -> ir.Value:
        if self.weight_edge is None:
            edge: ir.Value = shift(EdgeAttribute(x.width), self.bias_edge)
        else:
            weight = _matrix(self.weight_edge, "GINE.weight_edge", x.width)
            edge = ir.Linear(EdgeAttribute(weight.shape[1]), weight, self.bias_edge)
        message = ir.Activation(ir.Combine(((1.0, Source(x)), (1.0, edge))), "relu")
        y = ir.Combine(((1.0, Gather(message, self.aggregate)), (1.0 + self.eps, x)))
        return activate(apply_all(self.mlp, y), self.activation)


@dataclass(frozen=True, eq=False)
class RGCN:
    """y[v] = f(sum over types r of W_r a_r[v] + V x[v] + b),  a_r[v] = mean (sum, max, min) over edges (u, v) of type r
    of x[u]; an edge of a type beyond the weights counts for nothing.

    Args:     weight: (types, out, in).   weight_root: V, (out, in) or None.   bias: (out,) or None.
    Exactness: bit-exact.
    Source: Schlichtkrull et al. 2018, eq. 2; torch_geometric.nn.RGCNConv.
    """

    weight: Weights
    weight_root: Weights | None = None
    bias: Weights | None = None
    aggregate: Aggregate = field(default="mean", kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    @property
    def input_width(self) -> int:
        return int(self._weight().shape[2])

    def _weight(self) -> Any:
        weight = np.asarray(self.weight)
        if weight.ndim != 3:
            raise WidthMismatch(f"[RGCN] expected weights of shape (types, out, in), got {weight.shape}; stack them")
        return weight

    def apply(self, x: ir.Value) -> ir.Value:
        weight = self._weight()
        parts = [ir.propagate(x, self.aggregate, relation=r, where="RGCN") for r in range(len(weight))]
        y: ir.Value = ir.Linear(ir.Concat(tuple(parts)), np.concatenate(list(weight), axis=1), self.bias)
        if self.weight_root is not None:
            y = ir.Combine(((1.0, y), (1.0, ir.Linear(x, _matrix(self.weight_root, "RGCN.weight_root")))))
        return activate(y, self.activation)
