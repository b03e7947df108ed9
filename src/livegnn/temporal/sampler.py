"""TemporalSampler: targets (a vertex at a time) in, hops of their sampled past out. docs/temporal-sampling.md.

Python checks and translates; the native sampler does all hops of a call without the GIL, under the graph's lock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from livegnn import _native
from livegnn.errors import ColumnMissing, UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import INT64_MAX, flag, integer_array, same_length, time_array, time_unit, whole_number
from livegnn.graph.threads import thread_count
from livegnn.graph.updates import VertexType
from livegnn.temporal.edge_types import EdgeTypes, edge_codes
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.pin import PinnedSampler
from livegnn.temporal.to_pyg import to_pyg
from livegnn.temporal.walks import TemporalWalks
from livegnn.types import Float32Array, Int64Array

__all__ = ["Strategy", "TemporalSampler"]

Strategy = Literal["recent", "uniform"]

_ROWS_MAX = 2**31
_FANOUT_MAX = 2**31 - 1
_SNAPSHOTS_MAX = 2**16


class TemporalSampler:
    """Samples the past of vertices at times, hop by hop.

    past of (v, t) = in-edges of v with time < t (inclusive: <= t), within the window where there is one
    hop k + 1's targets = hop k's targets, then hop k's sources, each at the time of its edge

    Args:    graph: Of one without times every in-edge is in the past of every target, as if at the target's time.
             fanouts: edges per target, by hop; -1 for all.
             strategy: "recent", the newest by (time, edge id); "uniform", drawn without replacement, all if there are
             fewer.  inclusive: edges at t itself are in the past of (v, t).  window: only edges not older than this, in
             the graph's unit: [t - window, t), inclusive [t - window, t].  seed: 0 to 2^64 - 1.  threads: all cores
             unless given; the samples do not depend on it.  prop_time: later hops look from the root's time.
             replace: uniform with replacement: fan-out edges wherever there is one.  unique: a later hop holds each
             new (vertex, time) once.  snapshots: windows side by side, for sample_snapshots().
             edge_types: only edges of these types (names, triples or codes) are in a past; all unless given.
    Raises:  ColumnMissing for a window of a graph without times; ValueInvalid, UsageError.
    Exactness: a function of the graph, the arguments and the number of the call (`calls`).
    Cost:    two binary searches a target and what is copied.  Source: GNNFlow, sections 4.1 and 4.2.

    >>> import numpy as np, livegnn as lg
    >>> from livegnn.temporal import TemporalSampler
    >>> graph = lg.Graph(np.zeros((4, 0), np.float32), [0, 1, 2, 0], [1, 3, 3, 3], time=[5, 6, 8, 9])
    >>> hops = TemporalSampler(graph, [2, 2]).sample([3], [9])
    >>> hops[0].src.tolist(), hops[0].times.tolist()
    ([1, 2], [6, 8])
    >>> hops[1].targets.tolist(), hops[1].dst.tolist(), hops[1].src.tolist()
    ([3, 1, 2], [0, 0, 1], [1, 2, 0])
    """

    def __init__(
        self,
        graph: Graph,
        fanouts: Sequence[int],
        strategy: Strategy = "recent",
        inclusive: bool = False,
        window: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        *,
        prop_time: bool = False,
        replace: bool = False,
        unique: bool = False,
        snapshots: int = 1,
        edge_types: EdgeTypes | None = None,
    ) -> None:
        _check_graph(graph)
        self.graph = graph
        self.fanouts = _checked_fanouts(fanouts)
        flags = {"inclusive": inclusive, "prop_time": prop_time, "replace": replace, "unique": unique}
        _check_options(strategy, seed, flags)
        self.strategy, self.inclusive, self.seed = strategy, bool(inclusive), seed
        self.window = None if window is None else _positive("window", window, INT64_MAX)
        self.snapshots = _positive("snapshots", snapshots, _SNAPSHOTS_MAX)
        if self.snapshots > 1 and window is None:
            raise UsageError(
                f"[TemporalSampler] expected window= with snapshots={snapshots}, got none; give the length of one"
            )
        if window is not None and not graph.has_time:
            raise ColumnMissing(
                f"[TemporalSampler] expected a graph whose edges have times, for window={window}, got one without; "
                "give Graph(time=...)"
            )
        self.prop_time, self.replace, self.unique = bool(prop_time), bool(replace), bool(unique)
        self.edge_types = edge_codes("TemporalSampler", graph, edge_types)
        self.threads = thread_count("TemporalSampler", threads)
        self._calls = 0
        self._rows_per_target = math.prod(1 + max(fanout, 0) for fanout in self.fanouts)  # at most, but for -1
        options = _native.TemporalOptions(
            fan_outs=self.fanouts,
            by=_native.TemporalBy[strategy.capitalize()],
            inclusive=self.inclusive,
            window=self.window or 0,
            snapshots=self.snapshots,
            prop_time=self.prop_time,
            replace=self.replace,
            unique=self.unique,
            edge_types=self.edge_types,
            seed=seed,
            threads=self.threads,
        )
        self._native = _native.TemporalSampler(graph.host.store, options)

    @property
    def calls(self) -> int:
        """Calls so far: the number that the next one will have. Settable, to go on where another run ended."""
        return self._calls

    @calls.setter
    def calls(self, number: int) -> None:
        calls = whole_number("calls", "the number of calls", number)
        if not 0 <= calls < 2**64:
            raise ValueInvalid(f"[calls] expected a number from 0 to 2^64 - 1, got {number}; set what calls was")
        self._calls = calls

    def sample(self, vertices: object, times: object, *, vertex_type: VertexType | None = None) -> list[TemporalHop]:
        """The hops of a batch of targets, one per fan-out.

        Args:    vertices: (B,) ids of live vertices, repeats allowed.  times: (B,) int64, in any order.
                 vertex_type: whose ids they are, where vertices have types.
        Raises:  VertexUnknown, naming the row; DtypeInvalid, WidthMismatch; ValueInvalid where the answer would have
                 more than 2^31 rows; UsageError with snapshots.
        """
        self._one_window("sample")
        return self._snapshots("sample", vertices, times, vertex_type, None)[0]

    def sample_snapshots(
        self, vertices: object, times: object, *, vertex_type: VertexType | None = None
    ) -> list[list[TemporalHop]]:
        """The hops of each snapshot, newest first: snapshot s holds, for a target at t, the edges with times in
        [t - (s + 1) window, t - s window); inclusive: after t - (s + 1) window, up to t - s window. One call.
        """
        return self._snapshots("sample_snapshots", vertices, times, vertex_type, None)

    def sample_slots(self, slots: object, times: object) -> list[TemporalHop]:
        """sample() of slots, as hops and events hold them."""
        self._one_window("sample_slots")
        return self._of_slots("sample_slots", slots, times, None)[0]

    def sample_snapshot_slots(self, slots: object, times: object) -> list[list[TemporalHop]]:
        """sample_snapshots() of slots."""
        return self._of_slots("sample_snapshot_slots", slots, times, None)

    def sample_rows(
        self, slots: Int64Array, times: Int64Array, rows: Int64Array, hop: int, call: int, snapshot: int
    ) -> TemporalHop:
        """Part of a larger hop: target i is answered as row rows[i] of hop number `hop` of that call and snapshot."""
        with self.graph.host.lock:
            return TemporalHop(*self._native.sample_rows(slots, times, rows, hop, call, snapshot))

    def event_weights(self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array) -> Float32Array:
        """(n,) weights of edges, each named by the slot that it leads to, its time and its id.

        Raises:  EdgeMissing, EdgeOffloaded for an edge that is not in memory.
        """
        return self._event_weights(dst, times, edge_ids, None)

    def walks(
        self, vertices: object, times: object, length: int, *, vertex_type: VertexType | None = None
    ) -> TemporalWalks:
        """Random walks back in time: each step goes to the source of an edge drawn uniformly from the past, and looks
        from that edge's time. Fan-outs, strategy and prop_time do not matter; inclusive and window do.

        Args:    vertices, times, vertex_type: as for sample().  length: steps, at least 1.
        Raises:  as sample().
        """
        return self._walks(vertices, times, length, vertex_type, None)

    def to_pyg(self, hops: Sequence[TemporalHop]) -> Any:
        """The hops of one sample as one torch_geometric graph: Data, or HeteroData where vertices have types.

        Features and attributes are those of now: where batches come meanwhile, sample and convert from a pin.
        See livegnn.temporal.to_pyg for the attributes. Raises: DataMissing; EdgeMissing for an edge that has gone.
        """
        return to_pyg(hops, self.graph, None)

    def pin(self) -> PinnedSampler:
        """Samples of the graph as it is when the block is entered, whatever is applied meanwhile:
        `with sampler.pin() as pinned: pinned.sample(...)`. Raises: ColumnMissing for a graph without times.
        """
        if not self.graph.has_time:
            raise ColumnMissing("[pin] expected a graph whose edges have times, got one without; give Graph(time=...)")
        return PinnedSampler(self)

    def twin(self) -> TemporalSampler:
        """Another of the same graph and arguments, whose calls count from 0."""
        options: dict[str, Any] = {"prop_time": self.prop_time, "replace": self.replace, "unique": self.unique}
        return TemporalSampler(
            self.graph,
            self.fanouts,
            self.strategy,
            self.inclusive,
            self.window,
            self.seed,
            self.threads,
            snapshots=self.snapshots,
            edge_types=self.edge_types or None,
            **options,
        )

    @property
    def options(self) -> dict[str, object]:
        """The arguments that samples depend on."""
        names = ("fanouts", "strategy", "inclusive", "window", "seed", "prop_time", "replace", "unique", "snapshots")
        found: dict[str, object] = {name: getattr(self, name) for name in names}
        return {**found, "edge_types": self.edge_types} if self.edge_types else found

    # ---- what pins use too

    def _one_window(self, where: str) -> None:
        if self.snapshots > 1:
            raise UsageError(
                f"[{where}] expected a sampler of one window, got snapshots={self.snapshots}; use sample_snapshots()"
            )

    def _event_weights(
        self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array, pin: PinnedSampler | None
    ) -> Float32Array:
        with self.graph.host.lock:
            native = None if pin is None else pin._opened("event_weights")
            found: Float32Array = _native.event_weights(self.graph.host.store, dst, times, edge_ids, native)
            return found

    def _snapshots(
        self,
        where: str,
        vertices: object,
        times: object,
        vertex_type: VertexType | None,
        pin: PinnedSampler | None,
    ) -> list[list[TemporalHop]]:
        with self.graph.host.lock:
            return self._hops(where, *self._targets(where, vertices, times, vertex_type, pin), pin)

    def _of_slots(self, where: str, slots: object, times: object, pin: PinnedSampler | None) -> list[list[TemporalHop]]:
        numbers, at = integer_array(where, "slots", slots), time_array(where, "times", times)
        same_length(where, "times", at, len(numbers), "slots")
        with self.graph.host.lock:
            self.graph.host.same_unit(where, time_unit(times))
            return self._hops(where, numbers, at, pin)

    def _hops(
        self, where: str, slots: Int64Array, at: Int64Array, pin: PinnedSampler | None
    ) -> list[list[TemporalHop]]:
        """The caller holds the graph's lock."""
        _check_size(where, len(slots), self._rows_per_target)
        native = None if pin is None else pin._opened(where)
        found = [
            [TemporalHop(*arrays) for arrays in self._native.sample(slots, at, self._calls, snapshot, native)]
            for snapshot in range(self.snapshots)
        ]
        self._count()
        return found

    def _walks(
        self,
        vertices: object,
        times: object,
        length: int,
        vertex_type: VertexType | None,
        pin: PinnedSampler | None,
    ) -> TemporalWalks:
        self._one_window("walks")
        steps = _positive("length", length, _ROWS_MAX, "walks")
        with self.graph.host.lock:
            slots, at = self._targets("walks", vertices, times, vertex_type, pin)
            _check_size("walks", len(slots), steps + 1)
            native = None if pin is None else pin._opened("walks")
            found = self._native.walks(slots, at, steps, self._calls, native)
            self._count()
            return TemporalWalks(*found)

    def _targets(
        self,
        where: str,
        vertices: object,
        times: object,
        vertex_type: VertexType | None,
        pin: PinnedSampler | None,
    ) -> tuple[Int64Array, Int64Array]:
        """Slots, whose range the native half checks, and times; the caller holds the graph's lock."""
        if self.graph.host.in_what_if and not self.graph.host.ids_are_slots:
            raise UsageError(
                f"[{where}] expected a graph without ids of its own or types, or no what_if block under way, got "
                "both; sample before or after it"
            )
        known = self.graph.host.ids if pin is None else pin.known_ids()
        plain = self.graph.host.ids_are_slots and vertex_type is None  # whose range the native half checks
        slots = integer_array(where, "ids", vertices) if plain else known.slots(where, vertices, vertex_type)
        at = time_array(where, "times", times)
        same_length(where, "times", at, len(slots), "vertices")
        self.graph.host.same_unit(where, time_unit(times))
        return slots, at

    def _count(self) -> None:
        self._calls = (self._calls + 1) % 2**64

    def __repr__(self) -> str:
        return f"TemporalSampler({self.graph!r}, {self.fanouts}, strategy={self.strategy!r}, calls={self._calls})"


