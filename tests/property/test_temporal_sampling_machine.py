"""Temporal samples over any history equal their definition; those of a pin, that of a copy made when it was opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import livegnn as lg
from livegnn.errors import UsageError, VertexUnknown
from livegnn.temporal import PinnedSampler, TemporalSampler
from tests.unit.temporal.past import FIELDS, check

_PINS_MAX = 3


class _TinyBlocks(lg.Graph):
    _block_edges_max = 2  # lists of three edges are chains


class TemporalSamplingMachine(RuleBasedStateMachine):
    """A graph that changes, and pins with copies made beside them; edge ids are kept by the copies."""

    @initialize(
        rng=st.integers(0, 2**32),
        undirected=st.booleans(),
        tiny_blocks=st.booleans(),
        names=st.booleans(),
        data=st.data(),
    )
    def start(self, rng: int, undirected: bool, tiny_blocks: bool, names: bool, data: Any) -> None:
        self.rng = np.random.default_rng(rng)
        self.names = names and data.draw(st.booleans())
        count = int(self.rng.integers(2, 8))
        self.kind = _TinyBlocks if tiny_blocks else lg.Graph
        src, dst = self.rng.integers(0, count, (2, int(self.rng.integers(0, 60))))
        self.next_name = 100 + count
        given: dict[str, Any] = {"undirected": undirected, "time": self.rng.integers(0, 15, len(src))}
        if self.names:
            given["ids"] = np.arange(100, 100 + count)
            src, dst = src + 100, dst + 100
        self.graph = self.kind(self.rng.random((count, 2)).astype(np.float32), src, dst, **given)
        self.pins: list[tuple[PinnedSampler, TemporalSampler, TemporalSampler]] = []

    def _live(self) -> list[int]:
        return [int(v) for v in self.graph.vertices()]

    def _sampler(self, graph: lg.Graph, data: Any) -> TemporalSampler:
        strategy = data.draw(st.sampled_from(["recent", "uniform"]))
        window = data.draw(st.sampled_from([None, 1, 4, 30]))
        return TemporalSampler(
            graph,
            data.draw(st.lists(st.sampled_from([1, 2, 3, -1]), min_size=1, max_size=2)),
            strategy,
            data.draw(st.booleans()),
            window,
            data.draw(st.integers(0, 2**64 - 1)),
            prop_time=data.draw(st.booleans()),
            replace=strategy == "uniform" and data.draw(st.booleans()),
            unique=data.draw(st.booleans()),
            snapshots=1 if window is None else data.draw(st.integers(1, 2)),
        )

    # ---- the graph changes

    @rule(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6))
    def change(self, sizes: list[int]) -> None:
        """Additions, late ones too, removals as common, features, vertices that come and go, in one batch."""
        updates = lg.Updates()
        live, edges = self._live(), self.graph.edges()
        gone: set[int] = set()
        for kind in sizes:
            there = [v for v in live if v not in gone]
            if kind <= 1 and there:
                u, v = self.rng.choice(there, 2)
                updates.add_edge(int(u), int(v), time=int(self.rng.integers(0, 18)))
            elif kind == 2 and len(edges["id"]):
                at = int(self.rng.integers(len(edges["id"])))
                ends = int(edges["src"][at]), int(edges["dst"][at])
                updates.remove_edge(*ends, missing="ignore") if gone.isdisjoint(ends) else None
            elif kind == 3 and there:
                updates.set_features(int(self.rng.choice(there)), self.rng.random(2).astype(np.float32))
            elif kind == 4 and len(there) > 1:
                v = int(self.rng.choice(there))
                gone.add(v)
                updates.remove_vertex(v)
            elif kind == 5:
                free = [v for v in range(self.graph.slot_count) if v not in live]
                v = free[0] if free else self.graph.slot_count
                if self.names:
                    v, self.next_name = self.next_name, self.next_name + 1
                updates.add_vertex(v, self.rng.random(2).astype(np.float32))
                self.graph.apply(updates)
                updates = lg.Updates()
                live, edges = self._live(), self.graph.edges()
                gone = set()
        self.graph.apply(updates)

    @rule(before=st.integers(0, 18))
    def expire(self, before: int) -> None:
        updates = lg.Updates()
        updates.remove_edges_before(before)
        self.graph.apply(updates)

    # ---- pins

    @precondition(lambda self: len(self.pins) < _PINS_MAX)
    @rule(data=st.data())
    def pin(self, data: Any) -> None:
        sampler = self._sampler(self.graph, data)
        pinned = sampler.pin().__enter__()
        copied = TemporalSampler(
            self.kind.from_arrays(self.graph.to_arrays()),
            sampler.fanouts,
            sampler.strategy,
            sampler.inclusive,
            sampler.window,
            sampler.seed,
            prop_time=sampler.prop_time,
            replace=sampler.replace,
            unique=sampler.unique,
            snapshots=sampler.snapshots,
        )
        self.pins.append((pinned, sampler, copied))

    @precondition(lambda self: self.pins)
    @rule(which=st.integers(0, _PINS_MAX - 1))
    def unpin(self, which: int) -> None:
        pinned, sampler, _ = self.pins.pop(which % len(self.pins))
        followers = len(self.graph.host._followers)
        pinned.__exit__(None, None, None)
        assert len(self.graph.host._followers) == followers - 1
        with pytest.raises(UsageError, match="inside its with block"):
            pinned.sample([], []) if sampler.snapshots == 1 else pinned.sample_snapshots([], [])

    # ---- what must hold

    @rule(data=st.data())
    def as_defined(self, data: Any) -> None:
        if self.names:
            return  # the definition counts in slots
        sampler = self._sampler(self.graph, data)
        count = int(self.rng.integers(0, 4))
        check(sampler, self.rng.choice(self._live(), count), self.rng.integers(-1, 20, count))

    @invariant()
    def pinned_as_copied(self) -> None:
        for pinned, sampler, copied in getattr(self, "pins", []):
            vertices = copied.graph.vertices()
            times = self.rng.integers(-1, 20, len(vertices))
            assert copied.calls == sampler.calls
            found = pinned.sample_snapshots(vertices, times)
            for got, want in zip(found, copied.sample_snapshots(vertices, times), strict=True):
                for mine, theirs in zip(got, want, strict=True):
                    for name in FIELDS:
                        assert getattr(mine, name).tolist() == getattr(theirs, name).tolist(), name
                rows = got[-1].next_targets
                assert pinned.features_of_slots(rows).tolist() == copied.graph.host.store.features(rows).tolist()
                assert pinned.to_external(rows).tolist() == copied.graph.to_external(rows).tolist()
            assert pinned.features(vertices).tolist() == copied.graph.features().tolist()
            self._same_walks(pinned, copied, vertices, times)
            newer = [v for v in self._live() if v not in copied.graph]
            for v in newer:
                with pytest.raises(VertexUnknown):
                    pinned.sample_snapshots([v], [1])
                with pytest.raises(VertexUnknown):
                    pinned.features([v])

    def _same_walks(self, pinned: PinnedSampler, copied: TemporalSampler, vertices: Any, times: Any) -> None:
        if copied.snapshots > 1:
            return
        for got, want in zip(pinned.walks(vertices, times, 3), copied.walks(vertices, times, 3), strict=True):
            assert got.tolist() == want.tolist()

    def teardown(self) -> None:
        for pinned, _, _ in getattr(self, "pins", []):
            pinned.__exit__(None, None, None)


TestTemporalSamplingMachine = TemporalSamplingMachine.TestCase
TestTemporalSamplingMachine.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
