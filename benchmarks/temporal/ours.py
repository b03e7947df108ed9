"""livegnn's side of the contest: its models on its native sampler."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import livegnn as lg
from benchmarks.temporal.contest import SIGNATURE_WIDTH, Batch, Budget, Data
from livegnn.temporal import TemporalSampler
from livegnn.temporal.models import TemporalInput, build


class Ours:
    """One of livegnn's models over a graph that holds all events; the sampler sees none at a target's time or later."""

    def __init__(self, model: str, data: Data, budget: Budget, window: int) -> None:
        shape = {"edge_width": 1, "embed_width": budget.width, "heads": budget.heads, "dropout": budget.dropout}
        if model == "tgn":
            shape |= {"memory_width": budget.width, "time_width": budget.width}
        else:
            shape |= {"x_width": SIGNATURE_WIDTH, "hop_count": 2}
            shape |= {"snapshot_count": budget.snapshots} if model == "dysat" else {"time_width": budget.width}
        if model == "tgat":
            shape |= {"learn_time": False}
        self.module = build({"name": model, **shape})
        self._x = torch.from_numpy(data.x if self.module.x_width else data.x[:, :0])
        self._edge_x = torch.from_numpy(data.edge_x)
        self._vertex_count = data.vertex_count
        blank = np.zeros((data.vertex_count, 0), np.float32)
        graph = lg.Graph(blank, data.src, data.dst, time=data.time, undirected=True)
        fanouts = [budget.fanout] * self.module.hop_count
        options = {"snapshots": budget.snapshots, "window": window, "prop_time": True} if model == "dysat" else {}
        self._sampler = TemporalSampler(graph, fanouts, unique=True, **options)

    def begin(self) -> None:
        if self.module.memory is not None:
            self.module.memory.reset(self._vertex_count)

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        count = len(batch.src)
        roots, times = np.concatenate([batch.src, batch.dst, batch.negative]), np.tile(batch.time, 3)
        if self.module.snapshot_count > 1:
            snapshots = self._sampler.sample_snapshots(roots, times)
        else:
            snapshots = [self._sampler.sample(roots, times)]
        inputs = []
        for hops in snapshots:
            edge_x = [self._edge_x[torch.from_numpy(hop.edge_ids)] for hop in hops]
            inputs.append(TemporalInput.of(hops, self._x[torch.from_numpy(hops[-1].next_targets)], edge_x))
        h_src, h_dst, h_negative = self.module.embed(inputs).split(count)
        return self.module.score(h_src, h_dst), self.module.score(h_src, h_negative)

    def observe(self, batch: Batch) -> None:
        if self.module.memory is not None:
            columns = (torch.from_numpy(column) for column in (batch.src, batch.dst, batch.time))
            self.module.memory.observe(*columns, self._edge_x[torch.from_numpy(batch.ids)])
