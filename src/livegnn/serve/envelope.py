"""Every error as one JSON body, {"error": {"kind", "message", "retryable", ...}}, and its status code.

What follows are the fields that an error of livegnn knows: errors.Facts.
"""

from __future__ import annotations

import json
import logging

from livegnn.errors import (
    EdgeDuplicate,
    EdgeMissing,
    EdgeOffloaded,
    Facts,
    InvariantBroken,
    LiveGnnError,
    LogUnavailable,
    ModelError,
    Overloaded,
    QueryInvalid,
    UpdateError,
    UsageError,
    VersionPending,
    VertexExists,
    VertexUnknown,
    WorkerUnavailable,
)

_log = logging.getLogger("livegnn.serve")

# the first class that fits; what is not here is a 500
STATUSES: tuple[tuple[type[LiveGnnError], int], ...] = (
    (InvariantBroken, 500),
    (VertexUnknown, 404),
    (VertexExists, 409),
    (EdgeDuplicate, 409),
    (EdgeMissing, 409),
    (EdgeOffloaded, 409),
    (UpdateError, 422),
    (QueryInvalid, 422),
    (UsageError, 409),
    (Overloaded, 503),
    (LogUnavailable, 503),
    (WorkerUnavailable, 503),
    (VersionPending, 504),
    (ModelError, 500),
)


class Refused(Exception):
    """A request that HTTP itself refuses: a kind of its own, and the status."""

    def __init__(self, status: int, kind: str, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.status, self.kind, self.retryable = status, kind, retryable


def enveloped(error: Exception) -> tuple[int, bytes]:
    """Status and body. What is not an error of this package is logged, and not shown to the caller."""
    if isinstance(error, Refused):
        return error.status, _body(error.kind, str(error), error.retryable)
    if isinstance(error, LiveGnnError):
        status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
        if status == 500:
            _log.error("an answer failed", exc_info=error)
        return status, _body(type(error).__name__, str(error), error.retryable, error.facts())
    _log.error("unexpected error in a request", exc_info=error)
    message = "[serve] expected an answer, got an error of the server itself; its log has the cause"
    return 500, _body("InternalError", message, False)


def _body(kind: str, message: str, retryable: bool, facts: Facts | None = None) -> bytes:
    error = {"kind": kind, "message": message, "retryable": retryable, **(facts or {})}
    return json.dumps({"error": error}).encode()
