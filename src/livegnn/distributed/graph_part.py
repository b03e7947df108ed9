"""Partition: one worker's part of a graph, and what it takes of each batch. Every worker is given every batch.

The part is a lg.Graph of its own with the slots and the edge ids of the whole. An edge lies with the owner of its
destination, with its attributes: messages flow src -> dst, and sampling reads the lists of in-edges. (GNNFlow stores an
edge with its source, as it samples out-neighbours.) An undirected edge lies with the owners of both ends. Which slots
are vertices is known everywhere; feature rows are with the owner alone, row slot // partitions, outside the graph.

Applying, all or none on all workers: each takes its own updates out of the batch; between the store's having taken them
and their being published the workers vote, and a single refusal takes the batch back everywhere: all raise that of the
first bad update of the whole batch. Where a part has a log, the log gets the whole batch, and the workers vote again
once all have written. Batches that do not come through Partition.apply are refused. After a batch the
workers exchange which edges have changed, and each calls its listeners (caches, a trainer).

Invariants: versions and next edge ids are equal on all workers between batches; an edge id means one edge everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakSet

import numpy as np

from livegnn import _native, errors
from livegnn.distributed.exchange import Exchange, gather_text
from livegnn.distributed.layout import Layout
from livegnn.errors import ColumnMissing, EdgeOffloaded, Facts, LiveGnnError, UpdateError, UsageError, WidthMismatch
from livegnn.graph import Graph, Updates
from livegnn.graph.consumers import Consumer, Recorded, Recorder, VertexChange
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

__all__ = ["BatchEffect", "Listener", "Partition", "check_graph"]

_ADD_EDGE, _REMOVE_EDGE, _REMOVE_EDGES_BEFORE, _SET_EDGE_ATTR, _SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX = (
    _native.UpdateKind[name].value
    for name in (
        "AddEdge",
        "RemoveEdge",
        "RemoveEdgesBefore",
        "SetEdgeAttr",
        "SetFeatures",
        "AddVertex",
        "RemoveVertex",
    )
)
_EVERYWHERE = (_REMOVE_EDGES_BEFORE, _SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX)
_CHANGES_EDGES = (_REMOVE_EDGE, _REMOVE_EDGES_BEFORE, _SET_EDGE_ATTR, _REMOVE_VERTEX)


class BatchEffect(NamedTuple):
    """What a batch made of rows that there were, in all parts; the same on every worker, and each id may stand twice.

    slots: of vertices with other features, or added.  slots_gone: removed.  edge_ids, edge_ids_gone: of edges with
    other attributes, and of removed ones.
    """

    slots: Int64Array
    slots_gone: Int64Array
    edge_ids: Int64Array
    edge_ids_gone: Int64Array


class Listener(Protocol):
    """Is called after each batch that a Partition has applied; makes no exchange."""

    def changed(self, changes: BatchEffect) -> None:
        """After the batch, on every worker."""


class _Refusal(NamedTuple):
    """Why a batch is refused: the place of the bad update in the whole batch, and the error."""

    place: int
    kind: str
    text: str
    facts: Facts


def check_graph(where: str, graph: Graph) -> None:
    """Refuses graphs that are not cut into parts: with vertex types, without times, with edges in files, or with
    features in 16 bits.

    Raises:  UsageError, ColumnMissing, EdgeOffloaded.
    """
    if not isinstance(graph, Graph):
        raise UsageError(f"[{where}] expected a Graph, got {type(graph).__name__}; make one with livegnn.Graph")
    if graph.vertex_types is not None:
        raise UsageError(f"[{where}] expected a graph of one kind of vertex, got one with types; make it without")
    if graph.feature_dtype != "float32":
        raise UsageError(
            f'[{where}] expected a graph with feature_dtype="float32", got "{graph.feature_dtype}"; make it with that: '
            "parts keep no features in 16 bits"
        )
    if not graph.has_time:
        raise ColumnMissing(f"[{where}] expected a graph with times, got one without; make it with time=")
    if graph.offloaded.count:
        raise EdgeOffloaded(
            f"[{where}] expected a graph with all edges in memory, got {graph.offloaded.count} of them in files "
            f"({', '.join(graph.offloaded.paths)}); call graph.reload() first"
        )


class Partition(Consumer):
    """What one worker holds. Make it with of(), in every worker or, with arrays(), elsewhere.

    Args:    graph: the local part, features left out; its edges stay in memory.  rows: features of the slots held, in
             order of slot.
    Raises:  ColumnMissing for a graph without times; EdgeOffloaded; UsageError.
    """

    edges_stay = True

    def __init__(self, graph: Graph, layout: Layout, rank: int, rows: Float32Array) -> None:
        check_graph("Partition", graph)
        self.graph, self.layout, self.rank = graph, layout, rank
        self._rows = rows
        self._next_edge_id = int(graph.host.store.next_edge_id)
        self._listeners: WeakSet[Any] = WeakSet()
        self._applying = False
        self._expiry, graph.host.expiry = graph.host.expiry, None  # what expires is written into the whole batch
        with graph.host.writing("Partition"):
            graph.host.add_guard(self._refuse_alone)
            self.follower = _native.ChangedRows(graph.host.store, True)
            graph.host.attach(self)

    @classmethod
    def of(cls, graph: Graph, layout: Layout, rank: int) -> Self:
        """The part of a whole graph that a worker holds.

        Raises:  UsageError for a graph with vertex types; ColumnMissing without times; EdgeOffloaded.
        """
        return cls.from_arrays(cls.arrays(graph, layout, rank), layout, rank)

    @staticmethod
    def arrays(graph: Graph, layout: Layout, rank: int) -> dict[str, AnyArray]:
        """The part as arrays, for numpy.savez and from_arrays() in another process. Raises: as of()."""
        check_graph("Partition", graph)
        if not 0 <= rank < layout.workers:
            raise UsageError(f"[Partition] expected a worker below {layout.workers}, got {rank}; see the layout")
        whole = {key: value for key, value in graph.to_arrays().items() if not key.startswith("ids.")}
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
        part = cls(Graph.from_arrays(arrays), layout, rank, np.array(arrays["rows"], np.float32))
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
        Raises:  UpdateError of the kind that the first bad update deserves, the same on all workers and in the words of
                 one process with the whole graph; then nothing has changed. What a consumer of the local graph raises
                 once the batch stands.
        """
        columns, keys, types = updates.to_columns()
        if keys is not None or types:
            raise UsageError("[apply] expected updates with slots for ids and no named types, got others; translate")
        host, expiry, now = self.graph.host, self._expiry, 0
        host.same_unit("apply", updates.time_unit)  # every worker has the same, and refuses the same
        if expiry is not None:
            buffer, now = expiry.written_out(updates.buffer)
            updates = updates.rewritten(buffer)
            columns = updates.to_columns()[0]
        places = updates.buffer.given_places()
        kept = self._kept(columns)
        mine, next_edge_id = self._mine(columns, kept)
        part = Updates.from_columns(mine, None, [])
        part.time_unit = updates.time_unit
        before = self.graph.version
        try:
            with host.lock:
                vote = _Vote(exchange, self._wrong_row(columns, places), writes=bool(host.recorders))
                host.add_recorder(vote)  # the last one, so that what the others have written can be confirmed
                self._applying = True
                try:
                    return host.apply(part, recorded=updates)[0]
                except Exception as error:
                    if not vote.is_awaited:
                        raise
                    raise vote.refuse(_refusal(error, places[kept], len(kept))) from error
                finally:
                    self._applying = False
                    host.drop_recorder(vote)
        finally:
            if self.graph.version != before:  # the batch stands, even where a consumer has failed since
                self._next_edge_id = next_edge_id
                if expiry is not None:
                    expiry.now = now
                self._follow(columns)
                self._notify(columns, exchange)

    def listen(self, listener: Listener) -> None:
        """From the next batch on the listener gets the changes of each, for as long as other code holds it."""
        self._listeners.add(listener)

    def published(self, change: Any, version: int) -> None:
        """Nothing: what changed is taken from the follower once all workers have the batch."""

    def _refuse_alone(self, batch: list[VertexChange]) -> None:
        """A guard. Raises: UsageError for a batch that the other workers do not have."""
        if not self._applying:
            raise UsageError(
                "[apply] expected a batch that every worker applies, got one for the graph of a part alone; call "
                "Partition.apply in every worker, also for entries of a log"
            )

    def _wrong_row(self, columns: dict[str, AnyArray], places: Int64Array) -> _Refusal | None:
        """The local graph has no features, and could not say so: rows of the wrong width are refused here, by all."""
        kind, widths = columns["kind"], columns["row_width"]
        wrong = np.flatnonzero(np.isin(kind, (_SET_FEATURES, _ADD_VERTEX)) & (widths != self.feature_width))
        if not len(wrong):
            return None
        row, place = int(wrong[0]), int(places[wrong[0]])
        name = "set_features" if kind[row] == _SET_FEATURES else "add_vertex"
        vertex = int(columns["u"][row])
        error = WidthMismatch(
            where="apply",
            subject=f"{name} {vertex}",
            update=place,
            vertex=vertex,
            expected=f"a row of {self.feature_width} floats",
            got=f"{widths[row]}",
            advice="give one per column",
        )
        return _Refusal(place, WidthMismatch.__name__, str(error), error.facts())

    def _kept(self, columns: dict[str, AnyArray]) -> BoolArray:
        """Which updates this part takes."""
        kept: BoolArray = np.isin(columns["kind"], _EVERYWHERE) | self.is_held(columns["v"])
        if self.graph.undirected:
            kept |= self.is_held(columns["u"])
        return kept

    def _mine(self, columns: dict[str, AnyArray], kept: BoolArray) -> tuple[dict[str, AnyArray], int]:
        """What this part takes of a batch, and the next edge id after it."""
        kind = columns["kind"]
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

    def _notify(self, columns: dict[str, AnyArray], exchange: Exchange) -> None:
        """Calls the listeners with the changes of the batch. Only the part that holds an edge finds its id by its ends:
        where a batch changes edges that have attributes, the workers send each other the ids.
        """
        kind, slots = columns["kind"], columns["u"]
        ids, gone = self.follower.take()
        if self.graph.attr_width and np.isin(kind, _CHANGES_EDGES).any():
            sent = np.concatenate(exchange.gather(np.stack([ids, gone.astype(np.int64)], axis=1)))
        else:
            sent = np.zeros((0, 2), np.int64)
        away = sent[:, 1] != 0
        changes = BatchEffect(
            slots[np.isin(kind, (_SET_FEATURES, _ADD_VERTEX))],
            slots[kind == _REMOVE_VERTEX],
            sent[~away, 0],
            sent[away, 0],
        )
        for listener in tuple(self._listeners):
            listener.changed(changes)


