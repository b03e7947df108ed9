"""Parts of a cut graph, on a wire that loses, doubles and reorders, have the bits of one engine after every batch."""

import os
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.testing.edge_models import EDGE_FAMILIES, graph_columns
from livegnn.testing.models import FAMILIES, random_model
from tests.simulation.cluster_parts import PARTITIONERS, SCHEMES, PartsOfOne
from tests.simulation.lossy_wire import WireFaults
from tests.simulation.plain_streams import random_plain_batch, random_plain_graph

SEEDS = st.integers(0, 2**32 - 1)
SOAK = 20  # times as many examples


def examples(count):
    """So many in `make test`, with fixed seeds; more and fresh ones in a soak."""
    return settings(max_examples=count * (SOAK if os.environ.get("LIVEGNN_HYPOTHESIS") == "soak" else 1))


def run(seed, parts, *, scheme=None, batches=5, size=13, family=None, faults=None, **options):
    """A random model on a random graph through random batches. Returns: the parts."""
    rng = np.random.default_rng(seed)
    weighted = bool(rng.integers(2))
    against = (False, True, None)[rng.integers(3)]
    model = random_model(rng, family=family, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=against)
    kinds = graph_columns(model)
    options = {"weighted": weighted or bool(rng.integers(3) == 0), "hubs": 0, **kinds, **options}
    graph = random_plain_graph(rng, model.input_width, **options)
    scheme = SCHEMES[rng.integers(len(SCHEMES))] if scheme is None else scheme
    world = PartsOfOne(model, graph, parts, seed, scheme=scheme, faults=faults)
    world.check("at first")
    for number in range(batches):
        batch = random_plain_batch(rng, graph, int(rng.integers(1, size + 1)), kinds.get("types", 0), options["hubs"])
        world.apply(batch)
        world.check(f"seed {seed}, after batch {number}", audits=number % 3 == 2)
    return world


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
@pytest.mark.parametrize("scheme", SCHEMES)
@examples(4)
@given(seed=SEEDS)
def test_layers_of_several_families_have_the_bits_of_one_engine(parts, scheme, seed):
    run(seed, parts, scheme=scheme)


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
@pytest.mark.parametrize("scheme", PARTITIONERS)
@pytest.mark.parametrize("family", [*FAMILIES, *EDGE_FAMILIES])
@examples(1)
@given(seed=SEEDS)
def test_every_family_under_every_cut(family, scheme, parts, seed):
    case = zlib.crc32(f"{family} {scheme} {parts}".encode())  # else each case has the same first seed
    run(seed + case, parts, scheme=scheme, family=family, batches=4)


@examples(30)
@given(
    seed=SEEDS,
    undirected=st.booleans(),
    simple=st.booleans(),
    timed=st.booleans(),
    half=st.booleans(),
)
def test_every_kind_of_graph(seed, undirected, simple, timed, half):
    feature_dtype = np.float16 if half else None
    run(seed, 3, undirected=undirected, simple=simple, timed=timed, feature_dtype=feature_dtype)


@pytest.mark.parametrize("seed", range(4))
def test_a_long_stream(seed):
    world = run(seed, 4, batches=40)
    counts = world.parts[0].halo.counts()
    assert counts["rounds"] > 80
    assert counts["bytes"] > 0


SUMS = ("gcn", "gcn_plain", "graph_conv", "sage", "gin", "sgc", "appnp", "cheb")


@pytest.mark.parametrize("family", SUMS)
@examples(5)
@given(seed=SEEDS)
def test_sums_into_hubs(family, seed):
    """Where many sources have few destinations elsewhere, sums cross and sources are stale."""
    run(seed, 3, family=family, batches=8, size=40, hubs=3)


def test_both_ways_are_taken():
    """Sums and source rows cross: else the tests above show little."""
    found = [run(seed, 3, family=SUMS[seed % len(SUMS)], batches=8, size=40, hubs=3) for seed in range(16)]
    counts = [part.halo.counts() for world in found for part in world.parts]
    for name in ("source_rows", "sum_rows", "introductions", "factors"):
        assert sum(each[name] for each in counts) > 50, name
    assert sum(each["sum_rows"] for each in counts) > 200
    assert any(world.network.counts["ahead"] for world in found)


