"""Long batches, which are written as runs, under open pins and a feed: each reads what it would of a plain copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import VertexUnknown
from livegnn.temporal import PinnedSampler, TemporalSampler
from livegnn.temporal.events import EventFeed, Events
from tests.unit.temporal.past import as_lists

_STEPS = 6


@dataclass
class World:
    """A random graph, its history, and pins each with a copy of the graph made when it was opened."""

    rng: np.random.Generator
    kind: type[lg.Graph]
    undirected: bool
    columns: bool
    pins: list[tuple[PinnedSampler, TemporalSampler]] = field(default_factory=list)

    def __post_init__(self) -> None:
        vertices, edges = int(self.rng.integers(3, 40)), int(self.rng.integers(0, 600))
        self.times = int(self.rng.choice([5, 100, 10**6]))
        src, dst = self.rng.integers(0, vertices, (2, edges))
        dst = np.minimum(dst, self.rng.integers(0, vertices, edges))  # some long lists
        self.graph = self.kind(
            self.rng.random((vertices, 3), np.float32),
            src,
            dst,
            time=self.rng.integers(0, self.times, edges),
            undirected=self.undirected,
            **self.more(edges),
        )

    def more(self, count: int) -> dict[str, Any]:
        """Columns beside times."""
        if not self.columns:
            return {}
        return {"weight": self.rng.random(count, np.float32), "edge_attr": self.rng.random((count, 2), np.float32)}

    def copy(self) -> lg.Graph:
        return self.kind.from_arrays(self.graph.to_arrays())

    def options(self) -> dict[str, Any]:
        window = None if self.rng.random() < 0.5 else int(self.rng.integers(1, self.times + 1))
        return {
            "fanouts": [int(self.rng.choice([-1, 1, 3, 10])), 3],
            "strategy": str(self.rng.choice(["recent", "uniform"])),
            "inclusive": bool(self.rng.integers(2)),
            "window": window,
            "seed": int(self.rng.integers(100)),
        }

    def pin(self) -> None:
        options = self.options()
        pin = TemporalSampler(self.graph, threads=int(self.rng.integers(1, 3)), **options).pin()
        self.pins.append((pin.__enter__(), TemporalSampler(self.copy(), **options)))

    def add(self, updates: lg.Updates, count: int, late: bool) -> None:
        """Between vertices that are live before the batch; few destinations."""
        live = self.graph.vertices()
        times = self.rng.integers(0, self.times, count)
        if not late:
            times = np.sort(times) + self.times
        src, dst = self.rng.choice(live, count), self.rng.choice(live[: max(1, len(live) // 3)], count)
        updates.add_edges(src, dst, time=times, **self.more(count))

    def batch(self) -> lg.Updates:
        """Runs with removals, expiry and vertices that are made anew between them."""
        updates = lg.Updates()
        for kind in self.rng.integers(0, 6, self.rng.integers(1, 5)).tolist():
            if kind < 3:
                self.add(updates, int(self.rng.integers(256, 1200)) if kind < 2 else 12, late=kind > 0)
            elif kind == 3:
                edges = self.graph.edges()
                for at in self.rng.permutation(len(edges["id"]))[: self.rng.integers(0, 300)].tolist():
                    updates.remove_edge(int(edges["src"][at]), int(edges["dst"][at]), missing="ignore")
            elif kind == 4:
                updates.remove_edges_before(int(self.rng.integers(0, self.times)))
            else:
                v = int(self.rng.choice(self.graph.vertices()))
                updates.remove_vertex(v)
                updates.add_vertex(v, self.rng.random(3, np.float32))
        return updates

    def check_pins(self) -> None:
        for pin, copied in self.pins:
            vertices = copied.graph.vertices()
            times = self.rng.integers(-1, 3 * self.times, len(vertices))
            got, expected = pin.sample(vertices, times), copied.sample(vertices, times)
            assert [as_lists(hop) for hop in got] == [as_lists(hop) for hop in expected]
            assert np.array_equal(pin.features(vertices), copied.graph.features(vertices))
            edges = copied.graph.edges()
            if self.columns and len(edges["id"]):
                assert np.array_equal(pin.edge_attrs(edges["id"]), edges["attr"])

    def check_tables(self) -> None:
        """Tables of hubs that were kept through the batches find what those of a fresh graph find."""
        options = self.options()
        vertices = self.rng.choice(self.graph.vertices(), 300)
        times = self.rng.integers(-1, 3 * self.times, 300)
        kept = TemporalSampler(self.graph, threads=2, **options).sample(vertices, times)
        fresh = TemporalSampler(self.copy(), **options).sample(vertices, times)
        assert [as_lists(hop) for hop in kept] == [as_lists(hop) for hop in fresh]


def by_id(events: Events, undirected: bool) -> dict[int, tuple[int, int, int]]:
    """Ends and time of each event."""
    rows = {}
    for src, dst, time, edge in zip(*(column.tolist() for column in events.columns()[:4]), strict=True):
        rows[edge] = (min(src, dst), max(src, dst), time) if undirected else (src, dst, time)
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_long_batches_under_pins_and_a_feed(seed: int) -> None:
    class Small(lg.Graph):
        _block_edges_max = (2, 4, 16, 128)[seed % 4]

    world = World(np.random.default_rng(seed), Small, undirected=seed % 2 == 1, columns=seed % 3 == 0)
    graph, rng = world.graph, world.rng
    feed, known = EventFeed(graph), by_id(Events.of(graph), graph.undirected)
    for step in range(_STEPS):
        if len(world.pins) < 3:
            world.pin()
        updates = world.batch()
        if step == 2:
            world.add(updates, 300, late=True)
            updates.add_edge(10**6, 0, time=3, **{key: row[0] for key, row in world.more(1).items()})
            before = graph.digest()
            with pytest.raises(VertexUnknown):
                graph.apply(updates)
            assert graph.digest() == before
        else:
            graph.apply(updates)
        graph.host.store.check_invariants()
        world.check_pins()
        world.check_tables()
        if rng.random() < 0.5 or step == _STEPS - 1:
            arrived = feed.take()
            for edge in arrived.removed.tolist():
                del known[edge]
            known |= by_id(arrived.events, graph.undirected)
            assert known == by_id(Events.of(graph), graph.undirected)
        if rng.random() < 0.3:
            world.pins.pop(0)[0].__exit__(None, None, None)
    for pin, _ in world.pins:
        pin.__exit__(None, None, None)


@pytest.mark.parametrize("strategy", ["recent", "uniform"])
def test_many_targets_on_one_list_that_has_changed(strategy: Any) -> None:
    """What the pin holds is what changed, however many look at it."""
    rng = np.random.default_rng(1)
    count = 20_000
    src, times = rng.integers(0, 50, count), rng.integers(0, 1000, count)
    graph = lg.Graph(np.zeros((50, 0), np.float32), src, np.zeros(count, np.int64), time=times)
    options = {"fanouts": [10], "strategy": strategy, "seed": 4}
    copied = TemporalSampler(lg.Graph.from_arrays(graph.to_arrays()), **options)
    with TemporalSampler(graph, **options).pin() as pin:
        updates = lg.Updates()
        updates.remove_edges(src[:6000], np.zeros(6000, np.int64))
        graph.apply(updates)
        updates = lg.Updates()
        updates.add_edges(src[:6000], np.zeros(6000, np.int64), time=times[:6000])
        graph.apply(updates)
        held = pin.bytes
        targets, at = np.zeros(2000, np.int64), rng.integers(0, 1100, 2000)
        assert as_lists(pin.sample(targets, at)[0]) == as_lists(copied.sample(targets, at)[0])
        assert pin.bytes == held < 6000 * 100


def test_a_pin_forgets_edges_that_came_and_went() -> None:
    rng = np.random.default_rng(2)
    graph = lg.Graph(np.zeros((50, 0), np.float32), [0], [1], time=[0])
    sizes = []
    with TemporalSampler(graph, [3]).pin() as pin:
        for time in range(1, 301):
            updates = lg.Updates()
            updates.add_edges(rng.integers(0, 50, 40), rng.integers(0, 50, 40), time=np.full(40, time))
            graph.apply(updates)
            updates = lg.Updates()
            updates.remove_edges_before(time + 1)
            graph.apply(updates)
            sizes.append(pin.bytes)
        assert pin.sample([1], [9])[0].edge_ids.tolist() == [0]
    assert max(sizes[100:]) < 1.5 * max(sizes[:100])  # three times as much would be kept
