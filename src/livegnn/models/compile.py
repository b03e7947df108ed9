"""Lowers a model to the native program: row-local stages joined by aggregations.

The depth of a value is the number of sums over edges on its longest path from the input. Stage s computes the values of
depth s for a set of vertices; values that a deeper stage needs are stored, except the input and finished aggregates,
which are there anyway. A vertex's own term of a plain sum (GraphConv's root, GIN's (1 + eps) x, GCN's self-loop) is
folded into the fixed-point sum itself, so that an affected row costs one read and one write.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.models import ir
from livegnn.models.order import Shift, optimise

__all__ = ["compile_model"]

# in the order of the enums of program.h and activations.h
_OPS = [
    "LoadInput",
    "LoadAggregate",
    "LoadStored",
    "Gemm",
    "AddVector",
    "Activate",
    "PRelu",
    "Affine",
    "LayerNorm",
    "L2Normalize",
    "Combine",
    "Scale",
    "Multiply",
    "CopyColumns",
    "Slice",
    "Maximum",
    "Softmax",
    "LogSoftmax",
    "StoreMessage",
    "StoreRow",
    "Output",
]
_OP = {name: number for number, name in enumerate(_OPS)}
_KINDS = [
    "relu",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "gelu_tanh",
    "silu",
    "sigmoid",
    "tanh",
    "softplus",
    "relu6",
    "hardtanh",
    "hardswish",
    "softsign",
    "log_sigmoid",
    "exp",
]
_NORM = {"sum": 0, "mean": 1, "gcn": 2}
_REDUCE = {"sum": 0, "max": 1, "min": 2}
_ROOT_NONE, _ROOT_MESSAGE, _ROOT_TABLE = range(3)


@dataclass
class _Aggregation:
    value: ir.Propagate
    stage: int
    context: int = -1
    message_table: int = -1
    root: int = _ROOT_NONE
    root_value: ir.Value | None = None
    root_table: int = -1
    root_coefficient: float = 0.0
    consumers: set[int] = field(default_factory=set)


@dataclass
class _Stored:
    name: str
    value: ir.Value
    stage: int
    root_of: int = -1
    message_of: int = -1
    consumers: set[int] = field(default_factory=set)


def compile_model(output: ir.Value, *, closed: bool = False) -> Any:
    """The native program of the model whose result is `output`.

    closed: every stage works from features and aggregates alone; what an earlier stage had computed is computed again
    and not loaded, so that no rows need to be kept. The bits are the same.
    """
    return _Compiler(optimise(output), closed).compile()


class _Compiler:
    def __init__(self, output: ir.Value, closed: bool) -> None:
        self.output = output
        self.closed = closed
        self.values = ir.walk(output)
        self.uses: dict[int, list[ir.Value]] = defaultdict(list)
        for value in self.values:
            for x in value.inputs:
                self.uses[id(x)].append(value)
        self.depth: dict[int, int] = {}
        for value in self.values:
            deepest = max((self.depth[id(x)] for x in value.inputs), default=0)
            self.depth[id(value)] = deepest + isinstance(value, ir.Propagate)
        self.program = _native.Program()
        self.aggregations: list[_Aggregation] = []
        self.index: dict[int, int] = {}  # Propagate -> its aggregation
        self.folded: dict[int, ir.Value | None] = {}  # Combine -> what is left of it, None: itself
        self.stored: list[_Stored] = []
        self.carried: dict[int, int] = {}  # value -> stored rows that later stages load
        self.input_consumers: set[int] = set()

    def compile(self) -> Any:
        self.find_aggregations()
        self.fold_roots()
        self.place_rows()
        stages = [_Stage(self, number) for number in range(self.depth[id(self.output)] + 1)]
        registers = _Registers()
        for stage in stages:
            self.program.add_stage()
            stage.emit(registers)
        self.declare(registers)
        return self.program

    # ---- aggregations and what is folded into them

    def find_aggregations(self) -> None:
        contexts: dict[tuple[bool, bool, float], int] = {}
        for value in self.values:
            if not isinstance(value, ir.Propagate):
                continue
            made = _Aggregation(value, self.depth[id(value.x)])
            if value.norm == "gcn":
                key = (value.weighted, value.self_loops, float(value.fill) if value.weighted else 1.0)
                if key not in contexts:
                    contexts[key] = self.program.add_context(*key)
                made.context = contexts[key]
                if value.self_loops:
                    made.root = _ROOT_MESSAGE
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
        """Moves one own term of `combine` into the sum `total`, where nobody else reads that sum."""
        made = self.aggregations[self.index[id(total)]]
        if (
            total.norm != "sum"
            or total.reduce != "sum"
            or made.root != _ROOT_NONE
            or len(self.uses[id(total)]) != 1
            or total is self.output
        ):
            return False
        for position, (coefficient, term) in enumerate(combine.terms):
            if term is total.x:
                made.root, made.root_coefficient = _ROOT_MESSAGE, coefficient
            elif (
                coefficient == 1.0
                and self.depth[id(term)] == made.stage
                and not isinstance(term, ir.Input | ir.Propagate)
            ):
                made.root, made.root_value = _ROOT_TABLE, term
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
            message = self.resolve(made.value.x)
            if not isinstance(message, ir.Input):
                made.message_table = self.add_stored(
                    f"message of {self.name_of(number)}", message, made.stage, message_of=number
                )
            if made.root_value is not None:
                root = self.resolve(made.root_value)
                made.root_table = self.add_stored(
                    f"own term of {self.name_of(number)}", root, made.stage, root_of=number
                )

    def add_stored(self, name: str, value: ir.Value, stage: int, *, message_of: int = -1, root_of: int = -1) -> int:
        self.stored.append(_Stored(name, value, stage, root_of, message_of))
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
        kind = made.value.norm if made.value.reduce == "sum" else made.value.reduce
        return f"aggregation {number + 1} ({kind}, width {made.value.width}, layer {made.stage + 1})"

    def declare(self, registers: _Registers) -> None:
        p = self.program
        p.input_width = next(value.width for value in self.values if isinstance(value, ir.Input))
        p.output_width = self.output.width
        p.register_widths = registers.widths
        p.register_parents = [parent for parent, _ in registers.parts]
        p.register_offsets = [offset for _, offset in registers.parts]
        p.input_consumers = sorted(self.input_consumers)
        for number, made in enumerate(self.aggregations):
            value = made.value
            p.add_aggregation(
                name=self.name_of(number),
                width=value.width,
                stage=made.stage,
                norm=_NORM[value.norm],
                weighted=value.weighted,
                self_loops=value.self_loops,
                fill=float(value.fill),
                context=made.context,
                message_table=made.message_table,
                root=made.root,
                root_table=made.root_table,
                root_coefficient=float(made.root_coefficient),
                consumers=sorted(made.consumers),
                reduce=_REDUCE[value.reduce],
            )
        for row in self.stored:
            p.add_stored(
                name=row.name,
                width=row.value.width,
                stage=row.stage,
                root_of=row.root_of,
                consumers=sorted(row.consumers),
            )


class _Registers:
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


class _Stage:
    """Emits one stage: what it must produce, and everything of its depth that this needs."""

    def __init__(self, compiler: _Compiler, number: int) -> None:
        self.c = compiler
        self.number = number
        self.place: dict[int, int] = {}
        self.needed: set[int] = set()  # what a closed stage computes
        self.reads_of: Counter[int] = Counter()

    def emit(self, registers: _Registers) -> None:
        self.registers = registers
        registers.release_all()
        c = self.c
        if self.number == c.depth[id(c.output)]:
            self.find_needed([c.output])
            self.reads_of = self.count_reads()
            self.put("Output", a=self.value(c.output), width=c.output.width)
            return
        if not c.closed:
            self.reserve_later_rows()
        self.find_needed([row.value for row in c.stored if row.stage == self.number])
        self.reads_of = self.count_reads()
        done = 0
        while done < len(c.stored):  # the list may grow while earlier rows are emitted
            row = c.stored[done]
            if row.stage == self.number:
                register = self.value(row.value)
                if row.message_of >= 0:
                    self.put("StoreMessage", a=register, index=row.message_of, width=row.value.width)
                else:
                    self.put("StoreRow", a=register, index=done, width=row.value.width)
            done += 1

    def reserve_later_rows(self) -> None:
        """Finds the values of this depth that a deeper stage reads, so that they are stored here."""
        c = self.c
        for value in c.values:
            for x in self.reads(value):
                x = c.resolve(x)
                later = c.depth[id(value)] > self.number == c.depth[id(x)]
                if later and not isinstance(value, ir.Propagate) and not isinstance(x, ir.Input | ir.Propagate):
                    c.table_of(x)

    def reads(self, value: ir.Value) -> tuple[ir.Value, ...]:
        left = self.c.resolve(value)
        return left.inputs if isinstance(left, ir.Combine) and left is not value else value.inputs

    def find_needed(self, targets: list[ir.Value]) -> None:
        """The values that a closed stage computes for its targets."""
        pending = list(targets) if self.c.closed else []
        while pending:
            value = self.c.resolve(pending.pop())
            if id(value) not in self.needed and not isinstance(value, ir.Input | ir.Propagate):
                self.needed.add(id(value))
                pending.extend(value.inputs)

    def computed_here(self, value: ir.Value) -> bool:
        """Whether this stage computes the value; reads of it count."""
        if isinstance(value, ir.Propagate):
            return False
        if self.c.closed:
            return id(self.c.resolve(value)) in self.needed
        return self.c.depth[id(value)] == self.number

    def count_reads(self) -> Counter[int]:
        """How often a value's register is read in this stage; one reader may overwrite it."""
        c, counts = self.c, Counter[int]()
        for value in c.values:
            if self.computed_here(value):
                counts.update(id(c.resolve(x)) for x in self.reads(value))
        counts.update(id(row.value) for row in c.stored if row.stage == self.number)
        counts[id(c.resolve(c.output))] += 1
        return counts

    # ---- one value

    def value(self, value: ir.Value) -> int:
        """The register that holds `value` in this stage."""
        value = self.c.resolve(value)
        if id(value) not in self.place:
            self.place[id(value)] = self.load(value) if self.given(value) else self.compute(value)
        return self.place[id(value)]

    def given(self, value: ir.Value) -> bool:
        kept = self.c.depth[id(value)] < self.number and not self.c.closed
        return isinstance(value, ir.Input | ir.Propagate) or kept

    def load(self, value: ir.Value) -> int:
        register = self.registers.take(value.width)
        if isinstance(value, ir.Input):
            self.c.input_consumers.add(self.number)
            self.put("LoadInput", out=register, width=value.width)
        elif isinstance(value, ir.Propagate):
            number = self.c.index[id(value)]
            self.c.aggregations[number].consumers.add(self.number)
            self.put("LoadAggregate", out=register, index=number, width=value.width)
        else:
            table = self.c.table_of(value)
            self.c.stored[table].consumers.add(self.number)
            self.put("LoadStored", out=register, index=table, width=value.width)
        return register

    def compute(self, value: ir.Value) -> int:
        match value:
            case ir.Linear():
                return self.linear(value)
            case Shift():
                return self.unary("AddVector", value, self.value(value.x), index=self.vector(value.shift), over=value.x)
            case ir.Activation():
                x = self.value(value.x)
                kind = _KINDS.index(value.kind)
                return self.unary("Activate", value, x, kind=kind, p=float(value.param), over=value.x)
            case ir.PReLU():
                return self.unary("PRelu", value, self.value(value.x), index=self.vector(value.slope))
            case ir.Affine():
                x = self.value(value.x)
                scale, shift = self.vector(value.scale), self.vector(value.shift)
                return self.unary("Affine", value, x, index=scale, index2=shift, over=value.x)
            case ir.LayerNorm():
                return self.layer_norm(value)
            case ir.L2Normalize():
                return self.unary("L2Normalize", value, self.value(value.x), p=float(value.eps))
            case ir.Softmax() | ir.LogSoftmax():
                return self.unary(type(value).__name__, value, self.value(value.x))
            case ir.Slice():
                return self.unary("Slice", value, self.value(value.x), offset=value.start)
            case ir.Multiply():
                a, b = self.value(value.a), self.value(value.b)
                return self.unary("Multiply", value, a, b=b)
            case ir.Combine():
                return self.combine(value)
            case ir.Concat():
                return self.concat(value)
            case ir.Maximum():
                return self.maximum(value)
        raise AssertionError(f"no instruction for {type(value).__name__}")

    def linear(self, value: ir.Linear) -> int:
        """One product for all linear maps of the same rows: their outputs side by side, from multiples of 16 on."""
        c, source = self.c, self.c.resolve(value.x)
        group = [v for v in c.values if isinstance(v, ir.Linear) and c.resolve(v.x) is source and self.computed_here(v)]
        x = self.value(source)
        starts = [0]
        for each in group:
            starts.append(starts[-1] + -(-each.width // 16) * 16)
        total = starts[-2] + group[-1].width
        weight = np.zeros((total, source.width), np.float32)
        for start, each in zip(starts, group, strict=False):
            weight[start : start + each.width] = each.weight
        out = self.registers.take(total)
        self.put("Gemm", out=out, a=x, index=c.program.add_weight(weight), width=total)
        for start, each in zip(starts, group, strict=False):
            self.place[id(each)] = out if len(group) == 1 else self.registers.part(out, start, each.width)
        return self.place[id(value)]

    def unary(self, op: str, value: ir.Value, a: int, *, over: ir.Value | None = None, **fields: Any) -> int:
        """Emits out = op(a); over: the operand whose register may be written, where nobody else reads it."""
        free = over is not None and self.reads_of[id(self.c.resolve(over))] == 1
        out = a if free else self.registers.take(value.width)
        self.put(op, out=out, a=a, width=value.width, **fields)
        return out

    def layer_norm(self, value: ir.LayerNorm) -> int:
        x = self.value(value.x)
        weight = -1 if value.weight is None else self.vector(value.weight)
        bias = -1 if value.bias is None else self.vector(value.bias)
        return self.unary("LayerNorm", value, x, index=weight, index2=bias, p=float(value.eps))

    def combine(self, value: ir.Combine) -> int:
        registers = [(float(c), self.value(x)) for c, x in value.terms]
        (c0, first), rest = registers[0], registers[1:]
        if not rest:
            return self.unary("Scale", value, first, p=c0)
        total = first
        for position, (c, x) in enumerate(rest):
            total = self.unary("Combine", value, total, b=x, p=c0 if position == 0 else 1.0, q=c)
        return total

    def concat(self, value: ir.Concat) -> int:
        parts = [(x.width, self.value(x)) for x in value.xs]
        out, offset = self.registers.take(value.width), 0
        for width, part in parts:
            self.put("CopyColumns", out=out, a=part, width=width, offset=offset)
            offset += width
        return out

    def maximum(self, value: ir.Maximum) -> int:
        registers = [self.value(x) for x in value.xs]
        total = registers[0]
        for x in registers[1:]:
            total = self.unary("Maximum", value, total, b=x)
        return total

    def vector(self, array: np.ndarray[Any, Any]) -> int:
        return int(self.c.program.add_vector(np.ascontiguousarray(array, dtype=np.float32)))

    def put(self, op: str, **fields: Any) -> None:
        whole: dict[str, Any] = {
            **dict.fromkeys(("out", "a", "b", "index", "index2"), -1),
            **dict.fromkeys(("width", "offset", "kind"), 0),
            **dict.fromkeys(("p", "q"), 0.0),
        }
        whole.update(fields)
        self.c.program.add_instruction(stage=self.number, op=_OP[op], **whole)
