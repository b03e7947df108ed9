"""Lower bounds: what a batch must move and multiply, counted on the actual graph by set propagation.

Affected set of layer k: vertices whose row changes. For GraphConv, SAGE and GIN it is
    A[k] = targets of edge updates + out(A[k-1]) + A[k-1]            (A[0] = vertices with new features),
for GCN a changed in-degree also changes a vertex's own messages: S[k-1] = A[k-1] + targets of edge updates,
    A[k] = targets of edge updates + out(S[k-1]) + S[k-1].
Delta edges of layer k: out-edges of the changed sources, and the edge updates themselves.

Seconds of a layer (input I, output O wide, float32), A affected, E delta edges, r = bytes/s, f = flop/s:
    bound A (aggregate first)  max((A (2I + 2O) + E I) 4 / r, 2 I O (A + roots) / f)
    bound B (the cheaper of)   transform first  max((A 2O + E O) 4 / r, 2 I O (sources + roots) / f)
                               aggregate first  max((A 2O + E I) 4 / r, 2 I O (A + roots) / f)
sources = changed rows and sources of edge updates; roots = changed rows where a self term has its own matrix. GIN's
second linear adds 2 O^2 A to the flops, GCN has no roots, and nothing is charged for adjacency or cache misses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.engine.adjacency import Adjacency, union
from benchmarks.engine.stream import Batch, Workload
from benchmarks.machine import Machine


@dataclass(frozen=True)
class LayerCount:
    """One batch at one layer."""

    affected: int
    delta_edges: int
    changed: int  # rows of the layer below that differ
    sources: int  # rows whose message some delta edge needs


@dataclass(frozen=True)
class Bounds:
    """Mean counts per layer and seconds of the whole run of batches."""

    affected: tuple[float, ...]
    delta_edges: tuple[float, ...]
    seconds_a: float
    seconds_b: float


class Counter:
    """Follows a stream on its own adjacency; `count` applies a batch and returns the counts of each layer."""

    def __init__(self, workload: Workload, layers: int) -> None:
        self.out = Adjacency(workload.vertices, workload.src, workload.dst)
        self.layers = layers
        self._mark = np.zeros(workload.vertices, bool)

    def apply(self, batch: Batch) -> None:
        self.out.remove(batch.remove_src, batch.remove_dst)
        self.out.add(batch.add_src, batch.add_dst)

    def count(self, batch: Batch, *, follows_degree: bool) -> list[LayerCount]:
        """Apply the batch and count; follows_degree: GCN's rule."""
        self.apply(batch)
        edge_src = np.concatenate([batch.add_src, batch.remove_src])
        edge_dst = np.unique(np.concatenate([batch.add_dst, batch.remove_dst]))
        changed = batch.feature_ids
        counts = []
        for _ in range(self.layers):
            messages = union(self._mark, changed, edge_dst) if follows_degree else changed
            reached, lengths = self.out.gather(messages) if len(messages) else (messages, np.zeros(0, np.int64))
            affected = union(self._mark, edge_dst, messages, reached)
            sources = len(union(self._mark, messages, edge_src))
            counts.append(LayerCount(len(affected), int(lengths.sum()) + len(edge_src), len(changed), sources))
            changed = affected
        return counts


def layer_seconds(kind: str, count: LayerCount, widths: tuple[int, int], machine: Machine) -> tuple[float, float]:
    """(bound A, bound B) of one layer, seconds."""
    wide_in, wide_out = widths
    affected, edges = count.affected, count.delta_edges
    roots = count.changed if kind in ("graphconv", "sage") else 0
    second = 2 * wide_out * wide_out * affected if kind == "gin" else 0
    product = 2 * wide_in * wide_out

    def seconds(floats: int, rows: int) -> float:
        return max(4 * floats / machine.bytes_per_s, (product * (rows + roots) + second) / machine.flop_per_s)

    rows = affected * 2 * wide_out
    bound_a = seconds(rows + affected * 2 * wide_in + edges * wide_in, affected)
    transform_first = seconds(rows + edges * wide_out, count.sources)
    aggregate_first = seconds(rows + edges * wide_in, affected)
    return bound_a, min(transform_first, aggregate_first)


def bounds(kind: str, widths: list[int], counts: list[list[LayerCount]], machine: Machine) -> Bounds:
    """Sum over batches and layers; `counts` holds one list per batch."""
    total_a = total_b = 0.0
    for batch in counts:
        for k, layer in enumerate(batch):
            a, b = layer_seconds(kind, layer, (widths[k], widths[k + 1]), machine)
            total_a, total_b = total_a + a, total_b + b
    layers = range(len(widths) - 1)
    affected = tuple(float(np.mean([batch[k].affected for batch in counts])) for k in layers)
    edges = tuple(float(np.mean([batch[k].delta_edges for batch in counts])) for k in layers)
    return Bounds(affected, edges, total_a, total_b)
