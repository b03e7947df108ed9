"""What a model's program keeps: aggregations and the terms folded into them, and the rows that outlive their stage."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from livegnn._native import (
    AggregationSpec,
    AttentionSpec,
    Norm,
    Reduce,
    Root,
    Scaling,
    StoredSpec,
    WeightSpec,
)
from livegnn.models import edges, ir

_NORM = {
    "sum": Norm.Sum,
    "mean": Norm.Mean,
    "gcn": Norm.Gcn,
    "laplacian": Norm.Gcn,
    "walk": Norm.Source,
    "difference": Norm.Source,
}
_OUTGOING = {"laplacian": Scaling.Root, "walk": Scaling.Inverse, "difference": Scaling.One}  # norms over out-degrees


class _Context(NamedTuple):
    weighted: bool
    self_loops: bool
    fill: float
    relation: int
    outgoing: bool
    scaling: Scaling


@dataclass
class _Aggregation:
    value: ir.Propagate | edges.Gather
    stage: int
    context: int = -1
    message_table: int = -1
    root: Root = Root.Unset
    root_value: ir.Value | None = None
    root_table: int = -1
    root_coefficient: float = 0.0
    gather: int = -1
    parts: Separable | None = None
    attention: int = -1
    attention_tables: dict[str, int] = field(default_factory=dict)  # scores, shifts, message
    consumers: set[int] = field(default_factory=set)


@dataclass
class _Stored:
    name: str
    value: ir.Value
    stage: int
    message_of: int = -1
    consumers: set[int] = field(default_factory=set)

    def declared(self) -> StoredSpec:
        return StoredSpec(name=self.name, width=self.value.width, stage=self.stage, consumers=sorted(self.consumers))


@dataclass(frozen=True)
class Codes:
    """The graph's codes of a model's types, by the model's own numbers."""

    vertex: tuple[int, ...]
    edge: tuple[int, ...]


@dataclass(frozen=True)
class Separable:
    """Softmax attention with the score LeakyReLU(source + target), of messages that are rows of the source."""

    source: ir.Value
    target: ir.Value
    message: ir.Value
    slope: float


def separate(gather: edges.Gather) -> Separable | None:
    """The parts of a gather whose score separates into one of the source and one of the target; else None."""
    score, message = gather.score, gather.message
    if not isinstance(score, ir.Activation) or score.kind != "leaky_relu" or not 0 <= score.param <= 1:
        return None
    if not isinstance(message, edges.Source) or not isinstance(score.x, ir.Combine) or len(score.x.terms) != 2:
        return None
    ends = {type(term): term for coefficient, term in score.x.terms if coefficient == 1.0}
    source, target = ends.get(edges.Source), ends.get(edges.Target)
    if not isinstance(source, edges.Source) or not isinstance(target, edges.Target):
        return None
    return Separable(source.x, target.x, message.x, float(score.param))


def sums_sources(gather: edges.Gather) -> bool:
    """Whether it is a sum, or a mean over all in-edges, of messages that read nothing of their target.

    Then it is kept in fixed point, a function of the graph, and a batch replaces the messages that move.
    """
    mean_of_all = gather.reduce == "mean" and gather.loops == "keep" and gather.relation is None
    if gather.loops == "replace" or not (gather.reduce == "sum" or mean_of_all):
        return False
    return not any(isinstance(value, edges.Target) for value in edges.on_edges([gather.message]))


def skips_loops(made: _Aggregation) -> bool:
    """Whether self-loop edges leave what is summed up as terms of a source's row."""
    if isinstance(made.value, edges.Gather):
        return made.parts is not None and made.value.loops != "keep"
    return made.value.self_loops or made.value.norm in _OUTGOING


