"""Every supported convolution and option equals PyG in float64."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal

YES_NO = (True, False)


@pytest.mark.parametrize("bias", YES_NO)
@pytest.mark.parametrize("self_loops", YES_NO)
@pytest.mark.parametrize("improved", YES_NO)
def test_gcn_conv_normalised(improved, self_loops, bias):
    model = assert_equal(pyg.GCNConv(5, 3, improved=improved, add_self_loops=self_loops, bias=bias))
    assert model.weights == "optional"


@pytest.mark.parametrize("self_loops", YES_NO)
@pytest.mark.parametrize("aggr", ["max", "min", "median"])
def test_gcn_conv_extremes(aggr, self_loops):
    assert_equal(pyg.GCNConv(5, 3, aggr=aggr, add_self_loops=self_loops))


@pytest.mark.parametrize("aggr", ["add", "sum", "mean", "max", "min", "median"])
def test_gcn_conv_without_normalisation(aggr):
    assert_equal(pyg.GCNConv(5, 3, normalize=False, aggr=aggr))


@pytest.mark.parametrize("bias", YES_NO)
@pytest.mark.parametrize("aggr", ["add", "sum", "mean", "max", "min"])
def test_graph_conv(aggr, bias):
    assert_equal(pyg.GraphConv(5, 3, aggr=aggr, bias=bias))


@pytest.mark.parametrize("normalize", YES_NO)
@pytest.mark.parametrize("project", YES_NO)
@pytest.mark.parametrize("root_weight", YES_NO)
@pytest.mark.parametrize("aggr", ["mean", "add", "sum", "max", "min"])
def test_sage_conv(aggr, root_weight, project, normalize):
    model = assert_equal(pyg.SAGEConv(5, 3, aggr=aggr, root_weight=root_weight, project=project, normalize=normalize))
    assert model.weights == "none"


def test_convs_with_two_widths_take_one_kind_of_rows():
    assert_equal(pyg.SAGEConv((5, 5), 3))
    assert_equal(pyg.GraphConv((5, 5), 3))


class RowLocal(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))) * 2.0


@pytest.mark.parametrize(
    ("make", "rtol"),
    [
        (lambda: nn.Linear(5, 3), EXACT),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 3)), EXACT),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 3)), ROUNDED),
        (lambda: nn.Sequential(nn.Linear(5, 4), pyg.BatchNorm(4, eps=0.1), nn.ELU()), ROUNDED),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False)), ROUNDED),
        (lambda: nn.Sequential(nn.Sequential(nn.Linear(5, 4), nn.GELU()), nn.LayerNorm(4)), EXACT),
        (lambda: pyg.MLP([5, 6, 3]), ROUNDED),
        (lambda: pyg.MLP([5, 6, 3], norm=None, act="tanh", dropout=0.5), EXACT),
        (lambda: pyg.MLP([5, 6, 3], norm="layer_norm", norm_kwargs={"mode": "node"}, plain_last=False), EXACT),
        (lambda: pyg.MLP([5, 6, 3], act_first=True, bias=False), ROUNDED),
        (RowLocal, EXACT),
        (lambda: torch.tanh, EXACT),
    ],
)
@pytest.mark.parametrize("train_eps", YES_NO)
def test_gin_conv(make, rtol, train_eps):
    assert_equal(pyg.GINConv(make(), eps=0.3, train_eps=train_eps), rtol=rtol, input_width=5)


@pytest.mark.parametrize("aggr", ["mean", "max", "min"])
def test_gin_conv_aggregations(aggr):
    assert_equal(pyg.GINConv(nn.Linear(5, 3), aggr=aggr))


@pytest.mark.parametrize("self_loops", YES_NO)
@pytest.mark.parametrize("hops", [1, 3])
def test_sg_conv(hops, self_loops):
    assert_equal(pyg.SGConv(5, 3, K=hops, add_self_loops=self_loops))


@pytest.mark.parametrize("normalize", YES_NO)
@pytest.mark.parametrize("self_loops", YES_NO)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_appnp(self_loops, normalize, dropout):
    conv = pyg.APPNP(3, 0.15, dropout=dropout, add_self_loops=self_loops, normalize=normalize)
    assert_equal(conv, input_width=4)


@pytest.mark.parametrize("normalize", YES_NO)
def test_lg_conv(normalize):
    assert_equal(pyg.LGConv(normalize=normalize), input_width=4)


@pytest.mark.parametrize("normalize", YES_NO)
def test_tag_conv(normalize):
    assert_equal(pyg.TAGConv(5, 3, K=2, normalize=normalize))


@pytest.mark.parametrize("bias", YES_NO)
@pytest.mark.parametrize("normalization", ["sym", "rw"])
@pytest.mark.parametrize("hops", [1, 2, 3, 5])
def test_cheb_conv(hops, normalization, bias):
    model = assert_equal(pyg.ChebConv(5, 3, K=hops, normalization=normalization, bias=bias))
    assert model.weights == ("optional" if hops > 1 else "none")


class WithLambda(nn.Module):
    """The scale as a number in the forward."""

    def __init__(self, number, **options):
        super().__init__()
        self.conv, self.number = pyg.ChebConv(5, 3, K=3, **options), number

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight, lambda_max=self.number)


@pytest.mark.parametrize("normalization", ["sym", "rw", None])
@pytest.mark.parametrize("number", [1.7, 3])
def test_cheb_conv_with_a_constant_scale(number, normalization):
    assert_equal(WithLambda(number, normalization=normalization))


@pytest.mark.parametrize("self_loops", YES_NO)
def test_ssg_conv_and_mix_hop_conv(self_loops):
    assert_equal(pyg.SSGConv(5, 3, alpha=0.2, K=3, add_self_loops=self_loops))
    assert_equal(pyg.MixHopConv(5, 3, powers=[2, 0], add_self_loops=self_loops))
    assert_equal(pyg.MixHopConv(5, 3, bias=False, add_self_loops=self_loops))


class WithFirst(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.lin = nn.Linear(5, 4)
        self.convs = nn.ModuleList(pyg.GCN2Conv(4, alpha=0.1, layer=k + 1, theta=0.5, **options) for k in range(2))

    def forward(self, x, edge_index, edge_weight=None):
        x = first = self.lin(x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index, edge_weight).relu()
        return x


@pytest.mark.parametrize("normalize", YES_NO)
@pytest.mark.parametrize("shared", YES_NO)
def test_gcn2_conv(shared, normalize):
    assert_equal(WithFirst(shared_weights=shared, normalize=normalize))


@pytest.mark.parametrize(
    ("aggr", "root"),
    [("sum", None), ("sum", "sum"), ("sum", "cat"), ("sum", "self_loop"), ("mean", None), ("mean", "sum")],
)
def test_simple_conv(aggr, root):
    assert_equal(pyg.SimpleConv(aggr, combine_root=root), input_width=4)
