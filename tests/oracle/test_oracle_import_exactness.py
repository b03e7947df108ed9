"""What docs/models.md says of a convolution's exactness is what its values are: a Gather that neither separates nor
sums messages of the sources alone, or no such one.
"""

import pytest
import torch
from torch_geometric import nn as pyg

from livegnn.models.compile import separate, sums_sources
from livegnn.models.edges import Gather
from livegnn.models.ir import walk
from livegnn.models.pyg import from_pyg
from livegnn.models.pyg_call import BIT_EXACT, BY_OPTION, TO_FLOAT32
from livegnn.models.pyg_convs import CONVS
from tests.oracle.pyg_layers import LAYERS


def test_every_convolution_is_tried():
    assert set(LAYERS) == set(CONVS)


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_exactness_is_what_the_values_are(kind):
    gathers = []
    for make in LAYERS[kind]:
        torch.manual_seed(0)
        model = from_pyg(make().eval(), input_width=4, check=kind is not pyg.RGATConv)  # its l2 is left unset by PyG
        found = (value for value in walk(model.output) if isinstance(value, Gather))
        gathers.append(any(separate(value) is None and not sums_sources(value) for value in found))
    assert gathers == {BIT_EXACT: [False], TO_FLOAT32: [True], BY_OPTION: [False, True]}[CONVS[kind].exactness]
