"""Changes as events for sinks: those of GET /v1/changes, each with a key that names it for ever.

    {"event": "change", "version", "engine", "model", "part": k, "changes": [[vertex, before, after], ...]}
    {"event": "missed", "version", "engine", "from", "to", "resume", "reason"}

key = version "." part. One version's changes are cut into parts of a bounded number of vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from livegnn.deployment.filters import ChangedVersion, ChangeFilter, ChangeTable
from livegnn.deployment.hub import Span


class SinkEvent(NamedTuple):
    """version, key: of the event.  data: what it says.  body: the same in JSON."""

    version: int
    key: str
    data: dict[str, Any]

    @property
    def body(self) -> bytes:
        """In JSON."""
        return msgspec.json.encode(self.data)


def change_events(version: ChangedVersion, wanted: ChangeFilter, changes_max: int) -> Iterator[SinkEvent]:
    """What a filter lets through of one version."""
    if wanted.vertex_type not in version.parts:
        return
    table = ChangeTable([version], wanted.vertex_type, wanted.output)
    places = table.places(wanted)
    for part, first in enumerate(range(0, len(places), changes_max)):
        data = {
            "event": "change",
            "version": version.version,
            "engine": wanted.engine,
            "model": version.reference,
            "part": part,
            "changes": table.changes(wanted, places[first : first + changes_max]),
        }
        yield SinkEvent(version.version, f"{version.version}.{part}", data)


def missed_event(engine: str, after: int, span: Span) -> SinkEvent:
    """Versions that cannot be listed any more."""
    data = {"event": "missed", "version": span.floor, "engine": engine, "from": after + 1, "to": span.floor}
    return SinkEvent(span.floor, f"{span.floor}.missed", data | {"resume": span.floor, "reason": span.reason})
