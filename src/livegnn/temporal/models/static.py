"""StaticLinks: any PyG module forward(x, edge_index) -> h as a model of links, on the sampled past of its roots.

Over vertex types the forward is that of HeteroConv and to_hetero, from and to dicts by type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from livegnn.errors import ModelMismatch, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph.checks import whole_number
from livegnn.graph.schema import EdgeTriple
from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layers import Width


@final
class StaticLinks(TemporalModel):
    """A module without times, trained on samples: the hops are joined to one graph, on which the module runs.

    h = module(x, edge_index) of the sampled graph;  score(u, v) = h[u] . h[v], or head(h[u], h[v])
    with edge features module(x, edge_index, edge_attr=...), over vertex types module(x_dict, edge_index_dict), and
    edge_attr_dict=

    A vertex's edges in it are those that were sampled for it first, so a module of as many layers as there are hops
    sees the tree that PyG's NeighborLoader would give it.

    Args:    module: forward -> (N, D).  hop_count: its layers.  x_width: floats of x; graph.feature_widths over vertex
             types.  out_width: D.  edge_width: floats of edge features, perhaps 0.
             edge_types: graph.edge_types, over vertex types.
             head: (h_src, h_dst) -> (B,) logits, a module; by default the dot product.
    Raises:  ValueInvalid; UsageError, DtypeInvalid for what is no module or no number.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        hop_count: int,
        x_width: Width,
        out_width: int,
        edge_width: int = 0,
        edge_types: Sequence[EdgeTriple] = (),
        head: nn.Module | None = None,
    ) -> None:
        if not isinstance(module, nn.Module) or not (head is None or isinstance(head, nn.Module)):
            got = type(module if not isinstance(module, nn.Module) else head).__name__
            raise UsageError(f"[StaticLinks] expected module and head as torch modules, got {got}; give such")
        typed = isinstance(x_width, Mapping)
        widest = max(x_width.values(), default=0) if isinstance(x_width, Mapping) else x_width
        given = {"hop_count": hop_count, "x_width": widest, "out_width": out_width, "edge_width + 1": edge_width + 1}
        if min(whole_number("StaticLinks", name, value) for name, value in given.items()) < 1:
            raise ValueInvalid(
                f"[StaticLinks] expected hop_count, x_width and out_width of at least 1, got {hop_count}, {x_width} "
                f"and {out_width}; give the module's layers and widths"
            )
        if typed != bool(edge_types):
            raise UsageError(
                f"[StaticLinks] expected edge_types= together with widths by vertex type, got {edge_types!r} and "
                f"{x_width!r}; give graph.edge_types and graph.feature_widths"
            )
        config: dict[str, Any] = {"name": "static", "hop_count": hop_count, "out_width": out_width}
        config["x_width"] = dict(x_width) if isinstance(x_width, Mapping) else x_width
        if edge_width:
            config["edge_width"] = edge_width
        super().__init__(config, out_width=out_width)
        self.edge_types = tuple(edge_types)
        self.module, self.link = module, _Dot() if head is None else head

    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, out_width) float32. Raises: WidthMismatch; ModelMismatch if the module gives another width."""
        (one,) = inputs
        widest = max(self.x_width.values()) if isinstance(self.x_width, dict) else self.x_width
        if one.x.shape[1] != widest:
            raise WidthMismatch(
                f"[StaticLinks] expected features of width {widest}, got {one.x.shape[1]}; give the graph's as x_width="
            )
        places, before = [], 0
        for hop in one.hops:
            places.append(hop.edge_index[1] >= before)
            before = hop.target_count
        edges = torch.cat([hop.edge_index[:, at] for hop, at in zip(one.hops, places, strict=True)], dim=1)
        edge_x = torch.cat([hop.edge_x[at] for hop, at in zip(one.hops, places, strict=True)])
        if isinstance(self.x_width, dict):
            types = [hop.edge_types[at] for hop, at in zip(one.hops, places, strict=True) if hop.edge_types is not None]
            return self._typed(one, self.x_width, edges, edge_x, torch.cat(types))
        more = {"edge_attr": edge_x} if self.edge_width else {}
        return self._checked(self.module(one.x, edges, **more))[: one.hops[0].target_count]

    def _typed(
        self, one: TemporalInput, widths: dict[str, int], edges: Tensor, edge_x: Tensor, edge_types: Tensor
    ) -> Tensor:
        """The roots' rows, from the module's dict."""
        assert one.types is not None
        row = torch.empty_like(one.types)  # of a vertex among those of its type
        x_dict = {}
        for code, (name, width) in enumerate(widths.items()):
            mine = one.types == code
            row[mine] = torch.arange(int(mine.sum()), device=row.device)
            x_dict[name] = one.x[mine, :width]
        of_type = [edge_types == code for code in range(len(self.edge_types))]
        ends = {name: row[edges[:, mine]] for name, mine in zip(self.edge_types, of_type, strict=True)}
        attrs = {name: edge_x[mine] for name, mine in zip(self.edge_types, of_type, strict=True)}
        found = self.module(x_dict, ends, **({"edge_attr_dict": attrs} if self.edge_width else {}))
        roots = one.types[: one.hops[0].target_count]
        h = one.x.new_zeros(len(roots), self.out_width)
        for code, name in enumerate(widths):
            mine = (roots == code).nonzero().view(-1)
            if len(mine):
                h = h.index_add(0, mine, self._checked(_rows_of(found, name))[row[mine]])
        return h

    def _checked(self, h: Tensor) -> Tensor:
        if h.shape[1] != self.out_width:
            raise ModelMismatch(
                f"[StaticLinks] expected rows of out_width {self.out_width}, got {h.shape[1]}; give that as out_width="
            )
        return h


def _rows_of(found: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in found:
        raise ModelMismatch(
            f"[StaticLinks] expected rows for the ends of links, got none for {name} vertices; give a module that "
            "returns them"
        )
    return found[name]


@final
class _Dot(nn.Module):
    def forward(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        return (h_src * h_dst).sum(-1)
