"""The benchmark networks as PyG modules, and their weights as arrays for the peers.

A layer is  z = W_n a + W_s x + b  with a = aggregate of x over in-neighbours; GIN adds W_2 relu(z) + b_2 with W_s =
(1 + eps) W_n; GCN has no W_s and its self-loop is part of the aggregate. ReLU between layers, none after the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch_geometric.nn import GCNConv, GINConv, GraphConv, SAGEConv

KINDS = ("graphconv", "gcn", "sage", "gin")
EXTREMES = {"sage-max": "max", "sage-min": "min"}  # kinds whose aggregate selects instead of adding


class Network(torch.nn.Module):
    """conv, ReLU, conv, ...: forward(x, edge_index) as in PyG's examples; edge_index may be a sparse CSR tensor."""

    def __init__(self, kind: str, widths: Sequence[int]) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(_convolution(kind, i, o) for i, o in pairwise(widths))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)  # type: ignore[no-any-return]


def _convolution(kind: str, width_in: int, width_out: int) -> torch.nn.Module:
    if kind == "graphconv":
        return GraphConv(width_in, width_out)
    if kind == "gcn":
        return GCNConv(width_in, width_out)
    if kind == "sage":
        return SAGEConv(width_in, width_out)
    if kind in EXTREMES:
        return SAGEConv(width_in, width_out, aggr=EXTREMES[kind])
    if kind == "gin":
        first, second = torch.nn.Linear(width_in, width_out), torch.nn.Linear(width_out, width_out)
        return GINConv(torch.nn.Sequential(first, torch.nn.ReLU(), second))
    raise ValueError(f"[networks] expected one of {(*KINDS, *EXTREMES)}, got {kind!r}; choose one of them")


def network(kind: str, widths: Sequence[int], seed: int = 7) -> Network:
    """A seeded network in eval mode, without gradients."""
    torch.manual_seed(seed)
    module = Network(kind, widths).eval()
    module.requires_grad_(False)
    return module


@dataclass(frozen=True)
class LayerWeights:
    """Matrices as (in, out), contiguous, ready for x @ w."""

    neighbour: torch.Tensor
    self_term: torch.Tensor | None
    bias: torch.Tensor
    second: torch.Tensor | None = None
    second_bias: torch.Tensor | None = None


def layer_weights(kind: str, module: Network) -> list[LayerWeights]:
    """The weights of every layer."""

    def transposed(linear: torch.nn.Module) -> torch.Tensor:
        return linear.weight.detach().t().contiguous()  # type: ignore[operator, union-attr]

    layers = []
    for conv in module.convs:
        if kind == "graphconv":
            layers.append(LayerWeights(transposed(conv.lin_rel), transposed(conv.lin_root), conv.lin_rel.bias))
        elif kind == "gcn":
            layers.append(LayerWeights(transposed(conv.lin), None, conv.bias))
        elif kind == "sage" or kind in EXTREMES:
            layers.append(LayerWeights(transposed(conv.lin_l), transposed(conv.lin_r), conv.lin_l.bias))
        else:
            first, second = conv.nn[0], conv.nn[2]
            scale = 1.0 + float(conv.eps)
            weights = transposed(first)
            layers.append(LayerWeights(weights, weights * scale, first.bias, transposed(second), second.bias))
    return layers
