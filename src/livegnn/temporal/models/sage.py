"""GraphSAGE (mean) over sampled temporal neighbours.

Source: Hamilton et al. 2017, "Inductive representation learning on large graphs"; sampled back in time as by GNNFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import scatter

from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    InputRows,
    LinkScore,
    Width,
    check_inputs,
    checked_config,
    edge_rows,
    time_encoder,
)

__all__ = ["TemporalSAGE"]


@final
class TemporalSAGE(TemporalModel):
    """A SAGEConv layer per hop, ReLU and dropout between.

    h'_v = W1 mean over sampled edges e = (u, v) of h_u + W3 mean of [enc(t_v - t_e) | x_e] + W2 h_v + b;
    the middle term only where time_width or edge_width is above 0.

    Args:    x_width, edge_width, time_width: perhaps 0.
    Raises:  ValueInvalid for widths below 1 or dropout out of [0, 1); DtypeInvalid for what is no number.
    """

    def __init__(
        self,
        *,
        x_width: Width = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        time_width: int = 0,
        hop_count: int = 2,
        dropout: float = 0.1,
    ) -> None:
        config = checked_config(
            "TemporalSAGE",
            name="sage",
            embed_width=embed_width,
            dropout=dropout,
            positive={"hop_count": hop_count},
            any_width={"x_width": x_width, "edge_width": edge_width, "time_width": time_width},
        )
        super().__init__(config, out_width=embed_width)
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width) if time_width else None
        self.layers = nn.ModuleList(SAGEConv((embed_width, embed_width), embed_width) for _ in range(hop_count))
        width = time_width + edge_width
        self.edges = nn.ModuleList(nn.Linear(width, embed_width, bias=False) for _ in range(hop_count if width else 0))
        self.dropout = nn.Dropout(dropout)
        self.link = LinkScore(embed_width)

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        check_inputs(self, inputs)
        h: Tensor = self.rows(inputs[0])
        for depth, (layer, hop) in enumerate(zip(self.layers, reversed(inputs[0].hops), strict=True)):
            h = self.dropout(torch.relu(h)) if depth else h
            h = layer((h, h[: hop.target_count]), hop.edge_index)
            if len(self.edges):
                of_edges = edge_rows(self.time, hop)
                mean = scatter(of_edges, hop.edge_index[1], dim=0, dim_size=hop.target_count, reduce="mean")
                h = h + self.edges[depth](mean)
        return h
