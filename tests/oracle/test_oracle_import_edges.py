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


class Encoded(torch.nn.Module):
    """A forward over Data that cannot do without edge_attr, of a width that only its encoder states."""

    def __init__(self):
        super().__init__()
        self.edge, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(8, 2)

    def forward(self, data):
        rows = torch.zeros(data.x.size(0), 4, dtype=data.x.dtype)
        rows = rows.index_add(0, data.edge_index[1], self.edge(data.edge_attr))
        return self.last(torch.cat([data.x, rows], dim=1))


def test_a_width_of_attributes_that_an_encoder_states():
    module = liven(Encoded(), 1)
    assert lg.from_pyg(module, input_width=4).attribute_width == 3


@pytest.mark.parametrize("name", CASES)
def test_equals_the_module_and_follows_a_stream(name):
    torch.manual_seed(0)
    module = CASES[name]()
    follows_a_stream(name, module, assert_equal(module, rtol=ROUNDED))
