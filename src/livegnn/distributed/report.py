"""What distributed training did: scores, and how evenly the work was spread."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from livegnn.temporal.report import EpochReport
from livegnn.types import Float64Array, Int64Array


def variation(values: Float64Array) -> float:
    """Standard deviation over mean; 0 where all are 0."""
    mean = float(np.mean(values))
    return float(np.std(values)) / mean if mean else 0.0


@dataclass(eq=False)
class DistributedReport:
    """The same on every worker.

    sampling_seconds: (workers,) float64, processor time that each spent on sampling, for itself and for others; waiting
    is left out.  targets: (workers,) int64, roots that each asked for.  targets_served: (workers,) int64, targets of
    all hops that each sampled for anybody.  seconds: of this worker, by phase, waiting included (sample, fetch, model,
    memory).  hit_rates: of the feature caches of all workers, for "vertices" and "edges", as far as there are caches.
    """

    epochs: list[EpochReport] = field(default_factory=list)
    sampling_seconds: Float64Array = field(default_factory=lambda: np.zeros(0))
    targets: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    targets_served: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    seconds: dict[str, float] = field(default_factory=dict)
    hit_rates: dict[str, float] = field(default_factory=dict)

    @property
    def sampling_cv(self) -> float:
        """Coefficient of variation of sampling_seconds. The paper reports below 0.06 for four machines."""
        return variation(self.sampling_seconds)

    @property
    def served_cv(self) -> float:
        """Coefficient of variation of targets_served: the balance without the clock's noise."""
        return variation(self.targets_served.astype(np.float64))
