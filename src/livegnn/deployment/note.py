"""What a deployment notes with each entry of its log: it changes no updates, and lets a restart answer as before.

note = JSON {"time_ms": wall clock of the commit, "requests": [[key, digest, number of updates], ...],
             "engine": of a swap, "model": its registry key, "configured": what the configuration said, if that was
             the reason, "sources": {source: {part of it: how far it is in the log with this entry}, places.py}}
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from livegnn.deployment.places import Place
from livegnn.errors import LogDamaged


class Noted(NamedTuple):
    """A request that has an idempotency key. digest: of its body or updates."""

    key: str
    digest: str
    updates: int


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """requests: those of the entry that have keys.  engine, model, configured: where the entry is a swap.

    sources: where those stand from which the entry's batches came.
    """

    time_ms: int
    requests: list[Noted] = []
    engine: str = ""
    model: str = ""
    configured: str = ""
    sources: dict[str, Place] = {}


def encode_note(note: Note) -> bytes:
    """The bytes of a note."""
    return msgspec.json.encode(note)


def decode_note(note: bytes, offset: int) -> Note:
    """The note of an entry; an empty one for an entry without. Raises: LogDamaged naming the offset."""
    try:
        return msgspec.json.decode(note, type=Note) if note else Note(0)
    except msgspec.MsgspecError as cause:
        raise LogDamaged(
            f"[offset {offset}] expected a deployment's note, got other bytes ({cause}); read this log with the "
            "program that wrote it"
        ) from cause
