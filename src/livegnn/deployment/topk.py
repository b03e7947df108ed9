"""The best vertices by an engine's live rows: exact, by one pass over all of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from livegnn.errors import UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import Graph
from livegnn.inference import Engine
from livegnn.inference.views import SnapshotView
from livegnn.models.model import Model
from livegnn.types import AnyArray, Float32Array

Metric: TypeAlias = Literal["dot", "cosine", "l2", "model"]


class TopVertices(NamedTuple):
    """vertices: (k,) ids, the best first.  scores: (k,) float32; of "l2" distances.  version, model: of all rows."""

    vertices: AnyArray
    scores: Float32Array
    version: int
    model: Model


def best(
    engine: Engine,
    *,
    vertex: object = None,
    row: Float32Array | None = None,
    k: int = 10,
    metric: Metric = "dot",
    vertex_type: str | None = None,
    candidate_type: str | None = None,
    linked: bool = True,
) -> TopVertices:
    """The k best vertices for a vertex, or for a row; ties go to the vertex that has been there longer.

    Args:    candidate_type: of the vertices to choose from; vertex_type unless given.
             linked: False leaves out the vertex's out-neighbours.  The vertex itself is never among them.
    Raises:  UsageError unless exactly one of vertex and row is given; ValueInvalid, WidthMismatch for another row;
             VertexUnknown.
    """
    if (vertex is None) == (row is None):
        raise UsageError("[topk] expected one of vertex and row, got both or neither; give one")
    kind = vertex_type if candidate_type is None else candidate_type
    with ExitStack() as stack:
        with engine.graph.host.lock:  # candidates and rows are of one version
            view = stack.enter_context(engine.snapshot())
            candidates = engine.graph.vertices(kind)
            if vertex is not None:
                left_out = _left_out(engine.graph, vertex, vertex_type, kind, linked)
                candidates = candidates[~np.isin(candidates, left_out)]
        if metric == "model":
            scores = _by_model(view, vertex, candidates, vertex_type, kind)
        else:
            rows = view.embeddings(candidates, vertex_type=kind)
            asked = view.embeddings([vertex], vertex_type=vertex_type)[0] if row is None else row
            scores = scores_by(rows, _checked_row(asked, rows.shape[1]), metric)
        order = np.argsort(scores if metric == "l2" else -scores, kind="stable")[:k]
        return TopVertices(candidates[order], scores[order], view.version, view.model)


def _left_out(graph: Graph, vertex: object, vertex_type: str | None, kind: str | None, linked: bool) -> AnyArray:
    """The vertex itself, where it is of the candidates' type, and, unless linked, its out-neighbours of that type."""
    own = graph.to_external(graph.to_slots([vertex], vertex_type=vertex_type))
    own = own if vertex_type == kind else own[:0]
    if linked:
        return own
    found = graph.out_neighbours(vertex, vertex_type=vertex_type)
    there = found["dst"]
    if kind is not None and graph.vertex_types is not None:
        there = there[found["dst_type"] == graph.vertex_types.index(kind)]
    return np.concatenate([own, there])


def _by_model(
    view: SnapshotView, vertex: object, candidates: AnyArray, vertex_type: str | None, kind: str | None
) -> Float32Array:
    if vertex is None:
        raise UsageError('[topk] expected a vertex with metric="model", got a row; name a vertex')
    pairs = np.empty((len(candidates), 2), candidates.dtype)
    pairs[:, 0], pairs[:, 1] = vertex, candidates
    types = None if vertex_type is None or kind is None else (vertex_type, kind)
    scores: Float32Array = view.predict_edges(pairs, vertex_types=types)
    return scores


def _checked_row(row: Float32Array, width: int) -> Float32Array:
    if row.shape != (width,):
        raise WidthMismatch(
            f"[topk] expected a row of {width} numbers, as the candidates have, got {row.size}; give as many"
        )
    if not np.isfinite(row).all():
        raise ValueInvalid("[topk] expected finite numbers in the row, got others; correct it")
    return row


def scores_by(rows: Float32Array, row: Float32Array, metric: Metric) -> Float32Array:
    """Of each row with `row`; of "l2" distances."""
    if metric == "l2":
        distances: Float32Array = np.sqrt(np.square(rows - row).sum(axis=1))
        return distances
    products: Float32Array = rows @ row
    if metric == "dot":
        return products
    lengths = np.sqrt(np.square(rows).sum(axis=1)) * np.sqrt(np.square(row).sum())
    cosines: Float32Array = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cosines
