"""Embeddings of integer features, and tables of parameters indexed by vertex; live against the module."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelError, ModelUnsupported
from tests.oracle.streams import assert_live

KINDS, DAYS = 5, 3


def kinds_and_numbers(rng, count, width):
    """The first column names one of KINDS, the second one of DAYS."""
    rows = rng.standard_normal((count, width)).astype(np.float32)
    rows[:, 0] = rng.integers(0, KINDS, count)
    if width > 1:
        rows[:, 1] = rng.integers(0, DAYS, count)
    return rows


def whole_columns(rng, count, width):
    return kinds_and_numbers(rng, count, width)[:, :width].round().clip(0, DAYS - 1)


class Embedded(nn.Module):
    def __init__(self, how, width=8):
        super().__init__()
        self.how = how
        self.kind, self.day = nn.Embedding(KINDS, 6), nn.Embedding(DAYS, 2, padding_idx=0)
        self.conv = pyg.GCNConv(width, 4)

    def forward(self, x, edge_index):
        return self.conv(self.how(self, x), edge_index)


def two_columns(net, x):
    return torch.cat([net.kind(x[:, 0].long()), net.day(x[:, 1].to(torch.int64))], dim=-1)


def with_numbers(net, x):
    return torch.cat([net.kind(x[:, 0].long()), x[:, 1:]], dim=-1)


def by_function(net, x):
    return torch.cat([F.embedding(x[:, 0].long(), net.kind.weight), net.day(x[:, 1].int())], dim=-1)


def one_hot(net, x):
    return torch.cat([F.one_hot(x[:, 0].long(), num_classes=KINDS).float(), x[:, 2:]], dim=-1)


MIXED = {
    "two columns": (lambda: Embedded(two_columns), 2, {}),
    "a column and numbers": (lambda: Embedded(with_numbers, 10), 5, {"input_width": 5}),
    "by function": (lambda: Embedded(by_function), 2, {"input_width": 2}),
    "one hot": (lambda: Embedded(one_hot, 8), 5, {"input_width": 5}),
}


@pytest.mark.parametrize("name", MIXED)
def test_embeddings_of_columns(name):
    torch.manual_seed(1)
    module, width, options = MIXED[name]
    model = assert_live(module(), width=width, rows=kinds_and_numbers, **options)
    assert model.input_width == width


class OfIntegers(nn.Module):
    """A forward whose x is of int64."""

    def __init__(self, how):
        super().__init__()
        self.how, self.kind, self.day = how, nn.Embedding(KINDS, 4), nn.Embedding(DAYS, 4)
        self.conv = pyg.SAGEConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(self.how(self, x), edge_index)


INTEGERS = {
    "squeezed": (lambda net, x: net.kind(x.squeeze(-1)), 1),
    "a column": (lambda net, x: net.kind(x[:, 0]), 1),
    "summed": (lambda net, x: net.kind(x[:, 0]) + net.day(x[:, 1]), 2),
    "all at once": (lambda net, x: net.day(x[:, :2]).sum(dim=1), 2),
    "used as a number, too": (lambda net, x: net.kind(x[:, 0]) * x.float()[:, 1:2], 2),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_features_that_are_integers(name):
    torch.manual_seed(2)
    how, width = INTEGERS[name]

    def run(module, x, edge_index):
        return module(x.long(), edge_index)

    options = {"input_width": width} if name == "all at once" else {}  # else one column would do, too
    model = assert_live(OfIntegers(how), width=width, rows=whole_columns, run=run, **options)
    assert model.input_width == width


def test_a_number_without_a_row_gives_zeros():
    model = lg.from_pyg(OfIntegers(INTEGERS["a column"][0]))
    graph = lg.Graph(np.array([[2], [KINDS], [-3]], np.float32), np.array([0]), np.array([1]))
    rows = lg.Engine(model, graph).embeddings([1, 2])
    bias = model.to_arrays()[1]
    assert any(np.array_equal(rows[1], array) for array in bias.values())  # W 0 + b


class LikeLightGCN(nn.Module):
    """Layers over a table of its own."""

    def __init__(self, count):
        super().__init__()
        self.emb, self.conv = nn.Embedding(count, 6), pyg.LGConv()

    def forward(self, edge_index, edge_weight=None):
        x = self.emb.weight
        out = x
        for _ in range(2):
            x = self.conv(x, edge_index, edge_weight)
            out = out + x
        return out / 3


class ByArange(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.emb, self.conv = nn.Embedding(count, 6), pyg.SAGEConv(6, 3)
        self.register_buffer("ids", torch.arange(count))

    def forward(self, edge_index):
        return self.conv(self.emb(self.ids), edge_index)


class ByParameter(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.node_emb, self.conv = nn.Parameter(torch.randn(count, 6)), pyg.GATConv(6, 3)

    def forward(self, edge_index):
        return self.conv(self.node_emb, edge_index)


@pytest.mark.parametrize("kind", [LikeLightGCN, ByArange, ByParameter, pyg.LightGCN])
def test_a_table_of_all_vertices(kind):
    """Its rows are the graph's features; edges change, and new vertices bring a row."""
    torch.manual_seed(3)
    count = 30
    module = kind(count) if kind is not pyg.LightGCN else pyg.LightGCN(count, 6, 2)
    model, rng = lg.from_pyg(module), np.random.default_rng(4)
    ((name, rows),) = model.tables.items()
    assert model.input_width == rows.shape[1] == 6
    assert len(rows) == count
    np.testing.assert_array_equal(rows, module.get_parameter(name).detach().numpy())
    pairs = rng.integers(0, count, (2, 90))
    engine = lg.Engine(model, lg.Graph(rows, *pairs))
    for _ in range(3):
        new = rng.integers(0, count, (2, 5))
        updates = lg.Updates()
        updates.add_edges(*new)
        engine.apply(updates)
        pairs = np.concatenate([pairs, new], axis=1)
        double = copy.deepcopy(module).double().eval()
        with torch.no_grad():
            edges = torch.tensor(pairs)
            want = (double.get_embedding(edges) if kind is pyg.LightGCN else double(edges)).numpy()
        np.testing.assert_allclose(engine.embeddings(np.arange(count)), want, rtol=1e-4, atol=1e-5)
    updates = lg.Updates()
    updates.add_vertex(count, rows[:5].mean(axis=0))
    updates.add_edge(0, count)
    engine.apply(updates)
    engine.verify()


