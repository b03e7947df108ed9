"""What on_change() registers, and how it is called: the same of an Engine and of a Cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from livegnn.errors import UsageError
from livegnn.inference.changes import Changes

Callback: TypeAlias = Callable[[Changes], object]

_log = logging.getLogger("livegnn")


class Callbacks:
    """The callbacks of one object, called in order of registration."""

    def __init__(self) -> None:
        self._handles: list[Handle] = []

    def add(self, callback: Callback) -> Handle:
        """Registers a function. Raises: UsageError for what is none."""
        if not callable(callback):
            raise UsageError(f"[on_change] expected a function of one Changes, got {callback!r}; pass one")
        handle = Handle(self, callback)
        self._handles = [*self._handles, handle]
        return handle

    def call(self, changes: Changes) -> None:
        """Calls all. What one raises is logged; Ctrl-C comes after the others have had the version."""
        interrupt: BaseException | None = None
        for handle in self._handles:
            try:
                handle._callback(changes)
            except Exception:
                _log.exception("[on_change] a callback failed at version %d; the batch stands", changes.version)
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def _drop(self, handle: Handle) -> None:
        self._handles = [each for each in self._handles if each is not handle]


class Handle:
    """A registered callback. cancel() ends it; cancelling twice does no harm."""

    def __init__(self, callbacks: Callbacks, callback: Callback) -> None:
        self._callbacks, self._callback = callbacks, callback

    def cancel(self) -> None:
        """No call begins after this returns in the applying thread."""
        self._callbacks._drop(self)
