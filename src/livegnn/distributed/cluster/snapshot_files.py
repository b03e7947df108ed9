"""SnapshotFolder: snapshots of a cluster in a folder that all its hosts see, so that they outlive hosts and driver.

    FOLDER/snapshots.json            sealed (stored.py): the manifest, which names the newest whole snapshot:
                                     {"format": "livegnn-snapshots-1", "driver": number, "crew": number, "version",
                                      "parts": [[name, digest], ...], "state": [name, digest]}; before the first
                                     snapshot without parts
          D-C-V-part-K.npz           sealed: what worker K starts again from (PartSnapshot): "part.*" its part,
                                     "memory.*", "scale.K", "version", "parcels" of all rounds one after another,
                                     "lengths" (rounds, parts)
          D-C-V-driver.npz           sealed: the state of the driver (driver_state.py)
          lock                       held while the manifest changes

D: the number of the driver. One that goes on from the folder takes the next number; then the one before can write no
manifest.  C: the number of the crew. Files of one that is being made (succession.py) are in no manifest before it takes
over; then there may be another number of parts.  V: the version.

Files are written first, then the manifest; then the workers drop what the snapshot before needs, and files that the
manifest does not name are removed.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from livegnn.distributed.cluster.notes import PartSnapshot
from livegnn.errors import DriverReplaced, FileMissing, StorageFailed, UsageError
from livegnn.stored import checked, made_folder, replaced
from livegnn.stored_arrays import read_arrays
from livegnn.types import AnyArray

FORMAT, MANIFEST = "livegnn-snapshots-1", "snapshots.json"
_EXPECTED, _ADVICE = "a snapshot of a cluster", "load the last save()"
_OURS = re.compile(r"(\d+)-(\d+)-\d+-(driver|part-\d+)\.npz(\.[a-z0-9_]{8}\.part)?")  # the latter of a writer that died


class StoredFile(NamedTuple):
    """A sealed file; digest: of its content."""

    path: Path
    digest: str

    def read(self) -> dict[str, AnyArray]:
        """Raises: StoredStateInvalid naming the file; FileMissing; StorageFailed."""
        with checked(self.path, "restore", expected=_EXPECTED, advice=_ADVICE) as content:
            if content.digest != self.digest:
                raise ValueError("it is another file than the manifest names")
            return read_arrays(content)


class StoredPart(NamedTuple):
    """The snapshot of one worker."""

    file: StoredFile

    def read(self) -> PartSnapshot:
        """Raises: as StoredFile.read()."""
        arrays = self.file.read()
        parts: dict[str, dict[str, AnyArray]] = {"part": {}, "memory": {}, "scale": {}}
        for key, array in arrays.items():
            kind, _, name = key.partition(".")
            if kind in parts:
                parts[kind][name] = array
        scales = [parts["scale"][str(k)].tolist() for k in range(len(parts["scale"]))]
        ends = np.concatenate([[0], np.cumsum(arrays["lengths"].reshape(-1))]).tolist()
        each = [arrays["parcels"][begin:end].tobytes() for begin, end in pairwise(ends)]
        size = arrays["lengths"].shape[1]
        parcels = [each[k : k + size] for k in range(0, len(each), size)]
        return PartSnapshot(int(arrays["version"]), parts["part"], parts["memory"], scales, parcels)

    @classmethod
    def write(cls, path: Path, snapshot: PartSnapshot) -> StoredPart:
        """Raises: StorageFailed."""
        arrays = {f"part.{name}": array for name, array in snapshot.arrays.items()}
        arrays |= {f"memory.{name}": array for name, array in snapshot.memory.items()}
        arrays |= {f"scale.{k}": np.array(row, np.int64) for k, row in enumerate(snapshot.scales)}
        lengths = [[len(parcel) for parcel in parcels] for parcels in snapshot.parcels]
        arrays["lengths"] = np.array(lengths, np.int64).reshape(len(lengths), -1 if lengths else 1)
        arrays["parcels"] = np.frombuffer(b"".join(b"".join(parcels) for parcels in snapshot.parcels), np.uint8)
        arrays["version"] = np.array(snapshot.version, np.int64)
        with replaced(path, "snapshot") as file:
            np.savez(file, allow_pickle=False, **arrays)
        return cls(StoredFile(path, file.digest))


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    driver: int
    crew: int
    version: int
    parts: list[tuple[str, str]]
    state: tuple[str, str]


class NewestSnapshot(NamedTuple):
    """The newest whole snapshot. crew: whose it is.  state: of the driver."""

    crew: int
    version: int
    parts: list[StoredPart]
    state: Mapping[str, AnyArray]


class SnapshotFolder:
    """The folder, as a driver sees it. driver: its number, 1 of the first.  crew: of its workers, in order of the crews
    that it has made.

    Args:    path: the same on all hosts.
    Raises:  UsageError for what is no path; StorageFailed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = made_folder("snapshots", path).absolute()
        self.driver, self.crew = 1, 0

    def begin(self) -> None:
        """For the driver of a new cluster. Of two that begin at once the later one can write a snapshot.

        Raises:  UsageError where another cluster's snapshots are there; StorageFailed.
        """
        with self._locked():
            before = self._manifest()
            if before is not None and before.parts:
                raise UsageError(
                    f"[Cluster] expected a folder without snapshots, got {self.path}; call lg.Cluster.restore() to go "
                    "on from them, or name another folder"
                )
            self.driver = 1 if before is None else before.driver + 1
            self._write(_Manifest(FORMAT, self.driver, self.crew, -1, [], ("", "")))

    def claim(self) -> NewestSnapshot:
        """This driver goes on from the newest snapshot; the one before can write no other.

        Raises:  FileMissing without one; StoredStateInvalid naming the file that is damaged; StorageFailed.
        """
        with self._locked():
            manifest = self._manifest()
            if manifest is None or not manifest.parts:
                raise FileMissing(f"[restore] expected {_EXPECTED} in {self.path}, got none; name the folder of one")
            parts = [StoredPart(self._file(entry)) for entry in manifest.parts]
            state = self._file(manifest.state).read()
            self.driver, self.crew = manifest.driver + 1, manifest.crew
            self._write(msgspec.structs.replace(manifest, driver=self.driver))
        return NewestSnapshot(manifest.crew, manifest.version, parts, state)

    def places(self, version: int, workers: int) -> list[Path]:
        """Where workers write their snapshots of a version."""
        return [self.path / self._name(version, f"part-{worker}") for worker in range(workers)]

    def _name(self, version: int, what: str) -> str:
        return f"{self.driver}-{self.crew}-{version}-{what}.npz"

    def publish(self, version: int, parts: Sequence[StoredPart], state: bytes) -> None:
        """All parts of the snapshot are there: it is the newest from now on.

        Raises:  DriverReplaced where another driver goes on from the folder; StorageFailed.
        """
        name = self._name(version, "driver")
        with replaced(self.path / name, "snapshot") as file:
            file.write(state)
        entries = [(part.file.path.name, part.file.digest) for part in parts]
        manifest = _Manifest(FORMAT, self.driver, self.crew, version, entries, (name, file.digest))
        with self._locked():
            self._refuse_another()
            try:
                self._write(manifest)
            except StorageFailed:
                if self._manifest() != manifest:  # else it has its name, and the disk failed after that
                    raise

    def refuse_another(self) -> None:
        """Raises: DriverReplaced where another driver goes on from the folder; StorageFailed."""
        with self._locked():
            self._refuse_another()

    def _refuse_another(self) -> None:
        now = self._manifest()
        if now is not None and now.driver != self.driver:
            raise DriverReplaced(
                f"[snapshot] expected to be the driver of the snapshots in {self.path}, got another process that goes "
                "on from them, or has begun a cluster there; use that one, or another folder"
            )

    def remove_old(self, needed: Sequence[StoredPart]) -> None:
        """Removes files of this crew, and of those before, that the manifest does not name.

        needed: but for these.  Raises: StorageFailed.
        """
        with self._locked():
            manifest = self._manifest()
            if manifest is None or manifest.driver != self.driver:
                return
            named = {name for name, _ in (*manifest.parts, manifest.state)} | {part.file.path.name for part in needed}
            for entry in self.path.iterdir():
                found = _OURS.fullmatch(entry.name)
                if found is not None and entry.name not in named and self._is_old(int(found[1]), int(found[2])):
                    with suppress(OSError):
                        entry.unlink()

    def _is_old(self, driver: int, crew: int) -> bool:
        """Whether a file of these that is not needed has to go: not one of a crew that is being made."""
        return (driver, crew) <= (self.driver, self.crew)

    def _file(self, entry: tuple[str, str]) -> StoredFile:
        return StoredFile(self.path / entry[0], entry[1])

    def _manifest(self) -> _Manifest | None:
        place = self.path / MANIFEST
        if not place.exists():
            return None
        with checked(place, "restore", expected="a manifest of snapshots", advice=_ADVICE) as content:
            manifest = msgspec.json.decode(content.read() or b"", type=_Manifest)
            if not content.sealed or manifest.format != FORMAT:
                raise ValueError(f"format {manifest.format}")
        return manifest

    def _write(self, manifest: _Manifest) -> None:
        with replaced(self.path / MANIFEST, "snapshot") as file:
            file.write(msgspec.json.encode(manifest))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as cause:
            raise StorageFailed(
                f"[snapshot] expected to open {self.path}/lock, got {cause.strerror or cause}; look at the disk"
            ) from cause
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class StagedFolder(SnapshotFolder):
    """The folder for a crew that is being made: none of its snapshots counts before publish_last()."""

    def __init__(self, folder: SnapshotFolder, crew: int) -> None:
        self.path, self.driver, self.crew = folder.path, folder.driver, crew
        self._last: tuple[int, Sequence[StoredPart], bytes] | None = None

    def publish(self, version: int, parts: Sequence[StoredPart], state: bytes) -> None:
        """Waits for publish_last()."""
        self._last = version, parts, state

    def publish_last(self) -> SnapshotFolder:
        """The newest snapshot of this crew is the newest of all: the folder as it is then. Raises: as publish()."""
        assert self._last is not None
        folder = SnapshotFolder(self.path)
        folder.driver, folder.crew = self.driver, self.crew
        folder.publish(*self._last)
        return folder

    def _is_old(self, driver: int, crew: int) -> bool:
        return (driver, crew) == (self.driver, self.crew)
