"""Peers, re-implemented from the papers' descriptions in NumPy and torch, each as strong as Python allows.

Every peer has `name`, `apply(batch)` (what is timed), `output(ids) -> (k, classes) float32` and `state_bytes()`. All
take the same stream and must give equal results (tests/unit/benchmarks, and at the end of every benchmark cell).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.engine.stream import Batch


class Peer(Protocol):
    """What a benchmark cell asks of an engine, a peer or livegnn."""

    name: str

    def apply(self, batch: Batch) -> object: ...

    def output(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]: ...

    def state_bytes(self) -> int: ...
