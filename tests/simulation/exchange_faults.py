"""ExchangeFaults: exchanges of a ThreadCrew that fail, each by the worker and its number among that worker's.

Timing does not matter: the other workers have then got all of the exchanges before, and none or all of this one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.exchange import swap_bytes
from livegnn.distributed.threads import ThreadExchange
from livegnn.errors import WorkerUnavailable

PATIENCE_S = 60.0


class ExchangeFault(NamedTuple):
    """when: the worker's connection drops "before" it gives anything, or "after" all others have what it gave; or it
    "hangs" until the others have waited for it in vain.  is_lost: whether all that it has is gone then.
    """

    when: str
    is_lost: bool


class ExchangeFaults:
    """In place of swap_bytes() of crews. at: (worker, number) -> ExchangeFault, from the last arm() on.

    counts: of each worker's exchanges since then.   struck: the faults that have come.
    """

    def __init__(self, crew: ThreadCrew) -> None:
        self._crew, self._lock = crew, threading.Lock()
        self._barrier: threading.Barrier | None = None
        self._done: list[int] = []  # of each worker, since all were joined last
        self.arm({})

    def arm(self, at: dict[tuple[int, int], ExchangeFault]) -> None:
        """Counts anew. Numbers begin with 0."""
        self.at, self.counts, self.struck = dict(at), [0] * self._crew.size, list[ExchangeFault]()

    def swap_bytes(self, exchange: ThreadExchange, parcels: list[bytes]) -> list[bytes]:
        """See livegnn.distributed.exchange.swap_bytes()."""
        rank, barrier = exchange.rank, exchange._barrier
        with self._lock:
            if barrier is not self._barrier:
                self._barrier, self._done = barrier, [0] * exchange.size
        fault = self.at.pop((rank, self.counts[rank]), None)
        self.counts[rank] += 1
        if fault is None or fault.when == "after":
            found = swap_bytes(exchange, parcels)
            self._done[rank] += 1
            if fault is None:
                return found
        self._wait(lambda: barrier.broken or min(self._done) >= self._done[rank])
        if fault.when == "hangs":
            self._wait(lambda: barrier.broken)
        self.struck.append(fault)
        if fault.is_lost:
            self._crew.kill(rank)
        raise WorkerUnavailable(f"[simulated] expected a connection of worker {rank}, got none; {fault.when}")

    @staticmethod
    def _wait(condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until, "others go on without a worker that they need"
            time.sleep(0.0005)
