"""Server-sent events of GET /v1/changes: their text, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias


class VertexMoved(NamedTuple):
    """before, after: None where the vertex came or went.  change: the largest of its row, if asked for and finite."""

    vertex: int | str
    before: int | float | None
    after: int | float | None
    change: float | None = None


class ChangeEvent(NamedTuple):
    """What a version changed. more: vertices that did not fit into the event."""

    version: int
    engine: str
    model: str
    changes: list[VertexMoved]
    more: int


class MissedEvent(NamedTuple):
    """Versions from `first` to `last` whose changes are not listed: read what you need anew, at `last` or later.

    reason: "ring" (too long ago), "model" (a swap or rescale: every row is another one), "size", "fault".
    """

    first: int
    last: int
    reason: str


Event: TypeAlias = ChangeEvent | MissedEvent


class EventReader:
    """Bytes of a stream to events, as the standard of server-sent events says. last_id: of the newest event."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._line = b""
        self._kind, self._data = "", [""][:0]
        self._id = last_id

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """(kind, data) of the events that are complete."""
        lines = (self._line + piece).split(b"\n")
        self._line = lines.pop()
        for line in lines:
            yield from self._take(line.removesuffix(b"\r").decode("utf-8", "replace"))

    def restart(self) -> None:
        """Forgets a part of an event, for another connection."""
        self._line, self._kind, self._data, self._id = b"", "", [], self.last_id

    def _take(self, line: str) -> Iterator[tuple[str, str]]:
        if not line:
            kind, data, self._kind, self._data = self._kind, self._data, "", []
            self.last_id = self._id
            if data:
                yield kind or "message", "\n".join(data)
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._id = value


def decoded(kind: str, data: str) -> Event | None:
    """The event; None for a ping, and kinds of a newer service."""
    if kind not in ("change", "missed"):
        return None
    said: dict[str, Any] = json.loads(data)
    if kind == "missed":
        return MissedEvent(said["from"], said["to"], said["reason"])
    changes = [VertexMoved(*each) for each in said["changes"]]
    return ChangeEvent(said["version"], said["engine"], said["model"], changes, said["more"])
