"""Features where they lie: rows of vertices and attributes of edges, fetched from the workers that hold them.

Both are what InputLoader fetches from (Fetches) and what a FeatureCache reads from (FeatureSource):

    remote = RemoteVertexRows(partition, exchange)
    rows = Cached(FeatureCache(remote, capacity=10_000), remote)

    WorkerCache(capacity=10_000)   # the same as data: each worker of a training makes one of its own

One reading is two exchanges in which every worker takes part. A cache that has all rows would ask no worker, and one
that is restored reads as often as it likes: Cached goes on taking part, with nothing to ask, until no worker reads.
Cached listens to the partition: rows that a batch changed leave the cache, wherever they lie, and are read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from livegnn import _native
from livegnn.distributed.exchange import Exchange, Route
from livegnn.distributed.graph_part import BatchEffect, Partition
from livegnn.distributed.sampling import RemoteSampler
from livegnn.errors import EdgeMissing, UsageError, ValueInvalid, VertexUnknown
from livegnn.graph.checks import shown
from livegnn.optional import need
from livegnn.types import Float32Array, Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.caches import CacheStats, FeatureCache

_HEAD = 1  # first number of a request: whether the worker that sends it goes on reading


class RemoteRows(ABC):
    """Rows by id that lie with several workers. width: floats of a row; with 0 no worker is asked.  edges: whether they
    are of edges, not of vertices.
    """

    edges = False

    def __init__(self, partition: Partition, exchange: Exchange, width: int, device: torch.device | str) -> None:
        self.width = self.row_width = width
        self.partition, self._exchange, self._device = partition, exchange, device
        self._torch: Any = need("torch", "distributed")

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Ids are below this."""

    @abstractmethod
    def _read(self, ids: Int64Array) -> Float32Array:
        """(k, width) rows that ids of others name, of this worker's part."""

    @abstractmethod
    def _ask(self, ids: Int64Array, reads: bool) -> tuple[Float32Array, bool]:
        """The rows, and whether any worker goes on reading."""

    def rows(self, ids: Int64Array) -> Float32Array:
        """(k, width) float32, row i for ids[i]. All workers call it, each with ids of its own, perhaps none."""
        if not self.width:
            return np.zeros((len(ids), 0), np.float32)
        return self._ask(ids, True)[0]

    def fetch(self, ids: Int64Array) -> torch.Tensor:
        """rows() on the device."""
        tensor: torch.Tensor = self._torch.from_numpy(self.rows(ids)).to(self._device)
        return tensor

    def attend(self) -> None:
        """Answers others, asking nothing, until no worker reads."""
        none, reading = np.zeros(0, np.int64), bool(self.width)
        while reading:
            _, reading = self._ask(none, False)

    def _answers(self, parts: list[Int64Array], reads: bool) -> tuple[list[Float32Array], bool]:
        """Sends each worker the ids that it is asked for; what each answers, and whether any goes on reading."""
        head = np.array([int(reads)], np.int64)
        requests = self._exchange.swap([np.concatenate([head, part]) for part in parts])
        answers = self._exchange.swap([self._read(request[_HEAD:]) for request in requests])
        return answers, any(bool(request[0]) for request in requests)


@final
class RemoteVertexRows(RemoteRows):
    """Features of the vertices of all parts, by slot. Raises (from rows): VertexUnknown, before anything is sent."""

    def __init__(self, partition: Partition, exchange: Exchange, device: torch.device | str = "cpu") -> None:
        super().__init__(partition, exchange, partition.feature_width, device)

    @property
    def row_count(self) -> int:
        """Slots."""
        return self.partition.graph.slot_count

    def _read(self, ids: Int64Array) -> Float32Array:
        return self.partition.feature_rows(ids)

    def _ask(self, ids: Int64Array, reads: bool) -> tuple[Float32Array, bool]:
        graph, there = self.partition.graph, self.partition.is_live(ids)
        if not there.all():
            row = int(np.argmin(there))
            raise VertexUnknown(
                f"[fetch] expected slots of live vertices, below {graph.slot_count} (version {graph.version}), "
                f"got {ids[row]} at row {row}; add the vertex first"
            )
        route = Route(self.partition.servers_of(ids), self._exchange.size)
        answers, reading = self._answers(route.split(ids), reads)
        return route.joined(answers), reading


