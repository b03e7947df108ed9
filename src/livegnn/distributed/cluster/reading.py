"""Rows of vertices from their owners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegnn.distributed.cluster.crew import Call
from livegnn.errors import VertexUnknown
from livegnn.types import AnyArray, Float32Array, Int64Array


def rows_of(
    method: str, slots: Int64Array, owners: AnyArray, workers: int, call: Callable[[list[Call]], list[Any]]
) -> Float32Array:
    """Rows of vertices, each from its owner."""
    found: list[Float32Array] = call([(method, slots[owners == part]) for part in range(workers)])
    rows = np.empty((len(slots), found[0].shape[1]), np.float32)
    for part, mine in enumerate(found):
        rows[owners == part] = mine
    return rows


def refuse_unknown(live: AnyArray, slots: Int64Array) -> None:
    """Raises: VertexUnknown, as an engine."""
    known = (slots >= 0) & (slots < len(live))
    known[known] = live[slots[known]] != 0
    if not known.all():
        slot = int(slots[np.argmin(known)])
        raise VertexUnknown(
            where="read",
            expected=f"ids of live vertices below {len(live)}",
            got=str(slot),
            advice="add the vertex first",
            vertex=slot,
        )
