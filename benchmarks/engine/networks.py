"""The benchmark networks as PyG modules, and their weights as arrays for the peers.

A layer is  z = W_n a + W_s x + b  with a = aggregate of x over in-neighbours; GIN adds W_2 relu(z) + b_2 with W_s =
(1 + eps) W_n; GCN has no W_s and its self-loop is part of the aggregate. ReLU between layers, none after the last.
Attention ("gat", from livegnn's values) is in no such form: ELU between layers, HEADS heads, one in the last layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.nn import GCNConv, GINConv, GraphConv, SAGEConv

import livegnn
from livegnn.models import edges, ir

KINDS = ("graphconv", "gcn", "sage", "gin")
EXTREMES = {"sage-max": "max", "sage-min": "min"}  # kinds whose aggregate selects instead of adding
ATTENTION = "gat"
HEADS = 8


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


def model(kind: str, widths: Sequence[int], seed: int = 7) -> livegnn.Model:
    """What livegnn runs of any kind, attention included."""
    return attention(widths, seed) if kind == ATTENTION else livegnn.from_pyg(network(kind, widths, seed))


def attention(widths: Sequence[int], seed: int = 7) -> livegnn.Model:
    """Layers of  y[v] = sum over u in in(v) and v itself of softmax_u(LeakyReLU(a . W x[u] + b . W x[v])) W x[u],  head
    by head; self-loop edges replaced, HEADS heads in hidden layers.

    Raises: ValueError if a hidden width is no multiple of HEADS.   Source: Velickovic et al. 2018.
    """
    if any(width % HEADS for width in widths[1:-1]):
        raise ValueError(f"[networks] expected hidden widths that {HEADS} divides, got {widths[1:-1]}; choose others")
    rng = np.random.default_rng(seed)
    x: ir.Value = ir.Input(widths[0])
    for width in widths[1:-1]:
        x = ir.Activation(_attention_layer(x, width, HEADS, rng), "elu", 1.0)
    return livegnn.Model.from_output(_attention_layer(x, widths[-1], 1, rng))


def _attention_layer(x: ir.Value, width: int, heads: int, rng: np.random.Generator) -> edges.Gather:
    wide = width // heads

    def per_head() -> npt.NDArray[np.float64]:
        """(heads, width), zero outside of a head's own columns."""
        blocks = np.kron(np.eye(heads), np.ones((1, wide)))
        return blocks * rng.standard_normal((heads, width)) / np.sqrt(wide)

    h = ir.Linear(x, rng.standard_normal((width, x.width)) / np.sqrt(x.width))
    sides = (edges.Source(ir.Linear(h, per_head())), edges.Target(ir.Linear(h, per_head())))
    score = ir.Activation(ir.Combine(tuple((1.0, side) for side in sides)), "leaky_relu", 0.2)
    return edges.Gather(edges.Source(h), "softmax", score, heads=heads, loops="replace")
