"""Own layers over vertex types, between two types and within one: as in PyG after every batch of random streams."""

import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import add_self_loops, degree, softmax

import livegnn as lg
from livegnn.errors import ModelUnsupported
from tests.oracle.hetero_oracle import BUY, FOLLOW
from tests.oracle.test_oracle_hetero import TwoLayers, run


class Between(MessagePassing):
    """Rows of sources and of targets, each by its own matrix."""

    def __init__(self, src, dst, out, aggr="mean"):
        super().__init__(aggr=aggr)
        self.lin_src, self.lin_dst = pyg.Linear(src, out), pyg.Linear(dst, out)

    def forward(self, x, edge_index):
        x = (x, x) if isinstance(x, torch.Tensor) else x
        return self.propagate(edge_index, x=(self.lin_src(x[0]), self.lin_dst(x[1]))) + self.lin_dst(x[1])

    def message(self, x_j):
        return x_j


class Gated(Between):
    def message(self, x_i, x_j):
        return torch.sigmoid(x_i) * x_j


class Attending(Between):
    def message(self, x_i, x_j, index, size_i):
        heads = torch.einsum("ehc,ehc->eh", x_i.view(-1, 2, 3), x_j.view(-1, 2, 3))
        return (x_j.view(-1, 2, 3) * softmax(heads, index, num_nodes=size_i).unsqueeze(-1)).flatten(1)


class Scaled(Between):
    """Divides by the degrees of both ends."""

    def forward(self, x, edge_index):
        x = (x, x) if isinstance(x, torch.Tensor) else x
        count = degree(edge_index[1], x[1].size(0), dtype=x[1].dtype).clamp(min=1)
        return self.propagate(edge_index, x=(self.lin_src(x[0]), None), size=(len(x[0]), len(x[1]))) / count.view(-1, 1)


class Looped(Between):
    def forward(self, x, edge_index):
        x = (x, x) if isinstance(x, torch.Tensor) else x
        edge_index, _ = add_self_loops(edge_index, num_nodes=x[1].size(0))
        return self.propagate(edge_index, x=(self.lin_src(x[0]), self.lin_dst(x[1])))


KINDS = {
    "mean": lambda s, d: Between(s, d, 6),
    "max": lambda s, d: Between(s, d, 6, "max"),
    "gated": lambda s, d: Gated(s, d, 6, "add"),
    "attention": lambda s, d: Attending(s, d, 6, "add"),
    "degrees": lambda s, d: Scaled(s, d, 6, "add"),
}


@pytest.mark.parametrize("name", KINDS)
def test_own_layers_between_and_within_types(name):
    for seed in range(2):
        run(TwoLayers(lambda _, s, d: KINDS[name](s, d)), seed)


def test_next_to_layers_of_pyg():
    def convs(triple, src, dst):
        return Looped(src, dst, 6, "add") if triple == FOLLOW else pyg.SAGEConv((src, dst), 6)

    run(TwoLayers(convs), 3)


def test_loops_between_two_types_are_refused():
    def convs(triple, src, dst):
        return Looped(src, dst, 6, "add") if triple == BUY else pyg.SAGEConv((src, dst), 6)

    with pytest.raises(ModelUnsupported, match="it does not go from one type of vertex to another"):
        lg.from_pyg(TwoLayers(convs))
