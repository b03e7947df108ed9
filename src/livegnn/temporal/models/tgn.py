"""TGN: memory of past events, and attention over recent neighbours.

Source: Rossi et al. 2020, "Temporal graph networks for deep learning on dynamic graphs"; the parts as in PyG's example:
identity message, last message of a batch, GRU, one layer of TransformerConv.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv

from livegnn.graph.checks import edge_time
from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import (
    LinkScore,
    Width,
    check_inputs,
    checked_config,
    edge_rows,
    projected,
    projection,
    time_encoder,
)
from livegnn.temporal.models.memory import VertexMemory


@final
class TGN(TemporalModel):
    """Embeddings of memory rows (plus projected features, where vertices have some) and their neighbours' rows.

    h_v = W1 m_v + sum over sampled edges e = (u, v) of a_e (W2 m_u + W6 [enc(t_v - t_e) | x_e]),
    a_e by TransformerConv; further hops' layers read relu(h) for m.

    Args:    x_width, edge_width: floats of vertex and of edge features, perhaps 0.   embed_width: of an embedding, a
             multiple of heads.   time_origin: see VertexMemory.
    Raises:  as every model, see TemporalModel.
    """

    memory: VertexMemory

    def __init__(
        self,
        *,
        x_width: Width = 0,
        edge_width: int = 0,
        embed_width: int = 100,
        memory_width: int = 100,
        time_width: int = 100,
        hop_count: int = 1,
        heads: int = 2,
        dropout: float = 0.1,
        time_origin: int | None = None,
    ) -> None:
        if time_origin is not None:
            time_origin = edge_time("TGN", "time_origin", time_origin)
        own = {"embed_width": embed_width, "heads": heads, "dropout": dropout, "time_origin": time_origin}
        own |= {"memory_width": memory_width, "time_width": time_width, "hop_count": hop_count}
        super().__init__(checked_config("TGN", "tgn", {**own, "x_width": x_width, "edge_width": edge_width}))
        self.time = time_encoder(time_width)
        self.memory = VertexMemory(memory_width, edge_width, self.time, time_width, time_origin)
        self.features = projection(x_width, memory_width)
        widths = [memory_width] + [embed_width] * hop_count
        options = {"heads": heads, "dropout": dropout, "edge_dim": time_width + edge_width}
        self.layers = nn.ModuleList(
            TransformerConv(width, out // heads, **options) for width, out in itertools.pairwise(widths)
        )
        self.link = LinkScore(embed_width)

    def recall(self, inputs: Sequence[TemporalInput]) -> Sequence[TemporalInput]:
        """The inputs with the memory of their rows, if they have none yet. Raises: VertexUnknown, DtypeInvalid."""
        if inputs[0].memory is not None:
            return inputs
        vertices, places = torch.unique(inputs[0].rows, return_inverse=True)
        return [replace(inputs[0], memory=self.memory.read(vertices).index_select(0, places))]

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, embed_width) float32. Raises: ModelMismatch, WidthMismatch, DtypeInvalid, VertexUnknown."""
        check_inputs(self, inputs)
        part = self.recall(inputs)[0]
        assert part.memory is not None
        h = part.memory
        if self.features is not None:
            h = h + projected(self.features, part)
        for depth, (layer, hop) in enumerate(zip(self.layers, reversed(part.hops), strict=True)):
            h = torch.relu(h) if depth else h
            h = layer((h, h[: hop.target_count]), hop.edge_index, edge_rows(self.time, hop))
        return h
