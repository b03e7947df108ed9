"""Forwards that call PyG's functions through helpers of other files, and widths that equal a size of the example."""

import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric import utils

import livegnn as lg
from livegnn.models.pyg.context import EXAMPLE_EDGES, EXAMPLE_VERTICES
from livegnn.models.pyg.utilities import reading_utilities

HELPER = """
from torch_geometric.utils import add_self_loops, remove_self_loops

def prepared(edge_index, count):
    edge_index, _ = remove_self_loops(edge_index)
    return add_self_loops(edge_index, num_nodes=count)[0]
"""


def helper_again():
    module = types.ModuleType("users_helper")
    exec(HELPER, vars(module))
    sys.modules["users_helper"] = module
    return module


@pytest.fixture
def helper():
    yield helper_again()
    del sys.modules["users_helper"]


class Helped(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GraphConv(4, 4)

    def forward(self, x, edge_index):
        return self.conv(x, sys.modules["users_helper"].prepared(edge_index, x.size(0)))


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(4, 4, normalize=False)

    def forward(self, x, edge_index):
        return self.conv(x, *pyg.conv.gcn_conv.gcn_norm(edge_index, None, x.size(0)))


@pytest.mark.parametrize("kind", [Helped, Normalised])
def test_helpers_of_other_files(helper, kind):
    torch.manual_seed(0)
    module, rng = kind().eval(), np.random.default_rng(0)
    x, edges = rng.standard_normal((12, 4)).astype(np.float32), rng.integers(0, 12, (2, 40))
    engine = lg.Engine(lg.from_pyg(module), lg.Graph(x, *edges))
    with torch.no_grad():
        want = module(torch.from_numpy(x), torch.from_numpy(edges))
    np.testing.assert_allclose(engine.embeddings(np.arange(12)), want.numpy(), rtol=1e-4, atol=1e-5)
    assert helper.add_self_loops is utils.add_self_loops
    assert "Proxy" not in repr(utils.add_self_loops(torch.tensor([[0], [1]]), num_nodes=2))


def test_a_module_in_the_place_of_another_is_bound_as_well(helper):
    plain = utils.add_self_loops
    for module in (helper, helper_again()):
        sys.modules["users_helper"] = module
        with reading_utilities(Helped()):
            assert module.add_self_loops is not plain
        assert module.add_self_loops is plain


class OfWidth(nn.Module):
    """Makes constants of its width in a forward that torch.fx cannot trace."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.width = pyg.GraphConv(3, width), width

    def forward(self, x, edge_index):
        assert len(x) > 0
        h = self.conv(x, edge_index)
        return h * (torch.ones(self.width) * 0.5) + torch.full((1, self.width), 2.0) + h @ torch.eye(self.width)


@pytest.mark.parametrize("width", [2, 3, 7, 20, 28, 64])
def test_constants_of_any_width(width):
    assert EXAMPLE_VERTICES > 64 < EXAMPLE_EDGES
    assert lg.from_pyg(OfWidth(width)).output_width == width
