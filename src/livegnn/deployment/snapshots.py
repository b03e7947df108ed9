"""Snapshots: all that a deployment needs to start at a version without the log's entries before it.

    DIR/snapshots/VERSION/                 twelve digits; complete if and only if it has its manifest
        graph.npz                          sealed (stored.py): the graph's arrays
        graph/                             or the graph in parts (distributed/cluster/part_files.py)
        engine-NAME.npz                    sealed: model, scales and settings; its state is a function of these
        temporal-NAME.pt                   sealed: weights, memory and settings of a temporal engine (temporal.py)
        keys.json                          idempotency keys
        sources.json                       where the sources stand (places.py), if there are any
        manifest.json                      sealed: {"format", "version", "offset", "files": {name: digest}, "engines"}

A snapshot is captured while the graph's lock is held, which stops writes for as long as the graph's arrays take to
copy; it is written without the lock. Its folder has another name until all of its files are synced. After that it is
read back and compared, and only then do older ones go.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from livegnn.deployment.keys import KeptRow
from livegnn.deployment.live import GraphSource
from livegnn.deployment.places import Place
from livegnn.deployment.temporal import TemporalPart, read_part, write_part
from livegnn.errors import LiveGnnError, StoredStateInvalid
from livegnn.graph import Graph
from livegnn.inference import storage
from livegnn.models.model import Model
from livegnn.stored import checked, filled_folder, replaced, sync_folder
from livegnn.stored_arrays import read_arrays
from livegnn.types import AnyArray

FOLDER, MANIFEST, GRAPH_FILE, KEYS_FILE = "snapshots", "manifest.json", "graph.npz", "keys.json"
GRAPH_FOLDER = "graph"
SOURCES_FILE = "sources.json"
_FORMAT = "livegnn-snapshot-1"
_PARTS = "graph.part"  # prune() takes away what a crash leaves of it
_NAME = re.compile(r"[0-9]{12}")
_log = logging.getLogger("livegnn")


class EngineEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """model: its registry key, "" for one that has none.  configured: what the configuration said of it."""

    model: str
    configured: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a snapshot says of itself. files: their blake2b-256 digests."""

    format: str
    version: int
    offset: int
    files: dict[str, str]
    engines: dict[str, EngineEntry]
    temporal: dict[str, EngineEntry] = {}


@dataclass(frozen=True)
class EnginePart:
    """What of an engine goes into a snapshot."""

    model: Model
    scales: list[list[int]]
    settings: dict[str, Any]
    entry: EngineEntry


@dataclass(frozen=True)
class Captured:
    """The content of a snapshot, in memory. offset: of the first entry that it does not hold.

    graph: its arrays, or the folder of its parts.  pause_s: for how long writes were stopped.
    """

    version: int
    offset: int
    graph: Mapping[str, AnyArray] | Path
    engines: Mapping[str, EnginePart]
    keys: list[KeptRow]
    pause_s: float = 0.0
    temporal: Mapping[str, TemporalPart] = field(default_factory=dict)
    sources: Mapping[str, Place] = field(default_factory=dict)

    def source(self) -> GraphSource:
        """The graph, or the folder that workers can start from."""
        if not isinstance(self.graph, Path):
            return Graph.from_arrays(self.graph)
        from livegnn.distributed.cluster.parts_folder import PartsFolder

        return PartsFolder(self.graph)

    def whole(self) -> Graph:
        """The graph in this process."""
        return in_process_graph(self.source())


def in_process_graph(source: GraphSource) -> Graph:
    """The graph itself."""
    return source if isinstance(source, Graph) else source.whole()


def write(data: Path, captured: Captured) -> Path:
    """Writes a snapshot and reads it back; returns its folder. Raises: StorageFailed, StoredStateInvalid."""
    folder = data / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    sync_folder(data)
    place, part = folder / f"{captured.version:012d}", folder / f"{captured.version:012d}.part"
    if (place / MANIFEST).is_file():
        with contextlib.suppress(StoredStateInvalid):
            check(place)
            return place
    for left in (place, part):  # damaged, or of a crash
        shutil.rmtree(left, ignore_errors=True)
    with filled_folder("snapshot", place, part):
        if isinstance(captured.graph, Path):
            os.rename(captured.graph, part / GRAPH_FOLDER)
        else:
            with replaced(part / GRAPH_FILE, "snapshot") as file:
                np.savez(file, allow_pickle=False, **captured.graph)
        for name, engine in captured.engines.items():
            storage.save(part / f"engine-{name}.npz", {}, engine.model, engine.scales, engine.settings)
        for name, each in captured.temporal.items():
            write_part(part / f"temporal-{name}.pt", each)
        with replaced(part / KEYS_FILE, "snapshot", sealed=False) as file:
            file.write(msgspec.json.encode(captured.keys))
        if captured.sources:
            with replaced(part / SOURCES_FILE, "snapshot", sealed=False) as file:
                file.write(msgspec.json.encode(captured.sources))
        names = sorted(str(one.relative_to(part)) for one in part.rglob("*") if one.is_file())
        entries = {name: engine.entry for name, engine in captured.engines.items()}
        files = {name: _digest(part / name) for name in names}
        temporal = {name: EngineEntry(each.key, each.configured) for name, each in captured.temporal.items()}
        manifest = Manifest(_FORMAT, captured.version, captured.offset, files, entries, temporal)
        with replaced(part / MANIFEST, "snapshot") as file:
            file.write(msgspec.json.encode(manifest))
    check(place)
    return place


