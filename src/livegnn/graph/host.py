"""GraphHost: the one writer of a graph, its version, and everything that is attached to it.

Locking. One re-entrant lock is held while a batch is applied and while the store is read, since a read must see whole
versions. `busy` marks a writer at work, so that a callback, which runs inside the applying thread and therefore passes
the lock, may read but not write. Engines publish their own rows and are not read under this lock.

Applying. ids are translated (only where the graph has ids of its own, or types) -> guards may refuse the batch -> one
native call applies the batch to the store and to everything attached, all or none; it asks the recorders when nothing
else can refuse the batch and no reader has seen it -> the id map follows -> each consumer's published() is called, in
order of attachment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakSet

import numpy as np

from livegnn import _native
from livegnn.errors import Facts, LiveGnnError, SpillUnavailable, UpdateError, UsageError
from livegnn.graph import checks, offload
from livegnn.graph.consumers import (
    Consumer,
    Guard,
    IdHolder,
    Recorded,
    Recorder,
    Switch,
    Switching,
    Taker,
    VertexChange,
)
from livegnn.graph.expiry import Expiry
from livegnn.graph.ids import IdChange, NamedIds, SlotIds, VertexIds
from livegnn.graph.ids_then import IdsThen, OldIds
from livegnn.graph.load import WeightColumn
from livegnn.graph.offload import NOTHING
from livegnn.graph.schema import GraphSchema
from livegnn.graph.threads import core_count
from livegnn.graph.updates import Updates, VertexType
from livegnn.types import Int64Array

_apply_batch = _native.apply_batch  # looked up once: it is called for each batch


class GraphHost:
    """What engines, samplers, trainers and logs share of one graph: `graph.host`. Users need Graph alone.

    Reading.   Hold `lock` to read `store` or to translate ids: a batch under way or a what_if block of another thread
               is waited for. `in_what_if` says that this thread is inside such a block: the store then holds what is
               only supposed, and has no ids for new vertices. Rows with ids, read without the lock, are of one version
               if `ids_version` was the same before and after, and at least 0.
    Writing.   writing(where) holds the writer's place; it raises UsageError inside a callback (`busy`) and what_if.
    Following. attach(consumer) inside writing(): from the next batch on the consumer takes part. apply(updates,
               consumer) returns what consumer.published() made of the batch. add_guard(): called before each batch
               with the vertices that it adds and removes. hold_ids(holder): called once, before slots get other ids;
               `id_epoch` counts these batches.
    Recording. add_recorder(recorder): asked for each batch, in two steps; see Recorder. Where there are recorders, a
               consumer's switch goes through switch(); redo() repeats a recorded one.
    """

    def __init__(
        self,
        options: dict[str, Any],
        named: NamedIds | None,
        *,
        block_edges_max: int,
        weight_column: WeightColumn | None = "weight",
        time_unit: str | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        self.schema = GraphSchema.nameless(options["feature_width"]) if named is None else named.schema
        types = self.schema.store_options()
        self.store = _native.GraphStore(**options, block_edges_max=block_edges_max, **types)
        self.store.set_apply_threads(core_count())
        self.options = options
        self.ids_are_slots = named is None  # a vertex's id is its slot: no ids= and no types
        self.ids: VertexIds = SlotIds(self.schema, self.store) if named is None else named
        self.weight_column = weight_column  # where the weights, if any, come from
        self.time_unit = time_unit  # of the datetime64 values that were given so far; numbers have none
        self.expiry = expiry  # the edges' ttl
        self.offloaded = NOTHING
        self.lock = threading.RLock()
        self.busy = False
        self.in_what_if = False
        self.ids_version = 0  # of the ids as they are: the store's, but while a batch is under way; -1 while they move
        self.id_epoch = 0  # batches that have given slots other ids
        self.old_ids = OldIds()  # of the snapshots that are open
        self.consumers: tuple[Consumer, ...] = ()
        self.recorders: tuple[Recorder, ...] = ()
        self.taker: Taker | None = None  # of a part of a graph, which takes its own updates out of each batch
        self._guards: tuple[Guard, ...] = ()
        self._id_holders: WeakSet[IdHolder] = WeakSet()
        self._natives: list[Any] = []
        self._followers: list[Any] = []
        self._only: Consumer | None = None  # the one consumer, where there is one and it is native
        self._direct = False  # engines and followers get batches as they are: no ttl, part or recorder

    # ---- the writer's place

    @contextmanager
    def writing(self, where: str) -> Iterator[None]:
        """Holds the writer's place: other threads' writers and readers wait; a callback of this thread is refused."""
        with self.lock:
            self.refuse_busy(where)
            self.busy = True
            try:
                yield
            finally:
                self.busy = False

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """Marks a what_if block; inside writing()."""
        self.in_what_if = True
        try:
            yield
        finally:
            self.in_what_if = False

    def refuse_busy(self, where: str) -> None:
        """Refuses a writer inside another one. The caller holds the lock. Raises: UsageError."""
        if self.busy:
            raise UsageError(
                f"[{where}] expected a graph with no batch under way in this thread, got a call from inside one "
                "(an on_change callback or a what_if block); do it after that has ended"
            )

    # ---- what is attached

    def attach(self, consumer: Consumer) -> None:
        """From the next batch on the consumer takes part; may be called while this thread holds writing().

        Raises:  what attaching() raises, for one that needs all edges while some lie in files.
        """
        with self.lock:
            if consumer.needs_all_edges:
                self._copy_away(type(consumer).__name__)
            self.consumers = (*self.consumers, consumer)
            self.renew_natives()

    @contextmanager
    def attaching(self, where: str) -> Iterator[None]:
        """writing(), for making a consumer that reads whole lists and attaching it: the block has copies of all edges
        that lie in files.

        Raises:  DataMissing, StoredStateInvalid for a file that is gone or damaged; SpillUnavailable without room.
        """
        with self.writing(where):
            try:
                self._copy_away(where)
                yield
            finally:
                self.drop_copies()

    def _copy_away(self, where: str) -> None:
        if self.offloaded.count and not self.store.has_copies:
            self.need_whole(where)
            offload.copy(self, where)

    def drop_copies(self) -> None:
        """Drops the copies of edges in files that nothing attached needs. The caller holds the lock."""
        if not any(consumer.needs_all_edges for consumer in self.consumers):
            self.store.drop_copies()

    def detach(self, consumer: Consumer) -> None:
        """Later batches leave the consumer out. A second call does nothing."""
        with self.lock:
            self.consumers = tuple(each for each in self.consumers if each is not consumer)
            self.renew_natives()
            self.drop_copies()

    def renew_natives(self) -> None:
        """Takes the native halves of all consumers anew. The caller holds the lock."""
        self._natives = [each.native for each in self.consumers if each.native is not None]
        self._only = self.consumers[0] if len(self.consumers) == len(self._natives) == 1 else None
        self._followers = [each.follower for each in self.consumers if each.follower is not None]
        self._find_way()

    def _find_way(self) -> None:
        plain = not self.recorders and self.expiry is None and self.taker is None
        plain = plain and not any(each.excused for each in self.consumers)
        self._direct = plain and bool(self._natives or self._followers)

    def excuse(self, consumer: Consumer, refused: Callable[[LiveGnnError], object]) -> None:
        """From now on the consumer refuses no batch: one that its native half cannot take goes on without it.

        Args:    refused: called with the error, once such a batch stands; the consumer is detached by then.
        """
        with self.lock:
            consumer.excused = refused
            self._find_way()

    def add_guard(self, guard: Guard) -> None:
        """Calls guard(changes) before each batch, with the vertices that it adds and removes; it may refuse it."""
        self._guards = (*self._guards, guard)

    def drop_guard(self, guard: Guard) -> None:
        """Ends that. A second call does nothing."""
        self._guards = tuple(each for each in self._guards if each != guard)

    def add_recorder(self, recorder: Recorder) -> None:
        """Asks the recorder, after the others, from the next batch on. The caller holds the lock."""
        self.recorders = (*self.recorders, recorder)
        self._find_way()

    def drop_recorder(self, recorder: Recorder) -> None:
        """Asks it no more. The caller holds the lock. A second call does nothing."""
        self.recorders = tuple(each for each in self.recorders if each is not recorder)
        self._find_way()

    def take_by(self, taker: Taker) -> None:
        """From the next batch on the taker takes its own updates out of each: this graph is a part of another one."""
        self.taker = taker
        self._find_way()

    def hold_ids(self, holder: IdHolder) -> None:
        """Calls holder.before_ids_move() before slots get other ids; never in a graph whose ids are its slots."""
        if not self.ids_are_slots:
            self._id_holders.add(holder)

    def need_whole(self, where: str) -> None:
        """Refuses what reads or writes files of edges, for a part of a graph. Raises: UsageError."""
        if self.taker is not None:
            raise UsageError(
                f"[{where}] expected a whole graph, got that of a {type(self.taker).__name__}, whose files hold "
                "edges of other parts too; offload, reload and partition before the graph is cut, or repartition() it"
            )

    def need_all_edges(self, where: str) -> None:
        """Refuses a reader of whole lists that is not attached, where edges lie in files. Raises: UsageError."""
        away = self.offloaded
        if away.count:
            raise UsageError(
                f"[{where}] expected a graph with all edges in memory, got {away.count} of them in files "
                f"(time < {away.before}); call graph.reload() first"
            )

    # ---- one batch

    def apply(
        self, updates: Updates, consumer: Consumer | None = None, recorded: Recorded | None = None
    ) -> tuple[int, Any]:
        """Applies a batch; the new version, and what this consumer made of the batch.

        At batches of one update every call in here counts: the usual case goes straight through.

        Args:    recorded: what the recorders get, where that is not the batch.
        Raises:  as Graph.apply; UsageError for a consumer that is not attached.
        """
        if type(updates) is not Updates and not isinstance(updates, Updates):
            raise UsageError(
                f"[apply] expected Updates, got {type(updates).__name__}; collect the changes in livegnn.Updates()"
            )
        with self.lock:
            if self.busy:
                self.refuse_busy("apply")
            if consumer is not None and consumer is not self._only:
                self._refuse_detached(consumer)
            unit = self.time_unit if updates.time_unit is None else self.same_unit("apply", updates.time_unit)
            version_before = self.store.version if unit != self.time_unit else None
            self.busy = True
            try:
                if self.ids_are_slots and updates._keys is None and not updates._types:
                    if self._guards:
                        self._ask_guards(updates, updates._buffer)
                    if self._direct:
                        changes = _apply_batch(self.store, self._natives, self._followers, updates._buffer)
                    else:
                        changes = self._apply_native(updates._buffer, updates if recorded is None else recorded)
                else:
                    changes = self._apply_named(updates, updates if recorded is None else recorded)
                self.ids_version = version = self.store.version
                if consumer is not None and consumer is self._only:
                    return version, consumer.published(changes[0], version)
                return version, self._publish(changes, version, consumer)
            except BaseException:
                self.ids_version = self.store.version  # the batch may stand all the same
                raise
            finally:
                self.busy = False
                if version_before is not None and self.store.version != version_before:  # the batch stands
                    self.time_unit = unit

    def _refuse_detached(self, wanted: Consumer) -> None:
        if not any(consumer is wanted for consumer in self.consumers):
            kind = type(wanted).__name__
            raise UsageError(
                f"[apply] expected an open {kind}, got one that was closed; apply to its graph, or make a new one"
            )

    def supposed(self, updates: Updates) -> tuple[_native.UpdateBuffer, IdChange | None]:
        """A batch as the store would get it now, and what it would do to the ids. Raises: as apply."""
        buffer, change = self.ids.translate(updates)
        return (buffer if self.expiry is None else self.expiry.written_out(buffer)[0]), change

    def _apply_native(self, buffer: _native.UpdateBuffer, recorded: Recorded) -> Any:
        """The batch in slots, all or none, with the removals of what expires in it; of a part its own updates."""
        version, now = self.store.version, 0
        if self.expiry is not None:
            buffer, now = self.expiry.written_out(buffer)
        try:
            if self.taker is None:
                return self._apply_to_store(buffer, recorded)
            return self.taker.take(buffer, lambda mine: self._apply_to_store(mine, recorded))
        finally:
            if self.expiry is not None and self.store.version != version:  # the batch stands
                self.expiry.now = now

    def _apply_to_store(self, buffer: _native.UpdateBuffer, recorded: Recorded) -> Any:
        if not self.recorders and not self._natives and not self._followers:
            self.store.apply(buffer)
            return ()
        record = (lambda: self._record(recorded)) if self.recorders else None
        natives, version = self._natives, self.store.version
        refused: list[tuple[Consumer, LiveGnnError]] = []
        try:
            while True:
                try:
                    return _apply_batch(self.store, natives, self._followers, buffer, record)
                except (UpdateError, SpillUnavailable) as error:
                    spared = self._excused_by(error, natives)
                    if spared is None:
                        raise
                    refused.append((spared, error))
                    natives = [each for each in natives if each is not spared.native]
        finally:
            if self.store.version != version:  # else the state of those that refused is that of the graph as before
                for consumer, reason in refused:
                    self.detach(consumer)
                    if consumer.excused is not None:
                        consumer.excused(reason)

    def _excused_by(self, error: LiveGnnError, natives: list[Any]) -> Consumer | None:
        """The excused consumer whose native half refused the batch."""
        if error.refused_by is None:
            return None
        native = natives[error.refused_by]
        return next((each for each in self.consumers if each.native is native and each.excused is not None), None)

    def _record(self, recorded: Recorded) -> None:
        """All recorders agree, then all append; else those that have prepared abort, the last one first."""
        if self.expiry is not None and isinstance(recorded, Updates):
            recorded = self.expiry.recorded(recorded)
        with ExitStack() as undo:
            for recorder in self.recorders:
                recorder.prepare(recorded)
                undo.callback(recorder.abort)
            for recorder in self.recorders:
                recorder.append(recorded)
            undo.pop_all()

    def _apply_named(self, updates: Updates, recorded: Recorded) -> Any:
        """Applies updates whose ids are not slots; the id map follows only what the store has taken."""
        buffer, change = self.ids.translate(updates)
        if self._guards:
            self._ask_guards(updates, buffer)
        if change is None:
            return self._apply_native(buffer, recorded)
        if updates._vertex_ops and self._id_holders:
            for holder in tuple(self._id_holders):
                holder.before_ids_move()
            self._id_holders.clear()
        version = self.store.version
        try:
            return self._apply_native(buffer, recorded)
        except UpdateError as error:
            named = _by_ids(error, updates, change)
            if named is error:
                raise
            raise named from error
        finally:
            if self.store.version != version:  # the batch stands, even where something attached has failed since
                self.ids_version = -1  # until the ids are those of the new version
                self.old_ids.before_commit(change)
                change.commit()
                self.id_epoch += bool(updates._vertex_ops)

    def _ask_guards(self, updates: Updates, buffer: _native.UpdateBuffer) -> None:
        """Calls every guard with the vertices that the batch adds and removes, in order."""
        batch: list[VertexChange] = []
        if updates._vertex_ops:
            slots, ids, keys = buffer.ids()[0].tolist(), updates._buffer.ids()[0].tolist(), updates._keys
            codes = buffer.types().tolist() if self.schema.has_types else [0] * len(slots)
            for first, last, adds in updates._vertex_ops:
                names = ids[first:last] if keys is None else [keys[place] for place in ids[first:last]]
                places = range(first, last)
                batch.extend(
                    map(VertexChange, slots[first:last], names, [adds] * len(names), places, codes[first:last])
                )
        for guard in self._guards:
            guard(batch)

    def _publish(self, changes: Any, version: int, wanted: Consumer | None) -> Any:
        """Calls published() of every consumer, even after one has failed; then the first failure is raised."""
        result, failure, remaining = None, None, iter(changes)
        for consumer in self.consumers:
            change = None if consumer.native is None else next(remaining)
            try:
                answer = consumer.published(change, version)
            except BaseException as error:  # the batch stands; the others must follow it all the same
                if failure is None or not isinstance(error, Exception):  # Ctrl-C goes first
                    failure = error
                continue
            if consumer is wanted:
                result = answer
        if failure is not None:
            raise failure
        return result

    # ---- switches

    def switch(self, consumer: Switching, native: Any, switch: Switch, take: Callable[[], object]) -> None:
        """One version without updates. `native` follows it in place of the consumer's own; recorders get the switch.

        Args:    take: makes `native` the consumer's own; called when the version stands, before published().
        Raises:  UsageError where another consumer has that name; what guards and recorders raise. Then nothing has
                 changed.  The caller holds writing().
        """
        self._named(switch)
        for guard in self._guards:
            guard([])
        natives = [native if each is consumer.native else each for each in self._natives]
        record = lambda: self._record(switch)  # noqa: E731
        version = self.store.version
        try:
            changes = _apply_batch(self.store, natives, self._followers, Updates().buffer, record)
        finally:
            if self.store.version != version:  # it stands, even where something attached has failed since
                self.ids_version = self.store.version
                take()
                self.renew_natives()
        self._publish(changes, self.store.version, None)

    def redo(self, switch: Switch) -> None:
        """Repeats a recorded switch, or is a version without updates where no consumer has its name."""
        with self.lock:
            consumer = self._named(switch)
            if consumer is None:
                self.apply(Updates(), recorded=switch)
            else:
                consumer.redo(switch)

    def _named(self, switch: Switch) -> Switching | None:
        found = [each for each in self.consumers if isinstance(each, Switching) and each.name == switch.name]
        if len(found) > 1:
            raise UsageError(
                f"[{switch.kind}] expected one {type(found[0]).__name__} named {switch.name!r} on a graph with a log, "
                f"got {len(found)}; give each a name= of its own"
            )
        return found[0] if found else None

    # ---- times

    def edge_time(self, where: str, name: str, value: object) -> int:
        """A time as a number in the graph's unit. Raises: DtypeInvalid, ValueInvalid."""
        number = checks.edge_time(where, name, value)
        checks.same_unit(where, name, self.time_unit, checks.time_unit(value))
        return number

    def same_unit(self, where: str, unit: str | None) -> str | None:
        """The unit of times once values of `unit` are given. Raises: ValueInvalid for two units."""
        return checks.same_unit(where, "times", self.time_unit, unit)

    # ---- ids

    def live_slots(self, where: str, vertex_type: VertexType | None = None) -> Int64Array:
        """Slots of the live vertices, of one type where there are types."""
        code = self.schema.vertex_code(where, vertex_type)
        return np.flatnonzero(self.store.vertex_types() == code if self.schema.has_types else self.store.live())

    def ids_now(self) -> IdsThen:
        """A reader of the ids of this version, once old_ids.hold() has it."""
        return IdsThen(self.ids)


def _by_ids(error: UpdateError, updates: Updates, change: IdChange) -> UpdateError:
    """The error with the user's ids in place of slots; the error itself where it names no vertex."""
    if error.update is not None and error.update < len(updates):
        keys, ids = updates._keys, [int(x[error.update]) for x in updates._buffer.ids()]
        vertices = change.vertices_of(error.update, [x if keys is None else keys[x] for x in ids if x >= 0])
        said = "by the graph's ids: {}"
    else:
        slots = error.edge or (() if error.vertex is None else (error.vertex,))
        found = [change.vertex_at(int(slot)) for slot in slots]
        vertices = [vertex for vertex in found if vertex is not None] if None not in found else []
        said = "edge {} by the graph's ids" if error.edge else "vertex {} by the graph's ids"
    if not vertices:
        return error
    names = [name for _, name in vertices]
    facts = Facts(vertex=names[0]) if len(names) == 1 else Facts(edge=(names[0], names[1]))
    shown = " -> ".join(change.base.schema.labelled(code, name) for code, name in vertices)
    return error.reworded(f"{error} ({said.format(shown)})", **facts)
