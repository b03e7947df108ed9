"""The ten models of NeutronRT's Table II as operators, with their formulas and the verdicts to expect.

They are the knowledge base of `propose`: what a language model is shown, and what its rules have to cover. Formulas are
written in the language of `formula`, functions in that of `restricted`; other names are weights, whose example values
are small and arbitrary.

Where the table leaves something open, it is settled as follows. GCN's 1 / sqrt(d_u) reads a degree of 0 as 1. RGCN's
W_r h_u is one message (the table multiplies W_r in f_nn). RGAT keeps one column of context per type and column
("processing each type on its own"), and a type that no in-edge has gives 0 (the table divides 0 by 0 there).

Source: NeutronRT, Table II; section IV.D.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from livegnn.errors import UsageError
from livegnn.verify.expr import Float64
from livegnn.verify.operator import Operator
from livegnn.verify.report import Run
from livegnn.verify.restricted import operator_from_source

WIDTH = 3
_TYPES = 2


@dataclass(frozen=True)
class Example:
    """One row of the table.

    formula: the layer as one expression.   source: its functions.   run: the verdict of `prove`.   shapes: of the
    weights by name.   edge_type_count: of the graphs that it is for.
    """

    name: str
    formula: str
    source: str
    run: Run
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    edge_type_count: int = 0

    def operator(self, values: Mapping[str, Float64] | None = None) -> Operator:
        """The operator with these weights; without, with the example's own."""
        chosen = weights(self.shapes) if values is None else values
        return operator_from_source(
            self.source, chosen, width=WIDTH, edge_type_count=self.edge_type_count, name=self.name
        )


def weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Float64]:
    """Arbitrary weights, the same in every run: halves between -1 and 1, none of them 0."""
    rng = np.random.default_rng(20)
    return {name: rng.choice([-1.0, -0.5, 0.5, 1.0], size=shape) for name, shape in sorted(shapes.items())}


_MEAN = """
nbr_ctx = "count"
def msg_cbn(nct, mlc): return mlc / nct
def msg_cbn_inverse(nct, msg): return msg * nct
"""
_ROWS = """
def source_nn(h_u): return h_u
def transform(a): return relu(a @ W)
"""
_SOFTMAX = _MEAN.replace("count", "sum")
_ATTENTION = "sum_u(softmax_u(leaky_relu(concat(h_v @ W, h_u @ W) @ t)) * (h_u @ W))"
_TYPED = "exp(leaky_relu(h_v @ D + h_u @ S)) * edge_type"

