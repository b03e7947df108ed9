"""The temporal rows. Samples are those of the mirror. A training and an engine score as they would on the same graph in
its plainest form, which follows the same stream: no types, ids or weights, all edges in memory, features of 32 bits.
A vertex's row then says which type it is of, and an edge's attributes hold its weight and type.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import livegnn as lg
from livegnn.errors import EdgeOffloaded
from livegnn.graph.ids import SlotPlan
from livegnn.log import UpdateLog, open_log, replay
from livegnn.temporal import TemporalHop
from livegnn.temporal.models import TGN
from tests.composition.world import TRIPLES, TTL, WIDTHS, Edge, Setting, World

BATCHES = 5
FANOUTS = [3, 2]
WINDOW = 30  # ends above the cut of what goes into a file
Vertex = tuple[str, Any]
Target = tuple[Vertex, int]


class Timed(Setting):
    """A column with times on edges, which temporal learning needs."""

    @property
    def has_times(self) -> bool:
        return True


def world_of(setting: Setting, seed: int) -> World:
    return World(Timed(**asdict(setting)), np.random.default_rng(seed))


# ---- TemporalSampler


def past(world: World, target: Target) -> list[int]:
    """Ids of the edges into a vertex before a time, oldest first."""
    (name, vertex), time = target
    mine = [e for e, edge in world.edges.items() if (edge.triple[2], edge.dst) == (name, vertex) and edge.time < time]
    return sorted(mine, key=lambda e: (world.edges[e].time, e))


def check_hop(world: World, graph: lg.Graph, hop: TemporalHop, targets: list[Target], fanout: int) -> list[Target]:
    """Compares a hop with the mirror; the next hop's targets."""
    sources: list[Target] = []
    taken = [e for target in targets for e in past(world, target)[-fanout:]]
    assert hop.edge_ids.tolist() == taken
    edges = [world.edges[e] for e in taken]
    assert hop.times.tolist() == [edge.time for edge in edges]
    assert graph.to_external(hop.src).tolist() == [edge.src for edge in edges]
    assert (hop.weights is None) == (not world.setting.columns)
    if hop.weights is not None:
        assert hop.weights.tolist() == [edge.weight for edge in edges]
    sources = [((edge.triple[0], edge.src), edge.time) for edge in edges]
    if world.setting.typed:
        assert hop.edge_types is not None
        assert hop.next_types is not None
        assert hop.edge_types.tolist() == [world.triples.index(edge.triple) for edge in edges]
        assert hop.next_types.tolist() == [world.types.index(name) for (name, _), _ in targets + sources]
    return targets + sources


def check_data(world: World, data: Any, root: Vertex) -> None:
    """The first row is the root's, and edges have what the mirror's have."""
    name, vertex = root
    store = data[name] if world.setting.typed else data
    assert store.x[0].tolist() == world.rows[name][vertex].tolist()
    for triple in world.triples if world.setting.columns else []:
        store = data[triple] if world.setting.typed else data
        edges = [world.edges[e] for e in store.e_id.tolist()]
        assert store.edge_weight.tolist() == [edge.weight for edge in edges]
        assert store.edge_attr.tolist() == [edge.attr.tolist() for edge in edges]


