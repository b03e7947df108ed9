"""Holding: a batch between the step in which every part takes it and the one in which all publish it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from livegnn.distributed.cluster.batch import PartChanges


class _NotWanted(Exception):
    """Takes back a batch that is held."""


class Holding:
    """A batch that every part has taken, and none has published: its thread waits for what is decided."""

    def __init__(self, work: Callable[[Callable[[], None]], PartChanges]) -> None:
        self._work = work
        self._stands = False
        self._stopped, self._decided = threading.Event(), threading.Event()
        self._changes: PartChanges | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="held-batch", daemon=True)

    def begin(self) -> None:
        """Waits until the batch is held. Raises: what the work raised."""
        self._thread.start()
        self._stopped.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def end(self, stands: bool) -> PartChanges | None:
        """Publishes the batch, or takes it back."""
        self._stands = stands
        self._decided.set()
        self._thread.join()
        if isinstance(self._error, _NotWanted):
            return None
        if self._error is not None:
            raise self._error
        return self._changes

    def _run(self) -> None:
        try:
            self._changes = self._work(self._hold)
        except BaseException as error:
            self._error = error
        self._stopped.set()

    def _hold(self) -> None:
        self._stopped.set()
        self._decided.wait()
        if not self._stands:
            raise _NotWanted
