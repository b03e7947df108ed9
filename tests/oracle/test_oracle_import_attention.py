"""Every convolution with softmax attention, and every option, equals PyG in float64."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal

YES_NO = (True, False)
BIG = ((1, 2), (12, 40))


@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("concat", YES_NO)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv])
def test_gat(kind, heads, concat, loops):
    model = assert_equal(kind(5, 3, heads, concat, negative_slope=0.3, add_self_loops=loops, dropout=0.6))
    assert model.attribute_width is None
    assert model.output_width == (3 * heads if concat else 3)


@pytest.mark.parametrize("fill", ["mean", 0.5, 2])
@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv])
def test_gat_with_attributes(kind, loops, fill):
    rtol = ROUNDED if kind is pyg.GATConv else EXACT  # GATConv's two edge weights become one
    conv = kind(5, 3, 2, edge_dim=4, add_self_loops=loops, fill_value=fill)
    assert assert_equal(conv, rtol=rtol).attribute_width == 4


@pytest.mark.parametrize("bias", YES_NO)
@pytest.mark.parametrize("concat", YES_NO)
@pytest.mark.parametrize("residual", YES_NO)
@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv])
def test_gat_residual_and_bias(kind, residual, concat, bias):
    assert_equal(kind(5, 3, 2, concat=concat, residual=residual, bias=bias))


def test_gat_of_two_widths_takes_one_kind_of_rows():
    assert_equal(pyg.GATConv((5, 5), 3, 2, edge_dim=2, residual=True), rtol=ROUNDED)
    assert_equal(pyg.GATv2Conv((5, 5), 3, 2, edge_dim=2, residual=True))
    assert_equal(pyg.TransformerConv((5, 5), 3, 2))


@pytest.mark.parametrize("loops", YES_NO)
def test_gatv2_shares_weights(loops):
    assert_equal(pyg.GATv2Conv(5, 3, 2, share_weights=True, add_self_loops=loops))


def test_attributes_are_read_only_if_the_layer_has_an_edge_dim():
    class Net(nn.Module):
        def __init__(self, edge_dim):
            super().__init__()
            self.conv = pyg.GATConv(5, 3, edge_dim=edge_dim)

        def forward(self, x, edge_index, edge_attr):
            return self.conv(x, edge_index, edge_attr)

    assert assert_equal(Net(2), rtol=ROUNDED).attribute_width == 2
    assert assert_equal(Net(None), edge_width=2, call=lambda net, x, e: net(x, e, None)).attribute_width is None


class ByWeight(nn.Module):
    def __init__(self, kind, loops):
        super().__init__()
        self.conv = kind(5, 3, 2, edge_dim=1, add_self_loops=loops)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight)


@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv])
def test_weights_as_attributes(kind):
    assert assert_equal(ByWeight(kind, False), rtol=ROUNDED).weights == "required"


@pytest.mark.parametrize("edge_dim", [None, 4])
@pytest.mark.parametrize("beta", YES_NO)
@pytest.mark.parametrize("root_weight", YES_NO)
@pytest.mark.parametrize("concat", YES_NO)
def test_transformer(concat, root_weight, beta, edge_dim):
    conv = pyg.TransformerConv(5, 3, 2, concat, beta, edge_dim=edge_dim, root_weight=root_weight, dropout=0.5)
    assert assert_equal(conv).attribute_width == edge_dim


def test_transformer_without_bias():
    assert_equal(pyg.TransformerConv(5, 3, 1, bias=False, edge_dim=2))


@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("learnt", YES_NO)
def test_agnn(learnt, loops):
    assert_equal(pyg.AGNNConv(learnt, loops), input_width=4)


@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("concat", YES_NO)
@pytest.mark.parametrize("kind", ["MX", "SD"])
def test_super_gat(kind, concat, loops):
    assert_equal(pyg.SuperGATConv(5, 3, 2, concat, attention_type=kind, add_self_loops=loops, dropout=0.5))
    assert_equal(pyg.SuperGATConv(5, 3, 1, concat, attention_type=kind, bias=False))


@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("heads", [1, 3])
def test_feast(heads, loops, aggr):
    assert_equal(pyg.FeaStConv(5, 3, heads, loops, aggr=aggr), sizes=BIG)


def test_a_loop_is_replaced_and_takes_the_mean_of_the_other_attributes():
    conv = pyg.GATConv(2, 2, edge_dim=1).double()
    torch.nn.init.constant_(conv.lin_edge.weight, 3.0)
    x, edges = torch.randn(3, 2).double(), torch.tensor([[0, 1, 2], [1, 1, 1]])
    attributes = torch.tensor([[1.0], [100.0], [3.0]]).double()
    changed = attributes.clone()
    changed[1] = -5.0
    with torch.no_grad():  # the loop 1 -> 1 and its attribute count for nothing
        assert torch.equal(conv(x, edges, attributes), conv(x, edges, changed))
    assert_equal(conv.float(), rtol=ROUNDED)
