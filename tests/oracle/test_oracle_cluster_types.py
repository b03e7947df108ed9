"""Parts of a graph over vertex types have the bits of one engine, whose outputs are PyG's, after every batch."""

import zlib
from functools import cache

import numpy as np
import pytest
from torch_geometric import nn as pyg

import livegnn as lg
from tests.oracle.hetero_oracle import FOLLOW, TRIPLES, WIDTHS, check_hetero
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import EVERYWHERE, WITHIN, TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.simulation.cluster_parts import PARTITIONERS, PartsOfOne
from tests.simulation.lossy_wire import WireFaults

PARTS = (1, 2, 4, 8)


def imported(convs):
    """A module of two layers, and its model."""
    module = liven(TwoLayers(convs))
    return module, lg.from_pyg(module)


@cache
def between(name):
    """A layer along every edge type."""
    return imported(lambda _, src, dst: EVERYWHERE[name](src, dst))


@cache
def within(name):
    """A layer along the edges of one type."""
    return imported(lambda triple, src, dst: WITHIN[name](src) if triple == FOLLOW else pyg.SAGEConv((src, dst), 6))


def run(made, seed, parts, scheme, batches=2):
    """A stream of so many batches or more, each refused once, with parts, engine and module compared after each."""
    rng, (module, model) = np.random.default_rng(seed), made
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    world = PartsOfOne(model, graph, parts, seed, scheme=scheme, faults=WireFaults(0.3, 0.2, 0.1))
    world.check("at first", audits=True)
    number = 0
    while number < batches or not all(mirror.rows.values()):  # PyG's ChebConv needs a vertex
        updates = random_typed_batch(rng, mirror, int(rng.integers(1, 25)))
        world.refuse(updates, number % parts)
        world.apply(updates)
        number += 1
        world.check(f"after batch {number}", audits=number == batches)
    check_hetero(world.engine, module, mirror, "at last")


def seed_of(*case):
    """Another one for each case."""
    return zlib.crc32(" ".join(map(str, case)).encode())


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("scheme", PARTITIONERS)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_layer_between_types(name, scheme, parts):
    run(between(name), seed_of(name, scheme, parts), parts, scheme)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("scheme", PARTITIONERS)
@pytest.mark.parametrize("name", [name for name in WITHIN if name != "Cheap"])
def test_every_layer_within_a_type(name, scheme, parts):
    run(within(name), seed_of(name, scheme, parts), parts, scheme)


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_a_long_stream_under_random_owners(parts):
    run(between("SAGE mean"), 3, parts, "random", batches=10)
