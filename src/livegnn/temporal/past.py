"""PastSampler: what a TemporalSampler and its pins share: targets (a vertex at a time) in, hops or walks out.

Python checks and translates; the native sampler does all hops of a call without the GIL, under the graph's lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from livegnn import _native
from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import integer_array, same_length, time_array, time_unit, whole_number
from livegnn.graph.ids import VertexIds
from livegnn.graph.updates import VertexType
from livegnn.temporal.hop import TemporalHop, TemporalWalks
from livegnn.temporal.to_pyg import to_pyg
from livegnn.types import Float32Array, Int64Array

_ROWS_MAX = 2**31


@dataclass(slots=True)
class Draws:
    """The native sampler, and how many calls there were, by the sampler and all its pins."""

    native: _native.TemporalSampler
    snapshots: int
    rows_per_target: int  # at most, but for fan-outs of -1
    calls: int = 0

    def count(self) -> None:
        """One more."""
        self.calls = (self.calls + 1) % 2**64


class PastSampler(ABC):
    """Samples of the past in one version of a graph: the newest, or one that is pinned."""

    graph: Graph
    _draws: Draws

    @abstractmethod
    def _pinned(self, where: str) -> _native.TemporalPin | None:
        """What holds the version to read, None for the newest; the caller holds the graph's lock."""

    @abstractmethod
    def _known_ids(self) -> VertexIds:
        """The ids of the version; the caller holds the graph's lock."""

    def sample(self, vertices: object, times: object, *, vertex_type: VertexType | None = None) -> list[TemporalHop]:
        """The hops of a batch of targets, one per fan-out.

        Args:    vertices: (B,) ids of live vertices, repeats allowed.  times: (B,) int64, in any order.
                 vertex_type: whose ids they are, where vertices have types.
        Raises:  VertexUnknown, naming the row; DtypeInvalid, WidthMismatch; ValueInvalid where the answer would have
                 more than 2^31 rows; UsageError with snapshots.
        """
        self._one_window("sample")
        return self._of_ids("sample", vertices, times, vertex_type)[0]

    def sample_snapshots(
        self, vertices: object, times: object, *, vertex_type: VertexType | None = None
    ) -> list[list[TemporalHop]]:
        """The hops of each snapshot, newest first: snapshot s holds, for a target at t, the edges with times in
        [t - (s + 1) window, t - s window); inclusive: after t - (s + 1) window, up to t - s window. One call.
        """
        return self._of_ids("sample_snapshots", vertices, times, vertex_type)

    def sample_slots(self, slots: object, times: object) -> list[TemporalHop]:
        """sample() of slots, as hops and events hold them."""
        self._one_window("sample_slots")
        return self._of_slots("sample_slots", slots, times)[0]

    def sample_snapshot_slots(self, slots: object, times: object) -> list[list[TemporalHop]]:
        """sample_snapshots() of slots."""
        return self._of_slots("sample_snapshot_slots", slots, times)

    def event_weights(self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array) -> Float32Array:
        """(n,) weights of edges, each named by the slot that it leads to, its time and its id.

        Raises:  EdgeMissing, EdgeOffloaded for an edge that is not in memory.
        """
        with self.graph.host.lock:
            return _native.event_weights(self.graph.host.store, dst, times, edge_ids, self._pinned("event_weights"))

    def walks(
        self, vertices: object, times: object, length: int, *, vertex_type: VertexType | None = None
    ) -> TemporalWalks:
        """Random walks back in time: each step goes to the source of an edge drawn uniformly from the past, and looks
        from that edge's time. Fan-outs, strategy and prop_time do not matter; inclusive and window do.

        Args:    vertices, times, vertex_type: as for sample().  length: steps, at least 1.
        Raises:  as sample().
        """
        self._one_window("walks")
        steps = positive("walks", "length", length, _ROWS_MAX)
        with self.graph.host.lock:
            slots, at = self._targets("walks", vertices, times, vertex_type)
            _check_size("walks", len(slots), steps + 1)
            found = self._draws.native.walks(slots, at, steps, self._draws.calls, self._pinned("walks"))
            self._draws.count()
            return TemporalWalks(*found)

    def to_pyg(self, hops: Sequence[TemporalHop]) -> Any:
        """The hops of one sample as one torch_geometric graph: Data, or HeteroData where vertices have types.

        Features and attributes are those of the version: where batches come meanwhile, sample and convert from a pin.
        See livegnn.temporal.to_pyg for the attributes. Raises: DataMissing; EdgeMissing for an edge that has gone.
        """
        return to_pyg(hops, self.graph, lambda: (self._known_ids(), self._pinned("to_pyg")))

    # ---- inside

    def _one_window(self, where: str) -> None:
        if self._draws.snapshots > 1:
            raise UsageError(
                f"[{where}] expected a sampler of one window, got snapshots={self._draws.snapshots}; use "
                "sample_snapshots()"
            )

    def _of_ids(
        self, where: str, vertices: object, times: object, vertex_type: VertexType | None
    ) -> list[list[TemporalHop]]:
        with self.graph.host.lock:
            return self._hops(where, *self._targets(where, vertices, times, vertex_type))

    def _of_slots(
        self, where: str, slots: object, times: object, pin: _native.TemporalPin | None = None
    ) -> list[list[TemporalHop]]:
        numbers, at = integer_array(where, "slots", slots), time_array(where, "times", times)
        same_length(where, "times", at, len(numbers), "slots")
        with self.graph.host.lock:
            self.graph.host.same_unit(where, time_unit(times))
            return self._hops(where, numbers, at, pin)

    def _hops(
        self, where: str, slots: Int64Array, at: Int64Array, pin: _native.TemporalPin | None = None
    ) -> list[list[TemporalHop]]:
        """The caller holds the graph's lock. pin: of the version to read, where it is not this sampler's own."""
        draws, pin = self._draws, pin or self._pinned(where)
        _check_size(where, len(slots), draws.rows_per_target)
        found = [
            [TemporalHop(*arrays) for arrays in draws.native.sample(slots, at, draws.calls, snapshot, pin)]
            for snapshot in range(draws.snapshots)
        ]
        draws.count()
        return found

    def _targets(
        self, where: str, vertices: object, times: object, vertex_type: VertexType | None
    ) -> tuple[Int64Array, Int64Array]:
        """Slots, whose range the native half checks, and times; the caller holds the graph's lock."""
        host = self.graph.host
        if host.in_what_if and not host.ids_are_slots:
            raise UsageError(
                f"[{where}] expected a graph without ids of its own or types, or no what_if block under way, got "
                "both; sample before or after it"
            )
        if host.ids_are_slots and vertex_type is None:
            slots = integer_array(where, "ids", vertices)
        else:
            slots = self._known_ids().slots(where, vertices, vertex_type)
        at = time_array(where, "times", times)
        same_length(where, "times", at, len(slots), "vertices")
        host.same_unit(where, time_unit(times))
        return slots, at


def positive(where: str, name: str, value: object, largest: int) -> int:
    """A whole number from 1 to the largest. Raises: ValueInvalid, DtypeInvalid."""
    number = whole_number(where, name, value)
    if not 1 <= number <= largest:
        raise ValueInvalid(f"[{where}] expected {name} from 1 to {largest}, got {number}; fix it")
    return number


def _check_size(where: str, targets: int, rows_per_target: int) -> None:
    rows = targets * rows_per_target
    if rows > _ROWS_MAX:
        raise ValueInvalid(
            f"[{where}] expected an answer of at most 2^31 rows, got up to {rows:,}; ask for fewer targets at once"
        )
