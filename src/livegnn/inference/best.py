"""The best rows for a row.

Every score is a function of its two rows: its bits depend neither on the rows that are scored with it, nor on who
scores it. Products are taken element by element, and NumPy adds up a contiguous row in an order that depends on its
length alone. BLAS promises neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from livegnn.inference.predict import pair_scores
from livegnn.models import ir
from livegnn.types import Float32Array, Int64Array

Metric: TypeAlias = Literal["dot", "cosine", "l2", "model"]

_BLOCK = 4096  # rows that are read and scored at a time


class BestSlots(NamedTuple):
    """The best first, of equal scores the smaller slot. slots: (k,) int64.  scores: (k,) float32; of "l2" distances."""

    slots: Int64Array
    scores: Float32Array


class Comparison(NamedTuple):
    """What rows are compared with, and how many of the best are wanted.

    row: (d,) float32; of other rows the first d columns count.  edge_head: of the model, for "model"; without one that
    is the dot product.
    """

    row: Float32Array
    k: int
    metric: Metric
    edge_head: ir.Value | None = None

    def best(self, slots: Int64Array, read: Callable[[Int64Array], Float32Array]) -> BestSlots:
        """The k best of (n,) ascending slots. read: rows of slots.  Memory: a score for each, and a block of rows."""
        scores = np.empty(len(slots), np.float32)
        for first in range(0, len(slots), _BLOCK):
            block = slice(first, first + _BLOCK)
            scores[block] = self._scores(read(slots[block])[:, : len(self.row)])
        return self._ranked(slots, scores)

    def merged(self, parts: Sequence[BestSlots]) -> BestSlots:
        """The k best of those of several parts, no slot of which is in two."""
        slots, scores = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(slots)
        return self._ranked(slots[order], scores[order])

    def _scores(self, rows: Float32Array) -> Float32Array:
        if self.metric == "model":
            return pair_scores(np.broadcast_to(self.row, rows.shape), rows, self.edge_head)
        return scores_by(rows, self.row, self.metric)

    def _ranked(self, slots: Int64Array, scores: Float32Array) -> BestSlots:
        """Of ascending slots; scores that are no numbers come last."""
        keys = scores if self.metric == "l2" else -scores
        kept = np.arange(len(keys))
        if self.k < len(keys):
            kept = np.flatnonzero(~(keys > np.partition(keys, self.k - 1)[self.k - 1]))
        order = kept[np.argsort(keys[kept], kind="stable")[: self.k]]
        return BestSlots(slots[order], scores[order])


def scores_by(rows: Float32Array, row: Float32Array, metric: Metric) -> Float32Array:
    """Of each of (n, d) rows with a (d,) row, (n,) float32; of "l2" distances. metric: but "model"."""
    if metric == "l2":
        distances: Float32Array = np.sqrt(_squares(rows - row))
        return distances
    products: Float32Array = np.multiply(rows, row, order="C").sum(axis=1)
    if metric == "dot":
        return products
    lengths = np.sqrt(_squares(rows)) * np.sqrt(_squares(row[np.newaxis]))
    cosines: Float32Array = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cosines


def _squares(rows: Float32Array) -> Float32Array:
    sums: Float32Array = np.square(rows, order="C").sum(axis=1)
    return sums
