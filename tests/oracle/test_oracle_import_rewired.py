"""Self-loops and degrees that a forward changes between its layers: as in PyG, at import and on a live engine."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, remove_self_loops

import livegnn as lg
from livegnn.testing import random_batch, random_graph
from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal, liven
from tests.oracle.test_oracle_pyg_streams import check


class Plain(nn.Module):
    """A forward without weights."""

    def __init__(self, how, *convs):
        super().__init__()
        self.how, self.convs = how, nn.ModuleList(convs)

    def forward(self, x, edge_index):
        return self.how(self, x, edge_index)


class Weighted(Plain):
    def forward(self, x, edge_index, edge_weight=None):
        return self.how(self, x, edge_index, edge_weight)


def both(net, x, *edges):
    return net.convs[1](net.convs[0](x, *edges).relu(), *edges)


def looped(net, x, edge_index):
    edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
    return both(net, x, edge_index)


def by_module(net, x, edge_index):
    return both(net, x, utils.add_self_loops(edge_index, num_nodes=x.shape[0])[0])


def remaining(net, x, edge_index):
    edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=x.size(0))
    return both(net, x, edge_index)


def removed(net, x, edge_index):
    edge_index, _ = remove_self_loops(edge_index)
    return both(net, x, edge_index)


def renewed(net, x, edge_index):
    edge_index, _ = remove_self_loops(edge_index)
    edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
    return both(net, x, edge_index)


def normed(net, x, edge_index):
    edge_index, norm = gcn_norm(edge_index, num_nodes=x.size(0), add_self_loops=True)
    return both(net, x, edge_index, norm)


def degrees(net, x, edge_index):
    _row, col = edge_index
    count = degree(col, x.size(0), dtype=x.dtype)
    scale = count.pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0).view(-1, 1)
    return net.convs[1](net.convs[0](x * scale, edge_index) * scale, edge_index) + torch.log1p(count).unsqueeze(-1)


def gcn(**options):
    return pyg.GCNConv(5, 6, **options), pyg.GCNConv(6, 3, **options)


def weighted_norm(net, x, edge_index, edge_weight):
    edge_index, edge_weight = gcn_norm(edge_index, edge_weight, x.size(0), net.improved)
    return both(net, x, edge_index, edge_weight)


def weighted_loops(net, x, edge_index, edge_weight):
    edge_index, edge_weight = add_self_loops(edge_index, edge_weight, fill_value=0.5, num_nodes=x.size(0))
    return both(net, x, edge_index, edge_weight)


def weighted_remaining(net, x, edge_index, edge_weight):
    edge_index, edge_weight = add_remaining_self_loops(edge_index, edge_weight, num_nodes=x.size(0))
    return both(net, x, edge_index, edge_weight)


def weighted_renewed(net, x, edge_index, edge_weight):
    edge_index, edge_weight = remove_self_loops(edge_index, edge_weight)
    edge_index, edge_weight = add_self_loops(edge_index, edge_weight, num_nodes=x.size(0))
    return both(net, x, edge_index, edge_weight)


PLAIN = {
    "loops to a GCN without": lambda: Plain(looped, *gcn(add_self_loops=False)),
    "loops by the module": lambda: Plain(by_module, *gcn(add_self_loops=False)),
    "loops to a GCN": lambda: Plain(looped, *gcn()),
    "loops to GAT and SAGE": lambda: Plain(looped, pyg.GATConv(5, 6), pyg.SAGEConv(6, 3)),
    "loops to sums": lambda: Plain(looped, pyg.GraphConv(5, 6), pyg.GINConv(nn.Linear(6, 3))),
    "remaining to GAT": lambda: Plain(
        remaining, pyg.GATConv(5, 6, add_self_loops=False), pyg.GATv2Conv(6, 3, add_self_loops=False)
    ),
    "remaining to SAGE": lambda: Plain(remaining, pyg.SAGEConv(5, 6, aggr="max"), pyg.SAGEConv(6, 3)),
    "removed to a GCN": lambda: Plain(removed, *gcn()),
    "removed to a GCN without": lambda: Plain(removed, *gcn(add_self_loops=False)),
    "removed to sums": lambda: Plain(removed, pyg.SAGEConv(5, 6), pyg.SAGEConv(6, 3, aggr="max")),
    "renewed": lambda: Plain(renewed, pyg.LGConv(), pyg.TAGConv(5, 3)),
    "renewed to attention": lambda: Plain(renewed, pyg.GATConv(5, 6, add_self_loops=False), pyg.GATConv(6, 3)),
    "norm": lambda: Plain(normed, *gcn(normalize=False)),
    "norm of hops": lambda: Plain(normed, pyg.GCNConv(5, 3, normalize=False), pyg.LGConv(normalize=False)),
    "renewed to ClusterGCN": lambda: Plain(
        renewed, *(pyg.ClusterGCNConv(5, w, diag_lambda=0.5, add_self_loops=False) for w in (5, 3))
    ),
    "degrees": lambda: Plain(degrees, pyg.SimpleConv(), pyg.GraphConv(5, 3)),
}
WEIGHTED = {
    "weighted norm": (weighted_norm, False, lambda: gcn(normalize=False)),
    "improved norm": (weighted_norm, True, lambda: gcn(normalize=False)),
    "weighted loops": (weighted_loops, False, lambda: gcn(add_self_loops=False)),
    "weighted loops to sums": (weighted_loops, False, lambda: (pyg.GraphConv(5, 6), pyg.GraphConv(6, 3, aggr="mean"))),
    "weighted remaining": (weighted_remaining, False, lambda: gcn(add_self_loops=False)),
    "weighted renewed": (weighted_renewed, False, lambda: gcn(add_self_loops=False)),
}


def weighted(name):
    how, improved, make = WEIGHTED[name]
    net = Weighted(how, *make())
    net.improved = improved
    return net


def make(name):
    torch.manual_seed(0)
    return PLAIN[name]() if name in PLAIN else weighted(name)


def by_type(net, x, edge_index):
    if isinstance(edge_index, torch.Tensor):  # which what torch.fx passes is not
        edge_index, norm = gcn_norm(edge_index, None, x.size(0), False, dtype=x.dtype)
    else:
        norm = None
    return both(net, x, edge_index, norm)


def test_what_fx_misreads_is_recorded():
    model = assert_equal(Plain(by_type, *gcn(normalize=False)), rtol=ROUNDED)
    assert model.depth == 2


class OfData(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(gcn(add_self_loops=False))

    def forward(self, data):
        edge_index, _ = add_self_loops(data.edge_index, num_nodes=data.num_nodes)
        return both(self, data.x.view(data.num_nodes, data.num_features), edge_index)


def test_a_data_has_its_numbers():
    model = assert_equal(OfData(), call=lambda module, x, edge_index: module(Data(x=x, edge_index=edge_index)))
    assert model.input_width == 5


@pytest.mark.parametrize("name", [*PLAIN, *WEIGHTED])
def test_at_import(name):
    rounded = "norm" in name or "Cluster" in name  # degrees in float32 whatever the rows are
    model = assert_equal(make(name), rtol=ROUNDED if rounded else EXACT, input_width=5)
    assert model.weights == ("none" if name in PLAIN else "optional")


@pytest.mark.parametrize("name", [*PLAIN, *WEIGHTED])
def test_on_streams(name):
    rng = np.random.default_rng(len(name))
    module = liven(make(name))
    graph, mirror = random_graph(rng, 5, name in WEIGHTED, vertices=20)
    engine = lg.Engine(lg.from_pyg(module), graph, threads=1)
    for batch, size in enumerate((1, 8, 25)):
        engine.apply(random_batch(rng, mirror, size))
        engine.verify()
        check(engine, module, mirror, f"{name}, version {batch + 1}")
