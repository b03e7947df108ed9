"""Engines of every family whose rows are mostly in files, beside engines whose rows are in memory: the same bits."""

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.inference import memory
from livegnn.models.pyg.entry import from_pyg
from livegnn.testing import graph_columns, random_batch, random_graph
from tests.oracle.pyg_oracle import liven

MODELS = {
    "GCN": lambda: pyg.GCN(8, 24, 2, 5),
    "GraphSAGE": lambda: pyg.GraphSAGE(8, 24, 3, 5, norm="batch_norm"),
    "GraphSAGE max": lambda: pyg.GraphSAGE(8, 24, 2, 5, aggr="max"),
    "GIN": lambda: pyg.GIN(8, 24, 2, 5),
    "GAT": lambda: pyg.GAT(8, 24, 2, 5, heads=2),
    "GATv2": lambda: pyg.GAT(8, 24, 2, 5, heads=2, v2=True),
    "PNA": lambda: pyg.PNA(
        8, 12, 2, 5, aggregators=["mean", "max", "std"], scalers=["identity", "amplification"],
        deg=torch.tensor([0, 5, 9, 4, 2]),
    ),
    "EdgeCNN": lambda: pyg.EdgeCNN(8, 12, 2, 5),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(memory, "LEAST_LIMIT", 1)


@pytest.mark.parametrize("options", [{}, {"mode": "on_demand"}], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_in_less_memory(name, options):
    torch.manual_seed(0)
    model = from_pyg(liven(MODELS[name](), 1))
    rng = np.random.default_rng([len(name), len(options)])
    graph, mirror = random_graph(rng, 8, False, vertices=500, **graph_columns(model))
    whole = lg.Engine(model, graph, threads=1, **options)
    limited = lg.Engine(model, graph, threads=2, memory_limit=64 << 10, **options)
    for size in (1, 8, 40, 400):
        limited.apply(random_batch(rng, mirror, size))
        ids = graph.vertices()[:: 2 if size < 400 else 1]
        assert limited.embeddings(ids).tobytes() == whole.embeddings(ids).tobytes()
    limited.verify()
    assert limited.state_digest() == whole.state_digest()
    assert limited.memory.pages_out > 0


@pytest.mark.parametrize("strategy", ["constrained", "affected", "khop", "full", "sampled"])
def test_every_strategy_in_less_memory(strategy):
    torch.manual_seed(0)
    model = from_pyg(liven(pyg.GCN(8, 24, 2, 5), 1))
    rng = np.random.default_rng(len(strategy))
    graph, mirror = random_graph(rng, 8, False, vertices=500)
    whole = lg.Engine(model, graph, strategy=strategy)
    limited = lg.Engine(model, graph, strategy=strategy, memory_limit=64 << 10)
    for size in (1, 20, 200):
        limited.apply(random_batch(rng, mirror, size))
        ids = graph.vertices()
        assert limited.embeddings(ids).tobytes() == whole.embeddings(ids).tobytes()
    assert limited.memory.pages_out > 0
