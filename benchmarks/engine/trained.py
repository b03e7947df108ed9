"""Trained weights for a generated workload: random ones may select differently from those that a task has shaped.

A smaller graph of the same degree laws and features; the label of a vertex is planted in its own row and the extreme
of its in-neighbours' rows, so that a module of the same kind can learn it. A few full-batch epochs on PyG's CSR path,
whose backward pass is six times faster than the one along edges: seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.engine.generate import SHAPES, Shape, chung_lu
from benchmarks.engine.networks import EXTREMES, Network, network
from benchmarks.peers.bootstrap import in_matrix

VERTICES_MAX, EDGES_MAX = 10_000, 150_000
EPOCHS = 30
HELD_OUT = 5  # every fifth vertex is tested, not trained on


@dataclass(frozen=True)
class Trained:
    """accuracy: on held-out vertices;  chance: share of the most frequent label among them."""

    module: Network
    accuracy: float
    chance: float


def smaller(shape: Shape) -> Shape:
    """The same mean degree and exponents on at most VERTICES_MAX vertices and EDGES_MAX edges."""
    mean = shape.edges / shape.vertices
    vertices = min(shape.vertices, VERTICES_MAX, int(EDGES_MAX / mean))
    return dataclasses.replace(
        shape,
        vertices=vertices,
        edges=int(vertices * mean) // 2 * 2,
        in_degree_max=min(shape.in_degree_max, vertices // 10),
        out_degree_max=min(shape.out_degree_max, vertices // 10),
    )


def planted_labels(x: torch.Tensor, matrix: torch.Tensor, classes: int, name: str) -> torch.Tensor:
    """argmax over classes of a random projection of x[v] + (extreme of in-neighbours' x, centred)."""
    aggregate = torch.sparse.mm(matrix, x, f"a{name}")
    projection = torch.randn(x.shape[1], classes)
    return ((x + aggregate - aggregate.mean(0)) @ projection).argmax(1)


def train(kind: str, workload: str, widths: Sequence[int], seed: int = 7) -> Trained:
    """A module of `kind` with these widths, in eval mode, without gradients."""
    shape = smaller(SHAPES[workload])
    matrix = in_matrix(shape.vertices, *chung_lu(shape, seed), kind)
    module = network(kind, widths, seed)  # seeds torch
    x = torch.randn(shape.vertices, widths[0])
    labels = planted_labels(x, matrix, widths[-1], EXTREMES[kind])
    held_out = torch.arange(shape.vertices) % HELD_OUT == 0
    module.requires_grad_(True)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x, matrix)[~held_out], labels[~held_out]).backward()
        optimizer.step()
    module.requires_grad_(False)
    accuracy = (module(x, matrix)[held_out].argmax(1) == labels[held_out]).float().mean()
    return Trained(module, float(accuracy), float(labels[held_out].bincount().max() / held_out.sum()))
