"""What a source or a sink says of itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from livegnn.deployment.pipes.records import Lag

Life: TypeAlias = Literal["running", "waiting", "ended", "failed"]
BACKOFF_FIRST_S = 0.1


class SourceState(NamedTuple):
    """records: read since the start, the bad ones among them.  bad: dead letters.  retries: tries that failed.

    life: waiting, while the other side does not answer; failed, until it is started anew.  error: why.
    lag: what is there and was not read; None where that is not known.  place: what of it is in the log.
    """

    name: str
    kind: str
    life: Life
    error: str
    records: int
    bad: int
    updates: int
    retries: int
    lag: Lag | None
    place: Mapping[str, int]


class SinkState(NamedTuple):
    """events, changes: delivered since the start.  missed: `missed` events among them.  retries: tries that failed.

    version: up to which everything was delivered.  lag: versions after it.  life, error: as of a source.
    """

    name: str
    kind: str
    life: Life
    error: str
    events: int
    changes: int
    missed: int
    retries: int
    version: int
    lag: int


class Backoff:
    """How long to wait after each failure in a row."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._next_s = BACKOFF_FIRST_S

    def next_s(self) -> float:
        """After one more."""
        found, self._next_s = self._next_s, min(self._next_s * 2, self._most_s)
        return min(found, self._most_s)

    def reset(self) -> None:
        """After a success."""
        self._next_s = BACKOFF_FIRST_S


class PipeThread:
    """A pipe with a thread of its own: its life, and how it ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life: Life = "running"
        self.error = ""
        self.retries = 0
        self.stopping = threading.Event()
        self.finished = threading.Event()  # nothing more will come of it
        self._thread = threading.Thread(target=self._guarded, name=f"livegnn-{name}", daemon=True)

    @property
    def is_started(self) -> bool:
        """Whether its thread was begun."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Asks it to end. It does after what is under way."""
        self.stopping.set()

    def join(self, seconds: float | None = None) -> None:
        """Waits until it has ended."""
        if self.is_started:
            self._thread.join(seconds)

    def _guarded(self) -> None:
        raise NotImplementedError

    def _wait(self, error: object, seconds: float) -> None:
        """After a failure: says why, and waits, unless it is to end."""
        self.life, self.error = "waiting", str(error)
        self.retries += 1
        self.stopping.wait(seconds)

    def _goes_on(self) -> None:
        self.life, self.error = "running", ""
