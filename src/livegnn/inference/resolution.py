"""How fine an engine's fixed-point grid is for the messages as they are now.

The grid's unit is 2^-e, with one exponent e per aggregation and column, chosen from the largest message when the engine
was made. Exponents chosen anew from the present graph are larger where messages have shrunk since: the difference is
the number of bits by which present messages are rounded more coarsely than they need be.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: From here on the largest message of a column keeps at most 21 of its 37 bits: a row some ten times smaller may be off
#: by the 1e-5 of docs/guarantees.md.
LOST_BITS_MAX = 16

_log = logging.getLogger("livegnn")


@dataclass(frozen=True)
class LayerResolution:
    """What has been lost of one aggregation's resolution since its grid was chosen.

    name: of the aggregation, with its layer.
    lost_bits: (width,) int64, by column; rescale() would make the unit 2^lost_bits times finer. Below 0 where messages
    have grown. 0 for minima, maxima and messages gathered edge by edge, which are not on a grid.
    coarse: columns that have lost 16 bits or more, int64, ascending.
    """

    name: str
    lost_bits: NDArray[np.int64]
    coarse: NDArray[np.int64]


def resolutions(
    names: Sequence[str], live: Sequence[Sequence[int]], fresh: Sequence[Sequence[int]]
) -> list[LayerResolution]:
    """By aggregation, from the exponents in use and those that would be chosen now."""
    found = []
    for name, old, new in zip(names, live, fresh, strict=True):
        lost = np.array(new, np.int64) - np.array(old, np.int64)
        found.append(LayerResolution(name, lost, np.flatnonzero(lost >= LOST_BITS_MAX)))
    return found


def warn_of_coarse(layers: Sequence[LayerResolution], version: int) -> None:
    """Logs a warning for each aggregation with coarse columns."""
    for layer in layers:
        if layer.coarse.size:
            _log.warning(
                "[resolution] %s, column %s: the largest message at version %d is 2^-%d of what the grid was made for; "
                "call rescale()",
                layer.name,
                ", ".join(map(str, layer.coarse.tolist())),
                version,
                int(layer.lost_bits.max()),
            )
