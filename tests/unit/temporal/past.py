"""Samples compared with their definition, for the tests of temporal sampling."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.reference.temporal import PastRule, TemporalEdges, sample_hops
from livegnn.temporal import TemporalHop, TemporalSampler
from livegnn.types import Int64Array

COLUMNS = ("next_types", "edge_types", "weights")  # which follow from the others
FIELDS = [field.name for field in fields(TemporalHop) if field.name not in COLUMNS]


def edges_of(graph: lg.Graph) -> TemporalEdges:
    """Every edge of a graph, in slots."""
    found = graph.host.store.edges()
    src, dst = found["src"].astype(np.int64), found["dst"].astype(np.int64)
    return TemporalEdges(src, dst, found["id"], found["time"], graph.undirected, found.get("type"))


def rule_of(sampler: TemporalSampler) -> PastRule:
    """What the sampler was asked for."""
    names = ("strategy", "inclusive", "window", "seed", "prop_time", "replace", "unique", "snapshots", "edge_types")
    return PastRule(tuple(sampler.fanouts), **{name: getattr(sampler, name) for name in names})


def check_columns(graph: lg.Graph, hop: TemporalHop) -> None:
    """Types and weights of a hop are those of its vertices and edges."""
    edges = graph.host.store.edges()
    at = np.searchsorted(edges["id"], hop.edge_ids)
    for name, got in (("type", hop.edge_types), ("weight", hop.weights)):
        assert (got is None) == (name not in edges)
        if got is not None:
            assert got.tolist() == edges[name][at].tolist(), name
    assert (hop.next_types is None) == (graph.vertex_types is None)
    if hop.next_types is not None:
        assert hop.next_types.tolist() == graph.slot_types(hop.next_targets).tolist()


def as_lists(hop: TemporalHop) -> dict[str, Any]:
    """The arrays of a hop."""
    return {name: getattr(hop, name).tolist() for name in FIELDS}


def check(
    sampler: TemporalSampler, vertices: Int64Array, times: Int64Array, edges: TemporalEdges | None = None
) -> None:
    """One call of the sampler equals the definition, field by field. vertices: slots."""
    wanted, call = rule_of(sampler), sampler.calls
    edges = edges_of(sampler.graph) if edges is None else edges
    plain = sampler.graph.host.ids_are_slots
    sampled = sampler.sample_snapshots if plain else sampler.sample_snapshot_slots
    for snapshot, hops in enumerate(sampled(vertices, times)):
        expected = sample_hops(wanted, edges, vertices, times, call, snapshot)
        for number, (hop, want) in enumerate(zip(hops, expected, strict=True)):
            for name in FIELDS:
                got = getattr(hop, name)
                message = f"snapshot {snapshot}, hop {number}, {name}: {sampler}"
                assert got.dtype == np.int64, message
                assert got.flags.c_contiguous, message
                assert got.tolist() == getattr(want, name), message


def random_graph(rng: np.random.Generator, vertices: int, edges: int, times: int, **options: Any) -> lg.Graph:
    """Skewed degrees, self-loops, parallel edges, few distinct times in no order."""
    src = rng.integers(0, vertices, edges)
    dst = np.minimum(rng.geometric(0.2, edges) - 1, vertices - 1)
    return lg.Graph(np.zeros((vertices, 0), np.float32), src, dst, time=rng.integers(-times, times, edges), **options)
