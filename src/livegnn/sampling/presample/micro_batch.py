"""Micro-batches: requests that wait together are answered together, by one thread.

A request is put into a queue of at most `queue_max`. The thread takes what waits, up to `batch_max` seeds (or one
larger request alone), and hands it to `work`; then it delivers the answers, those of one event loop in one call. While
it works the next batch gathers: batches grow with the load and no request waits for others. `wait_us` makes it wait.

A request for a version that is not there yet is held, without delaying others, and looked at again before every batch,
while there are no batches every _HELD_POLL_S. Every request is answered: by `work`, or by an error at its deadline or
when the queue closes.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import time
import weakref
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from livegnn.errors import Overloaded, UsageError, VersionPending
from livegnn.sampling.presample.source import ReadOptions
from livegnn.types import AnyArray

AnyFuture: TypeAlias = concurrent.futures.Future[Any] | asyncio.Future[Any]

_HELD_POLL_S = 0.001
_UNKNOWN = -1  # in place of a version


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """One request, and its answer or error, which `future` gets. timeout_s: from when it is put; None for none."""

    where: str
    seeds: AnyArray
    options: ReadOptions
    timeout_s: float | None
    future: AnyFuture
    answer: Any = None
    error: Exception | None = None
    shared: bool = False  # whether the answer is a view of arrays that others share
    put_at: float = 0.0  # of time.monotonic()

    def is_late(self, now: float) -> bool:
        return self.timeout_s is not None and now > self.put_at + self.timeout_s


def _deliver(requests: list[QueuedRequest]) -> None:
    """Wakes the callers: one call for each event loop, and one for each thread that waits."""
    by_loop: dict[AbstractEventLoop, list[QueuedRequest]] = {}
    for request in requests:
        if isinstance(request.future, asyncio.Future):
            by_loop.setdefault(request.future.get_loop(), []).append(request)
        else:
            _settle([request])
    for loop, found in by_loop.items():
        with contextlib.suppress(RuntimeError):  # closed: no caller waits there any more
            loop.call_soon_threadsafe(_settle, found)


def _settle(requests: list[QueuedRequest]) -> None:
    for request in requests:
        if request.future.done():  # a caller may have gone away
            continue
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.answer)


_open: weakref.WeakSet[MicroBatcher] = weakref.WeakSet()
_EXIT_S = 5.0


@atexit.register
def _close_all() -> None:
    """At the interpreter's end: a thread that still waits would keep native objects from being freed in order."""
    until = time.monotonic() + _EXIT_S
    for batcher in list(_open):
        batcher.close(max(0.0, until - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _open.clear())  # a child has none of their threads


class MicroBatcher:
    """The queue and its thread.

    Args:    work: answers a batch in place, setting `answer` or `error` of each request; must not raise.  version: the
             newest version that can be read.  batch_max: seeds.  wait_us: how long the first request waits for others.
             queue_max: requests that wait, held ones included.
    """

    def __init__(
        self,
        work: Callable[[list[QueuedRequest]], None],
        version: Callable[[], int],
        *,
        batch_max: int,
        wait_us: float,
        queue_max: int,
    ) -> None:
        self._work, self._version = work, version
        self._batch_max, self._wait_s, self._queue_max = batch_max, wait_us * 1e-6, queue_max
        self._changed = threading.Condition()
        self._queue: deque[QueuedRequest] = deque()
        self._held: list[QueuedRequest] = []
        self._closed = False
        self.overloaded = 0
        self._thread = threading.Thread(target=self._run, name="livegnn-sample-server", daemon=True)
        self._thread.start()
        _open.add(self)

    @property
    def is_open(self) -> bool:
        """Whether requests are taken."""
        return not self._closed

    @property
    def waiting(self) -> int:
        """Requests that wait for their batch."""
        return len(self._queue) + len(self._held)

    def put(self, request: QueuedRequest) -> None:
        """Queues a request. Raises: Overloaded if the queue is full; UsageError after close()."""
        with self._changed:
            if self._closed:
                raise _closed(request)
            if self.waiting >= self._queue_max:
                self.overloaded += 1
                raise Overloaded(
                    f"[{request.where}] expected fewer than {self._queue_max} requests waiting, got as many; ask again "
                    "later, or raise queue_max"
                )
            request.put_at = time.monotonic()
            self._queue.append(request)
            self._changed.notify()

    def close(self, timeout_s: float | None = None) -> None:
        """Refuses new requests, answers those that wait (held ones by an error), and waits until the thread has ended.

        timeout_s: for its lock, and again for its thread; whatever it has not got by then goes on by itself.
        """
        if not self._changed.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return
        self._closed = True
        self._changed.notify()
        self._changed.release()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # ---- the thread

    def _run(self) -> None:
        while True:
            try:
                batch, refused = self._take()
            except Exception as error:  # of the version: the waiting callers get it, and the thread goes on
                batch, refused = [], self._refuse_all(error)
            if batch:
                self._work(batch)
            _deliver(batch + refused)
            if self._closed and not batch and not refused:
                return

    def _take(self) -> tuple[list[QueuedRequest], list[QueuedRequest]]:
        """The next batch, and requests that were answered by an error; both empty at the end."""
        while True:
            with self._changed:
                while not (self._queue or self._held or self._closed):
                    self._changed.wait()
                asks = any(request.options.at_least is not None for request in (*self._held, *self._queue))
            version = self._version() if asks else _UNKNOWN  # without the lock: a source may take its time
            with self._changed:
                refused = self._release(version)
                if self._wait_s and self._queue and not self._closed:
                    self._gather()
                batch = self._pop(refused, version)
                if batch or refused:
                    return batch, refused
                if self._closed:
                    return [], self._refuse_all(None)
                if self._held:
                    self._changed.wait(_HELD_POLL_S)

    def _release(self, version: int) -> list[QueuedRequest]:
        """Puts held requests whose version has come in front of the queue; gives those whose time is up."""
        now = time.monotonic()
        late: list[QueuedRequest] = []
        held: list[QueuedRequest] = []
        for request in reversed(self._held):
            if request.options.at_least is None or request.options.at_least <= version:
                self._queue.appendleft(request)
            elif request.is_late(now):
                request.error = VersionPending(
                    f"[{request.where}] expected version {request.options.at_least} or later within "
                    f"{now - request.put_at:.3g} s, got {version}; try again, or ask for an earlier one"
                )
                late.append(request)
            else:
                held.append(request)
        self._held = held[::-1]
        return late

    def _gather(self) -> None:
        until = self._queue[0].put_at + self._wait_s
        while not self._closed and sum(len(request.seeds) for request in self._queue) < self._batch_max:
            left = until - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _pop(self, refused: list[QueuedRequest], version: int) -> list[QueuedRequest]:
        batch: list[QueuedRequest] = []
        seeds, now = 0, time.monotonic()
        while self._queue:
            request = self._queue[0]
            if batch and seeds + len(request.seeds) > self._batch_max:
                break
            self._queue.popleft()
            if request.options.at_least is not None and request.options.at_least > version:
                self._held.append(request)
            elif request.is_late(now):
                self.overloaded += 1
                request.error = Overloaded(
                    f"[{request.where}] expected an answer within {request.timeout_s:.3g} s, got none "
                    "while others were served; ask again later, or allow more time"
                )
                refused.append(request)
            else:
                batch.append(request)
                seeds += len(request.seeds)
        return batch

    def _refuse_all(self, error: Exception | None) -> list[QueuedRequest]:
        """All that wait, with an error; None: the queue was closed."""
        with self._changed:
            waiting = [*self._held, *self._queue]
            self._held, self._queue = [], deque()
        for request in waiting:
            request.error = error or _closed(request)
        return waiting


def _closed(request: QueuedRequest) -> UsageError:
    return UsageError(f"[{request.where}] expected an open sample server, got one that was closed; make a new one")
