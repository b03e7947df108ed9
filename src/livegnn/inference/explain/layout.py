"""What explanations know of a compiled model: its aggregations, and which stored rows each is made of."""

from __future__ import annotations

from dataclasses import dataclass

from livegnn._native import Root
from livegnn.errors import ModelUnsupported
from livegnn.models import edges, ir
from livegnn.models.compile_layout import Codes, ProgramLayout, skips_loops, sums_sources
from livegnn.models.order import optimise

EXTREMES = ("max", "min", "median")
_BY_DEGREE = ("gcn", "laplacian", "walk", "difference")  # terms are scaled by their source's factor
DEGREE_FINISHED = ("gcn", "laplacian")  # and the sum by the target's


@dataclass(frozen=True)
class Aggregation:
    """One aggregation of a model, as its engine keeps it; tables are numbers of stored rows, -1 the features.

    family: "sum", "mean", "gcn", "laplacian", "walk", "difference", "max", "min", "median", "attention".
    on_edges: its messages are computed edge by edge.  scaled: by the source's factor in `context`.
    reversed: messages go against the edges, from an edge's dst to its src.
    relations: codes of the edge types that count; None: all.  target: code of the vertex type that has rows; -1: all.
    """

    number: int
    name: str
    family: str
    value: ir.Value
    stage: int
    on_edges: bool
    weighted: bool
    scaled: bool
    reversed: bool
    context: int
    message_table: int
    own_message: bool
    own_table: int
    own_coefficient: float
    relations: frozenset[int] | None
    skips_loops: bool
    target: int
    scores_table: int = -1
    shifts_table: int = -1
    own_loop: bool = False
    slope: float = 0.0
    heads: int = 1

    @property
    def width(self) -> int:
        """Columns of a message."""
        return self.value.width

    @property
    def tables(self) -> set[int]:
        """The stored rows that its terms are made of."""
        found = {self.message_table, self.own_table, self.scores_table, self.shifts_table}
        return {table for table in found if table >= 0}


class ModelLayout:
    """The aggregations of a model by stage, and its output.

    Raises: ModelUnsupported where it has none.
    """

    def __init__(self, output: ir.Value, *, split: bool, codes: Codes | None) -> None:
        layout = ProgramLayout(optimise(output), False, split, codes)
        layout.place()
        self.output, self._layout = layout.output, layout
        if not layout.aggregations:
            raise ModelUnsupported(
                "[contributions] expected a model with messages between vertices, got one without; read its rows"
            )
        self.last = max(made.stage for made in layout.aggregations)

    def of_stage(self, stage: int, type_code: int | None) -> list[Aggregation]:
        """The aggregations whose messages that stage makes, into vertices of a type.

        Raises: ModelUnsupported for one that is no exact sum or choice of messages.
        """
        numbers = [number for number, made in enumerate(self._layout.aggregations) if made.stage == stage]
        found = [self._aggregation(number) for number in numbers]
        return [each for each in found if type_code is None or each.target in (-1, type_code)]

    def recorded(self) -> list[Aggregation]:
        """Those of the last two layers that can be followed from version to version."""
        made = [one for one in range(len(self._layout.aggregations)) if self._is_stored(one)]
        return [self._aggregation(number) for number in made if self._stage(number) >= self.last - 1]

    def _stage(self, number: int) -> int:
        return self._layout.aggregations[number].stage

    def _is_stored(self, number: int) -> bool:
        return self._layout.aggregations[number].gather < 0

    def _aggregation(self, number: int) -> Aggregation:
        layout, made = self._layout, self._layout.aggregations[number]
        value, name = made.value, layout.name_of(number)
        relation = value.relation
        codes = relation if isinstance(relation, tuple) else () if relation is None else (relation,)
        gather = value if isinstance(value, edges.Gather) else None
        if gather is not None and made.parts is None:
            _refuse_inexact(gather, name)
        tables = made.attention_tables
        family = "attention" if tables else _family(value)
        return Aggregation(
            number=number,
            name=name,
            family=family,
            value=value,
            stage=made.stage,
            on_edges=gather is not None and not tables,
            weighted=isinstance(value, ir.Propagate) and value.weighted,
            scaled=isinstance(value, ir.Propagate) and value.norm in _BY_DEGREE,
            reversed=value.reversed,
            context=made.context,
            message_table=tables.get("message", made.message_table),
            own_message=made.root == Root.Message,
            own_table=made.root_table,
            own_coefficient=float(made.root_coefficient),
            relations=frozenset(map(layout.edge_code, codes)) if codes else None,
            skips_loops=skips_loops(made) or (gather is not None and gather.loops != "keep"),
            target=layout.vertex_code(value.vertex_type),
            scores_table=tables.get("scores", -1),
            shifts_table=tables.get("shifts", -1),
            own_loop=gather is not None and gather.loops == "replace",
            slope=0.0 if made.parts is None else made.parts.slope,
            heads=1 if gather is None else gather.heads,
        )


def _family(value: ir.Propagate | edges.Gather) -> str:
    if isinstance(value, ir.Propagate) and value.reduce == "sum":
        return value.norm
    return value.reduce


def _refuse_inexact(gather: edges.Gather, name: str) -> None:
    """Raises: ModelUnsupported for a gather whose rows are not known in parts."""
    chooses = gather.reduce in EXTREMES and gather.loops != "replace"
    if chooses or sums_sources(gather):
        return
    raise ModelUnsupported(
        "[contributions] expected sums, means, extremes or attention of messages that depend on their source alone, "
        f"got {name}, whose sum over both ends of an edge the engine keeps in no parts; use livegnn.pyg.explain"
    )
