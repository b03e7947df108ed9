"""ThreadExchange: workers that are threads of one process, step by step together, without a wire.

The twin of TorchExchange: the same calls, the same order, the same results; a failure in one thread ends the others, as
a dead process does. Arrays are copied, so that no worker sees what another one changes afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from livegnn.distributed.exchange import Exchange, check_parts, checked_group
from livegnn.errors import WorkerUnavailable
from livegnn.types import AnyArray

if TYPE_CHECKING:
    from torch import Tensor

Result = TypeVar("Result")


class ThreadExchange:
    """One thread's end; see Exchange. given: where the threads of a group put things down for each other."""

    def __init__(self, given: list[Any], barrier: threading.Barrier, rank: int) -> None:
        self._given, self._barrier, self.rank, self.size = given, barrier, rank, len(given)

    def swap(self, parts: Sequence[AnyArray]) -> list[AnyArray]:
        """Part i goes to worker i."""
        check_parts(parts, self.size)
        return self._shared(list(parts), lambda given: [np.array(parts[self.rank]) for parts in given])

    def gather(self, part: AnyArray) -> list[AnyArray]:
        """What each worker gave."""
        return self.swap([part] * self.size)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all workers, added in order of their numbers."""

        def added(given: list[Tensor]) -> Tensor:
            total = given[0].clone()
            for other in given[1:]:
                total += other
            return total

        return self._shared(values, added)

    def _shared(self, mine: Any, read: Callable[[list[Any]], Result]) -> Result:
        """What read() makes of that which all have put down; none goes on before all have read."""
        try:
            self._given[self.rank] = mine
            self._barrier.wait()
            result = read(self._given)
            self._barrier.wait()
        except threading.BrokenBarrierError as cause:
            raise WorkerUnavailable(
                f"[exchange] expected all {self.size} workers, got one that has ended or is late; see its own error"
            ) from cause
        return result


def run_threads(fn: Callable[[Exchange], Result], workers: int, *, timeout_s: float = 60.0) -> list[Result]:
    """Runs fn in so many threads, each with its end of one exchange; their results in order.

    Args:    timeout_s: for which one may wait for another.
    Raises:  what the first worker to fail raised; WorkerUnavailable where one is late; UsageError for numbers that make
             no group.
    """
    seconds = checked_group("run_threads", workers, timeout_s)
    barrier = threading.Barrier(workers, timeout=seconds)
    given: list[Any] = [None] * workers
    errors: list[BaseException] = []

    def work(rank: int) -> Result:
        try:
            return fn(ThreadExchange(given, barrier, rank))
        except BaseException as error:
            errors.append(error)
            barrier.abort()
            raise

    with ThreadPoolExecutor(workers, thread_name_prefix="worker") as pool:
        running = [pool.submit(work, rank) for rank in range(workers)]
    if errors:
        raise next((error for error in errors if not isinstance(error, WorkerUnavailable)), errors[0])
    return [one.result() for one in running]
