"""PyG's own models, its Sequential, and plain modules equal PyG in float64."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import dropout_edge

from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal

NORMS = {
    None: (None, EXACT),
    "batch_norm": (None, ROUNDED),
    "layer_norm": ({"mode": "node"}, EXACT),
}
GRID = list(itertools.product((pyg.GCN, pyg.GraphSAGE, pyg.GIN), (None, "last", "cat", "max", "lstm"), NORMS))


@pytest.mark.parametrize(("kind", "jk", "norm"), GRID)
def test_basic_gnn(kind, jk, norm):
    kwargs, rtol = NORMS[norm]
    for act_first in (False, True) if norm is not None and jk in (None, "cat") else (False,):
        module = kind(
            4, 6, 3, 3, dropout=0.5, act="elu", act_first=act_first, norm=norm, norm_kwargs=kwargs, jk=jk
        )  # fmt: skip
        model = assert_equal(module, rtol=rtol, sizes=((1, 0), (9, 30)))
        assert model.depth == 3
        assert model.weights == ("optional" if kind is pyg.GCN else "none")


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_depth(layers):
    for kind in (pyg.GCN, pyg.GraphSAGE, pyg.GIN):
        assert assert_equal(kind(4, 5, layers), rtol=ROUNDED).depth == layers


ACTIVATIONS = [
    "relu", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "sigmoid", "tanh", "softplus", "relu6", "hardtanh",
    "hardswish", "softsign", "log_sigmoid", "prelu", "swish", "mish", "tanhshrink", "r_relu",
]  # fmt: skip


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_every_activation_by_name(act):
    assert_equal(pyg.GraphSAGE(4, 5, 2, 3, act={"log_sigmoid": "LogSigmoid", "r_relu": "RReLU"}.get(act, act)))


@pytest.mark.parametrize(
    "act",
    [
        nn.LeakyReLU(0.3),
        nn.ELU(0.7),
        nn.CELU(1.7),
        nn.GELU(approximate="tanh"),
        nn.Softplus(beta=3),
        nn.PReLU(5),
        nn.Softmax(dim=-1),
        nn.LogSoftmax(dim=1),
        nn.Identity(),
        torch.tanh,
        F.silu,
        lambda x: F.leaky_relu(x, 0.1) + 0.5,
    ],
)
def test_every_activation_with_options(act):
    assert_equal(pyg.GraphSAGE(4, 5, 2, 3, act=act))


def test_sequential():
    assert_equal(
        pyg.Sequential(
            "x, edge_index, edge_weight",
            [
                (nn.Dropout(p=0.5), "x -> x"),
                (pyg.GCNConv(4, 5), "x, edge_index, edge_weight -> x1"),
                nn.ReLU(inplace=True),
                (pyg.SAGEConv(5, 5), "x1, edge_index -> x2"),
                (lambda x1, x2: [x1, x2], "x1, x2 -> xs"),
                (pyg.JumpingKnowledge("cat", 5, num_layers=2), "xs -> x"),
                nn.Linear(10, 3),
            ],
        )
    )


def test_two_sequentials_keep_their_own_forward():
    first = pyg.Sequential("x, edge_index", [(pyg.GCNConv(4, 3), "x, edge_index -> x"), nn.ReLU()])
    second = pyg.Sequential("x, edge_index", [(pyg.SAGEConv(4, 5), "x, edge_index -> x")])
    assert assert_equal(first).output_width == 3
    assert assert_equal(second).output_width == 5


class Net(nn.Module):
    """What people write."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(4, 8), pyg.GraphConv(8, 8)
        self.norm, self.skip, self.head = nn.LayerNorm(8), nn.Linear(4, 8), nn.Linear(16, 3)
        self.mix = nn.Parameter(torch.tensor([0.3, 0.7]))
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x, edge_index, edge_weight=None, *, verbose=False):
        h = F.dropout(x, p=0.5, training=self.training)
        a = F.elu(self.conv1(h, edge_index, edge_weight))
        b = self.norm(self.conv2(a, edge_index) + self.skip(x))
        weights = torch.softmax(self.mix, dim=0)
        c = weights[0] * a + b * weights[1] - 0.5 * F.normalize(b, p=2, dim=-1) * self.scale
        c = c / 2 + torch.stack([a, b], dim=0).max(dim=0)[0] + torch.stack([a, b]).mean(dim=0)
        c = c + torch.stack([a, x @ self.skip.weight.T]).min(dim=0)[0] - torch.minimum(a, b) / 3
        c = c + torch.amin(torch.stack([b, 2 * a]), dim=0) / 4
        gate = self.head(torch.cat([c, -b], dim=-1)).sigmoid()
        left, right = gate.chunk(2, dim=1)
        out = torch.cat([left, right * 2 + 1, gate[:, :1]], dim=1)
        return out.log_softmax(dim=-1)


