"""Engines over vertex types on demand and with a compact state give an eager engine's bits, whatever is asked for."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import RangeOverflow
from tests.oracle.hetero_oracle import FOLLOW, TRIPLES, WIDTHS
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import EVERYWHERE, WITHIN, TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph

SUMS = ("SAGE mean", "SAGE max", "SAGE without root", "GraphConv", "GraphConv min")
ON_EDGES = ("GAT", "GAT mean of heads", "GATv2", "Transformer", "ResGated")
SUMS_WITHIN = ("GCN", "GCN max", "GIN", "TAG", "Cheb", "PNA")


def model_of(name: str) -> lg.Model:
    """Two layers, the named convolution in the first one."""

    def convs(triple, src, dst):
        if name in EVERYWHERE:
            return EVERYWHERE[name](src, dst)
        return WITHIN[name](src) if triple == FOLLOW else pyg.SAGEConv((src, dst), 6)

    module = TwoLayers(convs)
    liven(module)
    return lg.from_pyg(module, check=False)


MODELS: dict[str, lg.Model] = {}


def known(name: str) -> lg.Model:
    if name not in MODELS:
        MODELS[name] = model_of(name)
    return MODELS[name]


def same_rows(one, other, graph, rng) -> None:
    """Some vertices of a random type, or all of every type."""
    names = list(WIDTHS) if rng.integers(4) == 0 else [str(rng.choice(list(WIDTHS)))]
    for name in names:
        live = graph.vertices(name)
        if len(live) == 0:
            continue
        asked = live if len(names) > 1 else rng.choice(live, int(rng.integers(1, min(4, len(live)) + 1)))
        rows = [engine.embeddings(asked, vertex_type=name).tobytes() for engine in (one, other)]
        assert rows[0] == rows[1], name


def run(name: str, seed: int, batches: int = 10, **options) -> None:
    rng = np.random.default_rng(seed)
    model = known(name)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    eager = lg.Engine(model, graph, threads=1)
    other = lg.Engine(model, graph, threads=int(rng.integers(1, 3)), scales=eager.scales, **options)
    for _ in range(batches):
        try:
            graph.apply(random_typed_batch(rng, mirror, int(rng.integers(1, 10))))
        except RangeOverflow:  # a graph that began almost empty: the batch is refused, and the mirror is ahead
            break
        for _ in range(int(rng.integers(3))):
            same_rows(other, eager, graph, rng)
        if rng.integers(5) == 0:
            with other.what_if(random_typed_batch(rng, copy.deepcopy(mirror), 3)):
                pass
        if rng.integers(4) == 0:
            assert other.state_digest() == eager.state_digest()
    for name in WIDTHS:
        live = graph.vertices(name)
        rows = [engine.embeddings(live, vertex_type=name).tobytes() for engine in (other, eager)]
        assert rows[0] == rows[1], name
    other.verify()
    assert other.state_digest() == eager.state_digest()


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["on_demand", "hybrid"]),
    st.sampled_from([*SUMS, *ON_EDGES, *SUMS_WITHIN]),
)
def test_on_demand_any_interleaving(seed, mode, name):
    run(name, seed, mode=mode, hot=2)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([*SUMS, *ON_EDGES, *SUMS_WITHIN]))
def test_compact_any_stream(seed, name):
    run(name, seed, state="compact")


@pytest.mark.parametrize("options", [{"mode": "on_demand"}, {"mode": "hybrid", "hot": 3}, {"state": "compact"}])
def test_a_slot_that_goes_from_type_to_type(options):
    """The slot of a removed user is taken by a tag, then by a user again, with and without a query in between."""
    for asks in (False, True):
        rng = np.random.default_rng(3)
        graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
        eager = lg.Engine(known("SAGE mean"), graph, threads=1)
        other = lg.Engine(known("SAGE mean"), graph, threads=1, scales=eager.scales, **options)
        names = list(WIDTHS)
        for number in range(6):
            name = names[number % len(names)]
            updates = lg.Updates()
            updates.remove_vertex(graph.vertices(name)[0], vertex_type=name)
            graph.apply(updates)
            taker = names[(number + 1) % len(names)]
            updates = lg.Updates()
            updates.add_vertex(mirror.counts[taker], rng.standard_normal(WIDTHS[taker]), vertex_type=taker)
            mirror.counts[taker] += 1
            graph.apply(updates)
            for each in names if asks else []:
                live = graph.vertices(each)
                rows = [e.embeddings(live, vertex_type=each).tobytes() for e in (other, eager)]
                assert rows[0] == rows[1]
        assert other.state_digest() == eager.state_digest()
