"""Resident memory of processes, by /proc, and what counts as growth. Where there is no /proc nothing is watched."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

MIB = 1 << 20
WATCHED = Path("/proc/self/statm").exists()
POINTS_MIN = 9  # below that a slice was too short to judge

_PAGE = os.sysconf("SC_PAGE_SIZE")
_WARM_UP = 0.3  # of the points


def resident(pid: int | str = "self") -> int:
    """Bytes of a process in memory; 0 where it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def resident_of_group(group: int) -> dict[int, int]:
    """Bytes by process of a process group."""
    found = {}
    for entry in Path("/proc").iterdir() if WATCHED else ():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[2]) == group:
                found[int(entry.name)] = resident(entry.name)
    return found


def at_rest() -> int:
    """Bytes of this process once everything that can go has gone."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return resident()


def growth(points: Sequence[int]) -> int | None:
    """Bytes by which the last third lies above the first, in the median, after the warm-up; None for too few points."""
    if len(points) < POINTS_MIN:
        return None
    steady = points[int(len(points) * _WARM_UP) :]
    third = len(steady) // 3
    return int(statistics.median(steady[-third:]) - statistics.median(steady[:third]))
