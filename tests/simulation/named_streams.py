"""The graphs and batches of livegnn.testing.streams with string ids: vertex 3 is "v3"."""

from typing import Any

import numpy as np

import livegnn as lg
from livegnn.testing import streams


def name_of(slot: int) -> str:
    return f"v{slot}"


def random_graph(
    rng: np.random.Generator, width: int, weighted: bool, **columns: Any
) -> tuple[lg.Graph, streams.Mirror]:
    """As streams.random_graph."""
    mirror = streams.random_graph(rng, width, weighted, **columns)[1]
    features, src, dst, weight, _ = mirror.arrays()
    attributes, kinds = mirror.columns()
    src, dst, ids = ([name_of(slot) for slot in slots] for slots in (src.tolist(), dst.tolist(), range(len(features))))
    return lg.Graph(features, src, dst, weight=weight, edge_attr=attributes, edge_type=kinds, ids=ids), mirror


def random_batch(rng: np.random.Generator, mirror: streams.Mirror, size: int) -> lg.Updates:
    """As streams.random_batch."""
    columns = streams.random_batch(rng, mirror, size).to_columns()[0]
    used = np.unique(np.concatenate([columns["u"], columns["v"]]))
    used = used[used >= 0]
    for end in ("u", "v"):
        columns[end] = np.where(columns[end] >= 0, np.searchsorted(used, columns[end]), -1)
    return lg.Updates.from_columns(columns, [name_of(slot) for slot in used.tolist()], [])
