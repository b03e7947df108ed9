"""Forwards that compute with edge_index themselves: equal to the module in float64, and live over random streams."""

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle import edge_forwards as forwards
from tests.oracle.pyg_oracle import ROUNDED, assert_equal, liven
from tests.oracle.test_oracle_import_own import by_pyg

pytestmark = pytest.mark.filterwarnings(
    "ignore:Converting sparse tensor", "ignore:Sparse"
)  # of PyG's spmm, torch's CSR
CASES = forwards.VALUES | forwards.FOLLOWED


def imported(name):
    torch.manual_seed(0)
    module = liven(CASES[name](), 1)
    return module, lg.from_pyg(module)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_module(name):
    module, _ = imported(name)
    assert_equal(module, rtol=ROUNDED)


@pytest.mark.parametrize("name", CASES)
def test_follows_a_stream(name):
    module, model = imported(name)
    rng = np.random.default_rng(len(name))
    weighted = model.weights != "none"
    graph, mirror = random_graph(rng, model.input_width, weighted, vertices=16, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 4, 12, 30)):
        engine.apply(random_batch(rng, mirror, size))
        note = f"{name}, version {batch + 1}"
        check_engine(engine, mirror, note)
        truth, plain = (by_pyg(module, model, mirror, dtype) for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, note)
