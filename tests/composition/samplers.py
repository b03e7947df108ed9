"""The samplers' rows: after every batch the samples are those of a scan of the mirror, by `livegnn.reference`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.log import UpdateLog, open_log, replay
from livegnn.reference.sampling import EdgeTable, HopRule, sample_tree
from livegnn.sampling import ClusterSpec, FrontEnd, LocalCluster, SampleSource, even_owners, even_serving
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.coordinator import Coordinator, write_start
from livegnn.sampling.cluster.runtime import ClusterLogs, SamplingLoop, ServingLoop, Settings
from tests.composition.world import TRIPLES, Setting, World
from tests.simulation.world import MemoryLog

SEED, BATCHES = 7, 5


def asked(setting: Setting) -> tuple[lg.sampling.Query, list[HopRule]]:
    """A query that reads every column there is, and its hops as the reference takes them."""
    first: Any = "weighted" if setting.columns else "top_k" if setting.has_times else "random"
    second: Any = "top_k" if setting.columns else "random"
    if setting.typed:
        query = lg.query("User").out("buys").sample(3, by=first).out("liked by").sample(2, by=second)
        return query, [HopRule("out", 3, first, 0), HopRule("out", 2, second, 1)]
    query = lg.query().out().sample(3, by=first).in_().sample(2, by=second)
    return query, [HopRule("out", 3, first), HopRule("in_", 2, second)]


# ---- the truth


def table(world: World, number: dict[tuple[str, Any], int]) -> EdgeTable:
    """The mirror's edges between numbered vertices."""
    edges = [world.edges[e] for e in sorted(world.edges)]
    return EdgeTable(
        np.array([number[e.triple[0], e.src] for e in edges], np.int64),
        np.array([number[e.triple[2], e.dst] for e in edges], np.int64),
        np.array(sorted(world.edges), np.int64),
        np.array([e.weight for e in edges]),
        np.array([e.time for e in edges], np.int64),
        np.array([TRIPLES[world.setting.typed].index(e.triple) for e in edges], np.int64),
    )


def check(world: World, part: Part) -> None:
    """Vertices, edges, features and columns of every sample, as they are and in to_pyg()."""
    names = [(name, vertex) for name, rows in world.rows.items() for vertex in rows]
    number = {name: place for place, name in enumerate(names)}
    seeds = list(world.rows[world.types[0]])
    sample = part.sample(seeds)
    roots = np.array([number[world.types[0], seed] for seed in seeds])
    vertices, ids = sample_tree(asked(world.setting)[1], SEED, table(world, number), roots)
    check_rows(world, sample, 0, [names[v] for v in roots])
    for k in (1, 2):
        found = [names[v] if v >= 0 else None for v in vertices[k - 1].ravel().tolist()]
        check_rows(world, sample, k, found)
        nothing = None if world.setting.named else -1
        assert sample.hop(k).ravel().tolist() == [nothing if one is None else one[1] for one in found]
        np.testing.assert_array_equal(sample.edge_ids(k), ids[k - 1])
        edges = [world.edges.get(e) for e in ids[k - 1].ravel().tolist()]
        if world.setting.has_times:
            assert sample.edge_time(k).ravel().tolist() == [e.time if e else 0 for e in edges]
        if world.setting.columns:
            assert sample.edge_weight(k).ravel().tolist() == [e.weight if e else 0.0 for e in edges]
            rows = sample.edge_attr(k).reshape(len(edges), -1)
            np.testing.assert_array_equal(rows, [e.attr if e else np.zeros_like(rows[0]) for e in edges])
    check_pyg(world, sample, np.concatenate([level.ravel() for level in ids]))


def check_rows(world: World, sample: lg.sampling.Sample, k: int, vertices: list[Any]) -> None:
    got = sample.features(k).reshape(len(vertices), -1)
    np.testing.assert_array_equal(
        got, [np.zeros_like(got[0]) if one is None else world.rows[one[0]][one[1]] for one in vertices]
    )


def check_pyg(world: World, sample: lg.sampling.Sample, ids: np.ndarray) -> None:
    """Every sampled edge once, with its columns, between the rows of its ends."""
    data = sample.to_pyg()
    found = []
    for store in data.edge_stores:
        to, by = (store._key[0], store._key[2]) if world.setting.typed else (None, None)
        xs = [(data if name is None else data[name]).x.numpy() for name in (to, by)]
        for place, e in enumerate(store.e_id.tolist()):
            edge = world.edges[e]
            ends = [world.rows[edge.triple[0]][edge.src].tolist(), world.rows[edge.triple[2]][edge.dst].tolist()]
            rows = [x[row].tolist() for x, row in zip(xs, store.edge_index[:, place].tolist(), strict=True)]
            assert rows in (ends, ends[::-1])
            if world.setting.has_times:
                assert store.edge_time[place] == edge.time
            if world.setting.columns:
                assert store.edge_weight[place] == edge.weight
                assert store.edge_attr[place].tolist() == edge.attr.tolist()
            found.append(e)
    assert sorted(found) == sorted(ids[ids >= 0].tolist())


# ---- the parts


class Part:
    """What is under test: batches in, samples out."""

    needs_log = False

    def __init__(self, graph: lg.Graph, query: lg.sampling.Query, folder: Path, history: str) -> None:
        self.source: Any = lg.PreSampler(graph, query, seed=SEED, edge_data=True, threads=1)

    def apply(self, updates: lg.Updates) -> None:
        self.source.apply(updates)

    def sample(self, seeds: list[Any]) -> lg.sampling.Sample:
        sample: lg.sampling.Sample = self.source.sample(seeds)
        return sample

    def disturb(self, number: int) -> None:
        self.source.verify()


