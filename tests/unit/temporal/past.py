"""Samples compared with their definition, for the tests of temporal sampling."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.reference.temporal import PastRule, TemporalEdges, sample_hops
from livegnn.temporal import TemporalHop, TemporalSampler
from livegnn.types import Int64Array

FIELDS = [field.name for field in fields(TemporalHop)]


def edges_of(graph: lg.Graph) -> TemporalEdges:
    """Every edge of a graph whose ids are its slots."""
    found = graph.edges()
    return TemporalEdges(found["src"], found["dst"], found["id"], found["time"], graph.undirected)


def rule_of(sampler: TemporalSampler) -> PastRule:
    """What the sampler was asked for."""
    names = ("strategy", "inclusive", "window", "seed", "prop_time", "replace", "unique", "snapshots")
    return PastRule(tuple(sampler.fanouts), **{name: getattr(sampler, name) for name in names})


def as_lists(hop: TemporalHop) -> dict[str, Any]:
    """The arrays of a hop."""
    return {name: getattr(hop, name).tolist() for name in FIELDS}


def check(
    sampler: TemporalSampler, vertices: Int64Array, times: Int64Array, edges: TemporalEdges | None = None
) -> None:
    """One call of the sampler equals the definition, field by field."""
    wanted, call = rule_of(sampler), sampler.calls
    edges = edges_of(sampler.graph) if edges is None else edges
    for snapshot, hops in enumerate(sampler.sample_snapshots(vertices, times)):
        expected = sample_hops(wanted, edges, vertices, times, call, snapshot)
        for number, (hop, want) in enumerate(zip(hops, expected, strict=True)):
            for name in FIELDS:
                got = getattr(hop, name)
                message = f"snapshot {snapshot}, hop {number}, {name}: {sampler}"
                assert got.dtype == np.int64 and got.flags.c_contiguous, message
                assert got.tolist() == getattr(want, name), message


def random_graph(rng: np.random.Generator, vertices: int, edges: int, times: int, **options: Any) -> lg.Graph:
    """Skewed degrees, self-loops, parallel edges, few distinct times in no order."""
    src = rng.integers(0, vertices, edges)
    dst = np.minimum(rng.geometric(0.2, edges) - 1, vertices - 1)
    return lg.Graph(np.zeros((vertices, 0), np.float32), src, dst, time=rng.integers(-times, times, edges), **options)
