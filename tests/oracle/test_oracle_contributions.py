"""Shares of in-neighbours against the models' formulas in float64, and latest changes against runs from scratch."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest

import livegnn as lg
from livegnn.reference.evaluate import evaluate

INPUT, HIDDEN, OUTPUT, VERTICES, TYPES = 5, 6, 4, 16, 3


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


class Edges:
    """Those of a graph, in order of ids."""

    def __init__(self, graph):
        found = graph.edges()
        self.src, self.dst, self.ids = found["src"], found["dst"], found["id"]
        self.weight = found["weight"].astype(np.float64) if "weight" in found else np.ones(len(self.src))
        self.types = found.get("type", np.zeros(len(self.src), np.int32))

    def turned(self):
        """As if every edge (u, v) were (v, u)."""
        found = copy(self)
        found.src, found.dst = self.dst, self.src
        return found

    def into(self, v):
        return np.flatnonzero(self.dst == v)


# One function for each family: what each edge into v adds to the output, by place of the edge: {place: row of OUTPUT}.


def gcn_shares(edges, h, v, weighted):
    w = edges.weight if weighted else np.ones_like(edges.weight)
    loops = np.ones(len(h))
    if weighted:
        for place in np.flatnonzero(edges.src == edges.dst):
            loops[edges.dst[place]] = w[place]
    inner = edges.src != edges.dst
    degree = np.bincount(edges.dst[inner], w[inner], len(h)) + loops
    s = degree**-0.5
    weight = normal(2, OUTPUT, HIDDEN)
    return {p: s[v] * w[p] * s[edges.src[p]] * (weight @ h[edges.src[p]]) for p in edges.into(v) if inner[p]}


def sum_shares(edges, h, v, scale=1.0, weighted=False):
    weight = normal(2, OUTPUT, HIDDEN)
    return {p: scale * (edges.weight[p] if weighted else 1.0) * (weight @ h[edges.src[p]]) for p in edges.into(v)}


def mean_shares(edges, h, v):
    return sum_shares(edges, h, v, 1.0 / max(1, len(edges.into(v))))


def chosen_shares(edges, h, v, choose):
    places = edges.into(v)
    if not len(places):
        return {}
    rows = h[edges.src[places]]
    held = rows == choose(rows)
    parts = held / held.sum(axis=0) * rows
    return {p: normal(2, OUTPUT, HIDDEN) @ part for p, part in zip(places, parts, strict=True)}


def gat_shares(edges, h, v, heads=2):
    x = (h @ normal(2, OUTPUT, HIDDEN).T).reshape(len(h), heads, -1)
    t, s = (x * normal(3, heads, OUTPUT // heads)).sum(axis=2), (x * normal(4, heads, OUTPUT // heads)).sum(axis=2)
    places = [p for p in edges.into(v) if edges.src[p] != v]
    scores = np.array([t[edges.src[p]] + s[v] for p in places] + [t[v] + s[v]])
    scores = np.where(scores > 0, scores, 0.2 * scores)
    powers = np.exp(scores - scores.max(axis=0))
    shares = powers / powers.sum(axis=0)
    return {p: (a[:, None] * x[edges.src[p]]).ravel() for p, a in zip(places, shares, strict=False)}


def rgcn_shares(edges, h, v):
    weights = normal(2, TYPES, OUTPUT, HIDDEN)
    found = {}
    for kind in range(TYPES):
        places = [p for p in edges.into(v) if edges.types[p] == kind]
        found |= {p: weights[kind] @ h[edges.src[p]] / len(places) for p in places}
    return found


def median(rows):
    return np.sort(rows, axis=0)[(len(rows) - 1) // 2]


def against(shares):
    """The same with messages from an edge's dst to its src."""
    return lambda edges, h, v: shares(edges.turned(), h, v)


