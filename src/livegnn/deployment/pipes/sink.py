"""A sink at work: its thread follows an engine's ring of changes, and delivers them until they are taken.

position = the version up to which all was delivered, in DIR/sinks/NAME.json

The position is written after a delivery, so that what was delivered and not noted comes again: at least once, each
event with its key. Where the ring has moved on, or a swap has made every row anew, a `missed` event says so. A shadow
that was set aside has no ring: its sink waits, and follows the one that comes back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from livegnn.deployment.config_pipes import SinkConfig
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.hub import Follow, Hub
from livegnn.deployment.pipes.events import SinkEvent, change_events, missed_event
from livegnn.deployment.pipes.parquet import ParquetTarget
from livegnn.deployment.pipes.records import Unreachable
from livegnn.deployment.pipes.states import Backoff, PipeThread, SinkState
from livegnn.deployment.pipes.webhook import TargetBusy
from livegnn.errors import LiveGnnError, StoredStateInvalid
from livegnn.stored import made_folder, replaced

_log = logging.getLogger("livegnn")
FOLDER = "sinks"
_SAVE_S = 0.2  # between two writes of a position
_LOOK_S = 0.5


class SinkTarget(Protocol):
    """Where events go."""

    def deliver(self, events: Sequence[SinkEvent]) -> None:
        """Returns when all were taken. Raises: Unreachable."""

    def close(self) -> None:
        """Lets go of connections."""


class SinkPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a sink: everything up to `version` was delivered."""

    version: int


class PositionFile:
    """Where a sink stands. version: None before its first start. Raises: StoredStateInvalid for a damaged file."""

    def __init__(self, data: Path, name: str) -> None:
        self._path = made_folder("sink", data / FOLDER) / f"{name}.json"
        self.version: int | None = None
        self._written = 0.0
        if self._path.exists():
            try:
                self.version = msgspec.json.decode(self._path.read_bytes(), type=SinkPosition).version
            except msgspec.MsgspecError as cause:
                raise StoredStateInvalid(
                    f'[sink {name}] expected {{"version": N}} in {self._path}, got: {cause}; write it, or remove the '
                    "file, and the sink begins with what changes from now on"
                ) from cause

    def move(self, version: int, *, at_once: bool = False) -> None:
        """Stands at a version; written at once, or with a later one. Raises: StorageFailed."""
        is_new, self.version = version != self.version, version
        now = time.monotonic()
        if at_once or (is_new and now - self._written > _SAVE_S):
            with replaced(self._path, "sink", sealed=False) as part:
                part.write(msgspec.json.encode(SinkPosition(version)))
            self._written = now


class _SinkStopped(Exception):
    """The sink is to end before its events were taken."""


