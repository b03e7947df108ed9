"""GAT over sampled temporal neighbours.

Source: Velickovic et al. 2018, "Graph attention networks"; sampled back in time as by GNNFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    InputRows,
    LinkScore,
    Width,
    check_inputs,
    checked_config,
    edge_rows,
    gat_layers,
    time_encoder,
)

__all__ = ["TemporalGAT"]


@final
class TemporalGAT(TemporalModel):
    """A GATConv layer per hop, ELU and dropout between; no self-loops, a residual of the target's own row instead.

    Edges' ages and features enter the attention (GATConv's edge_attr) where time_width or edge_width is above 0.

    Args:    x_width, edge_width, time_width: perhaps 0.   embed_width: a multiple of heads.
    Raises:  ValueInvalid for widths below 1, heads that do not divide embed_width, dropout out of [0, 1); DtypeInvalid
             for what is no number.
    """

    def __init__(
        self,
        *,
        x_width: Width = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        time_width: int = 0,
        hop_count: int = 2,
        heads: int = 2,
        dropout: float = 0.1,
    ) -> None:
        config = checked_config(
            "TemporalGAT",
            name="gat",
            embed_width=embed_width,
            heads=heads,
            dropout=dropout,
            positive={"hop_count": hop_count},
            any_width={"x_width": x_width, "edge_width": edge_width, "time_width": time_width},
        )
        super().__init__(config, out_width=embed_width)
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width) if time_width else None
        self.layers = gat_layers(
            embed_width, time_width + edge_width, hop_count=hop_count, heads=heads, dropout=dropout
        )
        self.dropout = nn.Dropout(dropout)
        self.link = LinkScore(embed_width)

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        check_inputs(self, inputs)
        h: Tensor = self.rows(inputs[0])
        for depth, (layer, hop) in enumerate(zip(self.layers, reversed(inputs[0].hops), strict=True)):
            h = self.dropout(torch.nn.functional.elu(h)) if depth else h
            of_edges = edge_rows(self.time, hop)
            h = layer((h, h[: hop.target_count]), hop.edge_index, of_edges if of_edges.shape[1] else None)
        return h