class _Vote(Recorder):
    """The agreement of all workers on one batch: none refuses it; and, where any of them writes it down, all have.

    own: what this worker refuses by itself.  writes: whether its graph has other recorders, which append before.
    """

    def __init__(self, exchange: Exchange, own: _Refusal | None, *, writes: bool) -> None:
        self._exchange, self._own, self._writes = exchange, own, writes
        self.is_awaited = True  # whether the others wait for an answer of this worker

    def prepare(self, recorded: Recorded) -> None:
        """The first round. Raises: the error of the first bad update that any worker has found, the same on all."""
        refused, confirm = self._round(self._own)
        if refused is not None:
            raise refused
        self.is_awaited = confirm

    def append(self, recorded: Recorded) -> None:
        """The second round, where any worker writes. Raises: the same on all, where one of them could not."""
        if self.is_awaited:
            refused, _ = self._round(None)
            if refused is not None:
                raise refused

    def abort(self) -> None:
        """Nothing: the round that failed has informed the others, or refuse() does."""

    def refuse(self, own: _Refusal) -> LiveGnnError:
        """Answers the workers that wait that this one has failed; what all of them raise."""
        first = own if self._own is None else min(own, self._own, key=lambda refusal: refusal.place)
        refused, _ = self._round(first)
        assert refused is not None  # this worker's own, at least
        return refused

    def _round(self, own: _Refusal | None) -> tuple[LiveGnnError | None, bool]:
        """Exchanges answers: the refusal of the first bad update, if any, and whether any worker writes."""
        self.is_awaited = False
        texts = gather_text(self._exchange, json.dumps([own, self._writes]))
        answers = [json.loads(text) for text in texts]
        refusals = [_Refusal(*refusal) for refusal, _ in answers if refusal is not None]
        writes = any(each for _, each in answers)
        if not refusals:
            return None, writes
        first = min(refusals, key=lambda refusal: refusal.place)
        return errors.of_kind(first.kind, first.text, first.facts), writes


def _refusal(error: Exception, places: Int64Array, count: int) -> _Refusal:
    """An error as a refusal of the whole batch of `count` updates: update i of the part is at places[i].

    What names no update of the batch, such as a log that fails, comes after all bad updates.
    """
    if isinstance(error, LiveGnnError) and error.update is not None:
        place = int(places[error.update])
        error = error.reworded(update=place)
    else:
        place = 0 if isinstance(error, UpdateError) else count
    facts = error.facts() if isinstance(error, LiveGnnError) else Facts()
    return _Refusal(place, type(error).__name__, str(error), facts)