def test_a_module_of_ones_own():
    model = assert_equal(Net(), rtol=ROUNDED)
    assert model.weights == "optional"
    names = [entry["name"] for entry in model.to_arrays()[0]["values"] if entry["op"] == "Propagate"]
    assert names == ["conv1 (GCNConv)", "conv2 (GraphConv)"] * 2


class ByShape(nn.Module):
    """Not readable by torch.fx: it looks at lengths and branches on what it finds."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(4, 6), pyg.SAGEConv(6, 1)])
        self.act = nn.ReLU(inplace=True)

    def forward(self, x, edge_index, edge_weight=None, **options):
        assert len(x) > 0
        for conv in self.convs:
            x = conv(x, edge_index)
            if x.shape[-1] > 1 and bool(options.get("act", True)):
                x = self.act(x)
                x += 0.25
                x = F.dropout(x, 0.5, self.training)
        return x.squeeze(-1).sigmoid()


def test_a_module_that_must_be_recorded():
    assert assert_equal(ByShape()).output_width == 1


class HeadFirst(nn.Module):
    """Layers are not made in the order in which they are used."""

    def __init__(self):
        super().__init__()
        self.head, self.conv, self.spread = nn.Linear(7, 2), pyg.SAGEConv(4, 7), pyg.LGConv()

    def forward(self, x, edge_index):
        return self.head(self.conv(self.spread(x, edge_index), edge_index).relu())


def test_the_features_width_is_found_by_use():
    assert assert_equal(HeadFirst()).input_width == 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.mu, self.logstd = pyg.GCNConv(4, 8), pyg.GCNConv(8, 2), pyg.GCNConv(8, 2)

    def forward(self, x, edge_index):
        edge_index, _ = dropout_edge(edge_index, p=0.5, training=self.training)
        h = self.conv(x, edge_index).relu_()
        return self.mu(h, edge_index)


def test_autoencoders_and_edge_dropout():
    assert assert_equal(pyg.GAE(Encoder())).output_width == 2


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = pyg.SAGEConv(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        h.relu_()
        h += x
        h = F.batch_norm(h, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias)
        return sum([h, x @ self.bn.weight.diag(), 1.5 - h]) + self.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_statements_in_place_and_functional_norms():
    assert_equal(InPlace(), rtol=ROUNDED)


class OnData(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(4, 6), pyg.GCNConv(6, 2)

    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        x = F.relu(self.conv1(x, edge_index, data.edge_weight))
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


def test_a_module_that_takes_data():
    from torch_geometric.data import Data

    def call(module, x, edge_index, edge_weight=None):
        return module(Data(x=x, edge_index=edge_index, edge_weight=edge_weight))

    assert assert_equal(OnData(), call=call).weights == "optional"


class Required(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = OnEdges()

    def forward(self, x, edge_index, edge_weight):
        return self.encoder(x, edge_index, edge_weight=edge_weight)


class OnEdges(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GraphConv(4, 4), pyg.LGConv(), pyg.APPNP(2, 0.1)])

    def forward(self, h, adj, edge_weight=None):
        for conv in self.convs:
            h = h + conv(h, adj, edge_weight)
        return h


def test_weights_that_a_module_must_have():
    assert assert_equal(Required()).weights == "required"
    assert assert_equal(OnEdges()).weights == "optional"


def test_a_row_local_module_alone():
    assert assert_equal(pyg.Sequential("x, edge_index", [(nn.Linear(4, 2), "x -> x")])).depth == 0
