"""Branches by the graph: of a run that is followed one would be kept for good, so they are refused."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import contains_self_loops

from livegnn.errors import ModelMismatch, ModelUnsupported
from livegnn.models.pyg.check import Columns, sample
from livegnn.models.pyg.entry import from_pyg

MOST = 10_000


class Own(pyg.MessagePassing):
    """doubles: what decides whether the rows are doubled."""

    def __init__(self, doubles):
        super().__init__(aggr="add")
        self.lin, self.doubles, self.most = nn.Linear(4, 4), doubles, 20_000

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=self.lin(x))
        return out * 2 if self.doubles(self, x, edge_index) else out

    def message(self, x_j):
        return x_j


class Recorded(nn.Module):
    """The same next to a layer of PyG, in a forward that torch.fx cannot trace."""

    def __init__(self, doubles):
        super().__init__()
        self.conv, self.doubles, self.most = pyg.SAGEConv(4, 4), doubles, 20_000

    def forward(self, x, edge_index):
        assert len(x) > 0
        h = self.conv(x, edge_index)
        return h * 2 if self.doubles(self, h, edge_index) else h


COUNTS = {
    "vertices": lambda self, x, edge_index: x.size(0) > 10_000,
    "shape": lambda self, x, edge_index: x.shape[0] >= MOST,
    "sizes": lambda self, x, edge_index: x.size()[0] == 17,
    "edges": lambda self, x, edge_index: edge_index.size(1) > 100_000,
    "edges' shape": lambda self, x, edge_index: self.most < edge_index.shape[-1],
    "numel": lambda self, x, edge_index: edge_index.numel() // 2 + 1 > self.most,
    "the least": lambda self, x, edge_index: min(x.size(0), 5_000) == 5_000,
}


@pytest.mark.parametrize("kind", [Own, Recorded])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_is_not_compared_with_a_constant(kind, name):
    with pytest.raises(ModelUnsupported, match=r"line \d+ \(.*it decides by the number of vertices or edges"):
        from_pyg(kind(COUNTS[name]))


def test_counts_may_be_compared_with_each_other_and_with_nothing():
    def doubles(self, x, edge_index):
        assert x.size(1) == 4
        assert edge_index.shape[0] == 2
        assert x.shape == (x.size(0), 4)
        assert torch.ones(x.size(0) * 2, 3).view(x.size(0), -1).size(0) == x.size(0)
        return x.size(0) == 0 or x.size(0) + 1 == x.shape[0]

    assert from_pyg(Own(doubles)).depth == 1
    assert from_pyg(Recorded(doubles)).depth == 1


LOOKS = {
    "self-loops": lambda self, x, edge_index: not contains_self_loops(edge_index),
    "equal ends": lambda self, x, edge_index: not (edge_index[0] == edge_index[1]).any(),
    "largest id": lambda self, x, edge_index: edge_index.max() + 1 == x.size(0) and edge_index.size(1) > 0,
    "every vertex": lambda self, x, edge_index: edge_index[1].unique().numel() == x.size(0) and x.size(0) > 1,
}


@pytest.mark.parametrize("name", LOOKS)
def test_an_own_layer_that_looks_at_the_graph_is_refused(name):
    with pytest.raises((ModelMismatch, ModelUnsupported)):
        from_pyg(Own(LOOKS[name]))


def test_graphs_of_every_form_are_compared():
    columns = Columns((4,))
    _, (plain,), *_ = sample(columns, 23, 90, 0)
    _, (loopless,), *_ = sample(columns, 23, 90, 0, "without self-loops")
    _, (whole,), *_ = sample(columns, 23, 90, 0, "without isolated vertices")
    assert (plain[0] == plain[1]).any()
    assert len(set(plain.ravel().tolist())) < 23
    assert loopless.shape[1] > 50
    assert not (loopless[0] == loopless[1]).any()
    assert all(set(end.tolist()) == set(range(23)) for end in whole)
