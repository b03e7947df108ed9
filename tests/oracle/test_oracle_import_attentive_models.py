"""PyG's own models with attention, several aggregations or edge networks equal PyG in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal

SMALL = ((1, 2), (9, 30))
JOINS = [None, "last", "cat", "max", "lstm"]


@pytest.mark.parametrize("jk", JOINS)
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("norm", [None, "batch_norm"])
def test_gat(norm, v2, jk):
    module = pyg.GAT(4, 6, 3, 4, dropout=0.5, act="elu", norm=norm, jk=jk, v2=v2, heads=2)
    model = assert_equal(module, rtol=EXACT if norm is None else ROUNDED, sizes=SMALL)
    assert (model.depth, model.weights, model.attribute_width) == (3, "none", None)


@pytest.mark.parametrize("v2", [False, True])
def test_gat_with_attributes(v2):
    model = assert_equal(pyg.GAT(4, 6, 2, 3, v2=v2, edge_dim=5), rtol=ROUNDED, sizes=SMALL)
    assert model.attribute_width == 5


@pytest.mark.parametrize("jk", JOINS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_pna(edge_dim, jk):
    options = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
    module = pyg.PNA(4, 6, 2, 3, act="tanh", jk=jk, deg=torch.tensor([1, 3, 2]), edge_dim=edge_dim, **options)
    assert assert_equal(module, rtol=ROUNDED, sizes=SMALL).attribute_width == edge_dim


@pytest.mark.parametrize("jk", JOINS)
@pytest.mark.parametrize("norm", [None, "batch_norm"])
def test_edge_cnn(norm, jk):
    assert_equal(pyg.EdgeCNN(4, 6, 2, 3, act="silu", norm=norm, jk=jk), rtol=ROUNDED, sizes=SMALL)


class Drug(nn.Module):
    """Encoders of vertices and edges, GINE with residuals: the usual model of molecules."""

    def __init__(self):
        super().__init__()
        self.atom, self.bond = nn.Linear(4, 8), nn.Linear(3, 8)
        self.convs = nn.ModuleList(
            pyg.GINEConv(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)), train_eps=True)
            for _ in range(2)
        )
        self.head = nn.Linear(8, 2)

    def forward(self, x, edge_index, edge_attr, batch=None):
        x, e = self.atom(x), self.bond(edge_attr)
        for conv in self.convs:
            x = x + F.relu(conv(x, edge_index, e))
        return self.head(x)


def test_a_model_of_molecules():
    model = assert_equal(Drug(), rtol=ROUNDED)
    assert (model.input_width, model.attribute_width) == (4, 3)


class Recorded(nn.Module):
    """torch.fx gives up on it; its attributes are followed through one run."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GATConv(4, 3, edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        assert len(edge_attr) == edge_index.shape[1]
        return self.conv(x, edge_index, edge_attr).relu()


def test_attributes_in_a_recording():
    assert assert_equal(Recorded(), rtol=ROUNDED).attribute_width == 2


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.TransformerConv(4, 3, heads=2, edge_dim=2), pyg.TransformerConv(6, 3)])

    def forward(self, x, edge_index, edge_attr=None):
        return self.convs[1](self.convs[0](x, edge_index, edge_attr).relu(), edge_index)


def test_attributes_that_a_forward_may_do_without_are_given_where_a_layer_reads_them():
    assert assert_equal(Graph()).attribute_width == 2


class Deep(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.lin, self.edge = nn.Linear(4, 6), nn.Linear(3, 6)
        self.layers = nn.ModuleList(
            pyg.DeepGCNLayer(
                pyg.GENConv(6, 6, t=0.5, learn_t=True), nn.LayerNorm(6), nn.ReLU(), block=block, dropout=0.1
            )
            for _ in range(2 if block != "dense" else 1)
        )

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr = self.lin(x), self.edge(edge_attr)
        for layer in self.layers:
            x = layer(x, edge_index, edge_attr)
        return x


@pytest.mark.parametrize("block", ["res+", "res", "dense", "plain"])
def test_deep_gcn(block):
    assert assert_equal(Deep(block), rtol=ROUNDED).attribute_width == 3


class Weighed(nn.Module):
    """Weights become a column of the attributes, in three ways of writing it."""

    def __init__(self, way):
        super().__init__()
        self.conv, self.way = pyg.GATv2Conv(4, 3, edge_dim=4, add_self_loops=False), way

    def forward(self, x, edge_index, edge_weight, edge_attr):
        column = {
            "view": lambda: edge_weight.view(-1, 1),
            "index": lambda: edge_weight[:, None],
            "unsqueeze": lambda: edge_weight.unsqueeze(-1),
        }[self.way]()
        return self.conv(x, edge_index, torch.cat([edge_attr, column], dim=-1))


@pytest.mark.parametrize("way", ["view", "index", "unsqueeze"])
def test_weights_as_a_column_of_attributes(way):
    model = assert_equal(Weighed(way), edge_width=3)
    assert (model.weights, model.attribute_width) == ("required", 3)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = pyg.SAGEConv(4, 4), pyg.MessageNorm(True)

    def forward(self, x, edge_index):
        return self.norm(x, self.conv(x, edge_index)).abs()


def test_message_norm_and_absolute_values():
    assert_equal(Normed())
