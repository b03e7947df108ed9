"""InkStream's incremental maximum or minimum (sections 2.3 to 2.5) for GraphSAGE, on the rows of a subclass's choice.

Stored per layer: message rows (the embeddings of the layer below, since SAGE aggregates first) and aggregates, before
and after the aggregation, as in the paper. A batch posts events to targets: Del with a message as it was, Add with a
message as it is. An edge update posts one of them; a source whose row changed posts Del along its old out-edges and
Add along its new ones. So changed features are nothing but changed messages, and an edge that is removed from a
changed source posts its Del once. Events of a target are reduced to one Del and one Add row; by whole rows, then, a
target of old aggregate a is in one of four conditions:

    no deletion   no Del reached it                                          a' = extreme(a, Add)
    no effect     Del differs from a in every column                         a' = extreme(a, Add)
    covered       Add is at least as extreme as Del wherever Del equals a    a' = extreme(a, Add)
    exposed       otherwise: some column lost its extreme                    a' = extreme of all in-neighbours' rows

A target whose aggregate did not change is resilient: nothing goes on from it, unless its own row changed, which enters
SAGE's transform. Beyond the paper, the comparison is made in all four conditions, and a vertex whose transformed row
came out as it was posts nothing either.

Invariants: the aggregate of a vertex without in-neighbours is stored as the extreme's identity and read as 0, as in
PyG; the lists `out` hold, while a batch is worked on, the edges that both versions have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.engine.adjacency import Adjacency, union
from benchmarks.engine.generate import Ids
from benchmarks.engine.networks import EXTREMES, Network, layer_weights
from benchmarks.engine.stream import Batch, Workload
from benchmarks.peers.bootstrap import State, bootstrap, copied, transform
from benchmarks.peers.extremes import EXTREME_OF
from benchmarks.peers.ripple import Bags

FLOAT_BYTES = 4


@dataclass
class LayerCounts:
    """One batch at one layer. Each target is in one condition; resilient ones have a count of their own.

    reread_bytes: message rows read by exposed resets, every column of every in-neighbour.
    changed: vertices whose row above the layer differs afterwards.
    """

    no_deletion: int = 0
    no_effect: int = 0
    covered: int = 0
    exposed: int = 0
    resilient: int = 0
    reread_bytes: int = 0
    changed: int = 0

    @property
    def visited(self) -> int:
        """Targets of events."""
        return self.no_deletion + self.no_effect + self.covered + self.exposed


class InkStream(ABC):
    """rows[k]: embeddings of layer k (rows[0] the features); aggregates[k]: of rows[k], over in-neighbours."""

    def __init__(self, workload: Workload, kind: str, module: Network, state: State | None = None) -> None:
        if kind not in EXTREMES:
            raise ValueError(f"[inkstream] expected one of {tuple(EXTREMES)}, got {kind!r}; it selects, never adds")
        state = bootstrap(workload, kind, module) if state is None else state
        self.extreme = EXTREME_OF[EXTREMES[kind]]
        self.layers = layer_weights(kind, module)
        self.out = Adjacency(workload.vertices, workload.src, workload.dst)
        self.into = Adjacency(workload.vertices, workload.dst, workload.src)
        self.mark = np.zeros(workload.vertices, bool)
        self.rows, self.aggregates = copied(state.rows), copied(state.sums)
        empty = torch.from_numpy(self.into.length == 0)
        for aggregates in self.aggregates:
            aggregates[empty] = self.extreme.identity

    def apply(self, batch: Batch) -> list[LayerCounts]:
        """One LayerCounts for each layer."""
        with torch.inference_mode():
            return self._propagate(batch)

    def _propagate(self, batch: Batch) -> list[LayerCounts]:
        self.into.remove(batch.remove_dst, batch.remove_src)
        self.into.add(batch.add_dst, batch.add_src)
        self.out.remove(batch.remove_src, batch.remove_dst)  # additions enter at the end: see the invariants
        remove_src = torch.from_numpy(batch.remove_src)
        removed = self.rows[0].index_select(0, remove_src)
        changed, old = self._replace(0, batch.feature_ids, torch.from_numpy(batch.feature_rows))
        found = []
        for k in range(len(self.layers)):
            counts = LayerCounts()
            deletions, additions = self._events(changed, batch)
            evolved = self.aggregate(k, deletions, additions, torch.cat([old, removed]), counts)
            removed = self.rows[k + 1].index_select(0, remove_src)
            vertices = union(self.mark, evolved, changed)
            changed, old = self._replace(k + 1, vertices, self._transformed(k, vertices))
            counts.changed = len(changed)
            found.append(counts)
        self.out.add(batch.add_src, batch.add_dst)
        return found

    def _replace(self, k: int, vertices: Ids, fresh: torch.Tensor) -> tuple[Ids, torch.Tensor]:
        """Store rows; (the vertices whose rows differ, their old rows)."""
        old = self.rows[k].index_select(0, torch.from_numpy(vertices))
        differs = (old != fresh).any(1)
        changed = vertices[differs.numpy()]
        if len(changed) < len(vertices):
            old, fresh = old[differs], fresh[differs]
        self.rows[k].index_copy_(0, torch.from_numpy(changed).long(), fresh)
        return changed, old

    def _events(self, changed: Ids, batch: Batch) -> tuple[Bags, Bags]:
        """Del events on rows of [old rows of `changed` | old rows of the removed edges' sources]; Add on vertices."""
        kept, lengths = self.out.gather(changed) if len(changed) else (changed, changed)
        index = np.arange(len(changed) + len(batch.remove_src))
        old = np.concatenate([np.repeat(index[: len(changed)], lengths), index[len(changed) :]])
        new = np.concatenate([np.repeat(changed, lengths), batch.add_src]).astype(np.int64)
        deletions = Bags(np.concatenate([kept, batch.remove_dst]).astype(np.int64), old)
        return deletions, Bags(np.concatenate([kept, batch.add_dst]).astype(np.int64), new)

    def _transformed(self, k: int, vertices: Ids) -> torch.Tensor:
        index = torch.from_numpy(vertices)
        aggregate = self.aggregates[k].index_select(0, index)
        empty = self.into.length[vertices] == 0
        if empty.any():
            aggregate[torch.from_numpy(empty)] = 0.0
        z = transform(self.layers[k], aggregate, self.rows[k].index_select(0, index))
        return z.relu_() if k + 1 < len(self.layers) else z

    @abstractmethod
    def aggregate(self, k: int, deletions: Bags, additions: Bags, old: torch.Tensor, counts: LayerCounts) -> Ids:
        """Bring aggregates[k] up to date; the vertices where they changed. Rows: deletions of `old`, additions of
        rows[k], which hold the new messages already."""

    def output(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.rows[-1][torch.from_numpy(ids)].numpy()

    def state_bytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows + self.aggregates)
