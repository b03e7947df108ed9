"""Parts of newcomers over random streams of batches: a graph and its batches as its store gets them.

After every batch: the parts are those of a plain reading of the rules, the live vertices of each part those of a count
from scratch, and slots that had a part keep it. At the end: the same batches, followed by workers that stop anywhere,
save their state and go on, or that only choose() twice before they accept, give the same parts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import livegnn as lg
from livegnn import _native
from livegnn.distributed import Newcomers, VertexParts, hashed
from livegnn.graph.consumers import Consumer

ADD_EDGE, ADD_VERTEX, REMOVE_VERTEX = (
    _native.UpdateKind.AddEdge.value,
    _native.UpdateKind.AddVertex.value,
    _native.UpdateKind.RemoveVertex.value,
)


class Tap(Consumer):
    """The batches of a graph, with slots."""

    def __init__(self, graph: lg.Graph) -> None:
        self.follower = _native.BatchTap([])
        graph.host.attach(self)

    def published(self, change: Any, version: int) -> None:
        pass


class Plain:
    """The rules as newcomers.py and streaming.py write them down, vertex by vertex."""

    def __init__(self, newcomers: Newcomers, edges: int) -> None:
        self.rule, self.slack = newcomers.rule, newcomers.slack
        self.of = newcomers.parts.of.tolist()
        self.live = newcomers.live.tolist()
        count, total = len(self.live), sum(self.live)
        self.start = [total // count - live for live in self.live]
        self.degree = edges / max(total, 1)

    def follow(self, columns: dict[str, Any]) -> None:
        updates = list(zip(*(columns[name].tolist() for name in ("kind", "u", "v")), strict=True))
        edges = [(u, v) for kind, u, v in updates if kind == ADD_EDGE and u != v]
        loads = [max(0, live + start) for live, start in zip(self.live, self.start, strict=True)]
        for kind, slot, _ in updates:
            if kind == ADD_VERTEX and slot == len(self.of):
                near = [v if u == slot else u for u, v in edges if slot in (u, v)]
                part = self.best([self.of[each] for each in near if each < slot], loads)
                self.of.append(part)
                loads[part] += 1
        for kind, slot, _ in updates:
            if kind in (ADD_VERTEX, REMOVE_VERTEX):
                self.live[self.of[slot]] += 1 if kind == ADD_VERTEX else -1

    def best(self, near: list[int], loads: list[int]) -> int:
        share = (sum(loads) + 1) / len(loads)
        capacity = math.ceil((1 + self.slack) * share)

        def rank(part: int) -> tuple[float, int, int]:
            count, load = near.count(part), loads[part]
            score = (
                count * (capacity - load) if self.rule == "ldg" else count - 1.5 * self.degree * math.sqrt(load / share)
            )
            return (-score, load, part)

        return min((part for part in range(len(loads)) if loads[part] < capacity), key=rank)


class NewcomersMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**16),
        parts=st.integers(1, 5),
        rule=st.sampled_from(["ldg", "fennel"]),
        slack=st.sampled_from([0.0, 0.1, 1.0]),
        vertices=st.integers(0, 12),
        ids=st.sampled_from(["slots", "text"]),
        undirected=st.booleans(),
    )
    def begin(self, seed, parts, rule, slack, vertices, ids, undirected):
        self.rng = np.random.default_rng(seed)
        src, dst = self.rng.integers(0, max(vertices, 1), (2, 2 * vertices))
        self.named = ids == "text"
        named = [f"v{v}" for v in range(vertices)] if self.named else None
        name = [f"v{v}" for v in range(max(vertices, 1))] if self.named else np.arange(max(vertices, 1))
        x = np.zeros((vertices, 1), np.float32)
        src, dst = [[name[end] for end in ends] for ends in (src, dst)]
        empty = np.zeros(0, np.int64)
        ends = (
            (src, dst)
            if vertices
            else ((np.array([], np.str_), np.array([], np.str_)) if self.named else (empty, empty))
        )
        if self.named and not vertices:
            named = np.array([], np.str_)
        self.graph = lg.Graph(x, *ends, ids=named, undirected=undirected)
        self.tap = Tap(self.graph)
        self.newcomers = Newcomers.of(self.graph, hashed(parts), rule=rule, slack=slack)
        self.first = self.newcomers.to_arrays()
        edges = sum(u != v for u, v in zip(src, dst, strict=True)) if vertices else 0
        self.plain = Plain(self.newcomers, edges)
        self.live = list(self.graph.vertices().tolist())
        self.fresh, self.gone = vertices, []
        self.batches = []

    @rule(ops=st.lists(st.sampled_from(["add", "edge", "edge", "edge", "remove", "again", "brief"]), max_size=12))
    def batch(self, ops):
        updates = lg.Updates()
        live, gone, fresh = list(self.live), list(self.gone), self.fresh
        for op in ops:
            if op in ("add", "brief"):
                name = f"v{fresh}" if self.named else fresh
                updates.add_vertex(name, [0.0])
                fresh += 1
                if op == "add":
                    live.append(name)
                else:
                    updates.remove_vertex(name)
                    gone.append(name)
            elif op == "again" and gone:
                live.append(gone.pop(int(self.rng.integers(len(gone)))))
                updates.add_vertex(live[-1], [0.0])
            elif op == "remove" and live:
                gone.append(live.pop(int(self.rng.integers(len(live)))))
                updates.remove_vertex(gone[-1])
            elif op == "edge" and live:
                u, v = (live[int(self.rng.integers(len(live)))] for _ in range(2))
                updates.add_edge(u, v)
        self.graph.apply(updates)
        self.live, self.gone, self.fresh = live, gone, fresh
        columns = self.tap.follower.latest().to_arrays() if len(updates) else None
        if columns is None:
            return
        before = self.newcomers.parts.of.tolist()
        self.batches.append(columns)
        self.newcomers.follow(columns)
        self.plain.follow(columns)
        assert self.newcomers.parts.of.tolist()[: len(before)] == before

    @invariant()
    def parts_are_those_of_the_rules(self):
        if not hasattr(self, "plain"):
            return
        assert self.newcomers.parts.of.tolist() == self.plain.of
        assert self.newcomers.parts.slot_count == self.graph.slot_count
        slots = self.graph.to_slots(self.graph.vertices())
        counted = np.bincount(self.newcomers.parts.lookup(slots), minlength=self.newcomers.parts.parts)
        assert self.newcomers.live.tolist() == counted.tolist() == self.plain.live

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def workers_that_stop_anywhere_agree(self, data):
        other = Newcomers.from_arrays(self.first)
        for columns in self.batches:
            if data.draw(st.booleans()):
                other = Newcomers.from_arrays(other.to_arrays())
            if data.draw(st.booleans()):
                other.choose(columns)
                other.accept(other.choose(columns))
            else:
                other.follow(columns)
        ours, theirs = self.newcomers.to_arrays(), other.to_arrays()
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            assert (array == theirs[name]).all(), name


TestNewcomers = NewcomersMachine.TestCase
TestNewcomers.settings = settings(max_examples=60, stateful_step_count=12)


def test_a_hash_needs_no_table():
    """Newcomers go by their buckets; the table of the start stays as it is."""
    graph = lg.Graph(np.zeros((4, 1), np.float32), [0], [1])
    tap = Tap(graph)
    newcomers = Newcomers.of(graph, VertexParts(3, [0, 1, 2, 0]), rule="hash")
    updates = lg.Updates()
    updates.add_vertices(np.arange(4, 50), np.zeros((46, 1), np.float32))
    updates.remove_vertex(3)
    graph.apply(updates)
    newcomers.follow(tap.follower.latest())
    assert newcomers.parts.slot_count == 4
    slots = graph.vertices()
    assert newcomers.live.tolist() == np.bincount(newcomers.parts.lookup(slots), minlength=3).tolist()
    assert (newcomers.parts.lookup(slots[3:]) == hashed(3).lookup(slots[3:])).all()