class TwoTables(nn.Module):
    """Tables of other widths."""

    def __init__(self):
        super().__init__()
        self.users, self.items, self.conv = nn.Embedding(10, 4), nn.Embedding(20, 5), pyg.LGConv()

    def forward(self, edge_index):
        return self.conv(torch.cat([self.users.weight, self.items.weight[:, :4]]), edge_index)


class Offset(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.conv = nn.Embedding(9, 4), pyg.SAGEConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(self.emb(x[:, 0].long() + 1), edge_index)


class OfFeatures(Offset):
    def forward(self, x, edge_index):
        return self.conv(x + self.emb.weight, edge_index)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (TwoTables, "tables of several widths: users.weight of shape"),
        (Offset, "whole numbers"),
        (OfFeatures, "has a row for every vertex"),
        (lambda: Embedded(lambda net, x: net.kind(x[:, 0].long()).max(0)[0] * x), "vertices"),
    ],
)
def test_refused(module, reason):
    with pytest.raises((ModelUnsupported, ModelError), match=reason):
        lg.from_pyg(module(), input_width=None if module is not OfFeatures else 4)


def test_attributes_that_name_rows_are_to_be_cast():
    class Bonds(nn.Module):
        def __init__(self, cast):
            super().__init__()
            self.kinds, self.conv, self.lin = nn.Embedding(5, 4), pyg.GINEConv(nn.Linear(4, 4)), nn.Linear(4, 4)
            self.cast = cast

        def forward(self, x, edge_index, edge_attr):
            return self.conv(
                self.lin(x), edge_index, self.kinds(edge_attr.long() if self.cast else edge_attr).squeeze(1)
            )

    with pytest.raises(ModelUnsupported, match=r"not whole numbers of each row; cast it, as in edge_attr\.long\(\)"):
        lg.from_pyg(Bonds(False))
    assert lg.from_pyg(Bonds(True)).depth == 1
