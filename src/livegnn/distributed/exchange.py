"""Exchange: how workers hand arrays to each other. All workers make the same calls in the same order
(bulk-synchronous).

Two implementations: TorchExchange, over torch.distributed, between processes; ThreadExchange (threads.py), between
threads of one process, for tests and for trying things out. A caller groups its rows by the worker that holds them,
once, in a Route: rows go out in that order and answers come back in the order of the question.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from livegnn.errors import UsageError
from livegnn.graph.checks import as_seconds, shown
from livegnn.types import AnyArray, Int64Array

if TYPE_CHECKING:
    from torch import Tensor


class Exchange(Protocol):
    """One worker's end of the wire.

    Raises:  WorkerUnavailable from any call when another worker has gone or does not come in time.
    """

    rank: int  # this worker's number, from 0
    size: int  # how many workers there are

    def swap(self, parts: Sequence[AnyArray]) -> list[AnyArray]:
        """Part i goes to worker i; result i is what worker i sent here.

        Args:    parts: one for each worker, (k_i, ...) arrays of one dtype and one trailing shape, the same everywhere.
        """

    def gather(self, part: AnyArray) -> list[AnyArray]:
        """What each worker gave, in order of their numbers."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all workers of tensors of one shape; the same bits on every worker."""


class Route:
    """Rows and the workers that they are sent to: (k,) int64 numbers below `size`."""

    def __init__(self, workers: Int64Array, size: int) -> None:
        self.order: Int64Array = np.argsort(workers, kind="stable")
        counts = np.bincount(workers, minlength=size)
        self._ends = np.cumsum(counts)[:-1]

    @property
    def places(self) -> list[Int64Array]:
        """For each worker the rows that it is sent, ascending."""
        return np.split(self.order, self._ends)

    def split(self, rows: AnyArray) -> list[AnyArray]:
        """Rows (k, ...) by worker."""
        return np.split(rows[self.order], self._ends)

    def joined(self, answers: Sequence[AnyArray]) -> AnyArray:
        """Answers, one row for each row sent, in the order of the rows."""
        found = np.concatenate(answers)
        out = np.empty_like(found)
        out[self.order] = found
        return out


def checked_group(where: str, workers: object, timeout_s: object) -> float:
    """The seconds that a worker waits for another. Raises: UsageError where no group can be made of the numbers."""
    seconds = as_seconds(timeout_s)
    if type(workers) is not int or workers < 1:
        raise UsageError(f"[{where}] expected at least one worker, got {shown(workers)}; give such a number")
    if seconds is None or not seconds > 0:
        raise UsageError(
            f"[{where}] expected timeout_s above 0 and within {threading.TIMEOUT_MAX:.0f}, got {shown(timeout_s)}; "
            "give such a number"
        )
    return seconds


def check_parts(parts: Sequence[AnyArray], size: int) -> None:
    """Raises: UsageError where a swap has not one part for each worker."""
    if len(parts) != size:
        raise UsageError(f"[swap] expected a part for each of {size} workers, got {len(parts)}; give empty ones too")


def swap_bytes(exchange: Exchange, parcels: Sequence[bytes]) -> list[bytes]:
    """Parcel i goes to worker i; result i is what worker i sent here."""
    found = exchange.swap([np.frombuffer(parcel, np.uint8) for parcel in parcels])
    return [part.tobytes() for part in found]


def gather_text(exchange: Exchange, text: str) -> list[str]:
    """What each worker says."""
    found = exchange.gather(np.frombuffer(text.encode(), np.uint8).copy())
    return [part.tobytes().decode() for part in found]
