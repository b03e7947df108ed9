"""Rows seen as matrices: attention of a vertex over its own layers, heads, products; live against the module."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelUnsupported
from tests.oracle.pyg_oracle import assert_equal
from tests.oracle.streams import assert_live


class Net(nn.Module):
    """Three layers, what may follow them, and a forward of the test's own."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.first, self.second, self.third = pyg.GCNConv(5, 8), pyg.GCNConv(8, 8), pyg.SAGEConv(8, 8)
        self.score, self.out, self.small, self.norm = nn.Linear(8, 1), nn.Linear(8, 3), nn.Linear(4, 3), nn.LayerNorm(8)
        self.heads = nn.Parameter(torch.randn(1, 2, 4))
        self.maps = nn.Parameter(torch.randn(2, 4, 3))
        self.register_buffer("shift", torch.randn(3, 1))

    def layers(self, x, edge_index):
        a = self.first(x, edge_index).relu()
        b = self.second(a, edge_index).relu()
        return [a, b, self.third(b, edge_index)]

    def forward(self, x, edge_index):
        return self.how(self, x, edge_index)


def over_layers(net, x, e):
    h = torch.stack(net.layers(x, e), dim=1)
    return net.out((F.softmax(net.score(h), dim=1) * h).sum(1))


def over_layers_by_bmm(net, x, e):
    h = torch.stack(net.layers(x, e), dim=1)
    weight = F.softmax(net.score(h).squeeze(-1), dim=-1)
    return torch.bmm(weight.unsqueeze(1), h).squeeze(1)


def over_layers_at_the_end(net, x, e):
    h = torch.stack(net.layers(x, e), dim=-1)
    weight = net.score(h.transpose(1, 2)).squeeze(-1).softmax(-1)
    return torch.matmul(h, weight.unsqueeze(-1)).squeeze(-1)


def by_columns(net, x, e):
    h = torch.stack(net.layers(x, e))
    return (torch.softmax(h, dim=0) * (h + net.shift.unsqueeze(-1))).sum(0)


def by_heads(net, x, e):
    h = net.first(x, e).view(-1, 2, 4)
    alpha = F.leaky_relu((h * net.heads).sum(dim=-1, keepdim=True))
    return net.small(alpha * h).reshape(x.size(0), -1)


def head_maps(net, x, e):
    return torch.einsum("nhc,hcd->nhd", net.first(x, e).view(x.shape[0], 2, 4), net.maps).flatten(1)


def between_heads(net, x, e):
    h = net.first(x, e).view(x.size(0), 2, 4)
    alpha = torch.einsum("nhc,ngc->nhg", h, h).softmax(-1)
    return torch.einsum("nhg,ngc->nhc", alpha, h).mean(dim=1)


def self_attention(net, x, e):
    h = torch.stack(net.layers(x, e), 1)
    alpha = (net.out(h) @ net.out(h).transpose(-2, -1)) / 3**0.5
    return net.norm(alpha.softmax(-1) @ h).mean(1)


def heads_of_layers(net, x, e):
    q, k, v = (each.view(-1, 2, 4) for each in net.layers(x, e))
    alpha = ((q * k).sum(-1) / 2).sigmoid().unsqueeze(-1)
    return (alpha * v).flatten(1) + net.norm((q * k).permute(0, 2, 1).reshape(-1, 8))


def largest(net, x, e):
    h = torch.stack(net.layers(x, e), -1)
    return torch.cat([h.max(dim=-1)[0], h.min(dim=-1).values, h.amax(1), h.amin((1, 2), keepdim=True).squeeze(1)], -1)


def logarithms(net, x, e):
    h = torch.stack(net.layers(x, e), 1)
    return F.log_softmax(h, 1).sum(1) + F.log_softmax(h, -1).mean(dim=1) + F.normalize(h, dim=1).sum(dim=1)


def vector_of_numbers(net, x, e):
    h = net.first(x, e)
    weight = (h * net.second(h, e)).sum(dim=-1)
    return h * weight.unsqueeze(-1) + h.mean(-1, keepdim=True) * h


