"""The directory: what the driver of a cluster keeps of the graph. It knows every vertex, its id, its type and its part,
and no edge and no row of features. Ids, schema, guards, logs and versions are those of a graph, so it is one, without
edges.

A batch comes in as to any graph. The directory takes the vertices that it adds and removes; the workers get it whole,
in slots, once every recorder (a log) has it, and refuse it or not: all or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import numpy as np

from livegnn import _native
from livegnn.distributed.cluster.batch import SlotBatch
from livegnn.distributed.cluster.cut import EDGE_COLUMNS
from livegnn.distributed.cluster.part import NewOwners
from livegnn.distributed.cluster.vertex_graph import VertexGraph
from livegnn.distributed.partition import Newcomers, Placement
from livegnn.distributed.partition.newcomers import sound
from livegnn.errors import DegreeNegative, LiveGnnError, RangeOverflow, UpdateError, VertexIdGap, VertexUnknown
from livegnn.graph.consumers import Recorded, Recorder
from livegnn.graph.graph import Graph
from livegnn.graph.updates import Updates
from livegnn.types import AnyArray, Int64Array


class Workers(Protocol):
    """Who applies what a directory takes. In one step, or in two with others' agreement between them. recorded: the
    batch as a log would write it.
    """

    def apply_batch(self, batch: SlotBatch, owners: NewOwners, recorded: Recorded) -> None:
        """Applies a batch. Raises: what they refuse it for; then nothing has changed."""

    def hold_batch(self, batch: SlotBatch, owners: NewOwners, recorded: Recorded) -> None:
        """Applies a batch, but for its publication. Raises: as apply_batch()."""

    def publish_held(self) -> None:
        """The batch that is held stands."""

    def take_back_held(self) -> None:
        """The batch that is held does not stand. Nothing where none is."""

    def refusal(self, batch: SlotBatch, owners: NewOwners) -> LiveGnnError | None:
        """What they would refuse a batch for; nothing changes."""


_Kind = _native.UpdateKind
_OF_VERTICES = (_Kind.AddVertex.value, _Kind.RemoveVertex.value)


class _Ahead:
    """Workers that have all batches."""

    def apply_batch(self, batch: SlotBatch, owners: NewOwners, recorded: Recorded) -> None:
        """Nothing."""

    hold_batch = apply_batch

    def publish_held(self) -> None:
        """Nothing."""

    take_back_held = publish_held

    def refusal(self, batch: SlotBatch, owners: NewOwners) -> LiveGnnError | None:
        """Nothing."""
        return None


class Directory:
    """The graph without edges and features, and where new vertices go.

    Args:   graph: the whole one; it is copied.  newcomers: the rule for its parts.
    """

    def __init__(self, graph: Graph, newcomers: Newcomers) -> None:
        self._begin(_without_edges(graph), newcomers, int(graph.host.store.next_edge_id))

    def _begin(self, graph: VertexGraph, newcomers: Newcomers, next_edge_id: int) -> None:
        self.graph, self.newcomers = graph, newcomers
        self._slot_count = graph.slot_count
        self.next_edge_id = next_edge_id  # of the whole graph
        self.graph.host.take_by(self)

    def to_arrays(self, newcomers: Newcomers | None = None) -> dict[str, AnyArray]:
        """The directory between two batches, for from_arrays(). newcomers: in place of the present rule."""
        arrays = {f"graph.{name}": array for name, array in self.graph.to_arrays().items()}
        arrays |= {"next_edge_id": np.array(self.next_edge_id, np.int64)}
        return self.with_newcomers(arrays, newcomers or self.newcomers)

    @staticmethod
    def with_newcomers(arrays: Mapping[str, AnyArray], newcomers: Newcomers) -> dict[str, AnyArray]:
        """The same of another rule."""
        kept = {name: array for name, array in arrays.items() if not name.startswith("newcomers.")}
        return kept | {f"newcomers.{name}": array for name, array in newcomers.to_arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """What to_arrays() described. Raises: StoredStateInvalid; KeyError without one of them."""
        graph, newcomers = (
            {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
            for part in ("graph.", "newcomers.")
        )
        made = cls.__new__(cls)
        made._begin(VertexGraph.from_arrays(graph), Newcomers.from_arrays(newcomers), int(arrays["next_edge_id"]))
        return made

    def replay(self, updates: Updates) -> None:
        """Follows a batch that the workers have, before serve()."""
        self.serve(_Ahead())
        self.graph.host.apply(updates)

    def serve(self, workers: Workers) -> None:
        """From now on batches of the graph go to these workers."""
        self.workers = workers

    def owners_in(self, batch: SlotBatch) -> tuple[Placement, NewOwners]:
        """See placed()."""
        return placed(batch, self.newcomers, self._slot_count)

    def refuse_gaps(self, buffer: _native.UpdateBuffer) -> None:
        """For a batch that the graph itself does not see. Raises: VertexIdGap, as Graph.apply."""
        columns, next_slot = buffer.to_arrays(), self._slot_count
        for place in np.flatnonzero(columns["kind"] == _Kind.AddVertex.value).tolist():
            slot = int(columns["u"][place])
            if slot > next_slot:
                raise VertexIdGap(
                    where="apply",
                    expected=f"the next id {next_slot} or a removed one",
                    got=str(slot),
                    advice="number vertices without gaps",
                    subject=f"add_vertex {slot}",
                    update=int(buffer.given_places()[place]),
                )
            next_slot += slot == next_slot

    def live_after(self, batch: SlotBatch, owners: NewOwners) -> AnyArray:
        """By slot: whether it would be live after a batch."""
        live = np.zeros(owners.first + len(owners.owners), np.uint8)
        live[: self._slot_count] = self.graph.host.store.live()
        columns = batch.to_columns()
        for kind, slot in zip(columns["kind"].tolist(), columns["u"].tolist(), strict=True):
            if kind in _OF_VERTICES and 0 <= slot < len(live):
                live[slot] = kind == _Kind.AddVertex.value
        return live

    def parts_of(self, slots: Int64Array, supposed: NewOwners | None = None) -> AnyArray:
        """The part of each slot; supposed: of those of a batch that is looked at."""
        found = self.newcomers.parts.lookup(slots)
        if supposed is not None:
            new = slots >= supposed.first
            found[new] = supposed.owners[slots[new] - supposed.first]
        return found

    def take(self, buffer: _native.UpdateBuffer, apply: Callable[[_native.UpdateBuffer], Any]) -> Any:
        """For the graph's host: takes the vertices of a batch; the workers take all of it."""
        batch, added_edges = SlotBatch.of(buffer), buffer.count(_Kind.AddEdge)
        last = _LastRecorder(self, batch)
        host = self.graph.host
        host.add_recorder(last)  # after those that write
        try:
            changes = apply(buffer.vertices())
        except UpdateError as error:
            if error.update is None:
                raise
            place = error.update if last.failed is error else int(_places_of_vertices(batch)[error.update])
            first: LiveGnnError = error.reworded(update=place)
            if last.failed is not error or isinstance(error, VertexUnknown):  # vertices are looked at first
                first = self._first_refused(batch, first)
            first = self._of_one_engine(first, batch)
            raise first.reworded(update=int(buffer.given_places()[first.update])) from error
        except BaseException:
            self.workers.take_back_held()  # an interrupt may have come before the recorders knew of it
            raise
        finally:
            host.drop_recorder(last)
        assert last.placement is not None
        self.newcomers.accept(last.placement)
        self._slot_count = self.graph.slot_count
        self.next_edge_id += added_edges
        return changes

    def _of_one_engine(self, error: LiveGnnError, batch: SlotBatch) -> LiveGnnError:
        """In the words of an engine, which has seen the slots of updates before alone."""
        if not isinstance(error, VertexUnknown) or not isinstance(error.vertex, int):
            return error
        columns, last = batch.to_columns(), self._slot_count - 1
        before = columns["u"][: error.update][columns["kind"][: error.update] == _Kind.AddVertex.value]
        count = int(before.max(initial=last)) + 1
        if error.vertex < count:
            return error
        expected, got = f"vertex ids in 0 .. {count - 1}", str(error.vertex)
        return error.reworded(expected=expected, got=got, advice="add the vertex first")

    def _first_refused(self, batch: SlotBatch, error: LiveGnnError) -> LiveGnnError:
        """What an engine, which goes through a batch in order, refuses where a vertex is refused: that, or an update
        before it that the workers refuse.
        """
        while error.update:
            before = batch.first(error.update)
            found = self.workers.refusal(before, self.owners_in(before)[1])
            if found is None or found.update is None or isinstance(found, RangeOverflow | DegreeNegative):
                break  # an engine sees these last
            error = found
            if not isinstance(found, VertexUnknown):
                break
        return error


