"""Lowers a model to the native program: row-local stages joined by aggregations.

The depth of a value is the number of sums over edges on its longest path from the input. Stage s computes the values of
depth s for a set of vertices; values that a deeper stage needs are stored, except the input and finished aggregates,
which are there anyway. A vertex's own term of a plain sum (GraphConv's root, GIN's (1 + eps) x, GCN's self-loop) is
folded into the fixed-point sum itself, so that an affected row costs one read and one write.

The layout says what is kept (compile_layout.py); the steps of each stage fill it in (compile_steps.py).
"""

from __future__ import annotations

from livegnn._native import DegreeNormSpec, Program
from livegnn.models import ir
from livegnn.models.compile_layout import Codes, ProgramLayout, sums_sources
from livegnn.models.compile_steps import EdgeSteps, Registers, Stage
from livegnn.models.order import optimise


def compile_model(
    output: ir.Value, *, closed: bool = False, split: bool = False, codes: Codes | None = None
) -> Program:
    """The native program of the model whose result is `output`.

    closed: every stage works from features and aggregates alone; what an earlier stage had computed is computed again
    and not loaded, so that no rows need to be kept. The bits are the same.
    split: attention that separates is kept as split sums (docs/attention.md); else it is gathered edge by edge.
    codes: of the graph, for a model over vertex types.
    """
    layout = ProgramLayout(optimise(output), closed, split, codes)
    layout.place()
    registers = Registers()
    stages = [Stage(layout, number) for number in range(layout.depth[id(layout.output)] + 1)]
    gathers = [EdgeSteps(layout, gather) for gather in layout.gathers]
    for part in (*stages, *gathers):
        part.emit(registers)
    return Program(
        input_width=next(value.width for value in layout.values if isinstance(value, ir.Input)),
        output_width=layout.output.width,
        register_widths=registers.widths,
        register_parents=[parent for parent, _ in registers.parts],
        register_offsets=[offset for _, offset in registers.parts],
        weights=layout.weights,
        vectors=layout.vectors,
        contexts=[DegreeNormSpec(**key._asdict()) for key in layout.contexts],
        aggregations=[layout.declared(number, made) for number, made in enumerate(layout.aggregations)],
        gathers=[part.spec(sums_sources(part.target)) for part in gathers],
        attentions=layout.attentions,
        stored=[row.declared() for row in layout.stored],
        stages=[stage.steps for stage in stages],
        input_consumers=sorted(layout.input_consumers),
        typed=any(stage.typed for stage in stages),
    )


def aggregation_names(output: ir.Value) -> list[str]:
    """Names of the aggregations of compile_model(output), in its order."""
    layout = ProgramLayout(optimise(output), False, False, None)
    layout.find_aggregations()
    return [layout.name_of(number) for number in range(len(layout.aggregations))]