def folder_of_parts(data: Path) -> Path:
    """The path of a new folder for a graph in parts, which write() moves to its snapshot."""
    folder = data / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / _PARTS
    shutil.rmtree(place, ignore_errors=True)  # of a crash
    return place


def check(place: Path) -> Manifest:
    """Compares every file of a snapshot with its digest. Raises: StoredStateInvalid naming the file."""
    manifest = manifest_of(place)
    for name, digest in manifest.files.items():
        if _digest(place / name) != digest:
            raise StoredStateInvalid(
                f"[snapshot] expected {place / name} as it was written, got other bytes; remove the snapshot's "
                "folder, and an older one is used"
            )
    return manifest


def read(place: Path) -> Captured:
    """A snapshot, each file compared with its digest. Raises: StoredStateInvalid naming the file."""
    manifest = check(place)
    graph: Mapping[str, AnyArray] | Path = place / GRAPH_FOLDER
    if GRAPH_FILE in manifest.files:
        with checked(place / GRAPH_FILE, "snapshot", expected="a graph", advice="use another snapshot") as content:
            graph = read_arrays(content)
    engines: dict[str, EnginePart] = {}
    for name, entry in manifest.engines.items():
        with storage.opened(place / f"engine-{name}.npz") as content:
            _, model, scales, settings = storage.parts(content)
            engines[name] = EnginePart(model, scales, settings, entry)
    temporal = {
        name: read_part(place / f"temporal-{name}.pt", entry.model, entry.configured)
        for name, entry in manifest.temporal.items()
    }
    keys = msgspec.json.decode((place / KEYS_FILE).read_bytes(), type=list[KeptRow])
    sources: dict[str, Place] = {}
    if SOURCES_FILE in manifest.files:
        sources = msgspec.json.decode((place / SOURCES_FILE).read_bytes(), type=dict[str, Place])
    return Captured(manifest.version, manifest.offset, graph, engines, keys, temporal=temporal, sources=sources)


def written_at(data: Path, version: int) -> float:
    """When a snapshot was written, in Unix seconds. Raises: OSError where it is gone."""
    return (data / FOLDER / f"{version:012d}" / MANIFEST).stat().st_mtime


def newest(data: Path, up_to: int | None = None, *, set_aside: bool = False) -> Captured | None:
    """The newest sound snapshot whose version is at most `up_to`; damaged ones are logged and left out.

    Args:    set_aside: renames the damaged ones to VERSION.damaged, so that they do not count among those that stay.
    Raises:  StoredStateInvalid where there are snapshots, all of them damaged.
    """
    damaged: list[Path] = []
    for place in reversed(listed(data)):
        if up_to is not None and int(place.name) > up_to:
            continue
        try:
            found = read(place)
        except LiveGnnError as error:
            _log.error("[snapshot] %s is damaged and left out: %s", place, error)
            damaged.append(place)
            continue
        for each in damaged if set_aside else ():
            aside = each.with_name(f"{each.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(each, aside)
        return found
    if damaged:
        raise StoredStateInvalid(
            f"[snapshot] expected a sound snapshot in {data / FOLDER}, got {', '.join(each.name for each in damaged)}, "
            "all damaged; restore one from a copy"
        )
    return None


def listed(data: Path) -> list[Path]:
    """The folders of complete snapshots, the oldest first."""
    folder = data / FOLDER
    found = [one for one in folder.iterdir() if _NAME.fullmatch(one.name)] if folder.is_dir() else []
    return sorted(one for one in found if (one / MANIFEST).is_file())


def prune(data: Path, keep: int) -> None:
    """Removes all but the newest `keep` snapshots, and what crashed writers left."""
    for place in listed(data)[:-keep]:
        (place / MANIFEST).unlink(missing_ok=True)  # first, so that a crash leaves no half of one that looks whole
        shutil.rmtree(place, ignore_errors=True)
    for part in (data / FOLDER).glob("*.part"):
        shutil.rmtree(part, ignore_errors=True)


class Pause:
    """Measures how long writes are stopped: `with Pause() as pause: ...`, then pause.seconds."""

    def __enter__(self) -> Pause:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start


def manifest_of(place: Path) -> Manifest:
    """The manifest of a snapshot, whose other files are not looked at. Raises: StoredStateInvalid."""
    expected = "the manifest of a snapshot"
    with checked(place / MANIFEST, "snapshot", expected=expected, advice="remove the snapshot's folder") as content:
        found = msgspec.json.decode(content.read() or b"", type=Manifest)
        if not content.sealed or found.format != _FORMAT or found.version != int(place.name):
            raise ValueError(f"{found.format} of version {found.version}, not {_FORMAT} of {int(place.name)}")
    return found


def newest_manifest(data: Path) -> Manifest | None:
    """Of the newest snapshot whose manifest can be read; its other files are not looked at."""
    for place in reversed(listed(data)):
        with contextlib.suppress(LiveGnnError):
            return manifest_of(place)
    return None


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
    except OSError as cause:
        raise StoredStateInvalid(
            f"[snapshot] expected to read {path}, got {cause.strerror}; use another one"
        ) from cause
