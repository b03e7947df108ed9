"""Recipe: what every worker compiles the same program from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

from livegnn import _native
from livegnn.errors import ColumnMissing, ModelMismatch, ModelUnsupported
from livegnn.graph.graph import Graph
from livegnn.inference import hetero as over_types
from livegnn.models.compile import compile_model
from livegnn.models.compile_layout import Codes
from livegnn.models.joining import GraphColumns, joined
from livegnn.models.model import Model
from livegnn.types import Float32Array


class GraphShape(NamedTuple):
    """What of a graph a model has to fit; a Graph has all of it."""

    vertex_types: tuple[str, ...] | None
    edge_types: tuple[Any, ...] | None
    feature_width: int
    feature_widths: dict[str, int]
    weight_column: Any
    attr_width: int
    has_type: bool

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Of a graph as it is."""
        return cls(**{name: getattr(graph, name) for name in cls._fields})


@dataclass(frozen=True)
class Recipe:
    """A model and what of the graph its program depends on, as data."""

    structure: Any
    weights: dict[str, Float32Array]
    columns: GraphColumns
    codes: Codes | None

    @classmethod
    def of(cls, model: Model, shape: GraphShape) -> Self:
        """Raises: ModelMismatch, ModelUnsupported, ColumnMissing, as Engine does."""
        graph = cast(Graph, shape)
        codes = over_types.codes_of(model, graph)
        if codes is None and model.input_width != graph.feature_width:
            raise ModelMismatch(
                f"[Cluster] expected features of width {model.input_width}, as the model takes, got "
                f"{graph.feature_width}; give the features that it was trained on, without a label or an id"
            )
        if model.edge_output is not None:
            raise ModelUnsupported(
                "[Cluster] expected a model with one row per vertex, got one with one row per edge; use an Engine"
            )
        if model.uses_types and not graph.has_type:
            raise ColumnMissing(
                "[Cluster] expected edge types, which the model reads, got a graph without; pass edge_type= to Graph"
            )
        structure, weights = model.to_arrays()
        recipe = cls(structure, weights, GraphColumns(graph.weight_column, graph.attr_width), codes)
        recipe.program()  # what cannot be compiled is refused here
        return recipe

    def program(self) -> _native.Program:
        """The compiled model, as an Engine of the whole graph would have it."""
        fitted = joined(Model.from_arrays(self.structure, self.weights), self.columns)
        return compile_model(fitted.output, split=True, codes=self.codes)
