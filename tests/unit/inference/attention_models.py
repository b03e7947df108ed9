"""Models with separable attention, and what they must answer: shared by the tests of split sums."""

from typing import Any

import numpy as np

import livegnn as lg
from livegnn.models import edges, ir


def attention(
    x: ir.Value,
    rng: np.random.Generator,
    out: int,
    heads: int,
    *,
    loops: Any = "replace",
    slope: float = 0.2,
    size: float = 1.0,
) -> edges.Gather:
    def per_head() -> Any:
        return np.kron(np.eye(heads), np.ones((1, out // heads))) * rng.standard_normal((heads, out)) * size

    h = ir.Linear(x, rng.standard_normal((out, x.width)) / np.sqrt(x.width))
    both = ir.Combine(((1.0, edges.Source(ir.Linear(h, per_head()))), (1.0, edges.Target(ir.Linear(h, per_head())))))
    return edges.Gather(edges.Source(h), "softmax", ir.Activation(both, "leaky_relu", slope), heads, loops)


def model(rng: np.random.Generator, width: int = 5, layers: int = 2, **options: Any) -> lg.Model:
    x: ir.Value = ir.Input(width)
    for _ in range(layers):
        x = ir.Activation(attention(x, rng, 6, 2, **options), "elu", 1.0)
    return lg.Model.from_output(x)


def scalar(slope: float = 0.2, loops: Any = "keep") -> lg.Model:
    """t, s and the message are columns 0, 1 and 2 of the features: every number of a row is at hand."""
    x = ir.Input(3)
    t, s, message = (ir.Slice(x, c, c + 1) for c in range(3))
    score = ir.Activation(ir.Combine(((1.0, edges.Source(t)), (1.0, edges.Target(s)))), "leaky_relu", slope)
    return lg.Model.from_output(edges.Gather(edges.Source(message), "softmax", score, loops=loops))


def expected(features: Any, src: Any, dst: Any, v: int, slope: float = 0.2) -> float:
    mine = [u for u, to in zip(src, dst, strict=True) if to == v]
    rows = np.asarray(features, np.float64)
    scores = rows[mine, 0] + rows[v, 1]
    scores = np.where(scores > 0, scores, slope * scores)
    power = np.exp(scores - scores.max(initial=-np.inf))
    return float((power * rows[mine, 2]).sum() / power.sum()) if len(mine) else 0.0


def check(live: lg.Engine, features: Any, src: Any, dst: Any, slope: float = 0.2) -> None:
    live.verify()
    got = live.embeddings(np.arange(len(features)))[:, 0]
    want = [expected(features, src, dst, v, slope) for v in range(len(features))]
    size = max(1.0, float(np.abs(np.array(features)[:, 2]).max()))
    np.testing.assert_allclose(got, want, atol=2e-6 * size)
