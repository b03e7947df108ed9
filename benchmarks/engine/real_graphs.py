"""Real graphs as workloads of the same protocol.

Dated ones: the first 90% of the events are the snapshot and the rest arrive in time order as additions, mixed in
equal shares with deletions of random snapshot edges and feature updates. Undated ones: edges in random order.
Bipartite and undirected graphs hold both directions of every event (one after the other), since messages must flow
both ways to reach two layers. Where a graph has no features, they are normal, 64 wide. Parallel edges are kept.
"""

from __future__ import annotations

import numpy as np

from benchmarks.engine.stream import Workload, mixed_stream
from livegnn import datasets

WIDTH = 64
CLASSES = 16
BOTH_WAYS = ("jodie_wikipedia", "tags_math_sx", "tolokers", "reddit_fraud")
NAMES = ("bitcoin_otc", "jodie_wikipedia", "tolokers", "tags_math_sx")
MORE_NAMES = ("reddit_fraud",)


def real_workload(name: str, updates_max: int, seed: int = 1) -> Workload:
    """At most updates_max updates (fewer where the last 10% of the events are fewer than a third of that)."""
    graph = datasets.load(name)
    rng = np.random.default_rng(seed)
    src, dst = graph.src.astype(np.int32), graph.dst.astype(np.int32)
    if graph.time is None:
        order = rng.permutation(len(src))
        src, dst = src[order], dst[order]
    if name in BOTH_WAYS:
        src, dst = np.stack([src, dst], axis=1).ravel(), np.stack([dst, src], axis=1).ravel()
    cut = len(src) * 9 // 10
    features = graph.features
    if features is None:
        features = rng.standard_normal((graph.vertex_count, WIDTH), dtype=np.float32)
    snapshot = (src[:cut].copy(), dst[:cut].copy())
    count = min(updates_max, 3 * (len(src) - cut) - 3)
    stream = mixed_stream((src[cut:], dst[cut:]), snapshot, features.shape, count, ordered=True, seed=seed + 1)
    return Workload(name, np.ascontiguousarray(features), *snapshot, CLASSES, stream)
