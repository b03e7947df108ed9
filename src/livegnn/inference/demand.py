"""Queries of an engine on demand: what they cost, and which vertices are asked for most."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import LiveGnnError

_log = logging.getLogger("livegnn")


@dataclass(frozen=True)
class DemandStats:
    """Cost of one query. rows: computed for it.  edges: along which work was done.  whole: everything was brought up to
    date.
    """

    rows: int = 0
    edges: int = 0
    whole: bool = False


class Demand:
    """The queries of one engine. hot: how many of the vertices asked for most are kept up to date; 0 for none.

    Counts are halved whenever they sum to 64 for each hot vertex, so that what was asked for long ago fades.
    """

    def __init__(self, hot: int) -> None:
        self.hot = hot
        self.last = DemandStats()
        self._counts: NDArray[np.float64] = np.zeros(0)
        self._total = 0

    def query(self, native: Any, slots: NDArray[np.int64]) -> None:
        """Brings these outputs up to date."""
        self.last = DemandStats(*native.demand(slots))
        if self.hot and len(slots) and slots.min() >= 0:
            self._count(slots)

    def after_batch(self, native: Any) -> None:
        """Brings the outputs asked for most up to date."""
        asked = np.flatnonzero(self._counts > 0)
        if len(asked) > self.hot:
            asked = np.sort(asked[np.argpartition(-self._counts[asked], self.hot)[: self.hot]])
        if len(asked):
            try:
                native.demand(asked.astype(np.int64))
            except LiveGnnError as error:  # the batch stands; the next read raises it
                _log.warning("[hybrid] hot vertices are behind: %s", error)

    def _count(self, slots: NDArray[np.int64]) -> None:
        if int(slots.max()) >= len(self._counts):
            grown = np.zeros(int(slots.max()) * 3 // 2 + 16)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        np.add.at(self._counts, slots, 1.0)
        self._total += len(slots)
        if self._total > 64 * self.hot:
            self._counts /= 2
            self._counts[self._counts < 0.25] = 0.0
            self._total //= 2
