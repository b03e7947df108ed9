"""lg.Cluster on Ray has the bits of one engine: every family of layers, and vertex types, on 1 to 8 workers."""

import logging

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.cluster.ray_crew import RayCrew
from livegnn.testing import streams
from livegnn.testing.edge_models import EDGE_FAMILIES, graph_columns
from livegnn.testing.models import FAMILIES, random_model
from tests.oracle.hetero_oracle import TRIPLES, WIDTHS, check_hetero
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import EVERYWHERE, TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.simulation.cluster_parts import PARTITIONERS

NAMES = [*FAMILIES, *EDGE_FAMILIES]
TYPED = ["GAT", "SAGE max"]


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


@pytest.fixture(scope="module", params=[1, 2, 4, 8])
def crew(request, ray_cluster):
    """One for all clusters of so many workers."""
    made = RayCrew(request.param, timeout_s=60.0)
    yield made
    made.close()


def turn_of(names, name, crew):
    """A number by which every name meets every scheme, swaps and rescales; and a generator."""
    number = names.index(name)
    return number + crew.size.bit_length(), np.random.default_rng([number, crew.size])


def random_pair(rng, family, crew, scheme):
    """An engine, a cluster of the same, another model for both, and what makes batches."""
    weighted = bool(rng.integers(2))
    model = random_model(rng, family=family, weighted=weighted, reversed=None)
    kinds, other = graph_columns(model), None
    while other is None or (other.input_width, graph_columns(other)) != (model.input_width, kinds):
        other = random_model(rng, family=family, weighted=weighted, reversed=None)
    graph, mirror = streams.random_graph(rng, model.input_width, weighted, vertices=30, **kinds)
    engine = lg.Engine(model, graph, threads=1)
    return engine, lg.Cluster(model, graph, crew.size, crew=crew, partition=scheme), other, mirror


@pytest.mark.parametrize("family", NAMES)
def test_every_family(crew, family):
    turn, rng = turn_of(NAMES, family, crew)
    scheme = PARTITIONERS[turn % 3]
    engine, cluster, other, mirror = random_pair(rng, family, crew, scheme)
    pair = engine, cluster

    def apply(batches):
        for _ in range(batches):
            updates = streams.random_batch(rng, mirror, 12)
            for each in pair:
                each.apply(updates)
            assert cluster.state_digest() == engine.state_digest(), scheme

    apply(2)
    ids = np.flatnonzero(engine.graph.host.store.live())
    np.testing.assert_array_equal(cluster.predict(ids), engine.predict(ids))
    links = rng.choice(ids, (8, 2))
    np.testing.assert_array_equal(cluster.predict_edges(links), engine.predict_edges(links))
    for each in pair:
        if turn % 2:
            each.swap(other)
        else:
            each.rescale(64.0)
    assert cluster.state_digest() == engine.state_digest(), scheme
    assert cluster.scales == engine.scales
    apply(1)


@pytest.mark.parametrize("name", TYPED)
def test_layers_between_vertex_types(crew, name):
    turn, rng = turn_of(TYPED, name, crew)
    scheme = PARTITIONERS[turn % 3]
    module = liven(TwoLayers(lambda _, src, dst: EVERYWHERE[name](src, dst)))
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    model = lg.from_pyg(module)
    engine = lg.Engine(model, graph, threads=1)
    cluster = lg.Cluster(model, graph, crew.size, crew=crew, partition=scheme)
    for _ in range(3):
        updates = random_typed_batch(rng, mirror, 12)
        for each in (engine, cluster):
            each.apply(updates)
        assert cluster.state_digest() == engine.state_digest(), scheme
    for kind in WIDTHS:
        ids = mirror.ids(kind)
        rows = [each.embeddings(ids, vertex_type=kind) for each in (engine, cluster)]
        np.testing.assert_array_equal(*rows)
    check_hetero(engine, module, mirror, "at last")
