"""Models over vertex types on graphs with types: which type is which, and rows of one type's own width."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ColumnMissing, ModelMismatch, ModelUnsupported, ValueInvalid, WidthMismatch
from livegnn.graph.graph import Graph
from livegnn.graph.updates import VertexType
from livegnn.inference.predict import Rows, pair_scores
from livegnn.models.compile import Codes
from livegnn.models.model import Model

__all__ = ["check_strategy", "codes_of", "cut", "scores_of", "width_of"]


def codes_of(model: Model, graph: Graph) -> Codes | None:
    """The graph's codes of the model's types; None where neither has any. The graph may have more types.

    Raises: ModelUnsupported where one of them alone has types; ModelMismatch for types or widths that do not fit.
    """
    vertex_types, edge_types = graph.vertex_types, graph.edge_types
    if vertex_types is None or edge_types is None:
        if model.vertex_types:
            raise ModelUnsupported(
                f"[Engine] expected a graph with vertex types {_listed(model.vertex_types)}, as the model takes, got "
                "one without; make it from dicts (docs/graph.md)"
            )
        return None
    if not model.vertex_types:
        raise ModelUnsupported(
            f"[Engine] expected a model over vertex types, as the graph has them ({_listed(vertex_types)}), got one "
            "for one kind of vertex; import it with to_hetero or HeteroConv, or make the graph from arrays"
        )
    for wanted, found, what in ((model.vertex_types, vertex_types, "vertex"), (model.edge_types, edge_types, "edge")):
        missing = [each for each in wanted if each not in found]
        if missing:
            raise ModelMismatch(
                f"[Engine] expected {what} type {missing[0]!r}, which the model reads, got a graph with "
                f"{_listed(found)}; use the graph it was trained on"
            )
    for name, width in model.input_widths.items():
        if graph.feature_widths[name] != width:
            raise ModelMismatch(
                f"[Engine] expected features of width {width} for vertices of type {name!r}, as the model takes, got "
                f"{graph.feature_widths[name]}; use the graph it was trained on"
            )
    return Codes(
        tuple(vertex_types.index(name) for name in model.vertex_types),
        tuple(edge_types.index(triple) for triple in model.edge_types),
    )


def check_strategy(model: Model, strategy: str) -> None:
    """Refuses what an engine over vertex types does not do. Raises: ValueInvalid."""
    known = ("incremental", "constrained", "affected", "khop", "full")
    if model.vertex_types and strategy not in known:
        raise ValueInvalid(
            f"[Engine] expected strategy to be {_listed(known)} for a model over vertex types, got {strategy!r}; "
            "choose one"
        )


def width_of(model: Model, graph: Graph, where: str, vertex_type: VertexType | None) -> int:
    """The width of the output of a type. Raises: ColumnMissing, ValueInvalid, ModelMismatch."""
    schema = graph.host.schema
    name = schema.vertex_types[schema.vertex_code(where, vertex_type)]
    widths = model.output_widths
    if name not in widths:
        raise ModelMismatch(
            f"[{where}] expected a vertex type that the model has an output for ({_listed(tuple(widths))}), got "
            f"{name!r}; ask for one of them"
        )
    return widths[name]


def cut(rows: Rows, width: int) -> Rows:
    """The columns of one type's output, whose rows are padded to the widest type's."""
    return rows if rows.shape[1] == width else np.ascontiguousarray(rows[:, :width])


class _Read(Protocol):
    def __call__(self, ids: object, *, vertex_type: VertexType | None) -> Rows: ...


def scores_of(
    pairs: NDArray[np.generic], vertex_types: tuple[VertexType, VertexType] | None, read: _Read
) -> NDArray[np.float32]:
    """Dot products of the outputs of pairs of vertices. Raises: ColumnMissing, WidthMismatch."""
    if vertex_types is None or len(vertex_types) != 2:
        raise ColumnMissing(
            f"[predict_edges] expected vertex_types=(type of the first, type of the second), got {vertex_types!r}; say "
            "which types are meant"
        )
    src, dst = (read(pairs[:, end], vertex_type=vertex_types[end]) for end in (0, 1))
    if src.shape[1] != dst.shape[1]:
        raise WidthMismatch(
            f"[predict_edges] expected outputs of one width, got {src.shape[1]} and {dst.shape[1]} for "
            f"{vertex_types}; read the embeddings and score them"
        )
    return pair_scores(src, dst, None)


def _listed(names: tuple[object, ...]) -> str:
    return ", ".join(map(repr, names))
