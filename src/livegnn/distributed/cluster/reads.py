"""Reads: what is read of a cluster while batches go through it.

The graph's lock is the writer's while a batch is under way, and a writer that is busy gives it up for moments only. So
reads that find it taken wait in a line. The next thread that has the lock answers all of them at one version, by one
call to each worker: the writer's after its batch, or the line's own where no batch ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import numpy as np

from livegnn.types import Float32Array, Int64Array

_Found = TypeVar("_Found")
_PATIENCE_S = 0.002  # for which the thread of the line tries the lock


class _Waiting(NamedTuple):
    work: Callable[[], Any]
    future: Future[Any]


class _Asked(Exception):
    """Says which rows a read wants, in place of them."""

    def __init__(self, slots: Int64Array) -> None:
        super().__init__()
        self.slots = slots


class Reads:
    """The line of reads. rows_at: reads rows of slots from their owners; called by who has the lock."""

    def __init__(self, lock: Any, rows_at: Callable[[Int64Array], Float32Array]) -> None:
        self._lock, self._rows_at = lock, rows_at
        self._line: deque[_Waiting] = deque()
        self._come = threading.Event()
        self._asks_only = False
        self._ready: Float32Array | None = None  # rows that the work under way asked for
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False

    def run(self, work: Callable[[], _Found]) -> _Found:
        """What work() returns: at once where no batch is under way, else after it. It may call rows()."""
        if not self._lock.acquire(blocking=False):
            return self.submit(work).result()
        try:
            return work()
        finally:
            self._lock.release()

    def submit(self, work: Callable[[], _Found]) -> Future[_Found]:
        """A future of the same, which another thread works out."""
        future: Future[_Found] = Future()
        future.set_running_or_notify_cancel()  # none may cancel it
        self._line.append(_Waiting(work, future))
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._attend, name="livegnn-reads", daemon=True)
                self._thread.start()
        self._come.set()
        return future

    def rows(self, slots: Int64Array) -> Float32Array:
        """Rows of slots, for a work. The caller has the lock."""
        if self._asks_only:
            raise _Asked(slots)
        ready, self._ready = self._ready, None
        return self._rows_at(slots) if ready is None else ready

    def answer(self) -> None:
        """Answers all that wait. The caller has the lock."""
        line = [self._line.popleft() for _ in range(len(self._line))]
        try:
            self._answer(line)
        finally:  # after an interrupt
            self._line.extendleft(one for one in reversed(line) if not one.future.done())

    def _answer(self, line: list[_Waiting]) -> None:
        if len(line) < 2:
            for one in line:
                _settle(one)
            return
        asked = [(one, slots) for one in line if (slots := self._asked_by(one)) is not None]
        if not asked:
            return
        try:
            rows = self._rows_at(np.concatenate([slots for _, slots in asked]))
        except Exception as error:
            for one, _ in asked:
                one.future.set_exception(error)
            return
        first = 0
        for one, slots in asked:
            self._ready, first = rows[first : first + len(slots)], first + len(slots)
            _settle(one)
            self._ready = None

    def _asked_by(self, one: _Waiting) -> Int64Array | None:
        """The first rows that a work asks for; None where it has ended without."""
        self._asks_only = True
        try:
            one.future.set_result(one.work())
        except _Asked as asked:
            return asked.slots
        except Exception as error:
            one.future.set_exception(error)
        finally:
            self._asks_only = False
        return None

    def _attend(self) -> None:
        while True:
            if not self._closed:
                self._come.wait()
                self._come.clear()
            while self._line:
                if self._lock.acquire(timeout=_PATIENCE_S):
                    try:
                        self.answer()
                    finally:
                        self._lock.release()
            with self._starting:  # none comes in between
                if self._closed and not self._line:
                    self._thread = None
                    return

    def close(self) -> None:
        """Ends the thread; what waits, or comes later, is refused by its own work."""
        self._closed = True
        self._come.set()


def _settle(one: _Waiting) -> None:
    try:
        one.future.set_result(one.work())
    except Exception as error:
        one.future.set_exception(error)
