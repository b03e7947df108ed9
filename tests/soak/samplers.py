"""Pre-samplers and clusters of workers on one graph: every row equal to a scan, and to each other, after each batch."""

from __future__ import annotations

from typing import Any

import numpy as np

import livegnn as lg
from livegnn.reference.sampling import EdgeTable, HopRule, sample_tree
from livegnn.sampling import AdHocSampler, LocalCluster, even_owners, even_serving
from tests.soak.options import NAMES, one_of
from tests.soak.slices import Step
from tests.soak.world import Rng, Shape, World


def random_hops(rng: Rng, types: int) -> list[HopRule]:
    """One to three hops of a query."""
    return [
        HopRule(
            one_of(rng, ("out", "in_", "both")),
            int(rng.integers(1, 6)),
            one_of(rng, ("random", "top_k", "weighted")),
            int(rng.integers(types)) if types and rng.integers(2) else None,
        )
        for _ in range(int(rng.integers(1, 4)))
    ]


def query_of(hops: list[HopRule]) -> lg.sampling.Query:
    """The query of these hops."""
    query: Any = lg.query()
    for hop in hops:
        query = getattr(query, hop.direction)(hop.edge_type).sample(hop.fanout, by=hop.by)
    return query


def run(step: Step) -> None:
    """One graph, a pre-sampler, a cluster, and a sampler that looks when asked."""
    rng, counts = step.rng, step.counts
    vertices = int(rng.integers(5, 400))
    shape = Shape(
        int(rng.integers(1, 5)),
        vertices,
        vertices * int(rng.integers(1, 8)),
        weighted=True,
        types=int(rng.integers(0, 3)),
        times=True,
        undirected=bool(rng.random() < 0.3),
        names=one_of(rng, NAMES, usual=0.6),
    )
    world, seed = World(rng, shape), int(rng.integers(2**32))
    graph, hops = world.graph(), random_hops(rng, shape.types)
    sampler = lg.PreSampler(graph, query_of(hops), seed=seed, threads=int(rng.integers(1, 3)))
    workers = {"sampling": int(rng.integers(1, 4)), "serving": int(rng.integers(1, 4))}
    cluster = LocalCluster(graph, query_of(hops), seed=seed, **workers)
    counts.cover("option", "times", f"ids={shape.names}", *(["undirected"] if shape.undirected else []))
    for _ in range(int(rng.integers(10, 150))):
        if not step.tick():
            break
        updates = world.batch(rng, int(10 ** rng.uniform(0, 3.3)))
        if rng.random() < 0.05:
            world.expire(updates, world.now - 20)
        graph.apply(updates)
        counts.add("batches")
        counts.add("updates", len(updates))
        _moves(rng, cluster)
        if rng.random() < 0.3:
            sampler.verify()
            counts.add("verifications")
        others = [cluster, AdHocSampler(graph, query_of(hops), seed=seed)]
        seeds = rng.choice(world.labels(), 8)
        _same(sampler.sample(world.ids(seeds)), [each.sample(world.ids(seeds)) for each in others], len(hops))
        counts.add("samples", 3 * len(seeds))
    sampler.verify()
    if shape.names is None:
        _as_defined(sampler, graph, hops, rng.choice(world.labels(), 3))
    sampler.close()
    cluster.close()


def _moves(rng: Rng, cluster: LocalCluster) -> None:
    """Workers come and go."""
    if rng.random() < 0.05:
        cluster.move_sampling(even_owners(int(rng.integers(1, 4))))
    if rng.random() < 0.05:
        cluster.move_serving(even_serving(int(rng.integers(1, 4)), int(rng.integers(1, 3))))


def _same(sample: Any, others: list[Any], hops: int) -> None:
    for other in others:
        for level in range(hops + 1):
            np.testing.assert_array_equal(other.features(level), sample.features(level))
        for hop in range(1, hops + 1):
            np.testing.assert_array_equal(other.hop(hop), sample.hop(hop))
            np.testing.assert_array_equal(other.edge_ids(hop), sample.edge_ids(hop))


def _as_defined(sampler: lg.PreSampler, graph: lg.Graph, hops: list[HopRule], seeds: Any) -> None:
    """The same as the definition in NumPy."""
    edges = graph.edges()
    types = edges.get("type", np.zeros(len(edges["id"]), np.int64)).astype(np.int64)
    weight = edges["weight"].astype(np.float64)
    table = EdgeTable(edges["src"], edges["dst"], edges["id"], weight, edges["time"], types)
    vertices, ids = sample_tree(hops, sampler.seed, table, seeds, undirected=graph.undirected)
    got = sampler.sample(seeds)
    for hop in range(1, len(hops) + 1):
        np.testing.assert_array_equal(got.hop(hop), vertices[hop - 1])
        np.testing.assert_array_equal(got.edge_ids(hop), ids[hop - 1])
