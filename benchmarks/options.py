"""The options of every table of a run."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.machine import Machine


@dataclass(frozen=True)
class Options:
    """tiny: small graphs, to try the benchmarks themselves."""

    full: bool
    tiny: bool
    threads: int
    machine: Machine
