"""Programs of torch.export, imported from their flattened calls: equal to the module, and live over random streams."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelMismatch, ModelUnsupported
from livegnn.models.pyg.exported import model_of_program, module_of_program
from livegnn.testing import check_engine, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven


class Two(nn.Module):
    """A network of one's own: a sum by hand, a norm, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 6), pyg.BatchNorm(6), pyg.GraphConv(6, 3)

    def forward(self, x, edge_index):
        row, column = edge_index
        h = self.first(x)
        h = torch.zeros_like(h).index_add(0, column, h[row]) + h
        h.mul_(0.5)
        return self.second(self.norm(h).tanh(), edge_index)


CASES = {
    "GCN": lambda: pyg.GCN(4, 5, 2),
    "SAGE": lambda: pyg.GraphSAGE(4, 5, 2),
    "GIN": lambda: pyg.GIN(4, 5, 2),
    "GAT": lambda: pyg.GAT(4, 6, 2, heads=2),
    "own": Two,
}
X, EDGES = torch.randn(7, 4), torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


def exported(module, *, any_size=True):
    """As a file gives it back."""
    vertices, edges = torch.export.Dim("V", min=2), torch.export.Dim("E", min=2)
    shapes = {"x": {0: vertices}, "edge_index": {1: edges}} if any_size else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (X, EDGES), dynamic_shapes=shapes, strict=False)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        return torch.export.load(file)


@pytest.mark.parametrize("name", CASES)
def test_a_program_is_live(name):
    torch.manual_seed(0)
    module = liven(CASES[name](), 1).eval()
    model = model_of_program(exported(module))
    rng = np.random.default_rng(3)
    graph, mirror = random_graph(rng, 4, False, vertices=16)
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 6, 20)):
        engine.apply(random_batch(rng, mirror, size))
        note = f"{name}, version {batch + 1}"
        check_engine(engine, mirror, note)
        features, src, dst, _, live = mirror.arrays()
        truth, plain = (run(module, features, src, dst, dtype)[live] for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(live), truth, plain, note)


def run(module, features, src, dst, dtype):
    twin = copy.deepcopy(module).to(dtype).eval()
    with torch.no_grad():
        return twin(torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))).numpy()


def test_a_program_of_one_size_is_refused():
    with pytest.raises(ModelUnsupported, match=r"x and edge_index of any size, got 7 and 5.*dynamic_shapes"):
        module_of_program(exported(pyg.GCN(4, 5, 2).eval(), any_size=False))


def test_an_update_through_a_view_is_noticed():
    class Through(nn.Module):
        def forward(self, x, edge_index):
            h = x * 2
            h[:, 0].add_(1)
            return h

    with pytest.raises(ModelMismatch, match="the program's own results on random graph 0"):
        module_of_program(exported(Through().eval()))


def test_a_call_without_a_form_is_named():
    class Odd(nn.Module):
        def forward(self, x, edge_index):
            return torch.fft.fft(x).real

    with pytest.raises(ModelUnsupported, match=r"aten's .*add the module itself"):
        module_of_program(exported(Odd().eval()))
