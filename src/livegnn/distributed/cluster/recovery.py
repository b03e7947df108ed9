"""RecoveringCrew: the workers of a cluster as one, whichever of them are lost. docs/distributed.md, "When a worker is
lost".

Invariant: the workers that are there are at `version`, or one batch before or after it while that batch is under way.
With the snapshots and the batches since, each of them can be started again and brought there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from livegnn.distributed.cluster.batch import PartChanges, SlotBatch
from livegnn.distributed.cluster.crew import Call, Crew
from livegnn.distributed.cluster.keeping import Keeping
from livegnn.distributed.cluster.notes import DriverNotes, GivenBatch
from livegnn.distributed.cluster.origin import History, Origin
from livegnn.distributed.cluster.part import NewOwners
from livegnn.distributed.cluster.recipe import Recipe
from livegnn.distributed.cluster.refusals import PartRefusal
from livegnn.distributed.cluster.snapshot_files import SnapshotFolder, StagedFolder
from livegnn.errors import (
    DriverReplaced,
    InvariantBroken,
    LiveGnnError,
    StorageFailed,
    UsageError,
    WorkerUnavailable,
)

_ATTEMPTS = 5  # at one batch, while workers are lost
_PATIENCE_S = 0.5  # between two looks at a snapshot that was begun, where no batch comes
_log = logging.getLogger("livegnn")


class _Next(NamedTuple):
    """Another model that the workers have prepared. driver_state: once it stands."""

    recipe: Recipe
    snapshots: list[Any]
    driver_state: bytes | None


class _Manned(NamedTuple):
    """Workers, what they start again from, and their number among the crews of this driver."""

    crew: Crew
    kept: Keeping
    number: int


class RecoveringCrew:
    """A crew that goes on where workers are lost. version: of their outputs.

    lock: one call to the workers at a time; who holds the graph's lock, too, took that one first.

    Args:    snapshot_batches: after so many batches every worker takes a snapshot to start again from.
             driver_state, keeps_notes, folder: as of Keeping.
             number: of the crew, among those that the driver makes one after another.  what: the workers, for messages.
    """

    def __init__(
        self,
        crew: Crew,
        recipe: Recipe,
        version: int,
        snapshot_batches: int,
        driver_state: Callable[[], bytes],
        keeps_notes: bool = False,
        folder: SnapshotFolder | None = None,
        number: int = 0,
        what: str = "workers",
    ) -> None:
        self.version, self.closed, self.lock = version, False, threading.RLock()
        self._recipe, self._snapshot_batches, self._what = recipe, snapshot_batches, what
        kept = Keeping(crew, version, snapshot_batches, driver_state, keeps_notes, folder)
        self._manned = _Manned(crew, kept, number)
        self._next: _Next | None = None  # what was prepared
        self._in_doubt = False  # some workers may have made a batch their own that was given up, or not one that stands
        self._held: GivenBatch | None = None
        self._late: BaseException | None = None
        self._moves_max = -1
        self._history: History | None = None
        self._is_attended = False  # whether a thread looks after the snapshot that was begun
        self._is_resuming = False

    @property
    def size(self) -> int:
        """Workers."""
        return self._crew.size

    @property
    def number(self) -> int:
        """Of the crew."""
        return self._manned.number

    @property
    def _crew(self) -> Crew:
        return self._manned.crew

    @property
    def _kept(self) -> Keeping:
        return self._manned.kept

    def start(self, steps: Iterable[Sequence[Call]]) -> None:
        """Has the workers start. Raises: what a worker raises; WorkerUnavailable. Then the workers have ended."""
        try:
            for calls in steps:
                self._crew.call(calls)
            self._kept.take(self.version)
        except BaseException:
            self.close()
            raise

    @property
    def state_wanted(self) -> bool:
        """Whether a driver may follow."""
        return self._kept.state_wanted

    @property
    def keeps_notes(self) -> bool:
        """Whether the workers keep what a driver that follows needs."""
        return self._kept.keeps_notes

    def resume(self, notes: DriverNotes, snapshots: Sequence[Any] = ()) -> None:
        """Goes on from where a driver before was, as its workers have noted it; a new snapshot is taken.

        Args:    snapshots: of the notes' version, where they lie in a folder.
        Raises:  WorkerUnavailable where a worker was lost, too, and without a folder: its snapshot was the driver's.
                 Then all have ended.  StoredStateInvalid naming a file that is damaged.
        """
        with self.lock:
            self._kept.follow(notes, snapshots)
            self._is_resuming = True
            self._recover(None)
            self._crew.call([("close_what_if",)] * self.size)
            self._crew.call([("drop_swap",)] * self.size)
            self._crew.call([("keep_moves", self._moves_max)] * self.size)
            self._kept.take(self.version)

    def close(self) -> None:
        """Ends the workers, once a snapshot that they write into files is whole. A second call does nothing."""
        with self.lock:
            if self.closed:
                return
            try:
                if self._kept.folder is not None:
                    with suppress(LiveGnnError):  # the one before stays
                        self._kept.end_begun()
            finally:
                self.closed = True
                self._crew.close()

    def interrupt(self) -> None:
        """Ends the workers while another thread calls them: its call raises WorkerUnavailable, or has them start again.

        close() is still to be called.
        """
        self._crew.interrupt()

    def refuse_closed(self, where: str) -> None:
        """Raises: UsageError once the workers have ended."""
        if self.closed:
            raise UsageError(f"[{where}] expected an open cluster, got one that was closed; make another")

    # ---- calls that change nothing

    def all(self, calls: list[Call]) -> list[Any]:
        """Call i to worker i, again where one was lost. Raises: WorkerUnavailable."""
        self.refuse_closed(str(calls[0][0]))
        with self.lock:
            self._settle()
            for _ in range(_ATTEMPTS):
                try:
                    return self._crew.call(calls)
                except WorkerUnavailable:
                    self._recover(None)
            return self._crew.call(calls)

    def each(self, *call: Any) -> list[Any]:
        """The same call to all of them."""
        with self.lock:  # their number may change
            return self.all([call] * self.size)

    def ask(self, worker: int, *call: Any) -> Any:
        """What one of them answers to a call that all of them can take."""
        return self.each(*call)[worker]

    def open_view(self, batch: SlotBatch, owners: NewOwners) -> list[PartChanges | PartRefusal]:
        """Has all workers look at a batch, until close_view(). Raises: WorkerUnavailable."""
        calls: list[Call] = [("open_what_if", batch, owners)] * self.size
        for _ in range(_ATTEMPTS):
            self._settle()
            try:
                return self._crew.call(calls)
            except WorkerUnavailable:
                self._recover(None)
                self.close_view()
        return self._crew.call(calls)

    def in_view(self, calls: list[Call]) -> list[Any]:
        """Calls while a view is open. Raises: WorkerUnavailable: a worker that was lost has no view when it is back."""
        return self._crew.call(calls)

    def close_view(self) -> None:
        """Goes back on all workers."""
        if not self.closed:
            self.each("close_what_if")

    def keep_moves(self, rows_max: int) -> None:
        """From now on changes have the rows that a batch moved; as of PartWorker."""
        with self.lock:
            self._moves_max = rows_max
            self.each("keep_moves", rows_max)

    # ---- batches

    def apply(
        self, given: SlotBatch, owners: NewOwners, record: bytes | None = None
    ) -> list[PartChanges | PartRefusal]:
        """The next batch on all workers; where one refuses it, nothing has changed. record: see GivenBatch.

        Raises:  WorkerUnavailable where workers are lost again and again.
        """
        with self.lock:
            self._settle()
            batch = GivenBatch(self.version + 1, given, owners, record)
            try:
                answers = self._applied(batch)
            except BaseException:  # the graph goes back; what workers have done is not known
                self._in_doubt = True
                raise
            if not any(isinstance(answer, PartRefusal) for answer in answers):
                self._stands(batch)
                self._note(batch)
            return answers

    # ---- batches in two steps, for what has to be written down between them; the lock is held from one to the other

    def hold(self, given: SlotBatch, owners: NewOwners, record: bytes | None = None) -> list[PartRefusal]:
        """The next batch on all workers, but for its publication, which waits for decide(). Returns: who refuses it.

        Raises:  WorkerUnavailable where workers are lost again and again. Then, and where a worker refuses, nothing has
                 changed.
        """
        self.lock.acquire()
        try:
            self._settle()
            batch = GivenBatch(self.version + 1, given, owners, record)
            refused = [each for each in self._held_by_all(batch) if each is not None]
            if not refused:
                self._held = batch
            return refused
        except BaseException:  # some may hold it
            self._in_doubt = True
            raise
        finally:
            if self._held is None:
                self.lock.release()

    def _held_by_all(self, batch: GivenBatch) -> list[PartRefusal | None]:
        calls: list[Call] = [("hold", *batch)] * self.size
        for _ in range(_ATTEMPTS):
            try:
                answers = self._crew.call(calls)
            except WorkerUnavailable:
                self._recover(None)
                continue
            if any(answers) and not all(answers):  # a part that refuses says so before any other can hold
                raise InvariantBroken("invariant broken: a batch is held that another worker refuses")
            return answers
        raise _gone()

    def publish(self) -> list[PartChanges] | None:
        """The batch that is held stands. None: it will be published by workers that are not back yet."""
        batch, self._held = self._held, None
        assert batch is not None
        try:
            self._stands(batch)
            answers = self._published(batch)
            self._note(batch)
            return answers
        except BaseException:  # the graph goes back; the log has the batch, which comes again
            if self._kept.batches.pop(batch.version, None) is not None:
                self.version = batch.version - 1
            self._in_doubt = True
            raise
        finally:
            self.lock.release()

    def _published(self, batch: GivenBatch) -> list[PartChanges] | None:
        try:
            calls: list[Call] = [("decide", True)] * self.size
            return self._crew.call(calls)
        except WorkerUnavailable:
            self._in_doubt = True
        try:
            return self._recover(None, batch.version)
        except WorkerUnavailable:
            return None

    def take_back(self) -> None:
        """The batch that is held does not stand. Nothing where none is."""
        if self._held is None:
            return
        self._held = None
        try:
            calls: list[Call] = [("decide", False)] * self.size
            self._crew.call(calls)
        except BaseException as error:  # those that are there take it back when they are asked again
            self._in_doubt = True
            if not isinstance(error, WorkerUnavailable):
                raise
        finally:
            self.lock.release()

    # ---- another model

    def prepare_swap(self, recipe: Recipe, coarser: int, scales: list[list[int]]) -> list[list[int]]:
        """Runs another model next to the present one. Returns: its scales; coarser, scales: as of PartWorker."""
        found: list[list[int]] = self.each("prepare_swap", recipe, coarser, scales)[0]
        return found

    def drop_swap(self) -> None:
        """What was prepared is not wanted. Nothing where nothing is there."""
        self._next = None
        with suppress(WorkerUnavailable):  # a worker that was lost has nothing to drop
            self.each("drop_swap")

    def keep_swap(self, recipe: Recipe, scales: list[list[int]], driver_state: bytes | None = None) -> None:
        """Every worker has a snapshot of the model that was prepared, so that go_over() stands, whichever is lost then.

        driver_state: of that version.  Raises: WorkerUnavailable where workers are lost again and again.
        """
        with self.lock:
            if self._kept.folder is not None:
                self._kept.folder.refuse_another()  # before any log has it
            for attempt in range(_ATTEMPTS):
                try:
                    snapshots = self._kept.made("snapshot_of_swap", self.version + 1, driver_state)
                    break
                except WorkerUnavailable:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    self._recover(None)
                    self.each("prepare_swap", recipe, 0, scales)
            self._next = _Next(recipe, snapshots, driver_state)

    def go_over(self) -> None:
        """What was prepared takes over, as the next version: every log has it. A worker that is lost follows from its
        snapshot of it.

        Raises:  StorageFailed, DriverReplaced; then nothing has changed.
        """
        with self.lock:
            version, prepared = self.version + 1, self._next
            assert prepared is not None
            self._kept.replace(version, prepared.snapshots, prepared.driver_state)
            self._recipe, self.version, self._next = prepared.recipe, version, None
            if self._history is not None:
                self._history.is_whole = False
            try:
                self.each("commit_swap", version)
                self._kept.drop_older()
            except BaseException as error:  # the swap stands: its snapshots are there
                self._in_doubt = True
                self._late = None if isinstance(error, WorkerUnavailable) else error

    def raise_late(self) -> None:
        """After a version that stands: what went wrong on the way. Raises: that."""
        error, self._late = self._late, None
        if error is not None:
            raise error

    def take_snapshot_if_due(self) -> None:
        """The batch before stands, whatever becomes of the snapshot. Workers write it while others go on."""
        if self.closed or not self._kept.is_due:
            return
        with self.lock:
            try:
                self._settle()
                self._kept.go_on(self.version)
            except (WorkerUnavailable, StorageFailed) as error:
                self._put_off(error)
            if self._kept.is_begun and not self._is_attended:
                threading.Thread(target=self._attend, name="livegnn-snapshots", daemon=True).start()
                self._is_attended = True

    def _put_off(self, error: Exception) -> None:
        self._kept.put_off()
        _log.warning("[cluster] no snapshot at version %d, it is taken later: %s", self.version, error)

    def _attend(self) -> None:
        """Ends a snapshot that was begun, where no batch comes after which it would end. It does nothing else: the
        state of the driver is another lock's, which a batch takes before this one.
        """
        while True:
            time.sleep(_PATIENCE_S)
            with self.lock:
                try:
                    if self.closed or self._kept.end_if_done():
                        self._is_attended = False
                        return
                except Exception as error:
                    self._is_attended = False
                    return self._put_off(error)

    # ---- another crew, which takes over from this one

    def begin_succession(self, is_lost: bool) -> Origin:
        """What another crew starts from: a snapshot of this version, kept until end_succession(), and what comes then.

        is_lost: whether the present snapshot may be, with its host.
        Raises:  WorkerUnavailable, StorageFailed, DriverReplaced.
        """
        with self.lock:
            self._settle()
            if is_lost or self._kept.version != self.version:
                self._take_snapshot_surely()
            self._kept.pinned = list(self._kept.snapshots)
            self._history = History(self._kept.pinned)
            return Origin(self.version, self._recipe, self.each("scales")[0], self._history)

    def end_succession(self) -> None:
        """The snapshot is not needed any more."""
        with self.lock:
            self._history, self._kept.pinned = None, []

    def is_that_of(self, other: RecoveringCrew) -> bool:
        """Whether both have the same workers."""
        return self._crew is other._crew

    def abandon(self) -> None:
        """Ends workers that are not to take over, or from which others have, and their files."""
        self._kept.give_up()
        self._kept.snapshots, self._kept.pinned = [], []
        self.close()
        self._kept.remove_old_files()

    def next_to(self, workers: int, origin: Origin, driver_state: bytes | None, number: int) -> RecoveringCrew:
        """Empty workers of the same kind on the way from that origin. Their snapshots count from take_over() on.

        Raises: WorkerUnavailable.
        """
        kept, crew = self._kept, self._crew.another(workers, number)
        folder = None if kept.folder is None else StagedFolder(kept.folder, number)
        given = (origin.recipe, origin.version, self._snapshot_batches, lambda: driver_state or b"", kept.keeps_notes)
        return RecoveringCrew(crew, *given, folder, number, "new workers")

    def take_over(self, other: RecoveringCrew, driver_state: Callable[[], bytes]) -> None:
        """The workers of another crew, which are as far, in place of these, which `other` has then.

        driver_state: of this version, for a driver that follows.  The caller holds the lock, and the graph's.
        Raises:  WorkerUnavailable, StorageFailed, DriverReplaced; then nothing has changed.
        """
        if other.version != self.version:
            raise InvariantBroken(f"invariant broken: workers at {other.version} succeed some at {self.version}")
        with other.lock:
            other.keep_moves(self._moves_max)
            kept, folder = other._kept, None
            try:
                if isinstance(kept.folder, StagedFolder):  # its newest snapshot may not be older than the present one
                    kept.driver_state = driver_state
                    other._take_snapshot_surely()
                    folder = kept.folder.publish_last()
                other._crew.lead()
            except BaseException:
                self._lead_on(folder is not None)
                raise
            kept.driver_state, kept.folder = self._kept.driver_state, folder
            self._in_doubt, self._history = other._in_doubt, None
            self._manned, other._manned = other._manned, self._manned

    def _lead_on(self, is_published: bool) -> None:
        """These workers serve on. is_published: whether the folder names others."""
        with suppress(Exception):  # of a driver that was replaced, or without Ray
            self._crew.lead()
        if is_published:
            with suppress(StorageFailed, DriverReplaced):
                self._kept.publish()

    # ---- inside

    def _stands(self, batch: GivenBatch) -> None:
        self._kept.batches[batch.version] = batch
        self.version = batch.version

    def _note(self, batch: GivenBatch) -> None:
        """For workers that follow: it stands, and nothing takes it back."""
        if self._history is not None:
            self._history.batches.append(batch)

    def _settle(self) -> None:
        """After a batch that was given up: workers that have made it their own start again without it."""
        if self._in_doubt:
            self._recover(None)

    def _applied(self, batch: GivenBatch) -> list[PartChanges | PartRefusal]:
        for _ in range(_ATTEMPTS):
            try:
                return self._crew.call([("apply", *batch)] * self.size)
            except WorkerUnavailable:
                answers = self._recover(batch)
                if answers is not None:
                    return answers
        raise _gone()

    def _take_snapshot_surely(self) -> None:
        """A snapshot of this version, again where workers are lost. Raises: as Keeping.take()."""
        for attempt in range(_ATTEMPTS):
            try:
                self._kept.take(self.version)
                return
            except WorkerUnavailable:
                if attempt == _ATTEMPTS - 1:
                    raise
                self._recover(None)

    def _recover(self, batch: GivenBatch | None, wanted: int | None = None) -> list[Any] | None:
        """_recover_once(), again where a worker is lost meanwhile. Raises: WorkerUnavailable."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._recover_once(batch, batch.version if batch is not None else wanted)
            except WorkerUnavailable:
                if attempt == _ATTEMPTS - 1 or self.closed:
                    raise
        raise AssertionError

    def _recover_once(self, batch: GivenBatch | None, wanted: int | None) -> list[Any] | None:
        """Brings all workers to one version: those that were lost start again from their snapshots and go through the
        batches since, while the others repeat their rounds. A batch that any worker has made its own stands.

        Args:    batch: that may stand or not.
        Returns: what the batch that makes version `wanted` came to, where it stands; else None.
        """
        resumes, self._is_resuming = self._is_resuming, False  # later attempts are due to losses
        self._kept.give_up()
        versions, kept = self._crew.reform(), self._kept
        lost = [worker for worker, version in enumerate(versions) if version < 0]
        if batch is None:  # one that is ahead has made its own what was given up
            versions = [-1 if version > self.version else version for version in versions]
        behind = [0 <= version < kept.version for version in versions]
        if any(behind):  # they have yet to go over to another engine
            go_over = ("commit_swap", kept.version)
            self._crew.call([go_over if late else ("ready",) for late in behind])
            versions = [max(version, kept.version) if version >= 0 else -1 for version in versions]
        if -1 in versions and not kept.snapshots:
            self.close()
            raise WorkerUnavailable(
                f"[attach] expected all {self.size} workers, got workers {lost} lost with their driver, and with it "
                "their snapshots; the others were ended: load what was saved last"
            )
        if -1 in versions:
            start_again = (self._recipe, self._moves_max, kept.note)
            calls: list[Call] = [
                ("start_again", snapshot, *start_again) if version < 0 else ("repeat_start", kept.version)
                for version, snapshot in zip(versions, kept.snapshots, strict=True)
            ]
            self._crew.call(calls)
            versions = [kept.version if version < 0 else version for version in versions]
        target = max(*versions, self.version)
        answers: list[Any] | None = None
        first = min(versions) + 1
        if wanted is not None and wanted <= target:
            first = min(first, wanted)
        for version in range(first, target + 1):
            one = batch if batch is not None and version == batch.version else kept.batches[version]
            calls = [("apply", *one) if had < version else ("repeat", version) for had in versions]
            answers = self._crew.call(calls)
        self._in_doubt = False
        self._log_recovery(lost, target, resumes)
        return answers if wanted == target else None

    def _log_recovery(self, lost: list[int], version: int, resumes: bool) -> None:
        if resumes and len(lost) == self.size:  # none was there before
            _log.info("[cluster] %s started from snapshots; all are at version %d", self._what, version)
            return
        broke = "a round broke" if self._kept.snapshots else "another driver came"
        what = f"{self._what} {lost} were lost" if lost else broke
        _log.warning("[cluster] %s; all are at version %d again", what, version)


def _gone() -> WorkerUnavailable:
    return WorkerUnavailable(
        f"[apply] expected workers that stay, got one lost at each of {_ATTEMPTS} attempts; the batch was not applied: "
        "look at the workers' memory, and try again"
    )
