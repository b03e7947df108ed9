"""Questions to a serving worker in another process of this host, over a Unix socket: messages of messages.py, framed by
multiprocessing.connection; nothing is unpickled.

A connection answers one question after another. Whoever may open the socket may ask: the folder's mode decides.
"""

from __future__ import annotations

import contextlib
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TypeAlias

from livegnn import errors
from livegnn.errors import LiveGnnError, StoredStateInvalid, UsageError, WorkerUnavailable
from livegnn.sampling.messages import Answer, Ask, Reading, Refusal, decode, encode
from livegnn.sampling.serving_worker import ServingWorker
from livegnn.types import Int64Array

__all__ = ["RemoteServing", "answer_questions", "socket_of"]

Line: TypeAlias = "Connection[bytes, bytes]"

_BACKLOG = 64
_PAUSE_SECONDS = 0.05  # after a refused connection, as without a free file descriptor
_LONG_SECONDS = 1e6  # is for ever: a poll takes no more than 24 days
_GRACE_SECONDS = 1.0  # beyond a reader's timeout, for the worker to say that it is over


class _Door(Listener):
    """A listener that knows whether it was closed, and wakes who waits for a question."""

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


def answer_questions(worker: ServingWorker, address: str) -> Listener:
    """Answers questions at an address from threads of its own, until the listener is closed."""
    Path(address).unlink(missing_ok=True)  # of a process that was killed
    listener = _Door(address, "AF_UNIX", backlog=_BACKLOG)
    threading.Thread(target=_accept, args=(worker, listener), name="livegnn-questions", daemon=True).start()
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


def _answer(worker: ServingWorker, question: bytes) -> Answer | Refusal:
    try:
        ask = decode(question)
        if not isinstance(ask, Ask):
            raise StoredStateInvalid(f"[serving] expected a question, got {type(ask).__name__}; ask with RemoteServing")
        return worker.answer(ask.seeds, ask.reading)
    except LiveGnnError as error:
        return Refusal(type(error).__name__, str(error))


class RemoteServing:
    """A serving worker behind a socket. Safe to use from several threads, which then take turns."""

    def __init__(self, address: str) -> None:
        self._address, self._lock = address, threading.Lock()
        self._line: Line | None = None

    def answer(self, seeds: Int64Array, reading: Reading) -> Answer:
        """As ServingWorker.answer. Raises: WorkerUnavailable if it does not answer in the reader's time."""
        found = self._ask(Ask(reading, seeds))
        if isinstance(found, Answer):
            return found
        if isinstance(found, Refusal):
            kind = getattr(errors, found.error, UsageError)
            raise kind(found.text)
        raise StoredStateInvalid(f"[sample] expected an answer, got {type(found).__name__}; ask a serving worker")

    def close(self) -> None:
        """Lets go of the connection; the next question opens another."""
        with self._lock:
            self._hang_up()

    def _ask(self, ask: Ask) -> object:
        timeout = ask.reading.timeout
        seconds = None if timeout is None or timeout > _LONG_SECONDS else timeout + _GRACE_SECONDS
        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            raise WorkerUnavailable(
                f"[sample] expected the questions before at {self._address} to be answered within {seconds} s, "
                "got none; ask again"
            )
        try:
            try:
                if self._line is None:
                    self._line = Client(self._address, "AF_UNIX")
                self._line.send_bytes(encode(ask))
                if not self._line.poll(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"nothing came within {seconds} s")
                return decode(self._line.recv_bytes())
            except (OSError, EOFError) as cause:
                self._hang_up()
                raise WorkerUnavailable(
                    f"[sample] expected an answer from {self._address}, got none ({cause!r}); ask again"
                ) from cause
        finally:
            self._lock.release()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