GAT = lg.layers.GAT(normal(2, OUTPUT, HIDDEN), normal(3, 2, 2), normal(4, 2, 2))
PLAIN, ROOT = normal(2, OUTPUT, HIDDEN), normal(5, OUTPUT, HIDDEN)
FAMILIES = {
    "gcn": (lg.layers.GCN(PLAIN), lambda e, h, v: gcn_shares(e, h, v, False)),
    "gcn_weighted": (lg.layers.GCN(PLAIN, weighted=True), lambda e, h, v: gcn_shares(e, h, v, True)),
    "sum_weighted": (
        lg.layers.GraphConv(PLAIN, ROOT, weighted=True),
        lambda e, h, v: sum_shares(e, h, v, weighted=True),
    ),
    "mean": (lg.layers.SAGE(PLAIN, ROOT), mean_shares),
    "gin": (lg.layers.GIN([lg.layers.Dense(PLAIN)], eps=0.5), sum_shares),
    "max": (lg.layers.SAGE(PLAIN, ROOT, aggregate="max"), lambda e, h, v: chosen_shares(e, h, v, lambda r: r.max(0))),
    "min": (lg.layers.SAGE(PLAIN, aggregate="min"), lambda e, h, v: chosen_shares(e, h, v, lambda r: r.min(0))),
    "median": (lg.layers.SAGE(PLAIN, aggregate="median"), lambda e, h, v: chosen_shares(e, h, v, median)),
    "gat": (GAT, gat_shares),
    "rgcn": (lg.layers.RGCN(normal(2, TYPES, OUTPUT, HIDDEN)), rgcn_shares),
}
FAMILIES |= {
    f"{name}_against": (lg.layers.Reversed([made]), against(shares)) for name, (made, shares) in FAMILIES.items()
}
FIRST = {  # layers before: of the same family, so that with hops=2 it is explained, too
    "gat": lg.layers.GAT(normal(1, HIDDEN, INPUT), normal(6, 2, 3), normal(7, 2, 3), activation="elu"),
    "max": lg.layers.SAGE(normal(1, HIDDEN, INPUT), aggregate="max", activation="relu"),
    "rgcn": lg.layers.RGCN(normal(1, TYPES, HIDDEN, INPUT), activation="elu"),
}


def first_layer(name):
    family = name.removesuffix("_against")
    made = FIRST.get(family, lg.layers.GCN(normal(1, HIDDEN, INPUT), activation="relu"))
    return made if family == name else lg.layers.Reversed([made])


def model_of(name):
    return lg.Model([first_layer(name), FAMILIES[name][0], lg.layers.LogSoftmax()])


def graph_of(rng):
    count = 60
    return lg.Graph(
        rng.normal(size=(VERTICES, INPUT)).astype(np.float32),
        rng.integers(0, VERTICES, count),
        rng.integers(0, VERTICES, count),
        weight=rng.uniform(0.5, 2, count).astype(np.float32),
        edge_type=rng.integers(0, TYPES, count),
    )


def batch_of(rng, graph, step):
    updates, live = lg.Updates(), graph.vertices().tolist()
    places = rng.choice(len(graph.edges()["id"]), 3, replace=False)
    found = graph.edges()
    for place in places[:2]:
        edge = {name: int(found[name][place]) for name in ("src", "dst", "id")}
        updates.remove_edge(edge["src"], edge["dst"], edge_id=edge["id"])
    last = places[2]
    u, v = int(found["src"][last]), int(found["dst"][last])
    updates.set_weight(u, v, float(rng.uniform(0.5, 2)), edge_id=int(found["id"][last]))
    for _ in range(2):
        u, v = rng.choice(live, 2).tolist()
        updates.add_edge(u, v, weight=float(rng.uniform(0.5, 2)), edge_type=int(rng.integers(TYPES)))
    updates.set_features(int(rng.choice(live)), rng.normal(size=INPUT))
    if step % 3 == 1:
        updates.remove_vertex(live[-1])
    if step % 3 == 2:
        new = max(live) + 1
        updates.add_vertex(new, rng.normal(size=INPUT))
        updates.add_edge(new, live[0], weight=1.5, edge_type=1)
    return updates


def fresh_engine(engine):
    """The same from scratch, on a copy of the graph."""
    return lg.Engine(engine.model, lg.Graph.from_arrays(engine.graph.to_arrays()), scales=engine.scales)


def assert_same(got, want):
    """Two Shares of one aggregate, whatever the order of edges."""
    for mine, theirs in ((got.slots, want.slots), (got.edge_ids, want.edge_ids), (got.aggregate, want.aggregate)):
        np.testing.assert_array_equal(mine, theirs)
    for name in ("terms", "own", "held", "own_held", "attention", "values", "messages", "factors"):
        mine, theirs = getattr(got, name), getattr(want, name)
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
    assert got.scores.tolist() == want.scores.tolist()
    assert got.predictions == want.predictions


def hidden_rows(name, graph, edges):
    rows = np.zeros((int(graph.vertices().max()) + 1, INPUT), np.float32)
    rows[graph.vertices()] = graph.features(graph.vertices())
    spec = lg.Model([first_layer(name)]).to_arrays()
    return evaluate(spec, rows, edges.src, edges.dst, edges.weight, types=edges.types)


