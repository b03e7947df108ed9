"""Forwards in the style of public code stay live: after every batch their rows are the module's, in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelError, ModelUnsupported
from tests.oracle.layer_forwards import FORWARDS, WIDTHS, Layers, OwnMatrix
from tests.oracle.pyg_oracle import assert_equal
from tests.oracle.streams import assert_live


@pytest.mark.parametrize("forward", FORWARDS)
def test_it_stays_live(forward):
    torch.manual_seed(1)
    width = WIDTHS.get(forward, 5)
    assert_live(forward(), width=width, **({"input_width": width} if forward in WIDTHS else {}))


class Between(Layers):
    """A function of the first layer's rows, recorded or read by torch.fx."""

    def __init__(self, function, recorded=False):
        super().__init__()
        self.function, self.recorded = function, recorded
        self.mix, self.attention = nn.Conv1d(8, 8, 3, padding=1), nn.MultiheadAttention(8, 2)
        self.per_vertex, self.second = nn.BatchNorm1d(9), pyg.GCNConv(4, 3)

    def forward(self, x, edge_index):
        h = self.convs[0](x, edge_index)
        if self.recorded and len(h) < 0:  # length: not for torch.fx
            return h
        return self.function(self, h, edge_index)


MATRIX = torch.tensor([[1.0, -2.0, 0.5, 0.25]])
EXACTLY = {
    "deviations": lambda net, h: torch.cat([h.view(-1, 2, 4).std(1), h.view(-1, 2, 4).var(2, unbiased=False)], 1),
    "norms": lambda net, h: h.view(-1, 2, 4).norm(dim=(1, 2)).unsqueeze(1) + h.view(-1, 2, 4).norm(p=1, dim=2),
    "largest size": lambda net, h: torch.linalg.vector_norm(h.view(-1, 2, 4), ord=float("inf"), dim=1),
    "the best two": lambda net, h: h.topk(2, dim=-1).values - h.view(-1, 4, 2).topk(1, 1, largest=False)[0].squeeze(1),
    "in order": lambda net, h: h.view(-1, 2, 4).sort(dim=2, descending=True)[0].flatten(1) + h.sort(dim=1).values,
    "running": lambda net, h: h.view(-1, 4, 2).cumprod(1).flatten(1) + h.view(-1, 4, 2).cumsum(dim=1).flatten(1),
    "median": lambda net, h: h.view(-1, 2, 4).median(dim=-1)[0] + h.median(dim=1, keepdim=True).values,
    "gated halves": lambda net, h: F.glu(h.view(-1, 2, 4), dim=1).squeeze(1),
    "padded": lambda net, h: F.pad(h.view(-1, 2, 4), (1, 2, 0, 1), value=0.5).sum(1),
    "triangles": lambda net, h: torch.triu(h.view(-1, 2, 4), 1).sum(1) + h.view(-1, 2, 4).tril().sum(1),
    "channels": lambda net, h: F.prelu(h.view(-1, 4, 2), torch.tensor([0.5, -1.0, 0.25, 2.0]).to(h)).flatten(1),
    "one slope": lambda net, h: F.prelu(h.view(-1, 4, 2), torch.tensor([0.25]).to(h)).flatten(1),
    "groups": lambda net, h: F.group_norm(h.view(-1, 4, 2), 2).flatten(1),
    "last two": lambda net, h: F.layer_norm(h.view(-1, 4, 2), (4, 2)).flatten(1),
    "folded": lambda net, h: F.softmax(torch.tanh(h.view(-1, 4)) * MATRIX.to(h), dim=-1).view(h.size(0), -1),
    "folded twice": lambda net, h: (h.view(-1, 2) * 2).view(-1, 4).relu().reshape(h.shape[0], 8),
    "folded vector": lambda net, h: torch.sigmoid(h.flatten()).view(-1, 8),
    "folded parts": lambda net, h: torch.cat([each.relu() for each in h.view(-1, 4).chunk(2, -1)], 1).view(-1, 8),
    "one under the other": lambda net, h: torch.cat([h, h.tanh()], dim=0).exp().view(2, -1, 8).sum(0),
    "sum of folded": lambda net, h: h.view(-1, 4).sum(-1, keepdim=True).view(-1, 2),
    "masks of folded": lambda net, h: torch.where(h.view(-1, 4) > 0, h.view(-1, 4), -0.5 * h.view(-1, 4)).view(-1, 8),
    "causal": lambda net, h: F.scaled_dot_product_attention(*[h.view(-1, 4, 2)] * 3, is_causal=True).flatten(1),
    "masked": lambda net, h: F.scaled_dot_product_attention(
        *[h.view(-1, 2, 4)] * 3, attn_mask=torch.tensor([[True, False], [True, True]]), scale=0.3
    ).flatten(1),
    "masked modules": lambda net, h: net.attention(
        h.expand(3, -1, -1), h[None], h[None], attn_mask=torch.zeros(3, 1).to(h), average_attn_weights=False
    )[0].sum(0),
    "windows": lambda net, h: net.mix(h.view(-1, 8, 1).expand(-1, -1, 5)).amax(-1),
    "a wrapped convolution": lambda net, h: F.conv1d(
        F.pad(h.unsqueeze(1), (1, 1), mode="circular"), torch.tensor([[[1.0, 2.0, -1.0]]]).to(h)
    ).squeeze(1),
    "pools": lambda net, h: F.avg_pool1d(h.unsqueeze(1), 3, padding=1, count_include_pad=False).flatten(1),
    "largest with padding": lambda net, h: F.max_pool1d(h.unsqueeze(1), 3, stride=2, padding=1).flatten(1),
    "pools of matrices": lambda net, h: F.avg_pool2d(h.view(-1, 1, 4, 2), 2).flatten(1),
    "picked by numbers": lambda net, h: h.view(-1, 4, 2).gather(2, torch.ones(len(h), 4, 1).long()).squeeze(-1),
    "first places": lambda net, h: torch.cat([MATRIX.to(h).expand(h.size(0), 4), h], -1),
    "repeated places": lambda net, h: torch.cat([MATRIX.to(h).repeat(h.shape[0], 1), h], -1),
    "like others": lambda net, h: MATRIX.to(h).expand_as(h[:, :4]) * h[:, 4:],
}


