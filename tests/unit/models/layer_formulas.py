"""PyG's layers, one function each, vertex by vertex and edge by edge, from the formulas.

Everywhere: x (n, f) float64; src, dst (m,) int64 in order of edge ids; weight (m,) or None for all 1; weights of linear
maps (out, in), biases (out,) or None. Every function returns (n, out) float64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from livegnn.types import AnyArray, Float64Array, Int64Array

__all__ = [
    "appnp",
    "cheb",
    "gcn",
    "gcn_sum",
    "gin",
    "graph_conv",
    "lg",
    "mean_messages",
    "sage",
    "sgc",
    "sum_messages",
]


def _linear(x: AnyArray, weight: AnyArray, bias: AnyArray | None) -> Float64Array:
    y = np.zeros((len(x), len(weight)))
    for row in range(len(x)):
        y[row] = np.asarray(weight, np.float64) @ x[row]
        if bias is not None:
            y[row] += bias
    return y


def sum_messages(x: AnyArray, src: Int64Array, dst: Int64Array, weight: AnyArray | None) -> Float64Array:
    """a[v] = sum over edges (u, v) of w_uv x[u]; parallel edges and self-loops count like any other."""
    a = np.zeros(x.shape)
    for e in range(len(src)):
        a[dst[e]] += (1.0 if weight is None else float(weight[e])) * x[src[e]]
    return a


def mean_messages(x: AnyArray, src: Int64Array, dst: Int64Array, weight: AnyArray | None) -> Float64Array:
    """The sum above divided by the number of in-edges; 0 for a vertex without."""
    a = sum_messages(x, src, dst, weight)
    for v in range(len(x)):
        count = int((dst == v).sum())
        if count > 0:
            a[v] /= count
    return a


def gcn_sum(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None,
    *,
    self_loops: bool = True,
    fill: float = 1.0,
) -> Float64Array:
    """D^-1/2 A' D^-1/2 x, with A' = A whose self-loops have been completed to one per vertex.

    With `self_loops`, a vertex has one self-loop: without weights of weight 1; with weights of the weight of its
    self-loop edge that comes last, or `fill`. Without `self_loops`, A' = A.
    """
    n = len(x)
    edges: list[tuple[int, int, float]] = []
    loops = dict.fromkeys(range(n), 1.0 if weight is None else fill) if self_loops else {}
    for e in range(len(src)):
        w = 1.0 if weight is None else float(weight[e])
        if self_loops and src[e] == dst[e]:
            loops[int(src[e])] = w
        else:
            edges.append((int(src[e]), int(dst[e]), w))
    edges.extend((v, v, w) for v, w in loops.items())
    degree = [0.0] * n
    for _, v, w in edges:
        degree[v] += w
    if min(degree, default=0.0) < 0:
        raise ValueError("[gcn_sum] expected weighted in-degrees of at least 0, got one below; fix the weights")
    factor = [0.0 if d == 0 else 1.0 / np.sqrt(d) for d in degree]
    a = np.zeros(x.shape)
    for u, v, w in edges:
        a[v] += factor[u] * w * factor[v] * x[u]
    return a


def gcn(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None,
    w: AnyArray,
    b: AnyArray | None = None,
    *,
    improved: bool = False,
    self_loops: bool = True,
    normalize: bool = True,
) -> Float64Array:
    """W (D^-1/2 A' D^-1/2 x) + b. Source: Kipf and Welling 2017, eq. 2."""
    if not normalize:
        return _linear(sum_messages(x, src, dst, weight), w, b)
    a = gcn_sum(x, src, dst, weight, self_loops=self_loops, fill=2.0 if improved else 1.0)
    return _linear(a, w, b)


def graph_conv(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None,
    w_rel: AnyArray,
    w_root: AnyArray,
    b: AnyArray | None = None,
    *,
    aggregate: str = "sum",
) -> Float64Array:
    """W_rel (sum or mean of w_uv x[u]) + b + W_root x[v]. Source: Morris et al. 2019."""
    gather = {"sum": sum_messages, "mean": mean_messages}[aggregate]
    return _linear(gather(x, src, dst, weight), w_rel, b) + _linear(x, w_root, None)


def sage(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    w_neighbour: AnyArray,
    w_root: AnyArray | None = None,
    b: AnyArray | None = None,
    *,
    aggregate: str = "mean",
    project: tuple[AnyArray, AnyArray | None] | None = None,
    normalize: bool = False,
) -> Float64Array:
    """W_n (mean or sum of x[u]) + b + W_r x[v], rows then divided by their length. Source: Hamilton et al. 2017."""
    source = x if project is None else np.maximum(_linear(x, *project), 0.0)
    gather = {"sum": sum_messages, "mean": mean_messages}[aggregate]
    y = _linear(gather(source, src, dst, None), w_neighbour, b)
    if w_root is not None:
        y = y + _linear(x, w_root, None)
    if normalize:
        y = np.array([row / max(float(np.sqrt((row * row).sum())), 1e-12) for row in y]).reshape(y.shape)
    return y


def gin(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    mlp: Callable[[Float64Array], Float64Array],
    eps: float = 0.0,
) -> Float64Array:
    """mlp((1 + eps) x[v] + sum of x[u]). Source: Xu et al. 2019, eq. 4.1."""
    return mlp((1.0 + eps) * np.asarray(x, np.float64) + sum_messages(x, src, dst, None))


def sgc(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None,
    w: AnyArray,
    b: AnyArray | None = None,
    *,
    hops: int = 1,
    self_loops: bool = True,
) -> Float64Array:
    """W P^hops x + b. Source: Wu et al. 2019, eq. 8."""
    for _ in range(hops):
        x = gcn_sum(x, src, dst, weight, self_loops=self_loops)
    return _linear(x, w, b)


def appnp(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None,
    *,
    hops: int,
    alpha: float,
    self_loops: bool = True,
    normalize: bool = True,
) -> Float64Array:
    """h <- (1 - alpha) P h + alpha x, `hops` times. Source: Gasteiger et al. 2019, eq. 4."""
    h = np.asarray(x, np.float64)
    for _ in range(hops):
        if normalize:
            a = gcn_sum(h, src, dst, weight, self_loops=self_loops)
        else:
            a = sum_messages(h, src, dst, weight)
        h = (1.0 - alpha) * a + alpha * x
    return h


def lg(
    x: AnyArray, src: Int64Array, dst: Int64Array, weight: AnyArray | None, *, normalize: bool = True
) -> Float64Array:
    """D^-1/2 A D^-1/2 x, or A x. Source: He et al. 2020, eq. 3."""
    if not normalize:
        return sum_messages(x, src, dst, weight)
    return gcn_sum(x, src, dst, weight, self_loops=False)


def cheb(
    x: AnyArray,
    src: Int64Array,
    dst: Int64Array,
    weight: AnyArray | None,
    weights: list[AnyArray],
    b: AnyArray | None = None,
    *,
    normalization: str | None = "sym",
    lambda_max: float = 2.0,
) -> Float64Array:
    """Sum of W_k z_k plus b, z_k = T_k(L^T) x, T_k Chebyshev's polynomials, L the scaled Laplacian as a matrix.

    Row and column of L are source and target; degrees are sums of rows, without the diagonal.
    Source: Defferrard et al. 2016, eqs. 4 and 5.
    """
    n = len(x)
    adjacency = np.zeros((n, n))
    for e in range(len(src)):
        if src[e] != dst[e]:
            adjacency[src[e], dst[e]] += 1.0 if weight is None else float(weight[e])
    degree = adjacency.sum(axis=1)
    if normalization is None:
        laplacian = np.diag(degree) - adjacency
    else:
        power = np.array([0.0 if d == 0 else 1.0 / (d if normalization == "rw" else np.sqrt(d)) for d in degree])
        laplacian = np.eye(n) - np.diag(power) @ adjacency @ (np.eye(n) if normalization == "rw" else np.diag(power))
    operator = (2.0 / lambda_max * laplacian - np.eye(n)).T
    states = [np.asarray(x, np.float64), operator @ x]
    while len(states) < len(weights):
        states.append(2.0 * operator @ states[-1] - states[-2])
    total = _linear(states[0], weights[0], b)
    for state, w in zip(states[1:], weights[1:], strict=False):
        total = total + _linear(state, w, None)
    return total
