"""Forwards that compute with edge_index themselves: equal to the module in float64, and live over random streams."""

import pytest
import torch

import livegnn as lg
from tests.oracle import edge_forwards as forwards
from tests.oracle.pyg_oracle import ROUNDED, assert_equal, liven
from tests.oracle.test_oracle_import_own import follows_a_stream

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
    follows_a_stream(name, *imported(name))
