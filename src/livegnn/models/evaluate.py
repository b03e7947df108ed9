"""Runs a model on a whole graph in NumPy: the check of every import, not the engine.

Values are computed one by one in the order of `ir.walk`, in the dtype asked for. `livegnn.reference` holds an
independent evaluator for audits of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from livegnn.errors import ModelError
from livegnn.models import edges as on_edges
from livegnn.models import ir

__all__ = ["EdgeList", "evaluate"]

Rows: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class EdgeList:
    """Edges in order of their ids: src, dst int64 (m,); weight (m,), attributes (m, a), types int (m,), or None.

    vertex_types: int (n,), of the vertices, for a model over them.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    weight: Rows | None = None
    attributes: Rows | None = None
    types: Rows | None = None
    vertex_types: Rows | None = None


def evaluate(output: ir.Value, features: Rows, edges: EdgeList, dtype: Any = np.float64) -> Rows:
    """output(features, edges) for every vertex.

    Args:     features: (n, input width).   dtype: of all arithmetic, np.float64 or np.float32.
    Returns:  (n, output.width) of `dtype`.
    Raises:   ModelError if the model reads weights and there are none.
    """
    rows: dict[int, Rows] = {}
    for value in ir.walk(output):
        if value.on_edges:
            continue  # computed by the Gather that reads it, on the edges that count there
        if isinstance(value, ir.Input):
            rows[id(value)] = np.asarray(features, dtype)
        elif isinstance(value, on_edges.Gather):
            rows[id(value)] = _gather(value, edges, rows, len(features), np.dtype(dtype))
        else:
            inputs = [rows[id(each)] for each in value.inputs]
            rows[id(value)] = _STEPS[type(value)](value, edges, *inputs)
    return rows[id(output)]


def _linear(value: ir.Linear, _: EdgeList, x: Rows) -> Rows:
    y: Rows = x @ value.weight.astype(x.dtype).T
    return y if value.bias is None else y + value.bias


def _softplus(x: Rows, beta: float) -> Rows:
    scaled = beta * x  # torch's default threshold: linear above 20
    return np.where(scaled > 20, x, np.log1p(np.exp(np.minimum(scaled, 20))) / beta)


def _elu(x: Rows, alpha: float) -> Rows:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _gelu_tanh(x: Rows) -> Rows:
    y: Rows = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return y


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
_KINDS: dict[str, Callable[[Rows, float], Rows]] = {
    "relu": lambda x, p: np.maximum(x, 0),
    "leaky_relu": lambda x, p: np.where(x > 0, x, p * x),
    "elu": _elu,
    "selu": lambda x, p: _SELU_SCALE * _elu(x, _SELU_ALPHA),
    "celu": lambda x, p: np.where(x > 0, x, p * np.expm1(np.minimum(x, 0) / p)),
    "gelu": lambda x, p: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x, p: _gelu_tanh(x),
    "silu": lambda x, p: x * special.expit(x),
    "sigmoid": lambda x, p: special.expit(x),
    "tanh": lambda x, p: np.tanh(x),
    "softplus": _softplus,
    "relu6": lambda x, p: np.clip(x, 0, 6),
    "hardtanh": lambda x, p: np.clip(x, -1, 1),
    "hardswish": lambda x, p: x * np.clip(x + 3, 0, 6) / 6,
    "softsign": lambda x, p: x / (1 + np.abs(x)),
    "log_sigmoid": lambda x, p: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "exp": lambda x, p: np.exp(x),
    "abs": lambda x, p: np.abs(x),
    "sqrt": lambda x, p: np.sqrt(np.maximum(x, 0)),
    "log1p": lambda x, p: np.log1p(np.maximum(x, 0)),
    "reciprocal": lambda x, p: np.divide(1, x, out=np.zeros_like(x), where=x != 0),
}


def _layer_norm(value: ir.LayerNorm, _: EdgeList, x: Rows) -> Rows:
    centred = x - x.mean(axis=1, keepdims=True)
    y: Rows = centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + value.eps)
    if value.weight is not None:
        y = y * value.weight
    return y if value.bias is None else y + value.bias


def _log_softmax(value: ir.Value, _: EdgeList, x: Rows) -> Rows:
    shifted = x - x.max(axis=1, keepdims=True)
    result: Rows = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def _combine(value: ir.Combine, _: EdgeList, *xs: Rows) -> Rows:
    total: Rows = value.terms[0][0] * xs[0]
    for (coef, _value), x in zip(value.terms[1:], xs[1:], strict=True):
        total = total + coef * x
    return total


