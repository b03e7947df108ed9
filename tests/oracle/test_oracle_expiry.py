"""A graph with a ttl, and a twin from which the same edges are removed by name: every consumer answers the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.sampling import LocalCluster
from livegnn.testing.edge_models import EDGE_FAMILIES
from livegnn.testing.models import FAMILIES
from tests.oracle.expiring import TRIPLES, WIDTH, History, Kind, batch_of, check_edges, cut

KINDS = {
    "plain": Kind(),
    "undirected": Kind(undirected=True),
    "simple": Kind(simple=True),
    "typed": Kind(typed=True),
}
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "on demand": {"mode": "on_demand"},
    "hybrid": {"mode": "hybrid", "hot": 4},
}


def plain_model(rng: np.random.Generator, first: str) -> lg.Model:
    families = FAMILIES | EDGE_FAMILIES
    return lg.Model([families[first](rng, WIDTH, 6, True), FAMILIES["sage"](rng, 6, 3, True)], input_width=WIDTH)


def typed_model(seed: int) -> lg.Model:
    torch, pyg = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(seed)

    class Typed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            ends = (WIDTH, WIDTH)
            self.first = pyg.HeteroConv({triple: pyg.SAGEConv(ends, 6, aggr="max") for triple in TRIPLES})
            self.second = pyg.HeteroConv({triple: pyg.GraphConv((6, 6), 3) for triple in TRIPLES})

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:
            h = {name: rows.relu() for name, rows in self.first(x_dict, edge_index_dict).items()}
            return self.second(h, edge_index_dict, edge_weight_dict=edge_weight_dict)

    model: lg.Model = lg.from_pyg(Typed().eval())
    return model


def shown(vertices: Any) -> Any:
    return {name: ids.tolist() for name, ids in (vertices if isinstance(vertices, dict) else {"": vertices}).items()}


def run(kind: Kind, model: lg.Model, options: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    history = History(kind, np.random.default_rng([seed, 0]))
    graph, twin = history.graph(ttl=True), history.graph(ttl=False)
    ours, theirs = (lg.Engine(model, each, threads=1, **options) for each in (graph, twin))
    vertices = history.ids("User")
    reads = {"vertex_type": "User"} if kind.typed else {}
    for part in cut(rng, [history.op() for _ in range(160)], 14):
        supposed = batch_of(part)
        with ours.what_if(supposed) as view:
            rows = view.embeddings(vertices, **reads)
        changes, expected = ours.apply(batch_of(part)), theirs.apply(batch_of(part, twin=True))
        np.testing.assert_array_equal(ours.embeddings(vertices, **reads), theirs.embeddings(vertices, **reads))
        np.testing.assert_array_equal(rows, ours.embeddings(vertices, **reads))
        assert ours.state_digest() == theirs.state_digest()
        assert shown(changes.vertices) == shown(expected.vertices)
        ours.verify()
    check_edges(graph, history)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", ["gcn", "graph_conv", "gat"])
@pytest.mark.parametrize("kind", ["plain", "undirected", "simple"])
def test_an_engine_sees_expired_edges_leave(kind: str, first: str, mode: str) -> None:
    run(KINDS[kind], plain_model(np.random.default_rng(3), first), MODES[mode], seed=len(first))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_a_typed_engine_sees_expired_edges_leave(mode: str, seed: int) -> None:
    run(KINDS["typed"], typed_model(seed), MODES[mode], seed)


def the_query(kind: Kind) -> lg.Query:
    if kind.typed:
        return lg.query("User").out("buys").sample(3, by="top_k").out("liked by").sample(2)
    return lg.query().out().sample(3, by="top_k").in_().sample(2, by="weighted")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_samplers_see_expired_edges_leave(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    history = History(KINDS[kind], np.random.default_rng([seed, 0]))
    graph, twin = history.graph(ttl=True), history.graph(ttl=False)
    sources = [
        [make(each, the_query(history.kind)) for each in (graph, twin)]
        for make in (lg.PreSampler, lambda each, query: LocalCluster(each, query, sampling=2, serving=2))
    ]
    past = [] if kind == "typed" else [lg.TemporalSampler(each, fanouts=[3, 2]) for each in (graph, twin)]
    users = history.ids("User")
    for part in cut(rng, [history.op() for _ in range(160)], 14):
        graph.apply(batch_of(part))
        twin.apply(batch_of(part, twin=True))
        for ours, theirs in sources:
            mine, other = ours.sample(users), theirs.sample(users)
            for hop in (1, 2):
                np.testing.assert_array_equal(mine.edge_ids(hop), other.edge_ids(hop))
        if past:
            times = np.full(len(users), history.clock + 5)
            for one, two in zip(*(each.sample(users, times) for each in past), strict=True):
                np.testing.assert_array_equal(one.edge_ids, two.edge_ids)
    sources[0][0].verify()
    check_edges(graph, history)
