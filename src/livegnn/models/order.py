"""Rewrites a model so that messages travel where they are cheapest, without changing what it computes.

A linear map commutes with a sum over edges: W (sum x) = sum (W x); not with a minimum or maximum. Whether to transform
first or to aggregate first is decided per layer, once, when the model is compiled, so that the order of rounding is a
function of the model alone.

Transforming first multiplies only vertices whose own row changed, once each, but moves rows of the output width along
every edge; aggregating first multiplies every affected vertex. With rows moved at about 25 GB/s and products at about
100 GFLOP/s a thread, transforming first pays where 32 (out - in) < in out: always, unless the input is narrow.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.models import edges, ir


@dataclass(frozen=True, eq=False)
class Shift(ir.Value):
    """y = x + shift per column: a bias that has left its Linear. Made by this module only."""

    x: ir.Value
    shift: ir.FloatArray

    def __post_init__(self) -> None:
        self._define(self.x.width, (self.x,), shift=ir.frozen_array(self.shift, "Shift", (self.x.width,)))


def transform_first(width_in: int, width_out: int) -> bool:
    """Whether W (width_out, width_in) is applied before the sum over edges (see the module's text)."""
    return 32 * (width_out - width_in) < width_in * width_out


def optimise(output: ir.Value) -> ir.Value:
    """An equal model in the order that is cheapest to keep up to date."""
    return _Rewriter(output).rewrite(output)


class _Rewriter:
    """Builds the new graph from the inputs up; `uses` counts the consumers of every value of the old one."""

    def __init__(self, output: ir.Value) -> None:
        self.values = ir.walk(output)
        self.uses: Counter[int] = Counter(id(x) for value in self.values for x in value.inputs)
        self.uses[id(output)] += 1
        self.new: dict[int, ir.Value] = {}
        self.single: set[int] = set()  # new values that have one consumer
        self.linears: dict[tuple[int, int], ir.Value] = {}

    def rewrite(self, output: ir.Value) -> ir.Value:
        for value in self.values:
            built = self.build(value)
            self.new[id(value)] = built
            if self.uses[id(value)] == 1:
                self.single.add(id(built))
        return self.new[id(output)]

    def build(self, value: ir.Value) -> ir.Value:
        if isinstance(value, ir.Linear):
            return shifted(self.linear(self.new[id(value.x)], value.weight), value.bias)
        if isinstance(value, ir.Propagate):
            return self.propagate(value, self.new[id(value.x)])
        if isinstance(value, ir.Combine):
            return combine([(c, self.new[id(x)]) for c, x in value.terms])
        return with_inputs(value, [self.new[id(x)] for x in value.inputs])

    def linear(self, x: ir.Value, weight: ir.FloatArray) -> ir.Value:
        """W x, moved before the sums that x ends in where that is cheaper."""
        if isinstance(x, Shift) and id(x) in self.single:
            bias = weight.astype(np.float64) @ x.shift.astype(np.float64)
            return shifted(self.linear(self.alone(x.x), weight), bias.astype(np.float32))
        if x.on_edges and (apart := self.at_the_ends(x, weight)) is not None:
            return apart
        narrower = transform_first(weight.shape[1], weight.shape[0])
        if narrower and id(x) in self.single:
            if isinstance(x, ir.Propagate) and x.reduce == "sum":
                return self.alone(moved(x, self.linear(x.x, weight)))
            if isinstance(x, ir.Combine) and own_sum(x) is not None:
                return self.alone(combine([(c, self.linear(self.alone_if_sum(term), weight)) for c, term in x.terms]))
        key = (id(x), id(weight))
        if key not in self.linears:
            self.linears[key] = ir.Linear(x, weight)
        return self.linears[key]

    def at_the_ends(self, x: ir.Value, weight: ir.FloatArray) -> ir.Value | None:
        """W x on edges, with what depends on one end alone computed once per vertex; None where nothing does."""
        if isinstance(x, edges.Source | edges.Target):
            return type(x)(self.linear(x.x, weight))
        if isinstance(x, ir.Combine) and all(ends(term) for _, term in x.terms):
            return combine([(c, self.linear(term, weight)) for c, term in x.terms])
        if isinstance(x, ir.Concat) and any(ends(part) for part in x.xs):
            starts = np.cumsum([0, *(part.width for part in x.xs)])
            pieces = [weight[:, a:b] for a, b in itertools.pairwise(starts)]
            return combine([(1.0, self.linear(part, piece)) for part, piece in zip(x.xs, pieces, strict=True)])
        return None

    def propagate(self, value: ir.Propagate, x: ir.Value) -> ir.Value:
        """Aggregates first where a narrow input is widened: sum (W x) becomes W (sum x)."""
        plain = isinstance(x, ir.Linear) and x.bias is None and id(x) in self.single and value.reduce == "sum"
        if isinstance(x, ir.Linear) and plain and not transform_first(x.weight.shape[1], x.weight.shape[0]):
            return self.alone(ir.Linear(self.alone(moved(value, x.x)), x.weight))
        return moved(value, x)

    def alone(self, value: ir.Value) -> ir.Value:
        self.single.add(id(value))
        return value

    def alone_if_sum(self, value: ir.Value) -> ir.Value:
        return self.alone(value) if isinstance(value, ir.Propagate) else value


def ends(x: ir.Value) -> bool:
    """Whether a value on edges is a sum of rows of their ends."""
    if isinstance(x, ir.Combine):
        return all(ends(term) for _, term in x.terms)
    return isinstance(x, edges.Source | edges.Target)


def at_one_end(terms: list[tuple[float, ir.Value]]) -> list[tuple[float, ir.Value]]:
    """Terms on edges with those of one end added up at the vertex, in the place of the first of them."""
    flat: list[tuple[float, ir.Value]] = []
    for coefficient, term in terms:
        if isinstance(term, ir.Combine) and ends(term):
            flat.extend((coefficient * inner, each) for inner, each in term.terms)
        else:
            flat.append((coefficient, term))
    for end in (edges.Source, edges.Target):
        mine = [(c, term.x) for c, term in flat if isinstance(term, end)]
        if len(mine) > 1:
            first = next(i for i, (_, term) in enumerate(flat) if isinstance(term, end))
            rest = [each for each in flat if not isinstance(each[1], end)]
            flat = [*rest[:first], (1.0, end(combine(mine))), *rest[first:]]
    return flat


def own_sum(value: ir.Combine) -> ir.Propagate | None:
    """The sum in `a * sum x + b * x` (GIN), where both parts can be transformed by one product; else None."""
    sums = [term for _, term in value.terms if isinstance(term, ir.Propagate) and term.reduce == "sum"]
    if len(sums) != 1 or len(value.terms) < 2:
        return None
    rest = [term for _, term in value.terms if term is not sums[0]]
    return sums[0] if all(term is sums[0].x for term in rest) else None


def moved(value: ir.Propagate, x: ir.Value) -> ir.Propagate:
    return dataclasses.replace(value, x=x)


def shifted(x: ir.Value, bias: ir.FloatArray | None) -> ir.Value:
    """x + bias, one shift at most."""
    if bias is None:
        return x
    if isinstance(x, Shift):
        return Shift(x.x, x.shift + bias)
    return Shift(x, bias)


def combine(terms: list[tuple[float, ir.Value]]) -> ir.Value:
    """The weighted sum of terms, their constant shifts gathered at the end.

    A shifted term that is also summed over edges stays as it is, so that it can be folded into that sum.
    """
    if terms[0][1].on_edges:
        terms = at_one_end(terms)
    messages = {id(term.x) for _, term in terms if isinstance(term, ir.Propagate)}
    bias: ir.FloatArray | None = None
    plain: list[tuple[float, ir.Value]] = []
    for coefficient, term in terms:
        if isinstance(term, Shift) and id(term) not in messages:
            part = np.float32(coefficient) * term.shift
            bias = part if bias is None else bias + part
            plain.append((coefficient, term.x))
        else:
            plain.append((coefficient, term))
    if len(plain) == 1 and plain[0][0] == 1.0:
        return shifted(plain[0][1], bias)
    return shifted(ir.Combine(tuple(plain)), bias)


def with_inputs(value: ir.Value, inputs: list[ir.Value]) -> ir.Value:
    """The same operation on other inputs, which stand in the order of its fields."""
    if all(new is old for new, old in zip(inputs, value.inputs, strict=True)):
        return value
    left = iter(inputs)

    def on_others(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(on_others(each) for each in given)
        return next(left) if isinstance(given, ir.Value) else given

    fields = [field.name for field in dataclasses.fields(value) if field.init]
    return dataclasses.replace(value, **{name: on_others(getattr(value, name)) for name in fields})
