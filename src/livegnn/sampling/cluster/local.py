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
from livegnn.graph import Graph, Updates
from livegnn.sampling.cluster.front_end import FrontEnd, SamplingCluster
from livegnn.sampling.cluster.messages import Batches, CountChanges, Move, Push, Serve, Step
from livegnn.sampling.cluster.partition import (
    Owners,
    PartitionState,
    Serving,
    check_owners,
    check_serving,
    even_owners,
    even_serving,
    join,
    split,
    start_state,
    workers_in,
)
from livegnn.sampling.cluster.sampling_worker import SamplingWorker
from livegnn.sampling.cluster.serving_worker import ServingWorker
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.source import ReadOptions, Response
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.query import Query
from livegnn.types import Int64Array


class LocalCluster(SamplingCluster):
    """The samples of a graph, kept by some workers and served by others, in one process.

    Args:    graph: perhaps empty; its batches are followed, from any caller.  queries: one or more.  sampling,
             serving: how many workers.  replicas: of each serving partition.  seed, ttl, edge_data: as PreSampler takes
             them.
    Raises:  QueryInvalid; ValueInvalid; UsageError.
    Source:  Helios, section 4.
    """

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
        edge_data: bool = False,
    ) -> None:
        self.graph, self.spec = graph, ClusterSpec.of(graph, queries, seed=seed, ttl=ttl, edge_data=edge_data)
        self.edge_columns = self.spec.edge_columns
        first, owners = even_serving(serving, replicas), even_owners(sampling)
        self.follower = _native.BatchTap(self.spec.weighted_types)
        self._lock = threading.RLock()
        self._serving: dict[int, ServingWorker] = {}
        self.front_end = FrontEnd(self.spec, self._serving, first)
        with graph.host.writing("LocalCluster"):
            self._sampling = self._start(start_state(self.spec, graph), owners)
            self.move_serving(first)
            graph.host.attach(self)

    # ---- what it is

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
        version: int = self.graph.host.apply(updates, self)[1]
        return version

    def published(self, change: Any, version: int) -> int:
        """Runs one step of all workers."""
        with self._lock:
            self._run(Batches(self._step, version, _now_ms()), [self.follower.latest()])
        return version

    def wait_for(self, version: int, timeout: float | None) -> None:
        """As SampleSource.wait_for."""
        next(iter(self._serving.values())).wait_for(version, timeout)  # all of them have the same

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As SampleSource.answer; `sample` has waited for the version."""
        return self.front_end.answer(slots, options._replace(at_least=None))

    def close(self) -> None:
        """Leaves the graph: later batches are not followed. A second call does no harm."""
        self.graph.host.detach(self)

    # ---- workers that come and go

    def move_serving(self, serving: Serving) -> None:
        """As SamplingCluster.move_serving."""
        check_serving("move_serving", serving)
        with self._lock:
            wanted = workers_in(serving)
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
        """As SamplingCluster.move_sampling."""
        check_owners("move_sampling", owners)
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
        """One step, until no worker has messages left."""
        queue: deque[CountChanges | Push] = deque()
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
