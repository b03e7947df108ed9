"""Modules of a few lines around a class whose forward takes other things than features and edges.

A user of such a class writes the same lines.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn


class OnGraphDict(nn.Module):
    """For forward(data) that reads data.graph['node_feat'], ['edge_index'] and ['num_nodes']."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(SimpleNamespace(graph={"node_feat": x, "edge_index": edge_index, "num_nodes": x.size(0)}))


class OnAdjacencies(nn.Module):
    """For forward(x, adjs): the same edges for each of its layers."""

    def __init__(self, net: nn.Module, layers: int = 2) -> None:
        super().__init__()
        self.net, self.layers = net, layers

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, [(edge_index, None, (x.size(0), x.size(0)))] * self.layers)


class OnListOfEdges(nn.Module):
    """For forward(x, adjs) with plain edges in the list."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, [edge_index])


class OnDataWithBatch(nn.Module):
    """For forward(data) of several graphs that also gives rows of vertices: all are of one graph."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any) -> Any:
        batch = torch.zeros(x.size(0), dtype=torch.long)
        return self.net(SimpleNamespace(x=x, edge_index=edge_index, edge_attr=None, batch=batch))


class FeaturesLast(nn.Module):
    """For forward(edge_index, edge_weight, features)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.net(edge_index, edge_weight, x)


class ByType(nn.Module):
    """For forward(x, edges, edges of a second kind, ...): the kinds are the edges' types 0 and 1."""

    def __init__(self, net: nn.Module, *, weighted: bool = False, over: int = 2) -> None:
        super().__init__()
        self.net, self.weighted, self.over = net, weighted, over

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_type: Any) -> Any:
        given: list[Any] = []
        for kind in range(self.over):
            mask = edge_type == kind
            given.append(edge_index[:, mask])
            if self.weighted:
                given.append(edge_weight[mask])
        return self.net(x, *given)


class RealAndImaginary(nn.Module):
    """For forward(real, imag, edge_index, edge_weight): both parts are the features."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.net(x, x, edge_index, edge_weight)


class Periods(nn.Module):
    """For features of shape (vertices, columns, periods): the columns of all periods next to each other."""

    def __init__(self, net: nn.Module, periods: int) -> None:
        super().__init__()
        self.net, self.periods = net, periods

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.net(x.view(x.size(0), -1, self.periods), edge_index, edge_weight)


class OneBatch(nn.Module):
    """For features of shape (batches, vertices, columns): one batch."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.net(x.unsqueeze(0), edge_index, edge_weight).squeeze(0)
