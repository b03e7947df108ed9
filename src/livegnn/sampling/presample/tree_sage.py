"""GraphSAGE on sampled trees, without indices: a level is a dense array, and the mean runs over its last axis.

Imported only where PyTorch is at hand.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import nn

from livegnn.errors import ModelUnsupported, ValueInvalid


class TreeSAGE(nn.Module):
    """GraphSAGE with mean aggregation, one layer for each hop of the query.

    h[0] = x;  h[k](v) = act(W_l[k] mean over sampled u of h[k-1](u) + b[k] + W_r[k] h[k-1](v)), no act in the last;
    a vertex without samples has mean 0

    It has the parameters of a stack of PyG's SAGEConv, and gives on a tree what that stack gives on sample.to_pyg().
    Training, in a loop of the user's own, is with sample.features and sample.mask of any sampler.

    Args:    in_channels, hidden_channels, out_channels: widths.  num_layers: K, the hops of the query.
    Raises:  ValueInvalid.  Source: Hamilton et al. 2017, algorithm 1, mean aggregator.
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> None:
        super().__init__()
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("num_layers", num_layers)):
            if type(value) is not int or value < 1:
                raise ValueInvalid(f"[TreeSAGE] expected {name} of at least 1, got {value!r}; give a whole number")
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.neighbours = nn.ModuleList(nn.Linear(widths[k], widths[k + 1]) for k in range(num_layers))
        self.own = nn.ModuleList(nn.Linear(widths[k], widths[k + 1], bias=False) for k in range(num_layers))

    @classmethod
    def from_pyg(cls, module: Any) -> Self:
        """A copy of a torch_geometric.nn.GraphSAGE, in eval mode: mean, ReLU between layers, no norm, no jumping.

        Raises:  ModelUnsupported for anything else.
        """
        convs = list(getattr(module, "convs", ()))
        if not convs:
            raise _unsupported(f"{type(module).__name__} without .convs")
        for number, conv in enumerate(convs, start=1):
            found = type(conv).__name__
            plain = found == "SAGEConv" and type(conv.aggr_module).__name__ == "MeanAggregation"
            plain = plain and conv.flow == "source_to_target"
            if not plain or conv.project or conv.normalize or not conv.root_weight:
                raise _unsupported(f"layer {number}: {conv!r} with flow={getattr(conv, 'flow', None)!r}")
        norms = [norm for norm in (getattr(module, "norms", None) or ()) if type(norm).__name__ != "Identity"]
        relu = type(getattr(module, "act", None)).__name__ == "ReLU"
        if norms or getattr(module, "jk_mode", None) is not None or (len(convs) > 1 and not relu):
            raise _unsupported("norms, another activation or jumping knowledge")
        hidden = convs[0].out_channels
        tree = cls(convs[0].in_channels, hidden, convs[-1].out_channels, len(convs))
        with torch.no_grad():
            layers: Any = zip(convs, tree.neighbours, tree.own, strict=True)
            for conv, neighbours, own in layers:
                bias = conv.lin_l.bias
                neighbours.weight.copy_(conv.lin_l.weight)
                neighbours.bias.copy_(torch.zeros(conv.out_channels) if bias is None else bias)
                own.weight.copy_(conv.lin_r.weight)
        return tree.eval()

    def forward(self, features: list[torch.Tensor], masks: list[torch.Tensor]) -> torch.Tensor:
        """features: K + 1 levels, (B, C1, ..., Ck, F) float32.  masks: likewise, bool.  Returns (B, out_channels)."""
        h = features
        last = len(self.neighbours) - 1
        for layer, (neighbours, own) in enumerate(zip(self.neighbours, self.own, strict=True)):
            risen: list[torch.Tensor] = []
            for k in range(last + 1 - layer):
                there = masks[k + 1].unsqueeze(-1).to(h[k].dtype)
                mean = (h[k + 1] * there).sum(dim=-2) / there.sum(dim=-2).clamp(min=1.0)
                out = neighbours(mean) + own(h[k])
                risen.append(out if layer == last else out.relu())
            h = risen
        return h[0]


def _unsupported(got: str) -> ModelUnsupported:
    return ModelUnsupported(
        f'[TreeSAGE.from_pyg] expected a GraphSAGE of plain mean SAGEConv layers, got {got}; serve it with inputs="pyg"'
    )