class _LastRecorder(Recorder):
    """The workers, after every other recorder. Where there are others (a log), the workers hold the batch before any of
    them writes it down, since none can erase what it has written.
    """

    def __init__(self, directory: Directory, batch: SlotBatch) -> None:
        self._directory, self._batch, self._workers = directory, batch, directory.workers
        self._alone = not directory.graph.host.recorders
        self.placement: Placement | None = None
        self._owners = NewOwners(0, np.zeros(0, np.uint16))
        self.failed: LiveGnnError | None = None

    def prepare(self, recorded: Recorded) -> None:
        """Raises: what the workers refuse the batch for."""
        self.placement, self._owners = self._directory.owners_in(self._batch)
        if not self._alone:
            self._ask(self._workers.hold_batch, recorded)

    def append(self, recorded: Recorded) -> None:
        """Raises: what the workers refuse the batch for, where it is theirs alone."""
        if self._alone:
            self._ask(self._workers.apply_batch, recorded)
        else:
            self._workers.publish_held()

    def _ask(self, question: Callable[[SlotBatch, NewOwners, Recorded], None], recorded: Recorded) -> None:
        try:
            question(self._batch, self._owners, recorded)
        except LiveGnnError as error:
            self.failed = error
            raise

    def abort(self) -> None:
        """Another recorder has failed."""
        self._workers.take_back_held()


