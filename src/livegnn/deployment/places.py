"""Where the sources of a deployment stand: what of each is in the log.

place = { key of a part of the source: how far it was read }        a file's name, a partition, a stream

A place moves with the batch that was read up to it: the move stands in the note of the batch's entry, and the places
in each snapshot. So a record of a source is in the log if and only if its source's place is behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Place: TypeAlias = dict[str, int]


class SourceMove(NamedTuple):
    """A batch of a source. before: where the source was, of the keys of `after`; None where it had not been."""

    source: str
    before: dict[str, int | None]
    after: Place


class KeptPlaces:
    """The places of all sources. Its user holds a lock."""

    def __init__(self) -> None:
        self._kept: dict[str, Place] = {}

    def of(self, source: str) -> Place:
        """A source's place."""
        return dict(self._kept.get(source, {}))

    def is_next(self, move: SourceMove) -> bool:
        """Whether the source stands where the batch begins: False once the batch is in the log."""
        kept = self._kept.get(move.source, {})
        return all(kept.get(key) == value for key, value in move.before.items())

    def move(self, sources: Mapping[str, Place]) -> None:
        """After an entry: the sources that its batches came from stand there."""
        for name, after in sources.items():
            self._kept.setdefault(name, {}).update(after)

    def all(self) -> dict[str, Place]:
        """A copy of all of them."""
        return {name: dict(place) for name, place in self._kept.items()}
