"""Repartitions that requests ask for. Each lasts as long as a start, so they have a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from livegnn.deployment import RepartitionReport
from livegnn.serve.envelope import Refused


class RepartitionDesk:
    """One after the other, until end(). Belongs to the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "livegnn-repartition")
        self._asked: set[asyncio.Future[Any]] = set()
        self._has_ended = False

    async def run(self, work: Callable[[], RepartitionReport]) -> RepartitionReport:
        """What work() returns, in its turn. Raises: Refused where the server ends before."""
        if self._has_ended:
            raise _ending()
        asked = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._asked.add(asked)
        try:
            return await asked
        except asyncio.CancelledError:
            if not self._has_ended:
                raise
            raise _ending() from None
        finally:
            self._asked.discard(asked)

    def end(self) -> None:
        """The server ends: requests are answered, and none of those that wait begins. One under way ends with the
        deployment.
        """
        self._has_ended = True
        for asked in self._asked:
            asked.cancel()
        self._thread.shutdown(wait=False)


def _ending() -> Refused:
    text = "[repartition] expected a service that goes on, got one that ends; ask again after its restart"
    return Refused(503, "Draining", text, True)
