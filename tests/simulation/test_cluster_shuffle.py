"""The shuffle of a cut graph gives each worker the arrays that cut() of the whole graph would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.distributed.cluster.cut import cut, store_options
from livegnn.distributed.cluster.shuffle import NewCut, shuffle
from livegnn.distributed.exchange import swap_bytes
from livegnn.distributed.threads import run_threads
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.oracle.hetero_oracle import TRIPLES, WIDTHS
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.simulation.cluster_parts import PartsOfOne
from tests.simulation.plain_streams import random_plain_batch, random_plain_graph
from tests.simulation.test_cluster_parts import examples

SEEDS = st.integers(0, 2**32 - 1)


def new_cut(graph, holders, owners, parts):
    version, next_edge_id = graph.host.store.to_arrays()["counters"].tolist()
    return NewCut(parts, owners, holders, store_options(graph), version, next_edge_id)


def shuffled(shares, new, chunk_bytes):
    """The parts, by workers that start with these shares."""

    def work(exchange):
        return shuffle(shares[exchange.rank], exchange.rank, new, lambda out: swap_bytes(exchange, out), chunk_bytes)

    return run_threads(work, new.parts)


def check_same_arrays(found, wanted):
    for got, want in zip(found, wanted, strict=True):
        assert (got.part, got.parts, got.next_edge_id) == (want.part, want.parts, want.next_edge_id)
        assert got.options == want.options
        for name, array in want.to_arrays().items():
            assert got.to_arrays()[name].dtype == array.dtype, name
            np.testing.assert_array_equal(got.to_arrays()[name], array, err_msg=name)
        assert set(got.store) == set(want.store)
        assert all(array.flags.c_contiguous for array in got.store.values())


def random_owners(rng, graph, parts):
    return rng.integers(0, parts, graph.slot_count).astype(np.uint16)


def check_shuffle(world, rng, parts):
    graph = world.graph
    shares = [part.own_arrays() for part in world.parts]
    owners = random_owners(rng, graph, parts)
    new = new_cut(graph, world.owners[: graph.slot_count], owners, parts)
    check_same_arrays(shuffled(shares, new, int(rng.integers(1, 9))), cut(graph, owners, parts))


@examples(60)
@given(seed=SEEDS, undirected=st.booleans(), simple=st.booleans(), timed=st.booleans(), half=st.booleans())
def test_that_a_shuffle_gives_what_a_cut_would(seed, undirected, simple, timed, half):
    rng = np.random.default_rng(seed)
    parts, weighted = int(rng.integers(1, 6)), bool(rng.integers(2))
    model = random_model(rng, weighted=weighted, on_edges=bool(rng.integers(2)))
    options = {"undirected": undirected, "simple": simple, "timed": timed, **graph_columns(model)}
    options |= {"weighted": weighted or bool(rng.integers(2)), "feature_dtype": np.float16 if half else None}
    graph = random_plain_graph(rng, model.input_width, **options)
    world = PartsOfOne(model, graph, parts, seed)
    for _ in range(3):
        check_shuffle(world, rng, parts)
        world.apply(random_plain_batch(rng, graph, int(rng.integers(1, 14)), graph_columns(model)["types"]))
    check_shuffle(world, rng, parts)


@examples(8)
@given(seed=SEEDS)
def test_that_a_shuffle_of_typed_parts_gives_what_a_cut_would(seed):
    rng = np.random.default_rng(seed)
    parts = int(rng.integers(1, 6))
    module = TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6))
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    world = PartsOfOne(lg.from_pyg(liven(module)), graph, parts, seed)
    for _ in range(3):
        check_shuffle(world, rng, parts)
        world.apply(random_typed_batch(rng, mirror, int(rng.integers(1, 25))))
    check_shuffle(world, rng, parts)


def test_that_a_vertex_that_no_share_has_is_refused():
    graph = lg.Graph(np.ones((3, 2), np.float32), [0, 1], [1, 2])
    ends = {"src": np.array([0, 1]), "dst": np.array([1, 2]), "id": np.arange(2)}
    rows = {"slots": np.arange(2), "features": np.ones((2, 2), np.float32)}
    none = {name: column[:0] for name, column in (rows | ends).items()}
    new = new_cut(graph, np.zeros(3, np.uint16), np.array([0, 0, 1], np.uint16), 2)
    with pytest.raises(lg.errors.InvariantBroken, match="slot 2 was asked of a worker without it"):
        shuffled([rows | ends, none], new, 8)
