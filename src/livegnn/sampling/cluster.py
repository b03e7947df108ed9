"""LocalCluster: sampling and serving workers in one process, linked by direct calls.

Every serving worker has a batch when the graph's apply() returns, so reads are never behind. Apart, over logs, the
same workers run in runtime.py.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError
from livegnn.graph import Graph, Updates
from livegnn.sampling import expiry
from livegnn.sampling.answers import answered
from livegnn.sampling.front_end import FrontEnd
from livegnn.sampling.messages import Batches, Exchange, Move, Push, Reading, Serve, Step
from livegnn.sampling.partition import (
    Owners,
    PartitionState,
    Serving,
    even_owners,
    even_serving,
    join,
    split,
    start_state,
)
from livegnn.sampling.plan import Plan
from livegnn.sampling.query import Query
from livegnn.sampling.sample import Sample
from livegnn.sampling.sampling_worker import SamplingWorker
from livegnn.sampling.serving_worker import ServingWorker
from livegnn.sampling.spec import ClusterSpec
from livegnn.types import Float32Array, Int64Array

__all__ = ["LocalCluster"]


class LocalCluster:
    """The samples of a graph, kept by some workers and served by others, in one process.

    Args:    graph: perhaps empty; its batches are followed, whoever applies them.  queries: one or more.  sampling,
             serving: how many workers.  replicas: of each serving partition.  seed, ttl: as PreSampler takes them.
    Raises:  QueryInvalid; ValueInvalid; UsageError.
    Source:  Helios, section 4.
    """

    native = None  # no engine

    def __init__(
        self,
        graph: Graph,
        queries: Query | Iterable[Query],
        *,
        sampling: int = 1,
        serving: int = 1,
        replicas: int = 1,
        seed: int = 0,
        ttl: expiry.Ttl = None,
    ) -> None:
        self.graph, self.spec = graph, ClusterSpec.of(graph, queries, seed=seed, ttl=ttl)
        first, owners = even_serving(serving, replicas), even_owners(sampling)
        self.follower = _native.BatchTap(self.spec.weighted_types)
        self._lock = threading.RLock()
        self._serving: dict[int, ServingWorker] = {}
        self.front_end = FrontEnd(self.spec, self._serving, first)
        with graph._writing("LocalCluster"):
            self._sampling = self._start(start_state(self.spec, graph), owners)
            self.move_serving(first)
            graph._attach(self)

    # ---- what it is

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self.spec.plan

    @property
    def sampling_workers(self) -> Sequence[SamplingWorker]:
        """By number."""
        return tuple(self._sampling)

    @property
    def serving_workers(self) -> Mapping[int, ServingWorker]:
        """By number; those that own a bucket."""
        return dict(self._serving)

    @property
    def version(self) -> int:
        """The version that every serving worker has."""
        return self._sampling[0].offset

    @property
    def stats(self) -> dict[str, Any]:
        """version; lag_ms by serving worker; bytes by sampling and by serving worker."""
        return {
            "version": self.version,
            "lag_ms": {number: worker.lag_ms for number, worker in self._serving.items()},
            "sampling_bytes": [worker.bytes() for worker in self._sampling],
            "serving_bytes": {number: worker.bytes() for number, worker in self._serving.items()},
        }

    # ---- updates and answers

    def apply(self, updates: Updates) -> int:
        """Applies a batch to the graph and everything attached to it; returns the version. Raises: as graph.apply."""
        version: int = self.graph._apply(updates, self)[1]
        return version

    def _published(self, change: Any, version: int) -> int:
        with self._lock:
            self._run(Batches(self._step, version, _now_ms()), [self.follower.latest()])
        return version

    def sample(
        self,
        seeds: object,
        *,
        query: int | None = None,
        features: bool = True,
        edge_ids: bool = True,
        at_least: int | None = None,
        timeout: float | None = 10.0,
    ) -> Sample:
        """The samples of a batch of seeds, (B,) ids of live vertices of the query's vertex type, in their order.

        Args, Raises: as FrontEnd.sample.
        """
        planned = self.spec.query(query)
        reading = Reading.checked(planned.number, features, edge_ids, at_least, timeout)

        def ask(slots: Int64Array) -> tuple[int, list[Int64Array], list[Int64Array], list[Float32Array]]:
            version, vertices, ids, rows = self.front_end.answer(slots, reading)
            return version, list(vertices), list(ids), list(rows)

        given, answer, names = answered(self.graph, planned.query.vertex_type, seeds, ask)
        return Sample(planned, self.spec.plan, given, *answer, names)

    def close(self) -> None:
        """Leaves the graph: later batches are not followed. A second call does no harm."""
        self.graph._detach(self)

    # ---- workers that come and go

    def move_serving(self, serving: Serving) -> None:
        """Gives buckets to other serving workers, (1024,) uint64 with a bit for each owner; more than one: replicas.

        Workers that own nothing afterwards are let go. Readers are served all the while.

        Raises:  UsageError for a bucket without an owner.
        """
        if serving.shape != (_native.BUCKETS,) or serving.dtype != np.uint64 or not serving.all():
            raise UsageError("[move_serving] expected 1024 uint64 masks with a bit each, got others; see even_serving")
        with self._lock:
            present = int(np.bitwise_or.reduce(serving))
            wanted = [number for number in range(_native.SERVING_MAX) if present >> number & 1]
            for number in wanted:
                if number not in self._serving:
                    self._serving[number] = ServingWorker(self.spec, number)
            both = serving | self._sampling[0].serving
            self._run(Serve(self._step, _now_ms(), both), [])  # new owners are filled before readers turn to them
            self.front_end.set_serving(serving)
            if not np.array_equal(both, serving):
                self._run(Serve(self._step, _now_ms(), serving.copy()), [])
            for number in [number for number in self._serving if number not in wanted]:
                del self._serving[number]

    def move_sampling(self, owners: Owners) -> None:
        """Gives buckets to other sampling workers, (1024,) uint16 from 0 without gaps; samples stay as they are.

        Raises:  UsageError for numbers with gaps.
        """
        numbers = np.unique(owners)
        if owners.shape != (_native.BUCKETS,) or owners.dtype != np.uint16 or int(numbers[-1]) + 1 != len(numbers):
            raise UsageError("[move_sampling] expected 1024 uint16 from 0 without gaps, got others; see even_owners")
        with self._lock:
            self._run(Move(self._step, _now_ms(), owners), [])
            self._sampling = self._start(join([worker.state() for worker in self._sampling]), owners)

    # ---- inside

    @property
    def _step(self) -> int:
        return self._sampling[0].step

    def _start(self, whole: PartitionState, owners: Owners) -> list[SamplingWorker]:
        parts = split(self.spec, whole, owners)
        return [SamplingWorker(self.spec, number, len(parts), part) for number, part in enumerate(parts)]

    def _run(self, step: Step, batches: Sequence[_native.UpdateBuffer]) -> None:
        """One step, until nobody has anything more to say."""
        queue: deque[Exchange | Push] = deque()
        for worker in self._sampling:
            queue.extend(worker.begin(step, batches))
        while queue:
            message = queue.popleft()
            if isinstance(message, Push):
                self._serving[message.receiver].receive(message)
            else:
                queue.extend(self._sampling[message.receiver].receive(message))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
