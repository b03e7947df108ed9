"""Row-local modules of torch and PyG, by exact type: Linear, activations, eval norms, Dropout, JumpingKnowledge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import nn
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import HeadDot
from livegnn.models.layers import fold_batch_norm
from livegnn.models.messages import linear
from livegnn.models.pyg.context import BATCH, Import, refuse, to_array

__all__ = ["GLOBAL_NORMS", "LOCAL_MODULES", "SEVERAL_ARGUMENTS", "convert_local"]

Converter: TypeAlias = Callable[[Any, ir.Value, Import, str], ir.Value]

_GLOBAL = "its statistics run over all vertices even in eval mode, so one update would change every row"
#: Norms whose result for one vertex depends on all others, with the reason.
GLOBAL_NORMS: dict[Any, str] = {
    pyg.GraphNorm: _GLOBAL,
    pyg.InstanceNorm: _GLOBAL,
    pyg.PairNorm: _GLOBAL,
    pyg.MeanSubtractionNorm: _GLOBAL,
    pyg.GraphSizeNorm: "it divides by the number of vertices, so one new vertex would change every row",
    pyg.DiffGroupNorm: "its groups are not supported yet",
}


def _activation(kind: str, param: str | None = None) -> Converter:
    def convert(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
        return ir.Activation(x, kind, 0.0 if param is None else float(getattr(module, param)))

    return convert


def _linear(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    return linear(x, to_array(module.weight), to_array(module.bias))


def _identity(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    return x


def _batch_norm(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    if module.running_mean is None or module.running_var is None:
        raise refuse(
            where,
            "without running statistics it normalises over all vertices even in eval mode",
            "train it with track_running_stats=True",
        )
    mean, var = to_array(module.running_mean), to_array(module.running_var)
    scale, shift = fold_batch_norm(mean, var, to_array(module.weight), to_array(module.bias), module.eps)
    return ir.Affine(x, record.constant(scale), record.constant(shift))


def _pyg_batch_norm(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    return _batch_norm(module.module, x, record, where)


def _layer_norm(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    if tuple(module.normalized_shape) != (x.width,):
        raise refuse(where, f"it normalises over {tuple(module.normalized_shape)}", "normalise over the columns")
    return ir.LayerNorm(x, to_array(module.weight), to_array(module.bias), module.eps)


def _pyg_layer_norm(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    if module.mode != "node":
        raise refuse(
            where,
            f"mode={module.mode!r} takes mean and deviation over all vertices even in eval mode",
            "train it with mode='node'",
        )
    return ir.LayerNorm(x, to_array(module.weight), to_array(module.bias), module.eps)


def _prelu(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    return ir.PReLU(x, np.broadcast_to(to_array(module.weight), (x.width,)))


def _softplus(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    if module.threshold != 20:
        raise refuse(where, f"threshold={module.threshold} is not the default", "use threshold=20")
    return ir.Activation(x, "softplus", float(module.beta))


def _gelu(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    return ir.Activation(x, "gelu" if module.approximate == "none" else "gelu_tanh")


def _hardtanh(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    bounds = (module.min_val, module.max_val)
    if bounds not in ((-1, 1), (0, 6)):
        raise refuse(where, f"the bounds {bounds} are not supported", "use -1 and 1")
    return ir.Activation(x, "hardtanh" if bounds == (-1, 1) else "relu6")


def _rrelu(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
    return ir.Activation(x, "leaky_relu", (module.lower + module.upper) / 2)


def _over_columns(cls: Any) -> Converter:
    def convert(module: Any, x: ir.Value, record: Import, where: str) -> ir.Value:
        if module.dim not in (1, -1):
            raise refuse(where, f"dim={module.dim} runs over all vertices", "use dim=-1")
        result: ir.Value = cls(x)
        return result

    return convert


def mish(x: ir.Value) -> ir.Value:
    """x * tanh(softplus(x))."""
    return ir.Multiply(x, ir.Activation(ir.Activation(x, "softplus", 1.0), "tanh"))


def tanhshrink(x: ir.Value) -> ir.Value:
    """x - tanh(x)."""
    return ir.Combine(((1.0, x), (-1.0, ir.Activation(x, "tanh"))))


LOCAL_MODULES: dict[Any, Converter] = {
    nn.Linear: _linear,
    pyg.Linear: _linear,
    nn.Identity: _identity,
    nn.Dropout: _identity,
    nn.Dropout1d: _identity,
    nn.AlphaDropout: _identity,
    nn.FeatureAlphaDropout: _identity,
    nn.BatchNorm1d: _batch_norm,
    pyg.BatchNorm: _pyg_batch_norm,
    nn.LayerNorm: _layer_norm,
    pyg.LayerNorm: _pyg_layer_norm,
    nn.ReLU: _activation("relu"),
    nn.LeakyReLU: _activation("leaky_relu", "negative_slope"),
    nn.ELU: _activation("elu", "alpha"),
    nn.SELU: _activation("selu"),
    nn.CELU: _activation("celu", "alpha"),
    nn.GELU: _gelu,
    nn.SiLU: _activation("silu"),
    nn.Sigmoid: _activation("sigmoid"),
    nn.Tanh: _activation("tanh"),
    nn.Softplus: _softplus,
    nn.ReLU6: _activation("relu6"),
    nn.Hardtanh: _hardtanh,
    nn.Hardswish: _activation("hardswish"),
    nn.Softsign: _activation("softsign"),
    nn.LogSigmoid: _activation("log_sigmoid"),
    nn.RReLU: _rrelu,
    nn.PReLU: _prelu,
    nn.Mish: lambda module, x, record, where: mish(x),
    nn.Tanhshrink: lambda module, x, record, where: tanhshrink(x),
    nn.Softmax: _over_columns(ir.Softmax),
    nn.LogSoftmax: _over_columns(ir.LogSoftmax),
}


SEVERAL_ARGUMENTS = (pyg.JumpingKnowledge, pyg.MessageNorm)  # row-local modules of several rows


def message_norm(module: Any, x: ir.Value, message: ir.Value) -> ir.Value:
    """scale ||x|| message / ||message||."""
    length = ir.Activation(HeadDot(x, x), "sqrt")
    return ir.Combine(((float(module.scale), ir.Multiply(ir.L2Normalize(message), length)),))


def convert_local(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str) -> ir.Value:
    """The value of a row-local module of LOCAL_MODULES or SEVERAL_ARGUMENTS; extra arguments must be None."""
    given = [each for each in (*args, *kwargs.values()) if each is not None]
    if type(module) is pyg.LayerNorm and module.mode == "node":  # whose batch does not matter
        given = [each for each in given if each is not BATCH]
    if type(module) is pyg.MessageNorm:
        if len(given) != 2 or not all(isinstance(each, ir.Value) for each in given):
            raise refuse(where, "it is not called with rows and messages alone", "call it with these two")
        return message_norm(module, *given)
    if len(given) != 1:
        raise refuse(where, f"it is called with {len(given)} arguments", "call it with the rows alone")
    if type(module) is pyg.JumpingKnowledge:
        xs = given[0]
        if not isinstance(xs, (list, tuple)) or not all(isinstance(x, ir.Value) for x in xs):
            raise refuse(where, "it is not called with a list of rows", "pass the states of the layers")
        return _jumping_knowledge(module, xs)
    if not isinstance(given[0], ir.Value):
        raise refuse(where, "its argument is not one row per vertex", "call it with the rows")
    return LOCAL_MODULES[type(module)](module, given[0], record, where)


def _jumping_knowledge(module: Any, xs: Sequence[ir.Value]) -> ir.Value:
    if module.mode == "cat":
        return ir.Concat(tuple(xs))
    if module.mode == "max":
        return ir.Maximum(tuple(xs))
    forward = _lstm(module.lstm, xs, "")
    backward = _lstm(module.lstm, xs[::-1], "_reverse")[::-1]
    weight, bias = to_array(module.att.weight), to_array(module.att.bias)
    scores = [ir.Linear(ir.Concat(pair), weight, bias) for pair in zip(forward, backward, strict=True)]
    alpha = ir.Softmax(ir.Concat(tuple(scores)))
    return ir.Combine(tuple((1.0, ir.Multiply(x, ir.Slice(alpha, t, t + 1))) for t, x in enumerate(xs)))


def _lstm(lstm: Any, xs: Sequence[ir.Value], suffix: str) -> list[ir.Value]:
    """One direction of a one-layer LSTM over `xs`, from a zero state: the states h[t].

    i, f, g, o = W_ih x[t] + b_ih + W_hh h[t-1] + b_hh;  c[t] = sigmoid(f) c[t-1] + sigmoid(i) tanh(g);
    h[t] = sigmoid(o) tanh(c[t]).
    """
    parts = {name: to_array(getattr(lstm, f"{name}_l0{suffix}")) for name in ("weight_ih", "weight_hh")}
    biases = {name: to_array(getattr(lstm, f"{name}_l0{suffix}")) for name in ("bias_ih", "bias_hh")}
    size = lstm.hidden_size
    h: ir.Value | None = None
    c: ir.Value | None = None
    states: list[ir.Value] = []
    for x in xs:
        gates: ir.Value = ir.Linear(x, parts["weight_ih"], biases["bias_ih"])
        if h is None:
            gates = ir.Affine(gates, np.ones(4 * size), biases["bias_hh"])
        else:
            gates = ir.Combine(((1.0, gates), (1.0, ir.Linear(h, parts["weight_hh"], biases["bias_hh"]))))
        kinds = ("sigmoid", "sigmoid", "tanh", "sigmoid")
        i, f, g, o = (ir.Activation(ir.Slice(gates, k * size, (k + 1) * size), kind) for k, kind in enumerate(kinds))
        new = ir.Multiply(i, g)
        c = new if c is None else ir.Combine(((1.0, ir.Multiply(f, c)), (1.0, new)))
        h = ir.Multiply(o, ir.Activation(c, "tanh"))
        states.append(h)
    return states


def uninitialised(module: Any) -> bool:
    """Whether a lazy parameter has not been given its shape yet."""
    return any(isinstance(each, nn.UninitializedParameter) for each in module.parameters(recurse=False))