@final
class RemoteEdgeRows(RemoteRows):
    """Attributes of the edges of all parts, by edge id.

    An id does not say who holds the edge. The sampler can say, and so can the owner of its destination: asks the
    worker that the sampler's last hops or expect() name; of all workers only where neither does.

    Raises (from rows): EdgeMissing for an edge that no part has, naming it.
    """

    edges = True

    def __init__(
        self,
        partition: Partition,
        exchange: Exchange,
        sampler: RemoteSampler | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(partition, exchange, partition.graph.attr_width, device)
        self._sampler = sampler
        self._expected = (np.zeros(0, np.int64), np.zeros(0, np.int64))

    @property
    def row_count(self) -> int:
        """Edge ids given out."""
        return self.partition.next_edge_id

    def expect(self, edge_ids: Int64Array, dst: Int64Array) -> None:
        """The next readings ask for these edges, into these vertices."""
        self._expected = (edge_ids, self.partition.servers_of(dst))

    def _read(self, ids: Int64Array) -> Float32Array:
        """A leading 1 where the edge is here, else a row of zeros."""
        store = self.partition.graph.host.store
        found = np.zeros((len(ids), 1 + self.width), np.float32)
        with self.partition.graph.host.lock:
            here = _native.edges_there(store, ids).astype(np.bool_)
            found[here, 0] = 1.0
            found[here, 1:] = _native.edge_attrs(store, ids[here])
        return found

    def _ask(self, ids: Int64Array, reads: bool) -> tuple[Float32Array, bool]:
        size = self._exchange.size
        holders = self._holders(ids)
        unknown = np.flatnonzero(holders < 0)
        known = np.flatnonzero(holders >= 0)
        places = np.concatenate([known, np.tile(unknown, size)])
        route = Route(np.concatenate([holders[known], np.repeat(np.arange(size), len(unknown))]), size)
        answers, reading = self._answers(route.split(ids[places]), reads)
        found = route.joined(answers)
        here = found[:, 0] > 0
        rows = np.zeros((len(ids), self.width), np.float32)
        rows[places[here]] = found[here, 1:]
        missing = np.ones(len(ids), np.bool_)
        missing[places[here]] = False
        if missing.any():
            raise EdgeMissing(
                f"[fetch] expected ids of edges that are there, got {ids[np.argmax(missing)]}; leave removed edges out"
            )
        return rows, reading

    def _holders(self, ids: Int64Array) -> Int64Array:
        """The worker to ask for each edge, -1 where it is not known."""
        hints = [self._expected, *(self._sampler.held_edges if self._sampler is not None else [])]
        edge_ids, workers = (np.concatenate(columns) for columns in zip(*hints, strict=True))
        if not len(edge_ids):
            return np.full(len(ids), -1, np.int64)
        order = np.argsort(edge_ids, kind="stable")
        places = np.minimum(np.searchsorted(edge_ids, ids, sorter=order), len(order) - 1)
        at = order[places]
        return np.where(edge_ids[at] == ids, workers[at], -1)


@dataclass(frozen=True, kw_only=True)
class WorkerCache:
    """A FeatureCache that each worker makes in front of rows that lie with others; options as FeatureCache.

    Raises: ValueInvalid, also for policy="static", which admits rows by warm() alone; DtypeInvalid.
    """

    capacity: int = 100_000
    policy: str = "lru"
    max_replace: float = 0.2

    def __post_init__(self) -> None:
        from livegnn.temporal.caches.cache import checked_options

        checked_options("WorkerCache", self.capacity, self.policy, self.max_replace)
        if self.policy == "static":
            raise ValueInvalid(
                "[WorkerCache] expected a policy that admits rows by itself, got 'static'; choose lru, lfu or fifo"
            )

    def over(self, remote: RemoteRows, device: torch.device | str = "cpu") -> Cached:
        """The cache of one worker."""
        from livegnn.temporal.caches import FeatureCache

        cache = FeatureCache(
            remote,
            capacity=self.capacity,
            policy=self.policy,
            max_replace=self.max_replace,
            device=device,
            threads=1,
        )
        return Cached(cache, remote)


def check_worker_caches(where: str, vertices: object, edges: object) -> None:
    """Raises: UsageError for what workers cannot make caches of."""
    for name, rows in (("vertex_features", vertices), ("edge_features", edges)):
        if rows is not None and not isinstance(rows, WorkerCache):
            raise UsageError(
                f"[{where}] expected {name} as a WorkerCache or None, got {shown(rows)}; each worker makes a cache of "
                "its own, so give WorkerCache(capacity=...)"
            )


@final
class Cached:
    """A FeatureCache over remote rows, for workers that go step by step together; kept up with the partition's batches.

    Args:    cache: of these rows, on every worker; policies and capacities may differ.
    """

    def __init__(self, cache: FeatureCache, remote: RemoteRows) -> None:
        self.cache, self.remote, self.width = cache, remote, remote.width
        remote.partition.listen(self)

    @property
    def stats(self) -> CacheStats:
        """Those of the cache."""
        return self.cache.stats

    def fetch(self, ids: Int64Array) -> torch.Tensor:
        """Rows by id, from the cache or from where they lie."""
        found: torch.Tensor = self.together(lambda: self.cache.fetch(ids))
        return found

    def checkpoint(self) -> None:
        """FeatureCache.checkpoint(), which reads nothing."""
        self.cache.checkpoint()

    def restore(self) -> None:
        """FeatureCache.restore(), on all workers together."""
        self.together(self.cache.restore)

    def together(self, read: Callable[[], Any]) -> Any:
        """read(), on all workers: for calls of the cache that read rows (warm, load, refresh, verify)."""
        found = read()
        self.remote.attend()
        return found

    def changed(self, changes: BatchEffect) -> None:
        """Forgets rows that a batch of the partition has changed; those of removed ids leave the checkpoint too."""
        self.cache._leave(*(changes[2:] if self.remote.edges else changes[:2]))
