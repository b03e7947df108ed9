"""Messages are put together so that an edge costs additions only: what one end tells is computed at the vertex."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.models import edges, ir
from livegnn.models.messages import linear, split_target
from livegnn.models.pyg.entry import from_pyg
from livegnn.models.truth import EdgeList, true_rows

rng = np.random.default_rng(5)
X = ir.Input(3)
ROWS = rng.standard_normal((6, 3)).astype(np.float32)
EDGES = EdgeList(rng.integers(0, 5, 12), rng.integers(0, 5, 12), None, rng.standard_normal((12, 2)))


def kinds(value, kind):
    return [each for each in ir.walk(value) if isinstance(each, kind)]


def gathered(message):
    return true_rows(edges.Gather(message), ROWS, EDGES)


def on_edges(value):
    return [type(each).__name__ for each in ir.walk(value) if each.on_edges]


def test_a_linear_step_over_both_ends_is_taken_apart():
    target, source, attributes = edges.Target(X), edges.Source(X), edges.EdgeAttribute(2)
    difference = ir.Combine(((1.0, source), (-1.0, target)))
    pair = ir.Concat((target, difference, attributes))
    weight, bias = rng.standard_normal((4, 8)), rng.standard_normal(4)
    apart = linear(pair, weight, bias)
    np.testing.assert_allclose(gathered(apart), gathered(ir.Linear(pair, weight, bias)), rtol=1e-5, atol=1e-5)
    assert sorted(on_edges(apart)) == ["Combine", "EdgeAttribute", "Linear", "Source", "Target"]
    assert len([each for each in kinds(apart, ir.Linear) if not each.on_edges]) == 2  # x - x of both ends, once each
    assert sum(each.bias is not None for each in kinds(apart, ir.Linear)) == 1


def test_a_bias_is_kept_where_every_projection_is_shared():
    message = ir.Combine(((2.0, edges.Source(X)), (-1.0, edges.Target(X))))
    weight, bias = rng.standard_normal((4, 3)), rng.standard_normal(4)
    apart = linear(message, weight, bias)
    np.testing.assert_allclose(gathered(apart), gathered(ir.Linear(message, weight, bias)), rtol=1e-5, atol=1e-5)
    assert len(kinds(apart, ir.Linear)) == 1


def test_what_no_end_tells_is_left_as_it_is():
    attributes = edges.EdgeAttribute(2)
    assert isinstance(linear(attributes, np.ones((4, 2))), ir.Linear)
    bent = ir.Activation(ir.Combine(((1.0, edges.Source(X)), (1.0, edges.Target(X)))), "relu")
    assert isinstance(linear(bent, np.ones((4, 3))), ir.Linear)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_the_targets_part_is_told_from_the_rest(reduce):
    message = ir.Combine(((2.0, edges.Target(X)), (1.0, edges.Source(X))))
    own, rest = split_target(message)
    assert own is not None
    assert not own.on_edges
    assert rest is X
    together = edges.Gather(ir.Combine(((1.0, edges.Target(own)), (1.0, edges.Source(rest)))), reduce)
    np.testing.assert_allclose(
        true_rows(together, ROWS, EDGES), true_rows(edges.Gather(message, reduce), ROWS, EDGES), rtol=1e-12
    )


def test_a_gat_is_a_score_per_vertex_and_end_and_one_projection():
    torch.manual_seed(0)
    model = from_pyg(pyg.GATConv(5, 3, heads=2, edge_dim=4, negative_slope=0.3))
    (gather,) = kinds(model.output, edges.Gather)
    score = gather.score
    assert isinstance(score, ir.Activation)
    assert (score.kind, score.param) == ("leaky_relu", 0.3)
    assert isinstance(score.x, ir.Combine)
    assert [coef for coef, _ in score.x.terms] == [1.0, 1.0, 1.0]
    source, target, edge = (term for _, term in score.x.terms)
    assert (type(source), type(target), type(edge)) == (edges.Source, edges.Target, ir.Linear)
    assert isinstance(edge.x, edges.EdgeAttribute)
    assert isinstance(gather.message, edges.Source)
    assert source.x.x is target.x.x is gather.message.x  # W x, once
    assert (gather.heads, gather.loops, gather.fill) == (2, "replace", "mean")
    assert not [each for each in kinds(model.output, ir.Linear) if each.on_edges and each is not edge]


def test_an_edge_network_keeps_its_first_layer_at_the_vertices():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    model = from_pyg(pyg.EdgeConv(net), input_width=4)
    first = [each for each in kinds(model.output, ir.Linear) if not each.on_edges]
    assert [(each.x.width, each.width) for each in first] == [(4, 6), (4, 6)]
    assert [each.width for each in kinds(model.output, ir.Linear) if each.on_edges] == [2]
