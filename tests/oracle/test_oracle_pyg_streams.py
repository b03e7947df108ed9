"""Imported PyG modules over random streams: after every batch the live outputs are PyG's own, run in float64."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.testing import random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven


class Stack(nn.Module):
    """Convolutions one after the other with ELU between them; all that can are given the edge weights."""

    def __init__(self, *convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index, edge_weight=None):
        for k, conv in enumerate(self.convs):
            x = x if k == 0 else torch.nn.functional.elu(x)
            blind = isinstance(conv, pyg.SAGEConv | pyg.GINConv)
            x = conv(x, edge_index) if blind else conv(x, edge_index, edge_weight)
        return x


class Unweighted(Stack):
    """The same without the argument, as no layer reads weights."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index)


def mlp(a, b):
    return nn.Sequential(nn.Linear(a, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, b))


NODE_NORM = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
WEIGHTED = {
    "gcn": lambda: Stack(pyg.GCNConv(5, 9), pyg.GCNConv(9, 3)),
    "gcn improved": lambda: Stack(pyg.GCNConv(5, 9, improved=True), pyg.GCNConv(9, 3, bias=False)),
    "gcn without self-loops": lambda: Stack(pyg.GCNConv(5, 9, add_self_loops=False), pyg.GCNConv(9, 3)),
    "gcn not normalised": lambda: Stack(pyg.GCNConv(5, 9, normalize=False), pyg.GCNConv(9, 3)),
    "graph conv": lambda: Stack(pyg.GraphConv(5, 9), pyg.GraphConv(9, 4), pyg.GraphConv(4, 3)),
    "graph conv mean": lambda: Stack(pyg.GraphConv(5, 9, aggr="mean"), pyg.GraphConv(9, 3)),
    "sg": lambda: Stack(pyg.SGConv(5, 6, K=2), pyg.SGConv(6, 3, add_self_loops=False)),
    "appnp": lambda: Stack(pyg.GCNConv(5, 4), pyg.APPNP(3, 0.2)),
    "lg": lambda: Stack(pyg.LGConv(), pyg.LGConv(normalize=False), pyg.GCNConv(5, 3)),
    "cheb": lambda: Stack(pyg.ChebConv(5, 6, K=3), pyg.ChebConv(6, 3, K=2)),
    "cheb by walks": lambda: Stack(pyg.ChebConv(5, 6, K=2, normalization="rw"), pyg.GCNConv(6, 3)),
    "mixed": lambda: Stack(pyg.GCNConv(5, 9), pyg.SAGEConv(9, 6), pyg.GraphConv(6, 4), pyg.LGConv()),
    "GCN": lambda: pyg.GCN(5, 8, 3, 2, act="tanh"),
    "GCN batch norm": lambda: pyg.GCN(5, 8, 2, 4, norm="batch_norm", act="silu"),
    "GCN jk cat": lambda: pyg.GCN(5, 8, 2, 3, jk="cat", **NODE_NORM),
    "GCN jk max": lambda: pyg.GCN(5, 8, 3, 3, jk="max", act="leaky_relu"),
}
UNWEIGHTED = {
    "sage": lambda: Unweighted(pyg.SAGEConv(5, 9), pyg.SAGEConv(9, 3, aggr="sum")),
    "sage normalised": lambda: Unweighted(pyg.SAGEConv(5, 9, normalize=True), pyg.SAGEConv(9, 3, root_weight=False)),
    "sage projected": lambda: Unweighted(pyg.SAGEConv(5, 9, project=True), pyg.SAGEConv(9, 3)),
    "gin": lambda: Unweighted(pyg.GINConv(mlp(5, 6), eps=0.2), pyg.GINConv(mlp(6, 3), train_eps=True)),
    "GraphSAGE": lambda: pyg.GraphSAGE(5, 8, 2, 3, act="gelu"),
    "GraphSAGE jk cat": lambda: pyg.GraphSAGE(5, 8, 3, 3, jk="cat", norm="batch_norm"),
    "GraphSAGE act first": lambda: pyg.GraphSAGE(5, 8, 2, 3, act_first=True, **NODE_NORM),
    "GIN": lambda: pyg.GIN(5, 6, 2, 3, act="relu"),
    "GIN jk max": lambda: pyg.GIN(5, 6, 3, 3, jk="max", norm="batch_norm"),
}
CASES = [(name, make, False) for name, make in (WEIGHTED | UNWEIGHTED).items()]
CASES += [(name, make, True) for name, make in WEIGHTED.items()]
CASES += [("sage", UNWEIGHTED["sage"], True)]  # the graph has weights, the model does not read them


def by_pyg(module, mirror, reads_weights, dtype):
    features, src, dst, weight, live = mirror.arrays()
    twin = copy.deepcopy(module).to(dtype).eval()
    arguments = [torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))]
    if reads_weights:
        arguments.append(torch.tensor(weight, dtype=dtype))
    with torch.no_grad():
        return twin(*arguments).numpy()[live]


def check(engine, module, mirror, note):
    engine.verify()
    live = mirror.arrays()[-1]
    assert engine.graph.vertices().tolist() == live.tolist(), note
    reads = mirror.weighted and engine.model.uses_weights
    truth, plain = (by_pyg(module, mirror, reads, dtype) for dtype in (torch.float64, torch.float32))
    got = engine.embeddings(live)
    assert got.shape == truth.shape, note
    assert np.isfinite(truth).all(), note
    check_rows(got, truth, plain, note)


@pytest.mark.parametrize(("name", "make", "weighted"), CASES, ids=[f"{n}{'-weighted' * w}" for n, _, w in CASES])
def test_outputs_follow_the_module_itself(name, make, weighted):
    seed = 7 * len(name) + weighted
    torch.manual_seed(seed)
    module = liven(make(), seed)
    rng = np.random.default_rng(seed)
    graph, mirror = random_graph(rng, 5, weighted, vertices=20)
    engine = lg.Engine(lg.from_pyg(module), graph, threads=1)
    check(engine, module, mirror, f"{name}, seed {seed}, at creation")
    for batch, size in enumerate((1, 8, 25)):
        engine.apply(random_batch(rng, mirror, size))
        check(engine, module, mirror, f"{name}, seed {seed}, version {batch + 1}")


def test_another_module_is_told_apart():
    """The bound is tight enough to see one weight in one layer off by a thousandth."""
    module = liven(pyg.GCN(5, 8, 3, 2), 1)
    graph, mirror = random_graph(np.random.default_rng(1), 5, False, vertices=20)
    engine = lg.Engine(lg.from_pyg(module), graph, threads=1)
    with torch.no_grad():
        module.convs[0].lin.weight[0, 0] += 1e-3
    with pytest.raises(AssertionError, match="is off by"):
        check(engine, module, mirror, "other module")
