"""A batch that a part refuses, or that meets a broken wire, changes nothing at any part; what_if puts rows back."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import DegreeNegative, EdgeMissing, PartRefused, RangeOverflow, UpdateError, WorkerUnavailable
from livegnn.models import layers
from livegnn.models.model import Model
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.simulation.cluster_parts import PartsOfOne
from tests.simulation.lossy_wire import WireFaults
from tests.simulation.plain_streams import random_plain_batch, random_plain_draft, random_plain_graph

FEATURES = 5


def make(seed, parts=3, *, faults=None, **options):
    """Parts of a random model and graph, a few batches old, and what draws more of them."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, weighted=True, on_edges=bool(rng.integers(2)), reversed=None)
    kinds = graph_columns(model)
    graph = random_plain_graph(rng, model.input_width, weighted=True, **kinds, **options)
    world = PartsOfOne(model, graph, parts, seed, faults=faults)

    def draft(size):
        return random_plain_draft(rng, graph, size, kinds.get("types", 0))

    for _ in range(2):
        world.apply(draft(8).updates)
    return world, draft


def goes_on(world, draft, before):
    """Fails unless nothing has changed anywhere, and later batches are exact."""
    assert world.digests() == before
    world.check("after the refusal", audits=True)
    for _ in range(2):
        world.apply(draft(8).updates)
        world.check("later", audits=True)


def refused(world, updates, before_agreeing=None):
    """Offers a batch that is refused. Returns: the errors of the parts that refuse it themselves."""
    batch = world.batch(updates)
    found = world.offer(batch, world.new_owners(batch), before_agreeing)
    assert all(isinstance(one, BaseException) for one in found), found
    return [one for one in found if not isinstance(one, PartRefused)]


BAD = {
    "a missing edge": lambda u, draft: u.remove_edge(*_two(draft), edge_id=10**9),
    "a missing weight": lambda u, draft: u.set_weight(*_two(draft), 1.0, edge_id=10**9),
    "no such vertex": lambda u, draft: u.remove_edge(draft.live[0], 10**6),
    "a vertex that is live": lambda u, draft: u.add_vertex(
        draft.live[-1], np.zeros(draft.graph.feature_width, np.float32)
    ),
    "a wide row": lambda u, draft: u.set_features(draft.live[-1], np.zeros(draft.graph.feature_width + 1, np.float32)),
    "an edge without its columns": lambda u, draft: u.add_edge(*_two(draft)),
}


def _two(draft):
    return draft.live[0], draft.live[-1]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_bad_update_is_refused_as_by_an_engine(name, seed, parts):
    world, draft = make(seed, parts)
    before = world.digests()
    batch = draft(int(np.random.default_rng(seed).integers(0, 9)))
    BAD[name](batch.updates, batch)
    errors = refused(world, batch.updates)
    with pytest.raises(UpdateError) as expected:
        world.engine.apply(batch.updates)
    assert errors
    for error in errors:
        assert type(error) is type(expected.value)
        fields = ("update", "vertex", "edge", "subject")  # texts about slots that there are differ
        assert [getattr(error, name) for name in fields] == [getattr(expected.value, name) for name in fields]
    goes_on(world, draft, before)


@pytest.mark.parametrize("seed", range(6))
def test_what_one_part_raises_before_it_publishes(seed):
    world, draft = make(seed)
    before = world.digests()

    def refuse():
        raise OSError("a full disk")

    errors = refused(world, draft(9).updates, {seed % 3: refuse})
    assert [str(error) for error in errors] == ["a full disk"]
    goes_on(world, draft, before)


def ring(count, values, weighted=False):
    """A ring of vertices with one feature each."""
    ends = np.arange(count)
    weight = np.ones(count, np.float32) if weighted else None
    return lg.Graph(np.asarray(values, np.float32).reshape(-1, 1), ends, (ends + 1) % count, weight=weight)


def model_of(*parts):
    return Model(list(parts), input_width=1)


def test_a_message_out_of_range_in_the_second_layer_of_one_part():
    """Rows below zero are nothing to the second layer, until one of them turns."""
    one, none = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    model = model_of(layers.GraphConv(none, one, None), layers.Activate("relu"), layers.GraphConv(one, one, None))
    graph = ring(9, [1e-9] + [-1e9] * 8)
    world = PartsOfOne(model, graph, 3, 1, scheme="hash")
    for turned in range(1, 9):
        before, updates = world.digests(), lg.Updates()
        updates.set_features(turned, [1e9])
        errors = refused(world, updates)
        assert [type(error) for error in errors] == [RangeOverflow]
        with pytest.raises(RangeOverflow) as expected:
            world.engine.apply(updates)
        assert str(errors[0]) == str(expected.value)
        assert world.digests() == before
        world.check("after the refusal", audits=True)
    updates = lg.Updates()
    updates.set_features(4, [-3.0])
    world.apply(updates)
    world.check("later", audits=True)


def test_a_negative_degree_at_one_part():
    one = np.ones((1, 1), np.float32)
    model = model_of(layers.GCN(one, None, weighted=True), layers.GCN(one, None, weighted=True))
    world = PartsOfOne(model, ring(9, np.arange(9), weighted=True), 3, 2, scheme="hash")
    for u in range(9):
        before, updates = world.digests(), lg.Updates()
        updates.set_weight(u, (u + 1) % 9, -5.0)
        errors = refused(world, updates)
        assert [type(error) for error in errors] == [DegreeNegative]
        with pytest.raises(DegreeNegative) as expected:
            world.engine.apply(updates)
        assert (errors[0].vertex, str(errors[0])) == (expected.value.vertex, str(expected.value))
        assert world.digests() == before
        world.check("after the refusal", audits=True)