def placed(batch: SlotBatch, newcomers: Newcomers, slot_count: int) -> tuple[Placement, NewOwners]:
    """The parts of the slots that a batch is the first to use, in a graph of so many slots. Nothing changes.

    What names no slot is for the workers to refuse.
    """
    if batch.added is None:
        return newcomers.nothing(), NewOwners(slot_count, np.zeros(0, np.uint16))
    count, columns = max(int(batch.added.max(initial=-1)) + 1, slot_count), batch.to_columns()
    kept = sound(columns, slot_count)
    placement = newcomers.choose({name: columns[name][kept] for name in ("kind", "u", "v")})
    last = min(count, placement.first_slot) if len(placement.parts) else count
    known = newcomers.parts.lookup(np.arange(slot_count, last, dtype=np.int64))
    return placement, NewOwners(slot_count, np.concatenate([known, placement.parts]))


def _without_edges(graph: Graph) -> VertexGraph:
    with graph.host.lock:
        graph.host.need_all_edges("Cluster")
        whole = graph.to_arrays()
    for name in EDGE_COLUMNS:
        if f"store.{name}" in whole:
            whole[f"store.{name}"] = whole[f"store.{name}"][:0]
    rows = whole["store.features"]
    whole["store.features"] = np.empty((len(rows), 0), rows.dtype)
    whole["option.feature_width"] = np.array(0, np.int64)
    if "types.widths" in whole:
        whole["types.widths"] = np.zeros(len(whole["types.widths"]), np.int64)
    return VertexGraph.from_arrays(whole)


def _places_of_vertices(batch: SlotBatch) -> Int64Array:
    """The updates of a batch that add or remove a vertex."""
    return np.flatnonzero(np.isin(batch.to_columns()["kind"], _OF_VERTICES))
