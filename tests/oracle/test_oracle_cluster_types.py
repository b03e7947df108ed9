"""Parts of a graph over vertex types have the bits of one engine, whose outputs are PyG's, after every batch."""

import numpy as np
import pytest
from torch_geometric import nn as pyg

import livegnn as lg
from tests.oracle.hetero_oracle import FOLLOW, TRIPLES, WIDTHS, check_hetero
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import EVERYWHERE, WITHIN, TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.simulation.cluster_parts import SCHEMES, PartsOfOne
from tests.simulation.lossy_wire import WireFaults


def run(module, seed, parts, batches=4, **options):
    """A stream of batches, each refused once, with parts, engine and module compared after each."""
    rng = np.random.default_rng(seed)
    liven(module)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES, **options)
    world = PartsOfOne(
        lg.from_pyg(module), graph, parts, seed, scheme=SCHEMES[seed % len(SCHEMES)], faults=WireFaults(0.3, 0.2, 0.1)
    )
    world.check("at first", audits=True)
    for number in range(batches):
        updates = random_typed_batch(rng, mirror, int(rng.integers(1, 25)))
        world.refuse(updates, number % parts)
        world.apply(updates)
        world.check(f"after batch {number}", audits=number == batches - 1)
    check_hetero(world.engine, module, mirror, "at last")


@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_layer_between_types(name):
    for seed in range(2):
        run(TwoLayers(lambda _, s, d: EVERYWHERE[name](s, d)), seed, 3)


@pytest.mark.parametrize("name", [name for name in WITHIN if name != "Cheap"])
def test_every_layer_within_a_type(name):
    def convs(triple, src, dst):
        return WITHIN[name](src) if triple == FOLLOW else pyg.SAGEConv((src, dst), 6)

    run(TwoLayers(convs), 2, 4)


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_every_number_of_parts(parts):
    run(TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6)), 3, parts, batches=10)
