"""Every sampling table ends by comparing answers with a sort of all neighbours."""

from __future__ import annotations

import numpy as np

import livegnn as lg
from benchmarks.peers.sort_all import SortSampler
from benchmarks.report import Report


def check_samples(
    name: str, sampler: lg.PreSampler, query: lg.sampling.Query, seeds: np.ndarray, report: Report
) -> None:
    """Equality of vertices, edge ids and features, of these seeds."""
    expected = SortSampler(sampler.graph, query, seed=sampler.seed).sample(seeds)
    got = sampler.sample(seeds)
    for k in range(1, got.hops + 1):
        same = np.array_equal(got.hop(k), expected.hop(k)) and np.array_equal(got.edge_ids(k), expected.edge_ids(k))
        if not same or not np.array_equal(got.features(k), expected.features(k)):
            report.fail(f"[{name}] expected the samples of a sort of all neighbours at hop {k}, got others")