class ProgramLayout:
    """The aggregations of one model, their own terms, and the rows that are stored; place() finds them.

    Steps are emitted into the layout, and may add weights, vectors, consumers and stored rows.
    """

    def __init__(self, output: ir.Value, closed: bool, split: bool, codes: Codes | None) -> None:
        self.output = output
        self.codes = codes
        self.closed, self.split = closed, split
        self.values = ir.walk(output)
        self.uses: dict[int, list[ir.Value]] = defaultdict(list)
        for value in self.values:
            for x in value.inputs:
                self.uses[id(x)].append(value)
        self.depth: dict[int, int] = {}
        for value in self.values:
            deepest = max((self.depth[id(x)] for x in value.inputs), default=0)
            self.depth[id(value)] = deepest + isinstance(value, ir.Propagate | edges.Gather)
        self.weights: list[WeightSpec] = []
        self.vectors: list[list[float]] = []
        self.contexts: dict[_Context, int] = {}
        self.gathers: list[edges.Gather] = []
        self.attentions: list[AttentionSpec] = []
        self.aggregations: list[_Aggregation] = []
        self.index: dict[int, int] = {}  # Propagate -> its aggregation
        self.folded: dict[int, ir.Value | None] = {}  # Combine -> what is left of it, None: itself
        self.stored: list[_Stored] = []
        self.carried: dict[int, int] = {}  # value -> stored rows that later stages load
        self.input_consumers: set[int] = set()

    def vertex_code(self, number: int | None) -> int:
        """The graph's code of a vertex type; -1 for None."""
        return -1 if number is None or self.codes is None else self.codes.vertex[number]

    def edge_code(self, number: int | None) -> int:
        """The graph's code of an edge type; -1 for None."""
        return -1 if number is None else number if self.codes is None else self.codes.edge[number]

    def place(self) -> None:
        self.find_aggregations()
        self.fold_roots()
        self.place_rows()

    # ---- aggregations and what is folded into them

    def find_aggregations(self) -> None:
        for value in self.values:
            if not isinstance(value, ir.Propagate | edges.Gather):
                continue
            made = _Aggregation(value, self.depth[id(value)] - 1)
            if isinstance(value, edges.Gather):
                made.parts = separate(value) if self.split else None
                if made.parts is None:
                    made.gather = len(self.gathers)
                    self.gathers.append(value)
            elif value.norm not in ("sum", "mean") or (value.norm == "mean" and value.relation is not None):
                weighted = value.weighted and value.norm != "mean"
                fill = float(value.fill) if weighted and value.norm == "gcn" else 1.0
                outgoing = value.norm in _OUTGOING
                relation = self.edge_code(value.relation)
                scaling = _OUTGOING.get(value.norm, Scaling.Root)
                key = _Context(weighted, value.self_loops, fill, relation, outgoing, scaling)
                made.context = self.contexts.setdefault(key, len(self.contexts))
                if value.self_loops or value.norm == "difference":
                    made.root = Root.Message
            self.index[id(value)] = len(self.aggregations)
            self.aggregations.append(made)

    def fold_roots(self) -> None:
        for value in self.values:
            if not isinstance(value, ir.Combine):
                continue
            for coefficient, term in value.terms:
                if coefficient == 1.0 and isinstance(term, ir.Propagate) and self.fold(value, term):
                    break

    def fold(self, combine: ir.Combine, total: ir.Propagate) -> bool:
        """Moves one own term of `combine` into the sum `total`, where no other value reads that sum."""
        made = self.aggregations[self.index[id(total)]]
        if (
            total.norm != "sum"
            or total.reduce != "sum"
            or made.root != Root.Unset
            or len(self.uses[id(total)]) != 1
            or total is self.output
        ):
            return False
        for position, (coefficient, term) in enumerate(combine.terms):
            if term is total.x:
                made.root, made.root_coefficient = Root.Message, coefficient
            elif (
                coefficient == 1.0
                and self.depth[id(term)] == made.stage
                and not isinstance(term, ir.Input | ir.Propagate)
            ):
                made.root, made.root_value = Root.Table, term
            else:
                continue
            rest = [each for i, each in enumerate(combine.terms) if i != position]
            if len(rest) == 1 and rest[0][0] == 1.0:
                self.folded[id(combine)] = rest[0][1]
            else:
                left = ir.Combine(tuple(rest))
                self.folded[id(combine)] = left
                self.depth[id(left)] = self.depth[id(combine)]
            return True
        return False

    def resolve(self, value: ir.Value) -> ir.Value:
        """The value that stands for `value` after folding."""
        left = self.folded.get(id(value))
        return value if left is None else left

    # ---- rows that outlive their stage

    def place_rows(self) -> None:
        for number, made in enumerate(self.aggregations):
            if isinstance(made.value, edges.Gather):
                if made.parts is None:
                    self.place_ends(made.value)
                else:
                    self.place_attention(number, made, made.parts)
                continue
            message = self.resolve(made.value.x)
            if not isinstance(message, ir.Input):
                made.message_table = self.add_stored(
                    f"message of {self.name_of(number)}", message, made.stage, message_of=number
                )
            if made.root_value is not None:
                root = self.resolve(made.root_value)
                made.root_table = self.add_stored(f"own term of {self.name_of(number)}", root, made.stage)

    def place_ends(self, gather: edges.Gather) -> None:
        """The rows that a gather reads at the ends of an edge."""
        for value in ir.walk(*gather.inputs):
            if isinstance(value, edges.Source | edges.Target):
                x = self.resolve(value.x)
                if not isinstance(x, ir.Input):
                    self.table_of(x)

    def place_attention(self, number: int, made: _Aggregation, parts: Separable) -> None:
        """The rows that split sums are made of."""
        tables = made.attention_tables
        for role, x in (("scores", parts.source), ("shifts", parts.target), ("message", parts.message)):
            value = self.resolve(x)
            tables[role] = self.add_stored(f"{role} of {self.name_of(number)}", value, self.depth[id(value)])
        gather = made.value
        assert isinstance(gather, edges.Gather)
        made.attention = len(self.attentions)
        self.attentions.append(
            AttentionSpec(
                slope=parts.slope,
                own_loop=gather.loops == "replace",
                skip_loops=gather.loops == "drop",
                source_table=tables["scores"],
                target_table=tables["shifts"],
                message_table=tables["message"],
            )
        )

    def add_stored(self, name: str, value: ir.Value, stage: int, *, message_of: int = -1) -> int:
        self.stored.append(_Stored(name, value, stage, message_of))
        self.carried.setdefault(id(value), len(self.stored) - 1)
        return len(self.stored) - 1

    def table_of(self, value: ir.Value) -> int:
        """Where a later stage finds `value`; made on first demand."""
        if id(value) not in self.carried:
            stage = self.depth[id(value)]
            self.carried[id(value)] = self.add_stored(f"row kept from stage {stage}", value, stage)
        return self.carried[id(value)]

    def name_of(self, number: int) -> str:
        made = self.aggregations[number]
        plain_sum = isinstance(made.value, ir.Propagate) and made.value.reduce == "sum"
        kind = made.value.norm if plain_sum else made.value.reduce  # type: ignore[union-attr]
        return f"aggregation {number + 1} ({kind}, width {made.value.width}, layer {made.stage + 1})"

    def declared(self, number: int, made: _Aggregation) -> AggregationSpec:
        value = made.value
        sums = ir.Propagate(ir.Input(1)) if isinstance(value, edges.Gather) else value
        return AggregationSpec(
            name=self.name_of(number),
            width=value.width,
            stage=made.stage,
            norm=_NORM[sums.norm],
            weighted=sums.weighted,
            self_loops=skips_loops(made),
            context=made.context,
            message_table=made.message_table,
            root=made.root,
            root_table=made.root_table,
            root_coefficient=float(made.root_coefficient),
            consumers=sorted(made.consumers),
            reduce=Reduce[sums.reduce.capitalize()],
            relation=-1 if isinstance(value.relation, tuple) else self.edge_code(value.relation),
            relations=[*map(self.edge_code, value.relation)] if isinstance(value.relation, tuple) else [],
            gather=made.gather,
            attention=made.attention,
            heads=value.heads if isinstance(value, edges.Gather) else 1,
            target=self.vertex_code(value.vertex_type),
        )