def _propagate(value: ir.Propagate, edges: EdgeList, x: Rows) -> Rows:
    if value.weighted and edges.weight is None:
        raise ModelError("[evaluate] expected edge weights, got none; pass the graph's weights")
    src, dst, ones = edges.src, edges.dst, np.ones(len(edges.src), x.dtype)
    weight = edges.weight.astype(x.dtype) if value.weighted and edges.weight is not None else ones
    if value.relation is not None:
        chosen = _of_type(edges, value.relation)
        src, dst, weight = src[chosen], dst[chosen], weight[chosen]
    if value.norm == "gcn":
        return _propagate_gcn(value, src, dst, weight, x)
    if value.norm in ("laplacian", "walk", "difference"):
        return _propagate_out(value.norm, src, dst, weight, x)
    total = _reduce(value.reduce, len(x), dst, weight[:, None] * x[src])
    if value.norm == "mean":
        total /= np.maximum(np.bincount(dst, minlength=len(x)), 1)[:, None].astype(x.dtype)
    return total


def _propagate_gcn(value: ir.Propagate, src: Rows, dst: Rows, weight: Rows, x: Rows) -> Rows:
    loop = np.zeros(len(x), x.dtype)
    if value.self_loops:
        loop[:] = value.fill if value.weighted else 1.0
        own = src == dst
        if value.weighted:
            loop[src[own]] = weight[own]  # of several, the last one stays
        src, dst, weight = src[~own], dst[~own], weight[~own]
    degree = loop.copy()
    np.add.at(degree, dst, weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(degree == 0, 0, degree**-0.5).astype(x.dtype)
    terms = (scale[src] * weight * scale[dst])[:, None] * x[src]
    if value.self_loops:
        terms = np.concatenate([terms, (scale * scale * loop)[:, None] * x])
        dst = np.concatenate([dst, np.arange(len(x))])
    return _reduce(value.reduce, len(x), dst, terms)


def _propagate_out(norm: str, src: Rows, dst: Rows, weight: Rows, x: Rows) -> Rows:
    """The sums normalised by out-degrees."""
    others = src != dst
    src, dst, weight = src[others], dst[others], weight[others]
    degree = np.zeros(len(x), x.dtype)
    np.add.at(degree, src, weight)
    if norm == "difference":
        y: Rows = _reduce("sum", len(x), dst, weight[:, None] * x[src]) - degree[:, None] * x
        return y
    if (weight < 0).any():
        raise ModelError(f"[evaluate] expected edge weights of at least 0, got {weight.min()}; mend the weights")
    with np.errstate(divide="ignore"):
        scale = np.where(degree == 0, 0, degree ** (-1.0 if norm == "walk" else -0.5)).astype(x.dtype)
    share = scale[src] * weight if norm == "walk" else scale[src] * weight * scale[dst]
    return _reduce("sum", len(x), dst, share[:, None] * x[src])


def _reduce(reduce: str, count: int, dst: Rows, terms: Rows) -> Rows:
    """Terms (m, w) to the vertices they go to: sum, maximum or minimum per column, 0 where there is none."""
    total = np.zeros((count, terms.shape[1]), terms.dtype)
    if reduce == "sum":
        np.add.at(total, dst, terms)
        return total
    worst, better = (-np.inf, np.maximum) if reduce == "max" else (np.inf, np.minimum)
    total[dst] = worst
    better.at(total, dst, terms)
    return total


def _of_type(edges: EdgeList, relation: int | tuple[int, ...]) -> Rows:
    if edges.types is None:
        raise ModelError("[evaluate] expected edge types, got none; pass the graph's types")
    chosen: Rows = np.isin(np.asarray(edges.types), relation)
    return chosen


def _has_type(edges: EdgeList, code: int | None) -> Rows:
    if edges.vertex_types is None:
        raise ModelError("[evaluate] expected types of vertices, got none; pass the graph's")
    chosen: Rows = np.asarray(edges.vertex_types) == code
    return chosen


def _features_of_type(value: ir.OfType, edges: EdgeList, x: Rows) -> Rows:
    return np.where(_has_type(edges, value.code)[:, None], x[:, : value.columns], 0)


def _by_type(value: ir.ByType, edges: EdgeList, *xs: Rows) -> Rows:
    y = np.zeros((len(xs[0]), value.width), xs[0].dtype)
    for part, x in zip(value.parts, xs, strict=True):
        rows = _has_type(edges, part.vertex_type)
        y[rows, : part.width] = x[rows]
    return y


def _by_relation(value: on_edges.ByRelation, edges: EdgeList, *xs: Rows) -> Rows:
    y = np.zeros_like(xs[0])
    for relation, x in zip(value.relations, xs, strict=True):
        rows = _of_type(edges, relation)
        y[rows] = x[rows]
    return y


def _edges_that_count(value: on_edges.Gather, edges: EdgeList, count: int, dtype: Any) -> EdgeList:
    keep = np.ones(len(edges.src), bool) if value.relation is None else _of_type(edges, value.relation)
    if value.loops != "keep":
        keep &= edges.src != edges.dst
    src, dst = edges.src[keep], edges.dst[keep]
    types = None if edges.types is None or value.loops == "replace" else np.asarray(edges.types)[keep]
    weight = None if edges.weight is None else edges.weight[keep].astype(dtype)
    attributes = None if edges.attributes is None else edges.attributes[keep].astype(dtype)
    if value.loops == "replace":
        if attributes is not None:
            own = np.zeros((count, attributes.shape[1]), dtype)
            if value.fill == "mean":
                np.add.at(own, dst, attributes)
                own /= np.maximum(np.bincount(dst, minlength=count), 1)[:, None].astype(dtype)
            else:
                own[:] = value.fill
            attributes = np.concatenate([attributes, own])
        weight = None if weight is None else np.concatenate([weight, np.ones(count, dtype)])
        src, dst = np.concatenate([src, np.arange(count)]), np.concatenate([dst, np.arange(count)])
    return EdgeList(src, dst, weight, attributes, types)


def _gather(value: on_edges.Gather, edges: EdgeList, rows: dict[int, Rows], count: int, dtype: Any) -> Rows:
    edges = _edges_that_count(value, edges, count, dtype)
    known: dict[int, Rows] = {}
    for each in ir.walk(*value.inputs):
        if not each.on_edges:
            continue
        if isinstance(each, on_edges.Source):
            known[id(each)] = rows[id(each.x)][edges.src]
        elif isinstance(each, on_edges.Target):
            known[id(each)] = rows[id(each.x)][edges.dst]
        elif isinstance(each, on_edges.EdgeAttribute | on_edges.EdgeWeight):
            known[id(each)] = _column(each, edges)
        else:
            known[id(each)] = _STEPS[type(each)](each, edges, *(known[id(x)] for x in each.inputs))
    message = known[id(value.message)]
    if value.reduce in ("max", "min"):
        return _reduce(value.reduce, count, edges.dst, message)
    if value.score is not None:
        score = known[id(value.score)]
        top = np.full((count, value.heads), -np.inf, dtype)
        np.maximum.at(top, edges.dst, score)
        power = np.exp(score - top[edges.dst])
        total = np.full((count, value.heads), 1e-16, dtype)
        np.add.at(total, edges.dst, power)
        message = message * np.repeat(power / total[edges.dst], value.width // value.heads, axis=1)
    y = np.zeros((count, value.width), dtype)
    np.add.at(y, edges.dst, message)
    if value.reduce == "mean":
        y /= np.maximum(np.bincount(edges.dst, minlength=count), 1)[:, None].astype(dtype)
    return y


def _column(value: ir.Value, edges: EdgeList) -> Rows:
    if isinstance(value, on_edges.EdgeWeight):
        if edges.weight is None:
            raise ModelError("[evaluate] expected edge weights, got none; pass the graph's weights")
        return edges.weight[:, None]
    if edges.attributes is None or edges.attributes.shape[1] != value.width:
        got = "none" if edges.attributes is None else f"{edges.attributes.shape[1]} columns"
        raise ModelError(f"[evaluate] expected edge attributes of {value.width} columns, got {got}; pass the graph's")
    return edges.attributes


def _by_head(rows: Rows, heads: int) -> Rows:
    return rows.reshape(len(rows), heads, rows.shape[1] // heads)


def _head_scale(value: on_edges.HeadScale, _: EdgeList, a: Rows, s: Rows) -> Rows:
    scaled: Rows = (_by_head(a, value.heads) * s[:, :, None]).reshape(a.shape)
    return scaled


def _row_matrix(value: on_edges.RowMatrix, _: EdgeList, a: Rows, m: Rows) -> Rows:
    y: Rows = np.einsum("ri,rio->ro", a, m.reshape(len(a), a.shape[1], value.width))
    return y


_STEPS: dict[type[ir.Value], Callable[..., Rows]] = {
    ir.Linear: _linear,
    ir.Activation: lambda value, _, x: _KINDS[value.kind](x, value.param),
    ir.PReLU: lambda value, _, x: np.where(x > 0, x, value.slope * x),
    ir.Affine: lambda value, _, x: value.scale * x + value.shift,
    ir.LayerNorm: _layer_norm,
    ir.L2Normalize: lambda value, _, x: x / np.maximum(np.sqrt((x * x).sum(axis=1, keepdims=True)), value.eps),
    ir.Combine: _combine,
    ir.Multiply: lambda value, _, a, b: a * b,
    ir.Concat: lambda value, _, *xs: np.concatenate(xs, axis=1),
    ir.Maximum: lambda value, _, *xs: np.maximum.reduce(xs),
    ir.Slice: lambda value, _, x: x[:, value.start : value.stop],
    ir.OfType: _features_of_type,
    ir.ByType: _by_type,
    ir.Softmax: lambda value, _, x: np.exp(_log_softmax(value, _, x)),
    ir.LogSoftmax: _log_softmax,
    ir.Propagate: _propagate,
    on_edges.HeadDot: lambda value, _, a, b: (_by_head(a, value.heads) * _by_head(b, value.heads)).sum(axis=2),
    on_edges.HeadScale: _head_scale,
    on_edges.RowMatrix: _row_matrix,
    on_edges.ByRelation: _by_relation,
}
