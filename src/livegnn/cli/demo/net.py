"""The demo's model: plain PyG, nothing of livegnn. Imported only where PyTorch is at hand."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.nn import SAGEConv


class FraudNet(nn.Module):
    """Two GraphSAGE layers (mean) and a linear head: log-odds of two classes, float32 (V, 2)."""

    def __init__(self, feature_width: int, hidden: int = 32) -> None:
        super().__init__()
        self.first = SAGEConv(feature_width, hidden)
        self.second = SAGEConv(hidden, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """x: (V, F) float32; edge_index: (2, E) int64."""
        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index).relu()
        return self.head(x)  # type: ignore[no-any-return]
