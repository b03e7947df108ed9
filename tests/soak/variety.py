"""Variety: small graphs and small batches of the library's own random streams, every oracle after every batch; also
what volume leaves out: the strategy "sampled" and models of mixed families.
"""

from __future__ import annotations

from typing import Any

from livegnn.testing import check_engine, graph_columns, random_batch, random_graph, random_model
from tests.soak.checks import apply_with_room
from tests.soak.options import engine_options, make_engine, one_of
from tests.soak.slices import Step


def run(step: Step) -> None:
    """Several small engines, one after the other."""
    while step.tick():
        rng, counts = step.rng, step.counts
        model = random_model(rng, on_edges=bool(rng.integers(2)))
        weighted = model.uses_weights or bool(rng.integers(2))
        graph, mirror = random_graph(rng, model.input_width, weighted, **graph_columns(model))
        kind = one_of(rng, ("exact", "sampled"), usual=0.7)
        options: dict[str, Any] = {
            "exact": engine_options(rng, model),
            "sampled": {"strategy": "sampled", "fanout": 10_000},
        }[kind]
        engine = make_engine(model, graph, options)
        counts.cover("option", *(f"{name}={value}" for name, value in options.items()))
        for batch in range(int(rng.integers(2, 14))):
            apply_with_room(engine, random_batch(rng, mirror, int(rng.integers(1, 25))), counts)
            check_engine(engine, mirror, f"batch {batch} {options}")
            counts.add("verifications", kind == "exact")
            counts.add("references")
