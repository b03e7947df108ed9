"""Hub: what each version changed for each engine, for as long as anyone follows it.

    engine publishes a batch -> the rows that it moved, before and after (moves.py) -> ring of versions
                                                                      followers: a place in the ring each, and no more

Until an engine has a follower, a batch costs one comparison, and no row is kept. Recording begins with the first
follower, and goes on for `idle_s` after the last one, so that one that comes back finds what it missed. The ring drops
the oldest versions beyond its bounds. A swap or a rescale gives every row anew: it empties the ring, and
followers learn that all predictions are to be read again.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Literal, NamedTuple, Self, TypeAlias

from livegnn.deployment.config import ChangesConfig
from livegnn.deployment.filters import ChangedVersion, ChangeFilter
from livegnn.deployment.live import LiveModel
from livegnn.deployment.moves import moved_rows
from livegnn.errors import UsageError, WorkerUnavailable
from livegnn.graph import Graph
from livegnn.graph.consumers import VertexChange
from livegnn.inference import Changes

_log = logging.getLogger("livegnn")
Reason: TypeAlias = Literal["ring", "model", "size", "fault"]  # why versions are not in the ring


class Span(NamedTuple):
    """Versions after a place in the ring.

    versions: that changed something.  floor: versions up to it are not in the ring, for `reason`.  reached: versions up
    to it have been looked at.
    """

    versions: list[ChangedVersion]
    floor: int
    reason: Reason
    reached: int


class VersionRing:
    """The newest versions of one engine, from one thread to many. All versions in (floor, head] are known."""

    def __init__(self, versions_max: int, bytes_max: int) -> None:
        self._versions_max, self._bytes_max = versions_max, bytes_max
        self._lock = threading.Lock()
        self._kept: deque[ChangedVersion] = deque()
        self._bytes = 0
        self._floor = self._head = 0
        self._reason: Reason = "ring"

    def restart(self, version: int, reason: Reason) -> None:
        """Forgets all: what is known begins after this version."""
        with self._lock:
            self._kept.clear()
            self._bytes, self._floor, self._head, self._reason = 0, version, version, reason

    def drop(self, reason: Reason) -> None:
        """Forgets all up to the newest version. In any thread."""
        with self._lock:
            self._kept.clear()
            self._bytes, self._floor, self._reason = 0, self._head, reason

    def add(self, version: int, changed: ChangedVersion | None) -> None:
        """The next version; None where it changed nothing."""
        with self._lock:
            self._head = version
            if changed is None:
                return
            self._kept.append(changed)
            self._bytes += changed.bytes
            while len(self._kept) > self._versions_max or self._bytes > self._bytes_max:
                oldest = self._kept.popleft()
                self._bytes -= oldest.bytes
                self._floor, self._reason = oldest.version, "ring"

    def since(self, version: int, upto: int | None = None, rows_max: int = 1 << 16) -> Span:
        """Versions after `version`, no later than `upto`, until they have `rows_max` rows."""
        with self._lock:
            last = self._head if upto is None else min(upto, self._head)
            first = bisect_right(self._kept, version, key=lambda each: each.version)
            found: list[ChangedVersion] = []
            rows = 0
            for each in islice(self._kept, first, None):
                if each.version > last:
                    break
                if rows >= rows_max:
                    last = found[-1].version
                    break
                found.append(each)
                rows += each.count
            return Span(found, self._floor, self._reason, max(last, min(self._floor, self._head)))

    @property
    def head(self) -> int:
        """The newest version that is known."""
        return self._head

    @property
    def size(self) -> tuple[int, int]:
        """Versions and bytes."""
        return len(self._kept), self._bytes


class Follow:
    """One that follows an engine: a look into its ring. Used as a context manager, or with close()."""

    def __init__(self, recorder: ChangeRecorder) -> None:
        self._recorder = recorder
        self._open = True
        self.ring = recorder.ring

    @property
    def head(self) -> int:
        """The newest version that is known."""
        return self.ring.head

    @property
    def is_over(self) -> bool:
        """Whether the engine is gone, or another one has its name."""
        return self._recorder.is_closed

    def since(self, version: int, upto: int | None = None) -> Span:
        """Versions after `version`."""
        return self.ring.since(version, upto)

    def close(self) -> None:
        """Ends it. A second call does nothing."""
        if self._open:
            self._open = False
            self._recorder.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ChangeRecorder:
    """Records one engine. Its ring is written in the applying thread, under the graph's lock."""

    def __init__(
        self, engine: LiveModel, reference: Callable[[], str], config: ChangesConfig, added: Callable[[], object]
    ) -> None:
        self.engine, self._reference, self._config, self._added = engine, reference, config, added
        self.ring = VersionRing(config.keep_versions, config.keep_bytes)
        self._graph: Graph = engine.graph
        self._lock = threading.Lock()  # of the count alone
        self._followers = 0
        self._left_at = 0.0
        self._generation: int | None = None  # of the engine that keeps what it moves; None while nothing is recorded
        self._batch: list[VertexChange] = []
        self._handle = engine.on_change(self._follow)
        self.is_closed = False

    # ---- followers, any thread

    def join(self) -> Follow:
        """Begins to record where that is needed. Waits for a batch under way. Raises: UsageError once closed."""
        with self._lock:
            self._followers += 1
        try:
            with self._graph.host.lock:
                if self._generation is None:
                    self._begin()
        except BaseException:
            self.leave()
            raise
        return Follow(self)

    def leave(self) -> None:
        """One fewer."""
        with self._lock:
            self._followers -= 1
            self._left_at = time.monotonic()

    @property
    def is_recording(self) -> bool:
        """Whether batches go to the ring."""
        return self._generation is not None

    def close(self) -> None:
        """Ends recording."""
        self.is_closed = True
        self._handle.cancel()
        with self._graph.host.lock:
            self._end()

    # ---- the applying thread, under the graph's lock

    def _begin(self) -> None:
        self.engine.refuse_closed("changes")
        self._arm()
        self.ring.restart(self.engine.version, "ring")
        self._graph.host.add_guard(self._note)

    def _arm(self) -> None:
        """Asks the engine as it is now for the rows that each batch moves."""
        self.engine.keep_moves(self._config.keep_bytes // (8 * self.engine.model.output_width))
        self._generation = self.engine.generation

    def _end(self) -> None:
        if self._generation is not None:
            self._graph.host.drop_guard(self._note)
            self._generation = None
            with suppress(WorkerUnavailable):
                self.engine.keep_moves(-1)
            self.ring.restart(self.ring.head, "ring")

    def _note(self, batch: list[VertexChange]) -> None:
        self._batch = batch

    def _follow(self, changes: Changes) -> None:
        if self._generation is None:
            return
        if not self._followers and time.monotonic() - self._left_at > self._config.idle_s:
            self._end()
            return
        batch, self._batch = self._batch, []
        try:
            self._record(changes, batch)
        except Exception:
            _log.exception("[changes] reading version %d failed; followers miss it", changes.version)
            self.ring.restart(changes.version, "fault")
        self._added()

    def _record(self, changes: Changes, batch: list[VertexChange]) -> None:
        version = changes.version
        if self._generation != self.engine.generation:  # it has another model or other scales
            self.switched()
        elif version != self.ring.head + 1:
            _log.error("[changes] expected version %d next, got %d", self.ring.head + 1, version)
            self.ring.restart(version, "fault")
        elif (moves := changes.take_moves()) is None:
            self.ring.restart(version, "size")
        else:
            parts = dict(moved_rows(self.engine, moves, batch))
            changed = ChangedVersion(version, self.engine.model, self._reference(), parts)
            self.ring.add(version, changed if parts else None)

    def switched(self) -> None:
        """After a swap or a rescale: every row is another one."""
        if self._generation is not None:
            self._arm()
            self.ring.restart(self.engine.version, "model")
            self._added()


class Hub:
    """The recorders of a deployment. subscribers, missed: of the service, for its metrics."""

    def __init__(
        self, engines: Mapping[str, LiveModel], reference: Callable[[str], str], config: ChangesConfig
    ) -> None:
        self.config = config
        self.subscribers = self.missed = 0
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._listening = threading.Lock()  # of those who change them
        self._engines, self._reference = engines, reference
        self._recorders: dict[str, ChangeRecorder] = {}
        for name in engines:
            self.replaced(name)

    def replaced(self, name: str) -> None:
        """After an engine of that name has come, gone, or is another one. The caller holds the graph's lock."""
        before = self._recorders.pop(name, None)
        if before is not None:
            before.close()
            self._notify()  # its followers end
        engine = self._engines.get(name)
        if engine is not None:
            self._recorders[name] = ChangeRecorder(engine, lambda: self._reference(name), self.config, self._notify)

    def follow(self, wanted: ChangeFilter) -> Follow:
        """Follows the engine of a filter from now on. Raises: as ChangeFilter.check; UsageError for no such engine."""
        return self._recorder(wanted).join()

    def follow_anew(self, wanted: ChangeFilter) -> Follow | None:
        """For one whose engine is another one now; None while that is set aside. Raises: as follow()."""
        recorder = self._recorders.get(wanted.engine)
        if recorder is None:
            return None
        try:
            wanted.check(recorder.engine)
            return recorder.join()
        except UsageError:
            if recorder.is_closed:  # set aside at this moment
                return None
            raise

    def recent(self, engine: str, after: int, rows_max: int) -> Span | None:
        """What the ring of an engine has after a version; None while nothing is recorded. Follows nothing."""
        recorder = self._recorders[engine]
        return recorder.ring.since(after, rows_max=rows_max) if recorder.is_recording else None

    def check(self, wanted: ChangeFilter) -> None:
        """Raises: as follow()."""
        self._recorder(wanted)

    def _recorder(self, wanted: ChangeFilter) -> ChangeRecorder:
        recorder = self._recorders.get(wanted.engine)
        if recorder is None:
            known = ", ".join(self._recorders) or "none"
            raise UsageError(f"[changes] expected an engine among {known}, got {wanted.engine!r}; name one of them")
        wanted.check(recorder.engine)
        return recorder

    def listen(self, listener: Callable[[], object]) -> None:
        """Calls listener() in the applying thread after a version that is recorded. It must return at once."""
        with self._listening:
            self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[], object]) -> None:
        """Ends that."""
        with self._listening:
            self._listeners = tuple(each for each in self._listeners if each != listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def switched(self, engine: str) -> None:
        """To be called by the writer after a swap or a rescale of an engine, before the next batch."""
        try:
            if engine in self._recorders:
                self._recorders[engine].switched()
        except Exception:  # the swap stands
            _log.exception("[changes] following the switch of %r failed", engine)

    @property
    def size(self) -> tuple[int, int]:
        """Versions and bytes in the rings."""
        sizes = [each.ring.size for each in self._recorders.values()]
        return sum(versions for versions, _ in sizes), sum(size for _, size in sizes)

    def close(self) -> None:
        """Ends recording."""
        for each in self._recorders.values():
            each.close()
