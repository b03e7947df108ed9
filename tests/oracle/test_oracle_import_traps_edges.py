"""Where PyG's layers on edges surprise people, one by one: an imported model does what PyG does."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr as aggregations

from livegnn.models.pyg.entry import from_pyg
from livegnn.reference.evaluate import evaluate

X = np.random.default_rng(1).standard_normal((4, 2)).astype(np.float32)


def equal(module, src, dst, rtol=1e-12, x=X, **columns):
    """PyG's float64 output on one graph, which livegnn's equals. columns: edge_attr, edge_type."""
    module = module.eval()
    model = from_pyg(module, input_width=2)
    src, dst = np.array(src, np.int64), np.array(dst, np.int64)
    given = {key: np.array(value, np.int64 if key == "edge_type" else np.float32) for key, value in columns.items()}
    got = evaluate(
        model.to_arrays(), x, src, dst, None, np.float64, given.get("edge_attr"), given.get("edge_type")
    )  # fmt: skip
    tensors = {key: torch.tensor(value) for key, value in given.items()}
    tensors = {key: value.double() if value.is_floating_point() else value for key, value in tensors.items()}
    with torch.no_grad():
        want = module.double()(torch.tensor(x).double(), torch.tensor(np.stack([src, dst])), **tensors).numpy()
    module.float()
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * 1e-2)
    return got


@pytest.mark.parametrize("kind", [pyg.GATConv, pyg.GATv2Conv])
def test_a_loop_is_replaced_with_one_of_its_own(kind):
    conv = kind(2, 2)
    plain = equal(conv, [0, 2], [1, 1])
    np.testing.assert_array_equal(plain, equal(conv, [0, 1, 1, 2], [1, 1, 1, 1]))  # two loops change nothing
    kept = kind(2, 2, add_self_loops=False)
    kept.load_state_dict(conv.state_dict())
    assert (equal(kept, [0, 1, 2], [1, 1, 1]) != equal(kept, [0, 1, 1, 2], [1, 1, 1, 1]))[1].any()
    assert (equal(kept, [0], [1])[0] == kept.bias.detach().numpy()).all()  # no in-edge, no row


def test_a_loops_attribute_is_the_mean_of_the_other_in_edges():
    conv = pyg.GATv2Conv(2, 2, edge_dim=1)
    one = equal(conv, [0, 2, 1], [1, 1, 1], edge_attr=[[1.0], [3.0], [9.0]])
    np.testing.assert_array_equal(one, equal(conv, [0, 2, 1], [1, 1, 1], edge_attr=[[1.0], [3.0], [-5.0]]))
    changed = equal(conv, [0, 2, 1], [1, 1, 1], edge_attr=[[2.0], [3.0], [9.0]])
    assert (one != changed).any(axis=1).tolist() == [False, True, False, False]
    fixed = pyg.GATv2Conv(2, 2, edge_dim=1, fill_value=7.0)
    fixed.load_state_dict(conv.state_dict())
    assert (equal(fixed, [0, 2, 1], [1, 1, 1], edge_attr=[[1.0], [3.0], [9.0]]) != one).any()


def test_scores_may_be_large():
    conv = pyg.GATConv(2, 2)
    with torch.no_grad():
        conv.att_src.mul_(1e4)
    assert np.isfinite(equal(conv, [0, 1, 2, 3, 0], [1, 2, 1, 1, 1], rtol=1e-9)).all()


def test_parallel_edges_count_each():
    attributes = {"edge_attr": [[1.0, 2.0], [1.0, 2.0], [0.5, 1.0]]}
    once = {"edge_attr": [[1.0, 2.0], [0.5, 1.0]]}
    for conv in (pyg.GINEConv(nn.Linear(2, 2)), pyg.GATv2Conv(2, 2, edge_dim=2), pyg.NNConv(2, 2, nn.Linear(2, 4))):
        assert (equal(conv, [0, 0, 2], [1, 1, 1], **attributes) != equal(conv, [0, 2], [1, 1], **once))[1].any()


def test_a_vertex_without_in_edges():
    transformer = pyg.TransformerConv(2, 2)
    root = transformer.lin_skip(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(equal(transformer, [0], [1])[0], root[0], rtol=1e-5)
    for aggr in ("max", "min", "mean", "add", "softmax", "var"):
        assert (equal(pyg.EdgeConv(nn.Linear(4, 3), aggr), [0], [1])[[0, 2, 3]] == 0).all(), aggr
    power = equal(pyg.SimpleConv(aggregations.PowerMeanAggregation(p=2.0)), [0], [1], rtol=1e-5)
    np.testing.assert_allclose(power[0], math.sqrt(1e-4), rtol=1e-6)  # the clamped mean of nothing


def test_a_deviation_below_its_bound_is_0():
    conv = pyg.SimpleConv("std")
    x = np.array([[1.0, 1.0], [1.0, 1.004], [1.0, 3.0], [0.0, 0.0]], np.float32)
    got = equal(conv, [0, 1, 0, 2], [3, 3, 2, 2], rtol=1e-6, x=x)
    assert (got[3] == 0).all()  # a variance of 4e-6 counts as none
    np.testing.assert_allclose(got[2], [0.0, 1.0], atol=1e-6)


def test_the_mean_of_a_relation_is_over_that_relation():
    conv = pyg.RGCNConv(2, 2, 2)
    edges, types = ([0, 2, 3], [1, 1, 1]), [0, 0, 1]
    before = equal(conv, *edges, edge_type=types)
    assert (equal(conv, *edges, edge_type=[0, 1, 1]) != before)[1].any()
    more = equal(conv, [*edges[0], 3], [*edges[1], 1], edge_type=[*types, 1])  # twice the same message of type 1
    np.testing.assert_allclose(more, before, rtol=1e-12)


def test_scalers_keep_the_degrees_of_training():
    options = ([["sum"], ["amplification", "inverse_linear"]], torch.tensor([0, 5, 1]))
    few = pyg.PNAConv(2, 2, *options[0], options[1])
    many = pyg.PNAConv(2, 2, *options[0], torch.tensor([0, 1, 9]))
    many.load_state_dict({**few.state_dict(), **{k: v for k, v in many.state_dict().items() if "avg_deg" in k}})
    assert (equal(few, [0, 2], [1, 1]) != equal(many, [0, 2], [1, 1]))[1].any()


def test_attention_of_an_edgeless_graph():
    for conv in (pyg.GATConv(2, 2, add_self_loops=False), pyg.TransformerConv(2, 2), pyg.AGNNConv()):
        assert equal(conv, [], []).shape == (4, 2)
