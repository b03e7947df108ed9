"""From rows of edges back to vertices: which sum, extreme or attention of the engine a reduction is.

A message is taken apart into factors. Those of the target alone leave a sum; the weight and rows of the source make a
Propagate; degrees to the power -1/2 at both ends make a normalised one; a softmax over a vertex's in-edges makes
attention. What is left is gathered edge by edge.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from livegnn.models import ir, layers
from livegnn.models.edges import EdgeWeight, Gather, HeadScale, Loops, Source, Target, on_edges
from livegnn.models.messages import ones, total
from livegnn.models.pyg.context import Import, Unfit
from livegnn.models.pyg.convs.aggregation import Aggregator, simple_name
from livegnn.models.pyg.own.rows import (
    EdgeChoice,
    LoopWeight,
    Traced,
    at_ends,
    columns,
    constant_like,
    constant_row,
    mapped,
    prod,
)
from livegnn.models.pyg.weighted import inverse_root

_EXTREMES: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
    "max": lambda a, b: ir.Maximum((a, b)),
    "min": lambda a, b: ir.Elementwise("minimum", (a, b)),
}
_LARGE = 1e30  # what a maximum takes for an edge that is left out


@dataclass(frozen=True)
class DegreeOf:
    """What a column of degrees counts: the edges of a list, or the sum of their weights (`fill` in their loops)."""

    edges: EdgeChoice
    weighted: bool
    fill: float | None = None


@dataclass
class Factors:
    """A product on edges: coefficient * w^weights * sources * targets * softmaxes * others.

    Each factor is repeated over blocks of columns up to the width of the product.
    """

    width: int
    coefficient: float = 1.0
    weights: int = 0
    sources: list[ir.Value] = field(default_factory=list)
    targets: list[ir.Value] = field(default_factory=list)
    others: list[ir.Value] = field(default_factory=list)

    def add(self, value: ir.Value, keep: set[int]) -> None:
        """Multiplies by `value`, taken apart where it is a product; values of the ids `keep` stay whole."""
        if id(value) in keep:
            self.others.append(value)
        elif isinstance(value, ir.Multiply | HeadScale):
            for each in value.inputs:
                self.add(each, keep)
        elif isinstance(value, ir.Combine) and len(value.terms) == 1:
            self.coefficient *= value.terms[0][0]
            self.add(value.terms[0][1], keep)
        elif isinstance(value, Source | Target):
            self._add_end(value, keep)
        elif isinstance(value, EdgeWeight):
            self.weights += 1
        else:
            self.others.append(value)

    def _add_end(self, value: Source | Target, keep: set[int]) -> None:
        inner = Factors(value.width)
        inner.add(value.x, keep)
        self.coefficient *= inner.coefficient
        (self.sources if isinstance(value, Source) else self.targets).extend(inner.others)


def product(factors: list[ir.Value], width: int) -> ir.Value | None:
    """The factors' product, `width` wide; None for none."""
    if not factors:
        return None
    factors = sorted(factors, key=lambda each: -each.width)
    first = factors[0]
    y = columns(first, [i * first.width // width for i in range(width)])
    for each in factors[1:]:
        heads = each.width
        y = at_ends(lambda a, b, h=heads: ir.Multiply(a, b) if h in (1, width) else HeadScale(a, b, h), y, each)
    return y


class Reducer:
    """All reductions of one own layer at one end of the edges, which rows of edges have as their target.

    anchor: any rows of its vertices.   reversed: whether the edges are turned round (own/ways.py).
    """

    def __init__(self, record: Import, where: str, anchor: ir.Value, *, reversed: bool) -> None:
        self.record, self.where, self.anchor, self.reversed = record, where, anchor, reversed
        self.softmaxes: dict[int, tuple[ir.Value, Traced]] = {}  # id of a weight on edges -> itself, the scores
        self.degrees: dict[int, tuple[ir.Value, DegreeOf]] = {}
        self.roots: dict[int, tuple[ir.Value, DegreeOf]] = {}  # of degrees to the power -1/2

    # ---- one aggregation

    def of(self, rows: Traced, module: Any, label: Any) -> Traced:
        """The rows that an aggregation module makes. Raises: ModelUnsupported, Unfit."""
        kind = simple_name(module)
        if kind is not None:
            return self.simple(rows, kind)
        edges = _edges_of(rows)
        if edges.masks or (edges.added and not _in_place(rows)):
            raise Unfit(f"aggr={label!r} over edges with loops added next to the graph's own, or masked, is not read",
                        "call remove_self_loops first, or use sum, mean, max or min")  # fmt: skip
        aggregator = self.aggregator(rows.value, edges, label=label)
        value = aggregator.of(module)
        return Traced(value, (*rows.shape[:-1], value.width // max(1, prod(rows.shape[:-1]))))

    def simple(self, rows: Traced, kind: ir.Aggregate) -> Traced:
        """The rows by an aggregate that the engine has. Raises: Unfit."""
        edges, shape = _edges_of(rows), rows.shape
        if edges.masks:
            return self.masked(rows, kind)
        parts = Factors(rows.value.width)
        parts.add(rows.value, set(self.softmaxes))
        filled = self.filled(rows, parts, edges) if kind == "sum" else None
        if filled is not None:
            return Traced(filled, shape)
        normalised = self.normalised(rows, parts, edges, kind)
        if normalised is not None:
            return Traced(normalised, shape)
        attended = self.attended(rows, parts, edges) if kind == "sum" else None
        if attended is not None:
            return Traced(attended, shape)
        if edges.added and (not _in_place(rows) or kind in ("sum", "mean")):
            return Traced(self.with_loops(rows, parts, kind), shape)
        return Traced(self.over(rows.value, parts, edges, kind), shape)

    def masked(self, rows: Traced, kind: ir.Aggregate) -> Traced:
        """The reduction over those edges of a list that its masks leave."""
        edges, mask = _edges_of(rows), self.mask(_edges_of(rows))
        whole = Traced(rows.value, rows.shape, mask.edges, rows.loops, rows.even)
        if kind in ("sum", "mean"):
            y = self.simple(mapped(_left(0.0), rows.shape, whole, mask), "sum")
            if kind == "sum":
                return y
            return Traced(ir.Elementwise("divide", (y.value, self.count(edges))), rows.shape)

        y = self.simple(mapped(_left(-_LARGE if kind == "max" else _LARGE), rows.shape, whole, mask), kind)
        zeros = constant_like(y.value, np.zeros(y.value.width))
        return Traced(ir.Elementwise("where", (self.count(edges), y.value, zeros)), rows.shape)

    def mask(self, edges: EdgeChoice) -> Traced:
        """1 for the edges of a list that its masks leave, 0 for the others: a number of each edge of the whole list."""
        whole = replace(edges, masks=())
        parts = [Traced(each.value, (), whole, each.loops) for each in edges.masks]
        return functools.reduce(lambda a, b: mapped(ir.Multiply, (), a, b), parts)

    def over(self, value: ir.Value, parts: Factors, edges: EdgeChoice, kind: ir.Aggregate) -> ir.Value:
        """`value`, whose factors are `parts`, reduced over edges without added loops, or of GAT's kind."""
        outside = None
        if kind in ("sum", "mean") and (parts.targets or parts.weights == 1):
            outside = product(parts.targets, parts.width)
            inside = product([*parts.others, *map(Source, parts.sources)], parts.width)
            inside = Source(constant_like(self.anchor, [1.0] * parts.width)) if inside is None else inside
            inside = inside if parts.coefficient == 1.0 else at_ends(_scaled(parts.coefficient), inside)
            weights = parts.weights
        elif parts.weights == 1 and parts.sources and not (parts.targets or parts.others):
            source = product(parts.sources, parts.width)
            inside, weights = _scaled(parts.coefficient)(source), 1  # a weight may turn the order of messages round
        else:
            inside, weights = value, 0
        for _ in range(weights - 1):
            inside = ir.Multiply(inside, EdgeWeight())
        if isinstance(inside, Source):
            inside = inside.x
        y = self.aggregator(inside, edges, weighted=weights > 0).simple(kind)
        return y if outside is None else ir.Multiply(y, outside)

    def aggregator(
        self, message: ir.Value, edges: EdgeChoice, *, weighted: bool = False, label: Any = None
    ) -> Aggregator:
        of = (EdgeWeight() if weighted else None, edges.relation, _loops(edges), label, self.reversed)
        return Aggregator(message, self.anchor, self.record, self.where, *of)

    def with_loops(self, rows: Traced, parts: Factors, kind: ir.Aggregate) -> ir.Value:
        """The reduction over the graph's edges, and the added loops' rows joined to it at their vertices."""
        plain, loops = _edges_of(rows).plain, rows.loops
        y = self.over(rows.value, parts, plain, kind)
        added = tuple((1.0, each) for each in loops)
        if kind == "sum":
            return ir.Combine(((1.0, y), *added))
        if kind == "mean":
            count = self.count(plain)
            whole = ir.Combine(((1.0, ir.Multiply(y, count)), *added))
            return ir.Multiply(whole, ir.Activation(_plus(count, len(loops)), "reciprocal"))
        if kind in ("max", "min"):
            loop = functools.reduce(_EXTREMES[kind], loops)
            return ir.Elementwise("where", (self.count(plain), _EXTREMES[kind](y, loop), loop))
        raise Unfit(f"a {kind} over edges with loops added next to the graph's own is not supported",
                    "call remove_self_loops first")  # fmt: skip

    def count(self, edges: EdgeChoice) -> ir.Value:
        """The number of in-edges in a list, one column."""
        if edges.masks:
            return self.simple(self.mask(edges), "sum").value
        value = self.aggregator(ones(self.anchor), edges.plain).simple("sum")
        return _plus(value, edges.added) if edges.added else value

    # ---- degrees

    def degree(self, rows: Traced) -> Traced | None:
        """The sum of edges' constant or weight at their targets, remembered as a degree.

        None where rows are neither, or nothing of the kind.
        """
        edges = _edges_of(rows)
        weighted, row = isinstance(rows.value, EdgeWeight), constant_row(rows.value)
        if rows.value.width != 1 or edges.masks or not (weighted or (row is not None and row[0] == 1.0)):
            return None
        fills = [each.fill for each in rows.loops if isinstance(each, LoopWeight)]
        if fills and weighted and _is_filled(edges):
            own: ir.Value = ir.Propagate(ones(self.anchor), "sum", True, True, fills[0], reversed=self.reversed)
        else:
            own = self.aggregator(ones(self.anchor), edges.plain, weighted=weighted).simple("sum")
            if edges.added:
                own = ir.Combine(((1.0, own), *((1.0, each) for each in rows.loops)))
        if edges.added <= 1 and (rows.even or fills):
            self.degrees[id(own)] = own, DegreeOf(edges, weighted, fills[0] if fills else None)
        return Traced(own, rows.shape)

    def inverse_root(self, x: ir.Value) -> ir.Value:
        """x^-1/2, 0 where x is not above 0; of a degree, remembered."""
        root = inverse_root(x, self.record)
        if id(x) in self.degrees:
            self.roots[id(root)] = root, self.degrees[id(x)][1]
        return root

    def normalised(self, rows: Traced, parts: Factors, edges: EdgeChoice, kind: ir.Aggregate) -> ir.Value | None:
        """d_u^-1/2 w d_v^-1/2 times rows of the source, as one normalised Propagate; None if it is none."""
        if parts.others or len(parts.targets) != 1 or kind == "mean" or edges.relation is not None:
            return None
        root = parts.targets[0]
        known = self.roots.get(id(root))
        if known is None or not any(each is root for each in parts.sources):
            return None
        degree, loops = known[1], edges.added > 0
        if degree.edges != edges or parts.weights != degree.weighted or edges.own == loops or edges.added > 1:
            return None  # no such norm: of all edges it has loops added to them, or none in their place
        if loops and not (rows.even if not degree.weighted else _same_in_loops(rows, parts)):
            return None
        rest = list(parts.sources)
        del rest[next(i for i, each in enumerate(rest) if each is root)]
        x = product(rest, parts.width)
        x = constant_like(self.anchor, [1.0] * parts.width) if x is None else x
        x = _scaled(parts.coefficient)(x)
        y = layers.gcn_propagate(x, degree.weighted, loops, 1.0 if degree.fill is None else degree.fill, kind)
        return replace(y, reversed=self.reversed)

    def filled(self, rows: Traced, parts: Factors, edges: EdgeChoice) -> ir.Value | None:
        """w times rows of either end over edges whose loops were filled up, as one sum; None if it is none.

        What is normalised is left to `normalised`.
        """
        leaves = [each for each in ir.walk(*rows.loops) if isinstance(each, LoopWeight)]
        if not leaves or not _is_filled(edges) or parts.others or parts.weights != 1:
            return None
        if not _same_in_loops(rows, parts):
            return None
        known = self.roots.get(id(parts.targets[0])) if len(parts.targets) == 1 else None
        if known is not None and any(each is parts.targets[0] for each in parts.sources):
            return None
        x = product(parts.sources, parts.width)
        x = _scaled(parts.coefficient)(constant_like(self.anchor, [1.0] * parts.width) if x is None else x)
        y: ir.Value = ir.Propagate(x, "sum", True, True, leaves[0].fill, reversed=self.reversed)
        outside = product(parts.targets, parts.width)
        return y if outside is None else ir.Multiply(y, outside)

    # ---- attention

    def softmax(self, score: Traced) -> Traced:
        """exp(score - m) / sum exp(score - m) over a vertex's in-edges, remembered as attention."""
        edges = _edges_of(score)
        largest = self.simple(score, "max").value

        def exp(rows: ir.Value, most: ir.Value) -> ir.Value:
            return ir.Activation(ir.Combine(((1.0, rows), (-1.0, most))), "exp")

        loops = tuple(exp(each, largest) for each in score.loops)
        power = Traced(exp(score.value, Target(largest)), score.shape, edges, loops, score.even)
        inverse = ir.Activation(self.simple(power, "sum").value, "reciprocal")
        over = Traced(Target(inverse), score.shape, edges, (inverse,) * edges.added)
        result = mapped(ir.Multiply, score.shape, power, over)
        self.softmaxes[id(result.value)] = result.value, score
        return result

    def attended(self, rows: Traced, parts: Factors, edges: EdgeChoice) -> ir.Value | None:
        """A sum of messages times one softmax over the same edges, as the engine's attention; None if it is none."""
        found = [each for each in parts.others if id(each) in self.softmaxes]
        if len(found) != 1:
            return None
        alpha, score = self.softmaxes[id(found[0])]
        if score.edges != edges:
            return None
        others = [each for each in parts.others if each is not alpha]
        if edges.added and not (_in_place(rows) and score.even):
            return None
        weights: list[ir.Value] = [EdgeWeight() for _ in range(parts.weights)]
        message = product([*others, *map(Source, parts.sources), *weights], parts.width)
        if any(id(each) in self.softmaxes for each in ([] if message is None else on_edges([message]))):
            return None
        message = Source(constant_like(self.anchor, [1.0] * parts.width)) if message is None else message
        message = message if parts.coefficient == 1.0 else at_ends(_scaled(parts.coefficient), message)
        options: Any = {"loops": _loops(edges), "relation": edges.relation, "reversed": self.reversed}
        y: ir.Value = Gather(message, "softmax", score.value, score.value.width, **options)
        outside = product(parts.targets, parts.width)
        return y if outside is None else ir.Multiply(y, outside)


def _edges_of(rows: Traced) -> EdgeChoice:
    if not isinstance(rows.edges, EdgeChoice):
        raise Unfit("it reduces rows of vertices by the ends of edges", "bring them to the edges first, as x_j")
    return rows.edges


def _loops(edges: EdgeChoice) -> Loops:
    return "replace" if edges.added else "keep" if edges.own else "drop"


def _is_filled(edges: EdgeChoice) -> bool:
    """Whether the graph's edges have one loop for every vertex in the place of their own, as a filled one is."""
    return edges == EdgeChoice(own=False, added=1, before=edges.before)


def _in_place(rows: Traced) -> bool:
    """Whether added loops are one in the place of every vertex's own, with the rows that an edge would have."""
    edges = _edges_of(rows)
    return edges.added == 1 and not edges.own and rows.even and edges.relation is None


def _left(number: float) -> Callable[[ir.Value, ir.Value], ir.Value]:
    """Rows where a mask is not 0, a number elsewhere, whatever the rows are there."""

    def left(value: ir.Value, mask: ir.Value) -> ir.Value:
        return ir.Elementwise("where", (mask, value, constant_like(mask, np.full(value.width, number))))

    return left


def _scaled(coefficient: float) -> Any:
    return lambda x: x if coefficient == 1.0 else total([(coefficient, x)])


def _plus(x: ir.Value, number: float) -> ir.Value:
    return ir.Affine(x, [1.0], [float(number)])  # type: ignore[arg-type]


def _same_in_loops(rows: Traced, parts: Factors) -> bool:
    """Whether added loops' rows are the same product, with the loops' weight in the place of the edges'."""
    inside = Factors(rows.value.width)
    inside.add(rows.loops[0], set())
    others = Counter(id(each) for each in inside.others if not isinstance(each, LoopWeight))
    same = others == Counter(map(id, [*parts.sources, *parts.targets]))
    return same and inside.coefficient == parts.coefficient and len(inside.others) - others.total() == parts.weights
