"""PNA, EGC and every composed aggregation equal PyG in float64."""

import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr as aggregations

from livegnn.models.edges import Gather
from livegnn.models.ir import walk
from tests.oracle.pyg_oracle import ROUNDED, assert_equal

YES_NO = (True, False)
AGGREGATORS = ["mean", "min", "max", "sum", "var", "std"]
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]
DEGREES = torch.tensor([1, 4, 3, 2, 1])


def pna(width=4, out=6, aggregators=AGGREGATORS, scalers=SCALERS, **options):
    return pyg.PNAConv(width, out, aggregators, scalers, DEGREES, **options)


def gathers(model):
    return any(isinstance(value, Gather) for value in walk(model.output))


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("pre_layers", [1, 2])
@pytest.mark.parametrize(("towers", "divide_input"), [(1, False), (2, False), (2, True)])
def test_pna(towers, divide_input, pre_layers, edge_dim):
    conv = pna(towers=towers, divide_input=divide_input, pre_layers=pre_layers, edge_dim=edge_dim)
    model = assert_equal(conv, rtol=ROUNDED)
    assert gathers(model) == (pre_layers > 1 or edge_dim is not None)
    assert model.attribute_width == edge_dim


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("scaler", SCALERS)
def test_pna_one_by_one(scaler, aggregator):
    assert_equal(pna(aggregators=[aggregator], scalers=[scaler]), rtol=ROUNDED)


def test_pna_layers_activations_and_learnt_norm():
    assert_equal(pna(post_layers=3, pre_layers=2, act="elu", train_norm=True), rtol=ROUNDED)
    assert_equal(pna(post_layers=2, act="leaky_relu", act_kwargs={"negative_slope": 0.3}), rtol=ROUNDED)


def test_an_empty_neighbourhood_has_no_part_of_its_own_row():
    conv = pna(aggregators=["max", "sum", "mean"], scalers=["identity"])
    model = assert_equal(conv, sizes=((3, 0), (6, 3)))
    assert not gathers(model)


@pytest.mark.parametrize("aggregators", [["symnorm"], ["symnorm", "sum", "mean", "max", "min", "var", "std"]])
@pytest.mark.parametrize("loops", YES_NO)
@pytest.mark.parametrize("bias", YES_NO)
def test_egc(bias, loops, aggregators):
    conv = pyg.EGConv(5, 6, aggregators, num_heads=2, num_bases=3, add_self_loops=loops, bias=bias)
    model = assert_equal(conv, rtol=ROUNDED)
    assert gathers(model) == (loops and len(aggregators) > 1)


def test_egc_without_symnorm():
    assert_equal(pyg.EGConv(5, 6, ["max", "std"], num_heads=3, num_bases=2, add_self_loops=False), rtol=ROUNDED)


AGGR = {
    "var": "var",
    "std": "std",
    "softmax": aggregations.SoftmaxAggregation(t=0.3),
    "learnt": aggregations.SoftmaxAggregation(learn=True, channels=5),
    "power": aggregations.PowerMeanAggregation(p=2.0),
    "powers": aggregations.PowerMeanAggregation(learn=True, channels=5),
    "list": ["mean", "max", "std"],
    "one": ["min"],
    "median": "median",
    "half": aggregations.QuantileAggregation(0.5, "lower"),
    "half and mean": ["median", "mean"],
    "scaled": aggregations.DegreeScalerAggregation(["sum", "var"], ["linear", "attenuation"], DEGREES),
}
JOINED = ["sum", "mean", "max", "min", "cat"]


@pytest.mark.parametrize("name", [name for name in AGGR if name != "scaled"])  # SAGEConv does not expect its width
def test_composed_aggregations(name):
    assert_equal(pyg.SAGEConv(5, 3, aggr=AGGR[name]), rtol=ROUNDED)


@pytest.mark.parametrize("mode", JOINED)
def test_joined_aggregations(mode):
    several = aggregations.MultiAggregation(["mean", "max", "sum"], mode=mode)
    assert_equal(pyg.SAGEConv(5, 3, aggr=several))


def test_projected_aggregations():
    options = {"in_channels": 5, "out_channels": 5}
    several = aggregations.MultiAggregation(["mean", "max"], mode="proj", mode_kwargs=options)
    conv = pyg.SimpleConv(several, combine_root="sum")
    assert_equal(conv, input_width=5)


@pytest.mark.parametrize("name", ["var", "std", "softmax", "power", "scaled", "median"])
def test_composed_aggregations_of_weighted_messages(name):
    conv = pyg.SimpleConv(AGGR[name])
    model = assert_equal(conv, input_width=5, rtol=ROUNDED)
    assert model.weights == "optional"
