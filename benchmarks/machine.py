"""What this machine can do: the constants of the bounds, measured at the start of a run."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """In-place update bandwidth and float32 multiply-add peak of all threads."""

    name: str
    bytes_per_s: float
    flop_per_s: float


REFERENCE = Machine("reference", 54.4e9, 231e9)  # the machine whose numbers the targets were set on


def description() -> str:
    """Processor, cores and instruction sets, for the head of a result."""
    from livegnn import _native

    listed = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", listed.read_text(), re.MULTILINE) if listed.exists() else None
    processor = named[1] if named else platform.processor() or platform.machine()
    return ", ".join([processor, f"{os.cpu_count()} cores", *_native.cpu_features()])


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """Smallest wall time of `repeats` calls: the machine's limit, not its mood."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def measure(threads: int) -> Machine:
    """In-place update of 512 MiB, copy of 512 MiB, and GEMMs of 1024 and 2048 rows; the best of each."""
    import torch  # here: processes that know the constants alone run without it

    torch.set_num_threads(threads)
    size = 1 << 27
    x, y = torch.ones(size), torch.ones(size)
    in_place = 8 * size / best_seconds(lambda: x.add_(1.0), 7)
    copy = 8 * size / best_seconds(lambda: x.copy_(y), 7)
    peak = 0.0
    for rows, inner, columns in ((1024, 128, 256), (2048, 512, 512), (2048, 2048, 2048)):
        a, b, c = torch.randn(rows, inner), torch.randn(inner, columns), torch.empty(rows, columns)
        seconds = best_seconds(lambda a=a, b=b, c=c: torch.mm(a, b, out=c), 10)  # type: ignore[misc]
        peak = max(peak, 2 * rows * inner * columns / seconds)
    return Machine("this machine, measured now", max(in_place, copy), peak)
