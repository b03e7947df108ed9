"""PinnedSampler: samples of one version of a graph that goes on changing.

The native pin follows the graph's batches and keeps what they take away; nothing is copied when it is made. A graph
with ids of its own moves them with its vertices: the ids are copied by the first batch that adds or removes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, VertexUnknown
from livegnn.graph import Graph
from livegnn.graph.checks import Int32Array, id_array
from livegnn.graph.consumers import Consumer, VertexChange
from livegnn.graph.ids import VertexIds
from livegnn.graph.updates import VertexType
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.to_pyg import to_pyg
from livegnn.temporal.walks import TemporalWalks
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

__all__ = ["PinnedSampler"]


class _Sampler(Protocol):
    """The parts of a TemporalSampler that its pins use; `pin` is the version to read, None for the newest."""

    graph: Graph

    def _one_window(self, where: str) -> None: ...
    def _snapshots(
        self, where: str, vertices: object, times: object, vertex_type: VertexType | None, pin: PinnedSampler | None
    ) -> list[list[TemporalHop]]: ...
    def _of_slots(
        self, where: str, slots: object, times: object, pin: PinnedSampler | None
    ) -> list[list[TemporalHop]]: ...
    def _walks(
        self, vertices: object, times: object, length: int, vertex_type: VertexType | None, pin: PinnedSampler | None
    ) -> TemporalWalks: ...
    def _event_weights(
        self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array, pin: PinnedSampler | None
    ) -> Float32Array: ...


class PinnedSampler(Consumer):
    """A sampler's view of one version, valid inside its `with` block only; several may be open at once.

    Calls count with the sampler's, so that each draws anew. Writers go on; what they remove is kept until the block
    ends.

    Exactness: equal to the samples of a copy of the graph made when the block was entered.
    Cost:    nothing to make; memory as much as was removed or overwritten since, and 16 bytes for each edge added; a
             target whose past was changed since is read through a table of its list, made once a hop for many.
    """

    needs_all_edges = False  # samples say what they need
    edges_stay = True

    def __init__(self, sampler: _Sampler) -> None:
        self._sampler = sampler
        self._graph = sampler.graph
        self.follower: Any = None
        self._ids: VertexIds | None = None  # a copy, once the graph's own has moved on

    def __enter__(self) -> Self:
        if self.follower is not None:
            raise UsageError("[pin] expected a pin that is not open yet, got one that is; make another with pin()")
        with self._graph.host.writing("pin"):
            self.follower = _native.TemporalPin(self._graph.host.store)
            try:
                self._graph.host.attach(self)
            except BaseException:
                self.follower = None  # refused: the pin is not open
                raise
            if not self._graph.host.ids_are_slots:
                self._graph.host.add_guard(self._before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._graph.host.lock:
            self._graph.host.detach(self)
            self._graph.host.drop_guard(self._before)
            self.follower = self._ids = None

    @property
    def version(self) -> int:
        """The version that is read."""
        return int(self._opened("version").version)

    @property
    def bytes(self) -> int:
        """Memory held because of what was applied since."""
        with self._graph.host.lock:
            return int(self._opened("bytes").bytes())

    def sample(self, vertices: object, times: object, *, vertex_type: VertexType | None = None) -> list[TemporalHop]:
        """TemporalSampler.sample() of the pinned version."""
        self._sampler._one_window("sample")
        return self._sampler._snapshots("sample", vertices, times, vertex_type, self)[0]

    def sample_snapshots(
        self, vertices: object, times: object, *, vertex_type: VertexType | None = None
    ) -> list[list[TemporalHop]]:
        """TemporalSampler.sample_snapshots() of the pinned version."""
        return self._sampler._snapshots("sample_snapshots", vertices, times, vertex_type, self)

    def sample_slots(self, slots: object, times: object) -> list[TemporalHop]:
        """TemporalSampler.sample_slots() of the pinned version."""
        self._sampler._one_window("sample_slots")
        return self._sampler._of_slots("sample_slots", slots, times, self)[0]

    def sample_snapshot_slots(self, slots: object, times: object) -> list[list[TemporalHop]]:
        """TemporalSampler.sample_snapshot_slots() of the pinned version."""
        return self._sampler._of_slots("sample_snapshot_slots", slots, times, self)

    def event_weights(self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array) -> Float32Array:
        """TemporalSampler.event_weights() of the pinned version."""
        return self._sampler._event_weights(dst, times, edge_ids, self)

    def walks(
        self, vertices: object, times: object, length: int, *, vertex_type: VertexType | None = None
    ) -> TemporalWalks:
        """TemporalSampler.walks() of the pinned version."""
        return self._sampler._walks(vertices, times, length, vertex_type, self)

    def to_pyg(self, hops: Sequence[TemporalHop]) -> Any:
        """TemporalSampler.to_pyg() with features and attributes of the pinned version."""
        return to_pyg(hops, self._graph, self)

    def features(self, ids: object, *, vertex_type: VertexType | None = None) -> Float32Array:
        """(k, F) float32, rows of the pinned version for ids of its vertices, also such as have gone since. F is the
        width of the type.

        Raises:  VertexUnknown.
        """
        with self._graph.host.lock:
            pin = self._opened("features")
            schema = self._graph.host.schema
            slots = self.known_ids().slots("features", ids, vertex_type)
            rows: Float32Array = pin.features(slots, schema.widths[schema.vertex_code("features", vertex_type)])
            return rows

    def features_of_slots(self, slots: object) -> Float32Array:
        """features() by slots, as hops hold them; of several types as wide as the widest, filled with zeros."""
        with self._graph.host.lock:
            pin = self._opened("features")
            numbers = id_array("features", "slots", slots)
            rows: Float32Array = pin.features(numbers, self._graph.feature_width)
            return rows

    def edge_attrs(self, edge_ids: object) -> Float32Array:
        """(k, A) float32, attributes of edges in the pinned version, also of such as have gone since. In a graph whose
        edges have none A is 0, and which edges there are is not looked at.

        Raises:  EdgeMissing.
        """
        with self._graph.host.lock:
            numbers = id_array("edge_attrs", "edge_ids", edge_ids)
            pin, width = self._opened("edge_attrs"), self._graph.attr_width
            rows: Float32Array = pin.edge_attrs(numbers, width) if width else np.zeros((len(numbers), 0), np.float32)
            return rows

    def kept(self, ids: Int64Array, *, edges: bool) -> BoolArray:
        """(k,) bool, which slots' features (or edges' attributes) are not those of the graph any more; (0,) if none.

        The caller holds the graph's lock.
        """
        kept: BoolArray = self._opened("kept").kept(ids, edges).astype(np.bool_)
        return kept

    def slot_types(self, slots: object) -> Int32Array:
        """(k,) int32, graph.slot_types() of the pinned version. Raises: VertexUnknown; ColumnMissing without types."""
        with self._graph.host.lock:
            pin, numbers = self._opened("slot_types"), id_array("slot_types", "slots", slots)
            if not self._graph.host.schema.has_types:
                return self._graph.slot_types(numbers)  # which refuses
            pin.features(numbers, 0)  # of vertices of the version alone
            types: Int32Array = pin.types(numbers)
            return types

    def to_external(self, slots: object) -> AnyArray:
        """(k,) ids that slots had in the pinned version: graph.to_external() of it. Raises: VertexUnknown."""
        with self._graph.host.lock:
            pin, known = self._opened("to_external"), self.known_ids()
            numbers = id_array("to_external", "slots", slots)
            if not self._graph.host.ids_are_slots:
                return known.external(numbers)
            try:
                pin.features(numbers, 0)  # of vertices of the version alone
            except VertexUnknown as error:
                raise error.reworded(where="to_external") from None
            return numbers

    # ---- for the graph and the sampler

    def published(self, change: Any, version: int) -> None:
        """Nothing: the native half has followed."""

    def _before(self, batch: list[VertexChange]) -> None:
        """A guard of the graph: the ids are still those of the pinned version, and may not be after this batch."""
        if batch and self._ids is None:
            self._ids = self._graph.host.ids.copied()

    def known_ids(self) -> VertexIds:
        """The ids of the pinned version; the caller holds the graph's lock."""
        return self._graph.host.ids if self._ids is None else self._ids

    def _opened(self, where: str) -> Any:
        """The native pin; the caller holds the graph's lock."""
        if self.follower is None:
            raise UsageError(f"[{where}] expected a pin inside its with block, got one outside; use it in the block")
        if self._graph.host.in_what_if:
            raise UsageError(
                f"[{where}] expected no what_if block under way, got one in this thread; use the pin before or after it"
            )
        return self.follower
