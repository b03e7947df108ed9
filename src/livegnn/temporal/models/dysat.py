"""DySAT: attention over the neighbours in each snapshot, then over the snapshots.

Source: Sankar et al. 2020, "DySAT: deep neural representation learning on dynamic graphs via self-attention networks";
on samples of a stream of events, as GNNFlow and TGL run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import InputRows, LinkScore, Width, check_inputs, checked_config, gat_layers


@final
class SnapshotAttention(nn.Module):
    """Self-attention over S snapshots of a row, read at the newest.

    z_s = h_s + p_s (p: learnt places, s = 0 the newest);  a = the heads' sums over s of
    softmax(Wq z_0 . Wk z_s / sqrt(d)) Wv z_s;  y = a + z_0;  out = y + W2 relu(W1 y).

    The published layer masks what is newer than the row it reads; at the newest there is nothing to mask.
    """

    def __init__(self, width: int, snapshot_count: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.places = nn.Parameter(torch.empty(snapshot_count, width))
        nn.init.xavier_uniform_(self.places)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        """(B, S, width), newest first -> (B, width)."""
        z = h + self.places
        count, snapshots, width = z.shape
        query = self.query(z[:, 0]).view(count, 1, self.heads, self.head_width)
        key, value = (part(z).view(count, snapshots, self.heads, self.head_width) for part in (self.key, self.value))
        weight = self.dropout(((query * key).sum(-1) * self.head_width**-0.5).softmax(dim=1))
        y = (value * weight.unsqueeze(-1)).sum(1).view(count, width) + z[:, 0]
        out: Tensor = y + self.feed(y)
        return out


@final
class DySAT(TemporalModel):
    """GAT layers within each snapshot, shared by the snapshots; SnapshotAttention across them.

    Structural layer: GATConv without self-loops, with a residual of the target's own row, then ELU.

    Args:    x_width, edge_width: floats of vertex and of edge features, perhaps 0. Without either, vertices differ by
             nothing: give vertices features, random ones if need be.   snapshot_count: inputs of embed, newest first.
             embed_width: a multiple of heads.
    Raises:  as every model, see TemporalModel.
    """

    def __init__(
        self,
        *,
        x_width: Width = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        hop_count: int = 2,
        snapshot_count: int = 3,
        heads: int = 2,
        dropout: float = 0.1,
    ) -> None:
        own = {"embed_width": embed_width, "heads": heads, "dropout": dropout}
        own |= {"snapshot_count": snapshot_count, "hop_count": hop_count}
        super().__init__(checked_config("DySAT", "dysat", {**own, "x_width": x_width, "edge_width": edge_width}))
        self.rows = InputRows(x_width, embed_width)
        self.layers = gat_layers(self.config, edge_width)
        self.across = SnapshotAttention(embed_width, snapshot_count, heads=heads, dropout=dropout)
        self.link = LinkScore(embed_width)

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        check_inputs(self, inputs)
        h: Tensor = self.across(torch.stack([self._snapshot(part) for part in inputs], dim=1))
        return h

    def _snapshot(self, part: TemporalInput) -> Tensor:
        h: Tensor = self.rows(part)
        for layer, hop in zip(self.layers, reversed(part.hops), strict=True):
            edge_x = hop.edge_x if self.edge_width else None
            h = torch.nn.functional.elu(layer((h, h[: hop.target_count]), hop.edge_index, edge_x))
        return h
