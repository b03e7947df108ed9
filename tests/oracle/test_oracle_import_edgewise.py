"""Every convolution that computes messages edge by edge, and every option, equals PyG in float64."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.models.edges import Gather
from livegnn.models.ir import walk
from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal

YES_NO = (True, False)
SIMPLE = ["add", "mean", "max", "min"]
BIG = ((1, 2), (12, 40))


def gathers(model):
    return sum(isinstance(value, Gather) for value in walk(model.output))


@pytest.mark.parametrize("aggr", SIMPLE)
@pytest.mark.parametrize("edge_dim", [3, None])
def test_gine(edge_dim, aggr):
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    model = assert_equal(pyg.GINEConv(net, eps=0.3, train_eps=True, edge_dim=edge_dim, aggr=aggr))
    assert model.attribute_width == (edge_dim or 5)


@pytest.mark.parametrize("root", YES_NO)
@pytest.mark.parametrize("aggr", SIMPLE)
def test_nn_conv(aggr, root):
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5 * 2))
    assert assert_equal(pyg.NNConv(5, 2, net, aggr, root, bias=root)).attribute_width == 3


@pytest.mark.parametrize("dim", [0, 3])
@pytest.mark.parametrize("batch_norm", YES_NO)
@pytest.mark.parametrize("aggr", SIMPLE)
def test_cg(aggr, batch_norm, dim):
    conv = pyg.CGConv(4, dim, aggr, batch_norm, bias=not batch_norm)
    assert assert_equal(conv, rtol=ROUNDED if batch_norm else EXACT).attribute_width == (dim or None)


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("root", YES_NO)
@pytest.mark.parametrize("act", [nn.Sigmoid(), nn.Tanh(), torch.relu])
def test_res_gated(act, root, edge_dim):
    assert_equal(pyg.ResGatedGraphConv(4, 3, act, edge_dim, root, bias=root))


NETS = {
    "linear": lambda: nn.Linear(8, 3),
    "one": lambda: nn.Sequential(nn.Linear(8, 3, bias=False)),
    "two": lambda: nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)),
    "mlp": lambda: pyg.MLP([8, 6, 3], norm=None, act="elu"),
    "late": lambda: nn.Sequential(nn.Tanh(), nn.Linear(8, 3)),
}


@pytest.mark.parametrize("aggr", [*SIMPLE, "var", "std", "softmax"])
@pytest.mark.parametrize("name", NETS)
def test_edge_conv(name, aggr):
    rtol = ROUNDED if aggr == "std" else EXACT
    model = assert_equal(pyg.EdgeConv(NETS[name](), aggr), rtol=rtol)
    assert model.input_width == 4  # half of what the network reads
    alone = name in ("linear", "one") and aggr != "softmax"
    assert (gathers(model) == 0) == alone  # one Linear needs no rows of edges


@pytest.mark.parametrize("aggr", ["add", "max", "mean"])
def test_an_empty_neighbourhood_stays_0_though_the_linear_has_a_bias(aggr):
    conv = pyg.EdgeConv(nn.Linear(8, 3), aggr).double()
    with torch.no_grad():
        assert (conv(torch.ones(2, 4).double(), torch.tensor([[0], [1]]))[0] == 0).all()
    assert_equal(conv.float(), input_width=4)


class WithFirst(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.lin, self.conv = nn.Linear(5, 4), pyg.FAConv(4, dropout=0.5, **options)

    def forward(self, x, edge_index):
        first = self.lin(x).relu()
        return self.conv(first.tanh(), first, edge_index)


class WithWeights(WithFirst):
    def forward(self, x, edge_index, edge_weight):
        first = self.lin(x).relu()
        return self.conv(first.tanh(), first, edge_index, edge_weight)


@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_fa(eps, loops):
    assert_equal(WithFirst(eps=eps, add_self_loops=loops))
    assert assert_equal(WithWeights(eps=eps, normalize=False, add_self_loops=False)).weights == "required"


@pytest.mark.parametrize("normalize", YES_NO)
def test_pdn(normalize):
    conv = pyg.PDNConv(5, 3, edge_dim=4, hidden_channels=6, add_self_loops=False, normalize=normalize)
    assert assert_equal(conv).attribute_width == 4


@pytest.mark.parametrize("loops", YES_NO)
def test_pdn_without_attributes_is_gcn(loops):
    conv = pyg.PDNConv(5, 3, edge_dim=4, hidden_channels=6, add_self_loops=loops, bias=loops)
    assert gathers(assert_equal(conv, edge_width=0)) == 0


@pytest.mark.parametrize("separate", YES_NO)
@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_gmm(aggr, separate):
    conv = pyg.GMMConv(4, 3, dim=2, kernel_size=5, separate_gaussians=separate, aggr=aggr)
    assert_equal(conv, rtol=1e-4, sizes=BIG)  # 1 / sigma^2 is rounded to float32 and stands in an exponent


@pytest.mark.parametrize("edges", [None, 3])
@pytest.mark.parametrize("directed", YES_NO)
@pytest.mark.parametrize("attention", [None, "additive", "dot_product"])
def test_general(attention, directed, edges):
    options = {} if attention is None else {"attention": True, "attention_type": attention}
    conv = pyg.GeneralConv(5, 3, edges, directed_msg=directed, heads=2, l2_normalize=directed, **options)
    model = assert_equal(conv, sizes=BIG)
    assert (gathers(model) == 0) == (attention is None and edges is None)


GEN = [
    {"aggr": "softmax"},
    {"aggr": "softmax", "t": 0.3},
    {"aggr": "softmax", "learn_t": True},
    {"aggr": "softmax_sg", "t": 2.0},
    {"aggr": "powermean"},
    {"aggr": "powermean", "p": 3.0},
    {"aggr": "powermean", "learn_p": True},
    {"aggr": "power", "p": -0.5},
    {"aggr": "mean", "msg_norm": True, "learn_msg_scale": True},
    {"aggr": "max", "norm": "layer", "num_layers": 3},
    {"aggr": ["add", "std"], "bias": True, "norm": None},
    {"aggr": "add", "num_layers": 1},
]


@pytest.mark.parametrize("edge_dim", [None, 4])
@pytest.mark.parametrize("widths", [(5, 3), (3, 3)])
@pytest.mark.parametrize("options", GEN)
def test_gen(options, widths, edge_dim):
    conv = pyg.GENConv(*widths, edge_dim=edge_dim, **options)
    assert assert_equal(conv, rtol=ROUNDED).attribute_width == edge_dim


def test_gen_takes_attributes_of_its_own_width():
    assert assert_equal(pyg.GENConv(5, 3, edge_dim=3), rtol=ROUNDED, edge_width=3).attribute_width == 3


class Encoded(nn.Module):
    """The module's own encoder of attributes stands before two layers."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 6), nn.ReLU())
        self.conv1, self.conv2 = pyg.GINEConv(nn.Linear(6, 6)), pyg.GATv2Conv(6, 2, edge_dim=6, add_self_loops=False)
        self.lift = nn.Linear(4, 6)

    def forward(self, x, edge_index, edge_attr):
        e = self.encoder(edge_attr)
        return self.conv2(self.conv1(self.lift(x), edge_index, e).relu(), edge_index, e + 1.0)


def test_an_encoder_of_attributes():
    model = assert_equal(Encoded())
    assert (model.input_width, model.attribute_width) == (4, 3)


class OnData(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GINEConv(nn.Linear(4, 2), edge_dim=3)

    def forward(self, data):
        return self.conv(data.x, data.edge_index, edge_attr=data.edge_attr)


def test_attributes_in_data():
    from torch_geometric.data import Data

    def call(module, x, edge_index, edge_attr, **_):
        return module(Data(x=x, edge_index=edge_index, edge_attr=edge_attr))

    assert assert_equal(OnData(), call=call).attribute_width == 3


def test_positional_attributes_in_a_sequential():
    conv = pyg.GINEConv(nn.Linear(4, 2), edge_dim=3)
    model = assert_equal(pyg.Sequential("x, edge_index, edge_attr", [(conv, "x, edge_index, edge_attr -> x")]))
    assert model.attribute_width == 3
