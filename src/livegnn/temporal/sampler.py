"""TemporalSampler: targets (a vertex at a time) in, hops of their sampled past out. docs/temporal-sampling.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from livegnn import _native
from livegnn.errors import ColumnMissing, UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import INT64_MAX, flag, whole_number
from livegnn.graph.ids import VertexIds
from livegnn.graph.threads import thread_count
from livegnn.temporal.checks import check_graph
from livegnn.temporal.edge_types import EdgeTypes, edge_codes
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.past import Draws, PastSampler, positive
from livegnn.temporal.pin import PinnedSampler
from livegnn.types import Int64Array

Strategy = Literal["recent", "uniform"]

_FANOUT_MAX = 2**31 - 1
_SNAPSHOTS_MAX = 2**16


class TemporalSampler(PastSampler):
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
        check_graph("TemporalSampler", graph)
        self.graph = graph
        self.fanouts = _checked_fanouts(fanouts)
        given = {"inclusive": inclusive, "prop_time": prop_time, "replace": replace, "unique": unique}
        flags = _checked_options(strategy, seed, given)
        self.strategy, self.seed = strategy, seed
        self.window = None if window is None else positive("TemporalSampler", "window", window, INT64_MAX)
        self.snapshots = positive("TemporalSampler", "snapshots", snapshots, _SNAPSHOTS_MAX)
        if self.snapshots > 1 and window is None:
            raise UsageError(
                f"[TemporalSampler] expected window= with snapshots={snapshots}, got none; give the length of one"
            )
        if window is not None and not graph.has_time:
            raise ColumnMissing(
                f"[TemporalSampler] expected a graph whose edges have times, for window={window}, got one without; "
                "give Graph(time=...)"
            )
        self.inclusive, self.prop_time, self.replace, self.unique = flags.values()
        self.edge_types = edge_codes("TemporalSampler", graph, edge_types)
        self.threads = thread_count("TemporalSampler", threads)
        options = _native.TemporalOptions(
            fan_outs=self.fanouts,
            by=_native.TemporalBy[strategy.capitalize()],
            window=self.window or 0,
            snapshots=self.snapshots,
            edge_types=self.edge_types,
            seed=seed,
            threads=self.threads,
            **flags,
        )
        native = _native.TemporalSampler(graph.host.store, options)
        self._draws = Draws(native, self.snapshots, math.prod(1 + max(fanout, 0) for fanout in self.fanouts))

    @property
    def calls(self) -> int:
        """Calls so far: the number that the next one will have. Settable, to go on where another run ended."""
        return self._draws.calls

    @calls.setter
    def calls(self, number: int) -> None:
        calls = whole_number("calls", "the number of calls", number)
        if not 0 <= calls < 2**64:
            raise ValueInvalid(f"[calls] expected a number from 0 to 2^64 - 1, got {number}; set what calls was")
        self._draws.calls = calls

    def sample_rows(
        self, slots: Int64Array, times: Int64Array, rows: Int64Array, hop: int, call: int, snapshot: int
    ) -> TemporalHop:
        """Part of a larger hop: target i is answered as row rows[i] of hop number `hop` of that call and snapshot."""
        with self.graph.host.lock:
            return TemporalHop(*self._draws.native.sample_rows(slots, times, rows, hop, call, snapshot))

    def pin(self) -> PinnedSampler:
        """Samples of the graph as it is when the block is entered, whatever is applied meanwhile:
        `with sampler.pin() as pinned: pinned.sample(...)`.
        """
        return PinnedSampler(self.graph, self._draws)

    def sample_slots_at(self, pin: PinnedSampler, slots: object, times: object) -> list[TemporalHop]:
        """sample_slots() in the version of an open pin, which any sampler of the graph may have made.

        Raises:  UsageError for a pin of another graph, or outside its block; else as sample().
        """
        if pin.graph is not self.graph or pin.follower is None:
            got = "one of another graph" if pin.follower is not None else "one outside its block"
            raise UsageError(
                f"[sample_slots_at] expected an open pin of the sampler's graph, got {got}; open one of it"
            )
        self._one_window("sample_slots_at")
        return self._of_slots("sample_slots_at", slots, times, pin.follower)[0]

    def twin(self) -> TemporalSampler:
        """Another of the same graph and arguments, whose calls count from 0."""
        return TemporalSampler(self.graph, threads=self.threads, **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that samples depend on."""
        names = ("fanouts", "strategy", "inclusive", "window", "seed", "prop_time", "replace", "unique", "snapshots")
        found = {name: getattr(self, name) for name in names}
        return {**found, "edge_types": self.edge_types} if self.edge_types else found

    def _pinned(self, where: str) -> None:
        """None: it reads the newest version."""

    def _known_ids(self) -> VertexIds:
        return self.graph.host.ids

    def __repr__(self) -> str:
        return f"TemporalSampler({self.graph!r}, {self.fanouts}, strategy={self.strategy!r}, calls={self.calls})"


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


def _checked_options(strategy: object, seed: object, given: dict[str, bool]) -> dict[str, bool]:
    """The flags."""
    where = "TemporalSampler"
    if strategy not in ("recent", "uniform"):
        raise ValueInvalid(f'[{where}] expected strategy="recent" or "uniform", got {strategy!r}; use one of them')
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ValueInvalid(f"[{where}] expected a seed from 0 to 2^64 - 1, got {seed!r}; give a whole number")
    flags = {name: flag(where, name, value) for name, value in given.items()}
    if flags["replace"] and strategy != "uniform":
        raise UsageError(f'[{where}] expected replace= with strategy="uniform", got {strategy!r}; leave it out')
    return flags
