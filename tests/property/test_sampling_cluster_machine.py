"""Sampling and serving workers against a plain model, over random streams of every kind of update.

After every batch each serving worker holds exactly what its seeds can reach, and answers equal those of one table over
the whole graph. Buckets move between workers of both kinds, replicas come and go, all in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import livegnn as lg
from livegnn import _native
from livegnn.errors import UpdateError
from livegnn.graph.consumers import Consumer
from livegnn.sampling import LocalCluster, even_owners, even_serving
from tests.unit.sampling.reach import check_cluster

VERTICES = st.integers(0, 11)
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e-6])
ROWS = st.lists(st.sampled_from([0.0, 1.0, -2.5]), min_size=2, max_size=2)
KINDS = ["add", "add", "add", "remove", "remove", "ignore", "before", "weight", "features", "vertex", "gone", "again"]
NO_TIME = -(2**63)


class ClusterMachine(RuleBasedStateMachine):
    """Draws a graph, queries and numbers of workers, then batches and moves."""

    now = NO_TIME

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.flags = {name: data.draw(st.booleans(), name) for name in ("weight", "time", "type", "undirected")}
        count = data.draw(st.integers(0, 8), "vertices")
        edges = [self.edge(data) for _ in range(data.draw(st.integers(0, 14), "edges"))] if count else []
        columns = {
            name: np.array([edge[name] for edge in edges], dtype)
            for name, dtype in (("weight", np.float32), ("time", np.int64), ("edge_type", np.int32))
            if self.flags[name.removeprefix("edge_")]
        }
        src, dst = [edge["u"] % count for edge in edges], [edge["v"] % count for edge in edges]
        rows = np.array([data.draw(ROWS) for _ in range(count)], np.float32).reshape(count, 2)
        graph = lg.Graph(rows, src, dst, **columns, undirected=self.flags["undirected"])
        first = self.query(data)
        queries = [first]
        if data.draw(st.booleans(), "two queries"):
            queries.append(self.query(data, first.hops[: data.draw(st.integers(0, len(first.hops)), "shared hops")]))
        ttl = None
        if self.flags["time"] and data.draw(st.booleans(), "ttl"):
            ttl = data.draw(st.integers(1, 8), "duration")
        workers = {"sampling": data.draw(st.integers(1, 3)), "serving": data.draw(st.integers(1, 3))}
        self.cluster = LocalCluster(graph, queries, **workers, seed=data.draw(st.integers(0, 2**64 - 1)), ttl=ttl)
        self.now = max([NO_TIME, *(edge["time"] for edge in edges)]) if self.flags["time"] else NO_TIME
        self.whole = _native.Reservoirs(
            graph.host.store,
            self.cluster.spec.seed,
            1,
            features=True,
            track_changes=False,
            edge_data=False,
            owned=np.empty(0, np.uint8),
        )
        self.tables = list(range(len(self.cluster.spec.add_tables(self.whole))))  # new reservoirs count from 0
        graph.host.attach(Following(self.whole))
        self.check()

    def edge(self, data: st.DataObject) -> dict[str, Any]:
        kinds = {
            "u": VERTICES,
            "v": VERTICES,
            "weight": WEIGHTS,
            "time": st.integers(0, 20) | st.just(max(self.now, 20) + 1),
            "edge_type": st.integers(0, 1),
        }
        return {name: data.draw(kind, name) for name, kind in kinds.items()}

    def query(self, data: st.DataObject, shared: tuple[Any, ...] = ()) -> lg.sampling.Query:
        made: Any = lg.query()
        strategies = ["random"] + ["top_k"] * self.flags["time"] + ["weighted"] * self.flags["weight"]
        drawn = data.draw(st.integers(0 if shared else 1, 3 - len(shared)), "hops")
        hops = [(hop.direction, hop.edge_type, hop.fanout, hop.by) for hop in shared]
        for _ in range(drawn):
            edge_type = data.draw(st.sampled_from([None, 0, 1]), "type") if self.flags["type"] else None
            direction = data.draw(st.sampled_from(["out", "in_", "both"]), "direction")
            hops.append((direction, edge_type, data.draw(st.integers(1, 3)), data.draw(st.sampled_from(strategies))))
        for direction, edge_type, fanout, by in hops:
            made = getattr(made, direction)(edge_type).sample(fanout, by=by)
        return made

    @rule(data=st.data(), count=st.integers(1, 8))
    def batch(self, data: st.DataObject, count: int) -> None:
        updates, times = lg.Updates(), []
        for _ in range(count):
            times += self.draw_update(data, updates)
        version = self.cluster.version
        try:
            self.cluster.apply(updates)
        except UpdateError:
            assert self.cluster.version == version == self.cluster.graph.version
            return
        self.now = max([self.now, *times])
        self.check()

    def draw_update(self, data: st.DataObject, updates: lg.Updates) -> list[int]:
        """Adds an update that the graph may refuse; times of edges that it adds."""
        kind, edge = data.draw(st.sampled_from(KINDS), "kind"), self.edge(data)
        slots, live = self.cluster.graph.slot_count, self.cluster.graph.vertices().tolist() or [0]
        u, v = (live[edge.pop(end) % len(live)] for end in ("u", "v"))
        existing = self.cluster.graph.edges()
        if kind in ("remove", "weight") and len(existing["id"]):
            place = data.draw(st.integers(0, len(existing["id"]) - 1), "place")
            u, v = int(existing["src"][place]), int(existing["dst"][place])
        if kind == "add":
            columns = {name: edge[name] for name in edge if self.flags[name.removeprefix("edge_")]}
            updates.add_edge(u, v, **columns)
            return [edge["time"]] if self.flags["time"] else []
        if kind == "remove":
            updates.remove_edge(u, v)
        elif kind == "ignore":
            updates.remove_edge(u, v, missing="ignore")
        elif kind == "before" and self.flags["time"]:
            updates.remove_edges_before(edge["time"] // 2)
        elif kind == "weight" and self.flags["weight"]:
            updates.set_weight(u, v, data.draw(st.one_of(WEIGHTS, st.just(-1.0)), "new weight"))
        elif kind == "features":
            updates.set_features(u, data.draw(ROWS, "row"))
        elif kind == "vertex":
            updates.add_vertex(slots, data.draw(ROWS, "row"))
        elif kind == "gone":
            updates.remove_vertex(u)
        elif kind == "again":  # gone and back in one batch
            updates.remove_vertex(u)
            updates.add_vertex(u, data.draw(ROWS, "row"))
        return []

    @rule(workers=st.integers(1, 3), replicas=st.integers(1, 2), turn=st.integers(0, 5))
    def move_serving(self, workers: int, replicas: int, turn: int) -> None:
        self.cluster.move_serving(np.roll(even_serving(workers, replicas), turn))
        self.check()

    @rule(workers=st.integers(1, 3), turn=st.integers(0, 5))
    def move_sampling(self, workers: int, turn: int) -> None:
        self.cluster.move_sampling(np.roll(even_owners(workers), turn))
        self.check()

    @precondition(lambda self: self.cluster.graph.vertex_count)
    @rule(data=st.data())
    def answers(self, data: st.DataObject) -> None:
        """An answer equals that of the tables of the whole graph, seeds in any order and repeated."""
        live = self.cluster.graph.vertices().tolist()
        seeds = np.array(data.draw(st.lists(st.sampled_from(live), max_size=9), "seeds"), np.int64)
        for planned in self.cluster.spec.plan.queries:
            places = self.cluster.spec.tables_of(planned.number)
            widths = [2] * (len(places) + 1)
            expected = self.whole.sample(
                [self.tables[place] for place in places], seeds, widths, edge_ids=True, edge_data=False
            )
            answer = self.cluster.sample(
                seeds, query=planned.number, at_least=self.cluster.graph.version if len(seeds) else None
            )
            for hop in range(1, answer.hops + 1):
                np.testing.assert_array_equal(answer.hop(hop), expected[1][hop - 1])
                np.testing.assert_array_equal(answer.edge_ids(hop), expected[2][hop - 1])
            for level in range(answer.hops + 1):
                np.testing.assert_array_equal(answer.features(level), expected[3][level])

    def check(self) -> None:
        check_cluster(self.cluster, self.now)


class Following(Consumer):
    """Tables over the whole graph, as a consumer of it."""

    def __init__(self, reservoirs: _native.Reservoirs) -> None:
        self.follower = reservoirs

    def published(self, change: Any, version: int) -> None:
        pass


ClusterMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
test_workers_hold_what_their_seeds_reach = ClusterMachine.TestCase
