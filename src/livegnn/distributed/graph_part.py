"""Partition: one worker's part of a graph, and what it takes of each batch. Every worker is given every batch.

The part is a lg.Graph of its own with the slots, ids, types and edge ids of the whole. An edge lies with the owner of
its destination, with its attributes: messages flow src -> dst, and sampling reads the lists of in-edges.
(GNNFlow stores an edge with its source, as it samples out-neighbours.) An undirected edge lies with the owners of both
ends. Which slots are vertices, and how many edges of each lie in files, is known everywhere; feature rows are with the
owner alone, in order of slot, outside the graph, as wide as the widest type's and in the graph's dtype.

Newcomers (partition/) says who owns which vertex. Every worker has a copy, and follows it with each batch that stands.

Applying, all or none on all workers: each takes its own updates out of the batch in slots; between the store's having
taken them and their being published the workers vote, and a single refusal takes the batch back everywhere: all raise
that of the first bad update of the whole batch. Where a part has a log, the log gets the whole batch, and the workers
vote again once all have written. Batches that do not come through Partition.apply are refused. After a batch the
workers exchange which edges have changed, and each calls its listeners (caches, a trainer).

Invariants: versions and next edge ids are equal on all workers between batches; an edge id means one edge everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakSet

import numpy as np

from livegnn import _native, errors
from livegnn.distributed.exchange import Exchange, gather_text
from livegnn.distributed.layout import Layout
from livegnn.distributed.own_slots import OwnSlots, room
from livegnn.distributed.partition import Newcomers, Placement, hashed
from livegnn.distributed.partition.newcomers import sound
from livegnn.errors import ColumnMissing, Facts, LiveGnnError, UpdateError, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import Graph, Updates, float16
from livegnn.graph.consumers import Consumer, Recorded, Recorder, VertexChange
from livegnn.temporal.checks import check_graph
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

_Kind = _native.UpdateKind
_ADD_EDGE, _REMOVE_EDGE, _SET_EDGE_ATTR = _Kind.AddEdge.value, _Kind.RemoveEdge.value, _Kind.SetEdgeAttr.value
_SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX = _Kind.SetFeatures.value, _Kind.AddVertex.value, _Kind.RemoveVertex.value
_REMOVE_EDGES_BEFORE = _Kind.RemoveEdgesBefore.value
_EVERYWHERE = (_REMOVE_EDGES_BEFORE, _SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX)
_SLOTS_MAX = 2**31 - 1
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

    @classmethod
    def of_edges(cls, ids: Int64Array, gone: BoolArray) -> Self:
        """Of edges alone, each changed or gone."""
        none = np.zeros(0, np.int64)
        return cls(none, none, ids[~gone], ids[gone])


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


def check_dated(where: str, graph: Graph) -> None:
    """Refuses graphs without times, which say nothing about the order of events. Raises: UsageError, ColumnMissing."""
    check_graph(where, graph)
    if not graph.has_time:
        raise ColumnMissing(f"[{where}] expected a graph with times, got one without; make it with time=")


class Partition(Consumer):
    """What one worker holds. Make it with of(), in every worker or, with arrays(), elsewhere.

    Args:    graph: the local part, features left out; it neither offloads nor reloads.  newcomers: who owns each
             vertex, and those that come; this part's own copy.  rows: features of the slots held, in order of slot, as
             the graph's dtype stores them.  widths: of the features of each vertex type, in order of their codes; of a
             graph without types that of all.
    Raises:  ColumnMissing for a graph without times; UsageError.
    """

    needs_all_edges = False  # its readers ask where they may need more

    def __init__(
        self, graph: Graph, layout: Layout, rank: int, newcomers: Newcomers, rows: AnyArray, widths: Sequence[int]
    ) -> None:
        check_dated("Partition", graph)
        _check_owners(layout, newcomers)
        if newcomers.rule != "hash" and newcomers.parts.slot_count != graph.slot_count:
            raise UsageError(
                f"[Partition] expected newcomers of the graph as it is, of {graph.slot_count} slots, got those of "
                f"{newcomers.parts.slot_count}; make them with Newcomers.of(), after the graph's last batch"
            )
        self.graph, self.layout, self.rank, self.newcomers = graph, layout, rank, newcomers
        self._servers = layout.servers(rank)
        self._own = OwnSlots(self.is_held)
        self._own.grow(graph.slot_count)
        self._rows, self._widths = rows, np.array(widths, np.int64)
        self.next_edge_id = int(graph.host.store.next_edge_id)  # of the whole graph
        self._listeners: WeakSet[Any] = WeakSet()
        self._exchange: Exchange | None = None  # while a batch is applied
        self._voted = False  # whether the others have, or will get, this worker's answer to that batch
        self._taken: dict[str, AnyArray] = {}  # the columns of the last batch that stands, in slots
        with graph.host.writing("Partition"):
            graph.host.add_guard(self._refuse_alone)
            self.follower = _native.ChangedRows(graph.host.store, True)
            graph.host.attach(self)
            graph.host.take_by(self)

    @classmethod
    def of(cls, graph: Graph, layout: Layout, rank: int, newcomers: Newcomers | None = None) -> Self:
        """The part of a whole graph that a worker holds.

        Args:    newcomers: who owns each vertex, in layout.partitions parts, and those that come; it is copied. By
                 default a hash. Every worker is given the same.
        Raises:  ColumnMissing without times; UsageError.
        """
        return cls.from_arrays(cls.arrays(graph, layout, rank, newcomers), layout, rank)

    @staticmethod
    def arrays(graph: Graph, layout: Layout, rank: int, newcomers: Newcomers | None = None) -> dict[str, AnyArray]:
        """The part as arrays, for numpy.savez and from_arrays() in another process. Args, Raises: as of()."""
        check_dated("Partition", graph)
        graph.host.need_whole("Partition")
        if not 0 <= rank < layout.workers:
            raise UsageError(f"[Partition] expected a worker below {layout.workers}, got {rank}; see the layout")
        with graph.host.lock:
            if newcomers is None:
                newcomers = Newcomers.of(graph, hashed(layout.partitions), rule="hash")
            _check_owners(layout, newcomers)
            whole, widths = graph.to_arrays(), graph.host.schema.widths
        mine = newcomers.parts.of_first(len(whole["store.features"])) == layout.partition(rank)
        held = mine[whole["store.dst"]]
        if graph.undirected:
            held |= mine[whole["store.src"]]
        for name in ("src", "dst", "id", "weight", "time", "type", "attr"):
            if f"store.{name}" in whole:
                whole[f"store.{name}"] = np.ascontiguousarray(whole[f"store.{name}"][held])
        rows = whole["store.features"]
        whole["store.features"] = np.empty((len(rows), 0), rows.dtype)
        whole["option.feature_width"] = np.array(0, np.int64)
        whole["part.rows"] = np.ascontiguousarray(rows[mine])
        whole |= {f"part.newcomers.{name}": array for name, array in newcomers.to_arrays().items()}
        whole["part.widths"] = np.array(widths, np.int64)
        if "types.widths" in whole:
            whole["types.widths"] = np.zeros(len(widths), np.int64)
        return whole

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], layout: Layout, rank: int) -> Self:
        """The part that arrays() described. Raises: StoredStateInvalid."""
        graph = Graph.from_arrays({name: array for name, array in arrays.items() if not name.startswith("part.")})
        of_newcomers = {name[15:]: array for name, array in arrays.items() if name.startswith("part.newcomers.")}
        newcomers = Newcomers.from_arrays(of_newcomers)
        part = cls(graph, layout, rank, newcomers, np.array(arrays["part.rows"]), arrays["part.widths"].tolist())
        part.next_edge_id = int(arrays["store.counters"][1])
        return part

    @property
    def feature_width(self) -> int:
        """F of the whole graph, the widest type's where vertices have types."""
        return int(self._rows.shape[1])

    @property
    def feature_widths(self) -> dict[str, int]:
        """Graph.feature_widths of the whole graph: by vertex type, empty where vertices have none."""
        return dict(zip(self.graph.vertex_types or (), self._widths.tolist(), strict=False))

    def is_live(self, slots: Int64Array) -> BoolArray:
        """Which slots hold a vertex, of any part."""
        with self.graph.host.lock:
            live = self.graph.host.store.live()
            there = (slots >= 0) & (slots < len(live))
            there[there] = live[slots[there]]
        return there

    def is_held(self, slots: Int64Array) -> BoolArray:
        """Which vertices are of this part; of the graph's slots."""
        held: BoolArray = self.newcomers.parts.lookup(slots) == self.layout.partition(self.rank)
        return held

    def servers_of(self, slots: Int64Array) -> Int64Array:
        """The worker that this one asks about each vertex, (k,) int64."""
        return self._servers[self.newcomers.parts.lookup(slots)]

    def keepers_of(self, slots: Int64Array) -> Int64Array:
        """The worker that keeps the memory of each vertex, (k,) int64."""
        return self.layout.keepers(slots, self.newcomers.parts.lookup(slots))

    def feature_rows(self, slots: Int64Array) -> Float32Array:
        """(k, F) float32 features of vertices of this part, filled with zeros up to F."""
        return float16.read(self._rows[self._own.rows(slots)], self.graph.feature_dtype)

    # ---- batches

    def apply(self, updates: Updates, exchange: Exchange) -> int:
        """Applies a batch to all parts, all or none, and returns the new version. Every worker gives the same batch.

        Args:    updates: as the whole graph takes them.
        Raises:  UpdateError of the kind that the first bad update deserves, the same on all workers and in the words of
                 one process with the whole graph; then nothing has changed. What a consumer of the local graph raises
                 once the batch stands.
        """
        host, before = self.graph.host, self.graph.version
        try:
            with host.lock:
                self._exchange, self._voted = exchange, False
                try:
                    return host.apply(updates)[0]
                except Exception as error:
                    if self._voted:
                        raise
                    count = len(updates) if isinstance(updates, Updates) else 0
                    raise _Vote(exchange, None, writes=False).refuse(
                        _refusal(error, np.arange(count), count)
                    ) from error
                finally:
                    self._exchange = None
        finally:
            if self.graph.version != before:  # the batch stands, even where a consumer has failed since
                self._follow(self._taken)
                self._notify(self._taken, exchange)

    def take(self, buffer: _native.UpdateBuffer, apply: Callable[[_native.UpdateBuffer], Any]) -> Any:
        """For the graph's host: applies this part's updates of a batch, once all workers agree."""
        assert self._exchange is not None  # the guard refuses a batch without
        host, version = self.graph.host, self.graph.version
        columns, places = buffer.to_arrays(), buffer.given_places()
        columns["row_ends"] = np.cumsum(np.maximum(columns["row_width"], 0), dtype=np.int64)
        placement = self._placed(columns)
        kept = self._kept(columns, placement)
        mine = self._mine(columns, kept)
        vote = _Vote(self._exchange, self._wrong_row(columns, places), writes=bool(host.recorders))
        self._voted = True
        host.add_recorder(vote)  # the last one, so that what the others have written can be confirmed
        try:
            return apply(mine)
        except Exception as error:
            if not vote.is_awaited:
                raise
            raise vote.refuse(_refusal(error, places[kept], len(kept))) from error
        finally:
            host.drop_recorder(vote)
            if self.graph.version != version:
                self.next_edge_id += int(np.count_nonzero(columns["kind"] == _ADD_EDGE))
                self._taken = columns
                self.newcomers.accept(placement)

    def listen(self, listener: Listener) -> None:
        """From the next batch on the listener gets the changes of each, for as long as other code holds it."""
        self._listeners.add(listener)

    def inform(self, changes: BatchEffect) -> None:
        """Calls the listeners."""
        for listener in tuple(self._listeners):
            listener.changed(changes)

    def published(self, change: Any, version: int) -> None:
        """Nothing: what changed is taken from the follower once all workers have the batch."""

    def _refuse_alone(self, batch: list[VertexChange]) -> None:
        """A guard. Raises: UsageError for a batch that the other workers do not have."""
        if self._exchange is None:
            raise UsageError(
                "[apply] expected a batch that every worker applies, got one for the graph of a part alone; call "
                "Partition.apply in every worker, also for entries of a log"
            )

    def _wrong_row(self, columns: dict[str, AnyArray], places: Int64Array) -> _Refusal | None:
        """The local graph has no features, and could not say so: rows that the whole graph would not take are refused
        here, by all.
        """
        kind, widths, dtype = columns["kind"], columns["row_width"], self.graph.feature_dtype
        of_vertices = np.isin(kind, (_SET_FEATURES, _ADD_VERTEX))
        wanted = self._widths[np.where(of_vertices & self.graph.host.schema.has_types, columns["type"], 0)]
        wrong = np.flatnonzero(of_vertices & (widths != wanted))
        row = int(wrong[0]) if len(wrong) else len(kind)
        for other in np.flatnonzero(of_vertices[:row]).tolist() if dtype != "float32" else []:
            values = _row(columns, other)
            if (column := float16.first_unfit(values, dtype)) is not None:
                advice = "scale it down, or make the graph with a feature_dtype that holds it"
                got = f"{float(values[column]):.6f} in column {column}"
                return _refused(ValueInvalid, columns, other, places, f"features within {dtype}", got, advice)
        if row == len(kind):
            return None
        expected = f"a row of {wanted[row]} floats"
        return _refused(WidthMismatch, columns, row, places, expected, f"{widths[row]}", "give one per column")

    def _placed(self, columns: dict[str, AnyArray]) -> Placement:
        """The parts of the vertices that a batch brings; of one that will be refused, of those before the reason."""
        kept = sound(columns, self.graph.slot_count)
        return self.newcomers.choose({name: columns[name][kept] for name in ("kind", "u", "v")})

    def _kept(self, columns: dict[str, AnyArray], placement: Placement) -> BoolArray:
        """Which updates this part takes. What names no slot is one part's all the same, which refuses it."""
        kept: BoolArray = np.isin(columns["kind"], _EVERYWHERE)
        for end in ("u", "v") if self.graph.undirected else ("v",):
            parts = self.newcomers.lookup(np.clip(columns[end], 0, _SLOTS_MAX), placement)
            kept |= parts == self.layout.partition(self.rank)
        return kept

    def _mine(self, columns: dict[str, AnyArray], kept: BoolArray) -> _native.UpdateBuffer:
        """What this part takes of a batch."""
        kind = columns["kind"]
        added = kind == _ADD_EDGE
        ids = columns["edge_id"].copy()
        ids[added] = self.next_edge_id + np.arange(np.count_nonzero(added))
        width = columns["row_width"]
        of_vertices = np.isin(kind, (_SET_FEATURES, _ADD_VERTEX))
        rows = [_row(columns, place) for place in np.flatnonzero(kept & (width > 0) & ~of_vertices).tolist()]
        mine = {name: column[kept] for name, column in columns.items() if name not in ("rows", "row_ends")}
        mine["edge_id"] = ids[kept]
        mine["row_width"] = np.where(of_vertices & (width > 0), 0, width)[kept].astype(width.dtype)
        mine["rows"] = np.concatenate(rows) if rows else np.zeros(0, np.float32)
        buffer = _native.UpdateBuffer()
        buffer.from_arrays(mine)
        return buffer

    def _follow(self, columns: dict[str, AnyArray]) -> None:
        """Features after a batch: of each vertex's updates the last one counts."""
        self._own.grow(self.graph.slot_count)
        needed = len(self._own.slots)
        if needed > len(self._rows):
            more = np.zeros((room(len(self._rows), needed) - len(self._rows), self.feature_width), self._rows.dtype)
            self._rows = np.concatenate([self._rows, more])
        kind = columns["kind"]
        places = np.flatnonzero(np.isin(kind, (_SET_FEATURES, _ADD_VERTEX, _REMOVE_VERTEX)))[::-1]
        places = places[self.is_held(columns["u"][places])]
        slots, last = np.unique(columns["u"][places], return_index=True)
        for at, place in zip(self._own.rows(slots).tolist(), places[last].tolist(), strict=True):
            row = self._rows[at]
            row[:] = 0
            if kind[place] != _REMOVE_VERTEX:
                given = _row(columns, place)
                row[: len(given)] = float16.stored(given, self.graph.feature_dtype)

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
        vertices = slots[np.isin(kind, (_SET_FEATURES, _ADD_VERTEX))], slots[kind == _REMOVE_VERTEX]
        edges = BatchEffect.of_edges(sent[:, 0], sent[:, 1] != 0)
        self.inform(edges._replace(slots=vertices[0], slots_gone=vertices[1]))


