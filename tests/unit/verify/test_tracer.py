"""A symbolic run computes what the function computes, or says why it cannot be written down."""

import numpy as np
import pytest
import torch

from livegnn.verify import expr as ex
from livegnn.verify.tracer import TraceError, trace

W = np.random.default_rng(0).normal(size=(3, 4))
h_u, h_v = ex.variable("h_u", 3), ex.variable("h_v", 3)
msg = ex.variable("msg", 3, per_edge=True)


def in_place(h_u, h_v):
    result = 2 * h_u
    result += h_v
    result **= 2
    return result


ROW_FUNCTIONS = [
    in_place,
    lambda h_u, h_v: h_u @ W,
    lambda h_u, h_v: np.exp(-np.abs(h_u)) + 2 * h_v - h_u / 3,
    lambda h_u, h_v: np.where((h_u @ W) > 0, h_u @ W, 0.2 * (h_u @ W)),
    lambda h_u, h_v: np.sum(h_u * h_v, axis=1, keepdims=True),
    lambda h_u, h_v: (h_u * h_v).sum(axis=-1)[:, None],
    lambda h_u, h_v: np.linalg.norm(h_u, axis=1, keepdims=True) + np.log1p(h_v**2),
    lambda h_u, h_v: np.concatenate([h_u, h_v[:, :1], np.ones_like(h_u)], axis=1),
    lambda h_u, h_v: np.hstack([h_u, h_v]) @ np.ones((6, 2)),
    lambda h_u, h_v: np.maximum(h_u, 0) - np.minimum(h_v, 0) + np.clip(h_u, -1, 1),
    lambda h_u, h_v: np.tanh(h_u).max(axis=1, keepdims=True) * h_v.min(axis=1, keepdims=True),
    lambda h_u, h_v: np.sqrt(np.square(h_u)) ** 1.5 + (1 + h_v**2) ** -0.5 + h_u**0 + h_u**3,
    lambda h_u, h_v: np.repeat(h_u[:, 1:], 2, axis=1) * np.sign(h_v[:, :1]),
    lambda h_u, h_v: ((h_u > h_v) & (h_u >= 0) | ~(h_u <= h_v)) * 1.0 + (h_u != h_v) + (h_u == h_v),
    lambda h_u, h_v: h_u[:, [2, 0]] + h_v[:, -1:] + np.full_like(h_u[:, :2], 0.5) + np.zeros_like(h_v[:, :2]),
    lambda h_u, h_v: h_u.mean(axis=1, keepdims=True) + np.reciprocal(1 + np.exp(h_v)) + np.expm1(h_u),
    lambda h_u, h_v: np.array([[1.0, 2.0, 3.0]]) * h_u + np.arange(3) - 1.0,
]
POOLS = [
    lambda msg: msg.sum(axis=0),
    lambda msg: np.mean(msg, axis=0),
    lambda msg: np.max(msg, axis=0, keepdims=True),
    lambda msg: np.sqrt((msg**2).sum(axis=0)),
    lambda msg: msg.prod(axis=0),
    lambda msg: msg.shape[0] * np.ones(2),
    lambda msg: np.ones_like(msg[:, :1]).sum(axis=0),
    lambda msg: np.log(np.exp(msg - msg.max(axis=0)).sum(axis=0)) + msg.max(axis=0),
    lambda msg: np.concatenate([msg.min(axis=0), np.add.reduce(msg)]),
    lambda msg: (msg * 0 + 2.0).mean(axis=0),
]


@pytest.mark.parametrize("function", ROW_FUNCTIONS)
def test_row_functions(function):
    made = trace(function, {"h_u": h_u, "h_v": h_v})
    rng = np.random.default_rng(1)
    rows = {"h_u": rng.normal(size=(7, 3)), "h_v": rng.normal(size=(7, 3))}
    expected = function(**rows)
    got = ex.evaluate(made, rows)
    assert made.width == expected.shape[1]
    np.testing.assert_allclose(np.broadcast_to(got, expected.shape), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("function", POOLS)
@pytest.mark.parametrize("count", [1, 5])
def test_functions_of_a_neighbourhood(function, count):
    made = trace(function, {"msg": msg}, edges=msg)
    rows = np.random.default_rng(count).normal(size=(count, 3))
    expected = np.atleast_2d(function(rows))
    np.testing.assert_allclose(ex.evaluate(made, {"msg": rows}), expected, rtol=1e-12, atol=1e-12)


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 2).double()
        self.scale = torch.nn.Parameter(torch.tensor([0.5, 2.0], dtype=torch.float64))

    def forward(self, h_u, h_v):
        gate = torch.sigmoid(self.linear(h_u)) * self.scale + torch.relu(h_v[:, :1])
        return torch.nn.functional.dropout(gate, 0.5, self.training)


