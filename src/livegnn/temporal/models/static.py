"""StaticLinks: any PyG module forward(x, edge_index) -> h as a model of links, on the sampled past of its roots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from livegnn.errors import ModelMismatch, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph.checks import whole_number
from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel

__all__ = ["StaticLinks"]


@final
class StaticLinks(TemporalModel):
    """A module without times, trained on samples: the hops are joined to one graph, on which the module runs.

    h = module(x, edge_index) of the sampled graph;  score(u, v) = h[u] . h[v], or head(h[u], h[v])

    A vertex's edges in it are those that were sampled for it first, so a module of as many layers as there are hops
    sees the tree that PyG's NeighborLoader would give it.

    Args:    module: forward(x, edge_index) -> (N, D).  hop_count: its layers.  x_width: floats of x.  out_width: D.
             head: (h_src, h_dst) -> (B,) logits, a module; by default the dot product.
    Raises:  ValueInvalid; UsageError, DtypeInvalid for what is no module or no number.
    """

    def __init__(
        self, module: nn.Module, *, hop_count: int, x_width: int, out_width: int, head: nn.Module | None = None
    ) -> None:
        if not isinstance(module, nn.Module) or not (head is None or isinstance(head, nn.Module)):
            got = type(module if not isinstance(module, nn.Module) else head).__name__
            raise UsageError(f"[StaticLinks] expected module and head as torch modules, got {got}; give such")
        given = {"hop_count": hop_count, "x_width": x_width, "out_width": out_width}
        if min(whole_number("StaticLinks", name, value) for name, value in given.items()) < 1:
            raise ValueInvalid(
                f"[StaticLinks] expected hop_count, x_width and out_width of at least 1, got {hop_count}, {x_width} "
                f"and {out_width}; give the module's layers and widths"
            )
        config = {"name": "static", "hop_count": hop_count, "x_width": x_width, "out_width": out_width}
        super().__init__(config, out_width=out_width)
        self.module, self.link = module, _Dot() if head is None else head

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, out_width) float32. Raises: WidthMismatch; ModelMismatch if the module gives another width."""
        (one,) = inputs
        if one.x.shape[1] != self.x_width:
            raise WidthMismatch(
                f"[StaticLinks] expected features of width {self.x_width}, got {one.x.shape[1]}; give the graph's as "
                "x_width="
            )
        edges, before = [], 0
        for hop in one.hops:
            edges.append(hop.edge_index[:, hop.edge_index[1] >= before])
            before = hop.target_count
        h: Tensor = self.module(one.x, torch.cat(edges, dim=1))
        if h.shape[1] != self.out_width:
            raise ModelMismatch(
                f"[StaticLinks] expected rows of out_width {self.out_width}, got {h.shape[1]}; give that as out_width="
            )
        return h[: one.hops[0].target_count]


@final
class _Dot(nn.Module):
    def forward(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        return (h_src * h_dst).sum(-1)
