"""The oracle: live state against a run from scratch, outputs against float64 written from the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.inference import Engine
from livegnn.models.model import Model
from livegnn.reference.evaluate import evaluate
from livegnn.testing.streams import Mirror

_NUDGES = 32  # eight runs see a part of what float32 may lose: one row in ten million was off by 2.6 times their worst


def reference_outputs(model: Model, mirror: Mirror, dtype: Any = np.float64) -> NDArray[Any]:
    """The model on the mirror's graph, (slots, d), by the reference."""
    features, src, dst, weight, _ = mirror.arrays()
    outputs: NDArray[Any] = evaluate(model.to_arrays(), features, src, dst, weight, dtype, *mirror.columns())
    return outputs


def reference_edges(model: Model, mirror: Mirror, dtype: Any = np.float64) -> NDArray[Any]:
    """Rows of the mirror's edges in order of ids, (m, d), of a model with one row per edge, by the reference."""
    features, src, dst, weight, _ = mirror.arrays()
    structure, arrays = model.to_arrays()
    of_edges = {"output": structure["edge_output"], "unweighted": structure["unweighted_edge_output"]}
    spec = ({**structure, **of_edges}, arrays)
    outputs: NDArray[Any] = evaluate(spec, features, src, dst, weight, dtype, *mirror.columns())
    return outputs


def check_edges(engine: Engine, mirror: Mirror, note: str = "") -> None:
    """Fails unless every edge's row is that of a run from scratch, bit for bit, and that of the reference."""
    engine.verify()
    edges = engine.graph.edges()
    got = engine.edge_outputs(edges)
    assert got.tobytes() == engine.recompute_edges().tobytes(), f"{note}: rows of edges differ from recompute_edges()"
    assert got.tobytes() == engine.edge_outputs(edges["id"]).tobytes(), f"{note}: other rows by edge ids"
    with np.errstate(all="ignore"):
        truth, float32 = (reference_edges(engine.model, mirror, dtype) for dtype in (np.float64, np.float32))
    check_rows(got, truth, float32, note, on_edges=True)


def nudged_outputs(model: Model, mirror: Mirror) -> list[NDArray[Any]]:
    """The model in float32, several times, with every parameter and feature moved by at most a unit in its last place.

    What plain float32 loses on a row depends on the order of its sums, and may be nothing by luck; this is what it may
    lose.
    """
    features, src, dst, weight, _ = mirror.arrays()
    structure, arrays = model.to_arrays()
    found = []
    for seed in range(_NUDGES):
        rng = np.random.default_rng(seed)
        moved = {name: _nudged(values, rng) for name, values in arrays.items()}
        spec = (structure, moved)
        found.append(evaluate(spec, _nudged(features, rng), src, dst, weight, np.float32, *mirror.columns()))
    return found


def _nudged(values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if values.dtype != np.float32:
        return values
    ends = np.array([-np.inf, np.nan, np.inf], np.float32)[rng.integers(0, 3, values.shape)]
    moved: NDArray[Any] = np.where(np.isnan(ends), values, np.nextafter(values, ends))
    return moved


def check_rows(
    got: NDArray[Any],
    truth: NDArray[Any],
    float32: NDArray[Any],
    note: str,
    *,
    on_edges: bool = False,
    more_float32: Callable[[], list[NDArray[Any]]] = list,
) -> None:
    """max|got - f64| <= max(1e-5 * max|f64 row|, 2 * error of plain float32 on that row), for every row.

    Where a row cancels to almost nothing the first bound has no size; there 1e-6 of the largest row stands in, or what
    float32 may lose on it: twice the largest error of further runs, asked for where the bound is passed.
    on_edges: models of many products of rounded rows, whose inner rows are larger than their outputs: twice that, of a
    row of at least 1.
    """
    if truth.size == 0:
        return

    def error_of(rows: NDArray[Any]) -> NDArray[Any]:
        rounded: NDArray[Any] = np.abs(rows.astype(np.float64) - truth).max(axis=1)
        return rounded

    size = np.abs(truth).max(axis=1)
    floor = 2e-6 * max(float(size.max()), 1.0) if on_edges else 1e-6 * max(float(size.max()), 1e-3)
    bound = np.maximum(np.maximum(1e-5 * size, 2 * error_of(float32)), floor)
    error = error_of(got)
    if (error > bound).any():
        for rows in more_float32():
            bound = np.maximum(bound, 2 * error_of(rows))
    worst = int(np.argmax(error - bound))
    assert (error <= bound).all(), (
        f"{note}: row {worst} is off by {error[worst]:.3g}, expected at most {bound[worst]:.3g}: "
        f"{got[worst]} for {truth[worst]}"
    )


def check_engine(engine: Engine, mirror: Mirror, note: str = "") -> None:
    """Fails unless engine and mirror agree: vertices, state bit for bit with a run from scratch, outputs with
    float64.
    """
    *_, live = mirror.arrays()
    assert engine.graph.vertices().tolist() == live.tolist(), f"{note}: other live vertices"
    if engine.strategy != "sampled":
        engine.verify()
    got = engine.embeddings(live)
    assert got.tobytes() == engine.recompute()[live].tobytes(), f"{note}: outputs differ from recompute()"
    with np.errstate(all="ignore"):
        truth = reference_outputs(engine.model, mirror)[live]
        float32 = reference_outputs(engine.model, mirror, np.float32)[live]
    check_rows(
        got,
        truth,
        float32,
        note,
        on_edges=engine.model.uses_edges,
        more_float32=lambda: [rows[live] for rows in nudged_outputs(engine.model, mirror)],
    )