@pytest.mark.parametrize("faults", [WireFaults(0.0, 0.0, 0.0), WireFaults(0.6, 0.3, 0.3)])
def test_the_wire_changes_nothing(faults):
    """What parts send is a function of the batches."""
    calm = run(7, 4, scheme="hash", batches=6)
    other = run(7, 4, scheme="hash", batches=6, faults=faults)
    assert [part.halo.counts() for part in calm.parts] == [part.halo.counts() for part in other.parts]
    assert calm.digests() == other.digests()
    assert (other.network.counts["lost"] > 0) == (faults.lost > 0)


def test_a_seed_makes_one_run():
    first, second = (run(11, 4, batches=3).network.counts for _ in range(2))
    assert first == second


def layers_of(kind):
    """Two layers, with degree factors or without."""
    rng = np.random.default_rng(2)
    first, second = (rng.standard_normal(shape, dtype=np.float32) for shape in ((6, 4), (3, 6)))
    layer = lg.layers.GCN if kind == "gcn" else lg.layers.SAGE
    return lg.Model([layer(first), layer(second)])


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize(("kind", "factors"), [("gcn", 1), ("sage", 0)])
def test_a_batch_makes_the_rounds_that_have_something_to_say(kind, factors, undirected):
    rng, count = np.random.default_rng(4), 24
    columns = {"weight": rng.random(60, dtype=np.float32), "time": np.arange(60), "edge_attr": np.ones((60, 2))}
    features = rng.standard_normal((count, 4), dtype=np.float32)
    graph = lg.Graph(features, *rng.integers(0, count, (2, 60)), **columns, undirected=undirected)
    world = PartsOfOne(layers_of(kind), graph, 2, 4, scheme="hash")
    (a, b, *_), (c, d, *_) = (np.flatnonzero(world.owners == part).tolist() for part in (0, 1))
    of_an_edge, row, new = {"weight": 1.0, "time": 99, "edge_attr": np.zeros(2)}, np.ones(4, np.float32), count

    def made(apply):
        before = [part.halo.counts()["rounds"] for part in world.parts]
        apply()
        each = {part.halo.counts()["rounds"] - first for part, first in zip(world.parts, before, strict=True)}
        (rounds,) = each  # the same at all parts
        return rounds

    def rounds(change):
        updates = lg.Updates()
        change(updates)
        batch = world.batch(updates)
        views = {}

        def looked_at(rank):
            views[rank] = world.parts[rank].what_if(batch, owners)[0]

        owners = world.new_owners(batch)
        of_view = made(lambda: world.all(looked_at))
        world.all(lambda rank: world.parts[rank].close_what_if(views[rank]))
        found = made(lambda: world.apply(updates))
        assert of_view == found
        world.check("after a batch", audits=True)
        return found

    rest = 2  # rows, and that all agree
    assert rounds(lambda u: u.set_features(a, row)) == rest
    assert rounds(lambda u: u.add_edge(a, b, **of_an_edge)) == factors + rest
    assert rounds(lambda u: u.add_edge(a, c, **of_an_edge)) == 1 + factors + rest
    assert rounds(lambda u: u.set_edge_attr(a, c, np.ones(2))) == rest
    assert rounds(lambda u: u.set_weight(a, c, 2.0)) == factors + rest
    assert rounds(lambda u: u.remove_edge(a, c)) == factors + rest
    assert rounds(lambda u: u.remove_edges_before(30)) == factors + rest
    assert rounds(lambda u: u.add_vertex(new, row)) == rest
    assert rounds(lambda u: u.remove_vertex(d)) == factors + rest

    def newcomer(updates):
        updates.add_vertex(d, row)
        for each in (a, c):  # one of them is another part's
            updates.add_edge(d, each, **of_an_edge)

    assert rounds(newcomer) == 1 + factors + rest
