"""Looking at a data folder from outside: does its history hold, and what was the state at a time?

Both read a folder that no process has open. verify() compares every snapshot with the replay of the one before it, so a
wrong bit in log or snapshot cannot hide; restored() makes another folder, whose history begins with the state as of an
offset or time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from livegnn.deployment import snapshots
from livegnn.deployment.config import SHADOW_SUFFIX
from livegnn.deployment.folder import locked, log_url
from livegnn.deployment.keys import KeptKeys
from livegnn.deployment.note import decode_note
from livegnn.deployment.places import KeptPlaces
from livegnn.deployment.snapshots import Captured, EngineEntry, EnginePart, Manifest
from livegnn.deployment.temporal import joined, remade
from livegnn.errors import FileMissing, LiveGnnError, LogDamaged, StoredStateInvalid, UsageError
from livegnn.inference import Engine, storage
from livegnn.log import UpdateEntry, UpdateLog, open_log, replay
from livegnn.models.model import Model
from livegnn.temporal.switches import KIND as TEMPORAL_SWAP

_KEYS_MAX = 2**31


class Finding(NamedTuple):
    """One thing that verify() looked at. fault: "" where it holds."""

    what: str
    fault: str


class _Replayed:
    """Graph, engines, keys and places of a snapshot, moved on along the log; an engine that is new there joins them."""

    def __init__(self, captured: Captured) -> None:
        self.graph = captured.whole()
        self.first = self.graph.version - captured.offset  # version less offset
        self.keys = KeptKeys(_KEYS_MAX)
        self.keys.restore(captured.keys)
        self.places = KeptPlaces()
        self.places.move(captured.sources)
        self.entries = {name: part.entry for name, part in captured.engines.items()}
        self.engines: dict[str, Engine] = {}
        for name, part in captured.engines.items():
            self._add(name, part.model, part.scales)
        self.temporal = {name: remade(name, part, self.graph) for name, part in captured.temporal.items()}

    def _add(self, name: str, model: Model, scales: list[list[int]]) -> None:
        self.engines[name] = engine = Engine(model, self.graph, scales=scales, name=name)
        if name.endswith(SHADOW_SUFFIX):  # a batch that it refuses stands without it
            self.graph.host.excuse(engine, lambda error: self.engines.pop(name).close())

    def to(self, log: UpdateLog, offset: int) -> None:
        """Applies the entries before `offset`. Raises: LogDamaged, UsageError."""
        replay(log, self.graph, self.graph.version - self.first, offset, seen=self._follow)

    def _follow(self, entry: UpdateEntry) -> None:
        note, switch = decode_note(entry.note, entry.offset), entry.switch
        self.keys.add(note.requests, self.graph.version)
        self.places.move(note.sources)
        if switch is not None and switch.kind == "swap":
            if switch.name not in self.engines:
                self._add(switch.name, *storage.swapped(switch))
            known = self.entries.get(switch.name, EngineEntry("", ""))
            self.entries[switch.name] = EngineEntry(note.model, note.configured or known.configured)
        if switch is not None and switch.kind == TEMPORAL_SWAP:
            if switch.name not in self.temporal:
                self.temporal[switch.name] = joined(switch, self.graph)
            use = self.temporal[switch.name]
            use.key, use.configured = note.model, note.configured or use.configured

    def differs(self, other: _Replayed) -> str:
        """How another state of the same version is not this one, "" if it is."""
        if self.graph.digest() != other.graph.digest():
            return "another graph than the replay of the log"
        if missing := set(other.engines) - set(self.engines):
            return f"engine {min(missing)!r}, which the log does not have"
        for name, engine in other.engines.items():
            if engine.state_digest() != self.engines[name].state_digest():
                return f"another state of engine {name!r} than the replay of the log"
        for name, use in other.temporal.items():
            if name not in self.temporal or use.engine.state_digest() != self.temporal[name].engine.state_digest():
                return f"another state of temporal engine {name!r} than the replay of the log"
        if other.keys.rows() != self.keys.rows()[-len(other.keys) :][: len(other.keys)]:
            return "other keys than the replay of the log"
        if other.places.all() != self.places.all():
            return "other places of the sources than the replay of the log"
        return ""

    def captured(self) -> Captured:
        """All of it, as the beginning of another history."""
        parts = {
            name: EnginePart(engine.model, engine.scales, engine.settings, self.entries[name])
            for name, engine in self.engines.items()
        }
        temporal, sources = {name: use.part() for name, use in self.temporal.items()}, self.places.all()
        graph, keys = self.graph.to_arrays(), self.keys.rows()
        return Captured(self.graph.version, 0, graph, parts, keys, temporal=temporal, sources=sources)


def verify(data: Path, url: str = "", progress: Callable[[str], object] = lambda text: None) -> list[Finding]:
    """Reads every snapshot and entry, and replays from each sound snapshot to the next one and to the log's end.

    Raises:  UsageError where a process has the folder open; FileMissing without a folder, or a log.
    """
    findings: list[Finding] = []
    with _opened(data, url) as log:
        present: _Replayed | None = None
        for place in snapshots.listed(data):
            progress(f"snapshot {place.name}")
            try:
                captured = snapshots.read(place)
                found, fault = _Replayed(captured), ""
                if present is not None:
                    present.to(log, captured.offset)
                    fault = present.differs(found)
                present = found
            except LiveGnnError as error:
                fault = str(error)
            findings.append(Finding(f"snapshot {place.name}", fault))
        progress("log")
        what = f"log of {log.tail} entries" + (f", {log.first} of them released" if log.first else "")
        findings.append(Finding(what, _fault_of_tail(log, present)))
    return findings


def _fault_of_tail(log: UpdateLog, present: _Replayed | None) -> str:
    if present is None:
        return "no sound snapshot to replay it from"
    try:
        present.to(log, log.tail)
        for engine in present.engines.values():
            engine.verify()
    except LiveGnnError as error:
        return str(error)
    return ""


def restored(data: Path, target: Path, *, version: int | None = None, time_ms: int | None = None, url: str = "") -> int:
    """Makes a data folder whose history begins with the state as of a version, or of a time; returns that version.

    Args:    time_ms: wall clock, in milliseconds since 1970; the state after the last entry that was committed by then.
    Raises:  UsageError for a target that is there, a version that is not, or a folder that is open; LogDamaged;
             StoredStateInvalid.
    """
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"[restore] expected an empty folder {target}, got one with files; name another")
    with _opened(data, url) as log:
        begin = _oldest_manifest(data)
        oldest, first = begin.version, begin.version - begin.offset
        wanted = log.tail + first if version is None else version
        if time_ms is not None:
            wanted = _version_at(log, time_ms, begin.offset, first)
        if not oldest <= wanted <= log.tail + first:
            raise UsageError(
                f"[restore] expected a version from {oldest} to {log.tail + first}, got {wanted}; name one of these"
            )
        found = snapshots.newest(data, up_to=wanted)
        if found is None:
            raise LogDamaged(f"[restore] expected a sound snapshot of version {wanted} or before, got none in {data}")
        state = _Replayed(found)
        state.to(log, wanted - first)
        target.mkdir(parents=True, exist_ok=True)
        snapshots.write(target, state.captured())
        return wanted


def _oldest_manifest(data: Path) -> Manifest:
    """Of the oldest snapshot that is sound. Raises: FileMissing without snapshots; StoredStateInvalid."""
    places = snapshots.listed(data)
    if not places:
        raise FileMissing(f"[restore] expected snapshots in {data}, got none; name a deployment's data folder")
    for place in places:
        try:
            return snapshots.check(place)
        except StoredStateInvalid as error:
            damage = error
    raise damage


def _version_at(log: UpdateLog, time_ms: int, begin: int, first: int) -> int:
    """The version after the last entry, from `begin` on, that was committed by a time."""
    found = begin
    for entry in log.read(begin):
        if decode_note(entry.note, entry.offset).time_ms <= time_ms:
            found = entry.offset + 1
    return found + first


@contextmanager
def _opened(data: Path, url: str) -> Iterator[UpdateLog]:
    if not data.is_dir():
        raise FileMissing(f"[{data}] expected a deployment's data folder, got none there; check the path")
    with locked(data), UpdateLog(open_log(log_url(data, url), must_exist=True)) as log:
        yield log
