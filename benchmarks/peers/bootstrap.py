"""The peers' starting state: one full run by CSR products, shared by all (not timed)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array

from benchmarks.engine.generate import Ids
from benchmarks.engine.networks import EXTREMES, LayerWeights, Network, layer_weights
from benchmarks.engine.stream import Workload


@dataclass(frozen=True)
class State:
    """rows[k]: embeddings of layer k (rows[0] the features); sums[k]: aggregates of layer k, before mean or scale
    (maxima or minima where the kind says so, 0 without in-neighbours).

    messages[k]: GCN's stored message rows s_u W x_u (empty for the others).
    """

    rows: list[torch.Tensor]
    sums: list[torch.Tensor]
    messages: list[torch.Tensor]


def transform(layer: LayerWeights, aggregate: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """W_n a + W_s x + b, and GIN's second linear."""
    assert layer.self_term is not None
    z = torch.addmm(layer.bias, aggregate, layer.neighbour).addmm_(own, layer.self_term)
    if layer.second is not None:
        assert layer.second_bias is not None
        z = torch.addmm(layer.second_bias, z.relu_(), layer.second)
    return z


def in_matrix(vertices: int, src: Ids, dst: Ids, kind: str) -> torch.Tensor:
    """Row v: the in-neighbours of v, valued by the number of parallel edges, or 1 where one of them is selected."""
    shape = (vertices, vertices)
    matrix = csr_array((np.ones(len(src), np.float32), (dst, src)), shape=shape)
    if kind in EXTREMES:
        matrix.data[:] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: "Sparse CSR tensor support is in beta state"
        pointers, sources = torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices)
        return torch.sparse_csr_tensor(pointers, sources, torch.from_numpy(matrix.data), shape)


def bootstrap(workload: Workload, kind: str, module: Network) -> State:
    """Run every layer on the snapshot."""
    matrix = in_matrix(workload.vertices, workload.src, workload.dst, kind)
    degree = torch.from_numpy(np.bincount(workload.dst, minlength=workload.vertices).astype(np.float32)).unsqueeze(1)
    scale = (degree + 1).rsqrt()
    state = State([torch.from_numpy(workload.features.copy())], [], [])
    layers = layer_weights(kind, module)
    with torch.inference_mode():
        for k, layer in enumerate(layers):
            own = state.rows[k]
            if kind == "gcn":
                state.messages.append((own @ layer.neighbour).mul_(scale))
                state.sums.append(matrix @ state.messages[k])
                z = (state.sums[k] + state.messages[k]).mul_(scale).add_(layer.bias)
            elif kind in EXTREMES:
                state.sums.append(torch.sparse.mm(matrix, own, f"a{EXTREMES[kind]}"))
                z = transform(layer, state.sums[k], own)
            else:
                state.sums.append(matrix @ own)
                mean = state.sums[k] / degree.clamp(min=1) if kind == "sage" else state.sums[k]
                z = transform(layer, mean, own)
            state.rows.append(z.relu_() if k + 1 < len(layers) else z)
    return state


def copied(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """A peer's own copy: peers change rows in place."""
    return [tensor.clone() for tensor in tensors]
