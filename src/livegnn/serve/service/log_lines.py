"""Lines of the log of `livegnn serve`: JSON for programs, and what becomes of requests.

line = {"time": ISO 8601 in UTC, "level", "event", "message", fields of the event,
        "error": class, "stack": [file:line:function, ...]}            the last two where an error was logged

Messages of errors may hold ids of vertices, so a line has them at level debug alone, but for errors of storage, log
and configuration. Paths of requests are those of the routes, without their parameters. Headers and bodies are never
logged.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from livegnn.deployment.events import emit
from livegnn.errors import DataMissing, LiveGnnError, LogError, ModelError, StorageFailed, StoredStateInvalid
from livegnn.serve.envelope import Refused
from livegnn.serve.writing import Scope

FAILURE = "livegnn.failure"  # in the scope: the error that a request ended with
_OPERATIONAL = (StorageFailed, StoredStateInvalid, LogError, ModelError, DataMissing)  # name files, layers, offsets
_LINES_MAX = 10  # of one kind and route in a second


class JsonLines(logging.Formatter):
    """One JSON object a line. show_messages: also messages of errors that may name vertices."""

    def __init__(self, *, show_messages: bool = False) -> None:
        super().__init__()
        self._show_messages = show_messages

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
            "logger": record.name,
        }
        line |= getattr(record, "fields", {})
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            if self._show_messages or isinstance(error, _OPERATIONAL):
                line["detail"] = str(error)
            frames = traceback.extract_tb(error.__traceback__)
            line["stack"] = [f"{one.filename}:{one.lineno}:{one.name}" for one in frames]
        return msgspec.json.encode(line, enc_hook=str).decode()


class RequestLog:
    """Lines of requests: those that were refused or failed; with access=True, every one.

    Of one kind and route at most 10 lines a second are written; the next one says how many were left out.
    """

    def __init__(self, *, access: bool = False) -> None:
        self._access = access
        self._second = 0
        self._lines: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._left_out = 0

    def answered(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        error = scope.get(FAILURE)
        fields: dict[str, Any] = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1e3, 3),
        }
        if status >= 400:
            kind = error.kind if isinstance(error, Refused) else type(error).__name__ if error else "unknown"
            if self._is_within(kind, route):
                self._write("request_failed" if status >= 500 else "request_refused", error, fields | {"kind": kind})
        elif self._access:
            client = (scope.get("client") or ("",))[0]
            emit("request", f"{scope['method']} {route} {status}", client=client, **fields)

    def _write(self, event: str, error: object, fields: dict[str, Any]) -> None:
        if isinstance(error, _OPERATIONAL) or logging.getLogger("livegnn").isEnabledFor(logging.DEBUG):
            fields |= {"detail": str(error)}
        if self._left_out:
            fields |= {"left_out": self._left_out}
            self._left_out = 0
        retryable = isinstance(error, LiveGnnError | Refused) and error.retryable
        failed = event == "request_failed"
        level = logging.WARNING if failed and retryable else logging.ERROR if failed else logging.INFO
        text = f"{fields['method']} {fields['route']} {fields['status']} {fields['kind']}"
        emit(event, text, level=level, **fields)

    def _is_within(self, kind: str, route: str) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._lines.clear()
        self._lines[kind, route] += 1
        if self._lines[kind, route] <= _LINES_MAX:
            return True
        self._left_out += 1
        return False


def configure(form: str, level: str) -> None:
    """Sends the process's log lines to standard error in this form, warnings included; where none are sent yet."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonLines(show_messages=level == "debug"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("livegnn").setLevel(level.upper())
