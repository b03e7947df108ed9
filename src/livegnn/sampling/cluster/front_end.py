"""How readers see a cluster of sampling and serving workers, wherever they run.

FrontEnd sends a query to the serving workers that own its seeds, and puts the parts together in the order asked. A
SamplingCluster has one, and workers that follow a graph.
"""

from __future__ import annotations

import itertools
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, VertexUnknown
from livegnn.graph import Graph
from livegnn.graph.consumers import Consumer
from livegnn.sampling.cluster.partition import Owners, Serving, workers_in
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.sample import NO_COLUMNS
from livegnn.sampling.presample.source import ReadOptions, Response, SampleSource
from livegnn.sampling.queries.plan import Plan
from livegnn.types import AnyArray, Int64Array

_VERSION_SECONDS_MAX = 10.0
Result = TypeVar("Result")


class Answering(Protocol):
    """A serving worker, here or behind a connection."""

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As ServingWorker.answer."""


@runtime_checkable
class Asking(Answering, Protocol):
    """A serving worker behind a connection, which takes several questions at a time."""

    def ask(self, slots: Int64Array, options: ReadOptions) -> Callable[[], Response]:
        """Sends a question; what it returns waits for the answer."""


class SeedDemand(NamedTuple):
    """What readers have asked since the last look.

    seeds: (1024,) int64, by bucket.  seconds: by serving worker, from question to answer, summed over questions;
    divided by the time that went by, it is how many questions were waiting or being answered on average.
    """

    seeds: Int64Array
    seconds: dict[int, float]


class FrontEnd(SampleSource):
    """Routes seeds to the serving workers that own them; of several replicas each takes its turn. Seeds are slots.

    An answer of several owners has the smallest version that one of them answered from.

    Args:    workers: by number; may be changed from outside.  serving: which workers own each bucket; set_serving()
             changes it.  is_down: of a worker by number: it is passed over where a replica is up.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        workers: Mapping[int, Answering],
        serving: Serving,
        *,
        is_down: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.spec, self._workers, self.edge_columns = spec, workers, spec.edge_columns
        self._is_down = is_down
        self._turn = itertools.count()
        self._counting = threading.Lock()
        self._demand = SeedDemand(np.zeros(_native.BUCKETS, np.int64), {})
        self.set_serving(serving)

    def set_serving(self, serving: Serving) -> None:
        """From now on serving[b], a bit a serving worker, own the seeds of bucket b."""
        self._serving = serving

    def take_demand(self) -> SeedDemand:
        """What was asked since the last call."""
        with self._counting:
            found, self._demand = self._demand, SeedDemand(np.zeros(_native.BUCKETS, np.int64), {})
        return found

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self.spec.plan

    @property
    def version(self) -> int:
        """The smallest version that a serving worker has. Raises: VersionPending; WorkerUnavailable."""
        none, first = np.empty(0, np.int64), self.plan.queries[0].number
        deadline = time.monotonic() + _VERSION_SECONDS_MAX

        def asked(owner: int) -> int:
            options = ReadOptions(first, False, False, None, max(0.0, deadline - time.monotonic()))
            return self._workers[owner].answer(none, options).version

        return self._by_the_map(lambda: min(asked(owner) for owner in workers_in(self._serving)))

    def wait_for(self, version: int, timeout: float | None) -> None:
        """Returns at once: every owner waits before it answers."""

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As SampleSource.answer; the timeout holds for all owners together.

        Raises:  as SampleSource.sample; UsageError for a bucket without a serving worker.
        """
        deadline = None if options.timeout is None else time.monotonic() + options.timeout
        return self._by_the_map(lambda: self._gathered(slots, options, deadline))

    def _by_the_map(self, ask: Callable[[], Result]) -> Result:
        """What the owners say; they are asked again where one is gone since the map has changed."""
        while True:
            serving = self._serving
            try:
                return ask()
            except KeyError:
                if serving is self._serving:
                    raise

    def _gathered(self, slots: Int64Array, options: ReadOptions, deadline: float | None) -> Response:
        if not len(slots):
            return self._empty(options)
        owners = self._owners(slots)
        places = [np.flatnonzero(owners == owner) for owner in np.unique(owners)]
        asked = [
            self._asked(int(owners[place[0]]), np.ascontiguousarray(slots[place]), options, deadline)
            for place in places
        ]
        parts = [answer() for answer in asked]
        return Response(
            min(part.version for part in parts),
            *(_put_together(each, places, len(slots)) for each in zip(*(part[1:] for part in parts), strict=True)),
        )

    def _asked(
        self, owner: int, slots: Int64Array, options: ReadOptions, deadline: float | None
    ) -> Callable[[], Response]:
        """Asks an owner, if it takes several questions at a time; what gives its answer."""
        worker, begin = self._workers[owner], time.monotonic()

        def limited() -> ReadOptions:
            return options._replace(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))

        waits = worker.ask(slots, limited()) if isinstance(worker, Asking) else None

        def answer() -> Response:
            try:
                return worker.answer(slots, limited()) if waits is None else waits()
            finally:
                seconds = time.monotonic() - begin
                with self._counting:
                    np.add.at(self._demand.seeds, _native.buckets(slots), 1)
                    self._demand.seconds[owner] = self._demand.seconds.get(owner, 0.0) + seconds

        return answer

    def _owners(self, seeds: Int64Array) -> Int64Array:
        buckets = _native.buckets(seeds)
        if (buckets < 0).any():
            row = int(np.argmax(buckets < 0))
            raise VertexUnknown(
                f"[sample] expected seeds that are live vertices, got {seeds[row]} at row {row}; add the vertex first"
            )
        masks, turn = self._serving[buckets], next(self._turn)
        owners = np.full(len(seeds), -1, np.int64)
        for mask in np.unique(masks):
            replicas = [worker for worker in range(_native.SERVING_MAX) if int(mask) >> worker & 1]
            if not replicas:
                raise UsageError("[sample] expected every bucket to be served, got one without; add a serving worker")
            able = [worker for worker in replicas if not self._is_down(worker)] or replicas
            owners[masks == mask] = able[turn % len(able)]
        return owners

    def _empty(self, options: ReadOptions) -> Response:
        """The shapes of no seeds, without a worker; of no version."""
        fanouts = [self.spec.fanouts[place] for place in self.spec.tables_of(options.query)]
        shapes = [(0, *fanouts[:hop]) for hop in range(len(fanouts) + 1)]
        vertices, ids = (tuple(np.empty(shape, np.int64) for shape in shapes[1:]) for _ in range(2))
        widths = self.spec.widths_of(options.query) if options.features else []
        rows = [np.empty((*shape, width), np.float32) for shape, width in zip(shapes, widths, strict=False)]
        columns = self.edge_columns if options.edge_data else NO_COLUMNS
        edges = columns.of_rows([np.empty((*shape, columns.words), np.float32) for shape in shapes[1:]])
        return Response(-1, vertices, ids if options.edge_ids else (), tuple(rows), *edges)


class SamplingCluster(SampleSource, Consumer):
    """Samples of a graph, kept by some workers and served by others, whose numbers may change.

    Args of subclasses:  graph: its batches are followed.  spec: what the workers agree on.  front_end: asks them.
    """

    graph: Graph
    needs_all_edges = False  # workers have edges of their own
    spec: ClusterSpec
    front_end: FrontEnd

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self.spec.plan

    @abstractmethod
    def move_serving(self, serving: Serving) -> None:
        """Gives buckets to other serving workers, (1024,) uint64 with a bit for each owner; more than one: replicas.

        New owners are filled before readers turn to them, so readers are served all the while. Workers that own nothing
        afterwards end. See even_serving.

        Raises:  UsageError for a bucket without an owner; then nothing has changed.
        """

    @abstractmethod
    def move_sampling(self, owners: Owners) -> None:
        """Gives buckets to other sampling workers, (1024,) uint16 from 0 without gaps; samples stay as they are.

        See even_owners.  Raises: UsageError for numbers with gaps; then nothing has changed.
        """


def _put_together(parts: Sequence[Sequence[AnyArray]], places: list[Int64Array], count: int) -> Sequence[AnyArray]:
    """Arrays of the parts, level by level, with row i of a part at its place among all seeds."""
    if len(parts) == 1:  # all seeds, in their order
        return parts[0]
    levels = []
    for arrays in zip(*parts, strict=True):
        whole = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
        for array, place in zip(arrays, places, strict=True):
            whole[place] = array
        levels.append(whole)
    return levels
