"""Models over vertex types on graphs with types: which type is which, and rows of one type's own width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ColumnMissing, ModelMismatch, ModelUnsupported, ValueInvalid, WidthMismatch
from livegnn.graph.graph import Graph
from livegnn.graph.schema import no_vertex_type
from livegnn.graph.updates import VertexType
from livegnn.inference.predict import Rows, pair_scores
from livegnn.models.compile_layout import Codes
from livegnn.models.model import Model

Part: TypeAlias = tuple[object, VertexType | None]  # ids and their type


class KnowsSlots(Protocol):
    """The ids of a graph: now, as a batch leaves them, or of an old version."""

    def slots(self, where: str, ids: object, vertex_type: VertexType | None) -> NDArray[np.int64]:
        """(k,) slots of ids of one type. Raises: VertexUnknown."""


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


def refuse_rows_of_edges(where: str, model: Model) -> None:
    """Refuses a model with one row per edge where a vertex's output is asked for. Raises: ModelMismatch."""
    if model.edge_output is not None:
        raise ModelMismatch(
            f"[{where}] expected a model with one row per vertex, got one with one row per edge; read edge_outputs()"
        )


def width_of(model: Model, graph: Graph, where: str, vertex_type: VertexType | None) -> int:
    """The width of the output, of a type where there are types. Raises: ColumnMissing, ValueInvalid, ModelMismatch."""
    refuse_rows_of_edges(where, model)
    schema = graph.host.schema
    if not schema.has_types:
        return model.output_width
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


def slots_of(known: KnowsSlots, where: str, parts: tuple[Part, ...]) -> NDArray[np.int64]:
    """The slots of the ids of each part, one part after the other. Raises: VertexUnknown."""
    found = [known.slots(where, ids, vertex_type) for ids, vertex_type in parts]
    return found[0] if len(found) == 1 else np.concatenate(found)


def scores_of(
    model: Model,
    graph: Graph,
    pairs: NDArray[np.generic],
    vertex_types: tuple[VertexType, VertexType] | None,
    read: Callable[[Part, Part], Rows],
) -> NDArray[np.float32]:
    """Scores of pairs of vertices: by the model's edge_head, else the dot product of the two outputs.

    Args:   read: the rows of both ends, all of one version.
    Raises: ColumnMissing without both types where vertices have types, or with them where they have none; WidthMismatch
            for outputs that do not fit together.
    """
    types: tuple[VertexType | None, VertexType | None] = vertex_types or (None, None)
    if not graph.host.schema.has_types:
        no_vertex_type("predict_edges", vertex_types)
    elif vertex_types is None or len(vertex_types) != 2:
        raise ColumnMissing(
            f"[predict_edges] expected vertex_types=(type of the first, type of the second), got {vertex_types!r}; say "
            "which types are meant"
        )
    width = pair_width(model, graph, "predict_edges", types)
    rows = cut(read((pairs[:, 0], types[0]), (pairs[:, 1], types[1])), width)
    return pair_scores(rows[: len(pairs)], rows[len(pairs) :], model.edge_head)


def pair_width(model: Model, graph: Graph, where: str, types: tuple[VertexType | None, VertexType | None]) -> int:
    """The width of the outputs of both ends of a pair. Raises: WidthMismatch where they do not fit; as width_of()."""
    first, second = (width_of(model, graph, where, vertex_type) for vertex_type in types)
    wanted = first if model.edge_head is None else model.output_width
    if not first == second == wanted:
        of = "one width" if model.edge_head is None else f"width {wanted}, as the model's edge_head takes"
        raise WidthMismatch(
            f"[{where}] expected outputs of {of}, got {first} and {second} for {types}; read the embeddings and score "
            "them"
        )
    return first


def _listed(names: tuple[object, ...]) -> str:
    return ", ".join(map(repr, names))
