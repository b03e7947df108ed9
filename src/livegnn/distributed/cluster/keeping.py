"""Keeping: what workers that are lost start again from: a snapshot of every worker, and the batches since.

A snapshot is taken at once, or begun: every worker copies its part while batches wait, and gives the copy order and
form while they go on. The one before stays the newest until all workers have done so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

from livegnn.distributed.cluster.crew import Aside, Crew
from livegnn.distributed.cluster.notes import DriverNotes, GivenBatch
from livegnn.distributed.cluster.snapshot_files import SnapshotFolder
from livegnn.errors import StorageFailed, WorkerUnavailable


class _Begun(NamedTuple):
    """A snapshot that workers have copied. state: of the driver then.  handles: once they are done."""

    version: int
    state: bytes | None
    handles: Aside


class Keeping:
    """Of one crew.

    version: of the snapshots.  snapshots: handles, by worker; none where they were a driver's that is lost.  state: of
    the driver then, where one may follow.  batches: since, by version.  pinned: snapshots that are needed, too.

    Args:    snapshot_batches: after so many batches a snapshot is due.
             driver_state: for a driver that may follow, which finds it in the folder, and at detached workers.
             keeps_notes: whether the workers are such.  folder: for snapshots, in place of the crew's own memory.
    """

    def __init__(
        self,
        crew: Crew,
        version: int,
        snapshot_batches: int,
        driver_state: Callable[[], bytes],
        keeps_notes: bool,
        folder: SnapshotFolder | None,
    ) -> None:
        self._crew, self.driver_state, self.keeps_notes, self.folder = crew, driver_state, keeps_notes, folder
        self.version, self.snapshots, self.pinned = version, list[Any](), list[Any]()
        self.state: bytes | None = None
        self.batches: dict[int, GivenBatch] = {}
        self._every = self._due = snapshot_batches
        self._begun: _Begun | None = None

    @property
    def state_wanted(self) -> bool:
        """Whether a driver may follow."""
        return self.keeps_notes or self.folder is not None

    @property
    def note(self) -> bytes | None:
        """The state of the driver, for workers that keep it."""
        return self.state if self.keeps_notes else None

    @property
    def is_begun(self) -> bool:
        """Whether a snapshot was begun that is not the newest yet."""
        return self._begun is not None

    @property
    def is_due(self) -> bool:
        """Whether there is something to do for go_on()."""
        return self.is_begun or len(self.batches) >= self._due

    def put_off(self) -> None:
        """A snapshot that was due could not be taken: it is after as many batches more."""
        self._due = len(self.batches) + self._every

    def go_on(self, version: int) -> None:
        """Begins a snapshot where one is due, and ends the one that was begun, where workers are done with it. Where
        another one is due before they are, it waits for them.

        Raises: WorkerUnavailable, StorageFailed, DriverReplaced; then none is begun.
        """
        if not self.end_if_done() and len(self.batches) >= self._due + self._every:
            self.end_begun()
        if self._begun is None and len(self.batches) >= self._due:
            self._begin(version)

    def end_if_done(self) -> bool:
        """Ends the snapshot that was begun, where workers are done with it. Returns: whether none is left.

        Raises: as go_on().
        """
        if self._begun is not None and self._begun.handles.done():
            self.end_begun()
        return self._begun is None

    def give_up(self) -> None:
        """The snapshot that was begun is not wanted."""
        self._begun = None

    def _begin(self, version: int) -> None:
        state = self.driver_state() if self.state_wanted else None
        size, token = self._crew.size, uuid4().hex
        self._crew.call([("capture", version, state if self.keeps_notes else None, token)] * size)
        if self.folder is None:
            handles = self._crew.aside([("captured", token)] * size, keep=True)
        else:
            stored = ("store", self.folder.places(version, size), "captured", token)
            handles = self._crew.aside([stored] * size, keep=False)
        self._begun = _Begun(version, state, handles)
        self.end_if_done()

    def end_begun(self) -> None:
        """Waits until workers are done with the snapshot that was begun, if one was. Raises: as go_on()."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        try:
            snapshots = begun.handles.results()
            self._refuse_missing(begun.version)
            self.replace(begun.version, snapshots, begun.state)
            self.drop_older()
        except (WorkerUnavailable, StorageFailed):
            self.remove_old_files()
            raise

    def follow(self, notes: DriverNotes, snapshots: Sequence[Any]) -> None:
        """Goes on from what a driver before has noted."""
        self.version, self.snapshots, self.state = notes.version, list(snapshots), notes.state
        self.batches = {batch.version: batch for batch in notes.batches}

    def take(self, version: int) -> None:
        """Takes a snapshot of every worker, while batches wait. Each has the new one before any drops what the old one
        needs.

        Raises: WorkerUnavailable, StorageFailed, DriverReplaced.
        """
        self.give_up()
        state = self.driver_state() if self.state_wanted else None
        try:
            self.replace(version, self.made("take_snapshot", version, state), state)
            self.drop_older()
        except (WorkerUnavailable, StorageFailed):
            self.remove_old_files()  # what was written of it would fill the disk
            raise

    def made(self, method: str, version: int, state: bytes | None) -> list[Any]:
        """Handles of snapshots of all workers. Raises: WorkerUnavailable where one of them has none; StorageFailed."""
        size, noted = self._crew.size, state if self.keeps_notes else None
        if self.folder is None:
            handles = self._crew.keep([(method, version, noted)] * size)
        else:
            handles = self._crew.call([("store", self.folder.places(version, size), method, version, noted)] * size)
        self._refuse_missing(version)
        return handles

    def _refuse_missing(self, version: int) -> None:
        if not all(self._crew.call([("has_snapshot", version)] * self._crew.size)):
            raise WorkerUnavailable("[cluster] expected a snapshot of every worker, got one less; it is taken again")

    def replace(self, version: int, snapshots: list[Any], state: bytes | None) -> None:
        """These are the newest; a driver that follows finds them in the folder.

        Raises: StorageFailed, DriverReplaced; then nothing has changed.
        """
        if self.folder is not None:
            assert state is not None
            self.folder.publish(version, snapshots, state)
        self.give_up()  # one of before
        self.version, self.snapshots, self.state = version, snapshots, state
        self.batches = {made: batch for made, batch in self.batches.items() if made > version}
        self._due = self._every

    def publish(self) -> None:
        """The folder names the newest snapshots again. Raises: StorageFailed, DriverReplaced."""
        assert self.folder is not None
        assert self.state is not None
        self.folder.publish(self.version, self.snapshots, self.state)

    def drop_older(self) -> None:
        """What came before the newest snapshots is not needed any more. Raises: WorkerUnavailable, StorageFailed."""
        self._crew.call([("forget_before", self.version)] * self._crew.size)
        if self.folder is not None:
            self.folder.remove_old([*self.snapshots, *self.pinned])

    def remove_old_files(self) -> None:
        """Removes what is not needed, if the disk lets us: else after the next snapshot."""
        if self.folder is not None:
            with suppress(StorageFailed):
                self.folder.remove_old([*self.snapshots, *self.pinned])
