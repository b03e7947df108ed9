"""The processes of the contention table: an engine with or without torch in its process, and a busy neighbour.

Nothing here imports torch before it is asked to: OMP_WAIT_POLICY is read when torch is loaded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import livegnn
from benchmarks.engine.live import Live, timed
from benchmarks.engine.runs import Played, Run, ids_compared, restoring
from benchmarks.engine.stream import workload
from livegnn.errors import StateMismatch

HIDDEN = 256
SIDE = 600  # of the two matrices whose product torch computes before each batch


class Contended:
    """livegnn, GraphConv (sum) of two layers, at the snapshot of a generated workload."""

    def __init__(self, name: str, updates: int, hidden: int, threads: int, torch_threads: int | None) -> None:
        """torch_threads: None leaves torch out of the process."""
        self.work = workload(name, updates)
        widths = (self.work.features.shape[1], hidden, self.work.classes)
        self.live = Live(self.work, graphconv(widths), threads=threads)
        self.ids = ids_compared(self.work)
        if torch_threads is not None:
            import torch  # here, not above: the others run without it

            torch.set_num_threads(torch_threads)
            self.torch: Any = torch
            self.factors = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)

    def has_torch(self) -> bool:
        """Whether torch is loaded in this process."""
        return "torch" in sys.modules

    def play(self, run: Run, multiply: bool) -> Played:
        """The run, each batch after a product by torch where it is to `multiply`; then back to the snapshot."""
        skipped, counted = (list(map(self.live.prepare, batches)) for batches in run.batches(self.work))
        back = self.live.prepare(restoring(self.work, run.start, run.stop))
        if multiply:
            self._after_products(skipped)
            seconds = self._after_products(counted)
        else:
            timed(self.live.apply, skipped)
            seconds = timed(self.live.apply, counted)
        rows = self.live.output(self.ids)
        self.live.apply(back)
        return Played(seconds, rows)

    def _after_products(self, items: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Seconds of each batch alone."""
        seconds = []
        for item in items:
            self.torch.mm(*self.factors)
            begin = time.perf_counter()
            self.live.apply(item)
            seconds.append(time.perf_counter() - begin)
        return np.array(seconds)

    def mismatch(self) -> str:
        """Where the state differs from a run from scratch; empty where it does not."""
        try:
            self.live.engine.verify()
        except StateMismatch as error:
            return str(error)
        return ""


def graphconv(widths: Sequence[int]) -> livegnn.Model:
    """Seeded weights, ReLU between the layers; made without torch."""
    rng = np.random.default_rng(7)

    def weights(out: int, width: int) -> npt.NDArray[np.float32]:
        return (rng.uniform(-1, 1, (out, width)) / np.sqrt(width)).astype(np.float32)

    layers = []
    for k in range(len(widths) - 1):
        i, o = widths[k], widths[k + 1]
        activation = "relu" if k + 2 < len(widths) else None
        layers.append(livegnn.layers.GraphConv(weights(o, i), weights(o, i), weights(1, o)[0], activation=activation))
    return livegnn.Model(layers)


class Spinner:
    """Keeps one core busy: the maker pauses and resumes its process."""

    def __init__(self, number: int) -> None:
        """Stays on one core, the next for the next number: left to the scheduler, two spinners may share one."""
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[number % len(cores)]})

    def spin(self) -> None:
        """Never returns."""
        while True:
            pass
