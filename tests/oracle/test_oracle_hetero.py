"""Models over vertex types equal PyG's module on HeteroData after every batch of random streams of all updates."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from tests.oracle.hetero_oracle import BOUGHT, BUY, FOLLOW, IN, LIKE, METADATA, TRIPLES, WIDTHS, check_hetero
from tests.oracle.pyg_oracle import liven
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph

EVERYWHERE = {
    "SAGE mean": lambda s, d: pyg.SAGEConv((s, d), 6),
    "SAGE max": lambda s, d: pyg.SAGEConv((s, d), 6, aggr="max", normalize=True),
    "SAGE without root": lambda s, d: pyg.SAGEConv((s, d), 6, aggr="sum", root_weight=False),
    "SAGE projected": lambda s, d: pyg.SAGEConv((s, d), 6, aggr=["mean", "std"], project=True),
    "GraphConv": lambda s, d: pyg.GraphConv((s, d), 6),
    "GraphConv median": lambda s, d: pyg.GraphConv((s, d), 6, aggr="median"),
    "GraphConv min": lambda s, d: pyg.GraphConv((s, d), 6, aggr="min"),
    "GAT": lambda s, d: pyg.GATConv((s, d), 3, heads=2, add_self_loops=False, residual=True),
    "GAT mean of heads": lambda s, d: pyg.GATConv((s, d), 6, heads=2, concat=False, add_self_loops=False),
    "GATv2": lambda s, d: pyg.GATv2Conv((s, d), 3, heads=2, add_self_loops=False),
    "Transformer": lambda s, d: pyg.TransformerConv((s, d), 3, heads=2, beta=True),
    "ResGated": lambda s, d: pyg.ResGatedGraphConv((s, d), 6),
}
WITHIN = {
    "GCN": lambda s: pyg.GCNConv(s, 6),
    "GCN max": lambda s: pyg.GCNConv(s, 6, aggr="max"),
    "GAT with loops": lambda s: pyg.GATConv(s, 3, heads=2),
    "GATv2 with loops": lambda s: pyg.GATv2Conv(s, 3, heads=2),
    "GIN": lambda s: pyg.GINConv(nn.Sequential(nn.Linear(s, 7), nn.ReLU(), nn.Linear(7, 6)), train_eps=True),
    "TAG": lambda s: pyg.TAGConv(s, 6, K=2),
    "Cheb": lambda s: pyg.ChebConv(s, 6, K=3),
    "Cheb by walks": lambda s: pyg.ChebConv(s, 6, K=3, normalization="rw"),
    "PNA": lambda s: pyg.PNAConv(s, 6, ["mean", "max"], ["identity", "amplification"], torch.tensor([0, 2, 3])),
    "Cheap": lambda s: pyg.SimpleConv(combine_root="sum"),
}


class TwoLayers(nn.Module):
    """Two HeteroConvs with an activation of its own for each type, and a head."""

    def __init__(self, convs, aggr="sum"):
        super().__init__()
        self.first = pyg.HeteroConv({t: convs(t, WIDTHS[t[0]], WIDTHS[t[2]]) for t in TRIPLES}, aggr)
        self.second = pyg.HeteroConv({t: pyg.SAGEConv((6, 6), 4) for t in TRIPLES}, "mean")
        self.head = pyg.HeteroDictLinear({"User": 4, "Item": 4}, 2)

    def forward(self, x_dict, edge_index_dict):
        h = self.first(x_dict, edge_index_dict)
        h = {name: torch.tanh(rows) if name == "Item" else rows.relu() for name, rows in h.items()}
        h = self.second(h, edge_index_dict)
        return {**self.head(h), "Shop": h["Shop"]}


def run(module, seed, batches=8, **options):
    """A stream of batches of all sizes, with the two checked after each; returns the engine."""
    rng = np.random.default_rng(seed)
    liven(module)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    engine = lg.Engine(lg.from_pyg(module), graph, threads=2, **options)
    check_hetero(engine, module, mirror, "at first")
    for number in range(batches):
        engine.apply(random_typed_batch(rng, mirror, int(rng.integers(1, 25))))
        check_hetero(engine, module, mirror, f"after batch {number}")
    return engine


@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_layer_between_and_within_types(name):
    for seed in range(3):
        run(TwoLayers(lambda _, s, d: EVERYWHERE[name](s, d)), seed)


@pytest.mark.parametrize("name", [name for name in WITHIN if name != "Cheap"])
def test_every_layer_within_a_type(name):
    def convs(triple, src, dst):
        return WITHIN[name](src) if triple == FOLLOW else pyg.SAGEConv((src, dst), 6)

    for seed in range(3):
        run(TwoLayers(convs), seed)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_relations_are_joined_as_in_pyg(aggr):
    run(TwoLayers(lambda _, s, d: pyg.GraphConv((s, d), 6), aggr), 5)


@pytest.mark.parametrize("path", ["push", "pull", "sweep"])
def test_every_path(path):
    run(TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6)), 6, path=path)


@pytest.mark.parametrize("strategy", ["constrained", "affected", "khop", "full"])
def test_other_strategies(strategy):
    for seed, name in enumerate(("GAT", "SAGE max", "GraphConv", "Transformer")):
        run(TwoLayers(lambda _, s, d, name=name: EVERYWHERE[name](s, d)), seed, strategy=strategy)
    run(Transformer(2), 7, strategy=strategy)


class Plain(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(8), make(4)
        self.norm, self.lin = pyg.BatchNorm(8), pyg.Linear(-1, 3)

    def forward(self, x, edge_index):
        h = self.norm(self.first(x, edge_index)).relu()
        return self.lin(self.second(h, edge_index))


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(
    "make",
    [
        lambda size: pyg.SAGEConv((-1, -1), size),
        lambda size: pyg.GATConv((-1, -1), size, add_self_loops=False),
        lambda size: pyg.GraphConv((-1, -1), size),
    ],
)
def test_to_hetero(make, aggr):
    module = pyg.to_hetero(Plain(make), METADATA, aggr).eval()
    x = {name: torch.zeros(1, width) for name, width in WIDTHS.items()}
    module(x, {triple: torch.zeros(2, 0, dtype=torch.long) for triple in TRIPLES})  # makes the lazy layers
    run(module, 8)


MODELS = {
    "GraphSAGE": lambda: pyg.GraphSAGE((-1, -1), 6, 2, 3),
    "GraphSAGE jk": lambda: pyg.GraphSAGE((-1, -1), 6, 3, 3, jk="cat", norm="batch_norm", act="elu"),
    "GAT": lambda: pyg.GAT((-1, -1), 6, 2, 3, heads=2, add_self_loops=False),
    "GAT v2": lambda: pyg.GAT((-1, -1), 6, 2, 3, v2=True, add_self_loops=False),
}


@pytest.mark.parametrize("aggr", ["sum", "max"])
@pytest.mark.parametrize("name", MODELS)
def test_to_hetero_of_whole_models(name, aggr):
    """Their TrimToLayer does nothing without numbers of sampled vertices."""
    module = pyg.to_hetero(MODELS[name](), METADATA, aggr).eval()
    x = {key: torch.zeros(1, width) for key, width in WIDTHS.items()}
    module(x, {triple: torch.zeros(2, 0, dtype=torch.long) for triple in TRIPLES})  # makes the lazy layers
    run(module, 9)


class Transformer(nn.Module):
    """HGT as in PyG's example: a layer per type, attention over all relations at once."""

    def __init__(self, heads):
        super().__init__()
        self.lins = nn.ModuleDict({name: pyg.Linear(width, 8) for name, width in WIDTHS.items()})
        self.convs = nn.ModuleList([pyg.HGTConv(8, size, METADATA, heads) for size in (8, 4)])

    def forward(self, x_dict, edge_index_dict):
        h = {name: self.lins[name](x).relu() for name, x in x_dict.items()}
        for conv in self.convs:
            h = conv(h, edge_index_dict)
        return h


