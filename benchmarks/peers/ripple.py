"""RIPPLE's propagation (sections 4.3.1 and 4.3.2), with the arithmetic left to NumPy or torch.

Stored per layer: embeddings and sum aggregates. Every edge update posts +-h_u (its old row) to the mailbox of v;
every changed u posts h_u - h_u(old) along its current out-edges. Messages of a batch are summed per destination:
(destination, row) pairs are packed in one int64 and sorted (NumPy's vectorised sort), which gives the bags. A changed
vertex posts a zero row to itself, since its own row enters the transform. Mean divides the stored sum by the current
in-degree. As in the paper, messages have the layer's input width: aggregate first, then transform.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.engine.adjacency import Adjacency
from benchmarks.engine.stream import Batch, Workload

Int64 = npt.NDArray[np.int64]
LINEAR = ("graphconv", "sage", "gin")


class Bags:
    """Mailboxes of one layer: bag i sums rows[row[offset[i]:offset[i + 1]]] for destination[i]."""

    def __init__(self, destinations: Int64, rows: Int64) -> None:
        keys = (destinations << 32) | rows
        keys.sort()
        self.row = keys & 0xFFFFFFFF
        sorted_destinations = keys >> 32
        heads = np.empty(len(keys), bool)
        heads[:1] = True
        np.not_equal(sorted_destinations[1:], sorted_destinations[:-1], out=heads[1:])
        self.offset: Int64 = np.flatnonzero(heads)
        self.destination: Int64 = sorted_destinations[self.offset]


class Ripple(ABC):
    """One batch: topology, then layer by layer; a subclass owns the rows."""

    def __init__(self, workload: Workload, kind: str) -> None:
        if kind not in LINEAR:
            raise ValueError(f"[ripple] expected one of {LINEAR}, got {kind!r}; RIPPLE's aggregates are plain sums")
        self.kind = kind
        self.out = Adjacency(workload.vertices, workload.src, workload.dst)
        self.in_degree = np.bincount(workload.dst, minlength=workload.vertices).astype(np.int64)
        self.layer_count = 0

    def apply(self, batch: Batch) -> None:
        self.out.remove(batch.remove_src, batch.remove_dst)
        self.out.add(batch.add_src, batch.add_dst)
        np.add.at(self.in_degree, batch.add_dst, 1)
        np.subtract.at(self.in_degree, batch.remove_dst, 1)
        edge_src = np.concatenate([batch.add_src, batch.remove_src]).astype(np.int64)
        edge_dst = np.concatenate([batch.add_dst, batch.remove_dst]).astype(np.int64)
        posted = self.take(0, edge_src, len(batch.add_src))
        changed = batch.feature_ids.astype(np.int64)
        delta = self.replace_features(changed, batch.feature_rows)
        for k in range(self.layer_count):
            bags = self._bags(changed, edge_dst)
            if len(bags.destination) == 0:
                return
            mail = self.sum_bags(bags, self.stack(delta, posted))
            if k + 1 < self.layer_count:
                posted = self.take(k + 1, edge_src, len(batch.add_src))
            changed = bags.destination
            delta = self.deliver(k, changed, mail)

    def _bags(self, changed: Int64, edge_dst: Int64) -> Bags:
        """Rows: [deltas of `changed` | rows of edge updates | zero]."""
        reached, counts = self.out.gather(changed) if len(changed) else (changed, changed)
        zero_row = len(changed) + len(edge_dst)
        destinations = np.concatenate([reached, edge_dst, changed]).astype(np.int64, copy=False)
        rows = np.concatenate(
            [
                np.repeat(np.arange(len(changed)), counts),
                np.arange(len(changed), zero_row),
                np.full(len(changed), zero_row),
            ]
        )
        return Bags(destinations, rows)

    @abstractmethod
    def take(self, k: int, vertices: Int64, positive: int) -> Any:
        """Rows of layer k, those after the first `positive` negated."""

    @abstractmethod
    def replace_features(self, vertices: Int64, rows: npt.NDArray[np.float32]) -> Any:
        """Set features; returns new minus old."""

    @abstractmethod
    def stack(self, delta: Any, posted: Any) -> Any:
        """[delta | posted | one zero row]."""

    @abstractmethod
    def sum_bags(self, bags: Bags, rows: Any) -> Any:
        """One row for each bag."""

    @abstractmethod
    def deliver(self, k: int, vertices: Int64, mail: Any) -> Any:
        """Add mail to the aggregates of layer k, transform, store; returns new minus old embeddings."""
