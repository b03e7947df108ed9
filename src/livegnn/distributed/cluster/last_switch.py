"""LastSwitch: a version without updates for which the workers have made an engine of another model."""

from __future__ import annotations

from livegnn.distributed.cluster.recipe import Recipe
from livegnn.distributed.cluster.recovery import RecoveringCrew
from livegnn.graph.consumers import Recorded, Recorder


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
