"""Recurrence over what one vertex has: cells, and networks over the sequence of its layers or of its own columns.

    GRU:  r, z = sigmoid(W x + b + U h + c);  n = tanh(W x + b + r (U h + c));  h' = (1 - z) n + z h
    LSTM: i, f, o = sigmoid(W x + b + U h + c);  g = tanh(the same);  c' = f c + i g;  h' = o tanh(c')
    RNN:  h' = tanh or relu(W x + b + U h + c)

All of it is row-local, so networks are unrolled. A state that is left out is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from livegnn.models import ir
from livegnn.models.pyg.context import Flat, Import, Shaped, Unfit, refuse, to_array
from livegnn.models.pyg.layout import columns, shaped, symbol

_OVER_VERTICES = "it runs over the vertices one after the other, whose order a graph does not have"


@dataclass(frozen=True)
class Weights:
    """Of one layer in one direction, by torch's names."""

    kind: str  # GRU, LSTM, RNN_TANH or RNN_RELU
    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any

    @property
    def size(self) -> int:
        return int(self.weight_hh.shape[1])


def weights_of(module: Any, kind: str, suffix: str = "") -> Weights:
    """The weights of a cell, or of one layer and direction of a network."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return Weights(kind, *(to_array(getattr(module, f"{name}{suffix}", None)) for name in names))


def step(weights: Weights, x: ir.Value, h: ir.Value | None, c: ir.Value | None) -> tuple[ir.Value, ir.Value | None]:
    """(h', c') of one vertex; c' of an LSTM alone."""
    if weights.kind == "GRU":
        return _gru(weights, x, h), None
    if weights.kind != "LSTM":
        kind = weights.kind.removeprefix("RNN_").lower()
        return ir.Activation(_sum(_given(weights, x), _kept(weights, h)), kind), None
    gates = _sum(_given(weights, x), _kept(weights, h))
    kinds = ("sigmoid", "sigmoid", "tanh", "sigmoid")
    i, f, g, o = (ir.Activation(_gate(gates, k, weights.size), kind) for k, kind in enumerate(kinds))
    new: ir.Value = ir.Multiply(i, g)
    if c is not None:
        new = ir.Combine(((1.0, ir.Multiply(f, c)), (1.0, new)))
    return ir.Multiply(o, ir.Activation(new, "tanh")), new


def _given(weights: Weights, x: ir.Value) -> ir.Value:
    return ir.Linear(x, weights.weight_ih, weights.bias_ih)


def _kept(weights: Weights, h: ir.Value | None) -> Any:
    """U h + c: a value, an array where there is no state, None where that is zero."""
    return weights.bias_hh if h is None else ir.Linear(h, weights.weight_hh, weights.bias_hh)


def _sum(x: ir.Value, other: Any) -> ir.Value:
    if isinstance(other, ir.Value):
        return ir.Combine(((1.0, x), (1.0, other)))
    return x if other is None else ir.Affine(x, np.ones(x.width, np.float32), other)


def _gate(gates: Any, place: int, size: int) -> Any:
    if isinstance(gates, ir.Value):
        return ir.Slice(gates, place * size, (place + 1) * size)
    return None if gates is None else gates[place * size : (place + 1) * size]


def _gru(weights: Weights, x: ir.Value, h: ir.Value | None) -> ir.Value:
    given, kept, size = _given(weights, x), _kept(weights, h), weights.size
    r, z = (ir.Activation(_sum(_gate(given, place, size), _gate(kept, place, size)), "sigmoid") for place in (0, 1))
    own: Any = _gate(kept, 2, size)
    if isinstance(own, ir.Value):
        own = ir.Multiply(r, own)
    elif own is not None:
        own = ir.Affine(r, own, np.zeros(size, np.float32))
    n = ir.Activation(_sum(_gate(given, 2, size), own), "tanh")
    terms = [(1.0, n), (-1.0, ir.Multiply(z, n))]
    return ir.Combine((*terms, *(() if h is None else ((1.0, ir.Multiply(z, h)),))))