def check_samples(world: World, graph: lg.Graph, sampler: lg.TemporalSampler) -> int:
    """How many targets were answered: all, unless their past is in a file."""
    answered = 0
    for _ in range(12):
        name = world.types[int(world.rng.integers(len(world.types)))]
        root = (name, world.pick(name))
        time = int(world.rng.integers(world.now // 2, world.now + 2))
        targets = [(root, time)]
        kind = {"vertex_type": name} if world.setting.typed else {}
        try:
            hops = sampler.sample([root[1]], [time], **kind)
        except EdgeOffloaded:
            assert needs_files(world, targets)
            continue
        answered += 1
        for hop, fanout in zip(hops, FANOUTS, strict=True):
            targets = check_hop(world, graph, hop, targets, fanout)
        check_data(world, sampler.to_pyg(hops), root)
    return answered


def needs_files(world: World, targets: list[Target]) -> bool:
    """Whether a past that may reach below the cut lacks edges in memory."""
    for fanout in FANOUTS:
        found = [past(world, target) for target in targets]
        for (vertex, _), edges in zip(targets, found, strict=True):
            in_memory = [e for e in edges if world.edges[e].time >= world.cut]
            away = any((edge.triple[2], edge.dst) == vertex and edge.time < world.cut for edge in world.edges.values())
            if away and len(in_memory) < fanout:
                return True
        taken = [world.edges[e] for edges in found for e in edges[-fanout:]]
        targets = targets + [((edge.triple[0], edge.src), edge.time) for edge in taken]
    return False


def sampler_row(setting: Setting, folder: Path, seed: int) -> None:
    world = world_of(setting, seed)
    graph, begin = world.graph(), world.graph()
    sampler = lg.TemporalSampler(graph, FANOUTS, threads=1)
    log = logged(setting, graph, folder)
    answered = 0
    for number in range(BATCHES):
        if number == 2 and setting.away:
            world.send_away(graph, folder)
        graph.apply(world.batch())
        answered += check_samples(world, graph, sampler)
    assert answered > BATCHES
    if log is not None:
        with log:
            replay(log, begin)
        assert check_samples(world, begin, lg.TemporalSampler(begin, FANOUTS, threads=1)) == 12


def logged(setting: Setting, graph: lg.Graph, folder: Path) -> UpdateLog | None:
    if not setting.logged:
        return None
    log = UpdateLog(open_log(f"sqlite:{folder}/history.db"))
    log.attach(graph)
    return log


# ---- the same stream in its plainest form


class Plain:
    """A graph by slots that follows a world's batches; what World.batch() calls, it writes down twice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.slots: dict[Vertex, int] = {}
        for name, rows in world.rows.items():
            for vertex in rows:
                self.slots[name, vertex] = len(self.slots)
        edges = [edge for _, edge in sorted(world.edges.items())]
        x = [self.row(name, world.rows[name][vertex]) for name, vertex in self.slots]
        ends = [[self.slots[edge.triple[2 * end], (edge.src, edge.dst)[end]] for edge in edges] for end in (0, 1)]
        columns: dict[str, Any] = {"time": [edge.time for edge in edges]}
        columns["edge_type"] = [world.triples.index(edge.triple) for edge in edges]
        columns["edge_attr"] = np.array([self.attr(edge) for edge in edges], np.float32).reshape(len(edges), -1)
        if not columns["edge_attr"].shape[1]:
            columns.pop("edge_attr")
        ttl = {0: TTL[world.setting.typed]} if world.setting.expires else None
        self.graph = lg.Graph(np.array(x, np.float32), *ends, ttl=ttl, **columns)
        self.free: list[int] = []

    def row(self, name: str, x: Any) -> np.ndarray:
        """[the types' features side by side | 1 at the type's place]; the features alone without types."""
        if not self.world.setting.typed:
            return np.asarray(x, np.float32)
        blocks = [np.asarray(x) if other == name else np.zeros(WIDTHS[other]) for other in self.world.types]
        return np.concatenate([*blocks, [other == name for other in self.world.types]]).astype(np.float32)

    def attr(self, edge: Edge) -> np.ndarray:
        """[attributes | weight | 1 at the type's place], as far as the world has them."""
        of_type = [edge.triple == other for other in self.world.triples] if self.world.setting.typed else []
        own = [*edge.attr, edge.weight] if self.world.setting.columns else []
        return np.array([*own, *of_type], np.float32)

    def batch(self) -> tuple[lg.Updates, lg.Updates]:
        """The next batch, in the world's form and in this one."""
        self.given, self.mine = lg.Updates(), lg.Updates()
        self.plan = SlotPlan(self.free, self.graph.slot_count)
        self.world.batch(updates=self)  # type: ignore[arg-type]
        self.plan.commit()
        return self.given, self.mine

    def __len__(self) -> int:
        return len(self.given)

    def _ends(self, u: Any, v: Any, options: dict[str, Any]) -> tuple[Any, int, int, dict[str, Any]]:
        triple = options.get("edge_type", TRIPLES[False][0])
        named = {"edge_type": self.world.triples.index(triple)}
        named |= {"time": options["time"]} if "time" in options else {}
        return triple, self.slots[triple[0], u], self.slots[triple[2], v], named

    def _newest(self, triple: Any, u: Any, v: Any) -> Edge:
        """The edge that the world has just added or changed."""
        edges = self.world.edges.items()
        return max((e, edge) for e, edge in edges if (edge.triple, edge.src, edge.dst) == (triple, u, v))[1]

    def add_edge(self, u: Any, v: Any, **options: Any) -> None:
        self.given.add_edge(u, v, **options)
        triple, src, dst, named = self._ends(u, v, options)
        attr = self.attr(self._newest(triple, u, v))
        self.mine.add_edge(src, dst, **named, **({"edge_attr": attr} if len(attr) else {}))

    def remove_edge(self, u: Any, v: Any, **options: Any) -> None:
        self.given.remove_edge(u, v, **options)
        _, src, dst, named = self._ends(u, v, options)
        self.mine.remove_edge(src, dst, **named)

    def set_weight(self, u: Any, v: Any, weight: float, **options: Any) -> None:
        self.given.set_weight(u, v, weight, **options)
        triple, src, dst, named = self._ends(u, v, options)
        self.mine.set_edge_attr(src, dst, self.attr(self._newest(triple, u, v)), **named)

    def set_features(self, vertex: Any, x: Any, *, vertex_type: str = "") -> None:
        self.given.set_features(vertex, x, **self._kind(vertex_type))
        self.mine.set_features(self.slots[vertex_type, vertex], self.row(vertex_type, x))

    def add_vertex(self, vertex: Any, x: Any, *, vertex_type: str = "") -> None:
        self.given.add_vertex(vertex, x, **self._kind(vertex_type))
        slot = self.slots[vertex_type, vertex] = self.plan.take()
        self.mine.add_vertex(slot, self.row(vertex_type, x))

    def remove_vertex(self, vertex: Any, *, vertex_type: str = "") -> None:
        self.given.remove_vertex(vertex, **self._kind(vertex_type))
        slot = self.slots.pop((vertex_type, vertex))
        self.mine.remove_vertex(slot)
        self.plan.give(slot)

    def _kind(self, name: str) -> dict[str, Any]:
        return {"vertex_type": name} if name else {}


def models(world: World) -> tuple[TGN, TGN]:
    """A model of the world's graph, and of its plain form, with the same weights."""
    setting = world.setting
    edge_width = 3 * setting.columns + 2 * setting.typed
    options = {"edge_width": edge_width, "embed_width": 6, "memory_width": 6, "time_width": 4, "dropout": 0.0}
    torch.manual_seed(1)
    widths = {name: WIDTHS[name] for name in world.types}
    model = TGN(x_width=widths if setting.typed else WIDTHS[""], **options)
    plain = TGN(x_width=sum(widths.values()) + len(widths) if setting.typed else WIDTHS[""], **options)
    state = model.state_dict()
    if setting.typed:
        parts = [state.pop(f"features.weights.{code}.weight") for code in range(len(widths))]
        state["features.weight"] = torch.cat([*parts, state.pop("features.bias.weight").T], 1)
        state["features.bias"] = torch.zeros(6)
    plain.load_state_dict(state)
    return model, plain


def options_of(world: World) -> dict[str, Any]:
    """What a trainer and an engine of the world's graph are given."""
    setting = world.setting
    columns = ["attr", "weight"] if setting.columns else []
    columns += ["type"] if setting.typed else []
    return {"edge_columns": columns, **({"edge_types": [TRIPLES[True][0]]} if setting.typed else {})}


def sampler_of(world: World, graph: lg.Graph) -> lg.TemporalSampler:
    return lg.TemporalSampler(graph, [3], window=WINDOW, threads=1)


# ---- TemporalEngine


def engine_row(setting: Setting, folder: Path, seed: int) -> None:
    world = world_of(setting, seed)
    graph, begin = world.graph(), world.graph()
    log = logged(setting, graph, folder)
    plain = Plain(world)
    model, flat = models(world)
    options = options_of(world)
    engine = lg.TemporalEngine(model, graph, sampler_of(world, graph), **options)
    of_type = {"edge_types": [0]} if setting.typed else {}
    other = lg.TemporalEngine(flat, plain.graph, sampler_of(world, plain.graph), **of_type)
    again = lg.TemporalEngine(model, begin, sampler_of(world, begin), **options)
    for number in range(BATCHES):
        if number == 2 and setting.away:
            world.send_away(graph, folder)
        given, mine = plain.batch()
        engine.apply(given)
        other.apply(mine)
        if log is None:
            again.apply(given)
        compare(world, plain, engine, other)
    if log is not None:
        with log:
            replay(log, begin)
    assert again.state_digest() == engine.state_digest()
    src, dst = (list(world.rows[name])[:3] for name in (world.triples[0][0], world.triples[0][2]))
    assert again.predict(src, dst, world.now + 1).tolist() == engine.predict(src, dst, world.now + 1).tolist()


def compare(world: World, plain: Plain, engine: lg.TemporalEngine, other: lg.TemporalEngine) -> None:
    """Answers of both, to the rounding of float32 sums in another order."""
    close = {"rtol": 1e-4, "atol": 1e-5}
    now = world.now + 1
    for name in world.types:
        vertices = list(world.rows[name])
        kind = {"vertex_type": name} if world.setting.typed else {}
        expected = other.embeddings([plain.slots[name, vertex] for vertex in vertices], now)
        np.testing.assert_allclose(engine.embeddings(vertices, now, **kind), expected, **close)
    src, dst = (world.triples[0][end] for end in (0, 2))
    sources, vertices = list(world.rows[src])[:3], list(world.rows[dst])
    slots = [[plain.slots[name, vertex] for vertex in ids] for name, ids in ((src, sources), (dst, vertices))]
    got, expected = engine.predict(sources, vertices[:3], now), other.predict(slots[0], slots[1][:3], now)
    np.testing.assert_allclose(got, expected, **close)
    best, expected_best = (
        engine.next(sources, now, k=2),
        other.next(slots[0], now, candidates=led_to(world, plain), k=2),
    )
    np.testing.assert_allclose(best.probability, expected_best.probability, **close)
    chosen = engine.predict(np.repeat(sources, 2).tolist(), best.dst.reshape(-1).tolist(), now)
    np.testing.assert_allclose(chosen, best.probability.reshape(-1), **close)


def led_to(world: World, plain: Plain) -> list[int]:
    """Slots of the destination type's vertices that an edge of any type leads to."""
    name = world.triples[0][2]
    return [plain.slots[name, vertex] for vertex in {e.dst for e in world.edges.values() if e.triple[2] == name}]


# ---- ContinuousTrainer


def trainer_row(setting: Setting, folder: Path, seed: int) -> None:
    world = world_of(setting, seed)
    graph, begin = world.graph(), world.graph()
    log = logged(setting, graph, folder)
    plain = Plain(world)
    common = {"batch_size": 10, "epochs": 1, "replay": 0.0 if setting.away else 0.5}
    options = {**options_of(world), **common}

    def trainer(of: lg.Graph, model: TGN, rate: float, given: dict[str, Any]) -> lg.ContinuousTrainer:
        made = lg.ContinuousTrainer(model, of, sampler_of(world, of), learning_rate=rate, seed=seed, **given)
        made.fit()
        return made

    of_type = {"edge_types": [0]} if setting.typed else {}
    frozen = trainer(graph, models(world)[0], 0.0, options)  # weights stay, so that rounding does not grow
    other = trainer(plain.graph, models(world)[1], 0.0, {**common, **of_type})
    first = trainer(graph, models(world)[0], 1e-2, options)
    second = trainer(begin, models(world)[0], 1e-2, options)
    for number in range(BATCHES):
        if number == 2 and setting.away:
            world.send_away(graph, folder)
        given, mine = plain.batch()
        graph.apply(given)
        plain.graph.apply(mine)
        got, expected = frozen.round(), other.round()
        assert (got.events, got.replayed) == (expected.events, expected.replayed)
        np.testing.assert_allclose(got.loss, expected.loss, rtol=1e-4)
        first.round()
        if log is None:
            begin.apply(given)
            second.round()
    if log is not None:
        with log:
            for _ in replayed(log, begin):
                second.round()
    same(first, second)


def replayed(log: UpdateLog, graph: lg.Graph) -> Any:
    """Applies the log's batches one by one."""
    for offset in range(log.tail):
        yield replay(log, graph, offset, offset + 1)


def same(one: lg.ContinuousTrainer, other: lg.ContinuousTrainer) -> None:
    """The same weights and memory, bit for bit."""
    for states in ((one.model, other.model), (one.model.memory, other.model.memory)):
        got, expected = (part.state() if hasattr(part, "state") else part.state_dict() for part in states)
        for name, value in got.items():
            assert torch.equal(value, expected[name]), name


ROWS = {"TemporalSampler": sampler_row, "ContinuousTrainer": trainer_row, "TemporalEngine": engine_row}