def unpacked(net, x, e):
    h = net.first(x, e)
    count, width = h.shape
    return h.view(count, 2, width // 2).amax(1)


def picked(net, x, e):
    a, b, c = net.layers(x, e)
    h = torch.cat([a.unsqueeze(1), b.unsqueeze(1), c[:, None]], dim=1)
    return h[:, 0] + h[:, -1] * torch.sigmoid(net.score(h[:, 1:])).mean(1)


def expanded(net, x, e):
    a, b, _ = net.layers(x, e)
    return (net.score(a).unsqueeze(-1).expand(-1, 2, 4) * b.view(-1, 2, 4)).flatten(1)


def turned(net, x, e):
    h = torch.stack(net.layers(x, e)).permute(1, 2, 0)
    return (h.relu() * h.flip(-1)).transpose(1, 2).reshape(h.size(0), -1)


def outer(net, x, e):
    a, b = net.small(net.first(x, e)[:, :4]), net.second(net.first(x, e), e)[:, :2]
    return (a.unsqueeze(2) * b.unsqueeze(1)).flatten(1) + torch.bmm(a.unsqueeze(2), b.unsqueeze(1)).view(-1, 6)


FORWARDS = [
    over_layers, over_layers_by_bmm, over_layers_at_the_end, by_columns, by_heads, head_maps, between_heads,
    self_attention, heads_of_layers, largest, logarithms, vector_of_numbers, unpacked, picked, expanded, turned, outer,
]  # fmt: skip


@pytest.mark.parametrize("how", FORWARDS)
def test_a_forward_with_rows_of_any_shape(how):
    torch.manual_seed(1)
    assert_equal(Net(how))


@pytest.mark.parametrize("how", FORWARDS)
def test_it_stays_live(how):
    torch.manual_seed(2)
    assert_live(Net(how), width=5)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (lambda net, x, e: net.first(x, e).view(-1, 4), "a tensor that holds every vertex several times"),
        (lambda net, x, e: net.second(net.first(x, e).view(-1, 4).repeat(1, 2), e), "hold every vertex 2 times"),
        (lambda net, x, e: net.first(x, e).view(-1, 4).softmax(0), "dim=0 runs over all vertices"),
        (lambda net, x, e: net.first(x, e)[:, :4] + net.first(x, e).view(-1, 4), "do not fit each other"),
        (lambda net, x, e: net.first(x, e).view(x.size(0) * 2 + 1, -1), "no multiple of the number of vertices"),
        (lambda net, x, e: torch.stack(net.layers(x, e), 1).softmax(0).sum(1), "dim=0 runs over all vertices"),
        (lambda net, x, e: torch.stack(net.layers(x, e), 1).sum(0), "dim=0 runs over all vertices"),
        (lambda net, x, e: torch.stack(net.layers(x, e), 1), "a tensor of three dimensions or more"),
        (lambda net, x, e: torch.einsum("nc,mc->nm", x, x), "rows of different vertices"),
        (lambda net, x, e: torch.einsum("nhc,nhd->hcd", x[:, None], x[:, None]), "sums over all vertices"),
        (lambda net, x, e: torch.stack(net.layers(x, e), 1)[0], "it picks rows"),
    ],
)
def test_what_mixes_vertices_is_refused(how, reason):
    with pytest.raises(ModelUnsupported, match=reason):
        lg.from_pyg(Net(how))


def test_a_recorded_forward_has_the_same_values():
    """Where torch.fx gives up, shapes are numbers of one run."""

    def how(net, x, e):
        h = torch.stack(net.layers(x, e), dim=1)
        weight = net.score(h.view(len(x), 3, 8)) if len(x) else h  # len() of a proxy makes torch.fx give up
        return (weight.softmax(1).expand(x.shape[0], 3, 8) * h).sum(1)

    torch.manual_seed(3)
    assert assert_equal(Net(how)).output_width == 8
