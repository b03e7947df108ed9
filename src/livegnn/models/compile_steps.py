"""Emits native instructions: the steps of one stage over rows of vertices, and of one gather over rows of edges."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from livegnn._native import ActivationKind, EdgeReduceSpec, Gathering, Instruction, Loops, Op, WeightSpec
from livegnn.models import edges, ir
from livegnn.models.compile_layout import ProgramLayout
from livegnn.models.order import Shift

_NOT_LOCAL = (ir.Input, ir.OfType, ir.Propagate, edges.Gather)  # what a stage finds and does not compute

_LOADS = {  # what stands at an edge, with the column that the gather then says it reads, if it is no table
    edges.Source: (Op.LoadSource, "source_input"),
    edges.Target: (Op.LoadTarget, "target_input"),
    edges.EdgeAttribute: (Op.LoadAttributes, "attributes"),
    edges.EdgeWeight: (Op.LoadWeight, "weights"),
    edges.EdgeRelation: (Op.LoadType, None),
    edges.AddedLoop: (Op.LoadAdded, None),
}


class Registers:
    """Row buffers, handed out again stage by stage; one set serves all stages. A part is some columns of another
    one.
    """

    def __init__(self) -> None:
        self.widths: list[int] = []
        self.parts: list[tuple[int, int]] = []  # (parent or -1, first column)
        self.free: list[int] = []

    def take(self, width: int) -> int:
        fits = [r for r in self.free if self.widths[r] == width]
        if fits:
            self.free.remove(fits[0])
            return fits[0]
        return self.add(width, -1, 0)

    def part(self, parent: int, offset: int, width: int) -> int:
        return self.add(width, parent, offset)

    def add(self, width: int, parent: int, offset: int) -> int:
        self.widths.append(width)
        self.parts.append((parent, offset))
        return len(self.widths) - 1

    def release_all(self) -> None:
        self.free = [r for r, (parent, _) in enumerate(self.parts) if parent < 0]


class Stage:
    """Emits one stage: what it must produce, and everything of its depth that this needs."""

    def __init__(self, layout: ProgramLayout, number: int) -> None:
        self.layout = layout
        self.number = number
        self.steps: list[Instruction] = []
        self.type = -1  # what the instructions that are put are for
        self.typed = False  # whether any is for one type
        self.place: dict[int, int] = {}
        self.needed: set[int] = set()  # what a closed stage computes
        self.reads_of: Counter[int] = Counter()

    def emit(self, registers: Registers) -> None:
        self.registers = registers
        registers.release_all()
        layout = self.layout
        if self.number == layout.depth[id(layout.output)]:
            self.find_needed([layout.output])
            self.reads_of = self.count_reads()
            self.put(Op.Output, a=self.value(layout.output), width=layout.output.width)
            return
        if not layout.closed:
            self.reserve_later_rows()
        self.find_needed([row.value for row in layout.stored if row.stage == self.number])
        self.reads_of = self.count_reads()
        done = 0
        while done < len(layout.stored):  # the list may grow while earlier rows are emitted
            row = layout.stored[done]
            if row.stage == self.number:
                register = self.value(row.value)
                self.type = self.layout.vertex_code(row.value.vertex_type)
                if row.message_of >= 0:
                    self.put(Op.StoreMessage, a=register, index=row.message_of, width=row.value.width)
                else:
                    self.put(Op.StoreRow, a=register, index=done, width=row.value.width)
                self.type = -1
            done += 1

    def reserve_later_rows(self) -> None:
        """Finds the values of this depth that a deeper stage reads, so that they are stored here."""
        layout = self.layout
        for value in layout.values:
            for x in self.reads(value):
                x = layout.resolve(x)
                later = layout.depth[id(value)] > self.number == layout.depth[id(x)]
                local = not isinstance(value, ir.Propagate | edges.Gather) and not isinstance(x, _NOT_LOCAL)
                if later and local and not value.on_edges:
                    layout.table_of(x)

    def reads(self, value: ir.Value) -> tuple[ir.Value, ...]:
        left = self.layout.resolve(value)
        return left.inputs if isinstance(left, ir.Combine) and left is not value else value.inputs

    def find_needed(self, targets: list[ir.Value]) -> None:
        """The values that a closed stage computes for its targets."""
        pending = list(targets) if self.layout.closed else []
        while pending:
            value = self.layout.resolve(pending.pop())
            if id(value) not in self.needed and not isinstance(value, _NOT_LOCAL):
                self.needed.add(id(value))
                pending.extend(value.inputs)

    def computed_here(self, value: ir.Value) -> bool:
        """Whether this stage computes the value; reads of it count."""
        if isinstance(value, ir.Propagate | edges.Gather) or value.on_edges:
            return False
        if self.layout.closed:
            return id(self.layout.resolve(value)) in self.needed
        return self.layout.depth[id(value)] == self.number

    def count_reads(self) -> Counter[int]:
        """How often a value's register is read in this stage; one reader may overwrite it."""
        layout, counts = self.layout, Counter[int]()
        for value in layout.values:
            if self.computed_here(value):
                counts.update(id(layout.resolve(x)) for x in self.reads(value))
        counts.update(id(row.value) for row in layout.stored if row.stage == self.number)
        counts[id(layout.resolve(layout.output))] += 1
        return counts

    # ---- one value

    def value(self, value: ir.Value) -> int:
        """The register that holds `value` in this stage."""
        value = self.layout.resolve(value)
        if id(value) not in self.place:
            outer, self.type = self.type, self.type_of(value)
            self.place[id(value)] = self.load(value) if self.given(value) else self.compute(value)
            self.type = outer
        return self.place[id(value)]

    def type_of(self, value: ir.Value) -> int:
        """The graph's code of the type whose rows `value` has; -1 for all."""
        return self.layout.vertex_code(value.vertex_type)

    def given(self, value: ir.Value) -> bool:
        kept = self.layout.depth[id(value)] < self.number and not self.layout.closed
        return isinstance(value, _NOT_LOCAL) or kept

    def load(self, value: ir.Value) -> int:
        register = self.registers.take(value.width)
        if isinstance(value, ir.Input | ir.OfType):
            self.layout.input_consumers.add(self.number)
            self.put(Op.LoadInput, out=register, width=value.width)
        elif isinstance(value, ir.Propagate | edges.Gather):
            number = self.layout.index[id(value)]
            self.layout.aggregations[number].consumers.add(self.number)
            self.put(Op.LoadAggregate, out=register, index=number, width=value.width)
        else:
            table = self.layout.table_of(value)
            self.layout.stored[table].consumers.add(self.number)
            self.put(Op.LoadStored, out=register, index=table, width=value.width)
        return register

    def compute(self, value: ir.Value) -> int:
        match value:
            case ir.Linear():
                return self.linear(value)
            case ir.Combine():
                return self.combine(value)
            case ir.Concat():
                return self.concat(value)
            case ir.Maximum():
                return self.maximum(value)
            case ir.ByType():
                return self.by_type(value)
            case edges.ByRelation():
                return self.by_relation(value)
        registers = [self.value(x) for x in value.inputs]
        names = ("a", "b") if len(registers) < 3 else ("c", "a", "b")
        op, fields = self.instruction(value)
        over = value.inputs[0] if isinstance(value, Shift | ir.Activation | ir.Affine) else None
        return self.unary(op, value, over=over, **dict(zip(names, registers, strict=False)), **fields)

    def instruction(self, value: ir.Value) -> tuple[Op, dict[str, Any]]:
        """The instruction of a value whose operands are its inputs, and what it takes but these."""
        match value:
            case Shift():
                return Op.AddVector, {"index": self.vector(value.shift)}
            case ir.Activation():
                kind = ActivationKind["".join(map(str.capitalize, value.kind.split("_")))]
                return Op.Activate, {"activation": kind, "p": float(value.param)}
            case ir.PReLU():
                return Op.PRelu, {"index": self.vector(value.slope)}
            case ir.Affine():
                return Op.Affine, {"index": self.vector(value.scale), "index2": self.vector(value.shift)}
            case ir.LayerNorm():
                weight, bias = (-1 if each is None else self.vector(each) for each in (value.weight, value.bias))
                return Op.LayerNorm, {"index": weight, "index2": bias, "p": float(value.eps)}
            case ir.L2Normalize():
                return Op.L2Normalize, {"p": float(value.eps)}
            case ir.Lookup():
                self.layout.weights.append(WeightSpec(value.table))
                return Op.Lookup, {"index": len(self.layout.weights) - 1}
            case ir.Slice():
                return Op.Slice, {"offset": value.start}
            case ir.Elementwise():
                return Op[value.kind.capitalize()], {}
            case edges.HeadDot() | edges.HeadScale():
                return Op[type(value).__name__], {"heads": value.heads}
        return Op[type(value).__name__], {}  # Multiply, Softmax, LogSoftmax, RowMatrix

    def linear(self, value: ir.Linear) -> int:
        """One product for all linear maps of the same rows: their outputs side by side, from multiples of 16 on.

        Of edges, those of the same type.
        """
        layout, source = self.layout, self.layout.resolve(value.x)
        same = (v for v in layout.values if isinstance(v, ir.Linear) and layout.resolve(v.x) is source)
        group = [v for v in same if self.computed_here(v) and self.type_of(v) == self.type_of(value)]
        x = self.value(source)
        starts = [0]
        for each in group:
            starts.append(starts[-1] + -(-each.width // 16) * 16)
        total = starts[-2] + group[-1].width
        weight = np.zeros((total, source.width), np.float32)
        for start, each in zip(starts, group, strict=False):
            weight[start : start + each.width] = each.weight
        out = self.registers.take(total)
        layout.weights.append(WeightSpec(weight))
        self.put(Op.Gemm, out=out, a=x, index=len(layout.weights) - 1, width=total)
        for start, each in zip(starts, group, strict=False):
            self.place[id(each)] = out if len(group) == 1 else self.registers.part(out, start, each.width)
        return self.place[id(value)]

    def unary(self, op: Op, value: ir.Value, a: int, *, over: ir.Value | None = None, **fields: Any) -> int:
        """Emits out = op(a); over: the operand whose register may be written, where no other value reads it."""
        free = over is not None and self.reads_of[id(self.layout.resolve(over))] == 1
        out = a if free else self.registers.take(value.width)
        self.put(op, out=out, a=a, width=value.width, **fields)
        return out

    def combine(self, value: ir.Combine) -> int:
        registers = [(float(c), self.value(x)) for c, x in value.terms]
        (c0, first), rest = registers[0], registers[1:]
        if not rest:
            return self.unary(Op.Scale, value, first, p=c0)
        total = first
        for position, (c, x) in enumerate(rest):
            total = self.unary(Op.Combine, value, total, b=x, p=c0 if position == 0 else 1.0, q=c)
        return total

    def concat(self, value: ir.Concat) -> int:
        parts = [(x.width, self.value(x)) for x in value.xs]
        out, offset = self.registers.take(value.width), 0
        for width, part in parts:
            self.put(Op.CopyColumns, out=out, a=part, width=width, offset=offset)
            offset += width
        return out

    def by_type(self, value: ir.ByType) -> int:
        parts = [(part, self.value(part)) for part in value.parts]
        out = self.registers.take(value.width)
        self.put(Op.Zero, out=out, width=value.width)
        for part, register in parts:
            self.type = self.type_of(part)
            self.put(Op.CopyColumns, out=out, a=register, width=part.width)
        self.type = -1
        return out

    def by_relation(self, value: edges.ByRelation) -> int:
        """Every part's own steps are for edges of its type alone, too (EdgeSteps.type_of)."""
        out, outer = self.registers.take(value.width), self.type
        for relation, part in zip(value.relations, value.parts, strict=True):
            self.type = self.layout.edge_code(relation)
            self.put(Op.CopyColumns, out=out, a=self.value(part), width=part.width)
        self.type = outer
        return out

    def maximum(self, value: ir.Maximum) -> int:
        registers = [self.value(x) for x in value.xs]
        total = registers[0]
        for x in registers[1:]:
            total = self.unary(Op.Maximum, value, total, b=x)
        return total

    def vector(self, array: np.ndarray[Any, Any]) -> int:
        self.layout.vectors.append(array.astype(np.float32).tolist())
        return len(self.layout.vectors) - 1

    def put(self, op: Op, **fields: Any) -> None:
        self.steps.append(Instruction(op=op, type=self.type, **fields))
        self.typed |= self.type >= 0


class EdgeSteps(Stage):
    """Emits what one gather computes for each edge."""

    def __init__(self, layout: ProgramLayout, value: edges.Gather) -> None:
        super().__init__(layout, -1)
        self.target = value
        self.ends: dict[tuple[type, int, int], int] = {}
        self.types = self.relations_of(value)
        self.loads = {what: False for _, what in _LOADS.values() if what is not None}

    def emit(self, registers: Registers) -> None:
        self.registers = registers
        registers.release_all()
        for each in ir.walk(*self.target.inputs):
            if each.on_edges and not isinstance(each, edges.Source | edges.Target):
                self.reads_of.update(id(x) for x in each.inputs)
        self.reads_of.update(2 * [id(x) for x in self.target.inputs])  # nothing may be written over a result
        message = self.value(self.target.message)
        self.put(Op.GatherMessage, a=message, width=self.target.message.width)
        if self.target.score is not None:
            self.put(Op.GatherScore, a=self.value(self.target.score), width=self.target.score.width)

    def spec(self, sums_sources: bool) -> EdgeReduceSpec:
        """The gather, once its steps are emitted."""
        value = self.target
        return EdgeReduceSpec(
            kind=Gathering[value.reduce.capitalize()],
            heads=value.heads,
            loops=Loops[value.loops.capitalize()],
            fill_mean=value.fill == "mean",
            fill=0.0 if value.fill == "mean" else float(value.fill),
            steps=self.steps,
            typed=self.typed,
            sums_sources=sums_sources,
            **self.loads,
        )

    def relations_of(self, gather: edges.Gather) -> dict[int, int]:
        """The one type of edges that a value on edges is for, where only one part of a ByRelation reads it; else -1."""
        readers: dict[int, set[int]] = {id(each): {-1} for each in gather.inputs}
        for value in reversed(ir.walk(*gather.inputs)):
            relations = value.relations if isinstance(value, edges.ByRelation) else None
            own = value.on_edges and id(value) in readers  # not of an earlier gather
            for place, x in enumerate(value.inputs if own else ()):
                mine = readers[id(value)] if relations is None else {self.layout.edge_code(relations[place])}
                readers.setdefault(id(x), set()).update(mine)
        return {key: found.copy().pop() if len(found) == 1 else -1 for key, found in readers.items()}

    def type_of(self, value: ir.Value) -> int:
        return self.types[id(value)]

    def computed_here(self, value: ir.Value) -> bool:
        return value.on_edges and id(value) in self.types

    def given(self, value: ir.Value) -> bool:
        return type(value) in _LOADS

    def load(self, value: ir.Value) -> int:
        """A loaded register, which several values may stand for: none of them may be written over."""
        x = self.layout.resolve(value.x) if isinstance(value, edges.Source | edges.Target) else None
        key = (type(value), id(x), self.type)
        if key not in self.ends:
            self.ends[key] = self.registers.take(value.width)
            op, what = _LOADS[type(value)]
            table = -1 if x is None or isinstance(x, ir.Input) else self.layout.table_of(x)
            if what is not None:
                self.loads[what] |= table < 0
            self.put(op, out=self.ends[key], index=table, width=value.width)
        self.reads_of[id(value)] += 2
        return self.ends[key]
