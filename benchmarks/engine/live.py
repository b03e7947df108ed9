"""livegnn as one more engine of a benchmark cell, through its public surface only."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import livegnn
from benchmarks.engine.stream import Batch, Workload, to_updates, to_updates_singly

if TYPE_CHECKING:
    from benchmarks.engine.networks import Network  # which loads torch: an engine alone runs without it


class Live:
    """Snapshot -> Graph -> Engine. Updates are built by `prepare`, outside the clock; `apply` is engine.apply alone."""

    name = "livegnn"

    def __init__(
        self,
        workload: Workload,
        module: Network | livegnn.Model,
        *,
        threads: int,
        strategy: str = "incremental",
        **options: Any,
    ):
        src, dst = workload.src.astype(np.int64), workload.dst.astype(np.int64)
        begin = time.perf_counter()
        self.graph = livegnn.Graph(workload.features, src, dst)
        self.load_seconds = time.perf_counter() - begin
        del src, dst
        begin = time.perf_counter()
        model = module if isinstance(module, livegnn.Model) else livegnn.from_pyg(module)
        self.engine = livegnn.Engine(model, self.graph, strategy=strategy, threads=threads, **options)
        self.start_seconds = time.perf_counter() - begin

    def prepare(self, batch: Batch) -> Any:
        return to_updates(livegnn, batch)

    def apply(self, updates: Any) -> Any:
        return self.engine.apply(updates)

    def apply_singly(self, batch: Batch) -> Any:
        """Build the Updates one call each and apply them: what a caller at batch 1 pays."""
        return self.engine.apply(to_updates_singly(livegnn, batch))

    def output(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.engine.embeddings(ids)

    def state_bytes(self) -> int:
        return sum(self.engine.state_bytes().values())


def timed(
    work: Any, items: Iterable[Any], results: list[Any] | None = None, limit_s: float = float("inf")
) -> npt.NDArray[np.float64]:
    """Seconds of work(item), item by item, without garbage collections in between; what it returned goes to results.

    limit_s: no item begins once this much time is spent; there is one at least.
    """
    seconds = []
    clock = time.perf_counter
    gc.collect()
    gc.disable()
    try:
        for item in items:
            begin = clock()
            result = work(item)
            seconds.append(clock() - begin)
            limit_s -= seconds[-1]
            if results is not None:
                results.append(result)
            if limit_s <= 0:
                break
    finally:
        gc.enable()
    return np.array(seconds)


def percentiles(seconds: npt.NDArray[np.float64]) -> str:
    """p50 / p99 in microseconds or milliseconds."""
    p50, p99 = np.percentile(seconds, (50, 99))
    unit, scale = ("us", 1e6) if p50 < 1e-3 else ("ms", 1e3)
    return f"{p50 * scale:.3g} / {p99 * scale:.3g} {unit}"
