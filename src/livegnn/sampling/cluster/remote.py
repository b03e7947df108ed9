"""Requests to a serving worker in another process of this host, over a Unix socket: messages of messages.py, framed by
multiprocessing.connection; nothing is unpickled.

A connection answers one request after another. The folder's mode decides who may open the socket.
"""

from __future__ import annotations

import contextlib
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TypeAlias

from livegnn import errors
from livegnn.errors import LiveGnnError, StoredStateInvalid, WorkerUnavailable
from livegnn.sampling.cluster.messages import ErrorResponse, Request, decode, encode
from livegnn.sampling.cluster.serving_worker import ServingWorker
from livegnn.sampling.presample.source import ReadOptions, Response
from livegnn.types import Int64Array

Line: TypeAlias = "Connection[bytes, bytes]"

_BACKLOG = 64
_PAUSE_SECONDS = 0.05  # after a refused connection, as without a free file descriptor
_LONG_SECONDS = 1e6  # is for ever: a poll takes no more than 24 days
_GRACE_SECONDS = 1.0  # beyond a reader's timeout, for the worker to say that it has run out


class _Door(Listener):
    """A listener that knows whether it was closed, and wakes the thread that waits for a request."""

    is_closed = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            with contextlib.suppress(OSError):
                Client(str(self.address), "AF_UNIX").close()
        super().close()


def socket_of(folder: Path, worker: int) -> str:
    """The address of a serving worker's socket."""
    return str(folder / f"serving-{worker}.sock")


def answer_requests(worker: ServingWorker, address: str) -> Listener:
    """Answers requests at an address from threads of its own, until the listener is closed."""
    Path(address).unlink(missing_ok=True)  # of a process that was killed
    listener = _Door(address, "AF_UNIX", backlog=_BACKLOG)
    threading.Thread(target=_accept, args=(worker, listener), name="livegnn-requests", daemon=True).start()
    return listener


def _accept(worker: ServingWorker, listener: _Door) -> None:
    while not listener.is_closed:
        try:
            line = listener.accept()
        except OSError:  # closed, or no file descriptor is free just now
            time.sleep(_PAUSE_SECONDS)
            continue
        try:
            threading.Thread(target=_converse, args=(worker, line), name="livegnn-answers", daemon=True).start()
        except RuntimeError:  # no more threads just now: who asked asks again
            line.close()
            time.sleep(_PAUSE_SECONDS)


def _converse(worker: ServingWorker, line: Line) -> None:
    with line, contextlib.suppress(OSError, EOFError):
        while True:
            line.send_bytes(encode(_answer(worker, line.recv_bytes())))


def _answer(worker: ServingWorker, payload: bytes) -> Response | ErrorResponse:
    try:
        request = decode(payload)
        if not isinstance(request, Request):
            raise StoredStateInvalid(
                f"[serving] expected a request, got {type(request).__name__}; ask with RemoteServing"
            )
        return worker.answer(request.seeds, request.options)
    except LiveGnnError as error:
        return ErrorResponse(type(error).__name__, str(error), error.facts())


class RemoteServing:
    """A serving worker behind a socket. Safe to use from several threads, which then take turns."""

    def __init__(self, address: str) -> None:
        self._address, self._lock = address, threading.Lock()
        self._line: Line | None = None

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As ServingWorker.answer. Raises: WorkerUnavailable if it does not answer in the reader's time."""
        found = self._ask(Request(options, slots))
        if isinstance(found, Response):
            return found
        if isinstance(found, ErrorResponse):
            raise errors.of_kind(found.error, found.text, found.facts)
        raise StoredStateInvalid(f"[sample] expected an answer, got {type(found).__name__}; ask a serving worker")

    def _ask(self, request: Request) -> object:
        timeout = request.options.timeout
        seconds = None if timeout is None or timeout > _LONG_SECONDS else timeout + _GRACE_SECONDS
        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            raise WorkerUnavailable(
                f"[sample] expected the requests before at {self._address} to be answered within {seconds} s, "
                "got none; ask again"
            )
        try:
            if self._line is None:
                self._line = Client(self._address, "AF_UNIX")
            self._line.send_bytes(encode(request))
            if not self._line.poll(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"nothing came within {seconds} s")
            return decode(self._line.recv_bytes())
        except (OSError, EOFError) as cause:
            if self._line is not None:
                self._line.close()
                self._line = None  # the next request opens another
            raise WorkerUnavailable(
                f"[sample] expected an answer from {self._address}, got none ({cause!r}); ask again"
            ) from cause
        finally:
            self._lock.release()
