"""Compares a live engine over vertex types with its PyG module on HeteroData, after every batch."""

import copy
import functools

import numpy as np
import torch

from livegnn.testing.oracle import check_rows

BUY, FOLLOW, BOUGHT = ("User", "Buy", "Item"), ("User", "Follow", "User"), ("Item", "Bought", "User")
IN, LIKE = ("Item", "In", "Shop"), ("User", "Like", "Item")
WIDTHS = {"User": 5, "Item": 3, "Shop": 2}
TRIPLES = [BUY, FOLLOW, BOUGHT, IN, LIKE]
METADATA = (list(WIDTHS), TRIPLES)


def module_rows(module, mirror, dtype, columns=()):
    """The module's rows by vertex type on the mirror's graph; columns: of weight and edge_attr, those it takes."""
    x = {name: torch.tensor(rows).to(dtype) for name, rows in mirror.features().items()}
    found = mirror.columns()
    edges = {triple: torch.tensor(pairs) for triple, (pairs, _, _) in found.items()}
    named = {
        f"edge_{column}_dict": {t: torch.tensor(each[1 + place]).to(dtype) for t, each in found.items()}
        for place, column in enumerate(("weight", "attr"))
        if column in columns
    }
    with torch.no_grad():
        result = _twin(module, dtype)(x, edges, **named)
    return {name: rows.double().numpy() for name, rows in result.items() if rows is not None}


@functools.lru_cache(maxsize=4)
def _twin(module, dtype):
    """Modules here are not trained any more, and keep nothing from one call for the next."""
    return copy.deepcopy(module).to(dtype)


def check_hetero(engine, module, mirror, note="", columns=()):
    """Fails unless state equals a run from scratch and outputs the module's."""
    for name in mirror.widths:
        assert sorted(engine.graph.vertices(name).tolist()) == mirror.ids(name), (
            f"{note}: other live vertices of {name}"
        )
    engine.verify()
    truth = module_rows(module, mirror, torch.float64, columns)
    plain = module_rows(module, mirror, torch.float32, columns)
    assert set(truth) == set(engine.model.output_widths)
    fresh = engine.recompute()
    for name, rows in truth.items():
        ids = mirror.ids(name)
        got = engine.embeddings(ids, vertex_type=name)
        slots = engine.graph.to_slots(ids, vertex_type=name)
        assert got.tobytes() == np.ascontiguousarray(fresh[slots, : rows.shape[1]]).tobytes(), f"{note}: {name}"
        check_rows(got, rows, plain[name], f"{note}, {name}", on_edges=engine.model.uses_edges)
