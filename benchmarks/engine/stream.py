"""A workload as arrays: a snapshot and the ordered stream of updates that follows it (RIPPLE, section 7.1.2).

The snapshot holds 90% of the edges; the stream mixes additions (the other 10%), deletions (of snapshot edges, each
once) and feature updates (fresh normal vectors) in equal shares. Additions and deletions therefore commute inside a
batch, so a peer may take them by kind. Batches are cut and sorted by kind before any clock starts, for peers and
livegnn alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.engine.generate import Floats, Ids, generated

ADD, REMOVE, FEATURES = 0, 1, 2


@dataclass(frozen=True)
class Batch:
    """Updates of one batch by kind; feature ids are unique (the last of a batch wins)."""

    size: int
    add_src: Ids
    add_dst: Ids
    remove_src: Ids
    remove_dst: Ids
    feature_ids: Ids
    feature_rows: Floats


@dataclass(frozen=True)
class Stream:
    """op[i] on (u[i], v[i]); row_index[i] is the row in `rows` of a feature update, -1 otherwise."""

    op: npt.NDArray[np.int8]
    u: Ids
    v: Ids
    row_index: npt.NDArray[np.int64]
    rows: Floats

    def __len__(self) -> int:
        return len(self.op)

    def batch(self, start: int, stop: int) -> Batch:
        op, u, v = self.op[start:stop], self.u[start:stop], self.v[start:stop]
        added, removed, changed = op == ADD, op == REMOVE, np.flatnonzero(op == FEATURES)
        ids, first = np.unique(u[changed][::-1], return_index=True)
        last = changed[::-1][first] + start
        rows = np.ascontiguousarray(self.rows[self.row_index[last]])
        return Batch(len(op), u[added], v[added], u[removed], v[removed], ids.astype(np.int32), rows)

    def batches(self, start: int, size: int, count: int) -> Iterator[Batch]:
        for i in range(start, start + size * count, size):
            yield self.batch(i, i + size)


@dataclass(frozen=True)
class Workload:
    """A snapshot graph with features, and the stream that changes it."""

    name: str
    features: Floats
    src: Ids
    dst: Ids
    classes: int
    stream: Stream

    @property
    def vertices(self) -> int:
        return len(self.features)

    @property
    def edges(self) -> int:
        return len(self.src)


def mixed_stream(
    held_out: tuple[Ids, Ids],
    snapshot: tuple[Ids, Ids],
    shape: tuple[int, int],
    count: int,
    *,
    ordered: bool,
    seed: int,
) -> Stream:
    """`count` updates in equal shares; additions are taken in the order given where `ordered` (dated streams).

    Args:     shape: (vertices, feature width).
    Raises:   ValueError if held_out or snapshot is too short for a third of count.
    """
    rng = np.random.default_rng(seed)
    share = count // 3
    add_count = count - 2 * share
    if add_count > len(held_out[0]) or share > len(snapshot[0]):
        raise ValueError(f"[stream] expected at most {3 * len(held_out[0])} updates, got {count}; ask for fewer")
    op = np.repeat(np.array([ADD, REMOVE, FEATURES], np.int8), [add_count, share, share])
    rng.shuffle(op)
    u, v = np.zeros(count, np.int32), np.zeros(count, np.int32)
    added = np.arange(add_count) if ordered else rng.choice(len(held_out[0]), add_count, replace=False)
    removed = rng.choice(len(snapshot[0]), share, replace=False, shuffle=False)
    rng.shuffle(removed)
    u[op == ADD], v[op == ADD] = held_out[0][added], held_out[1][added]
    u[op == REMOVE], v[op == REMOVE] = snapshot[0][removed], snapshot[1][removed]
    u[op == FEATURES] = rng.integers(0, shape[0], share)
    row_index = np.full(count, -1, np.int64)
    row_index[op == FEATURES] = np.arange(share)
    rows = rng.standard_normal((share, shape[1]), dtype=np.float32)
    return Stream(op, u, v, row_index, rows)


def workload(name: str, updates: int, *, seed: int = 1, feature_width: int | None = None) -> Workload:
    """A generated workload with a stream of `updates` updates."""
    graph = generated(name, seed)
    shape = graph.shape
    width = shape.feature_width if feature_width is None else feature_width
    cut = shape.edges * 9 // 10
    snapshot = (graph.src[:cut], graph.dst[:cut])
    stream = mixed_stream(
        (graph.src[cut:], graph.dst[cut:]), snapshot, (shape.vertices, width), updates, ordered=False, seed=seed + 1
    )
    features = np.random.default_rng(seed + 2).standard_normal((shape.vertices, width), dtype=np.float32)
    return Workload(name, features, *snapshot, shape.classes, stream)


def to_updates(livegnn: Any, batch: Batch) -> Any:
    """The batch as lg.Updates, by the array methods."""
    updates = livegnn.Updates()
    if len(batch.add_src):
        updates.add_edges(batch.add_src.astype(np.int64), batch.add_dst.astype(np.int64))
    if len(batch.remove_src):
        updates.remove_edges(batch.remove_src.astype(np.int64), batch.remove_dst.astype(np.int64))
    if len(batch.feature_ids):
        updates.set_features(batch.feature_ids.astype(np.int64), batch.feature_rows)
    return updates


def to_updates_singly(livegnn: Any, batch: Batch) -> Any:
    """The batch as lg.Updates, one method call for each update, as a user at batch 1 writes it."""
    updates = livegnn.Updates()
    for u, v in zip(batch.add_src.tolist(), batch.add_dst.tolist(), strict=True):
        updates.add_edge(u, v)
    for u, v in zip(batch.remove_src.tolist(), batch.remove_dst.tolist(), strict=True):
        updates.remove_edge(u, v)
    for u, x in zip(batch.feature_ids.tolist(), batch.feature_rows, strict=True):
        updates.set_features(u, x)
    return updates
