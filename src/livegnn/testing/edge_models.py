"""Random layers whose messages are computed edge by edge, or differ by the edges' types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.models import edges, ir
from livegnn.models.messages import constant, filled, ones
from livegnn.models.model import Model

ATTRIBUTES, TYPES = 3, 2  # of the graphs that these layers run on


def graph_columns(model: Model) -> dict[str, int]:
    """What `testing.random_graph` must give the edges for this model."""
    return {"attr_width": model.attribute_width or 0, "types": TYPES if model.uses_types else 0}


@dataclass(frozen=True)
class _Made:
    """A layer that is a function of its input."""

    build: Callable[[ir.Value], ir.Value]

    def apply(self, x: ir.Value) -> ir.Value:
        return self.build(x)


def random_weights(rng: np.random.Generator, *shape: int) -> Any:
    """A matrix whose products keep the size of rows."""
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def _heads(rng: np.random.Generator, out: int) -> int:
    return int(rng.choice([h for h in range(1, 5) if out % h == 0]))


def _per_head(rng: np.random.Generator, heads: int, out: int) -> Any:
    """(heads, out): each head reads its own columns."""
    return (np.kron(np.eye(heads), np.ones((1, out // heads))) * 2 * rng.standard_normal((heads, out))).astype(
        np.float32
    )


def _loops(rng: np.random.Generator) -> Any:
    return ("keep", "drop", "replace")[rng.integers(3)]


def _gat(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    heads, loops, attributes = _heads(rng, o), _loops(rng), bool(rng.integers(2))
    w, source, target = random_weights(rng, o, i), _per_head(rng, heads, o), _per_head(rng, heads, o)
    by_edge = random_weights(rng, heads, ATTRIBUTES)
    fill: Any = ("mean", 0.5)[rng.integers(2)]

    def build(x: ir.Value) -> ir.Value:
        h = ir.Linear(x, w)
        terms: list[tuple[float, ir.Value]] = [
            (1.0, edges.Source(ir.Linear(h, source))),
            (1.0, edges.Target(ir.Linear(h, target))),
        ]
        if attributes:
            e: ir.Value = ir.Linear(edges.EdgeAttribute(ATTRIBUTES), by_edge)
            if loops == "replace" and fill != "mean":
                e = filled(e, "max")
            terms.append((1.0, e))
        score = ir.Activation(ir.Combine(tuple(terms)), "leaky_relu", 0.2)
        return edges.Gather(edges.Source(h), "softmax", score, heads, loops, fill)

    return _Made(build)


def _gatv2(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    heads, loops = _heads(rng, o), _loops(rng)
    left, right, attention = random_weights(rng, o, i), random_weights(rng, o, i), _per_head(rng, heads, o)

    def build(x: ir.Value) -> ir.Value:
        h = ir.Linear(x, left)
        both = ir.Combine(((1.0, edges.Source(h)), (1.0, edges.Target(ir.Linear(x, right)))))
        score = ir.Linear(ir.Activation(both, "leaky_relu", 0.2), attention)
        return edges.Gather(edges.Source(h), "softmax", score, heads, loops)

    return _Made(build)


def _transformer(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    heads = _heads(rng, o)
    query, key, value, by_edge = (random_weights(rng, o, n) for n in (i, i, i, ATTRIBUTES))

    def build(x: ir.Value) -> ir.Value:
        e = ir.Linear(edges.EdgeAttribute(ATTRIBUTES), by_edge)
        k = ir.Combine(((1.0, edges.Source(ir.Linear(x, key))), (1.0, e)))
        v = ir.Combine(((1.0, edges.Source(ir.Linear(x, value))), (1.0, e)))
        return edges.Gather(v, "softmax", edges.HeadDot(edges.Target(ir.Linear(x, query)), k, heads), heads)

    return _Made(build)


def _gine(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    by_edge, out = random_weights(rng, i, ATTRIBUTES), random_weights(rng, o, i)
    reduce: Any = ir.AGGREGATES[rng.integers(len(ir.AGGREGATES))]

    def build(x: ir.Value) -> ir.Value:
        e = ir.Linear(edges.EdgeAttribute(ATTRIBUTES), by_edge, by_edge[:, 0])
        message = ir.Activation(ir.Combine(((1.0, edges.Source(x)), (1.0, e))), "relu")
        return ir.Linear(ir.Combine(((1.0, edges.Gather(message, reduce)), (1.3, x))), out)

    return _Made(build)


def _edge_conv(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    first, bias, second = random_weights(rng, 7, 2 * i), random_weights(rng, 7), random_weights(rng, o, 7)
    reduce: Any = ("max", "sum", "mean")[rng.integers(3)]

    def build(x: ir.Value) -> ir.Value:
        here, there = edges.Target(x), edges.Source(x)
        pair = ir.Concat((here, ir.Combine(((1.0, there), (-1.0, here)))))
        return edges.Gather(ir.Linear(ir.Activation(ir.Linear(pair, first, bias), "relu"), second), reduce)

    return _Made(build)


def _nn_conv(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    matrix, bias = random_weights(rng, i * o, ATTRIBUTES), random_weights(rng, i * o)
    reduce: Any = ("sum", "mean", "max")[rng.integers(3)]

    def build(x: ir.Value) -> ir.Value:
        rows = ir.Linear(edges.EdgeAttribute(ATTRIBUTES), matrix, bias)
        return edges.Gather(edges.RowMatrix(edges.Source(x), rows), reduce)

    return _Made(build)


def _gated(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    key, query, value = (random_weights(rng, o, i) for _ in range(3))
    heads = _heads(rng, o)
    pick = _per_head(rng, heads, o)

    def build(x: ir.Value) -> ir.Value:
        both = ir.Combine(((1.0, edges.Target(ir.Linear(x, key))), (1.0, edges.Source(ir.Linear(x, query)))))
        gate = ir.Linear(ir.Activation(both, "sigmoid"), pick)
        return edges.Gather(edges.HeadScale(edges.Source(ir.Linear(x, value)), gate, heads), "sum")

    return _Made(build)


def _weighted_edges(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    out, relation = random_weights(rng, o, i), int(rng.integers(TYPES))

    def build(x: ir.Value) -> ir.Value:
        message: ir.Value = edges.Source(x)
        if weighted:
            message = ir.Multiply(message, edges.EdgeWeight())
        return ir.Linear(edges.Gather(message, "mean", relation=relation), out)

    return _Made(build)


def _computed(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    by_edge, by_type, out = (
        random_weights(rng, 1, ATTRIBUTES),
        rng.random((TYPES, 1), np.float32),
        random_weights(rng, o, i),
    )

    def build(x: ir.Value) -> ir.Value:
        gate = ir.Activation(ir.Linear(edges.EdgeAttribute(ATTRIBUTES), by_edge), "sigmoid")
        weight = ir.Multiply(gate, ir.Lookup(edges.EdgeRelation(), by_type))
        newest = edges.Gather(ir.Concat((weight, ones(weight))), "newest", loops="only")
        present = ir.Slice(newest, 1, 2)
        loop = ir.Elementwise("where", (present, ir.Slice(newest, 0, 1), constant(present, 0.5)))
        y = edges.Gather(ir.Multiply(edges.Source(x), weight), "sum", loops="drop")
        return ir.Linear(ir.Combine(((1.0, y), (1.0, ir.Multiply(x, loop)))), out)

    return _Made(build)


def _relations(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    reduces = (*ir.AGGREGATES, "gcn", "out")
    reduce = reduces[rng.integers(len(reduces))]
    over_out: Any = ("laplacian", "walk", "difference")[rng.integers(3)]
    loops = bool(rng.integers(2))
    parts = [random_weights(rng, o, i) for _ in range(TYPES + 1)]

    def one(x: ir.Value, relation: int) -> ir.Value:
        if reduce == "gcn":
            return ir.Propagate(x, "gcn", weighted, loops, relation=relation)
        if reduce == "out":
            return ir.Propagate(x, over_out, weighted, relation=relation)
        return ir.propagate(x, reduce, weighted, relation=relation)

    def build(x: ir.Value) -> ir.Value:
        terms = [(1.0, ir.Linear(one(x, relation), parts[relation])) for relation in range(TYPES)]
        return ir.Combine((*terms, (1.0, ir.Linear(x, parts[TYPES]))))

    return _Made(build)


#: family -> builder(rng, width_in, width_out, weighted)
EDGE_FAMILIES: dict[str, Any] = {
    "gat": _gat,
    "gatv2": _gatv2,
    "transformer": _transformer,
    "gine": _gine,
    "edge_conv": _edge_conv,
    "nn_conv": _nn_conv,
    "gated": _gated,
    "weighted_edges": _weighted_edges,
    "computed": _computed,
    "relations": _relations,
}
