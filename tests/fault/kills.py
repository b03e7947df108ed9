"""A deployment that is killed again and again, at named points and at random; what it recovers is checked each time.

A victim is a process that serves one folder: three threads write batches with keys, one swaps, rescales and takes
snapshots, edges expire, and old entries of the log are released. Nothing of the product knows of this: the victim
wraps calls of its own process, and one of them ends it with SIGKILL. The next victim starts on what is left. It
reports the state that it found, and sends again what was not acknowledged, as a client does.

The checks: every acknowledged key is in the history, none twice, each with its updates; graph, engines, shadow and keys
are those of a clean replay of the whole history from its first snapshot. Entries that are released are copied to an
archive first, so that the whole history is there.

tests/soak/kills.py does so a thousand times, and prints a table.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import livegnn as lg
from livegnn import stored
from livegnn.deployment import Registry, audit, snapshots
from livegnn.deployment.note import decode_note
from livegnn.graph.consumers import Switch
from livegnn.log import UpdateLog, open_log
from livegnn.log.interface import ByteLog
from livegnn.log.sqlite import SqliteLog
from livegnn.log.tail import TailFile
from livegnn.log.updates import Attachment
from tests.soak.victims import Victim, random_wait
from tests.unit.deployment.world import model

WRITERS, BATCHES = 3, 8
VERTICES, TTL = 30, 25
_REMOVE_EDGES_BEFORE = 2
_LIVES_FROM = "tests.fault.kills"

POINTS = (
    "snapshot: half a file written",
    "snapshot: before a sync",
    "snapshot: before a rename",
    "snapshot: after a rename",
    "snapshot: before an old one goes",
    "batch: before its entry",
    "batch: after its entry",
    "ttl step: before its entry",
    "ttl step: after its entry",
    "swap: before its entry",
    "swap: after its entry",
    "rescale: before its entry",
    "rescale: after its entry",
    "entry: before its commit",
    "entry: after its commit",
    "entry: before the tail record",
    "entry: after the tail record",
    "release: before",
    "release: before its commit",
    "release: after its commit",
)


# ---- the victim's process


class Trap:
    """Ends this process when a point is reached for the nth time. "": never."""

    def __init__(self, point: str, nth: int) -> None:
        self.point, self.left = point, nth
        self.lock = threading.Lock()

    def at(self, point: str) -> None:
        if point != self.point:
            return
        with self.lock:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(3600)


def set_traps(trap: Trap) -> None:
    """Wraps the calls of this process that a point lies before, in or after."""
    write, fsync, replace, rmtree = stored.PartFile.write, os.fsync, os.replace, shutil.rmtree
    record, release, append, connect = TailFile.write, SqliteLog._release, Attachment.append, sqlite3.connect
    at_work = threading.local()

    def write_half(self: Any, data: Any, /) -> int:
        if trap.point == "snapshot: half a file written":
            whole = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
            if trap.left == 1:
                write(self, whole[: len(whole) // 2])
            trap.at(trap.point)
        return write(self, data)

    def sync(descriptor: int) -> None:
        trap.at("snapshot: before a sync")
        fsync(descriptor)

    def rename(old: Any, new: Any) -> None:
        trap.at("snapshot: before a rename")
        replace(old, new)
        trap.at("snapshot: after a rename")

    def remove(place: Any, **options: Any) -> None:
        trap.at("snapshot: before an old one goes")
        rmtree(place, **options)

    def write_record(self: Any, where: str, *args: Any, **options: Any) -> None:
        if where == "append":
            trap.at("entry: before the tail record")
        record(self, where, *args, **options)
        if where == "append":
            trap.at("entry: after the tail record")

    def let_go(self: Any, first: int, before: int) -> None:
        trap.at("release: before")
        at_work.release = True
        release(self, first, before)
        at_work.release = False

    def append_entry(self: Any, recorded: Any) -> None:
        kind = recorded.kind if isinstance(recorded, Switch) else "batch"
        if kind == "batch" and (recorded.buffer.to_arrays()["kind"] == _REMOVE_EDGES_BEFORE).any():
            kind = "ttl step"
        trap.at(f"{kind}: before its entry")
        append(self, recorded)
        trap.at(f"{kind}: after its entry")

    class Database(sqlite3.Connection):
        def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
            what = "release" if getattr(at_work, "release", False) else "entry"
            if statement == "COMMIT":
                trap.at(f"{what}: before its commit")
            found = super().execute(statement, *args)
            if statement == "COMMIT":
                trap.at(f"{what}: after its commit")
            return found

    stored.PartFile.write, TailFile.write = write_half, write_record  # type: ignore[method-assign]
    SqliteLog._release, Attachment.append = let_go, append_entry  # type: ignore[method-assign]
    os.fsync, os.replace, shutil.rmtree = sync, rename, remove  # type: ignore[assignment]
    sqlite3.connect = lambda *args, **options: connect(*args, factory=Database, **options)  # type: ignore[assignment]


def first_graph() -> lg.Graph:
    rng = np.random.default_rng(1)
    ends = rng.integers(0, VERTICES, (2, 60))
    features = rng.normal(size=(VERTICES, 4)).astype(np.float32)
    return lg.Graph(features, ends[0], ends[1], time=np.arange(60), ttl=TTL)


def deployment(folder: Path) -> lg.Deployment:
    config = {
        "models": str(folder / "models"),
        "engine": [{"name": "scores", "model": "fraud", "shadow": "fraud/2", "threads": 1}],
        "snapshots": {"every_entries": 9, "keep": 2, "at_close": False},
        "log": {"keep_entries": 4},
    }
    return lg.Deployment(config, folder / "data", graph=first_graph)


def batch_of(key: str) -> lg.Updates:
    """The updates of a key "LIFE-WRITER-NUMBER": edges of their own times, which rise with the lives."""
    life, writer, number = map(int, key.split("-"))
    rng = np.random.default_rng([life, writer, number])
    updates = lg.Updates()
    for _ in range(int(rng.integers(1, 4))):
        u, v = rng.integers(0, VERTICES, 2).tolist()
        updates.add_edge(u, v, time=60 + life * BATCHES + number)
    return updates


def archive(log: ByteLog, folder: Path, before: int) -> None:
    """Copies what the archive lacks, up to an offset."""
    with open_log(f"sqlite:{folder / 'archive.db'}", synchronous="NORMAL") as kept:
        for entry in log.read(kept.tail, max(0, before - kept.tail)):
            kept.append(entry.payload, expect=entry.offset)


def keep_released(folder: Path) -> None:
    release = ByteLog.release

    def keeping(self: ByteLog, before: int) -> int:
        archive(self, folder, before)
        return release(self, before)

    ByteLog.release = keeping  # type: ignore[method-assign]


def state_of(graph: lg.Graph, engines: Any) -> tuple[int, int, dict[str, str]]:
    return graph.version, graph.digest(), {name: each.state_digest() for name, each in engines.items()}


def live(connection: Any, folder: Path, life: int, again: list[str], point: str, nth: int) -> None:
    """One life: recovers, reports, works, and waits for its end."""
    if life:
        set_traps(Trap(point, nth))
    keep_released(folder)
    saying = threading.Lock()

    def say(*what: Any) -> None:
        with saying:
            connection.send(what)

    one = deployment(folder).start()
    if not life:
        shutil.copytree(snapshots.listed(folder / "data")[0], folder / "first" / "snapshots" / "000000000000")
    archive(one.log.log, folder, one.log.tail)
    say("state", state_of(one.graph, one.engines))
    for key in again:
        say("repeated", (key, one.apply(batch_of(key), key=key).repeated))

    def write(writer: int) -> None:
        for number in range(BATCHES):
            key = f"{life}-{writer}-{number}"
            say("sent", key)
            one.apply(batch_of(key), key=key)
            say("acknowledged", key)

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    chance = random.Random(life)
    for _ in range(4):
        match chance.choice(("swap", "rescale", "snapshot", "snapshot")):
            case "swap":
                one.swap(chance.choice(("scores", "scores.shadow")), f"fraud/{chance.randint(1, 3)}")
            case "rescale":
                one.rescale("scores", float(2 ** chance.randint(7, 10)))
            case _:
                one.snapshot()
    for thread in threads:
        thread.join()
    one.snapshot()
    say("idle", None)
    time.sleep(3600)


# ---- the process that looks on


class Witness:
    """What is known of one folder from outside, from life to life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        registry = Registry(folder / "models")
        for seed in range(3):
            registry.add("fraud", model(seed))
        self.lives = 0
        self.sent: list[str] = []
        self.acknowledged: set[str] = set()
        self.keys: set[str] = set()  # in the history
        self.kills: Counter[str] = Counter()
        self.entries = 0
        self.kinds: Counter[str] = Counter()
        self._replayed: Any = None
        self._live("", 0, 1e9)

    def kill(self, point: str, nth: int, seconds: float = 1e9) -> None:
        """One more life, which ends at the nth time that it reaches a point, or after so many seconds of work."""
        self._live(point, nth, seconds)

    def _live(self, point: str, nth: int, seconds: float) -> None:
        again = [key for key in self.sent if key not in self.acknowledged]
        with Victim([_LIVES_FROM], live, self.folder, self.lives, again, point, nth) as victim:
            deadline, ended, idle = None, False, False
            while not ended and not idle and (deadline is None or time.monotonic() < deadline):
                wait = 120.0 if deadline is None else max(0.0, deadline - time.monotonic())
                said = victim.said(min(wait, 0.5))
                deadline = deadline or (time.monotonic() + seconds if said or seconds < 1e9 else None)
                idle = self._hear(said)
                ended = not victim._process.is_alive()
            self._hear(victim.kill())
        self.kills[point if ended and point else "at any time"] += 1
        self.lives += 1

    def _hear(self, said: list[Any]) -> bool:
        for kind, value in said:
            if kind == "state":
                self._check(value)
            elif kind == "repeated":
                key, was_there = value
                assert was_there == (key in self.keys), f"{key}: repeated {was_there}"
                self.acknowledged.add(key)
            elif kind == "sent":
                self.sent.append(value)
            elif kind == "acknowledged":
                self.acknowledged.add(value)
        return any(kind == "idle" for kind, _ in said)

    def _check(self, state: Any) -> None:
        """What a victim recovered, against a clean replay of the whole history."""
        if self._replayed is None:
            self._replayed = audit._Replayed(snapshots.read(snapshots.listed(self.folder / "first")[0]))
        with UpdateLog(open_log(f"sqlite:{self.folder / 'archive.db'}", synchronous="NORMAL")) as history:
            for entry in history.read(self.entries):
                self._read(entry)
            self._replayed.to(history, history.tail)
            self.entries = history.tail
        expected = state_of(self._replayed.graph, self._replayed.engines)
        assert state == expected, f"life {self.lives}: recovered {state}, expected {expected}"
        lost = self.acknowledged - self.keys
        assert not lost, f"life {self.lives}: acknowledged and lost: {sorted(lost)}"

    def _read(self, entry: Any) -> None:
        requests = decode_note(entry.note, entry.offset).requests
        for one in requests:
            assert one.key not in self.keys, f"offset {entry.offset}: {one.key} twice"
            self.keys.add(one.key)
        kinds = entry.updates.buffer.to_arrays()["kind"]
        added = int((kinds != _REMOVE_EDGES_BEFORE).sum())
        assert added == sum(len(batch_of(one.key)) for one in requests), f"offset {entry.offset}: other updates"
        expired = "ttl steps" if added < len(kinds) else "batches"
        self.kinds[entry.switch.kind if entry.switch is not None else expired] += 1

    def finish(self) -> None:
        """The last check, in a life that is not disturbed, and an audit of the folder."""
        self._live("", 0, 1e9)
        self._live("", 0, 1e9)
        faults = [one for one in audit.verify(self.folder / "data") if one.fault]
        assert not faults, faults
        with UpdateLog(open_log(f"sqlite:{self.folder / 'data' / 'history.db'}", must_exist=True)) as log:
            assert 0 < log.first < log.tail, "nothing was released"


def run(folder: Path, kills: int, seed: int) -> Witness:
    """So many kills of one folder: in turn at each point, and every third time at random."""
    chance, witness = random.Random(seed), Witness(folder)
    rng = np.random.default_rng(seed)
    points = itertools.cycle(POINTS)
    for number in range(kills):
        if number % 3 == 2:
            witness.kill("", 0, random_wait(rng, 0.4))
        else:
            witness.kill(next(points), chance.randint(1, 3))
    witness.finish()
    return witness
