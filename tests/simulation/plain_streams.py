"""Random graphs of every kind without vertex types, and legal batches for the graph as it is."""

from __future__ import annotations

import numpy as np

import livegnn as lg

TIMES = 40
HUB_SHARE = 0.8


def _row(rng, width):
    return rng.standard_normal(width, dtype=np.float32)


def random_plain_graph(rng, width, **options):
    """A graph of a few vertices. options: of lg.Graph, with weighted, timed, attr_width and types among them.

    hubs: so many vertices get most of the edges.
    """
    weighted, timed = options.pop("weighted", False), options.pop("timed", False)
    attr_width, types, hubs = options.pop("attr_width", 0), options.pop("types", 0), options.pop("hubs", 0)
    count = int(rng.integers(1, 61 if hubs else 25))
    pairs = rng.integers(0, count, (int(rng.integers(0, 3 * count + 1)), 2))
    if hubs:
        pairs[:, 1] = np.where(rng.random(len(pairs)) < HUB_SHARE, pairs[:, 1] % hubs, pairs[:, 1])
    if options.get("simple"):
        named = np.sort(pairs, axis=1) if options.get("undirected") else pairs
        pairs = pairs[np.unique(named, axis=0, return_index=True)[1]]
    columns = {}
    if weighted:
        columns["weight"] = rng.random(len(pairs), dtype=np.float32) + np.float32(0.01)
    if timed:
        columns["time"] = rng.integers(0, TIMES, len(pairs))
    if attr_width:
        columns["edge_attr"] = rng.standard_normal((len(pairs), attr_width), dtype=np.float32)
    if types:
        columns["edge_type"] = rng.integers(0, types, len(pairs)).astype(np.int32)
    features = rng.standard_normal((count, width), dtype=np.float32)
    return lg.Graph(features, pairs[:, 0], pairs[:, 1], **columns, **options)


class PlainDraft:
    """A batch being drawn, and what the graph will be after it: live vertices and (u, v, time) of edges."""

    def __init__(self, rng, graph, types, hubs):
        self.rng, self.graph, self.types, self.hubs = rng, graph, types, hubs
        self.updates = lg.Updates()
        self.live = graph.vertices().tolist()
        self.slots = graph.slot_count
        found = graph.edges()
        times = found.get("time", np.zeros(len(found["src"]), np.int64))
        self.edges = list(zip(found["src"].tolist(), found["dst"].tolist(), times.tolist(), strict=True))

    def same(self, edge, u, v):
        return edge[:2] == (u, v) or (self.graph.undirected and edge[:2] == (v, u))

    def any_edge(self):
        return self.edges[self.rng.integers(len(self.edges))] if self.edges else None

    def add_edge(self):
        rng, graph = self.rng, self.graph
        u, v = (int(x) for x in rng.choice(self.live, 2))
        if self.hubs and rng.random() < HUB_SHARE:
            v = self.live[v % min(self.hubs, len(self.live))]
        if graph.simple and any(self.same(edge, u, v) for edge in self.edges):
            return
        time = int(rng.integers(TIMES)) if graph.has_time else None
        self.updates.add_edge(
            u,
            v,
            weight=float(np.float32(rng.random() * 2 + 0.01)) if graph.has_weight else None,
            time=time,
            edge_type=int(rng.integers(self.types)) if self.types else None,
            edge_attr=_row(rng, graph.attr_width) if graph.attr_width else None,
        )
        self.edges.append((u, v, time or 0))

    def remove_edge(self):
        edge = self.any_edge()
        if edge is None or self.rng.integers(8) == 0:
            u, v = (int(x) for x in self.rng.choice(self.live, 2))
            self.updates.remove_edge(u, v, missing="ignore")
            edge = next((each for each in reversed(self.edges) if self.same(each, u, v)), None)
            if edge is not None:
                self.edges.remove(edge)
            return
        u, v, time = edge
        self.updates.remove_edge(u, v, time=time if self.graph.has_time else None)
        self.edges.remove(edge)

    def change_edge(self):
        edge = self.any_edge()
        if edge is None:
            return
        if self.graph.has_weight:
            self.updates.set_weight(edge[0], edge[1], float(np.float32(self.rng.random() * 2 + 0.01)))
        elif self.graph.attr_width:
            self.updates.set_edge_attr(edge[0], edge[1], _row(self.rng, self.graph.attr_width))

    def expire(self):
        if not self.graph.has_time:
            return
        before = int(self.rng.integers(TIMES // 2))
        self.updates.remove_edges_before(before)
        self.edges = [edge for edge in self.edges if edge[2] >= before]

    def set_features(self):
        self.updates.set_features(int(self.rng.choice(self.live)), _row(self.rng, self.graph.feature_width))

    def add_vertex(self):
        free = [v for v in range(self.slots) if v not in self.live]
        v = int(self.rng.choice(free)) if free and self.rng.integers(2) else self.slots
        self.slots = max(self.slots, v + 1)
        self.live.append(v)
        self.updates.add_vertex(v, _row(self.rng, self.graph.feature_width))

    def remove_vertex(self):
        if len(self.live) < 2:
            return
        v = int(self.rng.choice(self.live))
        self.live.remove(v)
        self.updates.remove_vertex(v)
        self.edges = [edge for edge in self.edges if v not in edge[:2]]


def random_plain_batch(rng, graph, size, types=0, hubs=0):
    """Legal updates of every kind that the graph takes."""
    return random_plain_draft(rng, graph, size, types, hubs).updates


def random_plain_draft(rng, graph, size, types=0, hubs=0):
    """The same, with what the graph will be."""
    draft = PlainDraft(rng, graph, types, hubs)
    kinds = [draft.add_edge, draft.remove_edge, draft.set_features, draft.change_edge]
    kinds += [draft.add_vertex, draft.remove_vertex, draft.expire]
    for _ in range(size):
        rng.choice(kinds, p=[0.32, 0.24, 0.14, 0.1, 0.09, 0.08, 0.03])()
    return draft
