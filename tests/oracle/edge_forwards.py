"""Modules of users that take edge_index apart in a forward, without message passing of PyG: what the tests import."""

import torch
from torch import nn
from torch_geometric import nn as pyg


class EdgeNetwork(nn.Module):
    """Attributes that a forward computes of both ends of the edges, for the next layer."""

    def __init__(self, recorded=False):
        super().__init__()
        self.node, self.edge, self.norm = nn.Linear(4, 8), nn.Linear(3, 8), nn.BatchNorm1d(8)
        self.update = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 8))
        self.first, self.second = pyg.GINEConv(nn.Linear(8, 8)), pyg.GINEConv(nn.Linear(8, 5))
        self.recorded = recorded

    def forward(self, x, edge_index, edge_attr):
        if self.recorded:
            assert isinstance(x, torch.Tensor)  # torch.fx gives up here
        src, dst = edge_index
        x, edge_attr = self.node(x), self.edge(edge_attr)
        x = self.first(x, edge_index, edge_attr)
        edge_attr = edge_attr + self.update(torch.cat([x[src], x[dst], edge_attr], -1)) / 2
        return self.second(x, edge_index, self.norm(edge_attr))


class Gated(nn.Module):
    """Attributes times a score of both ends, by index_select."""

    def __init__(self):
        super().__init__()
        self.node, self.edge, self.conv = nn.Linear(4, 8), nn.Linear(3, 8), pyg.GINEConv(nn.Linear(8, 5))

    def forward(self, x, edge_index, edge_attr):
        x = self.node(x)
        source, target = x.index_select(0, edge_index[0]), torch.index_select(x, 0, edge_index[1])
        gate = torch.sigmoid((source * target).sum(-1, keepdim=True))
        return self.conv(x, edge_index, gate * self.edge(edge_attr))


#: Rows of edges in the forward itself, handed to PyG's layers.
VALUES = {
    "edge network": EdgeNetwork,
    "edge network, recorded": lambda: EdgeNetwork(recorded=True),
    "gated": Gated,
}
