"""PinnedSampler: samples of one version of a graph that goes on changing.

The native pin follows the graph's batches and keeps what they take away; nothing is copied when it is made. A graph
with ids of its own moves them with its vertices: the ids are copied by the first batch that adds or removes one.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, VertexUnknown
from livegnn.graph import Graph
from livegnn.graph.checks import Int32Array, id_array
from livegnn.graph.consumers import Consumer, VertexChange
from livegnn.graph.ids import VertexIds
from livegnn.graph.updates import VertexType
from livegnn.temporal.past import Draws, PastSampler
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array


class PinnedSampler(PastSampler, Consumer):
    """A sampler's view of one version, valid inside its `with` block only; several may be open at once.

    Calls count with the sampler's, so that each draws anew. Writers go on; what they remove is kept until the block
    ends.

    Exactness: equal to the samples of a copy of the graph made when the block was entered.
    Cost:    nothing to make; memory as much as was removed or overwritten since, and 16 bytes for each edge added; a
             target whose past was changed since is read through a table of its list, made once a hop for many.
    """

    needs_all_edges = False  # samples say what they need
    edges_stay = True

    def __init__(self, graph: Graph, draws: Draws) -> None:
        self.graph, self._draws = graph, draws
        self.follower: _native.TemporalPin | None = None
        self._ids: VertexIds | None = None  # a copy, once the graph's own has moved on

    def __enter__(self) -> Self:
        if self.follower is not None:
            raise UsageError("[pin] expected a pin that is not open yet, got one that is; make another with pin()")
        with self.graph.host.writing("pin"):
            self.follower = _native.TemporalPin(self.graph.host.store)
            try:
                self.graph.host.attach(self)
            except BaseException:
                self.follower = None  # refused: the pin is not open
                raise
            if not self.graph.host.ids_are_slots:
                self.graph.host.add_guard(self._before)
        return self

    def __exit__(self, *details: object) -> None:
        with self.graph.host.lock:
            self.graph.host.detach(self)
            self.graph.host.drop_guard(self._before)
            self.follower = self._ids = None

    @property
    def version(self) -> int:
        """The version that is read."""
        return int(self._pinned("version").version)

    @property
    def bytes(self) -> int:
        """Memory held because of what was applied since."""
        with self.graph.host.lock:
            return int(self._pinned("bytes").bytes())

    def features(self, ids: object, *, vertex_type: VertexType | None = None) -> Float32Array:
        """(k, F) float32, rows of the pinned version for ids of its vertices, also such as have gone since. F is the
        width of the type.

        Raises:  VertexUnknown.
        """
        with self.graph.host.lock:
            pin = self._pinned("features")
            schema = self.graph.host.schema
            slots = self._known_ids().slots("features", ids, vertex_type)
            return pin.features(slots, schema.widths[schema.vertex_code("features", vertex_type)])

    def features_of_slots(self, slots: object) -> Float32Array:
        """features() by slots, as hops hold them; of several types as wide as the widest, filled with zeros."""
        with self.graph.host.lock:
            pin = self._pinned("features")
            return pin.features(id_array("features", "slots", slots), self.graph.feature_width)

    def edge_attrs(self, edge_ids: object) -> Float32Array:
        """(k, A) float32, attributes of edges in the pinned version, also of such as have gone since. In a graph whose
        edges have none A is 0, and which edges there are is not looked at.

        Raises:  EdgeMissing.
        """
        with self.graph.host.lock:
            numbers = id_array("edge_attrs", "edge_ids", edge_ids)
            pin, width = self._pinned("edge_attrs"), self.graph.attr_width
            return pin.edge_attrs(numbers, width) if width else np.zeros((len(numbers), 0), np.float32)

    def kept(self, ids: Int64Array, *, edges: bool) -> BoolArray:
        """(k,) bool, which slots' features (or edges' attributes) are not those of the graph any more; (0,) if none.

        The caller holds the graph's lock.
        """
        return self._pinned("kept").kept(ids, edges).astype(np.bool_)

    def slot_types(self, slots: object) -> Int32Array:
        """(k,) int32, graph.slot_types() of the pinned version. Raises: VertexUnknown; ColumnMissing without types."""
        with self.graph.host.lock:
            pin, numbers = self._pinned("slot_types"), id_array("slot_types", "slots", slots)
            if not self.graph.host.schema.has_types:
                return self.graph.slot_types(numbers)  # which refuses
            pin.features(numbers, 0)  # of vertices of the version alone
            return pin.types(numbers)

    def to_slots(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """(k,) slots that ids had in the pinned version: graph.to_slots() of it. Raises: VertexUnknown."""
        with self.graph.host.lock:
            self._pinned("to_slots")
            return self._known_ids().slots("to_slots", ids, vertex_type)

    def to_external(self, slots: object) -> AnyArray:
        """(k,) ids that slots had in the pinned version: graph.to_external() of it. Raises: VertexUnknown."""
        with self.graph.host.lock:
            pin, known = self._pinned("to_external"), self._known_ids()
            numbers = id_array("to_external", "slots", slots)
            if not self.graph.host.ids_are_slots:
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
            self._ids = self.graph.host.ids.copied()

    def _known_ids(self) -> VertexIds:
        return self.graph.host.ids if self._ids is None else self._ids

    def _pinned(self, where: str) -> _native.TemporalPin:
        if self.follower is None:
            raise UsageError(f"[{where}] expected a pin inside its with block, got one outside; use it in the block")
        if self.graph.host.in_what_if:
            raise UsageError(
                f"[{where}] expected no what_if block under way, got one in this thread; use the pin before or after it"
            )
        return self.follower
