"""ClusterWhatIf: what the workers of a cluster would publish after some updates."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from livegnn.distributed.cluster.batch import PartChanges, SlotBatch
from livegnn.distributed.cluster.changes import MergedChanges
from livegnn.distributed.cluster.crew import Call
from livegnn.distributed.cluster.directory import Directory
from livegnn.distributed.cluster.reading import refuse_unknown, rows_of
from livegnn.distributed.cluster.recovery import RecoveringCrew
from livegnn.distributed.cluster.refusals import refusal_of
from livegnn.errors import UsageError, WorkerUnavailable
from livegnn.graph.graph import Graph
from livegnn.graph.updates import Updates
from livegnn.inference import hetero as over_types
from livegnn.inference.predict import Rows
from livegnn.inference.views import Outputs
from livegnn.models.model import Model
from livegnn.types import Int64Array


class ClusterWhatIf(Outputs):
    """Outputs as they would be after some updates; valid inside its `with` block only."""

    _where = "what_if"

    def __init__(self, cluster: Outputs, directory: Directory, crew: RecoveringCrew, updates: Updates) -> None:
        self._cluster, self._directory, self._crew, self._updates = cluster, directory, crew, updates
        self._ids: Any = None
        self._parts: list[PartChanges] = []
        self._place = ExitStack()

    def __enter__(self) -> Self:
        host = self._directory.graph.host
        with ExitStack() as place:
            place.enter_context(host.writing("what_if"))
            place.enter_context(self._crew.lock)
            host.same_unit("what_if", self._updates.time_unit)
            buffer, change = host.supposed(self._updates)
            self._directory.refuse_gaps(buffer)
            batch = SlotBatch.of(buffer)
            self._owners = self._directory.owners_in(batch)[1]
            self._live = self._directory.live_after(batch, self._owners)
            place.callback(self._crew.close_view)
            answers = self._crew.open_view(batch, self._owners)
            refused = refusal_of(answers)
            if refused is not None and refused.update is not None:
                refused = refused.reworded(update=int(buffer.given_places()[refused.update]))
            if refused is not None:
                raise refused
            self._parts = [answer for answer in answers if isinstance(answer, PartChanges)]
            self._ids, self._place = change or host.ids, place.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids = None
        self._place.close()

    def _call(self, calls: list[Call]) -> list[Any]:
        """A worker that is lost inside the block has no view when it is back."""
        try:
            return self._crew.in_view(calls)
        except WorkerUnavailable as cause:
            raise WorkerUnavailable(
                "[what_if] expected workers that stay while the view is open, got one that was lost; nothing has "
                "changed: open another view"
            ) from cause

    @property
    def vertices(self) -> Int64Array:
        """Slots of the vertices whose output the updates would change, (k,) int64, ascending."""
        self._of()
        return MergedChanges(self._parts).vertices()

    def _of(self) -> tuple[Graph, Model]:
        if self._ids is None:
            raise UsageError(
                "[what_if] expected a view inside its with block, got one outside; read it before the block ends"
            )
        return self._cluster._of()

    def _read(self, *parts: over_types.Part) -> Rows:
        self._of()
        slots = over_types.slots_of(self._ids, "what_if", parts)
        refuse_unknown(self._live, slots)
        owners = self._directory.parts_of(slots, self._owners)
        return rows_of("read_staged", slots, owners, self._crew.size, self._call)

    def _edge_rows(self, edges: object) -> Any:
        return self._cluster._edge_rows(edges)
