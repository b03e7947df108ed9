"""DriverState: what the driver of a cluster knows and its workers do not, as bytes, so that another driver can go on.

state   = zip of .npy members (numpy's own format, no pickles)
members = "directory.*" arrays of the directory (directory.py) | "model.*" arrays of the model | "meta" JSON as uint8
meta    = {"format": "livegnn-driver", "format_version": 1, "version": of the cluster, "empty": versions without updates
          that the directory lacks (a swap's), "model": structure, "shape": {...}, "settings": {...}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple, Self

import numpy as np

from livegnn.distributed.cluster.crew import Call, Crew
from livegnn.distributed.cluster.directory import Directory
from livegnn.distributed.cluster.notes import DriverNotes
from livegnn.distributed.cluster.recipe import GraphShape, Recipe
from livegnn.distributed.cluster.snapshot_files import SnapshotFolder, StoredPart
from livegnn.errors import StoredStateInvalid, UsageError
from livegnn.graph.updates import Updates
from livegnn.models.model import Model
from livegnn.types import AnyArray

_FORMAT, _FORMAT_VERSION = "livegnn-driver", 1


class ClusterSettings(NamedTuple):
    """What of lg.Cluster's arguments a later driver keeps. crew: of its workers (snapshot_files.py)."""

    snapshot_batches: int
    name: str
    snapshots: str | None
    crew: int = 0


@dataclass(frozen=True)
class DriverState:
    """See the head of this file. empty: versions without updates after the directory's."""

    empty: int
    directory: dict[str, AnyArray]
    model: Model
    shape: GraphShape
    settings: ClusterSettings

    @property
    def recipe(self) -> Recipe:
        """What the workers compile the program from."""
        return Recipe.of(self.model, self.shape)

    def made_directory(self) -> Directory:
        """The directory, after its empty versions. Raises: StoredStateInvalid."""
        directory = Directory.from_arrays(self.directory)
        for _ in range(self.empty):
            directory.replay(Updates())
        return directory

    def to_bytes(self) -> bytes:
        """For a worker."""
        structure, weights = self.model.to_arrays()
        meta = {
            "format": _FORMAT,
            "format_version": _FORMAT_VERSION,
            "empty": self.empty,
            "model": structure,
            "shape": self.shape._asdict(),
            "settings": self.settings._asdict(),
        }
        members = {f"directory.{name}": array for name, array in self.directory.items()}
        members |= {f"model.{name}": array for name, array in weights.items()}
        members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        into = BytesIO()
        np.savez(into, allow_pickle=False, **members)
        return into.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What to_bytes() gave. Raises: StoredStateInvalid."""
        try:
            with np.load(BytesIO(content), allow_pickle=False) as members:
                return cls.from_arrays({name: members[name] for name in members.files})
        except (KeyError, ValueError, TypeError, OSError) as cause:
            raise StoredStateInvalid(
                f"[attach] expected the state of a driver, got bytes that are none ({cause}); use the livegnn that "
                "made the cluster"
            ) from cause

    @classmethod
    def from_arrays(cls, members: dict[str, AnyArray]) -> Self:
        """Its members. Raises: KeyError, TypeError, ValueError for others."""
        meta = json.loads(members["meta"].tobytes())
        if (meta["format"], meta["format_version"]) != (_FORMAT, _FORMAT_VERSION):
            raise ValueError(f"format {meta['format']} version {meta['format_version']}")
        return cls(
            meta["empty"],
            _part(members, "directory."),
            Model.from_arrays(meta["model"], _part(members, "model.")),
            _shape_of(meta["shape"]),
            ClusterSettings(**meta["settings"]),
        )


def notes_of(crew: Crew, detached: str) -> tuple[DriverNotes, DriverState, SnapshotFolder | None, list[StoredPart]]:
    """What the workers know of the driver before; the folder of snapshots, and those of the notes' version.

    A batch that any worker has made its own is among the batches: all had agreed to it.

    Raises:  UsageError where they know nothing; then they have ended.  WorkerUnavailable; as SnapshotFolder.claim().
    """
    versions = crew.reform()
    newest = max(range(crew.size), key=versions.__getitem__)
    notes = _ask(crew, newest, ("notes",))
    if notes is None:
        crew.close()
        raise UsageError(
            f"[attach] expected workers named {detached!r} that have begun, got none whose driver lived until then; "
            "they were ended: make the cluster anew"
        )
    state = DriverState.from_bytes(notes.state)
    if state.settings.snapshots is None:
        return notes, state, None, []
    folder = SnapshotFolder(state.settings.snapshots)
    found = folder.claim()
    if found.crew > state.settings.crew:  # the driver died between the two steps of going over to another crew
        folder.crew = state.settings.crew
        return notes, state, folder, []
    if found.version != notes.version or found.crew != state.settings.crew:
        notes = _ask(crew, newest, ("notes", found.version)) if found.crew == state.settings.crew else None
        if notes is None:
            raise UsageError(
                f"[attach] expected snapshots of these workers in {folder.path}, got those of version {found.version} "
                "of another cluster; bring theirs back"
            )
        state = DriverState.from_bytes(notes.state)
    return notes, state, folder, found.parts


def _ask(crew: Crew, worker: int, call: Call) -> DriverNotes | None:
    notes: DriverNotes | None = crew.call([call if i == worker else ("ready",) for i in range(crew.size)])[worker]
    return notes


def _shape_of(stored: dict[str, Any]) -> GraphShape:
    """JSON has lists for tuples."""
    types, edges = stored["vertex_types"], stored["edge_types"]
    tuples = {
        "vertex_types": None if types is None else tuple(types),
        "edge_types": None if edges is None else tuple(tuple(each) for each in edges),
    }
    return GraphShape(**{**stored, **tuples})


def _part(members: dict[str, AnyArray], prefix: str) -> dict[str, AnyArray]:
    return {name[len(prefix) :]: array for name, array in members.items() if name.startswith(prefix)}