def unrolled(weights: Weights, xs: Sequence[ir.Value], h: ir.Value | None = None, c: ir.Value | None = None) -> Any:
    """(the states after every step, the last cell state)."""
    states = []
    for x in xs:
        h, c = step(weights, x, h, c)
        states.append(h)
    return states, c


def _cell(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import) -> Any:
    names = {"input": None, "hx": None} | dict(zip(("input", "hx"), args, strict=False)) | kwargs
    x, state = names["input"], names["hx"]
    kind = {nn.GRUCell: "GRU", nn.LSTMCell: "LSTM"}.get(type(module))
    weights = weights_of(module, kind or f"RNN_{module.nonlinearity.upper()}")
    h, c = state if isinstance(state, (tuple, list)) else (state, None)
    if not isinstance(x, ir.Value) or not all(each is None or isinstance(each, ir.Value) for each in (h, c)):
        raise Unfit("its input or its state is not one row per vertex", "pass rows of vertices, or leave the state out")
    new, cell = step(weights, x, h, c)
    return (new, cell) if kind == "LSTM" else new


def _network(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import) -> Any:
    given = {"hx": None} | dict(zip(("input", "hx"), args, strict=False)) | kwargs
    x = shaped(given["input"])
    if getattr(module, "proj_size", 0):
        raise Unfit("proj_size is not read", "leave it out, and put a Linear after it")
    place = 0 if module.batch_first else 1
    if x.whole or x.index.ndim != 2 or x.axis != place:
        what = "h.unsqueeze(1) or torch.stack(layers, dim=1)" if module.batch_first else "torch.stack(layers, dim=0)"
        raise Unfit(_OVER_VERTICES, f"pass the sequence of every vertex, such as {what}")
    xs = [columns(x.source, row) for row in x.index]
    state, lasts, cells, directions = _states(module, given["hx"]), [], [], 1 + module.bidirectional
    for layer in range(module.num_layers):
        parts = []
        for direction in range(directions):
            weights = weights_of(module, module.mode, f"_l{layer}" + "_reverse" * direction)
            found, c = unrolled(weights, xs[::-1] if direction else xs, *state(layer * directions + direction))
            lasts.append(found[-1])
            cells.append(c)
            parts.append(found[::-1] if direction else found)
        xs = [each[0] if len(each) == 1 else ir.Concat(each) for each in zip(*parts, strict=True)]
    out = _side_by_side(xs, place)
    last = _side_by_side(lasts, 1)
    return out, ((last, _side_by_side(cells, 1)) if module.mode == "LSTM" else last)


def _side_by_side(parts: Sequence[ir.Value], axis: int) -> Any:
    rows = parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))
    return symbol(Shaped(rows, np.arange(rows.width).reshape(len(parts), -1), axis))


def _states(module: Any, given: Any) -> Callable[[int], tuple[ir.Value | None, ir.Value | None]]:
    """What gives the first states h and c of a layer and direction by their number."""
    if given is None:
        return lambda _number: (None, None)
    parts = [shaped(each) for each in (given if isinstance(given, (tuple, list)) else (given,))]
    if any(each.axis != 1 or each.index.ndim != 2 for each in parts):
        raise Unfit("its first state is not (layers, vertices, width)", "pass rows of vertices, or leave it out")

    def state(number: int) -> tuple[ir.Value | None, ir.Value | None]:
        h, c = ([columns(each.source, each.index[number]) for each in parts] + [None])[:2]
        return h, c

    return state


RECURRENT: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((nn.GRUCell, nn.LSTMCell, nn.RNNCell), _cell),
    **dict.fromkeys((nn.GRU, nn.LSTM, nn.RNN), _network),
}


def convert_recurrent(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str) -> Any:
    """The result of a module of RECURRENT. Raises: ModelUnsupported."""
    args = tuple(each.value if isinstance(each, Flat) else each for each in args)
    try:
        return RECURRENT[type(module)](module, args, kwargs, record)
    except Unfit as error:
        raise refuse(where, error.reason, error.remedy) from error
