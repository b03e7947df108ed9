"""The best vertices by live rows of an engine, in this process or over workers: exact, by one pass over all rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from livegnn.deployment.live import LiveModel
from livegnn.errors import EdgeOffloaded, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import Graph
from livegnn.inference import Engine
from livegnn.inference import hetero as over_types
from livegnn.inference.best import Comparison, Metric
from livegnn.models.model import Model
from livegnn.types import AnyArray, Float32Array, Int64Array

if TYPE_CHECKING:
    from livegnn.distributed.cluster.cluster import Cluster


class TopVertices(NamedTuple):
    """vertices: (k,) ids, the best first.  scores: (k,) float32; of "l2" distances.  version, model: of all rows."""

    vertices: AnyArray
    scores: Float32Array
    version: int
    model: Model


class _Wanted(NamedTuple):
    """kind: the type of the vertices to choose from.  The others as of best()."""

    vertex: object
    row: Float32Array | None
    k: int
    metric: Metric
    vertex_type: str | None
    kind: str | None
    linked: bool

    def slot(self, graph: Graph) -> int | None:
        """Of the vertex. Raises: VertexUnknown."""
        if self.vertex is None:
            return None
        ids, code = [self.vertex], graph.host.schema.vertex_code("topk", self.vertex_type)
        found = graph.host.ids.find("topk", ids, self.vertex_type)
        return int(graph.host.schema.refuse_unknown("topk", "vertex", found, np.array(ids, object), code)[0])

    def left_out(self, slot: int | None, out_slots: Callable[[int], Int64Array]) -> Int64Array:
        """Slots that are no answer: the vertex itself and, unless linked, its out-neighbours."""
        own = np.array([] if slot is None else [slot], np.int64)
        return own if slot is None or self.linked else np.append(own, out_slots(slot))

    def comparison(
        self, graph: Graph, model: Model, slot: int | None, rows_at: Callable[[Int64Array], Float32Array]
    ) -> Comparison:
        """Raises: UsageError, ValueInvalid, WidthMismatch."""
        width, head = over_types.width_of(model, graph, "topk", self.kind), None
        if self.metric == "model":
            if slot is None:
                raise UsageError('[topk] expected a vertex with metric="model", got a row; name a vertex')
            over_types.pair_width(model, graph, "topk", (self.vertex_type, self.kind))
            head = model.edge_head
        row = self.row
        if slot is not None:
            own_width = over_types.width_of(model, graph, "topk", self.vertex_type)
            row = rows_at(np.array([slot], np.int64))[0, :own_width]
        assert row is not None
        return Comparison(_checked_row(row, width), self.k, self.metric, head)


def best(
    live: LiveModel,
    *,
    vertex: object = None,
    row: Float32Array | None = None,
    k: int = 10,
    metric: Metric = "dot",
    vertex_type: str | None = None,
    candidate_type: str | None = None,
    linked: bool = True,
) -> TopVertices:
    """The k best vertices for a vertex, or for a row; of equal scores the one with the smaller slot comes first.

    Slots are given in order of time, but a new vertex may take that of a removed one.

    Args:    candidate_type: of the vertices to choose from; vertex_type unless given.
             linked: False leaves out the vertex's out-neighbours.  The vertex itself is never among them.
    Raises:  UsageError unless exactly one of vertex and row is given; ValueInvalid, WidthMismatch for another row;
             VertexUnknown; EdgeOffloaded, unless linked; WorkerUnavailable.
    Exactness: scores and order of an engine over workers are those of one in this process, bit for bit.
    Cost:    a pass over all rows. Batches go on meanwhile; over workers they wait for it.
    """
    if (vertex is None) == (row is None):
        raise UsageError("[topk] expected one of vertex and row, got both or neither; give one")
    kind = vertex_type if candidate_type is None else candidate_type
    wanted = _Wanted(vertex, row, k, metric, vertex_type, kind, linked)
    if isinstance(live, Engine):
        return _in_process(live, wanted)
    return live.reads.run(lambda: _over_workers(live, wanted))


def _in_process(engine: Engine, wanted: _Wanted) -> TopVertices:
    graph = engine.graph
    with ExitStack() as stack:
        with graph.host.lock:  # candidates and rows are of one version
            view = stack.enter_context(engine.snapshot())
            slot = wanted.slot(graph)
            comparison = wanted.comparison(graph, view.model, slot, view.rows_at)
            candidates = graph.host.live_slots("topk", wanted.kind)
            left_out = wanted.left_out(slot, lambda slot: out_slots(graph, slot))
            candidates = candidates[~np.isin(candidates, left_out)]
            ids = graph.to_external(candidates)
        slots, scores = comparison.best(candidates, view.rows_at)
        return TopVertices(ids[np.searchsorted(candidates, slots)], scores, view.version, view.model)


def _over_workers(cluster: Cluster, wanted: _Wanted) -> TopVertices:
    """Between two batches."""
    cluster.refuse_closed("topk")
    graph, model = cluster.graph, cluster.model
    slot = wanted.slot(graph)
    comparison = wanted.comparison(graph, model, slot, cluster.rows_at)
    slots, scores = cluster.best_slots(comparison, wanted.kind, wanted.left_out(slot, cluster.out_slots))
    return TopVertices(graph.to_external(slots), scores, cluster.version, model)


def out_slots(graph: Graph, slot: int) -> Int64Array:
    """Slots of a vertex's out-neighbours. The caller holds the graph's lock. Raises: EdgeOffloaded."""
    away = graph.host.store.offloaded_out(slot)
    if away:
        raise EdgeOffloaded(
            f"[topk] expected edges in memory, got {away} of the vertex in files; call graph.reload() first, or leave "
            "linked out"
        )
    found: Int64Array = graph.host.store.out_neighbours(slot)["dst"]
    return found


def _checked_row(row: Float32Array, width: int) -> Float32Array:
    if row.shape != (width,):
        raise WidthMismatch(
            f"[topk] expected a row of {width} numbers, as the candidates have, got {row.size}; give as many"
        )
    if not np.isfinite(row).all():
        raise ValueInvalid("[topk] expected finite numbers in the row, got others; correct it")
    return row
