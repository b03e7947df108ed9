"""Crew: what hosts the workers of a cluster and calls them. There are two: RayCrew (ray_crew.py), processes on one host
or many; ThreadCrew, threads of this process, for tests and for trying things out.

A crew decides nothing. It says that a worker was lost; what is to be done then is the cluster's business.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeAlias

from livegnn.distributed.cluster.worker import PartWorker
from livegnn.distributed.exchange import swap_bytes
from livegnn.distributed.ray_names import replaced
from livegnn.distributed.threads import ThreadExchange
from livegnn.errors import WorkerUnavailable

Call: TypeAlias = tuple[Any, ...]  # the name of a method of PartWorker, and what it is given


class Aside(Protocol):
    """Calls that go on next to others."""

    def done(self) -> bool:
        """Whether all have ended."""

    def results(self) -> list[Any]:
        """As of call(), or handles, as of keep(); waits for them. Raises: as call(), and no reform() has to follow."""


class Crew(Protocol):
    """The workers, numbered from 0."""

    size: int

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """Call i to worker i, all at once; their results.

        Raises: WorkerUnavailable where a worker has gone, does not come in time, or has lost another one; then
                reform() has to be called. What a worker raises otherwise.
        """

    def keep(self, calls: Sequence[Call]) -> list[Any]:
        """The same as call(), but what is returned are handles, to be given to later calls in place of the results."""

    def aside(self, calls: Sequence[Call], *, keep: bool) -> Aside:
        """Calls without rounds, by another thread of each worker, while other calls go on; one after another.

        keep: whether handles are wanted.
        """

    def reform(self) -> list[int]:
        """Starts those that were lost, empty, and joins all again. Returns: the version of each, -1 of an empty one.

        Raises: WorkerUnavailable where that fails.
        """

    def another(self, size: int, number: int) -> Crew:
        """A crew of the same kind and driver next to this one, of empty workers that are joined.

        number: of the crew, which this driver has given to no other one.
        Raises: WorkerUnavailable where they cannot be placed.
        """

    def lead(self) -> None:
        """A driver that follows finds this crew, and no longer the one that it was made next to."""

    def interrupt(self) -> None:
        """Ends the workers while another thread calls them: it gets WorkerUnavailable. close() is still to follow."""

    def close(self) -> None:
        """Ends all workers. A second call does nothing."""

    # Where another driver has taken the workers over, each of these raises DriverReplaced, and close() leaves them.


class _Driver:
    """Whose the crews of threads are. leading: the crew that a driver that follows finds."""

    def __init__(self, leading: ThreadCrew) -> None:
        self.crews, self.leading = [leading], leading
        self.replaced, self.gate = False, threading.Lock()


class _ThreadAside:
    """Calls to workers in threads, made when they are asked for."""

    def __init__(self, crew: ThreadCrew, calls: Sequence[Call]) -> None:
        self._crew, self._calls, self._workers = crew, calls, list(crew.workers)

    def done(self) -> bool:
        """See Aside."""
        return not self._crew.is_busy_aside

    def results(self) -> list[Any]:
        """See Aside."""
        found = []
        for rank, (worker, call) in enumerate(zip(self._workers, self._calls, strict=True)):
            if worker is None or worker is not self._crew.workers[rank]:
                raise WorkerUnavailable(f"[cluster] expected worker {rank} as it was, got none; reform the crew")
            found.append(getattr(worker, call[0])(*call[1:]))
        return found


class ThreadCrew:
    """Workers in threads of this process, in lock step; kill() is what a lost process is elsewhere.

    is_busy_aside: whether calls that were made aside have not ended yet.
    """

    def __init__(
        self,
        size: int,
        threads: int = 1,
        timeout_s: float = 60.0,
        workers: Sequence[PartWorker | None] | None = None,
    ) -> None:
        self.size, self._threads, self._timeout_s = size, threads, timeout_s
        self.workers: list[PartWorker | None] = list(workers or [None] * size)
        self._driver, self.is_busy_aside = _Driver(self), False
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="part")
        self.reform()

    def taken_over(self) -> ThreadCrew:
        """The workers of this driver for another; what this one has begun ends before, and it begins nothing any
        more. Crews that do not lead end.
        """
        driver = self._driver
        with driver.gate:
            driver.replaced = True
        for each in driver.crews:
            each._barrier.abort()
            each._pool.shutdown()
        leading = driver.leading
        crew = ThreadCrew(leading.size, self._threads, self._timeout_s, leading.workers)
        leading.workers = [None] * leading.size
        for each in driver.crews:
            each._end_workers()
        return crew

    def another(self, size: int, number: int) -> ThreadCrew:
        """See Crew."""
        crew = ThreadCrew(size, self._threads, self._timeout_s)
        crew._driver = self._driver
        with self._driver.gate:
            self._refuse_replaced()
            self._driver.crews.append(crew)
        return crew

    def lead(self) -> None:
        """See Crew."""
        with self._driver.gate:
            self._refuse_replaced()
            self._driver.leading = self

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """See Crew."""
        with self._driver.gate:
            self._refuse_replaced()
            running = [self._pool.submit(self._run, rank, call) for rank, call in enumerate(calls)]
        failures = [one.exception() for one in running]
        others = [error for error in failures if error is not None and not isinstance(error, WorkerUnavailable)]
        if others:
            raise others[0]
        lost = [error for error in failures if error is not None]
        if lost:
            raise lost[0]
        return [one.result() for one in running]

    keep = call

    def aside(self, calls: Sequence[Call], *, keep: bool) -> Aside:
        """See Crew."""
        with self._driver.gate:
            self._refuse_replaced()
            return _ThreadAside(self, calls)

    def kill(self, worker: int) -> None:
        """Loses all that the worker has; a round under way breaks."""
        lost, self.workers[worker] = self.workers[worker], None
        self._barrier.abort()
        if lost is not None:
            lost.decide(False)  # a thread that holds a batch ends

    def reform(self) -> list[int]:
        """See Crew."""
        with self._driver.gate:
            self._refuse_replaced()
            self._barrier, given = threading.Barrier(self.size, timeout=self._timeout_s), [None] * self.size
            self._ends = [ThreadExchange(given, self._barrier, rank) for rank in range(self.size)]
            for rank, worker in enumerate(self.workers):
                if worker is None:
                    self.workers[rank] = PartWorker(partial(self._swap, rank), self._threads, range(self.size))
                else:
                    worker.swap = partial(self._swap, rank)
        return [-1 if worker is None else worker.ready() for worker in self.workers]

    def interrupt(self) -> None:
        """See Crew."""
        for worker in range(self.size):
            self.kill(worker)

    def close(self) -> None:
        """See Crew."""
        self._pool.shutdown()
        self._end_workers()
        with self._driver.gate:
            self._driver.crews = [each for each in self._driver.crews if each is not self]

    def _end_workers(self) -> None:
        for worker in self.workers:
            if worker is not None:
                worker.decide(False)
        self.workers = [None] * self.size

    def _refuse_replaced(self) -> None:
        if self._driver.replaced:
            raise replaced("cluster")

    def _run(self, rank: int, call: Call) -> Any:
        worker = self.workers[rank]
        if worker is None:
            self._barrier.abort()
            raise WorkerUnavailable(f"[cluster] expected worker {rank}, got none; reform the crew")
        try:
            return getattr(worker, call[0])(*call[1:])
        except BaseException:
            self._barrier.abort()
            raise

    def _swap(self, rank: int, parcels: list[bytes]) -> list[bytes]:
        return swap_bytes(self._ends[rank], parcels)
