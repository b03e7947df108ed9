"""Recurrent convolutions, and those with factors and weights of their own, equal PyG in float64."""

import pytest
from torch import nn
from torch_geometric import nn as pyg

from tests.oracle.pyg_oracle import ROUNDED, assert_equal

YES_NO = (True, False)
BIG = ((1, 2), (12, 40))


@pytest.mark.parametrize("bias", YES_NO)
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("layers", [1, 3])
def test_gated_graph(layers, aggr, bias):
    conv = pyg.GatedGraphConv(5, layers, aggr, bias)
    assert assert_equal(conv).input_width == 5
    assert assert_equal(conv, input_width=3).weights == "optional"  # columns of zeros fill up


@pytest.mark.parametrize("shared", YES_NO)
@pytest.mark.parametrize(("stacks", "layers"), [(1, 1), (3, 1), (2, 3)])
@pytest.mark.parametrize("act", [nn.ReLU(), None, nn.Softmax(dim=-1)])
def test_arma(act, stacks, layers, shared):
    assert_equal(pyg.ARMAConv(5, 3, stacks, layers, shared, act, dropout=0.5, bias=shared))


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
def test_le(aggr):
    assert assert_equal(pyg.LEConv(5, 3, bias=aggr == "add", aggr=aggr)).weights == "optional"


@pytest.mark.parametrize("diagonal", [0.0, 0.7])
def test_cluster_gcn(diagonal):
    assert_equal(pyg.ClusterGCNConv(5, 3, diag_lambda=diagonal), rtol=ROUNDED)  # PyG divides in float32


def test_wl_continuous():
    assert_equal(pyg.WLConvContinuous(), input_width=4)


@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("degree", [0, 2, 10])
def test_mf(degree, aggr):
    assert_equal(pyg.MFConv(5, 3, degree, bias=degree > 0, aggr=aggr), sizes=((1, 0), (2, 4), (12, 40), (5, 60)))


@pytest.mark.parametrize("phi", [None, pyg.GraphConv(4, 4, aggr="max"), pyg.GATv2Conv(4, 4)])
def test_antisymmetric(phi):
    conv = pyg.AntiSymmetricConv(4, phi, num_iters=3, epsilon=0.2, gamma=0.3, act="elu")
    assert assert_equal(conv, rtol=ROUNDED).depth >= 3