@pytest.mark.parametrize("name", EXACTLY)
def test_functions_of_matrices_and_folded_rows(name):
    function = EXACTLY[name]
    assert_equal(Between(lambda net, h, e: function(net, h)), rtol=1e-5)


@pytest.mark.parametrize("name", EXACTLY)
def test_the_same_of_a_recorded_forward(name):
    function = EXACTLY[name]
    assert_equal(Between(lambda net, h, e: function(net, h), recorded=True), rtol=1e-5)


def written_to_a_view(net, h, e):
    states = torch.zeros(2, h.size(0), 8).to(h)
    states[0].add_(h)
    last = states[1]
    last[:, :4] = h[:, 4:]
    states[:, :, 7] *= 2.0
    return states.sum(0) + last


def written_where_negative(net, h, e):
    m = h.view(-1, 2, 4).clone()
    m[m < 0] = 0.25
    m[:, 1, 2:] = torch.tensor([5.0, -1.0]).to(h)
    return m.flatten(1)


@pytest.mark.parametrize("function", [written_to_a_view, written_where_negative])
def test_what_is_written_to_a_part_changes_the_whole(function):
    torch.manual_seed(4)
    assert_live(Between(function), width=5)


class Given(nn.Module):
    """A convolution that is given rows with dimensions in front, and its own options."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, edge_weight=None):
        h = torch.stack([x, x.tanh(), x.abs()])
        return self.conv(h, edge_index, edge_weight).relu().sum(0)


@pytest.mark.parametrize(
    "conv",
    [
        lambda: pyg.GCNConv(5, 4),
        lambda: pyg.ChebConv(5, 4, K=3),
        lambda: pyg.GraphConv(5, 4, aggr="max"),
        lambda: pyg.TAGConv(5, 4, K=2),
        lambda: pyg.SGConv(5, 4, K=2),
        lambda: pyg.LEConv(5, 4),
    ],
)
def test_layers_over_several_steps_at_once(conv):
    torch.manual_seed(2)
    assert_equal(Given(conv()))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda net, h, e: net.attention(h, h, h)[0], "its attention runs over all vertices"),
        (lambda net, h, e: net.attention(h.unsqueeze(1), h.unsqueeze(1), h.unsqueeze(1))[0], "runs over all vertices"),
        (lambda net, h, e: F.scaled_dot_product_attention(h, h, h), "its attention runs over all vertices"),
        (lambda net, h, e: F.conv1d(h.t().unsqueeze(0), torch.ones(1, 8, 3))[0].t(), "kernel runs over the vertices"),
        (lambda net, h, e: F.conv1d(h[None], torch.ones(1, 7, 1))[0].t(), "its channels are the vertices"),
        (lambda net, h, e: F.max_pool1d(h.t(), 2).t(), "it runs over the vertices"),
        (lambda net, h, e: net.per_vertex(h.unsqueeze(0))[0], "numbers of its own for each vertex"),
        (lambda net, h, e: F.layer_norm(h[None], (7, 8))[0], "mean and deviation over all vertices"),
        (lambda net, h, e: F.group_norm(h.t()[None], 2)[0].t(), "statistics run over all vertices"),
        (lambda net, h, e: net.second(h.view(-1, 4), e).view(-1, 6), "its rows hold every vertex 2 times"),
        (lambda net, h, e: h.median(dim=0).values + h, "dim=0"),
        (lambda net, h, e: torch.cat([h, h]), "a tensor that holds every vertex several times"),
        (lambda net, h, e: F.pad(h, (0, 0, 1, 0))[1:], "it adds rows that are no vertices"),
        (lambda net, h, e: h.view(-1, 2, 4).sort(1).indices.flatten(1), "the indices of sort"),
        (lambda net, h, e: F.pad(h.view(-1, 4), (1, 1)).view(-1, 12)[:3], "it picks rows"),
    ],
)
def test_what_mixes_vertices_is_refused(function, reason):
    with pytest.raises(ModelUnsupported, match=reason):
        lg.from_pyg(Between(function))


def test_a_width_that_no_layer_states():
    assert lg.from_pyg(OwnMatrix()).input_width == 5
    with pytest.raises(ModelError, match="pass input_width="):
        lg.from_pyg(pyg.APPNP(2, 0.1))
