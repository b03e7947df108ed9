"""What readers give, and how they say that they cannot go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class SourceRecord(NamedTuple):
    """One record. part, place: with it, this part of the source has been read up to this place.

    values: its columns or fields.  text: as it came, for the dead letters.  fault: why it could not be decoded.
    One without values and without a fault is no record: the place alone.
    """

    part: str
    place: int
    values: Mapping[str, Any] | None
    text: str = ""
    fault: str = ""


class Lag(NamedTuple):
    """What a source has not been read of."""

    amount: int
    unit: str


class Unreachable(Exception):
    """The other side does not answer now: the pipe tries again later."""


class PipeBroken(Exception):
    """The pipe cannot go on without a person: records are gone, or a file is another one."""


class Reader(Protocol):
    """An open source. Each call comes from its thread. is_ended: nothing more will come."""

    is_ended: bool

    def read(self, count_max: int, wait_s: float) -> list[SourceRecord]:
        """The next records; none where none came within wait_s. Raises: Unreachable, PipeBroken."""

    def lag(self) -> Lag | None:
        """What is there and was not read; None where that is not known."""

    def close(self) -> None:
        """Lets go of files and connections."""
