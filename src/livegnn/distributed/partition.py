"""Partition: one worker's part of a graph, and what it takes of each batch. Every worker is given every batch.

The part is a lg.Graph of its own with the slots and the edge ids of the whole. An edge lies with the owner of its
destination, with its attributes: messages flow src -> dst, and sampling reads the lists of in-edges. (GNNFlow stores an
edge with its source, as it samples out-neighbours.) An undirected edge lies with the owners of both ends. Which slots
are vertices is known everywhere; feature rows are with the owner alone, row slot // partitions, beside the graph.

Applying, all or none on all workers: each takes its own updates out of the batch; between the store's having taken them
and their being published the workers vote, and a single refusal takes the batch back everywhere.

Invariants: versions and next edge ids are equal on all workers between batches; an edge id means one edge everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from livegnn.distributed.exchange import Exchange, gather_text
from livegnn.distributed.layout import Layout
from livegnn.errors import UpdateError, UsageError, WidthMismatch
from livegnn.graph import Graph, Updates
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

__all__ = ["Partition"]

_ADD_EDGE, _REMOVE_EDGES_BEFORE, _SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX = 0, 2, 5, 6, 7  # UpdateKind of graph.h
_EVERYWHERE = (_REMOVE_EDGES_BEFORE, _SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX)


class Partition:
    """What one worker holds. Make it with of(), in every worker or, with arrays(), elsewhere.

    Args:    graph: the local part, features left out.  rows: features of the slots held, in order of slot.
    """

    def __init__(self, graph: Graph, layout: Layout, rank: int, rows: Float32Array) -> None:
        self.graph, self.layout, self.rank = graph, layout, rank
        self._rows = rows
        self._next_edge_id = int(graph._store.next_edge_id)

    @classmethod
    def of(cls, graph: Graph, layout: Layout, rank: int) -> Self:
        """The part of a whole graph that a worker holds. Raises: UsageError for a graph with vertex types."""
        return cls.from_arrays(cls.arrays(graph, layout, rank), layout, rank)

    @staticmethod
    def arrays(graph: Graph, layout: Layout, rank: int) -> dict[str, AnyArray]:
        """The part as arrays, for numpy.savez and from_arrays() in another process. Raises: as of()."""
        if graph.vertex_types is not None:
            raise UsageError("[Partition] expected a graph of one kind of vertex, got one with types; make it without")
        if not 0 <= rank < layout.workers:
            raise UsageError(f"[Partition] expected a worker below {layout.workers}, got {rank}; see the layout")
        whole = {key: value for key, value in graph._save_arrays().items() if not key.startswith("ids.")}
        held = layout.is_held(whole["store.dst"].astype(np.int64), rank)
        if graph.undirected:
            held |= layout.is_held(whole["store.src"].astype(np.int64), rank)
        for name in ("src", "dst", "id", "weight", "time", "type", "attr"):
            if f"store.{name}" in whole:
                whole[f"store.{name}"] = np.ascontiguousarray(whole[f"store.{name}"][held])
        rows = whole["store.features"]
        whole["store.features"] = np.empty((len(rows), 0), np.float32)
        whole["option.feature_width"] = np.array(0, np.int64)
        whole["rows"] = np.ascontiguousarray(rows[layout.partition(rank) :: layout.partitions])
        return whole

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], layout: Layout, rank: int) -> Self:
        """The part that arrays() described. Raises: StoredStateInvalid."""
        part = cls(Graph._from_arrays(arrays), layout, rank, np.array(arrays["rows"], np.float32))
        part._next_edge_id = int(arrays["store.counters"][1])
        return part

    @property
    def feature_width(self) -> int:
        """F of the whole graph."""
        return int(self._rows.shape[1])

    @property
    def next_edge_id(self) -> int:
        """The id of the next edge of the whole graph."""
        return self._next_edge_id

    def is_held(self, slots: Int64Array) -> BoolArray:
        """Which vertices are of this part."""
        return self.layout.is_held(slots, self.rank)

    def feature_rows(self, slots: Int64Array) -> Float32Array:
        """(k, F) features of vertices of this part."""
        found: Float32Array = self._rows[slots // self.layout.partitions]
        return found

    # ---- batches

    def apply(self, updates: Updates, exchange: Exchange) -> int:
        """Applies a batch to all parts, all or none, and returns the new version. Every worker gives the same batch.

        Args:    updates: with slots for ids, as a graph without ids= names its vertices.
        Raises:  what the part that refused it raises; UpdateError on the others, with its words. Nothing has changed.
        """
        columns, keys, types = updates._to_columns()
        if keys is not None or types:
            raise UsageError("[apply] expected updates with slots for ids and no named types, got others; translate")
        self._check_rows(columns)
        mine, next_edge_id = self._mine(columns)
        voted = False

        def vote(_: Updates) -> None:
            nonlocal voted
            voted = True
            refusals = [text for text in gather_text(exchange, "") if text]
            if refusals:
                raise UpdateError(refusals[0])

        with self.graph._lock:
            if self.graph._record is not None:
                raise UsageError("[apply] expected a part that is attached to no log, got one that is; detach it")
            self.graph._record = vote
            try:
                version = self.graph.apply(Updates._from_columns(mine, None, []))
            except UpdateError as error:
                if not voted:
                    gather_text(exchange, str(error))
                raise
            finally:
                self.graph._record = None
        self._next_edge_id = next_edge_id
        self._follow(columns)
        return version

    def _check_rows(self, columns: dict[str, AnyArray]) -> None:
        """The local graph has no features, and could not say so: rows of the wrong width are refused here, by all."""
        widths = columns["row_width"][np.isin(columns["kind"], (_SET_FEATURES, _ADD_VERTEX))]
        wrong = widths[widths != self.feature_width]
        if len(wrong):
            raise WidthMismatch(
                f"[apply] expected features of width {self.feature_width}, got {int(wrong[0])}; mend the rows"
            )

    def _mine(self, columns: dict[str, AnyArray]) -> tuple[dict[str, AnyArray], int]:
        """What this part takes of a batch, and the next edge id after it."""
        kind = columns["kind"]
        kept = np.isin(kind, _EVERYWHERE) | self.is_held(columns["v"])
        if self.graph.undirected:
            kept |= self.is_held(columns["u"])
        added = kind == _ADD_EDGE
        ids = columns["edge_id"].copy()
        ids[added] = self._next_edge_id + np.arange(np.count_nonzero(added))
        width = columns["row_width"]
        starts = np.cumsum(np.maximum(width, 0)) - np.maximum(width, 0)
        of_vertices = np.isin(kind, (_SET_FEATURES, _ADD_VERTEX))
        with_row = np.flatnonzero(kept & (width > 0) & ~of_vertices)
        rows = [columns["rows"][starts[i] : starts[i] + width[i]] for i in with_row]
        mine = {name: column[kept] for name, column in columns.items() if name != "rows"}
        mine["edge_id"] = ids[kept]
        mine["row_width"] = np.where(of_vertices & (width > 0), 0, width)[kept].astype(width.dtype)
        mine["rows"] = np.concatenate(rows) if rows else np.zeros(0, np.float32)
        return mine, self._next_edge_id + int(np.count_nonzero(added))

    def _follow(self, columns: dict[str, AnyArray]) -> None:
        """Features after a batch: of each vertex's updates the last one counts."""
        slot_count, first = self.graph.slot_count, self.layout.partition(self.rank)
        count = max(0, -(-(slot_count - first) // self.layout.partitions))
        if count > len(self._rows):
            more = np.zeros((count - len(self._rows), self.feature_width), np.float32)
            self._rows = np.concatenate([self._rows, more])
        if not self.feature_width:
            return
        kind, width = columns["kind"], np.maximum(columns["row_width"], 0)
        starts = np.cumsum(width) - width
        changes = np.isin(kind, (_SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX)) & self.is_held(columns["u"])
        places = np.flatnonzero(changes)[::-1]
        slots, last = np.unique(columns["u"][places], return_index=True)
        for slot, place in zip(slots.tolist(), places[last].tolist(), strict=True):
            row = columns["rows"][starts[place] : starts[place] + width[place]]
            self._rows[slot // self.layout.partitions] = 0.0 if kind[place] == _REMOVE_VERTEX else row
