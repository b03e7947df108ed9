"""ThreadExchange: workers that are threads of one process, step by step together, without a wire.

The twin of TorchExchange: the same calls, the same order, the same results; a failure in one thread ends the others, as
a dead process does. Arrays are copied, so that no worker sees what another one changes afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from livegnn.distributed.exchange import Exchange, check_parts, checked_group
from livegnn.errors import WorkerUnavailable
from livegnn.types import AnyArray

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ThreadExchange", "run_threads"]

Result = TypeVar("Result")


class _Table:
    """Where the threads of a group put things down for each other."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.barrier = threading.Barrier(size, timeout=timeout_s)
        self.given: list[Any] = [None] * size


class ThreadExchange:
    """One thread's end; see Exchange."""

    def __init__(self, table: _Table, rank: int) -> None:
        self._table, self.rank, self.size = table, rank, len(table.given)

    def swap(self, parts: Sequence[AnyArray]) -> list[AnyArray]:
        """Part i goes to worker i."""
        check_parts(parts, self.size)
        return self._shared(list(parts), lambda given: [np.array(parts[self.rank]) for parts in given])

    def gather(self, part: AnyArray) -> list[AnyArray]:
        """What each worker gave."""
        return self._shared(part, lambda given: [np.array(part) for part in given])

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
        table = self._table
        try:
            table.given[self.rank] = mine
            table.barrier.wait()
            result = read(table.given)
            table.barrier.wait()
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
    table = _Table(workers, checked_group("run_threads", workers, timeout_s))
    results: list[Any] = [None] * workers
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        try:
            results[rank] = fn(ThreadExchange(table, rank))
        except BaseException as error:  # raised below, in the caller's thread
            errors.append(error)
            table.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,), name=f"worker-{rank}") for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, WorkerUnavailable)), errors[0])
    return results
