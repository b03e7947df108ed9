"""Models without a memory that read one input, a layer a hop: TemporalSAGE, TemporalGAT and TGAT.

Sources: Hamilton et al. 2017, "Inductive representation learning on large graphs"; Velickovic et al. 2018, "Graph
attention networks", both sampled back in time as by GNNFlow; Xu et al. 2020, "Inductive representation learning on
temporal graphs".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import scatter

from livegnn.graph.checks import flag
from livegnn.temporal.models.inputs import HopInput, TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    InputRows,
    LinkScore,
    TemporalAttention,
    Width,
    check_inputs,
    checked_config,
    edge_rows,
    gat_layers,
    time_encoder,
)


class LayeredModel(TemporalModel):
    """h = rows of the last hop's vertices; then, from the last hop to the roots, h = layer of that hop (h)."""

    rows: InputRows
    layers: nn.ModuleList

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid."""
        check_inputs(self, inputs)
        h: Tensor = self.rows(inputs[0])
        for depth, hop in enumerate(reversed(inputs[0].hops)):
            h = self._layer(depth, h, hop)
        return h

    @abstractmethod
    def _layer(self, depth: int, h: Tensor, hop: HopInput) -> Any:
        """(B', embed_width) -> (B, embed_width): what layers[depth] makes of a hop."""


@final
class TemporalSAGE(LayeredModel):
    """A SAGEConv layer per hop, ReLU and dropout between.

    h'_v = W1 mean over sampled edges e = (u, v) of h_u + W3 mean of [enc(t_v - t_e) | x_e] + W2 h_v + b;
    the middle term only where time_width or edge_width is above 0.

    Args:    x_width, edge_width, time_width: perhaps 0.
    Raises:  as every model, see TemporalModel.
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
        widths = {"x_width": x_width, "edge_width": edge_width, "time_width": time_width}
        own = {"embed_width": embed_width, "dropout": dropout, "hop_count": hop_count}
        super().__init__(checked_config("TemporalSAGE", "sage", {**own, **widths}, from_zero=widths))
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width) if time_width else None
        self.layers = nn.ModuleList(SAGEConv((embed_width, embed_width), embed_width) for _ in range(hop_count))
        width = time_width + edge_width
        self.edges = nn.ModuleList(nn.Linear(width, embed_width, bias=False) for _ in range(hop_count if width else 0))
        self.dropout = nn.Dropout(dropout)
        self.link = LinkScore(embed_width)

    def _layer(self, depth: int, h: Tensor, hop: HopInput) -> Any:
        h = self.dropout(torch.relu(h)) if depth else h
        h = self.layers[depth]((h, h[: hop.target_count]), hop.edge_index)
        if not len(self.edges):
            return h
        of_edges = edge_rows(self.time, hop)
        mean = scatter(of_edges, hop.edge_index[1], dim=0, dim_size=hop.target_count, reduce="mean")
        return h + self.edges[depth](mean)


@final
class TemporalGAT(LayeredModel):
    """A GATConv layer per hop, ELU and dropout between; no self-loops, a residual of the target's own row instead.

    Edges' ages and features enter the attention (GATConv's edge_attr) where time_width or edge_width is above 0.

    Args:    x_width, edge_width, time_width: perhaps 0.   embed_width: a multiple of heads.
    Raises:  as every model, see TemporalModel.
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
        widths = {"x_width": x_width, "edge_width": edge_width, "time_width": time_width}
        own = {"embed_width": embed_width, "heads": heads, "dropout": dropout, "hop_count": hop_count}
        super().__init__(checked_config("TemporalGAT", "gat", {**own, **widths}, from_zero=widths))
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width) if time_width else None
        self.layers = gat_layers(self.config, time_width + edge_width)
        self.dropout = nn.Dropout(dropout)
        self.link = LinkScore(embed_width)

    def _layer(self, depth: int, h: Tensor, hop: HopInput) -> Any:
        h = self.dropout(torch.nn.functional.elu(h)) if depth else h
        of_edges = edge_rows(self.time, hop)
        attrs = of_edges if of_edges.shape[1] else None
        return self.layers[depth]((h, h[: hop.target_count]), hop.edge_index, attrs)


@final
class TGAT(LayeredModel):
    """A TemporalAttention layer per hop, over projected features.

    Args:    x_width, edge_width: floats of vertex and of edge features, perhaps 0; without vertex features rows begin
             as zeros and only times, edge features and shape distinguish vertices.   embed_width: a multiple of heads.
             learn_time: train the time encoding, as published; where ages are large in their unit (1e5 and more), a
             small step of a frequency turns the encoding round, and fixed frequencies train more steadily.
    Raises:  as every model, see TemporalModel.
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
        own = {"embed_width": embed_width, "heads": heads, "dropout": dropout}
        own |= {"learn_time": flag("TGAT", "learn_time", learn_time), "time_width": time_width, "hop_count": hop_count}
        super().__init__(checked_config("TGAT", "tgat", {**own, "x_width": x_width, "edge_width": edge_width}))
        self.rows = InputRows(x_width, embed_width)
        self.time = time_encoder(time_width).requires_grad_(learn_time)
        options = {"edge_width": edge_width, "time_width": time_width, "heads": heads}
        self.layers = nn.ModuleList(
            TemporalAttention(embed_width, embed_width, dropout=dropout, **options) for _ in range(hop_count)
        )
        self.link = LinkScore(embed_width)

    def _layer(self, depth: int, h: Tensor, hop: HopInput) -> Any:
        return self.layers[depth](h, hop, self.time)
