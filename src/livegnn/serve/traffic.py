"""What the whole service has under way: a budget of bytes, and counts of what was refused or dropped.

    bytes = sum over requests of (what its body has brought so far, or what its answer has, until that is written)

A request holds a lease. It grows as the body arrives; a request for samples takes what their arrays will have before
they are made; the answer's own size replaces both. Used in the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from livegnn.errors import Overloaded
from livegnn.serve.envelope import Refused


class Traffic:
    """bytes: under way.  over_budget: requests refused for them.  connections: open.  connections_refused: beyond
    connections_max.  dropped: connections closed by a time-out, by what it waited for.  on_end: called when the server
    takes no more connections, and waits for the answers under way; a second call does nothing.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.over_budget = 0
        self.connections = 0
        self.connections_refused = 0
        self.dropped = {"head": 0, "answer": 0}
        self.on_end: list[Callable[[], object]] = []

    def end(self) -> None:
        """The server ends: answers that would never end by themselves do now."""
        for each in self.on_end:
            each()


class Lease:
    """One request's part of the budget, given back at the end of a with block."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.bytes = 0

    def hold(self, size: int) -> None:
        """Holds so many bytes from now on, instead of those before. Raises: Overloaded, Refused; then all as before."""
        traffic = self._traffic
        if size > traffic.bytes_max:
            raise Refused(
                413,
                "RequestTooLarge",
                f"[serve] expected up to {traffic.bytes_max} bytes under way, got {size} for one request; split it",
            )
        under_way = traffic.bytes - self.bytes
        if under_way + size > traffic.bytes_max:
            traffic.over_budget += 1
            raise Overloaded(
                f"[serve] expected up to {traffic.bytes_max} bytes under way, got {under_way + size} with this one; "
                "send it again later"
            )
        traffic.bytes = under_way + size
        self.bytes = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._traffic.bytes -= self.bytes
        self.bytes = 0