@pytest.mark.parametrize("name", FAMILIES)
def test_shares_are_the_formula_s_and_sum_to_the_stored_aggregate(name):
    rng = np.random.default_rng(3)
    graph = graph_of(rng)
    engine = lg.Engine(model_of(name), graph)
    formula = FAMILIES[name][1]
    for step in range(4):
        if step:
            engine.apply(batch_of(rng, graph, step))
        edges = Edges(graph)
        h = hidden_rows(name, graph, edges)
        for v in graph.vertices().tolist()[::3]:
            want = formula(edges, h, v)
            for column in range(OUTPUT):
                found = engine.contributions(v, column=column)
                assert (found.is_linear, found.version, found.column) == (True, step, column)
                scores = {}
                for shares in found.aggregations:
                    scores |= zip(shares.edge_ids.tolist(), shares.scores.tolist(), strict=True)
                assert scores.keys() == {int(edges.ids[p]) for p in want}
                for p, row in want.items():
                    assert scores[int(edges.ids[p])] == pytest.approx(row[column], rel=1e-4, abs=1e-4)
            for shares in found.aggregations:
                if shares.terms is not None:
                    own = 0 if shares.own is None else shares.own
                    np.testing.assert_array_equal(shares.terms.sum(axis=0) + own, shares.aggregate)


@pytest.mark.parametrize("name", FAMILIES)
def test_latest_changes_are_differences_of_runs_from_scratch(name):
    rng = np.random.default_rng(4)
    graph = graph_of(rng)
    engine = lg.Engine(model_of(name), graph)
    history = engine.keep_messages()
    runs, rows = [], []
    for step in range(7):
        if step:
            engine.apply(batch_of(rng, graph, step))
        fresh = fresh_engine(engine)
        live = graph.vertices().tolist()
        runs.append({v: fresh.contributions(v, column=1, hops=2) for v in live})
        rows.append(dict(zip(live, fresh.embeddings(live), strict=True)))
    assert len(history) == 6
    assert history.bytes > 0
    explained = 0
    for v in graph.vertices().tolist():
        found = engine.contributions(v, column=1, hops=2)
        for got, want in zip(found.aggregations, runs[-1][v].aggregations, strict=True):
            assert_same(got, want)
        for got, want in zip(found.sources, runs[-1][v].sources, strict=True):
            assert got.vertex == want.vertex
            for mine, theirs in zip(got.aggregations, want.aggregations, strict=True):
                assert_same(mine, theirs)
        latest = max((k for k in range(1, 7) if not same(rows[k - 1].get(v), rows[k].get(v))), default=None)
        if latest is None:
            assert (found.change, found.change_missing) == (None, "older")
            continue
        assert found.change.version == latest
        if v not in runs[latest - 1]:
            continue
        explained += 1
        before, after = runs[latest - 1][v], runs[latest][v]
        parts = zip(found.change.aggregations, before.aggregations, after.aggregations, strict=True)
        for change, old, new in parts:
            assert_change(change, old, new)
    assert explained > 5


def same(a, b):
    return a is not None and b is not None and np.array_equal(a, b)


def by_edge(shares, rows):
    return (
        {}
        if rows is None
        else dict(zip(zip(shares.edge_ids.tolist(), shares.slots.tolist(), strict=True), rows, strict=True))
    )


def assert_change(change, old, new):
    """It is what two runs from scratch differ in."""
    was, now = by_edge(old, old.values), by_edge(new, new.values)
    zero = np.zeros(old.values.shape[1])
    keys = list(zip(change.edge_ids.tolist(), change.slots.tolist(), strict=True))
    for place, key in enumerate(keys):
        np.testing.assert_array_equal(change.values[place], now.get(key, zero) - was.get(key, zero))
        assert ("added" in change.why[place]) == (key not in was)
        assert ("removed" in change.why[place]) == (key not in now)
    if change.difference is not None:
        np.testing.assert_array_equal(change.difference, new.aggregate - old.aggregate)
        moved = (change.after - change.before).sum(axis=0)
        own = 0 if change.own_after is None else change.own_after - change.own_before
        np.testing.assert_array_equal(moved + own, change.difference)  # none but those listed has moved
    total = change.values.sum(axis=0) + change.rest + (0 if change.own_value is None else change.own_value)
    np.testing.assert_allclose(total, new.value - old.value, rtol=1e-9, atol=1e-9)
