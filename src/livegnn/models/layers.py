"""Layers given as weights: the way to describe a model without PyTorch.

    model = lg.Model([lg.layers.GCN(w1, b1, activation="relu"), lg.layers.GCN(w2, b2)])

A layer is a small frozen description with `apply(x)`, which builds values of `livegnn.models.ir`. Weights are
(out, in), as torch's `Linear.weight` keeps them. Every layer computes what the PyG layer named in its docstring
computes, trap for trap (docs/models.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.messages import shift
from livegnn.models.turning import turned

__all__ = [
    "APPNP",
    "GCN",
    "GIN",
    "LG",
    "SAGE",
    "SGC",
    "Activate",
    "BatchNorm",
    "Cheb",
    "Dense",
    "GraphConv",
    "JumpingKnowledge",
    "L2Normalize",
    "Layer",
    "LayerNorm",
    "LogSoftmax",
    "Residual",
    "Reversed",
    "Softmax",
]

Weights: TypeAlias = Any  # anything numpy.asarray reads as real numbers
Aggregate: TypeAlias = ir.Aggregate
DEFAULT_PARAMS = {"leaky_relu": 0.01, "elu": 1.0, "celu": 1.0, "softplus": 1.0}


@runtime_checkable
class Layer(Protocol):
    """What a model is made of: anything that turns one value into another."""

    def apply(self, x: ir.Value) -> ir.Value:
        """The value that this layer computes from `x`."""
        ...


def activate(x: ir.Value, activation: str | Activate | None) -> ir.Value:
    """`activation` applied to `x`: None, a name of ir.ACTIVATIONS or softmax, log_softmax, or an Activate."""
    if activation is None:
        return x
    if activation == "softmax":
        return ir.Softmax(x)
    if activation == "log_softmax":
        return ir.LogSoftmax(x)
    return (activation if isinstance(activation, Activate) else Activate(activation)).apply(x)


def _input_width(weight: Weights) -> int:
    shape = getattr(weight, "shape", None)
    if shape is None or len(shape) != 2:
        got = f"{weight!r}" if shape is None else f"shape {tuple(shape)}"
        raise ModelError(f"[layer] expected a weight array of shape (out, in), got {got}; pass a 2-d array")
    return int(shape[1])


def _number(where: str, name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ModelError(f"[{where}] expected {name} as a number, got {value!r}; pass a float") from None


class _Weighted:
    """A layer whose first field is a weight that multiplies its input."""

    @property
    def input_width(self) -> int:
        return _input_width(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Activate:
    """y = f(x) elementwise. `kind` is a key of ir.ACTIVATIONS, `param` its parameter (None = torch's default)."""

    kind: str
    param: float | None = None

    def apply(self, x: ir.Value) -> ir.Value:
        default = DEFAULT_PARAMS.get(self.kind, 0.0)
        return ir.Activation(x, self.kind, default if self.param is None else self.param)


@dataclass(frozen=True, eq=False)
class Dense(_Weighted):
    """y = f(W x + b), row by row. weight (out, in), bias (out,) or None. Source: torch.nn.Linear."""

    weight: Weights
    bias: Weights | None = None
    activation: str | Activate | None = field(default=None, kw_only=True)

    def apply(self, x: ir.Value) -> ir.Value:
        return activate(ir.Linear(x, self.weight, self.bias), self.activation)


@dataclass(frozen=True, eq=False)
class BatchNorm:
    """y = (x - mean) / sqrt(var + eps) * weight + bias with running statistics; all (w,).

    Folded in float64 into one scale and one shift per column, then rounded to float32.
    Source: torch.nn.BatchNorm1d in eval mode.
    """

    mean: Weights
    var: Weights
    weight: Weights | None = None
    bias: Weights | None = None
    eps: float = 1e-5

    def apply(self, x: ir.Value) -> ir.Value:
        scale, shift = fold_batch_norm(self.mean, self.var, self.weight, self.bias, self.eps)
        return ir.Affine(x, scale, shift)


def fold_batch_norm(mean: Weights, var: Weights, weight: Weights | None, bias: Weights | None, eps: float) -> Any:
    """(scale, shift) in float64 with scale * x + shift = (x - mean) / sqrt(var + eps) * weight + bias."""
    import numpy as np

    mean, var = np.asarray(mean, np.float64), np.asarray(var, np.float64)
    if (var + eps <= 0).any():
        raise ModelError(f"[BatchNorm] expected var + eps above 0, got {float((var + eps).min())}; fix the statistics")
    scale = 1.0 / np.sqrt(var + eps)
    if weight is not None:
        scale = scale * np.asarray(weight, np.float64)
    shift = -mean * scale
    if bias is not None:
        shift = shift + np.asarray(bias, np.float64)
    return scale, shift


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """y = (x - mean) / sqrt(var + eps) * weight + bias over the columns of each row. Source: torch.nn.LayerNorm."""

    weight: Weights | None = None
    bias: Weights | None = None
    eps: float = 1e-5

    def apply(self, x: ir.Value) -> ir.Value:
        return ir.LayerNorm(x, self.weight, self.bias, self.eps)


@dataclass(frozen=True, eq=False)
class L2Normalize:
    """y = x / max(||x||, eps) per row. Source: torch.nn.functional.normalize."""

    eps: float = 1e-12

    def apply(self, x: ir.Value) -> ir.Value:
        return ir.L2Normalize(x, self.eps)


@dataclass(frozen=True, eq=False)
class Softmax:
    """Softmax over the columns of each row."""

    def apply(self, x: ir.Value) -> ir.Value:
        return ir.Softmax(x)


@dataclass(frozen=True, eq=False)
class LogSoftmax:
    """Logarithm of the softmax over the columns of each row."""

    def apply(self, x: ir.Value) -> ir.Value:
        return ir.LogSoftmax(x)


@dataclass(frozen=True, eq=False)
class GCN(_Weighted):
    """y[v] = f(W a[v] + b),  a[v] = s_v (sum over edges (u, v) of w_uv s_u x[u] + L_v s_v x[v]),  s_v = d_v^-1/2.

    d_v is the weighted in-degree with L_v, the self-loop: 1 without weights (also if `improved`); with weights that
    of v's newest self-loop edge, else 2 if `improved`, else 1. `self_loops=False`: L_v = 0, self-loop edges are
    ordinary edges. `normalize=False`: a[v] = sum of w_uv x[u], no self-loops added.
    `aggregate`: "max", "min" or "median" is taken over W x[u]; "mean" without `normalize` only.

    Args:     weight: (out, in).   bias: (out,) or None.   weighted: read the graph's edge weights.
    Source: Kipf and Welling 2017; torch_geometric.nn.GCNConv.
    """

    weight: Weights
    bias: Weights | None = None
    activation: str | Activate | None = field(default=None, kw_only=True)
    improved: bool = field(default=False, kw_only=True)
    self_loops: bool = field(default=True, kw_only=True)
    normalize: bool = field(default=True, kw_only=True)
    weighted: bool = field(default=False, kw_only=True)
    aggregate: Aggregate = field(default="sum", kw_only=True)

    def apply(self, x: ir.Value) -> ir.Value:
        if self.aggregate not in ("sum", "mean"):  # what a linear map does not commute with
            y = shift(self.gather(ir.Linear(x, self.weight)), self.bias)
        else:
            y = ir.Linear(self.gather(x), self.weight, self.bias)
        return activate(y, self.activation)

    def gather(self, x: ir.Value) -> ir.Value:
        """The aggregate of rows `x`."""
        if self.normalize:
            return gcn_propagate(x, self.weighted, self.self_loops, 2.0 if self.improved else 1.0, self.aggregate)
        return ir.propagate(x, self.aggregate, self.weighted, where="GCN")


def gcn_propagate(
    x: ir.Value, weighted: bool, self_loops: bool = True, fill: float = 1.0, aggregate: str = "sum"
) -> ir.Propagate:
    """A degree-normalised aggregate; `fill` counts only where the graph's weights are read, as in gcn_norm."""
    if aggregate == "mean":
        raise ModelError("[GCN] expected an aggregate with degrees, got 'mean'; set normalize=False for a mean")
    reduce = ir.propagate(x, aggregate, where="GCN").reduce
    return ir.Propagate(x, "gcn", weighted, self_loops, fill if weighted and self_loops else 1.0, reduce)


@dataclass(frozen=True, eq=False)
class GraphConv(_Weighted):
    """y[v] = f(W_rel a[v] + b + W_root x[v]),  a[v] = sum (mean, max, min) over edges (u, v) of w_uv x[u].

    The mean divides by the number of in-edges, not by their weight. Both weights are (out, in).
    Source: Morris et al. 2019; torch_geometric.nn.GraphConv.
    """

    weight_rel: Weights
    weight_root: Weights
    bias: Weights | None = None
    aggregate: Aggregate = field(default="sum", kw_only=True)
    weighted: bool = field(default=False, kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    def apply(self, x: ir.Value) -> ir.Value:
        a = ir.propagate(x, self.aggregate, self.weighted, where="GraphConv")
        y = ir.Combine(((1.0, ir.Linear(a, self.weight_rel, self.bias)), (1.0, ir.Linear(x, self.weight_root))))
        return activate(y, self.activation)


@dataclass(frozen=True, eq=False)
class SAGE:
    """y[v] = f(W_n a[v] + b + W_r x[v]),  a[v] = mean (sum, max, min) over edges (u, v) of x[u]; never weighted.

    Args:     weight_neighbour, weight_root: (out, in); weight_root None leaves that term out.
              project: (weight (in, in), bias (in,)); then relu(P x[u] + c) is aggregated instead of x[u].
              normalize: divide every row by its length before the activation.
    Source: Hamilton et al. 2017, Alg. 1; torch_geometric.nn.SAGEConv.
    """

    weight_neighbour: Weights
    weight_root: Weights | None = None
    bias: Weights | None = None
    aggregate: Aggregate = field(default="mean", kw_only=True)
    project: tuple[Weights, Weights | None] | None = field(default=None, kw_only=True)
    normalize: bool = field(default=False, kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    @property
    def input_width(self) -> int:
        return _input_width(self.weight_neighbour if self.project is None else self.project[0])

    def apply(self, x: ir.Value) -> ir.Value:
        source = x if self.project is None else ir.Activation(ir.Linear(x, *self.project), "relu")
        a = ir.propagate(source, self.aggregate, where="SAGE")
        y: ir.Value = ir.Linear(a, self.weight_neighbour, self.bias)
        if self.weight_root is not None:
            y = ir.Combine(((1.0, y), (1.0, ir.Linear(x, self.weight_root))))
        if self.normalize:
            y = ir.L2Normalize(y)
        return activate(y, self.activation)


@dataclass(frozen=True, eq=False)
class GIN:
    """y[v] = mlp((1 + eps) x[v] + sum (mean, max, min) over edges (u, v) of x[u]), `mlp` row-local layers.

    Source: Xu et al. 2019, eq. 4.1; torch_geometric.nn.GINConv.
    """

    mlp: Sequence[Layer]
    eps: float = 0.0
    aggregate: Aggregate = field(default="sum", kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    @property
    def input_width(self) -> int | None:
        return first_input_width(self.mlp)

    def apply(self, x: ir.Value) -> ir.Value:
        a = ir.propagate(x, self.aggregate, where="GIN")
        y: ir.Value = ir.Combine(((1.0, a), (1.0 + _number("GIN", "eps", self.eps), x)))
        return activate(apply_all(self.mlp, y), self.activation)


@dataclass(frozen=True, eq=False)
class SGC(_Weighted):
    """y = f(W P^hops x + b), P the degree-normalised sum of GCN. Source: Wu et al. 2019; torch_geometric.nn.SGConv."""

    weight: Weights
    bias: Weights | None = None
    hops: int = field(default=1, kw_only=True)
    self_loops: bool = field(default=True, kw_only=True)
    weighted: bool = field(default=False, kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    def apply(self, x: ir.Value) -> ir.Value:
        for _ in range(_hops(self.hops, "SGC")):
            x = gcn_propagate(x, self.weighted, self.self_loops)
        return activate(ir.Linear(x, self.weight, self.bias), self.activation)


@dataclass(frozen=True, eq=False)
class APPNP:
    """h[0] = x;  h[k] = (1 - alpha) P h[k-1] + alpha x;  y = h[hops].

    P is the degree-normalised sum of GCN; with `normalize=False` the plain (weighted) sum, no self-loops added.
    Source: Gasteiger et al. 2019, eq. 4; torch_geometric.nn.APPNP.
    """

    hops: int
    alpha: float
    self_loops: bool = field(default=True, kw_only=True)
    normalize: bool = field(default=True, kw_only=True)
    weighted: bool = field(default=False, kw_only=True)
    activation: str | Activate | None = field(default=None, kw_only=True)

    def apply(self, x: ir.Value) -> ir.Value:
        h, alpha = x, _number("APPNP", "alpha", self.alpha)
        for _ in range(_hops(self.hops, "APPNP")):
            if self.normalize:
                a = gcn_propagate(h, self.weighted, self.self_loops)
            else:
                a = ir.Propagate(h, "sum", self.weighted)
            h = ir.Combine(((1.0 - alpha, a), (alpha, x)))
        return activate(h, self.activation)


@dataclass(frozen=True, eq=False)
class Cheb:
    """y = f(sum over k of W[k] z[k] + b),  z[0] = x,  z[1] = L x,  z[k] = 2 L z[k-1] - z[k-2].

    L = 2 / lambda_max (I - A) - I, where (A x)[v] = sum over edges (u, v), u != v, of a_uv x[u] with a_uv =
    w_uv (d_u d_v)^-1/2 ("sym") or w_uv / d_u ("rw"), 0 where a divisor is 0. d_u is the weighted out-degree without
    self-loops; weights are at least 0. Without normalization (None) D - A of the weights themselves is in the place of
    I - A.

    Args:     weights: one (out, in) per hop, the first for x itself.   bias: (out,) or None.
              lambda_max: None: 2, so that L = -A, as PyG has it; None has to have one.
              weighted: read the graph's edge weights.
    Raises:   ModelError for no weights, another normalization, or a lambda_max that is missing or not above 0.
    Source: Defferrard et al. 2016; torch_geometric.nn.ChebConv.
    """

    weights: Sequence[Weights]
    bias: Weights | None = None
    activation: str | Activate | None = field(default=None, kw_only=True)
    normalization: Literal["sym", "rw"] | None = field(default="sym", kw_only=True)
    lambda_max: float | None = field(default=None, kw_only=True)
    weighted: bool = field(default=False, kw_only=True)

    @property
    def input_width(self) -> int:
        self.check()
        return _input_width(self.weights[0])

    def apply(self, x: ir.Value) -> ir.Value:
        self.check()
        terms: list[tuple[float, ir.Value]] = []
        before, z = x, x
        for hop, weight in enumerate(self.weights):
            if hop:
                before, z = z, self.hop(z, None if hop == 1 else before)
            terms.append((1.0, ir.Linear(z, weight, None if hop else self.bias)))
        return activate(ir.Combine(tuple(terms)), self.activation)

    def hop(self, z: ir.Value, before: ir.Value | None) -> ir.Value:
        """L z, or 2 L z - before."""
        times = 1.0 if before is None else 2.0
        scale = 1.0 if self.lambda_max is None else 2.0 / self.lambda_max
        norm: ir.Norm = "difference"
        diagonal = -1.0
        if self.normalization is not None:
            norm = "laplacian" if self.normalization == "sym" else "walk"
            diagonal = scale - 1.0
        terms: list[tuple[float, ir.Value]] = [(-times * scale, ir.Propagate(z, norm, self.weighted))]
        if diagonal != 0.0:
            terms.append((times * diagonal, z))
        if before is not None:
            terms.append((-1.0, before))
        return ir.Combine(tuple(terms))

    def check(self) -> None:
        if not self.weights:
            raise ModelError("[Cheb] expected a weight for each hop, at least 1, got none; fix the layer")
        if self.normalization not in ("sym", "rw", None):
            raise ModelError(
                f"[Cheb] expected normalization 'sym', 'rw' or None, got {self.normalization!r}; choose one"
            )
        if self.normalization is None and self.lambda_max is None and len(self.weights) > 1:
            raise ModelError("[Cheb] expected a lambda_max where normalization is None, got none; pass a number")
        if self.lambda_max is not None and not 0 < self.lambda_max < float("inf"):
            raise ModelError(f"[Cheb] expected a lambda_max above 0, got {self.lambda_max}; fix the layer")


@dataclass(frozen=True, eq=False)
class LG:
    """a[v] = s_v sum over edges (u, v) of w_uv s_u x[u],  s_v = d_v^-1/2, no self-loops added.

    `normalize=False`: the plain (weighted) sum. Source: He et al. 2020; torch_geometric.nn.LGConv.
    """

    normalize: bool = True
    weighted: bool = field(default=False, kw_only=True)

    def apply(self, x: ir.Value) -> ir.Value:
        return ir.Propagate(x, "gcn" if self.normalize else "sum", self.weighted)


@dataclass(frozen=True, eq=False)
class Residual:
    """y = x + layers(x), or project(x) + layers(x) where the widths differ."""

    layers: Sequence[Layer]
    project: Layer | None = None

    @property
    def input_width(self) -> int | None:
        return first_input_width(self.layers)

    def apply(self, x: ir.Value) -> ir.Value:
        skip = x if self.project is None else self.project.apply(x)
        return ir.Combine(((1.0, skip), (1.0, apply_all(self.layers, x))))


@dataclass(frozen=True, eq=False)
class Reversed:
    """layers(x) with messages going against the edges, as if every edge (u, v) were (v, u).

    Source: torch_geometric.nn.MessagePassing with flow="target_to_source".
    """

    layers: Sequence[Layer]

    @property
    def input_width(self) -> int | None:
        return first_input_width(self.layers)

    def apply(self, x: ir.Value) -> ir.Value:
        return turned(apply_all(self.layers, x), [x])


@dataclass(frozen=True, eq=False)
class JumpingKnowledge:
    """h[0] = x;  h[k] = blocks[k](h[k-1]);  y = all h[1..K] side by side ("cat") or their elementwise maximum ("max").

    Source: Xu et al. 2018; torch_geometric.nn.JumpingKnowledge.
    """

    blocks: Sequence[Layer | Sequence[Layer]]
    mode: Literal["cat", "max"] = "cat"

    @property
    def input_width(self) -> int | None:
        block = self.blocks[0] if self.blocks else []
        return first_input_width([block] if isinstance(block, Layer) else block)

    def apply(self, x: ir.Value) -> ir.Value:
        states: list[ir.Value] = []
        for block in self.blocks:
            x = block.apply(x) if isinstance(block, Layer) else apply_all(block, x)
            states.append(x)
        join: dict[str, Callable[[tuple[ir.Value, ...]], ir.Value]] = {"cat": ir.Concat, "max": ir.Maximum}
        if self.mode not in join:
            raise ModelError(f'[JumpingKnowledge] expected mode "cat" or "max", got {self.mode!r}; choose one')
        return join[self.mode](tuple(states))


def _hops(hops: int, where: str) -> int:
    if int(hops) != hops or hops < 1:
        raise ModelError(f"[{where}] expected a whole number of hops, at least 1, got {hops}; fix the layer")
    return int(hops)


def applied(layers: Sequence[Layer], x: ir.Value, where: str) -> Iterator[ir.Value]:
    """What each layer makes of what the one before it made. Raises: ModelError for what is no layer."""
    for position, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise ModelError(
                f"[{where}] expected a layer at position {position}, got {type(layer).__name__}; "
                "pass lg.layers.Dense(...) or alike"
            )
        x = layer.apply(x)
        yield x


def apply_all(layers: Sequence[Layer], x: ir.Value) -> ir.Value:
    """`layers` one after the other."""
    return [x, *applied(layers, x, "layers")][-1]


def first_input_width(layers: Sequence[Layer]) -> int | None:
    """The width that the first layer with a weight expects, if no layer before it changes widths."""
    for layer in layers:
        width = getattr(layer, "input_width", None)
        if width is not None:
            return int(width)
    return None
