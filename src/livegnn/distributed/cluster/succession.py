"""Succession: other workers take the place of those of a cluster, while batches go on.

    1  start      the present workers take a snapshot; every batch from then on is noted
    2  build      new workers read the snapshot, cut it anew among themselves, and run the model with the same units
    3  catch up   they apply the batches that were noted, and those that have come meanwhile
    4  take over  under the graph's lock they apply the last ones; from then on they are the cluster's workers

Until the last step the present workers serve, and nothing depends on the new ones. New workers that are lost recover as
any do. Where that fails, and where another model has come (swap, rescale), all begins again at 1.

Invariant: sums are exact and units stay, so the new workers have the bits of the present ones at every version.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from livegnn.distributed.cluster.crew import Call
from livegnn.distributed.cluster.cut import check_parts
from livegnn.distributed.cluster.directory import Directory, placed
from livegnn.distributed.cluster.driver_state import DriverState
from livegnn.distributed.cluster.notes import GivenBatch
from livegnn.distributed.cluster.origin import Origin
from livegnn.distributed.cluster.recovery import RecoveringCrew
from livegnn.distributed.cluster.refusals import PartRefusal
from livegnn.distributed.cluster.shuffle import NewCut
from livegnn.distributed.partition import Newcomers, VertexParts, repartition
from livegnn.distributed.partition.by_name import Partitioner, parts_for, reads_edges
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import InvariantBroken, UsageError, WorkerUnavailable
from livegnn.types import BoolArray, Int64Array

ClusterBalance: TypeAlias = Literal["edges", "work"]

_ATTEMPTS = 5
_WORK_SHARE = 0.9
_FEW = 2  # batches that may wait while the last ones are applied
_SHRINKS = 0.9  # batches that are left, of those that were left before
_NO_EDGES = Topology.of_edges([], [], 0)
_log = logging.getLogger("livegnn")


class WantedCut(NamedTuple):
    """What a repartition leads to. by_work: whether a partitioner balances work."""

    partition: Partitioner | VertexParts
    workers: int
    by_work: bool


class Succession:
    """Of one cluster. state: of its driver, now."""

    def __init__(self, directory: Directory, crew: RecoveringCrew, state: Callable[[], DriverState]) -> None:
        self._directory, self._crew, self._state = directory, crew, state
        self._one_at_a_time, self._made = threading.Lock(), crew.number
        self._successors: RecoveringCrew | None = None  # until they have taken over

    def run(self, partition: Partitioner | VertexParts, workers: int | None, balance: ClusterBalance) -> None:
        """See Cluster.repartition()."""
        host = self._directory.graph.host
        with host.lock:
            self._crew.refuse_closed("repartition")
            host.refuse_busy("repartition")
        with self._one_at_a_time:
            count = self._crew.size if workers is None else check_parts("repartition", workers)
            wanted = _checked(partition, count, balance)
            for attempt in range(_ATTEMPTS):
                try:
                    if self._succeeded(wanted, attempt > 0):
                        return
                    why = "another model came"
                except WorkerUnavailable as error:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    why = str(error)
                _log.warning("[repartition] it begins again: %s", why)
        raise UsageError(
            f"[repartition] expected one model meanwhile, got a swap in the last of {_ATTEMPTS} attempts; call it again"
        )

    def interrupt(self) -> None:
        """After the cluster was closed: the new workers end, and run() raises."""
        successors = self._successors
        if successors is not None:
            successors.interrupt()

    def _succeeded(self, wanted: WantedCut, again: bool) -> bool:
        """Once through the steps. Returns: whether the new workers serve: False where another model has come."""
        directory, host = self._directory, self._directory.graph.host
        self._made += 1
        try:
            with host.lock, self._crew.lock:
                self._crew.refuse_closed("repartition")
                beginning = self._beginning(wanted, again)
            newcomers = directory.newcomers.continued(beginning.parts(wanted), beginning.live)
            state = beginning.state_with(newcomers, self._made)
            beginning = beginning._replace(topology=None, state=None)  # they are large
            self._successors = successors = self._crew.next_to(wanted.workers, beginning.origin, state, self._made)
            self._crew.refuse_closed("repartition")
            successors.start(beginning.steps(newcomers.parts))
            _log.info("[repartition] %d new workers have started at version %d", wanted.workers, successors.version)
            following = _Following(self._crew, successors, beginning, newcomers)
            following.catch_up()
            with host.lock, self._crew.lock:
                self._crew.refuse_closed("repartition")
                if not beginning.origin.history.is_whole:
                    return False
                following.apply_all()
                try:
                    self._crew.take_over(successors, lambda: _with(self._state(), newcomers, self._made))
                finally:
                    if self._crew.number == self._made:
                        directory.newcomers = newcomers
            _log.info("[repartition] %d workers have taken over", wanted.workers)
            return True
        finally:
            self._crew.end_succession()
            abandoned, self._successors = self._successors, None
            if abandoned is not None and not self._crew.is_that_of(abandoned):
                abandoned.abandon()

    def _beginning(self, wanted: WantedCut, again: bool) -> Beginning:
        """The caller holds the locks."""
        directory, crew = self._directory, self._crew
        now = directory.newcomers.parts
        return Beginning(
            crew.begin_succession(again),
            VertexParts(now.parts, now.of, owners=now.owners),  # a copy, as it grows with the batches
            directory.graph.host.store.live().astype(np.bool_),
            crew.ask(0, "store_options"),
            directory.next_edge_id,
            self._topology(wanted.by_work) if reads_edges(wanted.partition) else None,
            self._state() if crew.state_wanted else None,
        )

    def _topology(self, by_work: bool) -> Topology:
        """Ends of all edges, for partitioners; and the work of each vertex."""
        src, dst = (np.concatenate(ends) for ends in zip(*self._crew.each("own_ends"), strict=True))
        graph = self._directory.graph
        store, names = graph.host.store, graph.vertex_types or ()
        types = store.vertex_types() if names else None
        topology = Topology(src, dst, store.live().astype(np.bool_), graph.undirected, types, names)
        return dataclasses.replace(topology, work=self._work(topology)) if by_work else topology

    def _work(self, topology: Topology) -> Int64Array:
        """In how many batches each vertex has changed, so weighed that edges are a tenth of the whole load.

        (slots,) int64.
        """
        work = np.zeros(topology.slot_count, np.int64)
        for slots, counts in self._crew.each("work"):
            work[slots] = counts
        edges = int((topology.in_edges() + 1).sum())
        weight = _WORK_SHARE / (1 - _WORK_SHARE) * edges / max(1, int(work.sum()))
        weighed: Int64Array = np.rint(work * weight).astype(np.int64)
        return weighed


class Beginning(NamedTuple):
    """The cluster at the version that new workers start from.

    origin: its snapshot.  now: its parts.  live: (slots,) bool.  options: of the native store.  next_edge_id: of the
    whole graph.  topology: its edges, where a partitioner reads them.  state: of the driver, where one may follow.
    """

    origin: Origin
    now: VertexParts
    live: BoolArray
    options: dict[str, Any]
    next_edge_id: int
    topology: Topology | None
    state: DriverState | None

    def parts(self, wanted: WantedCut) -> VertexParts:
        """The parts to go over to. Those of a partitioner get the numbers that let most vertices stay."""
        if self.topology is None:
            return _parts(_NO_EDGES, wanted)
        return repartition(self.topology, self.now, _parts(self.topology, wanted)).after

    def state_with(self, newcomers: Newcomers, crew: int) -> bytes | None:
        """The state of the driver, but for parts and crew."""
        return None if self.state is None else _with(self.state, newcomers, crew)

    def steps(self, parts: VertexParts) -> list[list[Call]]:
        """The calls of the new workers. Worker i of n reads the snapshots i, i + n, ..."""
        workers, slots, snapshots = parts.parts, len(self.live), self.origin.history.snapshots
        holders = (self.now.of_first(slots) % workers).astype(np.uint16)
        owners = np.array(parts.of_first(slots))
        new = NewCut(workers, owners, holders, self.options, self.origin.version, self.next_edge_id)
        reading: list[Call] = [("read_snapshots", i, *snapshots[i::workers]) for i in range(workers)]
        start: Call = ("start_shuffled", new, self.origin.recipe, self.origin.scales)
        return [reading, [start] * workers]


class _Following:
    """New workers on the way to the present version.

    Invariant: they, and the rule for newcomers, are at the version after the first `_applied` batches.
    """

    def __init__(
        self, present: RecoveringCrew, crew: RecoveringCrew, beginning: Beginning, newcomers: Newcomers
    ) -> None:
        self._present, self._crew, self._newcomers, self._slots = present, crew, newcomers, len(beginning.live)
        self._history, self._applied = beginning.origin.history, 0

    def catch_up(self) -> None:
        """Applies what has come, until little is left, or nearly as much comes as goes.

        Raises: WorkerUnavailable; UsageError once the cluster is closed.
        """
        before = math.inf
        while self._history.is_whole and _FEW < (left := self._left) <= _SHRINKS * before:
            before = left
            self._apply(left)
            _log.info("[repartition] new workers are at version %d", self._crew.version)

    def apply_all(self) -> None:
        """Applies what has come. Raises: WorkerUnavailable."""
        self._apply(self._left)

    @property
    def _left(self) -> int:
        return len(self._history.batches) - self._applied

    def _apply(self, count: int) -> None:
        for batch in self._history.batches[self._applied : self._applied + count]:
            self._present.refuse_closed("repartition")
            self._apply_one(batch)
            self._applied += 1

    def _apply_one(self, batch: GivenBatch) -> None:
        placement, owners = placed(batch.by_slot, self._newcomers, self._slots)
        answers = self._crew.apply(batch.by_slot, owners, batch.record)
        refused = [answer for answer in answers if isinstance(answer, PartRefusal)]
        if refused:
            raise InvariantBroken(
                f"invariant broken: batch {batch.version} stands, and new workers refuse it: {refused}"
            )
        self._newcomers.accept(placement)
        self._slots = owners.first + len(owners.owners)


def _checked(partition: Partitioner | VertexParts, workers: int, balance: ClusterBalance) -> WantedCut:
    """Raises: UsageError, ValueInvalid."""
    if balance not in get_args(ClusterBalance):
        raise UsageError(f"[repartition] expected balance of 'edges' or 'work', got {balance!r}; choose one")
    wanted = WantedCut(partition, workers, balance == "work")
    if not reads_edges(partition):
        _parts(_NO_EDGES, wanted)
        if wanted.by_work:
            raise UsageError(
                f"[repartition] expected a partitioner that balances work, got {partition!r}; name 'metis', 'ldg' or "
                "'fennel'"
            )
    return wanted


def _parts(graph: Topology, wanted: WantedCut) -> VertexParts:
    advice = "make as many, or pass as many workers="
    return parts_for("repartition", graph, wanted.workers, wanted.partition, advice)


def _with(state: DriverState, newcomers: Newcomers, crew: int) -> bytes:
    arrays = Directory.with_newcomers(state.directory, newcomers)
    return dataclasses.replace(state, directory=arrays, settings=state.settings._replace(crew=crew)).to_bytes()
