"""Processes to be killed. Each is forked from a clean server process that has imported everything, so it starts in
milliseconds; it reports through a pipe and dies by SIGKILL.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import numpy as np

ANSWER_SECONDS_MAX = 120.0


class Victim:
    """One process that runs work(connection, *arguments); killed when the block ends."""

    def __init__(self, preload: list[str], work: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(preload)
        self._here, there = context.Pipe(duplex=False)
        self._process = context.Process(target=_reporting, args=(work, there, *arguments), daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> Victim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._here.close()

    def kill(self) -> list[Any]:
        """SIGKILL; what the victim had still said."""
        self._process.kill()
        self._process.join()
        return list(self.said())

    def said(self, seconds: float = 0.0) -> list[Any]:
        """What has come by now, waiting at most so long for the first message."""
        found = []
        try:
            while self._here.poll(seconds):
                found.append(self._here.recv())
                seconds = 0.0
        except (EOFError, OSError):  # the end, or half a message
            self._process.join()
            if self._process.exitcode not in (0, -9):
                raise AssertionError(f"a victim ended by itself with exit code {self._process.exitcode}") from None
        for kind, value in found:
            if kind == "failed":
                raise AssertionError(f"a victim failed:\n{value}")
        return found

    def wait(self) -> list[Any]:
        """The next messages. Raises: AssertionError where none come."""
        found = self.said(ANSWER_SECONDS_MAX)
        assert found, "a victim did not answer"
        return found


def _reporting(work: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """The work; what it raises is reported."""
    try:
        work(connection, *arguments)
    except BaseException:
        import traceback

        connection.send(("failed", traceback.format_exc()))
        sys.exit(0)


def random_wait(rng: np.random.Generator, seconds: float) -> float:
    """A time to live: often very short, so that starting and recovering are hit as well."""
    return float(seconds * rng.random() ** 2)
