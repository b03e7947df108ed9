"""What docs/models.md says of a convolution's exactness is what its values are: a Gather that neither separates nor
sums messages of the sources alone, nor takes that of one edge, or no such one.
"""

import pytest
import torch
from torch_geometric import nn as pyg

from livegnn.models.compile_layout import separate, sums_sources
from livegnn.models.edges import Gather
from livegnn.models.ir import walk
from livegnn.models.pyg.convs.call import BIT_EXACT, BY_OPTION, TO_FLOAT32
from livegnn.models.pyg.convs.registry import CONVS
from livegnn.models.pyg.entry import from_pyg
from tests.oracle.pyg_layers import DEGREES, LAYERS


def recomputes(model):
    found = (value for value in walk(model.output) if isinstance(value, Gather))
    kept = (value for value in found if value.reduce != "newest" and separate(value) is None)
    return any(not sums_sources(value) for value in kept)


def test_every_convolution_is_tried():
    assert set(LAYERS) == set(CONVS)


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_exactness_is_what_the_values_are(kind):
    gathers = []
    for make in LAYERS[kind]:
        torch.manual_seed(0)
        model = from_pyg(make().eval(), input_width=4, check=kind is not pyg.RGATConv)  # its l2 is left unset by PyG
        gathers.append(recomputes(model))
    assert gathers == {BIT_EXACT: [False], TO_FLOAT32: [True], BY_OPTION: [False, True]}[CONVS[kind].exactness]


def pna(aggregators):
    return pyg.PNAConv(4, 4, aggregators, ["identity"], DEGREES, edge_dim=2)


@pytest.mark.parametrize(
    ("make", "recomputed"),
    [
        (lambda: pyg.GeneralConv(4, 3, in_edge_channels=2), False),
        (lambda: pyg.GeneralConv(4, 3, in_edge_channels=2, directed_msg=False), False),
        (lambda: pyg.GeneralConv(4, 3, in_edge_channels=2, aggr="max"), True),
        (lambda: pna(["mean", "std", "sum"]), False),
        (lambda: pna(["mean", "max"]), True),
        (lambda: pyg.GENConv(4, 3, aggr="powermean", edge_dim=2), False),
        (lambda: pyg.GENConv(4, 3, aggr="max", edge_dim=2), True),
        (lambda: pyg.GINEConv(torch.nn.Linear(4, 3), edge_dim=2, aggr="std"), False),
        (lambda: pyg.GINEConv(torch.nn.Linear(4, 3), edge_dim=2, aggr="softmax"), True),
        (lambda: pyg.NNConv(4, 3, torch.nn.Linear(2, 12), aggr="mean"), False),
        (lambda: pyg.FiLMConv(4, 3), True),
        (lambda: pyg.CGConv(4, 2), True),
        (lambda: pyg.ResGatedGraphConv(4, 3, edge_dim=2), True),
    ],
)
def test_options_that_decide_on_edges(make, recomputed):
    torch.manual_seed(0)
    assert recomputes(from_pyg(make().eval(), input_width=4)) is recomputed