@pytest.mark.parametrize("heads", [1, 2])
def test_hgt(heads):
    for seed in range(3):
        run(Transformer(heads), seed)


class WithWeights(nn.Module):
    """Edge weights by edge type."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.HeteroConv({t: pyg.GraphConv((WIDTHS[t[0]], WIDTHS[t[2]]), 4) for t in TRIPLES})

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        return self.conv(x_dict, edge_index_dict, edge_weight_dict)


class WithAttributes(nn.Module):
    """Edge attributes by edge type, encoded once for each."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(2, 3)
        make = lambda s, d: pyg.GATConv((s, d), 4, edge_dim=3, add_self_loops=False)  # noqa: E731
        self.conv = pyg.HeteroConv({t: make(WIDTHS[t[0]], WIDTHS[t[2]]) for t in TRIPLES})

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        rows = {triple: self.encode(each).relu() for triple, each in edge_attr_dict.items()}
        return self.conv(x_dict, edge_index_dict, edge_attr_dict=rows)


@pytest.mark.parametrize("column", ["weight", "attr"])
def test_weights_and_attributes(column):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        module = liven(WithWeights() if column == "weight" else WithAttributes())
        options = {"weighted": True} if column == "weight" else {"attr_width": 2}
        graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES, **options)
        engine = lg.Engine(lg.from_pyg(module, edge_width=2 if column == "attr" else None), graph)
        for number in range(8):
            engine.apply(random_typed_batch(rng, mirror, int(rng.integers(1, 25))))
            check_hetero(engine, module, mirror, f"after batch {number}", (column,))


def test_some_types_and_relations_of_a_graph_alone():
    class Some(nn.Module):
        def __init__(self):
            super().__init__()
            sage = pyg.SAGEConv
            self.conv = pyg.HeteroConv({BUY: sage((5, 3), 4), LIKE: sage((5, 3), 4), FOLLOW: sage(5, 4)})

        def forward(self, x_dict, edge_index_dict):
            return {"Item": self.conv(x_dict, edge_index_dict)["Item"]}

    engine = run(Some(), 9)
    assert engine.model.vertex_types == ("User", "Item")
    assert BOUGHT not in engine.model.edge_types
    assert IN in engine.graph.edge_types


def test_a_slot_that_one_batch_makes_and_leaves_free():
    """A later vertex of another type takes it; the minimum's and maximum's own term was never there."""
    for aggr in ("max", "min"):
        module = TwoLayers(
            lambda t, s, d, aggr=aggr: pyg.GCNConv(s, 6, aggr=aggr) if t == FOLLOW else pyg.SAGEConv((s, d), 6)
        )
        liven(module)
        graph, mirror = random_typed_graph(np.random.default_rng(1), WIDTHS, TRIPLES)
        engine = lg.Engine(lg.from_pyg(module), graph, path="push", threads=1)
        number = mirror.counts["User"]
        updates = lg.Updates()
        updates.add_vertex(number, np.ones(WIDTHS["User"]), vertex_type="User")
        updates.remove_vertex(number, vertex_type="User")
        engine.apply(updates)
        updates = lg.Updates()
        updates.add_vertex(mirror.counts["Item"], np.ones(WIDTHS["Item"]), vertex_type="Item")
        engine.apply(updates)
        engine.verify()
