"""TGN assembled from PyG's own parts, as its example does: TGNMemory, LastNeighborLoader, TransformerConv."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader, TGNMemory

from benchmarks.temporal.contest import Batch, Budget, Data


class _Parts(nn.Module):
    def __init__(self, vertex_count: int, edge_width: int, budget: Budget) -> None:
        super().__init__()
        width = budget.width
        message = IdentityMessage(edge_width, width, width)
        self.memory = TGNMemory(vertex_count, edge_width, width, width, message, LastAggregator())
        options = {"heads": budget.heads, "dropout": budget.dropout, "edge_dim": width + edge_width}
        self.conv = TransformerConv(width, width // budget.heads, **options)
        self.src, self.dst, self.last = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def train(self, mode: bool = True) -> _Parts:
        """PyG's memory returns nothing from train()."""
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def score(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        return self.last(torch.relu(self.src(h_src) + self.dst(h_dst))).view(-1)


class PyGTGN:
    """Neighbours are those of the batches before; every batch is inserted after it was scored."""

    def __init__(self, data: Data, budget: Budget) -> None:
        self.module = _Parts(data.vertex_count, data.edge_x.shape[1], budget)
        self._loader = LastNeighborLoader(data.vertex_count, budget.fanout)
        self._place = torch.empty(data.vertex_count, dtype=torch.long)
        self._time, self._edge_x = torch.from_numpy(data.time), torch.from_numpy(data.edge_x)

    def begin(self) -> None:
        self.module.memory.reset_state()
        self._loader.reset_state()

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        roots = torch.from_numpy(np.concatenate([batch.src, batch.dst, batch.negative]))
        vertices, edge_index, ids = self._loader(roots.unique())
        self._place[vertices] = torch.arange(len(vertices))
        memory = self.module.memory
        h, last = memory(vertices)
        age = memory.time_enc((last[edge_index[0]] - self._time[ids]).to(h.dtype))
        h = self.module.conv(h, edge_index, torch.cat([age, self._edge_x[ids]], dim=-1))
        h_src, h_dst, h_negative = h[self._place[roots]].split(len(batch.src))
        return self.module.score(h_src, h_dst), self.module.score(h_src, h_negative)

    def observe(self, batch: Batch) -> None:
        src, dst, when = (torch.from_numpy(column) for column in (batch.src, batch.dst, batch.time))
        self.module.memory.update_state(src, dst, when, self._edge_x[torch.from_numpy(batch.ids)])
        self.module.memory.detach()
        self._loader.insert(src, dst)
