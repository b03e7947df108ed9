"""The float64 truth for any model, from its stored form (JSON and arrays), row by row where speed allows.

The stored form's grammar is in `livegnn.models.stored`; this file reads it without that module's help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from livegnn.reference.edges import REDUCES, Edges, by_destination, by_heads, gather, on_edges, rows_of_edges
from livegnn.types import AnyArray, Int64Array


def evaluate(
    spec: tuple[Mapping[str, Any], Mapping[str, AnyArray]],
    features: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None = None,
    dtype: Any = np.float64,
    attributes: AnyArray | None = None,
    types: AnyArray | None = None,
    vertex_types: AnyArray | None = None,
) -> AnyArray:
    """The model's output for every vertex, or for every edge where the structure's output is a value on edges.

    Args:     spec: (structure, arrays), as `Model.to_arrays()` gives it.
              features: (n, f).   src, dst: (m,) int64 in order of edge ids.   weight: (m,) or None; a model that can
              do with or without weights is run without when None.
              dtype: of all arithmetic.   attributes: (m, a), types: (m,) of the edges, or None.
              vertex_types: (n,) for a model over vertex types, numbered as the model numbers them.
    Returns:  (n, d), or (m, d), of `dtype`.
    Raises:   ValueError if the model needs weights and there are none, or has a value unknown here.
    """
    structure, arrays = spec
    optional = structure.get("unweighted") is not None
    wanted = structure["unweighted"] if weight is None and optional else structure["output"]
    values = structure["values"]
    rows: dict[int, AnyArray] = {}
    edges = Edges(np.asarray(src), np.asarray(dst), weight, attributes, types)
    standing = on_edges(values)
    for position in sorted(_needed(values, wanted)):
        if position in standing:
            continue
        entry = values[position]
        if entry["op"] == "Gather":
            rows[position] = gather(entry, values, rows, standing, edges, (len(features), dtype), (local, arrays))
            continue
        xs = [rows[i] for i in entry["inputs"]]
        if entry["op"] == "Input":
            rows[position] = np.array(features, dtype=dtype)
        elif entry["op"] == "OfType":
            rows[position] = _of_type(entry, xs[0], vertex_types)
        elif entry["op"] == "ByType":
            rows[position] = _by_type([_type_at(values, i) for i in entry["inputs"]], xs, vertex_types)
        elif entry["op"] == "Propagate":
            rows[position] = _propagate(entry, xs[0], edges)
        else:
            rows[position] = local(entry, xs, arrays)
    return rows_of_edges(wanted, values, rows, edges, dtype, (local, arrays)) if wanted in standing else rows[wanted]


def _needed(values: list[Mapping[str, Any]], wanted: int) -> set[int]:
    needed, todo = set(), [wanted]
    while todo:
        position = todo.pop()
        if position not in needed:
            needed.add(position)
            todo.extend(values[position]["inputs"])
    return needed


def _of_type(entry: Mapping[str, Any], x: AnyArray, vertex_types: AnyArray | None) -> AnyArray:
    if vertex_types is None:
        raise ValueError("[reference] expected types of vertices, got none; pass vertex_types=")
    y = np.zeros((len(x), entry["columns"]), x.dtype)
    for v in np.flatnonzero(np.asarray(vertex_types) == entry["code"]):
        y[v] = x[v, : entry["columns"]]
    return y


def _type_at(values: list[Mapping[str, Any]], position: int) -> int:
    """The vertex type that has rows in a value."""
    entry = values[position]
    if entry["op"] == "OfType":
        return int(entry["code"])
    return int(entry["target"]) if "target" in entry else _type_at(values, entry["inputs"][0])


def _by_type(codes: list[int], xs: list[AnyArray], vertex_types: AnyArray | None) -> AnyArray:
    y = np.zeros((len(xs[0]), max(x.shape[1] for x in xs)), xs[0].dtype)
    for v, code in enumerate(np.asarray(vertex_types).tolist()):
        if code in codes:
            row = xs[codes.index(code)][v]
            y[v, : len(row)] = row
    return y


def _propagate(entry: Mapping[str, Any], x: AnyArray, edges: Edges) -> AnyArray:
    n, kind = len(x), x.dtype.type
    if entry["weighted"] and edges.weight is None:
        raise ValueError("[reference] expected edge weights, got none; pass weight=")
    w = np.array(edges.weight, dtype=kind) if entry["weighted"] else np.ones(len(edges.src), kind)
    src, dst = (edges.dst, edges.src) if entry.get("reversed") else (edges.src, edges.dst)
    if entry.get("relation") is not None:
        chosen = np.flatnonzero(np.asarray(edges.types) == entry["relation"])
        src, dst, w = src[chosen], dst[chosen], w[chosen]
    if entry["self_loops"]:
        src, dst, w = _complete_self_loops(n, src, dst, w, kind(entry["fill"] if entry["weighted"] else 1.0))
    if entry["norm"] == "gcn":
        degree = np.zeros(n, kind)
        np.add.at(degree, dst, w)
        factor = np.array([kind(0) if d == 0 else kind(1) / np.sqrt(d) for d in degree], dtype=kind)
        w = factor[src] * w * factor[dst]
    elif entry["norm"] in ("laplacian", "walk", "difference"):
        src, dst, w = _without_loops(entry["norm"], n, src, dst, w)
    a = np.zeros(x.shape, kind)
    if entry.get("reduce", "sum") == "sum":
        np.add.at(a, dst, w[:, None] * x[src])  # one edge after the other
    else:
        for v, mine in by_destination(dst):
            a[v] = REDUCES[entry["reduce"]](w[mine, None] * x[src[mine]])
    if entry["norm"] == "mean":
        count = np.bincount(dst, minlength=n)
        a = a / np.where(count == 0, 1, count)[:, None].astype(kind)
    return a


def _without_loops(norm: str, n: int, src: AnyArray, dst: AnyArray, w: AnyArray) -> tuple[AnyArray, ...]:
    """The entries of D^-1/2 A D^-1/2 (laplacian), D^-1 A (walk) or A - D (difference), where A has no self-loops and D
    is of weighted out-degrees.
    """
    others = src != dst
    src, dst, w = src[others], dst[others], w[others]
    degree = [w.dtype.type(0)] * n
    for u, w_uv in zip(src.tolist(), w, strict=True):
        degree[u] += w_uv
    if norm == "difference":
        own = np.arange(n)
        return np.concatenate([src, own]), np.concatenate([dst, own]), np.concatenate([w, -np.array(degree, w.dtype)])
    if len(w) and w.min() < 0:
        raise ValueError(f"[reference] expected edge weights of at least 0, got {w.min()}; fix the weights")
    entries = w.copy()
    for e, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        divisor = degree[u] if norm == "walk" else np.sqrt(degree[u]) * np.sqrt(degree[v])
        entries[e] = w[e] / divisor if divisor != 0 else 0
    return src, dst, entries


def _complete_self_loops(n: int, src: AnyArray, dst: AnyArray, w: AnyArray, fill: Any) -> tuple[AnyArray, ...]:
    """One self-loop per vertex: its last one in order of ids where it has any, else one of weight `fill`.

    An unweighted graph gives 1 either way.
    """
    others, own, loop = src != dst, np.arange(n), np.full(n, fill, w.dtype)
    given = w[~others]
    for v, mine in by_destination(dst[~others]):
        loop[v] = given[mine[-1]]
    return (
        np.concatenate([src[others], own]).astype(np.int64),
        np.concatenate([dst[others], own]).astype(np.int64),
        np.concatenate([w[others], loop]),
    )


def local(entry: Mapping[str, Any], xs: list[AnyArray], arrays: Mapping[str, AnyArray]) -> Any:
    """One row-local value of the stored grammar."""
    op, kind = entry["op"], xs[0].dtype.type
    if op in ("HeadDot", "HeadScale", "RowMatrix"):
        return by_heads(entry, xs)
    if op in ("Concat", "Maximum", "Multiply", "Combine"):
        return _join(entry, xs)
    if op == "Elementwise":
        return _elementwise(entry["kind"], xs)
    x = xs[0]
    array = {
        key: np.asarray(arrays[entry[key]], kind)
        for key in ("weight", "bias", "slope", "scale", "shift", "table")
        if entry.get(key) is not None
    }
    if op == "Activation":
        return _activate(entry["kind"], float(entry["param"]), x)
    if op == "Lookup":
        found = [int(number) if -1 < number < len(array["table"]) else -1 for number in x[:, 0]]
        rows = [array["table"][i] if i >= 0 else np.zeros(array["table"].shape[1], kind) for i in found]
        return np.array(rows, kind).reshape(len(x), array["table"].shape[1])
    if op == "Linear":
        y = np.matmul(array["weight"], x[:, :, None])[:, :, 0]  # row by row
        return y + array.get("bias", kind(0))
    if op == "PReLU":
        return np.maximum(x, 0) + array["slope"] * np.minimum(x, 0)
    if op == "Affine":
        return x * array["scale"] + array["shift"]
    if op == "LayerNorm":
        mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        normal = (x - mean) / np.sqrt(var + kind(entry["eps"]))
        return normal * array.get("weight", kind(1)) + array.get("bias", kind(0))
    if op == "L2Normalize":
        return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), kind(entry["eps"]))
    if op == "Slice":
        return x[:, entry["start"] : entry["stop"]]
    if op in ("Softmax", "LogSoftmax"):
        power = np.exp(x - x.max(1, keepdims=True))
        total = power.sum(1, keepdims=True)
        return power / total if op == "Softmax" else x - x.max(1, keepdims=True) - np.log(total)
    raise ValueError(f"[reference] expected a value of the stored grammar, got {op}; use the version that wrote it")


def _join(entry: Mapping[str, Any], xs: list[AnyArray]) -> Any:
    if entry["op"] == "Concat":
        return np.hstack(xs)
    if entry["op"] == "Maximum":
        return np.stack(xs).max(0)
    if entry["op"] == "Multiply":
        return xs[0] * xs[1]
    total = np.zeros_like(xs[0])
    for coef, x in zip(entry["coefs"], xs, strict=True):
        total += xs[0].dtype.type(coef) * x
    return total


def _elementwise(name: str, xs: list[AnyArray]) -> Any:
    """From the definition, number by number."""
    formulas: dict[str, Callable[..., Any]] = {
        "minimum": lambda a, b: np.where(a <= b, a, b),
        "divide": lambda a, b: np.where(b != 0, a / np.where(b != 0, b, 1), b * 0),
        "less": lambda a, b: a < b,
        "where": lambda c, a, b: np.where(c != 0, a, b),
    }
    return formulas[name](*np.broadcast_arrays(*xs)).astype(xs[0].dtype)


def _sigmoid(x: AnyArray) -> Any:
    power = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, power) / (1 + power)


def _softplus(x: AnyArray, beta: float) -> Any:
    return np.where(beta * x > 20, x, np.log1p(np.exp(np.minimum(beta * x, 20))) / beta)


def _elu(x: AnyArray, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


_erfc = np.vectorize(math.erfc, otypes=[np.float64])

_FORMULAS: dict[str, Callable[[AnyArray, float], Any]] = {
    "relu": lambda x, p: np.maximum(x, 0),
    "leaky_relu": lambda x, p: np.where(x > 0, x, p * x),
    "elu": _elu,
    "selu": lambda x, p: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    "celu": lambda x, p: np.where(x > 0, x, p * np.expm1(np.minimum(x, 0) / p)),
    "gelu": lambda x, p: x * 0.5 * _erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x, p: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "silu": lambda x, p: x * _sigmoid(x),
    "sigmoid": lambda x, p: _sigmoid(x),
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
    "log": lambda x, p: np.log(np.where(x > 0, x, 1)),
    "reciprocal": lambda x, p: np.where(x != 0, 1 / np.where(x != 0, x, 1), 0),
}


def _activate(name: str, param: float, x: AnyArray) -> Any:
    return _FORMULAS[name](x.astype(np.float64), param).astype(x.dtype)
