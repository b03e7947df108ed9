"""Events of note of a deployment, as records of logging that carry a name and fields."""

from __future__ import annotations

import logging

_log = logging.getLogger("livegnn")


def emit(
    event: str, text: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: object
) -> None:
    """Logs one event. text: for people.  fields: for programs; no ids of vertices, no secrets."""
    _log.log(level, "%s", text, exc_info=error, extra={"event": event, "fields": fields})
