"""Layers of PyG whose own code is followed, as an own layer's is: as in PyG at import and after every batch."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelUnsupported
from livegnn.models.pyg.convs.registry import FOLLOWED
from livegnn.testing import check_engine, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import ROUNDED, assert_equal, liven
from tests.oracle.test_oracle_pyg_streams import by_pyg


class History(nn.Module):
    """A DNAConv over two layers' rows."""

    def __init__(self, **options):
        super().__init__()
        self.first, self.second, self.conv = nn.Linear(5, 4), nn.Linear(5, 4), pyg.DNAConv(4, **options)

    def forward(self, x, edge_index):
        return self.conv(torch.stack([self.first(x).relu(), self.second(x)], dim=1), edge_index)


class Points(nn.Module):
    """Positions are the first three columns."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, x[:, :3], edge_index)


def mlp(a, b):
    return nn.Sequential(nn.Linear(a, 6), nn.ReLU(), nn.Linear(6, b))


CASES = {
    "DNA": lambda: History(),
    "DNA of heads": lambda: History(heads=2, bias=False),
    "DNA without self-loops": lambda: History(add_self_loops=False),
    "PointNet": lambda: Points(pyg.PointNetConv(mlp(8, 4), nn.Linear(4, 3))),
    "PointNet, sums": lambda: Points(pyg.PointNetConv(mlp(8, 4), aggr="add", add_self_loops=False)),
    "PointTransformer": lambda: Points(pyg.PointTransformerConv(5, 4)),
    "PointTransformer of networks": lambda: Points(
        pyg.PointTransformerConv(5, 4, pos_nn=mlp(3, 4), attn_nn=mlp(4, 4), add_self_loops=False)
    ),
    "PointGNN": lambda: Points(pyg.PointGNNConv(nn.Linear(5, 3), mlp(8, 4), nn.Linear(4, 5))),
}


def made(name):
    torch.manual_seed(0)
    return liven(CASES[name](), 1)


def test_every_layer_is_tried():
    tried = {type(each) for name in CASES for each in made(name).modules()}
    assert set(FOLLOWED) <= tried


@pytest.mark.parametrize("name", CASES)
def test_follows_a_stream(name):
    module = made(name)
    model = assert_equal(module, rtol=ROUNDED, input_width=5)
    rng = np.random.default_rng(len(name))
    graph, mirror = random_graph(rng, 5, False, vertices=14)
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 4, 12, 30)):
        engine.apply(random_batch(rng, mirror, size))
        note = f"{name}, version {batch + 1}"
        check_engine(engine, mirror, note)
        truth, plain = (by_pyg(module, mirror, False, dtype) for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, note, on_edges=True)


def test_groups_of_a_history_are_refused():
    with pytest.raises(ModelUnsupported, match="it moves the rows of vertices or edges"):
        lg.from_pyg(History(heads=2, groups=2))
