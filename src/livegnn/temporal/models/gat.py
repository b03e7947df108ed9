"""GAT over sampled temporal neighbours.

Source: Velickovic et al. 2018, "Graph attention networks"; sampled back in time as by GNNFlow.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    InputRows,
    LinkScore,
    check_inputs,
    check_widths,
    edge_rows,
    time_encoder,
)

__all__ = ["TemporalGAT"]


class TemporalGAT(TemporalModel):
    """A GATConv layer per hop, ELU and dropout between; no self-loops, a residual of the target's own row instead.

    Edges' ages and features enter the attention (GATConv's edge_attr) where time_width or edge_width is above 0.

    Args:    x_width, edge_width, time_width: perhaps 0.   embed_width: a multiple of heads.
    Raises:  ValueInvalid for widths below 1, heads that do not divide embed_width, dropout out of [0, 1).
    """

    def __init__(
        self,
        *,
        x_width: int = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        time_width: int = 0,
        hop_count: int = 2,
        heads: int = 2,
        dropout: float = 0.1,
    ) -> None:
        positive = {"hop_count": hop_count}
        any_width = {"x_width": x_width, "edge_width": edge_width, "time_width": time_width}
        check_widths(
            "TemporalGAT", heads=heads, embed_width=embed_width, dropout=dropout, positive=positive, any_width=any_width
        )
        super().__init__()
        self.config = {
            "name": "gat",
            "embed_width": embed_width,
            "heads": heads,
            "dropout": dropout,
            **positive,
            **any_width,
        }
        self.hop_count, self.snapshot_count, self.out_width, self.memory = hop_count, 1, embed_width, None
        self.x_width, self.edge_width = x_width, edge_width
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width) if time_width else None
        options = {"heads": heads, "dropout": dropout, "add_self_loops": False, "residual": True}
        width = time_width + edge_width
        self.layers = nn.ModuleList(
            GATConv((embed_width, embed_width), embed_width // heads, edge_dim=width or None, **options)
            for _ in range(hop_count)
        )
        self.dropout = nn.Dropout(dropout)
        self.link = LinkScore(embed_width)

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        widths = {"x_width": self.x_width, "edge_width": self.edge_width}
        check_inputs("TemporalGAT", inputs, snapshots=1, hops=self.hop_count, **widths)
        h: Tensor = self.rows(inputs[0].x)
        for depth, (layer, hop) in enumerate(zip(self.layers, reversed(inputs[0].hops), strict=True)):
            h = self.dropout(torch.nn.functional.elu(h)) if depth else h
            of_edges = edge_rows(self.time, hop)
            h = layer((h, h[: hop.target_count]), hop.edge_index, of_edges if of_edges.shape[1] else None)
        return h

    def score(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """(B,) float32 logits."""
        logits: Tensor = self.link(h_src, h_dst)
        return logits
