"""What a batch did to the outputs of an engine, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import UsageError

if TYPE_CHECKING:
    from livegnn.graph.graph import Graph
    from livegnn.inference.edge_outputs import EdgeReader


@dataclass(frozen=True)
class ExtremeStats:
    """Rows of minima and maxima that a batch reached, as the paper's Figure 13 counts them.

    no_deletion: only new messages came.  no_effect: messages left or changed, none of which had an extremum.
    covered: one that had, left it to another holder or to a new message.  exposed: messages had to be read again,
    `reread_bytes` in all.  resilient: of all these, rows whose values did not change, where the change ends.

    Source: InkStream, section 2.5.1 and Figure 13.
    """

    no_deletion: int
    no_effect: int
    covered: int
    exposed: int
    resilient: int
    reread_bytes: int


@dataclass(frozen=True)
class LayerStats:
    """One stage of a batch: stage k computes the messages of layer k + 1, the last stage the outputs.

    affected: rows computed.  path: "push", "pull", "sweep", or "none" where no edges follow.
    transform_seconds, aggregate_seconds: wall time of the two halves; where many deltas reach the last stage, its rows
    are finished among them, and that time is in the aggregate_seconds before it.
    edges: out-edges of changed rows where deltas are pushed, in-edges of the rows that are reduced again elsewhere (a
    sweep: all; "sampled": those drawn), and `scanned`; the batch's own edges are not counted.
    scanned, reread: of `edges`, in-edges of moved attention targets whose scores were looked at, and in-edges whose
    messages were read to reduce a row again.
    extremes: what happened to minima and maxima of this stage's messages; None where there are none.
    """

    affected: int
    edges: int
    path: str
    transform_seconds: float
    aggregate_seconds: float
    scanned: int = 0
    reread: int = 0
    extremes: ExtremeStats | None = None


@dataclass(frozen=True)
class Stats:
    """Cost of one batch. Seconds are wall time; total_seconds covers propagation and publication, not the store."""

    layers: tuple[LayerStats, ...]
    changed: int
    topology_seconds: float
    publish_seconds: float
    total_seconds: float


def _layer(stage: dict[str, Any]) -> LayerStats:
    extremes = stage.pop("extremes")
    return LayerStats(**stage, extremes=None if extremes is None else ExtremeStats(**extremes))


class Changes:
    """The vertices whose output a batch changed, at the version that the batch made.

    `vertices` and `stats` are worked out when first asked for, so that a batch whose result is not read is cheap;
    in a graph with ids of its own at the latest before a batch that adds or removes vertices.
    """

    __slots__ = ("__weakref__", "_edge_reader", "_edges", "_graph", "_native", "_stats", "_vertices", "version")

    def __init__(self, native: Any, graph: Graph, version: int, edge_reader: EdgeReader | None = None) -> None:
        self._native = native
        self._graph = graph
        self._edge_reader = edge_reader
        self._edges: dict[str, Any] | None = None
        self._vertices: Any = None
        self._stats: Stats | None = None
        self.version = version
        host = graph.host
        if not host.ids_are_slots:
            host.hold_ids(self)

    @property
    def vertices(self) -> Any:
        """Ids of live vertices whose output has other bits than before, (k,) int64 in ascending order of their slots.

        In a graph with ids of its own, those ids. Where vertices have types, a dict of such arrays by vertex type, with
        the types of which any vertex has changed. A vertex that the batch added is always among them.
        """
        if self._vertices is None:
            if self._graph.has_ids or self._graph.vertex_types is not None:
                with self._graph.host.lock:
                    self.before_ids_move()
            else:
                self._vertices = self._native.vertices()
        return self._vertices

    def before_ids_move(self) -> None:
        """Takes the ids while they are those of the version. The caller holds the graph's lock."""
        if self._vertices is not None:
            return
        slots: NDArray[np.int64] = self._native.vertices()
        typed = self._graph.vertex_types is not None
        self._vertices = self._by_type(slots) if typed else self._graph.to_external(slots)

    def _by_type(self, slots: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        types, names = self._graph.slot_types(slots), self._graph.vertex_types or ()
        return {names[code]: self._graph.to_external(slots[types == code]) for code in np.unique(types).tolist()}

    @property
    def edges(self) -> dict[str, Any]:
        """Edges whose row may have other bits than before, of a model with one row per edge: src, dst and id, in order
        of ids; undirected ones in both directions.

        They are those that the batch added or gave other attributes (or another weight, where the model reads it), and
        those at a vertex whose rows have changed. `Engine.edge_outputs(changes.edges)` reads them. Worked out when
        first asked for, which must be before the next batch: in on_change, or right after apply().

        Raises: UsageError later, in a what_if block, and for a model with one row per vertex.
        """
        if self._edges is None:
            if self._edge_reader is None:
                raise UsageError(
                    "[changes] expected a model with one row per edge, got one with one row per vertex; read vertices"
                )
            host = self._graph.host
            with host.lock:
                if host.store.version != self.version or host.in_what_if:
                    now = "a what_if block" if host.in_what_if else f"version {host.store.version}"
                    raise UsageError(
                        f"[changes] expected changes.edges to be read at version {self.version}, got {now}; read it in "
                        "on_change, or right after apply()"
                    )
                self._edges = self._edge_reader.changed(self._native)
        return self._edges

    def take_moves(self) -> Any:
        """(slots, how many of them are gone, is_new, rows before, rows after) of all that moved, for the first caller.

        None where the engine's native half was not asked for them by keep_moves(), or they are too many.
        """
        return self._native.take_moves()

    @property
    def stats(self) -> Stats:
        """Counts per layer, path taken, seconds per phase."""
        if self._stats is None:
            topology, publish, total = self._native.seconds()
            layers = tuple(_layer(stage) for stage in self._native.stages())
            self._stats = Stats(layers, self._native.count(), topology, publish, total)
        return self._stats

    def __len__(self) -> int:
        return int(self._native.count())

    def __repr__(self) -> str:
        return f"Changes(version={self.version}, vertices={len(self)})"