def _check_owners(layout: Layout, newcomers: Newcomers) -> None:
    """Raises: UsageError for parts of another number."""
    if newcomers.parts.parts != layout.partitions:
        raise UsageError(
            f"[Partition] expected a graph cut into {layout.partitions} parts, as the layout has, got "
            f"{newcomers.parts.parts}; make as many"
        )


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


def _row(columns: dict[str, AnyArray], place: int) -> Float32Array:
    """The row of an update; empty where it has none."""
    ends = columns["row_ends"]
    return columns["rows"][ends[place] - max(int(columns["row_width"][place]), 0) : ends[place]]


def _refused(
    kind: type[UpdateError],
    columns: dict[str, AnyArray],
    row: int,
    places: Int64Array,
    expected: str,
    got: str,
    advice: str,
) -> _Refusal:
    """The refusal of an update of features, in the words of the store."""
    name = "set_features" if columns["kind"][row] == _SET_FEATURES else "add_vertex"
    vertex, place = int(columns["u"][row]), int(places[row])
    facts = Facts(where="apply", subject=f"{name} {vertex}", update=place, vertex=vertex)
    facts |= Facts(expected=expected, got=got, advice=advice)
    error = kind(**facts)
    return _Refusal(place, kind.__name__, str(error), error.facts())


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
