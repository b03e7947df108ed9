"""TGAT: temporal self-attention over sampled neighbours, hop by hop, without a memory.

Source: Xu et al. 2020, "Inductive representation learning on temporal graphs".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from livegnn.graph.checks import flag
from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    InputRows,
    LinkScore,
    TemporalAttention,
    Width,
    check_inputs,
    checked_config,
    time_encoder,
)

__all__ = ["TGAT"]


@final
class TGAT(TemporalModel):
    """A TemporalAttention layer per hop, over projected features.

    Args:    x_width, edge_width: floats of vertex and of edge features, perhaps 0; without vertex features rows begin
             as zeros and only times, edge features and shape distinguish vertices.   embed_width: a multiple of heads.
             learn_time: train the time encoding, as published; where ages are large in their unit (1e5 and more), a
             small step of a frequency turns the encoding round, and fixed frequencies train more steadily.
    Raises:  ValueInvalid for widths below 1, heads that do not divide embed_width, dropout out of [0, 1); DtypeInvalid
             for what is no number.
    """

    def __init__(
        self,
        *,
        x_width: Width = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        time_width: int = 100,
        hop_count: int = 2,
        heads: int = 2,
        dropout: float = 0.1,
        learn_time: bool = True,
    ) -> None:
        config = checked_config(
            "TGAT",
            name="tgat",
            embed_width=embed_width,
            heads=heads,
            dropout=dropout,
            positive={"time_width": time_width, "hop_count": hop_count},
            any_width={"x_width": x_width, "edge_width": edge_width},
            learn_time=flag("TGAT", "learn_time", learn_time),
        )
        super().__init__(config, out_width=embed_width)
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width).requires_grad_(learn_time)
        self.layers = nn.ModuleList(
            TemporalAttention(
                embed_width, embed_width, edge_width=edge_width, time_width=time_width, heads=heads, dropout=dropout
            )
            for _ in range(hop_count)
        )
        self.link = LinkScore(embed_width)

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        check_inputs(self, inputs)
        h: Tensor = self.rows(inputs[0])
        for layer, hop in zip(self.layers, reversed(inputs[0].hops), strict=True):
            h = layer(h, hop, self.time)
        return h
