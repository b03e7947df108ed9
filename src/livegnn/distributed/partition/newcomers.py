"""Parts for vertices that batches add: a pure function of (state, batch), so that every worker computes the same.

The state is the parts, the live vertices of each part, and constants. A batch is read as the store gets it, with slots:

1. Each new slot, in order of addition, goes to the part that the rule chooses (streaming.py has the formulas). Its
   neighbours are the other ends of its edges in this batch, both directions; new slots before it count, those after it
   do not. Edges that the same batch removes again count too.
2. A slot that had a part before keeps it: its vertex was removed, and another one takes the slot.
3. Additions and removals of the batch are then counted.

The rule balances what has come since the start. A start that has the same of edges in each part has not the same of
vertices, and newcomers should not undo that: with c live vertices in a part, c0 at the start, and n0 at the start in
all k parts, its load is c - c0 + n0 / k, rounded down, or 0 where that is less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self, TypeAlias, final, get_args

import numpy as np

from livegnn import _native
from livegnn.distributed.partition.parts import Uint16Array, VertexParts
from livegnn.distributed.partition.streaming import check_slack
from livegnn.distributed.partition.topology import Topology, live_slots
from livegnn.errors import StoredStateInvalid, UsageError
from livegnn.graph import Graph
from livegnn.types import AnyArray, BoolArray, Int64Array

NewcomerRule: TypeAlias = Literal["ldg", "fennel", "hash"]

_Kind = _native.UpdateKind
_ADD_EDGE, _ADD_VERTEX, _REMOVE_VERTEX = _Kind.AddEdge.value, _Kind.AddVertex.value, _Kind.RemoveVertex.value
_RULES = {"ldg": _native.StreamRule.Ldg, "fennel": _native.StreamRule.Fennel}


def sound(batch: Mapping[str, AnyArray], slot_count: int) -> BoolArray:
    """Which updates name slots that there are, or that the batch adds without gaps before; (n,) bool.

    For choose() of a batch that the graph has yet to look at, and may refuse. Args: batch: its columns kind, u and v.
    """
    kind, u, v = batch["kind"], batch["u"], batch["v"]
    adds = kind == _ADD_VERTEX
    next_slot = np.maximum.accumulate(np.concatenate([[slot_count], np.where(adds, u + 1, 0)]))
    gaps = np.flatnonzero(adds & (u > next_slot[:-1]))
    end = gaps[0] if len(gaps) else len(kind)
    count = next_slot[end]
    kept: BoolArray = (u < count) & (v < count) & ((u >= 0) | ~np.isin(kind, (_ADD_VERTEX, _REMOVE_VERTEX)))
    kept[end:] = False
    return kept


class Placement(NamedTuple):
    """What a batch does to the parts: of the slots from first_slot on, and to the live vertices of each part."""

    first_slot: int
    parts: Uint16Array
    change: Int64Array


@final
class Newcomers:
    """The rule and its state. Make it with of().

    Args:    parts: of every slot of the graph; grows with each batch.  live: (parts,) live vertices of each.
             offsets: (parts,) what is added to them for the load.  edges_per_vertex: Fennel's d.
    Raises:  UsageError.
    """

    def __init__(
        self,
        parts: VertexParts,
        live: Int64Array,
        offsets: Int64Array,
        *,
        rule: NewcomerRule = "ldg",
        slack: float = 0.1,
        edges_per_vertex: float = 0.0,
    ) -> None:
        if rule not in get_args(NewcomerRule):
            raise UsageError(f"[Newcomers] expected 'ldg', 'fennel' or 'hash', got {rule!r}; choose one")
        if len(live) != parts.parts or len(offsets) != parts.parts:
            raise UsageError(f"[Newcomers] expected a load of each of {parts.parts} parts, got others; use of()")
        self.parts, self.rule, self.slack = parts, rule, check_slack("Newcomers", slack)
        self._live, self._offsets = np.array(live, np.int64), np.array(offsets, np.int64)
        self._edges_per_vertex = float(edges_per_vertex)

    @classmethod
    def of(cls, graph: Graph | Topology, parts: VertexParts, *, rule: NewcomerRule = "ldg", slack: float = 0.1) -> Self:
        """For the vertices that come to a graph from now on.

        Args:    parts: of the graph as it is; slots that it has no part for get those of their buckets, unless the rule
                 is "hash".  slack: by how much a part may be above the mean.
        Raises:  UsageError, for "fennel" where edges lie in files too.
        """
        live, edges = live_slots(graph), 0
        if rule == "fennel":
            topology = Topology.of(graph)
            edges = int((topology.src != topology.dst).sum())
        return cls.counted(parts, live, rule=rule, slack=slack, edges=edges)

    @classmethod
    def counted(
        cls, parts: VertexParts, live: BoolArray, *, rule: NewcomerRule = "ldg", slack: float = 0.1, edges: int = 0
    ) -> Self:
        """The same of a graph that is elsewhere. live: (slots,) bool.  edges: how many, for "fennel"."""
        return cls._begun(parts, live, rule, slack, edges / max(int(np.count_nonzero(live)), 1))

    def continued(self, parts: VertexParts, live: BoolArray) -> Newcomers:
        """The same rule, from other parts on. live: (slots,) bool, of the graph as it is. Raises: UsageError."""
        return self._begun(parts, live, self.rule, self.slack, self._edges_per_vertex)

    @classmethod
    def _begun(cls, parts: VertexParts, live: BoolArray, rule: NewcomerRule, slack: float, density: float) -> Self:
        if rule != "hash" and parts.slot_count < len(live):
            parts.append(parts.lookup(np.arange(parts.slot_count, len(live))))
        counts = np.bincount(parts.lookup(np.flatnonzero(live)), minlength=parts.parts)
        offsets = int(counts.sum()) // parts.parts - counts
        return cls(parts, counts, offsets, rule=rule, slack=slack, edges_per_vertex=density)

    @property
    def live(self) -> Int64Array:
        """Live vertices of each part, (parts,)."""
        return self._live.copy()

    def choose(self, batch: _native.UpdateBuffer | Mapping[str, AnyArray]) -> Placement:
        """Where the vertices go that a batch adds; changes nothing.

        Args:    batch: as the store gets it, or its columns kind, u and v.
        Raises:  UsageError for new slots that leave some out.
        """
        columns = batch if isinstance(batch, Mapping) else batch.to_arrays()
        kind, u, v = columns["kind"], columns["u"], columns["v"]
        added, removed = u[kind == _ADD_VERTEX], u[kind == _REMOVE_VERTEX]
        first = self.parts.slot_count
        if self.rule == "hash":
            chosen = np.zeros(0, np.uint16)
        else:
            count = self._new_slots(added, first)
            edges = (kind == _ADD_EDGE) & ((u >= first) | (v >= first))
            chosen = self._place(first, count, u[edges], v[edges])
        placement = Placement(first, chosen, np.zeros(self.parts.parts, np.int64))
        return placement._replace(change=self._count(added, placement) - self._count(removed, placement))

    def nothing(self) -> Placement:
        """What choose() gives for a batch that adds and removes none."""
        return Placement(self.parts.slot_count, np.zeros(0, np.uint16), np.zeros(self.parts.parts, np.int64))

    def lookup(self, slots: Int64Array, placement: Placement) -> Uint16Array:
        """The part of each slot as it will be once the placement is accepted, (k,) uint16."""
        parts = self.parts.lookup(slots)
        new = (slots >= placement.first_slot) & (slots < placement.first_slot + len(placement.parts))
        parts[new] = placement.parts[slots[new] - placement.first_slot]
        return parts

    def accept(self, placement: Placement) -> None:
        """The batch stands. Raises: UsageError for a placement of another state."""
        if placement.first_slot != self.parts.slot_count:
            raise UsageError(
                f"[accept] expected a placement from slot {self.parts.slot_count} on, got one from "
                f"{placement.first_slot}; accept each batch once, in order"
            )
        self.parts.append(placement.parts)
        self._live += placement.change

    def follow(self, batch: _native.UpdateBuffer | Mapping[str, AnyArray]) -> Placement:
        """choose() and accept()."""
        placement = self.choose(batch)
        self.accept(placement)
        return placement

    def to_arrays(self) -> dict[str, AnyArray]:
        """The whole state, parts included, for snapshots."""
        arrays = {f"parts.{name}": array for name, array in self.parts.to_arrays().items()}
        numbers = np.array([get_args(NewcomerRule).index(self.rule), self.slack, self._edges_per_vertex])
        return arrays | {"live": self._live.copy(), "offsets": self._offsets.copy(), "numbers": numbers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """What to_arrays() described. Raises: StoredStateInvalid."""
        own = {name.removeprefix("parts."): array for name, array in arrays.items() if name.startswith("parts.")}
        parts = VertexParts.from_arrays(own)
        try:
            rule, slack, edges_per_vertex = arrays["numbers"].tolist()
            named: NewcomerRule = get_args(NewcomerRule)[int(rule)]
            return cls(
                parts,
                arrays["live"],
                arrays["offsets"],
                rule=named,
                slack=slack,
                edges_per_vertex=edges_per_vertex,
            )
        except (KeyError, IndexError, ValueError, UsageError) as cause:
            raise StoredStateInvalid(
                "[from_arrays] expected what Newcomers.to_arrays() gave, got other arrays; save the state again"
            ) from cause

    def _new_slots(self, added: Int64Array, first: int) -> int:
        """How many slots the batch brings. Raises: UsageError where they do not follow each other."""
        new = added[added >= first]
        if not len(new):
            return 0
        slots, places = np.unique(new, return_index=True)
        if slots[-1] != first + len(slots) - 1 or (np.diff(places) < 0).any():
            raise UsageError(
                f"[choose] expected new slots in order from {first}, got {new[:5].tolist()}; give every batch, in order"
            )
        return len(slots)

    def _place(self, first: int, count: int, u: Int64Array, v: Int64Array) -> Uint16Array:
        """The parts of `count` new slots, by their edges."""
        if not count:
            return np.zeros(0, np.uint16)
        ends = np.concatenate([u, v])
        others = np.unique(ends[ends < first])
        local = np.where(ends >= first, ends - first, count + np.searchsorted(others, ends))
        lists = _native.undirected_lists(local[: len(u)], local[len(u) :], count + len(others))
        options = _native.StreamOptions(
            rule=_RULES[self.rule], slack=self.slack, edges_per_load=self._edges_per_vertex, expected=0
        )
        parts = np.concatenate([np.full(count, _native.NO_PART, np.uint16), self.parts.lookup(others)])
        loads = np.maximum(self._live + self._offsets, 0)
        order, ones = np.arange(count, dtype=np.int32), np.zeros(0, np.int64)
        placed: Uint16Array = _native.place_vertices(options, lists, order, ones, parts, loads)[0]
        return placed[:count]

    def _count(self, slots: Int64Array, placement: Placement) -> Int64Array:
        """How many of the slots are of each part."""
        counts = np.bincount(self.lookup(slots, placement), minlength=self.parts.parts)
        return counts.astype(np.int64, copy=False)
