"""Group commit: many callers' batches become one entry of the log, one version of the graph.

    callers -> queue -> one thread: one batch of all that waits -> graph, engines, log (durable) -> answers

A caller's updates stay together and in order: all of them are in one entry, or none. Where an entry is refused, its
requests are applied one by one, so that a bad one is refused alone. While one entry is synced, the next ones gather:
the cost of a sync is shared by as many requests as come in meanwhile.

A failure of the log may hide that an entry was written. The committer then reads the log on (catch_up): if the entry is
there, its requests stand. Until that succeeds, every request is refused as LogUnavailable. One that comes again is then
known by its key, or by the place of its source, and is not written twice.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from livegnn.deployment import tracing
from livegnn.deployment.events import emit
from livegnn.deployment.keys import Applied, KeptKeys, checked_key, refuse_other
from livegnn.deployment.note import Note, Noted, decode_note, encode_note
from livegnn.deployment.places import KeptPlaces, SourceMove
from livegnn.errors import (
    LiveGnnError,
    LogError,
    LogUnavailable,
    Overloaded,
    UsageError,
    WorkerUnavailable,
)
from livegnn.graph import Updates
from livegnn.log import Attachment, UpdateEntry, codec

_REST_S, _REST_MOST_S = 0.001, 0.015  # for each request of the entry before, but one; and in all
_RESTED_UPDATES = 1000  # of an entry with as many, most of the time goes to the updates
_log = logging.getLogger("livegnn")


class CommitRequest(NamedTuple):
    """One caller's batch. noted: its key, where it has one.  since: when it came, in seconds of time.monotonic.

    move: of the source that it came from, where it did.  span: of the caller, where traces are kept.
    """

    updates: Updates
    noted: Noted | None
    future: Future[Applied]
    since: float
    move: SourceMove | None
    span: Any = None


class CommitStats(NamedTuple):
    """entries: written.  requests, updates: in them.  waiting_requests, waiting_updates: in the queue.  refused: by a
    full queue.  freshness_s: from acceptance to visibility, of the newest requests, oldest first.
    """

    entries: int
    requests: int
    updates: int
    waiting_requests: int
    waiting_updates: int
    refused: int
    freshness_s: tuple[float, ...]


class Committer:
    """The one writer of a deployment's batches. Its thread ends with close().

    Args:    followed: called with the note of each entry that the log had more than the graph.
             rests: whether requests gather for a moment after an entry of several small ones. An entry over workers
             takes the interpreter for a millisecond, however few its requests, and who answers them waits for it.
    Raises:  LogDamaged, LogUnavailable, UsageError where the log has entries that the graph cannot take: at the start
             it applies what the log has more.
    """

    def __init__(
        self,
        attachment: Attachment,
        keys: KeptKeys,
        places: KeptPlaces,
        *,
        group_updates_max: int,
        queue_updates_max: int,
        followed: Callable[[Note, UpdateEntry], object],
        rests: bool = False,
    ) -> None:
        self._attachment, self._keys, self._places, self._followed = attachment, keys, places, followed
        self._group_max, self._queue_max, self._rests = group_updates_max, queue_updates_max, rests
        self._queue: deque[CommitRequest] = deque()
        self._under_way: dict[str, CommitRequest] = {}
        self._lock = threading.Condition()
        self._closing = False
        self._doubtful = False  # the log may have an entry that the graph has not
        self._waiting_updates = self._entries = self._requests = self._updates = self._refused = 0
        self._freshness: deque[float] = deque(maxlen=4096)
        self._awaited: dict[Future[None], int] = {}  # versions that callers wait for
        attachment.around = lambda: tracing.inner_span("livegnn.durable")
        attachment.catch_up(self._follow)
        self._thread = threading.Thread(target=self._run, name="livegnn-committer", daemon=True)
        self._thread.start()

    # ---- callers

    def submit(
        self, updates: Updates, key: str | None = None, digest: str | None = None, move: SourceMove | None = None
    ) -> Future[Applied]:
        """A future of the answer, once the updates are durable and visible.

        The caller no longer changes `updates`. A key that is known gives the first answer; one that is under way gives
        the same future. A move whose source has left its beginning is in the log, and is not applied again.
        Raises:  UsageError for a key with other updates, or when closed; Overloaded; ValueInvalid, DtypeInvalid.
        """
        if not isinstance(updates, Updates):
            raise UsageError(
                f"[apply] expected Updates, got {type(updates).__name__}; collect them in livegnn.Updates()"
            )
        noted = None
        if key is not None:
            noted = Noted(checked_key(key), digest or digest_of(updates), len(updates))
        with self._lock:
            if noted is not None and (known := self._known(noted)) is not None:
                return known
            if self._closing:
                raise UsageError("[apply] expected an open deployment, got a closed one; start it again")
            count = len(updates)
            if self._waiting_updates and self._waiting_updates + count > self._queue_max:
                self._refused += 1
                raise Overloaded(
                    f"[apply] expected at most {self._queue_max} updates waiting, got {self._waiting_updates} and "
                    f"{count} more; send them again later"
                )
            request = CommitRequest(updates, noted, Future(), time.monotonic(), move, tracing.current())
            request.future.set_running_or_notify_cancel()  # callers with one key share it: none may cancel it
            self._queue.append(request)
            self._waiting_updates += count
            if noted is not None:
                self._under_way[noted.key] = request
            self._lock.notify_all()
            return request.future

    def _known(self, noted: Noted) -> Future[Applied] | None:
        """The answer to a key that came before, or will have one. The caller holds the lock."""
        found = self._keys.find(noted.key, noted.digest)
        if found is not None:
            answered: Future[Applied] = Future()
            answered.set_result(found)
            return answered
        waiting = self._under_way.get(noted.key)
        if waiting is None or waiting.noted is None:
            return None
        refuse_other(noted.key, waiting.noted.digest, noted.digest)
        return waiting.future

    @property
    def stats(self) -> CommitStats:
        """What was done, and what waits."""
        with self._lock:
            counts = (self._entries, self._requests, self._updates, len(self._queue), self._waiting_updates)
            return CommitStats(*counts, self._refused, tuple(self._freshness))

    @property
    def is_sound(self) -> bool:
        """Whether the newest entry's place is known: False from a failure of the log until it answers again."""
        return not self._doubtful

    def close(self) -> None:
        """Answers all that waits, then ends the thread. Later requests are refused. A second call does nothing."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
            awaited = list(self._awaited)
        for future in awaited:
            if future.set_running_or_notify_cancel():
                future.set_exception(UsageError("[at_least] expected an open deployment, got a closed one; start it"))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def switch(self, make: Callable[[], object], engine: str = "", model: str = "", configured: str = "") -> int:
        """Makes a swap or rescale in the caller's thread, as an entry of its own; the version that it made.

        Args:    engine, model, configured: of its note.
        Raises:  what `make` raises; LogError where the log failed.
        """
        version = self._written(make, Note(_wall_ms(), [], engine, model, configured))
        self._tell_awaited()
        return version

    def reached(self, version: int) -> Future[None]:
        """A future that is done when the graph has this version. Cancel it to wait no longer."""
        future: Future[None] = Future()
        with self._lock:
            if not self._closing and self._attachment.graph.version < version:
                self._awaited[future] = version
                future.add_done_callback(lambda done: self._awaited.pop(done, None))
                return future
        future.set_result(None)
        return future

    def _tell_awaited(self) -> None:
        version = self._attachment.graph.version
        for future, wanted in list(self._awaited.items()):
            if wanted <= version and future.set_running_or_notify_cancel():
                future.set_result(None)

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._closing:
                    self._lock.wait()
                if not self._queue:
                    return
                group = self._taken()
            self._commit(group)
            if self._rests and (rest := rest_after(len(group), sum(len(one.updates) for one in group))):
                time.sleep(rest)

    def _taken(self) -> list[CommitRequest]:
        """The next group: the oldest request, and those after it that fit. The caller holds the lock."""
        group = [self._queue.popleft()]
        count = len(group[0].updates)
        while self._queue and count + len(self._queue[0].updates) <= self._group_max:
            group.append(self._queue.popleft())
            count += len(group[-1].updates)
        self._waiting_updates -= count
        return group

    def _commit(self, group: list[CommitRequest]) -> None:
        """One entry of the group; one for each request where that is refused."""
        try:
            group = self._unwritten(group)
            if not group:
                return
            updates = group[0].updates if len(group) == 1 else _merged(group)
            sources = {one.move.source: one.move.after for one in group if one.move is not None}
            note = Note(_wall_ms(), [one.noted for one in group if one.noted is not None], sources=sources)
            with tracing.commit_span([one.span for one in group], len(group), len(updates)):
                version = self._written(lambda: self._attachment.graph.apply(updates), note)
        except BaseException as error:  # the callers get it; the thread serves on
            if len(group) == 1 or not isinstance(error, Exception) or isinstance(error, LogError | WorkerUnavailable):
                self._fail(group, error)
                return
            for one in group:
                self._commit([one])
        else:
            self._answer(group, version)

    def _unwritten(self, group: list[CommitRequest]) -> list[CommitRequest]:
        """Those that the log does not have. After a failure that hid a success, the others get their first answer.

        Raises: LogError while the log does not answer.
        """
        if self._doubtful:
            with self._attachment.graph.host.lock:
                self._settle()
        unwritten: list[CommitRequest] = []
        for one in group:
            try:
                with self._lock:
                    found = self._found(one)
            except UsageError as error:
                self._fail([one], error)
                continue
            if found is None:
                unwritten.append(one)
            else:
                self._forget([one])
                one.future.set_result(found)
        return unwritten

    def _found(self, one: CommitRequest) -> Applied | None:
        """The first answer of a request that the log has. The caller holds the lock. Raises: UsageError."""
        found = None if one.noted is None else self._keys.find(one.noted.key, one.noted.digest)
        if found is None and one.move is not None and not self._places.is_next(one.move):
            return Applied(self._attachment.graph.version, len(one.updates), repeated=True)
        return found

    def _written(self, write: Callable[[], object], note: Note) -> int:
        """The version that `write` made. Raises: what refuses it; LogError where the log failed."""
        with self._attachment.noting(encode_note(note)):  # holds the writer's place
            self._settle()
            version = self._tried(write)
            with self._lock:  # before the place is free: a snapshot of this version has its keys
                self._keys.add(note.requests, version)
                self._places.move(note.sources)
            return version

    def _tried(self, write: Callable[[], object]) -> int:
        graph = self._attachment.graph
        before = graph.version
        try:
            with tracing.inner_span("livegnn.apply"):
                write()
        except LogError as failure:
            self._doubtful = True
            emit(
                "log_unavailable",
                "[log] an append failed; updates are refused until it answers",
                error=failure,
                level=logging.ERROR,
                version=before,
            )
            try:
                self._settle()
            except LiveGnnError as cause:
                raise LogUnavailable(
                    f"[apply] expected the log to say whether it has the batch, got: {cause}; send it again with its "
                    "key"
                ) from failure
            if graph.version == before:
                raise
        except BaseException:
            if graph.version == before:
                raise
            _log.exception("[apply] what follows the graph failed at version %d; the batch stands", graph.version)
        return graph.version

    def _settle(self) -> None:
        """After a failure: reads the log on. Raises: LogError while it does not answer."""
        if self._doubtful or self._attachment.is_ahead:
            self._attachment.catch_up(self._follow)
            self._doubtful = False
            emit("log_back", "[log] it answers again", version=self._attachment.graph.version)
            self._tell_awaited()

    def _follow(self, entry: UpdateEntry) -> None:
        """Keeps what was noted with an entry that the log had more than the graph."""
        note = decode_note(entry.note, entry.offset)
        with self._lock:
            self._keys.add(note.requests, self._attachment.graph.version)
            self._places.move(note.sources)
        self._followed(note, entry)

    def _answer(self, group: list[CommitRequest], version: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._entries += 1
            self._requests += len(group)
            for one in group:
                self._updates += len(one.updates)
                self._freshness.append(now - one.since)
                if one.noted is not None:
                    self._under_way.pop(one.noted.key, None)
        self._tell_awaited()
        for one in group:
            one.future.set_result(Applied(version, len(one.updates)))

    def _fail(self, group: list[CommitRequest], error: BaseException) -> None:
        self._forget(group)
        for one in group:
            one.future.set_exception(error)

    def _forget(self, group: list[CommitRequest]) -> None:
        """Their keys are no longer those of requests under way."""
        with self._lock:
            for one in group:
                if one.noted is not None:
                    self._under_way.pop(one.noted.key, None)


def rest_after(requests: int, updates: int) -> float:
    """Seconds in which the next requests gather. None after one request, so that who sends one by one waits for none;
    the more come together, the longer.
    """
    return min((requests - 1) * _REST_S, _REST_MOST_S) if updates < _RESTED_UPDATES else 0.0


def _merged(group: list[CommitRequest]) -> Updates:
    merged = Updates()
    for one in group:
        merged.extend(one.updates)
    return merged


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def digest_of(updates: Updates) -> str:
    """Of the updates' own form, so that the same updates have the same one."""
    return hashlib.blake2b(codec.encode(updates), digest_size=16).hexdigest()
