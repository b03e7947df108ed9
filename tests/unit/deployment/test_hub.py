"""The hub against an oracle: all rows of each version compared with those of the version before."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment.config import ChangesConfig
from livegnn.deployment.filters import ChangeFilter, ChangeTable
from livegnn.deployment.hub import Hub
from livegnn.errors import UsageError, ValueInvalid
from tests.unit.deployment.world import deployment, edge, model, prepared

KINDS = ("dense", "integer", "text", "typed")


class World:
    """A graph of one kind, and random batches on it that know which vertices are live."""

    def __init__(self, kind, seed=0, width=3):
        self.rng = np.random.default_rng(seed)
        self.kind, self.live, self.next = kind, [], 30
        rng = self.rng
        self.vertex_type = "b" if kind == "typed" else None
        x = rng.normal(size=(30, 4)).astype(np.float32)
        src, dst = rng.integers(0, 30, 60), rng.integers(0, 30, 60)
        first = [self.name(i) for i in range(30)]
        self.live = list(first)
        weights = [lg.layers.GCN(rng.normal(size=(5, 4)), np.zeros(5), activation="relu")]
        weights.append(lg.layers.SAGE(rng.normal(size=(width, 5)), rng.normal(size=(width, 5))))
        self.model = lg.Model(weights)
        if kind == "typed":
            torch = pytest.importorskip("torch")
            from torch_geometric.nn import HeteroConv, SAGEConv

            torch.manual_seed(seed)

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = HeteroConv(
                        {("a", "to", "b"): SAGEConv((4, 4), width), ("b", "to", "a"): SAGEConv((4, 4), 5)}
                    )

                def forward(self, x_dict, edge_index_dict):
                    return self.conv(x_dict, edge_index_dict)

            self.model = lg.from_pyg(Net().eval())
            edges = {("a", "to", "b"): (src, dst), ("b", "to", "a"): (dst, src)}
            self.graph = lg.Graph(
                {"a": x, "b": x}, {k: e[0] for k, e in edges.items()}, {k: e[1] for k, e in edges.items()}
            )
        else:
            ids = None if kind == "dense" else np.array(first, object if kind == "text" else np.int64)
            src, dst = ((each if ids is None else ids[each]) for each in (src, dst))
            self.graph = lg.Graph(x, src, dst, ids=ids)
        self.engine = lg.Engine(self.model, self.graph, name="scores")

    def name(self, i):
        return {"integer": 1000 + 7 * i, "text": f"v,{i}"}.get(self.kind, i)

    def batch(self):
        updates, rng = lg.Updates(), self.rng
        of_type = {} if self.vertex_type is None else {"vertex_type": self.vertex_type}
        for _ in range(int(rng.integers(1, 5))):
            u, v = (self.live[i] for i in rng.integers(0, len(self.live), 2))
            if self.vertex_type is not None:
                updates.add_edge(int(rng.integers(0, 30)), v, edge_type=("a", "to", "b"))
            else:
                updates.add_edge(u, v)
            updates.set_features(v, rng.normal(size=4).astype(np.float32), **of_type)
        roll = rng.random()
        if roll < 0.3:
            vertex = self.live.pop(int(rng.integers(0, len(self.live))))
            updates.remove_vertex(vertex, **of_type)
            if roll < 0.1:  # and back again
                updates.add_vertex(vertex, rng.normal(size=4).astype(np.float32), **of_type)
                self.live.append(vertex)
        elif roll < 0.6:
            vertex, self.next = self.name(self.next), self.next + 1
            updates.add_vertex(vertex, rng.normal(size=4).astype(np.float32), **of_type)
            if roll < 0.35:  # and away again
                updates.remove_vertex(vertex, **of_type)
            else:
                self.live.append(vertex)
        return updates

    def rows(self):
        """Of all live vertices, by id."""
        return dict(zip(self.live, self.engine.embeddings(self.live, vertex_type=self.vertex_type), strict=True))


def expected(before, after, wanted):
    """What a filter lets through, vertex by vertex, from rows before and after."""
    found = {}
    for vertex in before.keys() | after.keys():
        pair = before.get(vertex), after.get(vertex)
        if pair[0] is not None and pair[1] is not None and (pair[0] == pair[1]).all():
            continue
        if wanted.ids is not None and vertex not in wanted.ids:
            continue
        values = [value_of(row, wanted) for row in pair]
        classes = [None if row is None else class_of(row) for row in pair]
        if wanted.flips and classes[0] == classes[1]:
            continue
        gap = np.inf if None in values else float(np.abs(pair[1] - pair[0]).max())
        if wanted.min_change is not None and gap < wanted.min_change:
            continue
        crossed = [
            (value is not None and value >= (wanted.above or np.inf), value is not None and value >= below(wanted))
            for value in values
        ]
        rises = wanted.above is not None and crossed[1][0] and not crossed[0][0]
        falls = wanted.below is not None and crossed[0][1] and not crossed[1][1]
        if (wanted.above is not None or wanted.below is not None) and not (rises or falls):
            continue
        found[vertex] = tuple(values)
    return found


def below(wanted):
    return np.inf if wanted.below is None else wanted.below


def class_of(row):
    return int(row.argmax()) if len(row) > 1 else bool(row[0] >= 0)


def value_of(row, wanted):
    if row is None:
        return None
    if wanted.column is not None:
        return float(row[wanted.column])
    if len(row) == 1:
        return float(1 / (1 + np.exp(-np.float64(row[0]))))
    if wanted.of_class is None:
        return int(row.argmax())
    e = np.exp(np.float64(row) - row.max())
    return float(e[wanted.of_class] / e.sum())


def filters(world, engine="scores"):
    of = {"engine": engine, "vertex_type": world.vertex_type}
    wide = world.model.output_width > 1
    yield ChangeFilter(**of)
    yield ChangeFilter(**of, ids=tuple(map(world.name, (1, 2, 3, 31))))
    yield ChangeFilter(**of, flips=True)
    yield ChangeFilter(**of, min_change=0.5)
    yield ChangeFilter(**of, above=0.3, **({"of_class": 1} if wide else {}))
    yield ChangeFilter(**of, above=0.6, below=0.4, **({"column": 2} if wide else {}))
    yield ChangeFilter(**of, below=0.2, column=0, ids=tuple(map(world.name, range(0, 30, 2))))


def same(found, promised):
    assert found.keys() == promised.keys()
    for vertex, pair in promised.items():
        for got, wanted in zip(found[vertex], pair, strict=True):
            assert (got is None) == (wanted is None)
            assert wanted is None or np.isclose(got, wanted, rtol=1e-6, atol=1e-7)


def hub_of(world, **config):
    return Hub({"scores": world.engine}, lambda name: "fraud/1", ChangesConfig(**config))


@pytest.mark.parametrize(("kind", "width"), [*((kind, 3) for kind in KINDS), ("dense", 1)])
def test_filters_let_through_what_full_predictions_say(kind, width):
    world = World(kind, width=width)
    hub = hub_of(world)
    wanted = list(filters(world))
    history = [world.rows()]
    with hub.follow(wanted[0]) as follow:
        for _ in range(60):
            world.engine.apply(world.batch())
            history.append(world.rows())
        span = follow.since(0)
        assert (span.floor, span.reached) == (0, 60)
    seen = 0
    for one in wanted:
        found = {version: {} for version in range(1, 61)}
        table = ChangeTable(span.versions, world.vertex_type, one.output)
        places = table.places(one)
        of_version = np.searchsorted(table.ends, places, side="right")
        for place, change in zip(of_version, table.changes(one, places), strict=True):
            found[table.versions[place].version][change[0]] = change[1:]
        for version, got in found.items():
            same(got, expected(history[version - 1], history[version], one))
            seen += len(got)
    assert seen > 200
    assert any(each is None for change in table.changes(wanted[0], table.places(wanted[0])) for each in change)
    hub.close()


def test_nothing_is_read_while_nobody_follows(monkeypatch):
    world = World("dense")
    hub = hub_of(world, idle_s=0)
    opened = []
    snapshot = world.engine.snapshot
    monkeypatch.setattr(world.engine, "snapshot", lambda: opened.append(1) or snapshot())
    world.engine.apply(world.batch())
    assert (opened, hub.size) == ([], (0, 0))
    with hub.follow(ChangeFilter("scores")) as follow:
        world.engine.apply(world.batch())
        assert (follow.since(0).floor, follow.head) == (1, 2)
        assert len(opened) == 2
    world.engine.apply(world.batch())  # ends the recording
    world.engine.apply(world.batch())
    assert (len(opened), hub.size) == (2, (0, 0))


def test_versions_stay_for_one_that_comes_back_in_time():
    world = World("dense")
    hub = hub_of(world)
    hub.follow(ChangeFilter("scores")).close()
    world.engine.apply(world.batch())
    with hub.follow(ChangeFilter("scores")) as follow:
        span = follow.since(0)
        assert (span.floor, span.reached, [each.version for each in span.versions]) == (0, 1, [1])
    hub.close()


@pytest.mark.parametrize("bound", [{"keep_versions": 3}, {"keep_bytes": 6000}])
def test_the_ring_is_bounded_and_says_from_where_it_knows(bound):
    world = World("dense")
    hub = hub_of(world, **bound)
    with hub.follow(ChangeFilter("scores")) as follow:
        for _ in range(20):
            world.engine.apply(world.batch())
        span = follow.since(2)
        assert span.reason == "ring"
        assert 2 < span.floor < 20 == span.reached
        assert [each.version for each in span.versions] == list(range(span.floor + 1, 21))
        assert hub.size[0] <= 3 or hub.size[1] <= 6000
    hub.close()


def test_a_version_that_the_ring_cannot_hold_is_missed_and_not_read():
    world = World("dense")
    hub = hub_of(world, keep_bytes=1)
    with hub.follow(ChangeFilter("scores")) as follow:
        world.engine.apply(world.batch())
        assert follow.since(0) == ([], 1, "size", 1)
    hub.close()


def test_pieces_of_the_ring_join_without_a_gap():
    world = World("dense")
    hub = hub_of(world)
    with hub.follow(ChangeFilter("scores")) as follow:
        for _ in range(20):
            world.engine.apply(world.batch())
        at, versions = 0, []
        while at < 20:
            span = follow.ring.since(at, rows_max=1)
            versions += [each.version for each in span.versions]
            at = span.reached
        assert versions == list(range(1, 21))
        assert follow.since(3, upto=5).reached == 5
    hub.close()


def test_a_swap_and_a_rescale_ask_to_read_everything_again(tmp_path):
    place = prepared(tmp_path)
    with deployment(place) as open_one:
        open_one.registry.add("fraud", model(3))
        with open_one.hub.follow(ChangeFilter("scores")) as follow:
            open_one.apply(edge(1, 2))
            swapped = open_one.swap("scores", "fraud/2").version
            assert follow.since(1) == ([], swapped, "model", swapped)
            open_one.apply(edge(2, 3))
            assert [each.reference for each in follow.since(swapped).versions] == ["fraud/2"]
            rescaled = open_one.rescale("scores").version
            assert follow.since(swapped).floor == rescaled


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "other"}, "engine among scores"),
        ({"column": 3}, "column from 0 to 2, got 3"),
        ({"of_class": -1}, "class from 0 to 2"),
        ({"column": 1, "of_class": 1}, "got both"),
        ({"above": 0.5}, "column or class with a threshold"),
        ({"above": float("nan"), "column": 0}, "finite"),
    ],
)
def test_bad_filters_are_refused(wrong, message):
    hub = hub_of(World("dense"))
    with pytest.raises((UsageError, ValueInvalid), match=message):
        hub.follow(ChangeFilter(**{"engine": "scores", **wrong}))
    assert hub.size == (0, 0)


def test_an_engine_on_demand_is_refused():
    world = World("dense")
    lazy = lg.Engine(world.model, world.graph, mode="on_demand", name="lazy")
    with pytest.raises(UsageError, match="expected an eager engine"):
        Hub({"lazy": lazy}, str, ChangesConfig()).follow(ChangeFilter("lazy"))
