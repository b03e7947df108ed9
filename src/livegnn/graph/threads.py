"""How many threads: as many as a caller asks for, or one for each core that the process may use."""

from __future__ import annotations

import os

from livegnn.errors import ValueInvalid
from livegnn.graph.checks import shown

THREADS_MAX = 256


def core_count() -> int:
    """Cores that this process may use; THREADS_MAX where there are more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, THREADS_MAX)


def thread_count(where: str, threads: object) -> int:
    """An int from 1 to THREADS_MAX as it is; the cores for None. Raises: ValueInvalid."""
    if threads is None:
        return core_count()
    if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
        raise ValueInvalid(
            f"[{where}] expected 1 to {THREADS_MAX} threads, got {shown(threads)}; leave it out for all cores"
        )
    return threads
