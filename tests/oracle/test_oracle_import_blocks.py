"""Forwards over a NeighborSampler's blocks are read as over the whole graph; methods in place of a forward."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelUnsupported
from livegnn.testing import random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven


class Sampled(nn.Module):
    """As PyG's examples train GraphSAGE and GAT on sampled blocks."""

    def __init__(self, convs, recorded=False):
        super().__init__()
        self.convs, self.recorded = nn.ModuleList(convs), recorded
        self.skips = nn.ModuleList([nn.Linear(5, 6), nn.Linear(6, 3)])

    def forward(self, x, adjs):
        if self.recorded:
            assert len(x) > 0
        for i, (edge_index, _, size) in enumerate(adjs):
            x_target = x[: size[1]]
            x = self.convs[i]((x, x_target), edge_index) + self.skips[i](x_target)
            if i != len(self.convs) - 1:
                x = F.dropout(F.relu(x), p=0.5, training=self.training)
        return x.log_softmax(dim=-1)

    def full_forward(self, x, edge_index):
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index) + self.skips[i](x)
            x = x.relu() if i != len(self.convs) - 1 else x
        return x.log_softmax(dim=-1)


class Batched(Sampled):
    def forward(self, x, n_id, adjs):
        return super().forward(x[n_id], adjs)


def sage():
    return pyg.SAGEConv(5, 6), pyg.SAGEConv(6, 3)


def attention():
    return pyg.GATConv(5, 3, heads=2), pyg.GATConv(6, 3, heads=2, concat=False)


def follows(module, model, seed):
    rng = np.random.default_rng(seed)
    graph, mirror = random_graph(rng, 5, False, vertices=20)
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 8, 25)):
        engine.apply(random_batch(rng, mirror, size))
        engine.verify()
        features, src, dst, _, live = mirror.arrays()
        rows = []
        for dtype in (torch.float64, torch.float32):
            twin = copy.deepcopy(module).to(dtype)
            with torch.no_grad():
                x, edge_index = torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))
                rows.append(twin.full_forward(x, edge_index).numpy()[live])
        check_rows(engine.embeddings(live), *rows, note=f"seed {seed}, version {batch + 1}")


@pytest.mark.parametrize("make", [sage, attention])
@pytest.mark.parametrize("recorded", [False, True])
def test_blocks_are_the_whole_graph(make, recorded):
    module = liven(Sampled(make(), recorded))
    follows(module, lg.from_pyg(module), 3)


@pytest.mark.parametrize("stated", [1, 2])
def test_a_convolution_that_no_block_reaches_is_refused(stated):
    module = Sampled([pyg.SAGEConv(5, 5) for _ in range(3)])
    module.skips = nn.ModuleList([nn.Linear(5, 5) for _ in range(3)])
    assert lg.from_pyg(module).depth == 3
    module.num_layers = stated
    with pytest.raises(
        ModelUnsupported, match=r"as num_layers says, and does not reach.* convs\.2 \(SAGEConv\); set mod"
    ):
        lg.from_pyg(module)
    module.num_layers = 3
    assert lg.from_pyg(module).depth == 3


def test_the_longest_list_of_convolutions_counts():
    module = Sampled(sage())
    module.heads = nn.ModuleList([nn.Linear(3, 3) for _ in range(5)])
    assert lg.from_pyg(module).depth == 2


def test_a_method_in_place_of_the_forward():
    module = liven(Batched(sage()))
    with pytest.raises(ModelUnsupported, match=r"or import its method: lg\.from_pyg\(module\.full_forward\)"):
        lg.from_pyg(module)
    follows(module, lg.from_pyg(module.full_forward), 4)


class Endless(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.LGConv()
        self.lin = nn.Linear(5, 5)

    def forward(self, x, adjs):
        for edge_index, _, size in adjs:
            x = self.lin(self.conv(x, edge_index)[: size[1]])
        return x


def test_blocks_without_a_number_of_layers():
    with pytest.raises(ModelUnsupported, match="as many as it is given blocks; set num_layers on the module"):
        lg.from_pyg(Endless())
    module = Endless()
    module.num_layers = 2
    assert lg.from_pyg(module).depth == 2
