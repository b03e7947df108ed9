"""Random graphs of every kind that PyG's interfaces meet, and what changes them: vertices that go and come, too."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegnn as lg

BUYS, OF, FOLLOWS = ("user", "buys", "item"), ("item", "of", "user"), ("user", "follows", "user")
TYPES = {"user": 3, "item": 2}


def plain(seed: int, *, ids: str | None = None, undirected: bool = False, columns: tuple[str, ...] = ()) -> lg.Graph:
    """24 vertices and 120 edges; ids: "numbers" or "names"."""
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {name: column for name, column in edge_columns(rng, 120).items() if name in columns}
    names = None if ids is None else (rng.permutation(90)[:24] if ids == "numbers" else [f"v{i}" for i in range(24)])
    rows = rng.integers(0, 24, (2, 120))
    src, dst = rows if names is None else np.asarray(names)[rows]
    return lg.Graph(
        rng.standard_normal((24, 4)).astype(np.float32), src, dst, ids=names, undirected=undirected, **given
    )


def edge_columns(rng: np.random.Generator, count: int) -> dict[str, Any]:
    return {
        "weight": rng.uniform(0.1, 2, count).astype(np.float32),
        "time": rng.integers(0, 50, count),
        "edge_type": rng.integers(0, 3, count).astype(np.int32),
        "edge_attr": rng.standard_normal((count, 2)).astype(np.float32),
    }


def typed(seed: int, *, ids: str | None = None, columns: tuple[str, ...] = ()) -> lg.Graph:
    """Users and items, 12 each, joined by three types of 40 edges."""
    rng = np.random.default_rng(seed)
    features = {name: rng.standard_normal((12, width)).astype(np.float32) for name, width in TYPES.items()}
    names: dict[str, Any] = {name: np.arange(12) for name in TYPES}
    if ids is not None:
        names = {
            name: rng.permutation(50)[:12] if ids == "numbers" else np.array([f"{name}{i}" for i in range(12)], object)
            for name in TYPES
        }
    src = {key: rng.choice(names[key[0]], 40) for key in (BUYS, OF, FOLLOWS)}
    dst = {key: rng.choice(names[key[2]], 40) for key in src}
    drawn = {key: edge_columns(rng, 40) for key in src}
    given = {name: {key: drawn[key][name] for key in src} for name in columns}
    return lg.Graph(features, src, dst, ids=None if ids is None else names, **given)


def kinds() -> list[tuple[str, lg.Graph]]:
    """One of each, some batches old."""
    every = ("weight", "time", "edge_type", "edge_attr")
    found = {
        "plain": plain(0),
        "columns": plain(1, columns=every),
        "numbers": plain(2, ids="numbers", columns=("weight",)),
        "names": plain(3, ids="names", columns=("time",)),
        "undirected": plain(4, undirected=True, columns=every),
        "typed": typed(5),
        "typed columns": typed(6, columns=("weight", "time", "edge_attr")),
        "typed numbers": typed(7, ids="numbers", columns=("time",)),
        "typed names": typed(8, ids="names", columns=("weight",)),
    }
    for seed, graph in enumerate(found.values()):
        for batch in range(3):
            change(graph, 10 * seed + batch)
    return list(found.items())


def change(graph: lg.Graph, seed: int) -> None:
    """A batch: edges come and go, features change, a vertex goes and one may come back."""
    rng, updates = np.random.default_rng([seed, 3]), lg.Updates()
    for triple in graph.edge_types or (None,):
        ends = [graph.vertices(name) for name in ((None, None) if triple is None else (triple[0], triple[2]))]
        has = {"weight": graph.has_weight, "time": graph.has_time, "edge_attr": graph.attr_width > 0}
        columns = {name: column for name, column in edge_columns(rng, 9).items() if has.get(name)}
        if triple is not None or graph.has_type:
            columns["edge_type"] = 1 if triple is None else triple
        updates.add_edges(*(rng.choice(each, 9).tolist() for each in ends), **columns)
    name = None if graph.vertex_types is None else graph.vertex_types[seed % 2]
    kind = {} if name is None else {"vertex_type": name}
    gone, other = rng.permutation(graph.vertices(name))[:2].tolist()
    width = graph.feature_width if name is None else graph.feature_widths[name]
    updates.set_features(other, rng.standard_normal(width).astype(np.float32), **kind)
    updates.remove_vertex(gone, **kind)
    if seed % 3 == 0:
        updates.add_vertex(gone, rng.standard_normal(width).astype(np.float32), **kind)
    graph.apply(updates)