def test_a_part_that_refuses_while_others_compute():
    """Without degree factors no round comes before the rows: the others learn of it there, and go back."""
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(shape, dtype=np.float32) for shape in ((6, 4), (6, 4), (3, 6), (3, 6))]
    graph = lg.Graph(rng.random((20, 4), dtype=np.float32), *rng.integers(0, 20, (2, 60)))
    world = PartsOfOne(Model([layers.SAGE(*weights[:2]), layers.SAGE(*weights[2:])]), graph, 2, 1, scheme="hash")
    mine, other = (np.flatnonzero(world.owners == part).tolist() for part in (0, 1))
    updates, before = lg.Updates(), world.digests()
    updates.set_features(other[0], np.ones(4, np.float32))
    updates.remove_edge(mine[0], mine[1], edge_id=10**9)
    (error,) = refused(world, updates)
    assert isinstance(error, EdgeMissing)
    assert [part.halo.has_begun for part in world.parts] == [False, True]
    assert world.digests() == before
    world.check("after the refusal", audits=True)
    updates = lg.Updates()
    updates.set_features(other[0], np.ones(4, np.float32))
    updates.add_edge(mine[0], other[0])
    world.apply(updates)
    world.check("later", audits=True)


@pytest.mark.parametrize("seed", range(12))
def test_a_wire_that_breaks_in_a_batch(seed):
    """Before any part has published: all have gone back, and the batch can come again over a new wire."""
    world, draft = make(seed)
    before, updates = world.digests(), draft(9).updates
    batch = world.batch(updates)
    owners = world.new_owners(batch)
    rounds = world.network.rounds
    world.network.faults = WireFaults(break_after=rounds + seed % 6)  # the first two rounds are below six
    found = world.offer(batch, owners)
    assert all(isinstance(one, WorkerUnavailable) for one in found), found
    assert world.digests() == before
    world.network.renew()
    again = world.offer(batch, owners)
    assert not any(isinstance(one, BaseException) for one in again), again
    world.owners = np.concatenate([world.owners, owners.owners])
    world.engine.apply(updates)
    world.check("after the batch came again", audits=True)


@pytest.mark.parametrize("seed", range(12))
def test_what_if_puts_every_row_back(seed):
    world, draft = make(seed, parts=(2, 3, 4)[seed % 3])
    for _ in range(3):
        before, updates = world.digests(), draft(9).updates
        batch = world.batch(updates)
        owners = world.new_owners(batch)
        found = world.all(lambda rank, b=batch, o=owners: world.parts[rank].what_if(b, o))
        with world.engine.what_if(updates) as view:
            assert set(view.vertices.tolist()) <= {int(v) for _, changes in found for v in changes.slots}
            for part in world.parts:
                slots = part.slots()
                assert part.staged(slots).tobytes() == world.engine.native.read_staged(slots).tobytes()
        for (view, _), part in zip(found, world.parts, strict=True):
            part.close_what_if(view)
        goes_on(world, draft, before)


def test_what_if_is_refused_by_all():
    world, draft = make(3)
    before, updates = world.digests(), draft(4).updates
    updates.set_features(10**6, np.zeros(world.model.input_width, np.float32))
    batch = world.batch(updates)
    owners = world.new_owners(batch)
    found = world.each(lambda rank: world.parts[rank].what_if(batch, owners))
    assert all(isinstance(one, UpdateError) for one in found)
    goes_on(world, draft, before)


def test_parts_that_make_other_rounds_are_found():
    """Else a part that waits for ever would hang a test, not fail it."""
    world, draft = make(5)
    batch = world.batch(draft(3).updates)
    owners = world.new_owners(batch)
    found = world.each(lambda rank: None if rank == 0 else world.parts[rank].apply(batch, owners))
    assert [type(one) for one in found] == [type(None), WorkerUnavailable, WorkerUnavailable]


def test_random_plain_batches_are_legal():
    rng = np.random.default_rng(0)
    for undirected in (False, True):
        graph = random_plain_graph(rng, FEATURES, weighted=True, timed=True, undirected=undirected)
        for _ in range(50):
            graph.apply(random_plain_batch(rng, graph, 10))


SUMS = ("gcn", "gcn_plain", "graph_conv", "sage", "gin", "sgc", "appnp", "cheb")


def stale_ghosts(world):
    """How many ghosts have a newer row at their owner, over all parts and sums."""
    count = 0
    for part in world.parts:
        ghosts = np.flatnonzero(part.halo.ghosts())
        for name, marks in part.native.remember(part.halo).items():
            if name.startswith("stale."):
                held = ghosts[ghosts < len(marks)]
                count += int((marks[held] >> np.uint64(part.part) & np.uint64(1)).sum())
    return count


@pytest.mark.parametrize("size", [1, 12])  # edges of stale ghosts are looked at, or are too many for so small a batch
@pytest.mark.parametrize("family", SUMS)
def test_sums_that_stale_sources_reach_are_as_before_a_refusal(family, size):
    stale = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = random_model(rng, family=family, weighted=False, on_edges=False)
        pairs = rng.integers(0, 60, (200, 2))
        pairs[:, 1] = np.where(rng.random(200) < 0.9, pairs[:, 1] % 4, pairs[:, 1])  # hubs
        features = rng.standard_normal((120, model.input_width), dtype=np.float32)
        graph = lg.Graph(features, *pairs.T)
        world = PartsOfOne(model, graph, 3, seed)
        for number in range(8):
            world.apply(random_plain_batch(rng, graph, 40))  # makes sources stale
            updates = random_plain_batch(rng, graph, size)
            stale += stale_ghosts(world)
            world.refuse(updates, number % 3)
            world.apply(updates)
            world.check(f"seed {seed}, batch {number}", audits=number == 7)
    assert stale > 0
