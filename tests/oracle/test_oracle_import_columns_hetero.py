"""Which columns of the edges a forward reads of a HeteroData: the live output is the module's, or an error says why."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData

import livegnn as lg
from livegnn.errors import ModelUnsupported, ValueInvalid
from tests.oracle.pyg_oracle import liven

TO, BACK, PEER = ("A", "to", "B"), ("B", "back", "A"), ("A", "peer", "A")
WIDTHS = {"A": 4, "B": 3}
COUNT = 7


def conv():
    return pyg.HeteroConv({t: pyg.GraphConv((WIDTHS[t[0]], WIDTHS[t[2]]), 3) for t in (TO, BACK, PEER)})


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = conv()

    def forward(self, x_dict, edge_index_dict, edge_weight_dict=None):
        if edge_weight_dict is None:
            return self.conv(x_dict, edge_index_dict)
        return self.conv(x_dict, edge_index_dict, edge_weight_dict)

    def of(self, data):
        column = data.collect("edge_weight", allow_empty=True)
        return self(data.x_dict, data.edge_index_dict, column or None)


class Attributes(Weights):
    """edge_attr handed to edge_weight."""

    def forward(self, x_dict, edge_index_dict, edge_attr_dict=None):
        return super().forward(x_dict, edge_index_dict, edge_attr_dict)

    def of(self, data):
        column = data.collect("edge_attr", allow_empty=True)
        return self(data.x_dict, data.edge_index_dict, column or None)


class OnData(Weights):
    def forward(self, data):
        return self.conv(data.x_dict, data.edge_index_dict, data.edge_weight_dict)

    def of(self, data):
        return self(data)


class AttributesOnData(OnData):
    def forward(self, data):
        return self.conv(data.x_dict, data.edge_index_dict, data.edge_attr_dict)


class Mirror:
    """A HeteroData and the graph of it, changed alike."""

    def __init__(self, column, seed=0):
        self.rng, self.column = np.random.default_rng(seed), column
        self.x = {key: self.rng.standard_normal((COUNT, width)).astype(np.float32) for key, width in WIDTHS.items()}
        self.ends = {t: self.rng.integers(0, COUNT, (2, 15)) for t in (TO, BACK, PEER)}
        self.numbers = {t: self.rng.uniform(0.1, 2, 15).astype(np.float32) for t in self.ends}
        self.graph = lg.Graph.from_pyg(self.data())

    def data(self):
        data = HeteroData()
        for key, rows in self.x.items():
            data[key].x = torch.tensor(rows)
        for t, ends in self.ends.items():
            data[t].edge_index = torch.tensor(ends)
            if self.column is not None:
                data[t][self.column] = torch.tensor(self.numbers[t])
        return data

    def batch(self):
        updates = lg.Updates()
        for t in self.ends:
            ends, number = self.rng.integers(0, COUNT, (2, 2)), self.rng.uniform(0.1, 2, 2).astype(np.float32)
            updates.add_edges(*ends, edge_type=t, weight=None if self.column is None else number)
            self.ends[t] = np.concatenate([self.ends[t], ends], axis=1)
            self.numbers[t] = np.concatenate([self.numbers[t], number])
            u, v = (int(end) for end in self.ends[t][:, 0])
            if self.column is not None:
                last = max(e for e in range(self.ends[t].shape[1]) if tuple(self.ends[t][:, e]) == (u, v))
                self.numbers[t][last] = 1.5
                updates.set_weight(u, v, 1.5, edge_type=t)
        return updates


def close(engine, module, mirror):
    with torch.no_grad():
        truth = module.of(mirror.data())
    for key, want in truth.items():
        got = engine.embeddings(np.arange(COUNT), vertex_type=key)
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


RIGHT = [
    (Weights, "edge_weight", "edge_weight"),
    (Weights, None, "edge_weight"),
    (Attributes, "edge_attr", "edge_attr"),
    (Attributes, None, "edge_attr"),
    (OnData, "edge_weight", "data.edge_weight"),
    (AttributesOnData, "edge_attr", "data.edge_attr"),
]


@pytest.mark.parametrize(("kind", "column", "taken"), RIGHT)
def test_columns_by_type(kind, column, taken):
    module, mirror = liven(kind()), Mirror(column)
    model = lg.from_pyg(module, metadata=mirror.data().metadata())
    assert model.weights_from == taken
    engine = lg.Engine(model, mirror.graph)
    for _ in range(4):
        close(engine, module, mirror)
        engine.apply(mirror.batch())
    close(engine, module, mirror)
    engine.verify()


@pytest.mark.parametrize(("kind", "column"), [(Weights, "edge_attr"), (Attributes, "edge_weight")])
def test_the_other_column_is_asked_about(kind, column):
    module, mirror = liven(kind()), Mirror(column)
    with pytest.raises(ModelUnsupported, match=rf"{column} alone; import with from_pyg\(module, weighted=True\)"):
        lg.Engine(lg.from_pyg(module), mirror.graph)
    assert lg.Engine(lg.from_pyg(module, weighted=False), mirror.graph).model.weights == "none"


def test_one_column_for_all_types():
    mirror = Mirror("edge_weight")
    data = mirror.data()
    data[TO].edge_attr = data[TO].edge_weight
    del data[TO].edge_weight
    with pytest.raises(ValueInvalid, match="the same for all edge types, got edge_weight for"):
        lg.Graph.from_pyg(data)
