"""The cost model of a batch, its fit and its error.

    seconds(p) = compute(p) + rounds * latency + bytes(p) / bandwidth
    compute(p) = (own + copies * boundary(p)) / p       of the slowest worker: what one engine does, and its copies of
                                                        other workers' vertices
    bytes(p)   = wire * boundary(p)                     boundary: such copies of all workers

An error is that of leaving one number of workers out, fitting the others and predicting it; the largest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Measured(NamedTuple):
    """Per batch, over `parts` workers. seconds: of the slowest worker's processor.  bytes: of all workers."""

    parts: int
    boundary: int
    seconds: float
    bytes: float
    rounds: float
    edges: float


@dataclass(frozen=True)
class CostModel:
    """own: seconds a batch.  copies, wire: seconds and bytes a batch and copy."""

    own: float
    copies: float
    wire: float

    @classmethod
    def of(cls, found: Sequence[Measured]) -> CostModel:
        """Fitted to relative errors; no term is below 0."""
        seconds = np.array([m.seconds for m in found])
        terms = np.array([[1.0, m.boundary] for m in found]) / np.array([m.parts for m in found])[:, None]
        terms /= seconds[:, None]
        own, copies = np.linalg.lstsq(terms, np.ones(len(found)), rcond=None)[0]
        if min(own, copies) < 0:  # one term is all there is
            best = [float((column @ np.ones(len(found))) / (column @ column)) for column in terms.T]
            own, copies = (best[0], 0.0) if own > copies else (0.0, best[1])
        sent = [m.bytes / m.boundary for m in found if m.boundary]
        return cls(float(own), float(copies), float(np.mean(sent)) if sent else 0.0)

    def compute(self, parts: int, boundary: int) -> float:
        """Seconds of the slowest worker."""
        return (self.own + self.copies * boundary) / parts

    def bytes(self, boundary: int) -> float:
        """Bytes of all workers."""
        return self.wire * boundary


def left_out(
    found: Sequence[Measured], predicted: Callable[[CostModel, Measured], float], actual: Callable[[Measured], float]
) -> list[float]:
    """Relative errors, one for each measurement: of the model fitted to the others."""
    errors = []
    for i, one in enumerate(found):
        model = CostModel.of([*found[:i], *found[i + 1 :]])
        errors.append(predicted(model, one) / actual(one) - 1)
    return errors
