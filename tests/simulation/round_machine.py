"""RoundMachine: reliable rounds over a wire that reorders, delays, drops and duplicates. It has no wire and no clock.

In a round each part sends one parcel to every other part and waits for theirs. A parcel is sent again until it is
acknowledged; the round is its number, so one that comes twice is known.

Invariant: a part is at most one round ahead of another. So of each sender, parcels of two rounds are kept at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

from livegnn.errors import InvariantBroken


class WireFrame(NamedTuple):
    """What lies on the wire. parcel: None acknowledges the one that went the other way."""

    life: int
    sender: int
    to: int
    round: int
    parcel: bytes | None


@final
class RoundMachine:
    """One part's end. The owner sends what is returned, and what again() returns from time to time.

    Args:    life: of all parts together; frames of another one are dropped, so what a broken wire left does no harm.
    """

    def __init__(self, size: int, rank: int, life: int = 0) -> None:
        self.size, self.rank, self.life = size, rank, life
        self.round = -1  # the latest that begin() was called for
        self._open = False
        self._got: dict[tuple[int, int], bytes] = {}  # by round and sender
        self._come: dict[int, int] = {}  # by round: how many of these
        self._unsure: dict[tuple[int, int], WireFrame] = {}  # by round and receiver: not acknowledged

    def begin(self, parcels: Sequence[bytes]) -> list[WireFrame]:
        """Starts the next round with a parcel for each part; that to itself goes nowhere."""
        if self._open or len(parcels) != self.size:
            raise InvariantBroken("invariant broken: a round with a parcel for each part, after the round before")
        self._open = True
        self.round += 1
        frames = [
            WireFrame(self.life, self.rank, to, self.round, bytes(parcel))
            for to, parcel in enumerate(parcels)
            if to != self.rank
        ]
        self._unsure |= {(frame.round, frame.to): frame for frame in frames}
        return frames

    def take(self, frame: WireFrame) -> list[WireFrame]:
        """A frame that has come, perhaps again. Returns: its acknowledgement, where it needs one."""
        if frame.life != self.life or frame.to != self.rank:
            return []
        if frame.parcel is None:
            self._unsure.pop((frame.round, frame.sender), None)
            return []
        ended = self.round if self._open else self.round + 1  # rounds before this one
        if frame.round > ended + 1:
            raise InvariantBroken(f"invariant broken: part {frame.sender} is two rounds ahead of part {self.rank}")
        if frame.round >= ended and (frame.round, frame.sender) not in self._got:
            self._got[frame.round, frame.sender] = frame.parcel
            self._come[frame.round] = self._come.get(frame.round, 0) + 1
        return [WireFrame(self.life, self.rank, frame.sender, frame.round, None)]

    def again(self) -> list[WireFrame]:
        """What may have been lost."""
        return list(self._unsure.values())

    @property
    def is_complete(self) -> bool:
        """Whether every parcel of the round under way is there."""
        return self._open and self._come.get(self.round, 0) == self.size - 1

    def end(self) -> list[bytes]:
        """Ends a round that is complete. Returns: the parcels, by sender; its own is empty."""
        if not self.is_complete:
            raise InvariantBroken("invariant broken: the end of a round that is not complete")
        self._open = False
        self._come.pop(self.round, None)
        return [self._got.pop((self.round, part), b"") for part in range(self.size)]
