"""What the routes of a deployment share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from livegnn.deployment import Deployment
from livegnn.errors import UsageError
from livegnn.inference import Engine
from livegnn.serve.envelope import Refused
from livegnn.serve.limits import Limits
from livegnn.serve.metrics import Metrics
from livegnn.serve.service.feed import ChangeFeed
from livegnn.serve.traffic import Traffic

Result = TypeVar("Result")
ENDING = "livegnn.ending"  # in the scope: an ExitStack that is closed when the request ends
_READ_AT_ONCE = 256  # vertices whose rows the event loop may read itself


@dataclass
class ServiceContext:
    """deployment: whose routes these are.  feed: of its changes.  readers: threads for what may wait or takes long."""

    deployment: Deployment
    limits: Limits
    traffic: Traffic
    metrics: Metrics
    feed: ChangeFeed
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "livegnn-readers"))

    def engine(self, name: str | None) -> tuple[str, Engine]:
        """The engine that a request names, or the only one. Raises: UsageError."""
        engines = self.deployment.engines
        if name is None:
            served = [one for one in engines if one not in {f"{each}.shadow" for each in self.deployment.shadows}]
            if len(served) != 1:
                known = ", ".join(served) or "none"
                raise UsageError(f"[engine] expected engine= as one of {known}, got none; name one")
            name = served[0]
        return name, self.deployment.engine(name)

    async def reached(self, version: int | None, timeout_ms: float) -> None:
        """Waits until a version can be read. Raises: VersionPending."""
        if version is not None and self.deployment.version < version:
            await self.aside(lambda: self.deployment.wait(version, timeout_ms / 1e3))

    async def read(self, engine: Engine, count: int, work: Callable[[], Result]) -> Result:
        """Reads of an engine: small ones of an eager engine here, others in a thread."""
        if engine.is_eager and count <= _READ_AT_ONCE:
            return work()
        return await self.aside(work)

    async def aside(self, work: Callable[[], Result]) -> Result:
        """Runs what may wait or takes long in a thread."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self.readers, lambda: context.run(work))


def one_kind(ids: list[Any]) -> list[Any]:
    """Ids of one kind. Raises: Refused."""
    kinds = {type(each).__name__ for each in ids}
    if len(kinds) > 1:
        raise Refused(
            400, "BodyInvalid", f"[ids] expected integers or strings, got {' and '.join(sorted(kinds))}; keep one kind"
        )
    return ids
