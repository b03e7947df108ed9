"""What forwards write where a row is infinite or has no value: 0, as the engine has after a division by 0."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelMismatch, ModelUnsupported


def _filled(h, mask, number):
    h = h.clone()
    h[mask(h)] = number
    return h


ZEROS = {
    "nan_to_num": torch.nan_to_num,
    "numbers": lambda h: h.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0),
    "isnan": lambda h: _filled(h, torch.isnan, 0),
    "unequal to itself": lambda h: _filled(h, lambda x: x != x, 0.0),
    "where": lambda h: torch.where(torch.isnan(h), torch.zeros_like(h), h),
    "where not": lambda h: torch.where(~torch.isnan(h), h, 0.0),
    "or infinite": lambda h: h.masked_fill(torch.isnan(h) | torch.isinf(h), 0),
    "or small": lambda h: h.masked_fill(torch.isnan(h) | (h < 0.3), 0),
}
OTHERS = {
    "nan_to_num": lambda h: torch.nan_to_num(h, nan=0.5),
    "infinity": lambda h: torch.nan_to_num(h, 0.0, 1.0),
    "isnan": lambda h: _filled(h, torch.isnan, 1),
    "unequal to itself": lambda h: _filled(h, lambda x: x != x, 1.0),
    "where": lambda h: torch.where(torch.isnan(h), torch.ones_like(h), h),
    "where not": lambda h: torch.where(~torch.isnan(h), h, 1.0),
    "or small": lambda h: h.masked_fill(torch.isnan(h) | (h < 0.3), 2),
    "equal to infinity": lambda h: h.masked_fill(h == float("inf"), 7.0),
    "the question": lambda h: h.nan_to_num() + torch.isnan(h).float(),
}


class Divided(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.function = pyg.GraphConv(4, 4), function

    def forward(self, x, edge_index):
        return self.conv(self.function(x / x.norm(dim=-1, keepdim=True)), edge_index)


class DividedInside(pyg.MessagePassing):
    def __init__(self, function):
        super().__init__(aggr="add")
        self.lin, self.function = nn.Linear(4, 4), function

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(self.function(x / x.norm(dim=-1, keepdim=True))))

    def message(self, x_j):
        return x_j


@pytest.mark.parametrize("name", ZEROS)
def test_zeros_are_written(name):
    rng = np.random.default_rng(0)
    x, edges = rng.standard_normal((12, 4)).astype(np.float32), rng.integers(0, 12, (2, 40))
    x[::4] = 0
    module = Divided(ZEROS[name]).eval()
    engine = lg.Engine(lg.from_pyg(module), lg.Graph(x, *edges))
    with torch.no_grad():
        want = module(torch.from_numpy(x), torch.from_numpy(edges))
    np.testing.assert_allclose(engine.embeddings(np.arange(12)), want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_other_numbers_are_refused(name):
    with pytest.raises(ModelUnsupported, match=r"engine has 0|infinite or have"):
        lg.from_pyg(Divided(OTHERS[name]))


@pytest.mark.parametrize("name", ["nan_to_num", "infinity", "isnan", "where"])
def test_other_numbers_are_refused_in_own_layers(name):
    with pytest.raises(ModelUnsupported, match=r"engine has 0|it may write 0|not supported"):
        lg.from_pyg(DividedInside(OTHERS[name]))


def test_a_division_by_zero_is_compared():
    class Inverse(Divided):
        def forward(self, x, edge_index):
            return self.conv(torch.sigmoid(1 / x.norm(dim=-1, keepdim=True)) * x.exp(), edge_index)

    with pytest.raises(ModelMismatch, match="some of whose features are 0"):
        lg.from_pyg(Inverse(None))
