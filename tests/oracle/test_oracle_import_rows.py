"""Functions on rows and columns between layers equal PyG in float64, one by one."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.testing import random_batch, random_graph
from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal, liven
from tests.oracle.test_oracle_pyg_streams import check

W3 = torch.tensor([0.5, -2.0, 1.25, 0.75, -1.5, 2.0])

EXACTLY = {
    "sum": lambda h: h * h.sum(dim=-1, keepdim=True),
    "sum to a vector": lambda h: h.sum(-1).unsqueeze(-1) * h,
    "sum of products": lambda h: (h * torch.tanh(h)).sum(dim=1),
    "mean": lambda h: h - h.mean(dim=1, keepdim=True),
    "max and min": lambda h: h.max(dim=-1)[0] - h.min(dim=1).values,
    "amax": lambda h: torch.amax(h, dim=-1, keepdim=True) + torch.amin(h[:, :5], dim=1, keepdim=True),
    "norm": lambda h: h / (h.norm(dim=-1, keepdim=True) + 1),
    "norm 1": lambda h: torch.norm(h, p=1, dim=1),
    "norm 3": lambda h: h.norm(p=3, dim=1),
    "largest size": lambda h: torch.linalg.vector_norm(h, ord=math.inf, dim=-1),
    "linalg norm": lambda h: torch.linalg.norm(h, dim=1),
    "var": lambda h: h.var(dim=1, keepdim=True) * h.std(dim=-1, unbiased=False, keepdim=True),
    "logsumexp": lambda h: torch.logsumexp(h, dim=1, keepdim=True),
    "cumsum": lambda h: h.cumsum(dim=-1),
    "cosine": lambda h: F.cosine_similarity(h, torch.tanh(h) + 1, dim=-1),
    "distance": lambda h: F.pairwise_distance(h, torch.sigmoid(h), keepdim=True),
    "normalize 1": lambda h: F.normalize(h, p=1.0, dim=1),
    "where": lambda h: torch.where(h > 0, h, 0.1 * h),
    "where of scalars": lambda h: torch.where(h[:, :1] < 0.25, 1.0, -1.0) * h,
    "mask as factor": lambda h: h * (h >= 0.1) + (h <= -0.1).float() * 2,
    "logic": lambda h: ((h > 0) & ~(h > 1) | (h < -1)).to(h.dtype) + (h != 0).long() + (h == 1).int(),
    "masked_fill": lambda h: h.masked_fill(h < 0, -0.5),
    "roots": lambda h: torch.sqrt(h.abs() + 1) + torch.rsqrt(h * h + 0.5),
    "logarithms": lambda h: torch.log(h.abs() + 1) + torch.log1p(h**2) + (h**2 + 1).log2() + (h**2 + 1).log10(),
    "exponentials": lambda h: torch.exp(-h) + torch.expm1(h) + torch.exp2(h) + 2**h,
    "quotients": lambda h: h / (1 + h * h) + 1 / (2 + h.abs()) + torch.reciprocal(h.abs() + 3),
    "row by one number": lambda h: h / (h[:, :1].abs() + 1),
    "one number by row": lambda h: h[:, :1] / (h.abs() + 1),
    "constant by rows": lambda h: W3.to(h.dtype) / (h.abs() + 1),
    "powers": lambda h: h**4 + h.abs() ** 0.5 + (h.abs() + 1) ** -1.5 + (h * h + 1).pow(-2) + h**0 + h.abs() ** 1.7,
    "clamp": lambda h: h.clamp(-0.3, 0.7) + torch.clamp(h, min=0.2) + h.clamp_max(0.1) + h.clip(max=0.5),
    "clamp by a row": lambda h: torch.clamp(h, min=-W3.abs().to(h.dtype), max=W3.abs().to(h.dtype)),
    "largest of a constant": lambda h: torch.maximum(h, W3.to(h.dtype)) + torch.minimum(h, torch.tanh(h[:, :1])),
    "glu": lambda h: F.glu(h, dim=-1),
    "pad": lambda h: F.pad(h, (1, 2), value=0.5),
    "repeat": lambda h: h.repeat(1, 2) + h.tile((1, 2)),
    "repeat_interleave": lambda h: h[:, :3].repeat_interleave(2, dim=1) + h,
    "expand": lambda h: h[:, :1].expand(-1, 6) * h + h[:, 1:2].expand_as(h) + h[:, 2:3].expand(h.size(0), 6),
    "split": lambda h: torch.cat([part * k for k, part in enumerate(h.split([1, 2, 3], dim=1), 1)], dim=1),
    "chunk": lambda h: torch.stack(h.chunk(3, dim=-1), dim=0).sum(dim=0),
    "columns": lambda h: h[:, ::2] + h[:, [5, 0, 1]] + h[:, torch.tensor([2, 2, 4])] + h[..., -3:],
    "flip": lambda h: torch.flip(h, dims=(-1,)) + h.flip(1) * h,
    "narrow": lambda h: h.narrow(1, 2, 3) + h.index_select(1, torch.tensor([0, 5, 3])),
    "unbind": lambda h: h.unbind(dim=1)[0] * h.unbind(1)[3],
    "addcmul": lambda h: torch.addcmul(h, h, torch.tanh(h), value=0.5) + torch.addcdiv(h, h, 1 + h * h, value=2),
    "lerp": lambda h: torch.lerp(h, torch.tanh(h), 0.3) + torch.lerp(h, torch.sigmoid(h), torch.sigmoid(h[:, :1])),
    "one column": lambda h: h[:, :1] + h - (h[:, 1:2] - W3.to(h.dtype)) * W3.to(h.dtype),
    "activations": lambda h: F.threshold(h, 0.1, -1.0) + F.hardsigmoid(h) + F.hardshrink(h) + F.softshrink(h, 0.2),
    "softplus": lambda h: F.softplus(h, beta=2, threshold=1) + F.rrelu(h) + F.hardtanh(h, -0.2, 0.4),
    "nothing to squeeze": lambda h: F.log_softmax(h.squeeze(), dim=-1),
    "squeeze": lambda h: (h[:, :1].squeeze() * 2).squeeze(),
    "a module made in the forward": lambda h: nn.Sequential(nn.ReLU(), nn.Softmax(dim=-1))(nn.LeakyReLU(0.3)(h)),
    "vectors": lambda h: torch.sigmoid(h[:, 0] + 2 * h[:, 1] - h[:, 2].clamp(min=0)) * (h[:, 3] > 0),
    "infinite roots": lambda h: _inverse_root(F.relu(h)),
    "assignments": lambda h: _assigned(h.clone()),
    "group norm": lambda h: F.group_norm(h, 3) + F.rms_norm(h, (6,), eps=1e-4),
}


def _inverse_root(h):
    root = h.pow(-0.5)
    return h * root.masked_fill(root == float("inf"), 0)


def _assigned(h):
    h[h < 0] = -0.5
    scale = (h[:, 0] + 0.5).pow(-0.5)
    scale[scale == float("inf")] = 0.0
    return scale.view(-1, 1) * h


class Between(nn.Module):
    """A function between two layers."""

    def __init__(self, function, traced=True):
        super().__init__()
        self.conv, self.function, self.traced = pyg.SAGEConv(4, 6), function, traced

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        if not self.traced and len(h) < 0:  # length: not for torch.fx
            return h
        return self.function(h)


@pytest.mark.parametrize("name", EXACTLY)
def test_functions(name):
    rounds = name in ("clamp", "softplus")  # their constants are
    assert_equal(Between(EXACTLY[name]), rtol=ROUNDED if rounds else EXACT)


@pytest.mark.parametrize("name", EXACTLY)
def test_functions_of_a_recorded_forward(name):
    assert_equal(Between(EXACTLY[name], traced=False), rtol=ROUNDED)


VECTORS = {
    "sum of products", "max and min", "norm 1", "norm 3", "largest size", "linalg norm", "cosine", "unbind", "squeeze",
    "vectors",
}  # fmt: skip


@pytest.mark.parametrize("name", EXACTLY)
def test_functions_on_streams(name):
    rng = np.random.default_rng(len(name))
    torch.manual_seed(0)
    function = EXACTLY[name]
    module = liven(Between((lambda h: function(h).unsqueeze(-1)) if name in VECTORS else function))
    graph, mirror = random_graph(rng, 4, False, vertices=20)
    engine = lg.Engine(lg.from_pyg(module), graph, threads=1)
    for batch, size in enumerate((1, 25)):
        engine.apply(random_batch(rng, mirror, size))
        engine.verify()
        check(engine, module, mirror, f"{name}, version {batch + 1}")


class Modules(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rms, self.eps = pyg.GCNConv(4, 6), nn.RMSNorm(6), nn.RMSNorm(6, eps=1e-3)
        self.groups, self.pair, self.glu = nn.GroupNorm(2, 6), nn.Bilinear(6, 3, 4), nn.GLU()
        self.hard = nn.Sequential(nn.Hardtanh(-2, 2), nn.Softplus(threshold=5), nn.Threshold(0.3, 0.1))

    def forward(self, x, edge_index):
        h = self.groups(self.conv(x, edge_index))
        y = self.rms(h) + self.eps(h)
        return torch.cat([self.pair(y, self.glu(y)), self.hard(h)], dim=1)


def test_modules():
    assert_equal(Modules(), rtol=ROUNDED)


class Reversible(nn.Module):
    """RevGNN's block."""

    def __init__(self, conv):
        super().__init__()
        self.inner, self.block, self.out = pyg.GCNConv(4, 6), pyg.GroupAddRev(conv, num_groups=2), nn.Linear(6, 2)

    def forward(self, x, edge_index):
        return self.out(self.block(self.inner(x, edge_index), edge_index).relu())


def test_reversible_blocks():
    assert assert_equal(Reversible(pyg.SAGEConv(3, 3))).depth == 3
