"""PyG's aggregations of messages, simple and composed, as values.

Messages are rows of vertices where they depend on the source alone; then everything here is a Propagate. Otherwise
they are rows of edges, and every reduction is a Gather. What a message has of its target's own row is added after the
reduction: it is the same for all messages of a vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch_geometric.nn import aggr

from livegnn.models import ir
from livegnn.models.edges import Gather, Loops, Source
from livegnn.models.messages import constant, linear, ones, split_target
from livegnn.models.pyg.context import Import, refuse, to_array
from livegnn.models.pyg.refused import REFUSED_AGGREGATIONS
from livegnn.models.pyg.weighted import is_graphs, times_weight

_SIMPLE: dict[type, ir.Aggregate] = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
    aggr.MedianAggregation: "median",
    aggr.QuantileAggregation: "median",
}
VARIANCE_MIN = 1e-5  # of a standard deviation; below it the deviation is 0


def simple_name(module: Any) -> ir.Aggregate | None:
    """The name of an aggregation that the engine has; None for another one."""
    name = _SIMPLE.get(type(module))
    if name == "median":
        middle = to_array(module.q).reshape(-1).tolist() == [0.5]
        return name if middle and module.interpolation == "lower" and module.fill_value == 0 else None
    return name


def refuse_aggregation(module: Any, label: Any, where: str) -> Exception:
    """The refusal of an aggregation that has no value."""
    kind = type(module)
    reason = REFUSED_AGGREGATIONS.get(kind.__name__, "this aggregation is not known to livegnn")
    return refuse(
        where, f"aggr={label!r} ({kind.__name__}): {reason}", f"train it with one of {', '.join(ir.AGGREGATES)}"
    )


@dataclass
class Aggregator:
    """Reduces one message in several ways, each made once.

    message: rows of vertices (the source's), or of edges.   rows: any rows of vertices.   weight: on the edges.
    label: for refusals.   reversed: whether messages go against the edges.
    """

    message: ir.Value
    rows: ir.Value
    record: Import
    where: str
    weight: ir.Value | None = None
    relation: int | None = None
    loops: Loops = "keep"
    label: Any = None
    reversed: bool = False
    known: dict[str, ir.Value] = field(default_factory=dict)

    def of(self, module: Any) -> ir.Value:
        """The result of one of PyG's aggregation modules. Raises: ModelUnsupported."""
        name = simple_name(module)
        if name is not None:
            return self.simple(name)
        if type(module) not in _COMPOSED:
            raise refuse_aggregation(module, self.label, self.where)
        return _COMPOSED[type(module)](self, module)

    def simple(self, kind: ir.Aggregate) -> ir.Value:
        """The messages by an aggregate that the engine has."""
        if kind not in self.known:
            split = self.weight is None or kind in ("sum", "mean")  # a weight multiplies the target's part, too
            own, rest = split_target(self.message) if split else (None, self.message)
            y = self.reduce(rest, kind)
            if own is not None:
                count = self.degree() if kind == "sum" else self.present()
                y = ir.Combine(((1.0, y), (1.0, ir.Multiply(own, count))))
            self.known[kind] = y
        return self.known[kind]

    def reduce(self, rows: ir.Value, kind: ir.Aggregate) -> ir.Value:
        """`rows`, of sources or of edges, to the vertices they go to."""
        if rows.on_edges or self.loops != "keep" or not is_graphs(self.weight):
            rows = rows if rows.on_edges else Source(rows)
            if self.weight is not None:
                rows = ir.Multiply(rows, self.weight)
            return Gather(rows, kind, loops=self.loops, relation=self.relation, reversed=self.reversed)
        y = ir.propagate(rows, kind, self.weight is not None, relation=self.relation)
        return replace(y, reversed=self.reversed)

    def degree(self) -> ir.Value:
        """The number of edges that count, one column; with weights, their sum."""
        if "degree" not in self.known:
            self.known["degree"] = self.reduce(ones(self.rows), "sum")
        return self.known["degree"]

    def present(self) -> ir.Value:
        """1 where there is an edge that counts, else 0."""
        if "present" not in self.known:
            self.known["present"] = self.reduce(ones(self.rows), "mean")
        return self.known["present"]

    def whole(self) -> ir.Value:
        """The message, weights multiplied in, of vertices where it can be."""
        if self.weight is None:
            return self.message.x if isinstance(self.message, Source) else self.message
        return times_weight(self.message, self.weight)

    def with_message(self, message: ir.Value) -> Aggregator:
        """The same edges with another message, weights not multiplied in."""
        return replace(self, message=message, weight=None, label=None, known={})

    def variance(self) -> ir.Value:
        """mean(m^2) - mean(m)^2, which what is added to every message of a vertex does not change."""
        if "variance" not in self.known:
            plain = self.with_message(self.whole())
            _, rest = split_target(plain.message)
            mean = plain.reduce(rest, "mean")
            squares = plain.reduce(ir.Multiply(rest, rest), "mean")
            self.known["variance"] = ir.Combine(((1.0, squares), (-1.0, ir.Multiply(mean, mean))))
        return self.known["variance"]


def _deviation(self: Aggregator, module: Any) -> ir.Value:
    """sqrt(variance) where that is above sqrt(VARIANCE_MIN), else 0."""
    variance = self.variance()
    excess = ir.Activation(add_number(variance, -VARIANCE_MIN, self.record), "relu")
    above = ir.Multiply(excess, ir.Activation(excess, "reciprocal"))
    return ir.Multiply(ir.Activation(variance, "sqrt"), above)


def add_number(x: ir.Value, number: float, record: Import) -> ir.Value:
    """x + number."""
    return ir.Affine(x, np.ones(x.width, np.float32), record.constant(np.full(x.width, number)))


def scale(x: ir.Value, factor: Any) -> ir.Value:
    """factor * x, a number or one per column."""
    if isinstance(factor, torch.Tensor) and factor.numel() > 1:
        return ir.Affine(x, to_array(factor).reshape(-1), np.zeros(x.width, np.float32))
    number = float(factor)
    return x if number == 1 else ir.Combine(((number, x),))


def _softmax(self: Aggregator, module: Any) -> ir.Value:
    message = self.whole()
    score = scale(message, module.t)
    if not message.on_edges:
        message, score = Source(message), Source(score)
    options: Any = {"loops": self.loops, "relation": self.relation, "reversed": self.reversed}
    return Gather(message, "softmax", score, message.width, **options)


def _power_mean(self: Aggregator, module: Any) -> ir.Value:
    """clamp(mean(clamp(m)^p))^(1/p); without clamps if p is the number 1."""
    p = module.p
    if not isinstance(p, torch.Tensor) and p == 1:
        return self.simple("mean")
    low, high = module.min_value, module.max_value
    if low is None or high is None or low <= 0:
        raise refuse(self.where, f"a power mean with clamp_min={low} and clamp_max={high} has powers of numbers "
                     "below 0", "set clamp_min above 0 and clamp_max")  # fmt: skip
    powers = to_array(p).reshape(-1) if isinstance(p, torch.Tensor) else np.array([float(p)])
    if (powers == 0).any():
        raise refuse(self.where, "a power mean with p=0 divides by 0", "train it with another p")

    def power(x: ir.Value, exponents: Any) -> ir.Value:
        x = ir.Maximum((x, constant(x, self.record.constant(low))))
        top = constant(x, self.record.constant(-high))
        x = ir.Combine(((-1.0, ir.Maximum((ir.Combine(((-1.0, x),)), top))),))
        inner = add_number(ir.Combine(((1.0 / low, x),)), -1.0, self.record)  # log x = log1p(x / low - 1) + log low
        log = add_number(ir.Activation(inner, "log1p"), math.log(low), self.record)
        exponents = np.broadcast_to(exponents, (x.width,))
        return ir.Activation(ir.Affine(log, self.record.constant(exponents), np.zeros(x.width, np.float32)), "exp")

    y = self.with_message(power(self.whole(), powers)).simple("mean")
    return power(y, 1.0 / powers)


def _multi(self: Aggregator, module: Any) -> ir.Value:
    parts = tuple(self.of(each) for each in module.aggrs)
    if len(parts) == 1:
        return parts[0]
    mode = module.mode
    if mode == "cat":
        return ir.Concat(parts)
    if mode == "proj":
        return linear(ir.Concat(parts), to_array(module.lin.weight), to_array(module.lin.bias))
    if mode == "sum" or mode == "mean":
        return ir.Combine(tuple((1.0 if mode == "sum" else 1.0 / len(parts), part) for part in parts))
    if mode == "max":
        return ir.Maximum(parts)
    if mode == "min":
        negative = tuple(ir.Combine(((-1.0, part),)) for part in parts)
        return ir.Combine(((-1.0, ir.Maximum(negative)),))
    raise refuse(self.where, f"several aggregations joined by mode={mode!r}", "use mode 'cat', 'sum', 'mean', 'max'")


def degree_to(degree: ir.Value, scaler: str, lin: float, log: float) -> ir.Value | None:
    """PNA's factor for a degree, one column; None for 1.

    Raises: KeyError for a scaler of another name.
    """
    at_least_one = ir.Maximum((degree, ones(degree)))
    factors: dict[str, Callable[[], ir.Value | None]] = {
        "identity": lambda: None,
        "amplification": lambda: ir.Combine(((1.0 / log, ir.Activation(degree, "log1p")),)),
        "attenuation": lambda: ir.Combine(((log, ir.Activation(ir.Activation(at_least_one, "log1p"), "reciprocal")),)),
        "linear": lambda: ir.Combine(((1.0 / lin, degree),)),
        "inverse_linear": lambda: ir.Combine(((lin, ir.Activation(at_least_one, "reciprocal")),)),
    }
    return factors[scaler]()


def _degree_scaled(self: Aggregator, module: Any) -> ir.Value:
    y = self.of(module.aggr)
    unweighted = self.with_message(self.rows)
    lin, log = float(module.avg_deg_lin), float(module.avg_deg_log)
    if lin == 0 or log == 0:
        raise refuse(self.where, "its `deg` has no edges, so its scalers divide by 0", "give it the training degrees")
    factors = [degree_to(unweighted.degree(), scaler, lin, log) for scaler in module.scaler]
    scaled = tuple(y if factor is None else ir.Multiply(y, factor) for factor in factors)
    return scaled[0] if len(scaled) == 1 else ir.Concat(scaled)


_COMPOSED: dict[type, Callable[[Aggregator, Any], ir.Value]] = {
    aggr.VarAggregation: lambda self, module: self.variance(),
    aggr.StdAggregation: _deviation,
    aggr.SoftmaxAggregation: _softmax,
    aggr.PowerMeanAggregation: _power_mean,
    aggr.MultiAggregation: _multi,
    aggr.DegreeScalerAggregation: _degree_scaled,
}
