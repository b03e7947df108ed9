"""contributions(): graphs of other kinds, what is refused and why, and the bounds of what is kept."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ModelUnsupported, UsageError, ValueInvalid, VertexUnknown
from livegnn.models import ir


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def plain(count=20, **more):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(count, 4)).astype(np.float32)
    return lg.Graph(rows, rng.integers(0, count, 60), rng.integers(0, count, 60), **more)


def two_layers():
    return lg.Model(
        [lg.layers.GCN(normal(1, 5, 4), activation="relu"), lg.layers.SAGE(normal(2, 3, 5), normal(3, 3, 5))]
    )


def edge(u, v, **more):
    updates = lg.Updates()
    updates.add_edge(u, v, **more)
    return updates


def assert_sums(found):
    for shares in found.aggregations:
        own = 0 if shares.own is None else shares.own
        np.testing.assert_array_equal(shares.terms.sum(axis=0) + own, shares.aggregate)


def test_undirected_edges_come_from_both_ends():
    graph = plain(undirected=True)
    engine = lg.Engine(two_layers(), graph)
    engine.keep_messages()
    engine.apply(edge(3, 4))
    for vertex, other in ((3, 4), (4, 3)):
        found = engine.contributions(vertex)
        assert_sums(found)
        (change,) = found.change.aggregations
        assert ("added",) in [w for w, u in zip(change.why, change.vertices.tolist(), strict=True) if u == other]


def test_vertex_types_have_aggregations_of_their_own():
    rng = np.random.default_rng(0)
    rates, rated = ("user", "rates", "item"), ("item", "rated", "user")
    ends = [f"u{i}" for i in rng.integers(0, 6, 30)], [f"i{i}" for i in rng.integers(0, 8, 30)]
    graph = lg.Graph(
        {"user": normal(1, 6, 3).astype(np.float32), "item": normal(2, 8, 3).astype(np.float32)},
        {rates: ends[0], rated: ends[1]},
        {rates: ends[1], rated: ends[0]},
        ids={"user": [f"u{i}" for i in range(6)], "item": [f"i{i}" for i in range(8)]},
    )
    features = ir.Input(3)
    users = ir.OfType(features, 0, 3)
    to_items = ir.Propagate(ir.Linear(users, normal(3, 4, 3)), "mean", relation=0, target=1)
    to_users = ir.Propagate(ir.Linear(ir.Activation(to_items, "relu"), normal(4, 2, 4)), relation=1, target=0)
    model = lg.Model.from_output(ir.ByType((to_users,)), vertex_types=("user", "item"), edge_types=(rates, rated))
    engine = lg.Engine(model, graph)
    engine.keep_messages()
    updates = lg.Updates()
    updates.add_edge("i3", "u2", edge_type=rated)
    engine.apply(updates)
    found = engine.contributions("u2", vertex_type="user", hops=2)
    assert_sums(found)
    (shares,) = found.aggregations
    assert found.is_linear
    assert set(shares.types) == {"item"}
    assert "i3" in shares.vertices
    assert shares.predictions == (None,) * len(shares)  # the model has no output for items
    assert shares.scores.sum() == pytest.approx(
        engine.embeddings(["u2"], vertex_type="user")[0, found.column], abs=1e-5
    )
    assert {source.vertex_type for source in found.sources} == {"item"}
    assert all(set(one.types) <= {"user"} for source in found.sources for one in source.aggregations)
    assert found.change.aggregations[0].why == (("added",),)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max"])
def test_messages_on_edges_are_shares_too(aggregate):
    rng = np.random.default_rng(0)
    graph = plain(edge_attr=rng.normal(size=(60, 4)).astype(np.float32))
    model = lg.Model([lg.layers.GINE([lg.layers.Dense(normal(2, 3, 4))], aggregate=aggregate)])
    engine = lg.Engine(model, graph)
    engine.keep_messages()
    engine.apply(edge(3, 4, edge_attr=rng.normal(size=4)))
    x, (w,) = graph.features(range(20)), [normal(2, 3, 4)]
    found = engine.contributions(4, column=1)
    (shares,) = found.aggregations
    assert found.change_missing == "edges"
    edges, attributes = graph.in_neighbours(4), graph.in_neighbours(4)["attr"]
    messages = np.maximum(x[edges["src"]] + attributes, 0)
    np.testing.assert_allclose(shares.messages, messages, rtol=1e-5, atol=1e-6)
    total = {"sum": messages.sum(0), "mean": messages.mean(0), "max": messages.max(0)}[aggregate]
    assert shares.scores.sum() == pytest.approx((w @ total)[1], abs=1e-4)


@pytest.mark.parametrize("options", [{"mode": "on_demand"}, {"strategy": "affected"}, {"memory_limit": "8MiB"}])
def test_shares_do_not_depend_on_how_rows_are_kept(options):
    engine, other = lg.Engine(two_layers(), plain()), lg.Engine(two_layers(), plain(), **options)
    for one in (engine, other):
        one.apply(edge(3, 4))
    mine, theirs = engine.contributions(4, column=0), other.contributions(4, column=0)
    np.testing.assert_array_equal(mine.aggregations[0].terms, theirs.aggregations[0].terms)
    assert_sums(theirs)


def test_an_output_that_bends_has_norms():
    model = lg.Model([lg.layers.SAGE(normal(1, 3, 4), activation="relu")])
    found = lg.Engine(model, plain()).contributions(4)
    (shares,) = found.aggregations
    assert not found.is_linear
    np.testing.assert_allclose(shares.scores, np.linalg.norm(shares.values, axis=1))


def test_what_is_not_known_in_parts_is_refused_by_name():
    att = lg.layers.GATv2(normal(1, 4, 4), normal(2, 2, 2), weight_target=normal(3, 4, 4))
    with pytest.raises(ModelUnsupported, match=r"softmax, width 4, layer 1.*both ends"):
        lg.Engine(lg.Model([att]), plain()).contributions(3)
    with pytest.raises(ModelUnsupported, match="without"):
        lg.Engine(lg.Model([lg.layers.Dense(normal(1, 3, 4))]), plain()).contributions(3)
    for options in ({"state": "compact"}, {"strategy": "full"}):
        with pytest.raises(UsageError, match=r"keeps? messages"):
            lg.Engine(two_layers(), plain(), **options).contributions(3)
    engine = lg.Engine(two_layers(), plain())
    with engine.what_if(edge(1, 2)), pytest.raises(UsageError, match="what_if"):
        engine.contributions(3)
    for wrong, error in (({"hops": 3}, ValueInvalid), ({"column": 3}, ValueInvalid), ({"limit": 0}, ValueInvalid)):
        with pytest.raises(error):
            engine.contributions(3, **wrong)
    with pytest.raises(VertexUnknown):
        engine.contributions(77)
    with pytest.raises(ValueInvalid, match="one layer"):
        lg.Engine(lg.Model([lg.layers.SAGE(normal(1, 3, 4))]), plain()).contributions(3, hops=2)
    with pytest.raises(UsageError, match="eager"):
        lg.Engine(two_layers(), plain(), mode="on_demand").keep_messages()
    with pytest.raises(ValueInvalid, match="at least 1"):
        engine.keep_messages(versions=0)


def test_the_ring_keeps_to_its_bounds():
    engine = lg.Engine(two_layers(), plain())
    assert engine.contributions(4).change_missing == "off"
    history = engine.keep_messages(versions=2)
    for target in (4, 5, 6):
        engine.apply(edge(3, target))
    assert (len(history), history.floor) == (2, 1)
    small = engine.keep_messages(size=3000)
    assert small.floor == 3
    for target in (4, 5, 6):
        engine.apply(edge(3, target))
        assert small.bytes <= 3000
    small.close()
    engine.apply(edge(3, 4))
    assert len(small) == 0


def test_a_batch_that_is_refused_and_a_what_if_leave_no_trace():
    engine = lg.Engine(two_layers(), plain())
    history = engine.keep_messages()
    engine.apply(edge(3, 4))
    with engine.what_if(edge(5, 4)):
        pass
    updates = lg.Updates()
    updates.set_features(3, np.full(4, 1e12))
    with pytest.raises(lg.errors.RangeOverflow):
        engine.apply(updates)
    assert len(history) == 1
    found = engine.contributions(4)
    assert found.change.version == 1
    assert_sums(found)
    engine.apply(edge(6, 4))
    (change,) = engine.contributions(4).change.aggregations
    assert [u for w, u in zip(change.why, change.vertices.tolist(), strict=True) if w == ("added",)] == [6]


def test_an_answer_reads_no_more_edges_than_it_may():
    graph = plain()
    engine = lg.Engine(two_layers(), graph)
    engine.keep_messages()
    engine.apply(edge(3, 4))
    count = int((graph.edges()["dst"] == 4).sum())
    reads = count + (count - 1) + count  # now, before and after
    assert len(engine.contributions(4, edges_max=reads).aggregations[0]) == count
    with pytest.raises(UsageError, match=f"up to {reads - 1} edges"):
        engine.contributions(4, edges_max=reads - 1)
    with pytest.raises(UsageError, match=f"up to {reads} edges"):
        engine.contributions(4, hops=2, edges_max=reads)


def named(change):
    return dict(zip(change.vertices.tolist(), change.why, strict=True))


def test_a_vertex_in_the_slot_of_another_keeps_its_own_name():
    ids = np.arange(100, 105)
    graph = lg.Graph(normal(0, 5, 4).astype(np.float32), ids[:2], ids[[3, 3]], ids=ids)
    engine = lg.Engine(two_layers(), graph)
    engine.keep_messages()
    slot = graph.to_slots([100]).tolist()
    updates = lg.Updates()
    updates.remove_vertex(100)
    updates.add_vertex(200, np.ones(4, np.float32))
    updates.add_edge(200, 103)
    engine.apply(updates)
    assert graph.to_slots([200]).tolist() == slot
    (change,) = engine.contributions(103).change.aggregations
    assert {k: v for k, v in named(change).items() if k != 101} == {100: ("removed",), 200: ("added",)}
    updates = lg.Updates()  # in one batch two vertices come to the slot, of which one goes again
    updates.remove_vertex(200)
    updates.add_vertex(300, np.ones(4, np.float32))
    updates.remove_vertex(300)
    updates.add_vertex(400, np.full(4, 2, np.float32))
    updates.add_edge(400, 103)
    engine.apply(updates)
    assert graph.to_slots([400]).tolist() == slot
    (change,) = engine.contributions(103).change.aggregations
    assert {k: v for k, v in named(change).items() if k != 101} == {200: ("removed",), 400: ("added",)}


def test_a_removed_vertex_keeps_its_type():
    rates = ("user", "rates", "item")
    rows = {"user": normal(1, 3, 3).astype(np.float32), "item": normal(2, 2, 3).astype(np.float32)}
    graph = lg.Graph(rows, {rates: [0, 1]}, {rates: [0, 0]})
    x = ir.Input(3)
    users, items = ir.OfType(x, 0, 3), ir.OfType(x, 1, 3)
    summed = ir.Propagate(users, relation=0, target=1)
    model = lg.Model.from_output(
        ir.ByType((users, ir.Concat((summed, items)))), vertex_types=("user", "item"), edge_types=(rates,)
    )
    engine = lg.Engine(model, graph)
    engine.keep_messages()
    updates = lg.Updates()
    updates.remove_vertex(1, vertex_type="user")
    engine.apply(updates)
    (change,) = engine.contributions(0, vertex_type="item").change.aggregations
    assert (change.vertices.tolist(), change.types, change.why) == ([1], ("user",), (("removed",),))
