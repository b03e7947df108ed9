"""TGAT: temporal self-attention over sampled neighbours, hop by hop, without a memory.

Source: Xu et al. 2020, "Inductive representation learning on temporal graphs".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    InputRows,
    LinkScore,
    TemporalAttention,
    check_inputs,
    check_widths,
    time_encoder,
)

__all__ = ["TGAT"]


class TGAT(TemporalModel):
    """A TemporalAttention layer per hop, over projected features.

    Args:    x_width, edge_width: floats of vertex and of edge features, perhaps 0; without vertex features rows begin
             as zeros and only times, edge features and shape tell vertices apart.   embed_width: a multiple of heads.
    Raises:  ValueInvalid for widths below 1, heads that do not divide embed_width, dropout out of [0, 1).
    """

    def __init__(
        self,
        *,
        x_width: int = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        time_width: int = 100,
        hop_count: int = 2,
        heads: int = 2,
        dropout: float = 0.1,
    ) -> None:
        positive = {"time_width": time_width, "hop_count": hop_count}
        any_width = {"x_width": x_width, "edge_width": edge_width}
        check_widths(
            "TGAT", heads=heads, embed_width=embed_width, dropout=dropout, positive=positive, any_width=any_width
        )
        super().__init__()
        self.config = {
            "name": "tgat",
            "embed_width": embed_width,
            "heads": heads,
            "dropout": dropout,
            **positive,
            **any_width,
        }
        self.hop_count, self.snapshot_count, self.out_width, self.memory = hop_count, 1, embed_width, None
        self.x_width, self.edge_width = x_width, edge_width
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width)
        self.layers = nn.ModuleList(
            TemporalAttention(
                embed_width,
                embed_width,
                edge_width=edge_width,
                time_width=time_width,
                heads=heads,
                dropout=dropout,
            )
            for _ in range(hop_count)
        )
        self.link = LinkScore(embed_width)

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        check_inputs("TGAT", inputs, snapshots=1, hops=self.hop_count, x_width=self.x_width, edge_width=self.edge_width)
        h: Tensor = self.rows(inputs[0].x)
        for layer, hop in zip(self.layers, reversed(inputs[0].hops), strict=True):
            h = layer(h, hop, self.time)
        return h

    def score(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """(B,) float32 logits."""
        logits: Tensor = self.link(h_src, h_dst)
        return logits
