"""Every supported convolution of PyG, live: random streams of all kinds of updates, an engine equal to a run from
scratch after each batch and to float64 truth.

The import itself is compared with the module in float64 (test_oracle_import_*).
"""

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.models import ir, layers
from livegnn.models.model import Model
from livegnn.models.pyg.entry import from_pyg
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph
from tests.oracle.pyg_layers import LAYERS
from tests.oracle.pyg_oracle import liven

CASES = [(kind, number) for kind, made in LAYERS.items() for number in range(len(made))]


def two_layers(kind, number, rng, weighted):
    """The convolution, ELU, and a SAGE layer behind it, so that a change has somewhere to go."""
    torch.manual_seed(number)
    module = liven(LAYERS[kind][number](), number)
    imported = from_pyg(module, input_width=4, check=kind is not pyg.RGATConv)  # its l2 is left unset by PyG
    first = imported.for_graph(weighted).output
    w = [rng.standard_normal((3, first.width)).astype(np.float32) / first.width**0.5 for _ in range(2)]
    return Model.from_output(layers.SAGE(*w).apply(ir.Activation(first, "elu", 1.0)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "number"), CASES, ids=[f"{kind.__name__}-{number}" for kind, number in CASES])
def test_a_stream_of_updates(kind, number, weighted):
    rng = np.random.default_rng([number, weighted])
    model = two_layers(kind, number, rng, weighted)
    if weighted and not model.uses_weights:
        pytest.skip("the layer reads no weights")
    graph, mirror = random_graph(rng, 4, weighted, vertices=14, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1)
    check_engine(engine, mirror, "at creation")
    for batch, size in enumerate((1, 4, 12, 30)):
        engine.apply(random_batch(rng, mirror, size))
        check_engine(engine, mirror, f"{kind.__name__} {number}, version {batch + 1}")


MODELS = {
    "GAT": lambda: pyg.GAT(4, 8, 2, 3, heads=2),
    "GAT jk": lambda: pyg.GAT(4, 8, 3, 3, heads=4, jk="cat", norm="batch_norm", act="elu"),
    "GATv2": lambda: pyg.GAT(4, 8, 2, 3, v2=True, heads=2, act="tanh"),
    "PNA": lambda: pyg.PNA(
        4, 6, 2, 3, aggregators=["mean", "min", "max", "std"], scalers=["identity", "amplification", "attenuation"],
        deg=torch.tensor([0, 5, 9, 4, 2]),
    ),
    "EdgeCNN": lambda: pyg.EdgeCNN(4, 6, 2, 3, jk="max"),
    "GraphSAGE max": lambda: pyg.GraphSAGE(4, 8, 3, 3, aggr="max", norm="batch_norm"),
    "GIN min": lambda: pyg.GIN(4, 6, 2, 3, aggr="min"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(name):
    torch.manual_seed(0)
    model = from_pyg(liven(MODELS[name](), 1))
    rng = np.random.default_rng(len(name))
    graph, mirror = random_graph(rng, 4, False, vertices=16, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=2)
    for batch, size in enumerate((1, 4, 12, 30)):
        engine.apply(random_batch(rng, mirror, size))
        check_engine(engine, mirror, f"{name}, version {batch + 1}")
