"""First states, gates and recurrence over what one vertex has, live against the module."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelUnsupported
from livegnn.models import ir
from tests.oracle.pyg_oracle import assert_equal
from tests.oracle.streams import assert_live


class Gated(nn.Module):
    """A graph convolutional gated recurrent unit, with a state or from zeros."""

    def __init__(self, conv, width=5, size=4):
        super().__init__()
        self.size = size
        self.of_x, self.of_h = (nn.ModuleList([conv(k, size) for _ in range(3)]) for k in (width, size))

    def forward(self, x, edge_index, edge_weight=None, h=None):
        if h is None:
            h = torch.zeros(x.shape[0], self.size).to(x)
        r, z = (
            torch.sigmoid(self.of_x[k](x, edge_index, edge_weight) + self.of_h[k](h, edge_index, edge_weight))
            for k in (0, 1)
        )
        new = torch.tanh(self.of_x[2](x, edge_index, edge_weight) + self.of_h[2](h * r, edge_index, edge_weight))
        return z * h + (1 - z) * new


class WithState(nn.Module):
    """The state stands behind the features."""

    def __init__(self, cell, width):
        super().__init__()
        self.cell, self.width = cell, width

    def forward(self, x, edge_index, edge_weight=None):
        return self.cell(x[:, : self.width], edge_index, edge_weight, x[:, self.width :])


class Periods(nn.Module):
    """Attention over the states of several periods, which lie side by side in the features."""

    def __init__(self):
        super().__init__()
        self.cell, self.weight = Gated(pyg.GCNConv, 2), nn.Parameter(torch.randn(3))

    def forward(self, x, edge_index):
        x, share, total = x.view(-1, 2, 3), torch.softmax(self.weight, dim=0), 0
        for period in range(3):
            total = total + share[period] * self.cell(x[:, :, period], edge_index)
        return total


class Cells(nn.Module):
    """A cell over two rounds of messages."""

    def __init__(self, cell, first):
        super().__init__()
        self.conv, self.cell, self.first = pyg.GCNConv(5, 6), cell, first

    def forward(self, x, edge_index):
        h = self.first(self.conv(x, edge_index).relu())
        for _ in range(2):
            h = self.cell(self.conv(x, edge_index).relu(), h)
        return h if isinstance(self.cell, (nn.GRUCell, nn.RNNCell)) else torch.cat(h, dim=-1)


class Sequence(nn.Module):
    """A network over the layers of each vertex."""

    def __init__(self, net, last=False, state=False):
        super().__init__()
        self.first, self.second = pyg.GCNConv(5, 6), pyg.SAGEConv(6, 6)
        self.net, self.last, self.state = net, last, state

    def forward(self, x, edge_index):
        a = self.first(x, edge_index).relu()
        layers = [a, self.second(a, edge_index).relu(), a]
        h = torch.stack(layers, dim=1 if self.net.batch_first else 0)
        first = torch.ones(2, x.size(0), 4).to(x) if self.state else None
        out, hidden = self.net(h, first) if self.state else self.net(h)
        if self.last:
            return hidden[0] if isinstance(self.net, nn.GRU) else hidden[0][-1]
        return out[:, -1] if self.net.batch_first else out[0]


@pytest.mark.parametrize("conv", [pyg.GCNConv, lambda k, size: pyg.ChebConv(k, size, 2), pyg.GraphConv])
def test_a_graph_convolutional_gru(conv):
    torch.manual_seed(1)
    model = assert_equal(Gated(conv), rtol=1e-5)
    assert model.depth == 1  # nothing of the zero state is sent along edges
    assert_equal(WithState(Gated(conv), 5), input_width=9)
    assert_live(WithState(Gated(conv), 5), width=9, input_width=9)
    assert_live(Gated(conv), width=5)


def test_periods_side_by_side():
    torch.manual_seed(2)
    assert_equal(Periods(), input_width=6, rtol=1e-5)
    assert_live(Periods(), width=6, input_width=6)


CELLS = {
    "gru": (lambda: nn.GRUCell(6, 4), lambda x: None),
    "gru from zeros": (lambda: nn.GRUCell(6, 4), lambda x: x.new_zeros(x.size(0), 4)),
    "gru without bias": (lambda: nn.GRUCell(6, 6, bias=False), torch.ones_like),
    "rnn": (lambda: nn.RNNCell(6, 4), lambda x: torch.zeros_like(x)[:, :4]),
    "rnn with relu": (lambda: nn.RNNCell(6, 6, nonlinearity="relu", bias=False), lambda x: torch.full_like(x, 0.5)),
    "lstm": (lambda: nn.LSTMCell(6, 4), lambda x: None),
    "lstm from states": (lambda: nn.LSTMCell(6, 4), lambda x: (x[:, :4], x.new_ones((x.size(0), 4)))),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name):
    torch.manual_seed(3)
    cell, first = CELLS[name]
    assert_equal(Cells(cell(), first))
    assert_live(Cells(cell(), first), width=5)


NETWORKS = {
    "gru": lambda: Sequence(nn.GRU(6, 4, batch_first=True)),
    "gru both ways": lambda: Sequence(nn.GRU(6, 4, num_layers=2, bidirectional=True)),
    "gru's last state": lambda: Sequence(nn.GRU(6, 4, bidirectional=True), last=True),
    "gru from a state": lambda: Sequence(nn.GRU(6, 4, num_layers=2), state=True),
    "lstm": lambda: Sequence(nn.LSTM(6, 4, num_layers=2, batch_first=True, bias=False)),
    "lstm's last state": lambda: Sequence(nn.LSTM(6, 4, batch_first=True, bidirectional=True), last=True),
    "rnn": lambda: Sequence(nn.RNN(6, 4, nonlinearity="relu", batch_first=True)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_over_layers(name):
    torch.manual_seed(4)
    assert_equal(NETWORKS[name]())
    assert_live(NETWORKS[name](), width=5)


def test_what_follows_of_zeros_is_not_computed():
    model = lg.from_pyg(Gated(pyg.GCNConv))
    assert sum(isinstance(value, ir.Propagate) for value in ir.walk(model.output)) <= 3  # of x alone


class Float32State(Gated):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index, None, torch.zeros(x.shape[0], self.size))


def test_a_state_of_the_default_dtype():
    assert lg.from_pyg(Float32State(pyg.GCNConv)).depth == 1


class OverVertices(Sequence):
    def forward(self, x, edge_index):
        return self.net(self.first(x, edge_index))[0]


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.state = pyg.GCNConv(5, 5), None

    def forward(self, x, edge_index, edge_weight=None):
        self.state = self.conv(x, edge_index, edge_weight) if self.state is None else self.state + x
        return self.state


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: OverVertices(nn.GRU(6, 4)), "runs over the vertices one after the other"),
        (lambda: Sequence(nn.LSTM(6, 4, proj_size=2)), "proj_size"),
        (Remembers, "it keeps state from one call for the next"),
    ],
)
def test_refused(module, reason):
    with pytest.raises(ModelUnsupported, match=reason):
        lg.from_pyg(module())
