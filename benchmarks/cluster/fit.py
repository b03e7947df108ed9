"""The cost model of a batch, its fit and its error.

    seconds(p) = compute(p) + rounds * latency + bytes(p) / bandwidth
    compute(p) = each + shared / p          of the slowest worker: what all of them do, and what they share
    bytes(p)   = wire * boundary(p)         boundary: pairs of a vertex and another part that its edges lead to

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
    """each, shared: seconds a batch.  wire: bytes a batch and boundary pair."""

    each: float
    shared: float
    wire: float

    @classmethod
    def of(cls, found: Sequence[Measured]) -> CostModel:
        """Fitted to relative errors; no term is below 0."""
        seconds = np.array([m.seconds for m in found])
        terms = np.array([[1.0, 1.0 / m.parts] for m in found]) / seconds[:, None]
        each, shared = np.linalg.lstsq(terms, np.ones(len(found)), rcond=None)[0]
        if min(each, shared) < 0:  # one term is all there is
            best = [float((column @ np.ones(len(found))) / (column @ column)) for column in terms.T]
            each, shared = (best[0], 0.0) if each > shared else (0.0, best[1])
        sent = [m.bytes / m.boundary for m in found if m.boundary]
        return cls(float(each), float(shared), float(np.mean(sent)) if sent else 0.0)

    def compute(self, parts: int) -> float:
        """Seconds of the slowest worker."""
        return self.each + self.shared / parts

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
