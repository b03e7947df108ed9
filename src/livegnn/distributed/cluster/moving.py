"""Versions without updates, for which workers make another engine first: of another model, or of another cut, in which
the model, the units and every output stay.
"""

from __future__ import annotations

from collections.abc import Callable

from livegnn.distributed.cluster.part import BatchColumns, NewOwners
from livegnn.distributed.cluster.recipe import Recipe
from livegnn.distributed.cluster.recovery import RecoveringCrew
from livegnn.distributed.cluster.shuffle import NewCut
from livegnn.distributed.partition import VertexParts, repartition
from livegnn.distributed.partition.by_name import Partitioner, parts_for, reads_edges
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import LiveGnnError
from livegnn.graph.consumers import Recorded, Recorder


class Repartition:
    """What the workers make of the batch without updates that a repartition is. See directory.Workers.

    driver_state: once the new cut stands.  moved: called then.
    """

    def __init__(
        self, crew: RecoveringCrew, new: NewCut, driver_state: bytes | None, moved: Callable[[], None]
    ) -> None:
        self._crew, self._new, self._driver_state, self._moved = crew, new, driver_state, moved

    def apply_batch(self, columns: BatchColumns, owners: NewOwners, recorded: Recorded) -> None:
        """Raises: WorkerUnavailable; then nothing has changed."""
        self.hold_batch(columns, owners, recorded)
        self.publish_held()

    def hold_batch(self, columns: BatchColumns, owners: NewOwners, recorded: Recorded) -> None:
        """Raises: WorkerUnavailable."""
        self._crew.prepare_cut(self._new, self._driver_state)

    def publish_held(self) -> None:
        """The workers go over."""
        self._crew.go_over()
        self._moved()

    def take_back_held(self) -> None:
        """Another recorder has failed."""
        self._crew.drop_swap()

    def refusal(self, columns: BatchColumns, owners: NewOwners) -> LiveGnnError | None:
        """Nothing: there is no update."""
        return None


def parts_from(topology: Callable[[], Topology], now: VertexParts, partition: Partitioner | VertexParts) -> VertexParts:
    """The parts that a repartition leads to. Those of a partitioner get the numbers that let most vertices stay.

    topology: gathers the edges, which the names of partitioners need, but for "hash".
    Raises:  UsageError, ValueInvalid, DataMissing.
    """
    advice = "make as many: the number of workers changes by save() and load() alone"
    if not reads_edges(partition):
        return parts_for("repartition", Topology.of_edges([], [], 0), now.parts, partition, advice)
    found = topology()
    return repartition(found, now, parts_for("repartition", found, now.parts, partition)).after


class LastSwitch(Recorder):
    """The workers go over to another model once every other recorder has the switch."""

    def __init__(
        self, crew: RecoveringCrew, recipe: Recipe, scales: list[list[int]], driver_state: bytes | None
    ) -> None:
        self._crew, self._recipe, self._scales, self._driver_state = crew, recipe, scales, driver_state

    def prepare(self, recorded: Recorded) -> None:
        """Raises: WorkerUnavailable."""
        self._crew.keep_swap(self._recipe, self._scales, self._driver_state)

    def append(self, recorded: Recorded) -> None:
        """Nothing is refused any more."""
        self._crew.go_over()

    def abort(self) -> None:
        """Nothing: the cluster drops a switch that fails."""
