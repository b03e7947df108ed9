"""What samples are and what a serving worker must hold, in plain Python over a list of edges: slow and obvious."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.graph import Graph
from livegnn.sampling import ClusterSpec, OneHop
from livegnn.sampling.queries import expiry

_WORD = 2**64


def mix(x: int) -> int:
    """The finaliser of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) % _WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % _WORD
    return x ^ x >> 31


class Reach:
    """The samples of a graph as it is now. `now`: the largest time of any edge ever added."""

    def __init__(self, graph: Graph, spec: ClusterSpec, now: int) -> None:
        columns = graph.edges()
        self.spec, self.now = spec, now
        self.live = set(graph.vertices().tolist())
        self.rows = {v: graph.features([v])[0] for v in self.live}
        self.undirected = graph.undirected
        self.edges = []
        for i in range(len(columns["id"])):
            self.edges.append({name: column[i].item() for name, column in columns.items() if column.ndim == 1})

    def sample(self, hop: OneHop, v: int) -> list[tuple[int, int]]:
        """(neighbour, edge id) of the first fan-out candidates of v."""
        found: list[tuple[Any, int, int]] = []
        ttl = expiry.of_hop(hop, self.spec.ttl, self.spec.schema)
        for edge in self.edges:
            if hop.edge_type is not None and edge["type"] != hop.edge_type:
                continue
            if ttl and edge["time"] <= self.now - ttl:
                continue
            if hop.by == "weighted" and edge["weight"] == 0:
                continue
            both = self.undirected or hop.direction == "both"
            if edge["src"] == v and (both or hop.direction == "out"):
                found.append((self.rank(hop, edge), edge["dst"], edge["id"]))
            elif edge["dst"] == v and (both or hop.direction == "in_"):
                found.append((self.rank(hop, edge), edge["src"], edge["id"]))
        return [(neighbour, edge_id) for _, neighbour, edge_id in sorted(found)[: hop.fanout]]

    def rank(self, hop: OneHop, edge: dict[str, Any]) -> tuple[Any, int]:
        if hop.by == "top_k":
            return -edge["time"], -edge["id"]
        h = mix(mix(self.spec.seed ^ mix(hop.hop)) ^ edge["id"])
        if hop.by == "random":
            return h, edge["id"]
        return -math.log(((h >> 11) + 1) * 2.0**-53) / edge["weight"], edge["id"]

    def contents(self, seeds: set[int]) -> tuple[dict[tuple[int, int], list[tuple[int, int]]], set[int]]:
        """What a serving worker with these seeds must hold: non-empty samples by (table place, vertex), and vertices
        whose features are needed.
        """
        plan, places = self.spec.plan, self.spec.places
        vertices: dict[int, set[int]] = {places[planned.tables[0]]: set(seeds) for planned in plan.queries}
        samples, features = {}, set(seeds)
        for table in sorted(plan.tables, key=lambda table: table.one_hop.hop):
            place, reached = places[table.number], set()
            for v in vertices[place]:
                sample = self.sample(table.one_hop, v)
                if sample:
                    samples[place, v] = sample
                reached |= {neighbour for neighbour, _ in sample}
            for fed in plan.feeds(table.number):  # of all queries that share the table
                vertices.setdefault(places[fed], set()).update(reached)
            features |= reached
        return samples, features


def held(push: Any) -> tuple[dict[tuple[int, int], list[tuple[int, int]]], dict[int, Any]]:
    """The content of a serving worker, in the form of Reach.contents, with the rows of features."""
    table, vertex, count, neighbours, edge_ids, _, _, _, feature_vertex, rows, _ = push
    samples, first = {}, 0
    for t, v, n in zip(table.tolist(), vertex.tolist(), count.tolist(), strict=True):
        entries = zip(neighbours[first : first + n].tolist(), edge_ids[first : first + n].tolist(), strict=True)
        samples[t, v] = list(entries)
        first += n
    assert len(samples) == len(table)
    assert Counter(feature_vertex.tolist()).total() == len(set(feature_vertex.tolist()))
    return samples, dict(zip(feature_vertex.tolist(), rows, strict=True))


def check_cluster(cluster: Any, now: int) -> None:
    """Every serving worker holds exactly what its seeds can reach; every sampling worker equals a scan."""
    reach = Reach(cluster.graph, cluster.spec, now)
    for worker in cluster.sampling_workers:
        worker.check_invariants()
    vertices = np.array(sorted(reach.live), np.int64)
    masks = cluster.sampling_workers[0].serving[_native.buckets(vertices)]
    for number, worker in cluster.serving_workers.items():
        seeds = {int(v) for v, mask in zip(vertices, masks, strict=True) if int(mask) >> number & 1}
        expected, needed = reach.contents(seeds)
        samples, features = held(worker.contents())
        assert samples == expected, f"serving worker {number} at version {worker.version}"
        assert set(features) == needed, f"serving worker {number} at version {worker.version}"
        for v, row in features.items():
            assert row.tobytes() == reach.rows[v].tobytes(), f"features of {v} at serving worker {number}"
        assert worker.version == cluster.graph.version
