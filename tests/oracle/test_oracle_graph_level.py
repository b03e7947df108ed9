"""Modules with one row per graph over random streams: after every batch, PyG's own rows, run in float64."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

import livegnn as lg
from livegnn.testing import random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven

GRAPHS = 4


class Classifier(nn.Module):
    """The mean and the maximum of the last layer, then two linear layers: the commonest of all."""

    def __init__(self):
        super().__init__()
        self.one, self.two = pyg.GCNConv(5, 8), pyg.GCNConv(8, 6)
        self.norm, self.hidden, self.last = nn.BatchNorm1d(12), nn.Linear(12, 7), nn.Linear(7, 3)

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        x = self.one(x, edge_index, edge_weight).relu()
        x = self.two(x, edge_index, edge_weight)
        x = torch.cat([global_mean_pool(x, batch), global_max_pool(x, batch)], dim=1)
        x = F.dropout(self.hidden(self.norm(x)).relu(), 0.5, self.training)
        return F.log_softmax(self.last(x), dim=-1)


class Layers(nn.Module):
    """GIN for graphs: the sums of all layers' rows, the features' own among them."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GINConv(pyg.MLP([width, 6, 6])) for width in (5, 6)])
        self.last = pyg.MLP([17, 8, 2], norm=None)

    def forward(self, x, edge_index, batch):
        rows = [x]
        for conv in self.convs:
            rows.append(conv(rows[-1], edge_index))
        return self.last(torch.cat([global_add_pool(each, batch) for each in rows], dim=-1))


class Modules(nn.Module):
    """Aggregations as modules, one for several, and a minimum."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(5, 6)
        self.pool, self.sum = pyg.MultiAggregation(["mean", "max", "min"]), pyg.SumAggregation()
        self.last = nn.Linear(24, 1)

    def forward(self, data):
        x = self.conv(data.x, data.edge_index).tanh()
        pooled = torch.cat([self.pool(x, data.batch), self.sum(x, index=data.batch)], dim=1)
        return self.last(pooled).squeeze(-1)


class Attentive(nn.Module):
    """Attention before the pool, nothing after it."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GATv2Conv(5, 3, heads=2)

    def forward(self, x, edge_index, batch):
        return global_max_pool(self.conv(x, edge_index), batch)


MODULES = {"classifier": Classifier, "layers": Layers, "modules": Modules, "attentive": Attentive}


def by_pyg(module, mirror, group_of, dtype):
    """The rows of GRAPHS graphs."""
    features, src, dst, weight, live = mirror.arrays()
    place = np.full(len(features), -1)
    place[live] = np.arange(len(live))
    x, edges = torch.tensor(features[live], dtype=dtype), torch.tensor(place[np.stack([src, dst])])
    batch = torch.tensor([group_of(v) for v in live.tolist()], dtype=torch.int64)
    order = torch.argsort(batch, stable=True)  # as loaders make them
    back = torch.argsort(order)
    x, edges, batch = x[order], back[edges], batch[order]
    twin = copy.deepcopy(module).to(dtype).eval()
    with torch.no_grad():
        if isinstance(module, Modules):
            rows = twin(Data(x=x, edge_index=edges, batch=batch))
        elif mirror.weighted:
            rows = twin(x, edges, edge_weight=torch.tensor(weight, dtype=dtype), batch=batch)
        else:
            rows = twin(x, edges, batch=batch)
    return rows.reshape(int(batch.max()) + 1, -1).numpy()


def check(readout, module, mirror, group_of, note):
    readout.verify()
    readout.engine.verify()
    truth, plain = (by_pyg(module, mirror, group_of, dtype) for dtype in (torch.float64, torch.float32))
    got = readout.rows(range(len(truth)))
    assert got.shape == truth.shape, note
    check_rows(got, truth, plain, note, on_edges=isinstance(module, Attentive))


@pytest.mark.parametrize(("name", "weighted"), [*((name, False) for name in MODULES), ("classifier", True)])
def test_rows_of_graphs_follow_the_module_itself(name, weighted):
    seed = 5 * len(name) + weighted
    torch.manual_seed(seed)
    module = liven(MODULES[name](), seed)
    rng = np.random.default_rng(seed)
    graph, mirror = random_graph(rng, 5, weighted, vertices=24)
    group_of = {v: int(rng.integers(GRAPHS)) for v in range(1000)}
    readout = lg.Readout.from_pyg(module, graph, [group_of[v] for v in range(24)], threads=1)
    check(readout, module, mirror, group_of.__getitem__, f"{name}, seed {seed}, at creation")
    for version, size in enumerate((1, 8, 25, 40)):
        updates = random_batch(rng, mirror, size)
        to_come = [v for v in range(mirror.slots) if v not in graph]
        moved = rng.choice(graph.vertices(), 2).tolist()
        group_of.update({v: int(rng.integers(GRAPHS)) for v in moved})
        readout.assign([*to_come, *moved], [group_of[v] for v in [*to_come, *moved]])
        readout.engine.apply(updates)
        check(readout, module, mirror, group_of.__getitem__, f"{name}, seed {seed}, version {version + 1}")


def test_another_head_is_told_apart():
    """The bound is tight enough to see one weight after the pool off by a thousandth."""
    module = liven(Classifier(), 1)
    graph, mirror = random_graph(np.random.default_rng(1), 5, False, vertices=20)
    readout = lg.Readout.from_pyg(module, graph, lambda ids: ids % GRAPHS, threads=1)
    check(readout, module, mirror, lambda v: v % GRAPHS, "the same module")
    with torch.no_grad():
        module.last.weight[0, 0] += 1e-3
    with pytest.raises(AssertionError, match="is off by"):
        check(readout, module, mirror, lambda v: v % GRAPHS, "another module")