def _check_graph(graph: object) -> None:
    where = "TemporalSampler"
    if not isinstance(graph, Graph):
        raise UsageError(f"[{where}] expected a Graph, got {type(graph).__name__}; make one with livegnn.Graph")


def _checked_fanouts(fanouts: object) -> list[int]:
    given = [fanouts] if isinstance(fanouts, (str, int)) else list(fanouts)  # type: ignore[call-overload]
    if isinstance(fanouts, (str, int)) or not given:
        raise ValueInvalid(
            f"[TemporalSampler] expected a fan-out for each hop, as in [10, 10], got {fanouts!r}; list them"
        )
    found = [whole_number("TemporalSampler", "a fan-out", fanout) for fanout in given]
    for fanout in found:
        if fanout != -1 and not 1 <= fanout <= _FANOUT_MAX:
            raise ValueInvalid(
                f"[TemporalSampler] expected fan-outs of at least 1, or -1 for all, got {fanout}; fix the list"
            )
    return found


def _check_options(strategy: object, seed: object, flags: dict[str, bool]) -> None:
    where = "TemporalSampler"
    if strategy not in ("recent", "uniform"):
        raise ValueInvalid(f'[{where}] expected strategy="recent" or "uniform", got {strategy!r}; use one of them')
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ValueInvalid(f"[{where}] expected a seed from 0 to 2^64 - 1, got {seed!r}; give a whole number")
    for name, value in flags.items():
        flag(where, name, value)
    if flags["replace"] and strategy != "uniform":
        raise UsageError(f'[{where}] expected replace= with strategy="uniform", got {strategy!r}; leave it out')


def _positive(name: str, value: object, largest: int, where: str = "TemporalSampler") -> int:
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
