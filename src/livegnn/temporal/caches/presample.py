"""Which rows a round will ask for most: GNNLab's presampling, for FeatureCache.warm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from livegnn.errors import ValueInvalid
from livegnn.temporal.hop import TemporalHop
from livegnn.types import Int64Array


class Sampler(Protocol):
    """What presampling asks of a sampler: TemporalSampler's sample."""

    def sample(self, vertices: Int64Array, times: Int64Array) -> Sequence[TemporalHop]:
        """The hops of a batch of targets, the roots' first."""


def count_uses(ids: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The different ids, ascending, and how often each stands there."""
    found, counts = np.unique(ids, return_counts=True)
    return found, counts.astype(np.int64)


def presample(
    sampler: Sampler, batches: Sequence[tuple[Int64Array, Int64Array]], *, edges: bool = False, passes: int = 2
) -> tuple[Int64Array, Int64Array]:
    """Ids that training on these batches asks for, and how often, over so many passes of sampling.

    Args:    batches: (vertices, times) as sample() takes them.  edges: count edge ids of every hop, not the vertices of
             the last hop.  passes: 2, as GNNLab does.
    Returns: ids (n,) int64 ascending, counts (n,) int64; give both to FeatureCache.warm.
    Raises:  ValueInvalid for fewer than one pass.
    Cost:    that of the sampling.  Source: GNNLab (Yang et al. 2022), section 5.
    """
    if passes < 1:
        raise ValueInvalid(f"[presample] expected at least one pass, got {passes}; leave passes out for two")
    ids, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for vertices, times in (batch for _ in range(passes) for batch in batches):
        hops = sampler.sample(vertices, times)
        for part in [hop.edge_ids for hop in hops] if edges else [hops[-1].next_targets]:
            more, uses = count_uses(part)  # part by part: a long presample need not fit in memory
            ids, place = np.unique(np.concatenate([ids, more]), return_inverse=True)
            counts = np.bincount(place, np.concatenate([counts, uses]), minlength=len(ids)).astype(np.int64)
    return ids, counts
