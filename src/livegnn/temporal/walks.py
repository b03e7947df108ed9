"""TemporalWalks: what random walks back in time give."""

from __future__ import annotations

from typing import NamedTuple

from livegnn.types import Int64Array

__all__ = ["TemporalWalks"]


class TemporalWalks(NamedTuple):
    """B walks of at most L steps; step i leads from vertices[:, i] against an edge to vertices[:, i + 1].

    Args:    vertices: (B, L + 1) int64 slots, -1 after the end.  times: (B, L) int64, of the edges (without times the
             target's own), 0 after the end.
             edge_ids: (B, L) int64, -1 after the end.
    """

    vertices: Int64Array
    times: Int64Array
    edge_ids: Int64Array
