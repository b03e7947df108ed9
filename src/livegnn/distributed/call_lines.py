"""Calls from a driver to workers over a connection of their own: CallServer in a worker, CallLines in the driver.

To call two Ray actors takes 1.6 ms, and twice that or more where they take or give more than 100 KB. A batch of a
cluster may take 5 ms in all. So Ray starts the workers and watches them, and what a batch needs goes over these lines.

A call is a message of two values: what all workers are given alike, and what is one's own. Only who knows the server's
token is listened to.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from livegnn.distributed.messages import pieces_of, values_of
from livegnn.distributed.parcel_links import ParcelSocket, greeting, listener_at, wait_for

_RETRY_S = 0.1
_NOTHING = pieces_of(())


class CallPlace(NamedTuple):
    """Where a worker is called."""

    host: str
    port: int
    token: bytes


class CallServer:
    """Answers calls, each connection's one after another. place: for CallLines.

    Args:    host: to listen at.  answer: (what all are given, what is this worker's own) -> the answer. Threads of the
             server call it, a thread for each connection.  failure: the answer in place of an error: of `answer`, of a
             call that cannot be read, of an answer that cannot be written.
    """

    def __init__(self, host: str, answer: Callable[[Any, Any], Any], failure: Callable[[Exception], Any]) -> None:
        self._answer, self._failure, self._closed = answer, failure, False
        self._listener = listener_at(host)
        token = uuid.uuid4().bytes
        self.place = CallPlace(host, int(self._listener.getsockname()[1]), token)
        threading.Thread(target=self._listen, name="calls", daemon=True).start()

    def close(self) -> None:
        """Takes no other connection; those that there are stay."""
        self._closed = True
        with contextlib.suppress(OSError):  # the thread that listens wakes up
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                connected, _ = self._listener.accept()
            except OSError:  # of close(), or of a process with too many files
                time.sleep(_RETRY_S)
                continue
            threading.Thread(target=self._serve, args=(connected,), name="call", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        with connected, contextlib.suppress(OSError):  # of a driver that has gone
            if not hmac.compare_digest(greeting(connected, len(self.place.token)), self.place.token):
                return
            line = ParcelSocket(connected)
            while True:
                while (call := line.take()) is None:
                    wait_for([line], [], None)
                answer = self._answered(call)
                del call
                unsent = not line.send(*answer)
                while unsent:
                    wait_for([], [line], None)
                    unsent = not line.send()

    def _answered(self, call: bytes) -> list[bytes | memoryview]:
        try:
            shared, own = values_of(call)
            return pieces_of(self._answer(shared, own))
        except Exception as error:
            return pieces_of(self._failure(error))


class WorkerGone(Exception):
    """A worker whose connection has ended."""


class LineRefused(Exception):
    """A worker that cannot be reached."""

    def __init__(self, rank: int, place: CallPlace, cause: OSError) -> None:
        super().__init__(f"cannot be reached at {place.host}:{place.port} ({cause})")
        self.rank = rank


class CallLines:
    """A driver's connections to the workers, in order of their numbers. One call of all at a time. After a call that
    was given up there is no other one over them.

    Raises:  LineRefused where one cannot be reached within timeout_s.
    """

    def __init__(self, places: Sequence[CallPlace], timeout_s: float) -> None:
        self._lines: list[ParcelSocket] = []
        for rank, place in enumerate(places):
            try:
                connected = socket.create_connection((place.host, place.port), timeout_s)
                connected.sendall(place.token)
            except OSError as cause:
                self.close()
                raise LineRefused(rank, place, cause) from cause
            self._lines.append(ParcelSocket(connected))

    def ask(self, shared: Any, own: Sequence[Any] | None = None) -> AskedOverLines:
        """Begins a call. own: by worker; by default an empty tuple."""
        alike = pieces_of(shared)
        mine = [_NOTHING] * len(self._lines) if own is None else [pieces_of(each) for each in own]
        return AskedOverLines(self._lines, alike, mine)  # once all is in pieces

    def close(self) -> None:
        """Ends the connections. A second call does nothing."""
        for each in self._lines:
            each.close()


class AskedOverLines:
    """Answers to one call. left: workers whose answer has not been taken."""

    def __init__(self, lines: Sequence[ParcelSocket], shared: list[Any], own: Sequence[list[Any]]) -> None:
        self._lines, self.left = lines, set(range(len(lines)))
        self._answers: dict[int, Any] = {}
        self._unsent: set[int] = set()
        for rank, mine in zip(range(len(lines)), own, strict=True):
            self._send(rank, *shared, *mine)

    def ready(self, timeout_s: float) -> list[int]:
        """Workers whose answer, or end, is known, once one is; none after timeout_s."""
        self._look()
        if not self._answers:
            going = [rank for rank in self.left if rank not in self._answers]
            wait_for([self._lines[r] for r in going], [self._lines[r] for r in self._unsent], timeout_s)
            for rank in list(self._unsent):
                self._send(rank)
            self._look()
        return sorted(self._answers)

    def take(self, rank: int) -> Any:
        """The answer. Raises: WorkerGone."""
        self.left.discard(rank)
        answer = self._answers.pop(rank)
        if isinstance(answer, OSError):
            raise WorkerGone from answer
        (found,) = values_of(answer)
        return found

    def drop(self, rank: int) -> None:
        """This worker's answer is not waited for."""
        self.left.discard(rank)
        self._unsent.discard(rank)
        self._answers.pop(rank, None)

    def _look(self) -> None:
        for rank in self.left - set(self._answers):
            try:
                answer = self._lines[rank].take()
            except OSError as error:
                self._gone(rank, error)
            else:
                if answer is not None:
                    self._answers[rank] = answer

    def _send(self, rank: int, *pieces: bytes | memoryview) -> None:
        try:
            done = self._lines[rank].send(*pieces)
        except OSError as error:
            self._gone(rank, error)
            return
        if done:
            self._unsent.discard(rank)
        else:
            self._unsent.add(rank)

    def _gone(self, rank: int, error: OSError) -> None:
        self._answers[rank] = error
        self._unsent.discard(rank)
