"""PartWorker: what one worker of a cluster holds and remembers. It has no wire of its own and knows no host.

A worker keeps the parcels of every round since its snapshot. So when one of the others starts again from its own
snapshot, this worker repeats its rounds and goes back nowhere: only the one that was lost works again.

Invariant: a version is a number of batches. At version v the worker has the parcels of the rounds of every batch after
its snapshot up to v, and those of a start from the snapshot.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from livegnn import _native
from livegnn.distributed.cluster.batch import PartChanges, SlotBatch
from livegnn.distributed.cluster.cut import PartArrays, Share, joined_shares, share_of
from livegnn.distributed.cluster.holding import Holding
from livegnn.distributed.cluster.notes import DriverNotes, GivenBatch, PartSnapshot, Rounds
from livegnn.distributed.cluster.part import NewOwners, PartEngine, Swap
from livegnn.distributed.cluster.part_files import read_share, write_arrays
from livegnn.distributed.cluster.recipe import Recipe
from livegnn.distributed.cluster.refusals import PartRefusal
from livegnn.distributed.cluster.shuffle import NewCut, shuffle
from livegnn.distributed.cluster.snapshot_files import StoredPart
from livegnn.distributed.cluster.work import Work
from livegnn.distributed.partition import PartitionReport
from livegnn.errors import InvariantBroken, UpdateError, UsageError, WorkerUnavailable
from livegnn.inference.best import BestSlots, Comparison
from livegnn.inference.engine import coarsened
from livegnn.types import AnyArray, Float32Array, Int64Array


class _Copied(NamedTuple):
    """What a snapshot is to be made of. token: of the driver, for this one alone."""

    version: int
    token: str
    formed: Callable[[], PartSnapshot]


class _Done(NamedTuple):
    rounds: Rounds
    changes: PartChanges
    given: GivenBatch | None


def _weakly(send: Swap) -> Swap:
    """The same method, without holding its worker: what native code holds is in no cycle that Python could find."""
    held = weakref.WeakMethod(send)

    def swap(parcels: list[bytes]) -> list[bytes]:
        found = held()
        assert found is not None  # the worker holds the engine that calls
        return found(parcels)

    return swap


class PartWorker:
    """One worker.

    Args:    swap: sends one parcel to each worker.  near: the workers on this one's host. Both may be exchanged between
             two calls.
    """

    def __init__(self, swap: Swap, threads: int = 1, near: Sequence[int] = ()) -> None:
        self.swap, self._threads, self._near = swap, threads, near
        self.version = -1  # nothing is there yet
        self._part: PartEngine | None = None
        self._sending: Rounds | None = None  # of the batch at work
        self._done: dict[int, _Done] = {}  # by version
        self._snapshots: dict[int, Rounds] = {}  # their parcels, by version: the newest, and one before until it goes
        self._copied: _Copied | None = None  # until the snapshot is made of it
        self._driver_states: dict[int, bytes] = {}  # likewise
        self._moves_max = -1  # rows that a batch may move and the engine keeps; -1: none are kept
        self._holding: Holding | None = None
        self._view: Any = None
        self._next: Any = None  # the native engine that takes over in a swap
        self._share: tuple[int, list[Share]] | None = None  # what was read, until start_shuffled()

    @property
    def part(self) -> PartEngine:
        """The engine. Raises: InvariantBroken before start()."""
        if self._part is None:
            raise InvariantBroken("invariant broken: a worker without a part was asked")
        return self._part

    def set_near(self, workers: Sequence[int]) -> None:
        """Those on this one's host, from now on."""
        if workers is self._near:  # as at every call
            return
        self._near = workers
        if self._part is not None:
            self._part.set_near(workers)

    def _send(self, parcels: list[bytes]) -> list[bytes]:
        if self._sending is not None:
            self._sending.append(parcels)
        return self.swap(parcels)

    # ---- start; rounds

    def start(
        self,
        version: int,
        arrays: PartArrays,
        recipe: Recipe,
        scales: list[list[int]],
        memory: dict[str, AnyArray] | None = None,
    ) -> None:
        """Runs the model on the part. scales: none are chosen where some are given."""
        given: dict[str, Any] = {"threads": self._threads, "scales": scales, "memory": memory, "near": self._near}
        self._part = PartEngine(arrays, recipe.program(), _weakly(self._send), **given)
        self._part.native.keep_moves(self._moves_max)
        self.version = version
        self._work = Work(self._part.halo.locals)
        self._view = self._next = None
        self._done.clear()
        self._snapshots.clear()
        self._copied = None
        self._driver_states.clear()

    def read_share(
        self, number: int, files: Sequence[tuple[Path, str]], options: dict[str, Any], slot_count: int
    ) -> None:
        """Reads some files of a graph in parts, as the worker of that number. No round. Raises: as of part_files."""
        self._share = number, [read_share(files, options, slot_count)]

    def read_snapshots(self, number: int, *snapshots: PartSnapshot | StoredPart) -> None:
        """The same of what workers of another cut have of their snapshots. Raises: as StoredPart.read()."""
        read = (each.read() if isinstance(each, StoredPart) else each for each in snapshots)
        self._share = number, [share_of(PartArrays.from_arrays(each.arrays)) for each in read]

    def start_shuffled(self, new: NewCut, recipe: Recipe, scales: list[list[int]]) -> None:
        """start() on what all have read, once they have exchanged it."""
        self.start(new.version, self._shuffled(new), recipe, scales)

    def _shuffled(self, new: NewCut) -> PartArrays:
        if self._share is None:
            raise InvariantBroken("invariant broken: a worker starts from what it has not read")
        (number, shares), self._share = self._share, None
        return shuffle(joined_shares(shares, new.options), number, new, self.swap)

    def start_again(
        self, snapshot: PartSnapshot | StoredPart, recipe: Recipe, moves_max: int, driver: bytes | None = None
    ) -> None:
        """The same from a snapshot, while the others repeat_start().

        Args:    moves_max: as of keep_moves().  driver: its state at the snapshot.
        Raises:  StoredStateInvalid naming a file that is damaged.
        """
        if isinstance(snapshot, StoredPart):
            snapshot = snapshot.read()
        self._moves_max = moves_max
        arrays = PartArrays.from_arrays(snapshot.arrays)
        self.start(snapshot.version, arrays, recipe, snapshot.scales, snapshot.memory)
        work, total = snapshot.arrays["work"], int(snapshot.arrays["work_total"])
        self._work = Work(self.part.halo.locals, work, total)
        self._keep(snapshot.version, snapshot.parcels, driver)

    def repeat_start(self, version: int) -> None:
        """This worker's rounds while another one starts again from its snapshot of that version."""
        for parcels in self._snapshots[version]:
            self.swap(parcels)

    def take_snapshot(self, version: int, driver: bytes | None = None) -> PartSnapshot:
        """Of the version as it is, and the driver's state to keep. No round."""
        self._refuse_other(version)
        self._copied = None  # it is not wanted any more
        return self._capture(version, driver, self.part.native)()

    def capture(self, version: int, driver: bytes | None, token: str) -> None:
        """The same, but only copied: captured() makes the snapshot. No round."""
        self._refuse_other(version)
        self._copied = None  # its memory is free first
        self._copied = _Copied(version, token, self._capture(version, driver, self.part.native))

    def captured(self, token: str) -> PartSnapshot:
        """The snapshot of what was copied. Another thread may call it, while batches go on.

        Raises: WorkerUnavailable where that was given up.
        """
        copied = self._copied
        if copied is None or copied.token != token:
            raise WorkerUnavailable(
                "[snapshot] expected what was copied last, got a copy that was given up; copy again"
            )
        made = copied.formed()
        if self._copied is copied:
            self._copied = None
        return made

    def _refuse_other(self, version: int) -> None:
        if version != self.version:
            raise InvariantBroken(f"invariant broken: a snapshot of {version} of a worker at {self.version}")

    def store(self, paths: Sequence[Path], method: str, *given: Any) -> StoredPart:
        """captured(), or another snapshot, into this worker's file. Raises: StorageFailed."""
        snapshot: PartSnapshot = getattr(self, method)(*given)
        return StoredPart.write(paths[self.part.part], snapshot)

    def _capture(self, version: int, driver: bytes | None, native: Any) -> Callable[[], PartSnapshot]:
        part = self.part
        parcels: Rounds = _native.parcels_of_start(native)
        formed = part.capture()
        work = {"work": self._work.counts().copy(), "work_total": np.array(self._work.total)}
        memory, scales = native.remember(part.halo), native.scale_exponents()
        self._keep(version, parcels, driver)  # the cluster holds the rest
        return lambda: PartSnapshot(version, formed().to_arrays() | work, memory, scales, parcels)

    def _keep(self, version: int, parcels: Rounds, driver: bytes | None) -> None:
        self._snapshots[version] = parcels
        if driver is not None:
            self._driver_states[version] = driver

    def has_snapshot(self, version: int) -> bool:
        """Whether there is a whole one of that version."""
        copied = self._copied
        return version in self._snapshots and (copied is None or copied.version != version)

    def forget_before(self, version: int) -> None:
        """Drops what is kept for snapshots before that version: every worker has one of it."""
        self._snapshots = {kept: each for kept, each in self._snapshots.items() if kept >= version}
        self._driver_states = {kept: each for kept, each in self._driver_states.items() if kept >= version}
        copied = self._copied
        if copied is not None and copied.version < version:
            self._copied = None
        self._done = {made: each for made, each in self._done.items() if made > version}

    def notes(self, at: int | None = None) -> DriverNotes | None:
        """For a driver that follows: from that version on, by default the newest. None where there are none."""
        known = [version for version in self._driver_states if version <= self.version]
        if at not in self._driver_states and (at is not None or not known):
            return None
        version = max(known) if at is None else at
        batches = [each.given for made, each in sorted(self._done.items()) if made > version and each.given is not None]
        return DriverNotes(version, self._driver_states[version], batches)

    # ---- batches; rounds

    def apply(
        self, version: int, batch: SlotBatch, owners: NewOwners, record: bytes | None = None
    ) -> PartChanges | PartRefusal:
        """The batch that makes `version`. Where the wire breaks, what it raises; then nothing has changed.

        record: of the batch, for a driver that may follow.
        """
        try:
            return self._apply(GivenBatch(version, batch, owners, record))
        except UpdateError as error:
            return PartRefusal.of(error, self.part.halo.has_begun)

    def hold(
        self, version: int, batch: SlotBatch, owners: NewOwners, record: bytes | None = None
    ) -> PartRefusal | None:
        """The same, but for its publication, which waits for decide()."""
        holding = Holding(lambda held: self._apply(GivenBatch(version, batch, owners, record), held))
        try:
            holding.begin()
        except UpdateError as error:
            return PartRefusal.of(error, self.part.halo.has_begun)
        self._holding = holding
        return None

    def decide(self, stands: bool) -> PartChanges | None:
        """Publishes the batch that is held, or takes it back; nothing where none is. No round."""
        holding, self._holding = self._holding, None
        return None if holding is None else holding.end(stands)

    def _apply(self, given: GivenBatch, held: Callable[[], None] | None = None) -> PartChanges:
        version = given.version
        if version != self.version + 1:
            raise InvariantBroken(f"invariant broken: batch {version} was given to a worker at {self.version}")
        self._sending = []
        try:
            changes = self.part.apply(given.by_slot, given.owners, held=held)
        finally:
            rounds, self._sending = self._sending, None
        self.version = version
        self._work.add(given.by_slot.added, changes.slots)
        self._done[version] = _Done(rounds, changes, None if given.record is None else given)
        for kept in (self._snapshots, self._driver_states):
            kept.pop(version, None)  # of a swap that was given up
        if version - 1 in self._done:  # its answer is not asked for again
            before = self._done[version - 1]
            self._done[version - 1] = before._replace(changes=before.changes._replace(moves=None))
        return changes

    def repeat(self, version: int) -> PartChanges:
        """This worker's rounds of a batch that it has applied, while others apply it."""
        done = self._done[version]
        for parcels in done.rounds:
            self.swap(parcels)
        return done.changes

    # ---- a swap: an engine of another model next to the old one; its snapshot; it takes over

    def prepare_swap(self, recipe: Recipe, coarser: int, scales: list[list[int]]) -> list[list[int]]:
        """Runs the other model; its scales. Rounds. Again where it is not for the first time.

        coarser: than the units that are chosen for the graph as it is, in bits.  scales: none are chosen where some
        are given.
        """
        self._next = None  # that of an attempt before
        native = self.part.engine_of(recipe.program(), scales)
        if coarser:
            native = self.part.engine_of(recipe.program(), coarsened(native.scale_exponents(), coarser))
        self._next = native
        found: list[list[int]] = native.scale_exponents()
        return found

    def drop_swap(self) -> None:
        """The other engine is not wanted."""
        self._next = None
        for kept in (self._snapshots, self._driver_states):
            kept.pop(self.version + 1, None)

    def snapshot_of_swap(self, version: int, driver: bytes | None = None) -> PartSnapshot:
        """What a worker starts again from once the swap, which makes `version`, stands."""
        return self._capture(version, driver, self._prepared())()

    def commit_swap(self, version: int) -> None:
        """The other engine takes over. Nothing where it has."""
        if self.version < version:
            self.part.native = native = self._prepared()
            native.keep_moves(self._moves_max)
            self._next, self.version = None, version

    def _prepared(self) -> Any:
        if self._next is None:
            raise InvariantBroken("invariant broken: a swap that was not prepared")
        return self._next

    # ---- what_if; rounds

    def open_what_if(self, batch: SlotBatch, owners: NewOwners) -> PartChanges | PartRefusal:
        """Looks at a batch, until close_what_if()."""
        try:
            self._view, changes = self.part.what_if(batch, owners)
        except UpdateError as error:
            return PartRefusal.of(error, self.part.halo.has_begun)
        return changes

    def close_what_if(self) -> None:
        """Goes back. Nothing where none is open: a worker that was lost has no view."""
        view, self._view = self._view, None
        if view is not None:
            self.part.close_what_if(view)

    # ---- reads

    def keep_moves(self, rows_max: int) -> None:
        """From now on changes have the rows that a batch moved, where they are at most so many; -1: no more."""
        self._moves_max = rows_max
        self.part.native.keep_moves(rows_max)

    def ready(self) -> int:
        """The version. A batch that is held goes back."""
        self.decide(False)
        return self.version

    def store_options(self) -> dict[str, Any]:
        """Keywords of the native store, the same at all workers."""
        return self.part.options

    def scales(self) -> list[list[int]]:
        """Exponents of the fixed-point units."""
        return self.part.scales()

    def read_rows(self, slots: Int64Array) -> Float32Array:
        """Rows of own vertices."""
        return self.part.embeddings(slots)

    def out_slots(self, slots: Int64Array) -> Int64Array:
        """Slots of the out-neighbours of own vertices."""
        return self.part.out_slots(slots)

    def best_slots(self, comparison: Comparison, type_code: int | None, left_out: Int64Array) -> BestSlots:
        """The best of the own vertices, of one type where a code is given, but for some. Raises: UsageError."""
        if self._view is not None:
            raise UsageError("[topk] expected a version that stands, got an open what_if block; ask after it")
        slots = self.part.slots(type_code)
        return comparison.best(slots[~np.isin(slots, left_out)], self.part.embeddings)

    def read_staged(self, slots: Int64Array) -> Float32Array:
        """The same inside a what_if."""
        return self.part.staged(slots)

    def own_arrays(self) -> Share:
        """This worker's share of the whole graph's columns."""
        return self.part.own_arrays()

    def save_share(self, path: Path) -> tuple[str, int]:
        """Writes this worker's share of the graph; the file's digest, and how many edges are no self-loops."""
        share = self.part.own_arrays()
        return write_arrays(path, share), int(np.count_nonzero(share["src"] != share["dst"]))

    def own_ends(self) -> tuple[Int64Array, Int64Array]:
        """Ends of this worker's share of the edges."""
        return self.part.own_ends()

    def work(self) -> tuple[Int64Array, Int64Array]:
        """Own vertices that have changed since this part was made, and in how many batches each has."""
        own = self.part.slots()
        counts = self._work.of(own)
        return own[counts > 0], counts[counts > 0]

    def partition_report(self, type_names: tuple[str, ...]) -> PartitionReport:
        """On its edges, for PartitionReport.joined()."""
        return self.part.report(type_names)

    def audit(self) -> str | None:
        """verify(): the first difference, by slots of the whole graph; rounds."""
        return self.part.verify()

    def digests(self) -> tuple[int, int]:
        """Shares of the graph's digest and of the state's."""
        return self.part.digests()

    def facts(self) -> dict[str, Any]:
        """Counts for reports, and the process."""
        part = self.part
        own = int(np.count_nonzero((part.halo.ghosts() == 0) & part.store.live().astype(bool)))
        live = int(np.count_nonzero(part.store.live()))
        counts: dict[str, Any] = dict(part.halo.counts())
        counts |= {"vertices": own, "ghosts": live - own, "edges": int(part.store.edge_count)}
        counts |= {"version": self.version, "process": os.getpid(), "work": self._work.total}
        return counts

    def sizes(self) -> dict[str, int]:
        """Bytes of the part's graph, and of the engine's state by part."""
        found = {name: int(size) for name, size in self.part.native.bytes().items()}
        return found | {"graph": sum(int(size) for size in self.part.store.memory().values())}

    def edge_count(self) -> int:
        """This part's share of the whole graph's edges."""
        return int(self.part.halo.edge_count(self.part.store))