TORCH_FUNCTIONS = [
    Gate().eval(),
    lambda h_u, h_v: torch.nn.functional.leaky_relu(h_u, 0.2) + torch.nn.functional.elu(h_v),
    lambda h_u, h_v: torch.cat([h_u, h_v], dim=-1).repeat_interleave(2, dim=1) * 3.0,
    lambda h_u, h_v: torch.exp(h_u).pow(2) / torch.norm(h_v, dim=1, keepdim=True).clamp(min=1e-6),
    lambda h_u, h_v: torch.where(h_u > 0, h_u, h_v) @ torch.eye(3, dtype=torch.float64),
    lambda h_u, h_v: 1.0 - (h_u * h_v).sum(dim=1, keepdim=True).abs().sqrt() + torch.ones_like(h_u),
    lambda h_u, h_v: torch.tensor([[1.0, 0.5, 2.0]], dtype=torch.float64) * h_u - torch.amax(h_v, dim=1, keepdim=True),
]


@pytest.mark.parametrize("function", TORCH_FUNCTIONS)
def test_torch_functions(function):
    made = trace(function, {"h_u": h_u, "h_v": h_v})
    rng = np.random.default_rng(2)
    rows = {"h_u": rng.normal(size=(6, 3)), "h_v": rng.normal(size=(6, 3))}
    with torch.no_grad():
        expected = function(**{name: torch.from_numpy(array) for name, array in rows.items()}).numpy()
    np.testing.assert_allclose(ex.evaluate(made, rows), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda h_u: h_u if h_u.sum() > 0 else -h_u, "name one axis"),
        (lambda h_u: h_u if h_u[:, :1] > 0 else -h_u, "branches on a value"),
        (lambda h_u: h_u - h_u.mean(axis=0), "mixes rows"),
        (lambda h_u: h_u[0], "picks single rows"),
        (lambda h_u: h_u[::-1, :], "picks single rows"),
        (lambda h_u: [row for row in h_u], "loops over rows"),  # noqa: C416
        (lambda h_u: h_u * len(h_u), r"write x.shape\[0\]"),
        (lambda h_u: h_u / h_u.shape[0], "number of rows"),
        (lambda h_u: h_u * h_u.sum(axis=1), "keep the column"),
        (lambda h_u: h_u.sum(axis=1), r"returns shape \(N,\)"),
        (lambda h_u: h_u @ h_u.T, "has no T"),
        (lambda h_u: W.T @ h_u, "from the left"),
        (lambda h_u: np.sort(h_u, axis=1), "numpy.sort"),
        (lambda h_u: np.arctan(h_u), "numpy.arctan"),
        (lambda h_u: h_u**0.3, "power 0.3"),
        (lambda h_u: np.asarray(h_u) + 1, "asks for the numbers"),
        (lambda h_u: float(h_u), "into a number"),
        (lambda h_u: h_u + "x", "constant of type str"),
        (lambda h_u: h_u @ np.ones((2, 2)), "expected a constant of shape"),
        (lambda h_u: torch.sort(h_u), "torch's sort"),
        (lambda h_u: torch.nn.functional.dropout(h_u, 0.5, True), "at random"),
        (lambda h_u: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_written_down_says_why(function, message):
    with pytest.raises(TraceError, match=message):
        trace(function, {"h_u": h_u})


def test_a_function_of_a_neighbourhood_has_to_reduce():
    with pytest.raises(TraceError, match="returns a row per edge"):
        trace(lambda msg: msg * 2, {"msg": msg}, edges=msg)