class Server(Part):
    """The sums of first neighbours are the predictions."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.server = lg.SampleServer(self.source, lambda features, masks: features[1].sum(axis=1))

    def sample(self, seeds: list[Any]) -> lg.sampling.Sample:
        sample = self.server.sample(seeds)
        np.testing.assert_array_equal(self.server.predict(seeds).values, sample.features(1).sum(axis=1))
        return sample

    def disturb(self, number: int) -> None:
        if number == BATCHES - 1:
            self.server.close()


class Cluster(Part):
    """Workers of both kinds come and go."""

    def __init__(self, graph: lg.Graph, query: lg.sampling.Query, folder: Path, history: str) -> None:
        self.source = LocalCluster(graph, query, sampling=2, serving=2, seed=SEED, edge_data=True)

    def disturb(self, number: int) -> None:
        self.source.move_sampling(even_owners(1 + number % 3))
        self.source.move_serving(even_serving(1 + (number + 1) % 3))


class Workers(Part):
    """State machines over logs, in one thread; all of them start again from their checkpoints, or buckets move."""

    needs_log = True

    def __init__(self, graph: lg.Graph, query: lg.sampling.Query, folder: Path, history: str) -> None:
        self.spec = ClusterSpec.of(graph, query, seed=SEED, edge_data=True)
        self.graph, self.now, self.serving = graph, 0.0, {}
        self.frames: dict[str, list[Any]] = {}
        self.loops: dict[tuple[str, int], Any] = {}
        self.logs = ClusterLogs(UpdateLog(open_log(history)), self.open)
        self.checkpoints = CheckpointFiles(folder / "states")
        write_start(self.spec, graph, even_owners(2), self.checkpoints)
        self.coordinator = self.coordinate()
        self.coordinator.serve(even_serving(2))
        self.front_end = FrontEnd(self.spec, self.serving, self.coordinator.serving)
        self.source = Behind(self)
        self.settle()

    def open(self, name: str) -> Any:
        return MemoryLog(name, self.frames.setdefault(name, []), lambda: None)

    def coordinate(self) -> Coordinator:
        self.common: Any = (self.logs, self.checkpoints, lambda: self.now)
        return Coordinator(self.spec, self.logs, self.checkpoints, self, Settings(checkpoint_steps=2), self.common[-1])

    def start(self, role: str, worker: int) -> None:
        kind: Any = SamplingLoop if role == "sampling" else ServingLoop
        self.loops[role, worker] = kind(self.spec, worker, *self.common)
        if role == "serving":
            self.serving[worker] = self.loops[role, worker].worker

    def stop(self, role: str, worker: int) -> None:
        self.loops.pop((role, worker), None)

    def progress(self) -> dict[tuple[str, int], int | None]:
        return {who: loop.worker.step for who, loop in self.loops.items()}

    def apply(self, updates: lg.Updates) -> None:
        self.graph.apply(updates)
        self.settle()

    def settle(self) -> None:
        """Turns until the workers have everything."""
        for _ in range(10_000):
            self.now += 1
            busy = self.coordinator.turn()
            self.front_end.set_serving(self.coordinator.routed)
            for loop in list(self.loops.values()):
                busy |= loop.turn()
            moving = self.coordinator.is_moving or self.coordinator.is_moving_seeds
            steps = {loop.worker.step for loop in self.loops.values()}
            versions = {loop.worker.version for (role, _), loop in self.loops.items() if role == "serving"}
            if (busy, moving, steps, versions) == (False, False, {self.coordinator.step}, {self.logs.history.tail}):
                return
        raise AssertionError(f"not settled at version {self.graph.version}")

    def disturb(self, number: int) -> None:
        if number % 2:
            self.coordinator.move(even_owners(1 + number % 3))
        else:
            self.loops.clear()
            self.coordinator = self.coordinate()
        self.settle()


class Behind(SampleSource):
    """The front end of some workers, by the ids of the graph that writes their history."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.graph, self.edge_columns = workers, workers.graph, workers.spec.edge_columns

    @property
    def plan(self) -> lg.sampling.Plan:
        return self.workers.spec.plan

    @property
    def version(self) -> int:
        return self.workers.graph.version

    def wait_for(self, version: int, timeout: float | None) -> None:
        """Every owner waits."""

    def answer(self, slots: Any, options: Any) -> Any:
        return self.workers.front_end.answer(slots, options)


def live(kind: type[Part], setting: Setting, folder: Path, seed: int) -> None:
    world = World(setting, np.random.default_rng(seed))
    query, _ = asked(setting)
    graph, begin = world.graph(), world.graph()
    history = f"sqlite:{folder}/history.db"
    log = UpdateLog(open_log(history)) if setting.logged or kind.needs_log else None
    if log is not None:
        log.attach(graph)
    part = kind(graph, query, folder, history)
    check(world, part)
    for number in range(BATCHES):
        if number == 2 and setting.away:
            world.send_away(graph, folder)
        part.apply(world.batch())
        check(world, part)
        part.disturb(number)
        if number < BATCHES - 1:
            check(world, part)
    if setting.logged and log is not None:
        rebuilt = kind(begin, query, folder / "again", history)
        replay(log, begin)
        check(world, rebuilt)


ROWS = {
    "PreSampler": partial(live, Part),
    "SampleServer": partial(live, Server),
    "LocalCluster": partial(live, Cluster),
    "Workers behind a log": partial(live, Workers),
}
