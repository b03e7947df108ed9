"""The oracle: live state against a run from scratch, outputs against float64 written from the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.inference import Engine
from livegnn.models.model import Model
from livegnn.reference.evaluate import evaluate
from livegnn.testing.streams import Mirror

__all__ = ["check_engine", "check_rows", "reference_outputs"]


def reference_outputs(model: Model, mirror: Mirror, dtype: Any = np.float64) -> NDArray[Any]:
    """The model on the mirror's graph, (slots, d), by the reference."""
    features, src, dst, weight, _ = mirror.arrays()
    outputs: NDArray[Any] = evaluate(model.to_arrays(), features, src, dst, weight, dtype, *mirror.columns())
    return outputs


def check_rows(
    got: NDArray[Any], truth: NDArray[Any], float32: NDArray[Any], note: str, *, on_edges: bool = False
) -> None:
    """max|got - f64| <= max(1e-5 * max|f64 row|, 2 * error of plain float32 on that row), for every row.

    Where a row cancels to almost nothing the first bound has no size; there 1e-6 of the largest row stands in.
    on_edges: models of many products of rounded rows, whose inner rows are larger than their outputs: twice that, of a
    row of at least 1.
    """
    if truth.size == 0:
        return
    size = np.abs(truth).max(axis=1)
    plain = np.abs(float32.astype(np.float64) - truth).max(axis=1)
    error = np.abs(got.astype(np.float64) - truth).max(axis=1)
    floor = 2e-6 * max(float(size.max()), 1.0) if on_edges else 1e-6 * max(float(size.max()), 1e-3)
    bound = np.maximum(np.maximum(1e-5 * size, 2 * plain), floor)
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
    if engine.precision == "exact":
        assert got.tobytes() == engine.recompute()[live].tobytes(), f"{note}: outputs differ from recompute()"
    with np.errstate(all="ignore"):
        truth = reference_outputs(engine.model, mirror)[live]
        float32 = reference_outputs(engine.model, mirror, np.float32)[live]
    if engine.precision == "exact":
        check_rows(got, truth, float32, note, on_edges=engine.model.uses_edges)
