"""What stores and samplers read: the newest version of a graph, or one that is pinned.

PyG names a vertex by an integer, its index: the vertex's id (of its type), or its slot where ids are strings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, VertexUnknown
from livegnn.graph import Graph
from livegnn.graph.checks import INT64_MAX, as_array, id_array, is_text
from livegnn.graph.schema import EdgeTriple
from livegnn.temporal import TemporalSampler
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.pin import PinnedSampler
from livegnn.types import AnyArray, Float32Array, Int64Array


class Version(ABC):
    """One version of a graph, or whichever is the newest. Callers that make several reads of one version hold
    graph.host.lock, unless it is pinned.
    """

    def __init__(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise UsageError(
                f"[pyg] expected a livegnn.Graph or an open lg.pyg.pin, got {type(graph).__name__}; pass engine.graph"
            )
        self.graph = graph
        self._all = TemporalSampler(graph, [-1], inclusive=True)

    @property
    @abstractmethod
    def number(self) -> int:
        """Of the version."""

    @abstractmethod
    def vertices(self, vertex_type: str | None = None) -> Int64Array:
        """Indexes of the live vertices (of one type), in the order of their slots."""

    @abstractmethod
    def slots(self, index: object, vertex_type: str | None = None) -> Int64Array:
        """(k,) slots of vertices by index. Raises: VertexUnknown."""

    @abstractmethod
    def named(self, ids: object, vertex_type: str | None = None) -> Int64Array:
        """(k,) slots that vertices have in the version, by string ids. Raises: VertexUnknown."""

    @abstractmethod
    def index(self, slots: Int64Array) -> Int64Array:
        """(k,) indexes of slots."""

    @abstractmethod
    def features(self, slots: Int64Array, width: int) -> Float32Array:
        """(k, width) rows of slots."""

    @abstractmethod
    def edge_attrs(self, edge_ids: Int64Array) -> Float32Array:
        """(k, A) attributes of edges."""

    @abstractmethod
    def hop(self, sampler: TemporalSampler, slots: Int64Array, times: Int64Array) -> TemporalHop:
        """The first hop of a sampler of the graph, in this version."""

    @property
    def types(self) -> tuple[str | None, ...]:
        """The vertex types by code; (None,) in a graph without."""
        return self.graph.vertex_types or (None,)

    @property
    def triples(self) -> tuple[EdgeTriple | None, ...]:
        """The edge types by code; (None,) in a graph without vertex types."""
        return (None,) if self.graph.edge_types is None else self.graph.edge_types

    def given(self, ids: object, vertex_type: str | None = None) -> Int64Array:
        """Indexes of vertices as users name them: ids, or a mask over vertices(); None stands for all."""
        if ids is None:
            return self.vertices(vertex_type)
        if is_text(ids):
            return self.named(ids, vertex_type)
        numbers = as_array("pyg", "vertices", ids)
        if numbers.dtype != np.bool_:
            return id_array("pyg", "vertices", ids)
        known = self.vertices(vertex_type)
        if numbers.shape != known.shape:
            raise UsageError(
                f"[pyg] expected a mask of the {len(known)} live vertices, got one of shape {numbers.shape}; mask the "
                "rows of graph.vertices()"
            )
        chosen: Int64Array = known[numbers]
        return chosen

    def edges(self) -> tuple[Int64Array, Int64Array, TemporalHop]:
        """Slots of source and destination of every edge, and the hop that holds its columns, in order of edge ids; of
        an undirected one both ways. Raises: EdgeOffloaded.
        """
        with self.graph.host.lock:
            parts = [self.slots(self.vertices(name), name) for name in self.types]
            targets = np.concatenate(parts)
            found = self.hop(self._all, targets, np.full(len(targets), INT64_MAX))
        return found.src, targets[found.dst], found


class Newest(Version):
    """The version that is published when it is read."""

    @property
    def number(self) -> int:
        return self.graph.version

    def vertices(self, vertex_type: str | None = None) -> Int64Array:
        with self.graph.host.lock:
            slots = self.graph.host.live_slots("pyg", vertex_type)
            return self.index(slots)

    def slots(self, index: object, vertex_type: str | None = None) -> Int64Array:
        if not self.graph.host.ids.text:
            return self.graph.to_slots(index, vertex_type=vertex_type)
        slots = id_array("pyg", "slots", index)
        self.graph.to_external(slots, vertex_type=vertex_type)  # of live vertices of the type alone
        return slots

    def named(self, ids: object, vertex_type: str | None = None) -> Int64Array:
        return self.graph.to_slots(ids, vertex_type=vertex_type)

    def index(self, slots: Int64Array) -> Int64Array:
        return slots if self.graph.host.ids.text else self.graph.to_external(slots)

    def features(self, slots: Int64Array, width: int) -> Float32Array:
        with self.graph.host.lock:
            return self.graph.host.store.features(slots, width)

    def edge_attrs(self, edge_ids: Int64Array) -> Float32Array:
        with self.graph.host.lock:
            return _native.edge_attrs(self.graph.host.store, edge_ids)

    def hop(self, sampler: TemporalSampler, slots: Int64Array, times: Int64Array) -> TemporalHop:
        return sampler.sample_slots(slots, times)[0]


class GraphPin(Version):
    """One version of a graph, whatever is applied meanwhile; valid inside its `with` block only.

    Stores, samplers and loaders take it in the place of the graph, and read that version.

    Cost:    a copy of the vertices' ids; then what a pin of a TemporalSampler keeps (docs/temporal-sampling.md).
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._place = ExitStack()
        self._pin: PinnedSampler | None = None
        self._vertices: dict[str | None, Int64Array] = {}

    def __enter__(self) -> Self:
        if self._pin is not None:
            raise UsageError("[pin] expected a pin that is not open yet, got one that is; make another with lg.pyg.pin")
        with self.graph.host.lock:
            now = Newest(self.graph)
            self._vertices = {name: now.vertices(name) for name in self.types}
            self._pin = self._place.enter_context(self._all.pin())
        return self

    def __exit__(self, *details: object) -> None:
        self._pin, self._vertices = None, {}
        self._place.close()

    @property
    def number(self) -> int:
        return self._open().version

    @property
    def version(self) -> int:
        """The version that is read."""
        return self._open().version

    def vertices(self, vertex_type: str | None = None) -> Int64Array:
        self._open()
        return self._vertices[vertex_type]

    def slots(self, index: object, vertex_type: str | None = None) -> Int64Array:
        pin = self._open()
        if not self.graph.host.ids.text:
            return pin.to_slots(index, vertex_type=vertex_type)
        slots = id_array("pyg", "slots", index)
        if vertex_type is not None and not np.isin(slots, self._vertices[vertex_type]).all():
            row = int(np.argmin(np.isin(slots, self._vertices[vertex_type])))
            raise VertexUnknown(
                f"[pyg] expected slots of {vertex_type} in version {pin.version}, got {slots[row]} at row {row}; take "
                "them from n_id of a batch"
            )
        pin.to_external(slots)
        return slots

    def named(self, ids: object, vertex_type: str | None = None) -> Int64Array:
        return self._open().to_slots(ids, vertex_type=vertex_type)

    def to_external(self, slots: object) -> AnyArray:
        """(k,) ids that slots had in the version, such as n_id of its batches where ids are strings.

        Raises:  VertexUnknown.
        """
        return self._open().to_external(slots)

    def index(self, slots: Int64Array) -> Int64Array:
        return slots if self.graph.host.ids.text else self._open().to_external(slots)

    def features(self, slots: Int64Array, width: int) -> Float32Array:
        return np.ascontiguousarray(self._open().features_of_slots(slots)[:, :width])

    def edge_attrs(self, edge_ids: Int64Array) -> Float32Array:
        return self._open().edge_attrs(edge_ids)

    def hop(self, sampler: TemporalSampler, slots: Int64Array, times: Int64Array) -> TemporalHop:
        return sampler.sample_slots_at(self._open(), slots, times)[0]

    def _open(self) -> PinnedSampler:
        if self._pin is None:
            raise UsageError(
                "[pyg] expected a pin inside its with block, got one outside; make stores and loaders in the block"
            )
        return self._pin


def pin(graph: Graph) -> GraphPin:
    """The version of the graph at which the block is entered: `with lg.pyg.pin(graph) as pinned: ...`."""
    return GraphPin(graph)


def version_of(source: Graph | Version) -> Version:
    """What a store or a sampler of a graph, or of a pin, reads. Raises: UsageError."""
    if isinstance(source, Version):
        source.number  # noqa: B018  (an open one)
        return source
    return Newest(source)


def columns_of(version: Version, hop: TemporalHop) -> dict[str, AnyArray]:
    """The columns of a hop's edges by the names of Graph.edges(): id, and weight, time, type, attr where there."""
    graph = version.graph
    found: dict[str, Any] = {"id": hop.edge_ids, "weight": hop.weights, "type": hop.edge_types}
    columns: dict[str, AnyArray] = {name: column for name, column in found.items() if column is not None}
    if graph.has_time:
        columns["time"] = hop.times
    if graph.attr_width:
        columns["attr"] = version.edge_attrs(hop.edge_ids)
    return columns
