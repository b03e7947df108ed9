"""Every convolution that reads edge types, and every option, equals PyG in float64."""

import pytest
from torch import nn
from torch_geometric import nn as pyg

from livegnn.models.edges import Gather
from livegnn.models.ir import walk
from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal

YES_NO = (True, False)
SHAPES = [{}, {"num_bases": 2}, {"num_blocks": 2}]
BIG = ((1, 2), (12, 40))


@pytest.mark.parametrize("root", YES_NO)
@pytest.mark.parametrize("aggr", ["mean", "add", "max", "min"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rgcn(shape, aggr, root):
    model = assert_equal(pyg.RGCNConv(4, 6, 3, aggr=aggr, root_weight=root, bias=root, **shape), sizes=BIG)
    assert model.uses_types
    assert not any(isinstance(value, Gather) for value in walk(model.output))


@pytest.mark.parametrize("aggr", ["mean", "add"])
@pytest.mark.parametrize("shape", SHAPES)
def test_fast_rgcn(shape, aggr):
    assert_equal(pyg.FastRGCNConv(4, 6, 3, aggr=aggr, **shape), sizes=BIG)


def test_a_type_that_the_layer_does_not_know_counts_for_nothing():
    assert_equal(pyg.RGCNConv(4, 6, 2, num_blocks=2), types=4, sizes=BIG)


MODES = [
    {},
    {"attention_mode": "multiplicative-self-attention"},
    {"attention_mode": "multiplicative-self-attention", "dim": 2},
]


@pytest.mark.parametrize("mod", [None, "additive", "scaled", "f-scaled"])
@pytest.mark.parametrize("concat", YES_NO)
@pytest.mark.parametrize("mode", MODES)
def test_rgat(mode, concat, mod):
    conv = pyg.RGATConv(
        4, 6, 3, heads=2, concat=concat, mod=mod, attention_mechanism="within-relation", negative_slope=0.3, **mode
    )  # fmt: skip
    nn.init.normal_(conv.l2)  # PyG leaves it as it finds it in memory
    assert_equal(conv, sizes=BIG)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rgat_shapes_and_attributes(shape, mode):
    conv = pyg.RGATConv(4, 6, 3, heads=2, edge_dim=2, attention_mechanism="within-relation", **shape, **mode)
    nn.init.normal_(conv.l2)
    assert assert_equal(conv, rtol=ROUNDED, sizes=BIG).attribute_width == 2


def test_rgat_of_one_relation():
    conv = pyg.RGATConv(4, 6, 1, heads=2)
    nn.init.normal_(conv.l2)
    assert_equal(conv, types=1, sizes=BIG)


@pytest.mark.parametrize("relations", [1, 3])
@pytest.mark.parametrize("act", [nn.ReLU(), None, nn.Tanh()])
@pytest.mark.parametrize("aggr", ["mean", "add", "max"])
def test_film(aggr, act, relations):
    model = assert_equal(pyg.FiLMConv(4, 3, relations, act=act, aggr=aggr), rtol=EXACT)
    assert model.uses_types == (relations > 1)


def test_film_with_a_network_of_its_own():
    assert_equal(pyg.FiLMConv(4, 3, 2, nn=nn.Sequential(nn.Linear(4, 5), nn.ELU(), nn.Linear(5, 6))))


class OnData(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = pyg.RGCNConv(4, 5, 3), pyg.RGCNConv(5, 2, 2)

    def forward(self, data):
        h = self.first(data.x, data.edge_index, data.edge_type).relu()
        return self.second(h, data.edge_index, data.edge_type)


def test_types_in_data():
    from torch_geometric.data import Data

    def call(module, x, edge_index, edge_type, **_):
        return module(Data(x=x, edge_index=edge_index, edge_type=edge_type))

    assert assert_equal(OnData(), call=call, types=2, sizes=BIG).uses_types


class Everything(nn.Module):
    """Weights, attributes and types in one forward, by other names."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = pyg.GCNConv(4, 4), pyg.GINEConv(nn.Linear(4, 4), edge_dim=3), pyg.RGCNConv(4, 2, 3)

    def forward(self, x, adj, weights, edge_features, etype=None):
        x = self.a(x, adj, weights).tanh()
        return self.c(self.b(x, adj, edge_features).relu(), adj, etype)


def test_all_columns_of_edges_at_once():
    def call(module, x, adj, weights, edge_attr, edge_type):
        return module(x, adj, weights, edge_attr, edge_type)

    model = assert_equal(Everything(), call=call, sizes=BIG)
    assert (model.weights, model.attribute_width, model.uses_types) == ("required", 3, True)
