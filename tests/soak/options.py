"""Random models of every family, and random options of engines and graphs that go together."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegnn as lg
from livegnn.errors import SpillUnavailable
from livegnn.testing import graph_columns, random_model
from livegnn.testing.edge_models import EDGE_FAMILIES
from livegnn.testing.models import FAMILIES
from tests.soak.world import Shape

ALL_FAMILIES = (*FAMILIES, *EDGE_FAMILIES)
STRATEGIES = ("incremental", "constrained", "affected", "khop", "full")
MODES = ("eager", "on_demand", "hybrid")
PATHS = ("auto", "push", "pull", "sweep")
DTYPES = ("float32", "float16", "bfloat16")
NAMES = (None, "int", "text")

Rng = np.random.Generator


def one_of(rng: Rng, values: Any, *, usual: float = 0.0) -> Any:
    """One of the values; the first one in so many cases, and as often as the others in the rest."""
    return values[0] if rng.random() < usual else values[int(rng.integers(len(values)))]


def engine_options(rng: Rng, model: lg.Model) -> dict[str, Any]:
    """Options that Engine takes for this model."""
    found: dict[str, Any] = {"strategy": one_of(rng, STRATEGIES, usual=0.5), "threads": int(rng.integers(1, 3))}
    found["path"] = one_of(rng, PATHS, usual=0.5)
    if found["strategy"] == "incremental":
        found["mode"] = one_of(rng, MODES, usual=0.4)
        if found["mode"] == "eager":
            found["state"] = one_of(rng, ("fast", "compact"))
        if found["mode"] == "hybrid":
            found["hot"] = 20
    if rng.random() < 0.1:
        found["memory_limit"] = "4MiB"
    return found


def graph_shape(rng: Rng, model: lg.Model, vertices: int, degree: int) -> Shape:
    """A graph that this model runs on."""
    columns = graph_columns(model)
    return Shape(
        model.input_width,
        vertices,
        vertices * degree,
        weighted=model.uses_weights or bool(rng.integers(2)),
        undirected=bool(rng.random() < 0.2),
        simple=bool(rng.random() < 0.2),
        names=one_of(rng, NAMES, usual=0.5),
        feature_dtype=one_of(rng, DTYPES, usual=0.6),
        **columns,
    )


def family_model(rng: Rng) -> tuple[str, lg.Model]:
    """A family, and a model of one to three layers of it."""
    family = str(one_of(rng, ALL_FAMILIES))
    return family, random_model(rng, family=family, depth=int(rng.integers(1, 4)))


def make_engine(model: lg.Model, graph: lg.Graph, options: dict[str, Any]) -> lg.Engine:
    """The engine; without a limit of memory where the temporary folder cannot hold its files."""
    try:
        return lg.Engine(model, graph, **options)
    except SpillUnavailable:
        return lg.Engine(model, graph, **{name: value for name, value in options.items() if name != "memory_limit"})


def cover(counts: Any, family: str, options: dict[str, Any], shape: Shape) -> None:
    """Notes what takes part."""
    counts.cover("family", family)
    counts.cover("option", *(f"{name}={value}" for name, value in options.items()))
    parts = {"weighted": shape.weighted, "undirected": shape.undirected, "simple": shape.simple, "times": shape.times}
    counts.cover("option", *(name for name, there in parts.items() if there))
    counts.cover("option", f"feature_dtype={shape.feature_dtype}", f"ids={shape.names}")
    counts.cover("family and strategy", f"{family}/{options.get('strategy', 'incremental')}")