TABLE: tuple[Example, ...] = (
    Example(
        "MoNet",
        "relu(sum_u(exp(-0.5 * sum(square(h_u - m) * W, axis=1, keepdims=True))) @ A)",
        """
def msg_local(h_u): return exp(-0.5 * sum(square(h_u - m) * W, axis=1, keepdims=True))
def transform(a): return relu(a @ A)
""",
        "incremental",
        {"m": (WIDTH,), "W": (WIDTH,), "A": (1, 2)},
    ),
    Example(
        "CommNet",
        "h_v @ A + sum_u(h_u) @ B",
        """
def source_nn(h_u): return h_u
def transform(h_v, a): return h_v @ A + a @ B
""",
        "incremental",
        {"A": (WIDTH, 2), "B": (WIDTH, 2)},
    ),
    Example(
        "GCN",
        "relu(sum_u(h_u / sqrt(maximum(degree_u, 1) * degree_v)) @ W)",
        """
def msg_local(degree_u): return 1 / sqrt(maximum(degree_u, 1))
nbr_ctx = "count"
def msg_cbn(nct, mlc): return mlc / sqrt(nct)
def msg_cbn_inverse(nct, msg): return msg * sqrt(nct)
"""
        + _ROWS,
        "incremental",
        {"W": (WIDTH, 2)},
    ),
    Example(
        "GraphSAGE",
        "relu(mean_u(h_u) @ W)",
        _MEAN + _ROWS,
        "incremental",
        {"W": (WIDTH, 2)},
    ),
    Example(
        "PinSAGE",
        "relu(concat(h_v, mean_u(weight * relu(h_u @ Q + q))) @ W)",
        "def msg_local(h_u, weight): return weight * relu(h_u @ Q + q)"
        + _MEAN
        + "def transform(h_v, a): return relu(concat(h_v, a) @ W)",
        "incremental",
        {"Q": (WIDTH, 2), "q": (2,), "W": (WIDTH + 2, 2)},
    ),
    Example(
        "RGCN",
        "relu(h_v @ O + mean_u(edge_type[:, 0:1] * (h_u @ A) + edge_type[:, 1:2] * (h_u @ B)))",
        "def msg_local(h_u, edge_type): return edge_type[:, 0:1] * (h_u @ A) + edge_type[:, 1:2] * (h_u @ B)"
        + _MEAN
        + "def transform(h_v, a): return relu(h_v @ O + a)",
        "incremental",
        {"O": (WIDTH, 2), "A": (WIDTH, 2), "B": (WIDTH, 2)},
        _TYPES,
    ),
    Example(
        "GAT",
        f"elu({_ATTENTION})",
        "def msg_local(h_u, h_v): return exp(leaky_relu(concat(h_v @ W, h_u @ W) @ t))"
        + _SOFTMAX
        + """
def source_nn(h_u): return h_u @ W
def transform(a): return elu(a)
""",
        "constrained",
        {"W": (WIDTH, 2), "t": (4, 1)},
    ),
    Example(
        "G-GCN",
        "relu(sum_u(sigmoid(h_u @ A + h_v @ B) * h_u) @ W)",
        """
def msg_local(h_u, h_v): return sigmoid(h_u @ A + h_v @ B)
"""
        + _ROWS,
        "constrained",
        {"A": (WIDTH, WIDTH), "B": (WIDTH, WIDTH), "W": (WIDTH, 2)},
    ),
    Example(
        "A-GNN",
        "relu(sum_u(w * sum(h_v * h_u, axis=1, keepdims=True) / maximum(norm(h_v) * norm(h_u), 1e-9) * h_u) @ W)",
        """
def msg_local(h_u, h_v): return w * sum(h_v * h_u, axis=1, keepdims=True) / maximum(norm(h_v) * norm(h_u), 1e-9)
"""
        + _ROWS,
        "constrained",
        {"w": (1,), "W": (WIDTH, 2)},
    ),
    Example(
        "RGAT",
        f"relu(sum_u(share_u({_TYPED}) * concat(h_u @ A, h_u @ B)) @ M)",
        f"""
def msg_local(h_u, h_v, edge_type): return {_TYPED}
nbr_ctx = "sum"
def msg_cbn(nct, mlc): return where(nct > 0, mlc / where(nct > 0, nct, 1), 0)
def msg_cbn_inverse(nct, msg): return where(nct > 0, msg * nct, 0)
def source_nn(h_u): return concat(h_u @ A, h_u @ B)
def transform(a): return relu(a @ M)
""",
        "constrained",
        {"D": (WIDTH, _TYPES), "S": (WIDTH, _TYPES), "A": (WIDTH, 1), "B": (WIDTH, 1), "M": (2, 1)},
        _TYPES,
    ),
)


def find(name: str) -> Example | None:
    """The row of that name, in any case, with or without a hyphen; None where there is none."""

    def plain(text: str) -> str:
        return text.strip().lower().replace("-", "")

    return next((each for each in TABLE if plain(each.name) == plain(name)), None)


def example(name: str) -> Example:
    """The row of that name, as `find` reads it. Raises: UsageError."""
    found = find(name)
    if found is None:
        known = ", ".join(each.name for each in TABLE)
        raise UsageError(f"[verify] expected one of {known}, got {name!r}; choose one")
    return found
