"""Random models from every layer spec, of random widths and depths."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegnn.models import ir, layers
from livegnn.models.model import Model
from livegnn.testing.edge_models import EDGE_FAMILIES, random_weights

_ACTIVATIONS = (None, "relu", "tanh", "elu", "gelu", "sigmoid", "silu", "leaky_relu")


def _gcn(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    loops, improved = bool(rng.integers(4)), bool(rng.integers(2))
    aggregate: Any = ("sum", "sum", "max", "min", "median")[rng.integers(5)]
    return layers.GCN(
        random_weights(rng, o, i),
        random_weights(rng, o),
        weighted=weighted,
        self_loops=loops,
        improved=improved,
        aggregate=aggregate,
    )


def _gcn_plain(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    return layers.GCN(random_weights(rng, o, i), random_weights(rng, o), weighted=weighted, normalize=False)


def _graph_conv(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    aggregate: Any = ir.AGGREGATES[rng.integers(len(ir.AGGREGATES))]
    return layers.GraphConv(
        random_weights(rng, o, i),
        random_weights(rng, o, i),
        random_weights(rng, o),
        aggregate=aggregate,
        weighted=weighted,
    )


def _sage(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    aggregate: Any = ir.AGGREGATES[rng.integers(len(ir.AGGREGATES))]
    root = random_weights(rng, o, i) if rng.integers(3) else None
    project = (random_weights(rng, i, i), random_weights(rng, i)) if rng.integers(3) == 0 else None
    normalize = bool(rng.integers(3) == 0)
    return layers.SAGE(
        random_weights(rng, o, i),
        root,
        random_weights(rng, o),
        aggregate=aggregate,
        project=project,
        normalize=normalize,
    )


def _gin(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    hidden = int(rng.integers(1, 24))
    norm = layers.BatchNorm(random_weights(rng, hidden), rng.random(hidden).astype(np.float32) + 0.5)
    mlp: list[Any] = [
        layers.Dense(random_weights(rng, hidden, i), random_weights(rng, hidden)),
        norm,
        layers.Activate("relu"),
        layers.Dense(random_weights(rng, o, hidden)),
    ]
    aggregate: Any = ir.AGGREGATES[rng.integers(len(ir.AGGREGATES))]
    return layers.GIN(mlp, float(rng.random()), aggregate=aggregate)


def _sgc(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    return layers.SGC(
        random_weights(rng, o, i), random_weights(rng, o), hops=int(rng.integers(1, 4)), weighted=weighted
    )


def _appnp(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    inner = layers.APPNP(int(rng.integers(1, 4)), float(rng.random() * 0.8 + 0.1), weighted=weighted)
    return _Chain((layers.Dense(random_weights(rng, o, i), random_weights(rng, o)), inner))


def _lg(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    return _Chain((layers.LG(weighted=weighted), layers.Dense(random_weights(rng, o, i))))


def _cheb(rng: np.random.Generator, i: int, o: int, weighted: bool) -> Any:
    normalization: Any = ("sym", "rw", None)[rng.integers(3)]
    scales = (None, 2.0, 1.5) if normalization else (8.0, 12.0, 16.0)  # above most degrees, so that rows stay small
    return layers.Cheb(
        [random_weights(rng, o, i) for _ in range(int(rng.integers(1, 5)))],
        random_weights(rng, o),
        normalization=normalization,
        lambda_max=scales[rng.integers(3)],
        weighted=weighted,
    )


class _Chain:
    """Several layers as one."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts

    def apply(self, x: Any) -> Any:
        return layers.apply_all(self.parts, x)


#: family -> builder(rng, width_in, width_out, weighted)
FAMILIES: dict[str, Any] = {
    "gcn": _gcn,
    "gcn_plain": _gcn_plain,
    "graph_conv": _graph_conv,
    "sage": _sage,
    "gin": _gin,
    "sgc": _sgc,
    "appnp": _appnp,
    "lg": _lg,
    "cheb": _cheb,
}


def random_model(
    rng: np.random.Generator,
    *,
    family: str | None = None,
    depth: int | None = None,
    weighted: bool | None = None,
    on_edges: bool = False,
    reversed: bool | None = False,
) -> Model:
    """A model of 1 to 5 layers with random widths, activations and joins; of one family where given.

    on_edges: layers whose messages are computed edge by edge may be among them (their graph needs `graph_columns`).
    reversed: whether messages go against the edges; None: in some of the layers.
    """
    families = FAMILIES | EDGE_FAMILIES if on_edges or family in EDGE_FAMILIES else FAMILIES
    depth = int(rng.integers(1, 6)) if depth is None else depth
    weighted = bool(rng.integers(2)) if weighted is None else weighted
    widths = [int(w) for w in rng.integers(1, 40, depth + 1)]
    blocks: list[Any] = []
    for layer in range(depth):
        name = family if family is not None else str(rng.choice(list(families)))
        made = families[name](rng, widths[layer], widths[layer + 1], weighted)
        against = bool(rng.integers(2)) if reversed is None else reversed
        parts = [layers.Reversed([made]) if against else made]
        activation = _ACTIVATIONS[rng.integers(len(_ACTIVATIONS))]
        if activation is not None and layer < depth - 1:
            parts.append(layers.Activate(activation))
        if rng.integers(6) == 0:
            parts.append(layers.LayerNorm())
        blocks.append(_Chain(tuple(parts)))
    if rng.integers(4) == 0:
        return Model([layers.JumpingKnowledge(blocks, "cat")], input_width=widths[0])
    return Model(blocks, input_width=widths[0])