class SinkRunner(PipeThread):
    """One sink. It follows from the moment it is made, so that a replay of the log fills the ring for it.

    Raises:  as Hub.follow; StoredStateInvalid.
    """

    def __init__(self, config: SinkConfig, engine: str, hub: Hub, target: Callable[[], SinkTarget], data: Path) -> None:
        super().__init__(config.name)
        self._config, self._hub = config, hub
        self._wanted = filter_of(config, engine)
        hub.check(self._wanted)
        self._position = PositionFile(data, config.name)
        self._target = target()
        if isinstance(self._target, ParquetTarget) and self._position.version is not None:
            self._position.move(max(self._position.version, self._target.delivered))
        self._follow: Follow = hub.follow(self._wanted)
        self._woken = threading.Event()
        self._drained = threading.Event()
        self._draining = self._is_anew = False
        self._events = self._changes = self._missed = 0

    @property
    def version(self) -> int | None:
        """Up to which everything was delivered; None before the first start."""
        return self._position.version

    @property
    def state(self) -> SinkState:
        """What it says of itself."""
        counts = (self._events, self._changes, self._missed, self.retries)
        version = self._position.version or 0
        lag = max(0, self._follow.head - version)
        return SinkState(self.name, self._config.kind, self.life, self.error, *counts, version, lag)

    def begin(self, version: int) -> None:
        """Starts, at its own position, or at this version where it is new, or stands where the history has not come."""
        before = self._position.version
        if before is not None and before > version:  # of a history that was put back, or has lost its end
            text = "[sink %s] expected version %d or before, got version %d; what changes from now on is delivered"
            _log.warning(text, self.name, version, before)
        if before is None or before > version:
            self._position.move(version, at_once=True)
        self._hub.listen(self._woken.set)
        self.start()

    def drain(self, seconds: float | None) -> bool:
        """Waits until all that is in the ring was delivered; False where that takes longer."""
        self._draining = True
        self._woken.set()
        if not self.is_started:
            return True
        return self._drained.wait(seconds)

    def stop(self) -> None:
        """As PipeThread. One that was not started lets go of all that it has."""
        super().stop()
        self._woken.set()
        if not self.is_started:
            self._drained.set()
            self._follow.close()
            self._target.close()

    # ---- the thread

    def _guarded(self) -> None:
        try:
            while not self.stopping.is_set():
                self._woken.clear()
                if not self._step():
                    if self._draining:
                        self._drained.set()
                    self._woken.wait(_LOOK_S)
        except _SinkStopped:
            pass
        except Exception as cause:
            self.life, self.error = "failed", str(cause)
            log = _log.error if isinstance(cause, LiveGnnError) else _log.exception
            log("[sink %s] stopped: %s", self.name, cause)
        finally:
            self._drained.set()
            self._hub.unlisten(self._woken.set)
            self._follow.close()
            self._target.close()
            self._save()
            self.finished.set()

    def _save(self) -> None:
        try:
            if self._position.version is not None:
                self._position.move(self._position.version, at_once=True)
        except LiveGnnError:
            _log.exception("[sink %s] its position was not written; events will come again", self.name)

    def _step(self) -> bool:
        """Delivers some of what there is; False where there is nothing."""
        at = self._position.version or 0
        if self._follow.is_over and not self._follow_anew():
            return False
        if self._follow.head <= at:
            return False
        if self._config.wait_ms and not self._draining:
            self.stopping.wait(self._config.wait_ms / 1e3)
        span = self._follow.since(at)
        if span.floor > at:
            span = span._replace(reason="model") if self._is_anew else span
            self._deliver([missed_event(self._wanted.engine, at, span)])
            self._missed += 1
            self._position.move(span.floor, at_once=True)
            self._is_anew = False
            if span.reason == "model":
                self._hub.check(self._wanted)  # of the new model: raises where the filter does not fit it
            return True
        events: list[SinkEvent] = []
        for version in span.versions:
            found = list(change_events(version, self._wanted, self._config.event_changes_max))
            if events and len(events) + len(found) > self._config.batch:
                self._deliver(events)
                self._position.move(events[-1].version)
                events = []
            events += found
        self._deliver(events)
        self._position.move(span.reached)
        return True

    def _follow_anew(self) -> bool:
        """Whether the engine, a shadow that was set aside, is back. It has another ring then."""
        found = self._hub.follow_anew(self._wanted)
        if found is None:
            self.life, self.error = "waiting", f"{self._wanted.engine} is set aside, and /v1/models says why"
            return False
        self._follow.close()
        self._follow, self._is_anew = found, True
        self._goes_on()
        return True

    def _deliver(self, events: list[SinkEvent]) -> None:
        """Tries until they are taken; gives up only when the sink is to end."""
        if not events:
            return
        backoff = Backoff(self._config.retry_ms_max / 1e3)
        while True:
            if self.stopping.is_set():
                raise _SinkStopped
            try:
                self._target.deliver(events)
                break
            except TargetBusy as cause:
                self._wait(cause, max(cause.after_s, backoff.next_s()))
            except Unreachable as cause:
                self._wait(cause, backoff.next_s())
        self._goes_on()
        self._events += len(events)
        self._changes += sum(len(one.data.get("changes", ())) for one in events)


def filter_of(config: SinkConfig, engine: str) -> ChangeFilter:
    """The filter of a sink."""
    return ChangeFilter(
        engine=engine,
        vertex_type=config.vertex_type,
        output=config.output,
        ids=config.ids,
        flips=config.flips,
        above=config.above,
        below=config.below,
        of_class=config.of_class,
        column=config.column,
        min_change=config.min_change,
        row_change=config.row_change,
    )
