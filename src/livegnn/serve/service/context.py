"""What the routes of a deployment share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from livegnn.deployment import Deployment
from livegnn.deployment.live import LiveModel
from livegnn.errors import UsageError
from livegnn.inference import Engine
from livegnn.sampling import SampleServer
from livegnn.serve.envelope import Refused
from livegnn.serve.limits import Limits
from livegnn.serve.metrics import Metrics
from livegnn.serve.service.bodies import EngineBody
from livegnn.serve.service.feed import ChangeFeed
from livegnn.serve.service.repartitions import RepartitionDesk
from livegnn.serve.service.stats import StatsDesk
from livegnn.serve.traffic import Traffic

Result = TypeVar("Result")
ENDING = "livegnn.ending"  # in the scope: an ExitStack that is closed when the request ends
_DIGITS = 18  # of an id in a query
_READ_AT_ONCE = 256  # vertices whose rows the event loop may read itself


class ReadResult(NamedTuple, Generic[Result]):
    """What was read, of which version, and of which engine and model."""

    found: Result
    version: int
    engine: str
    model: str


@dataclass
class ServiceContext:
    """deployment: whose routes these are.  feed: of its changes.  readers: threads for what may wait or takes long.

    is_draining: writes are refused.  writes: under way.
    """

    deployment: Deployment
    limits: Limits
    traffic: Traffic
    metrics: Metrics
    stats: StatsDesk
    feed: ChangeFeed
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "livegnn-readers"))
    repartitions: RepartitionDesk = field(default_factory=RepartitionDesk)
    is_draining: bool = False
    writes: int = 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One write, from its acceptance to its answer. Raises: Refused while the service drains."""
        self.refuse_draining()
        self.writes += 1
        try:
            yield
        finally:
            self.writes -= 1

    def refuse_draining(self) -> None:
        """Raises: Refused while the service drains."""
        if self.is_draining:
            text = "[drain] expected a service that takes writes, got one that drains; send it again after its restart"
            raise Refused(503, "Draining", text, True)

    def engine(self, name: str | None) -> tuple[str, LiveModel]:
        """The engine that a request names, or the only one. Raises: UsageError."""
        engines = self.deployment.engines
        if name is None:
            served = [one for one in engines if one not in {f"{each}.shadow" for each in self.deployment.shadows}]
            if len(served) != 1:
                known = ", ".join(served) or "none"
                raise UsageError(f"[engine] expected engine= as one of {known}, got none; name one")
            name = served[0]
        return name, self.deployment.engine(name)

    def sampler(self, name: str | None) -> tuple[str, SampleServer]:
        """The sample server that a request names, or the only one. Raises: UsageError."""
        known = self.deployment.sample_servers
        if name is None and len(known) == 1:
            name = next(iter(known))
        if name is None or name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"[sampler] expected a sampler among {names}, got {name!r}; name one of them")
        return name, known[name]

    async def reached(self, version: int | None, timeout_ms: float) -> None:
        """Waits until a version can be read. Raises: VersionPending."""
        if version is None or self.deployment.version >= version:
            return
        try:  # in no thread: those that wait may be many
            await asyncio.wait_for(asyncio.wrap_future(self.deployment.reached(version)), timeout_ms / 1e3)
        except TimeoutError as cause:
            raise self.deployment.pending(version, timeout_ms / 1e3) from cause

    async def read(self, body: EngineBody, count: int, work: Callable[[Any], Result]) -> ReadResult[Result]:
        """What `work` reads of an engine, or of its snapshot, all of one version.

        Small reads of an eager engine are done here, others in a thread. An engine on demand is read under the lock in
        place of a snapshot, since it computes what is asked for. One over workers answers between two batches.
        """
        await self.reached(body.at_least, body.timeout_ms)
        name, engine = self.engine(body.engine)

        def read_now() -> ReadResult[Result]:
            return ReadResult(work(engine), engine.version, name, self.deployment.key_of(engine.model))

        if not isinstance(engine, Engine):  # it is over workers
            return await asyncio.wrap_future(engine.reads.submit(read_now))

        def read() -> ReadResult[Result]:
            if engine.is_eager:
                with engine.snapshot() as view:
                    return ReadResult(work(view), view.version, name, self.deployment.key_of(view.model))
            with engine.graph.host.lock:
                return read_now()

        return read() if engine.is_eager and count <= _READ_AT_ONCE else await self.aside(read)

    def checked(self, ids: list[Any], most: int | None = None) -> list[Any]:
        """Ids of one kind, not too many. Raises: Refused."""
        most = self.limits.ids_max if most is None else most
        if len(ids) > most:
            raise Refused(413, "TooMany", f"[ids] expected at most {most}, got {len(ids)}; split them")
        kinds = {type(each).__name__ for each in ids}
        if len(kinds) > 1:
            got = " and ".join(sorted(kinds))
            raise Refused(400, "BodyInvalid", f"[ids] expected integers or strings, got {got}; keep one kind")
        return ids

    def queried(self, given: list[str]) -> list[Any]:
        """Ids of a query as the graph has them: strings, or integers. Raises: Refused."""
        self.checked(given)
        if self.deployment.graph.host.ids.text:
            return given
        wrong = [each for each in given if not each.isascii() or not each.isdigit() or len(each) > _DIGITS]
        if wrong:
            raise Refused(
                400,
                "QueryInvalid",
                f"[ids] expected whole numbers, each as ids= of its own, got {wrong[0][:40]}; correct it",
            )
        return [int(each) for each in given]

    def close(self) -> None:
        """Ends the threads."""
        self.readers.shutdown(wait=False, cancel_futures=True)
        self.repartitions.end()

    async def aside(self, work: Callable[[], Result]) -> Result:
        """Runs what may wait or takes long in a thread."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self.readers, lambda: context.run(work))
