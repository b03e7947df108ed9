"""The hub against an oracle: all rows of each version compared with those of the version before."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment.config import ChangesConfig, ServerConfig
from livegnn.deployment.filters import ChangeFilter, ChangeTable
from livegnn.deployment.hub import Hub
from livegnn.errors import UsageError, ValueInvalid
from tests.unit.deployment.changing import ChangingWorld, expected, filters, same
from tests.unit.deployment.world import deployment, edge, model, prepared

KINDS = ("dense", "integer", "text", "typed")


def hub_of(world, **config):
    return Hub({"scores": world.engine}, lambda name: "fraud/1", ChangesConfig(**config))


@pytest.mark.parametrize(("kind", "width"), [*((kind, 3) for kind in KINDS), ("dense", 1)])
def test_filters_let_through_what_full_predictions_say(kind, width):
    world = ChangingWorld(kind, width=width).with_engine()
    hub = hub_of(world)
    wanted = list(filters(world))
    history = [world.rows()]
    with hub.follow(wanted[0]) as follow:
        for _ in range(60):
            world.engine.apply(world.batch())
            history.append(world.rows())
        span = follow.since(0)
        assert (span.floor, span.reached) == (0, 60)
    seen = 0
    for one in wanted:
        found = {version: {} for version in range(1, 61)}
        table = ChangeTable(span.versions, world.vertex_type, one.output)
        places = table.places(one)
        of_version = np.searchsorted(table.ends, places, side="right")
        for place, change in zip(of_version, table.changes(one, places), strict=True):
            found[table.versions[place].version][change[0]] = change[1:]
        for version, got in found.items():
            same(got, expected(history[version - 1], history[version], one))
            seen += len(got)
    assert seen > 200
    assert any(each is None for change in table.changes(wanted[0], table.places(wanted[0])) for each in change)
    hub.close()


def test_no_rows_are_kept_while_nobody_follows():
    world = ChangingWorld("dense").with_engine()
    kept = []
    world.engine.on_change(lambda changes: kept.append(changes.take_moves() is not None))  # before the hub takes them
    hub = hub_of(world, idle_s=0)
    world.engine.apply(world.batch())
    with hub.follow(ChangeFilter("scores")):
        world.engine.apply(world.batch())
    world.engine.apply(world.batch())  # ends the recording
    world.engine.apply(world.batch())
    assert (kept, hub.size) == ([False, True, True, False], (0, 0))


@pytest.mark.parametrize("kind", ["integer", "text", "typed"])
def test_ids_that_change_slots_within_a_batch_keep_their_rows(kind):
    world = ChangingWorld(kind).with_engine()
    of_type = {} if world.vertex_type is None else {"vertex_type": world.vertex_type}
    hub = hub_of(world)
    row = np.ones(4, np.float32)
    with hub.follow(ChangeFilter("scores", vertex_type=world.vertex_type)) as follow:
        before = world.rows()
        updates = lg.Updates()
        gone, back = world.name(3), world.name(4)
        for vertex in (gone, back):  # `back` then takes the slot of `gone`
            updates.remove_vertex(vertex, **of_type)
        updates.add_vertex(back, row, **of_type)
        for new in (world.name(30), world.name(31)):  # one in the other free slot, which comes and goes
            updates.add_vertex(new, row, **of_type)
        updates.remove_vertex(world.name(31), **of_type)
        world.engine.apply(updates)
        world.live = [each for each in world.live if each != gone] + [world.name(30)]
        after = world.rows()
        wanted = ChangeFilter("scores", vertex_type=world.vertex_type, column=1)
        table = ChangeTable(follow.since(0).versions, world.vertex_type, None)
        found = {change[0]: change[1:] for change in table.changes(wanted, table.places(wanted))}
        same(found, expected(before, after, wanted))
        assert found[gone][1] is None
        assert found[world.name(30)][0] is None
        assert None not in found[back]
    hub.close()


def test_an_engine_that_is_swapped_by_itself_says_so():
    world = ChangingWorld("dense").with_engine()
    hub = hub_of(world)
    with hub.follow(ChangeFilter("scores")) as follow:
        world.engine.apply(world.batch())
        world.engine.swap(ChangingWorld("dense", seed=4).model)
        world.engine.apply(world.batch())
        assert follow.since(1) == ([], 2, "model", 2)
        world.engine.apply(world.batch())
        assert [each.version for each in follow.since(2).versions] == [3]
    hub.close()


def test_versions_stay_for_one_that_comes_back_in_time():
    world = ChangingWorld("dense").with_engine()
    hub = hub_of(world)
    hub.follow(ChangeFilter("scores")).close()
    world.engine.apply(world.batch())
    with hub.follow(ChangeFilter("scores")) as follow:
        span = follow.since(0)
        assert (span.floor, span.reached, [each.version for each in span.versions]) == (0, 1, [1])
    hub.close()


@pytest.mark.parametrize("bound", [{"keep_versions": 3}, {"keep_bytes": 6000}])
def test_the_ring_is_bounded_and_says_from_where_it_knows(bound):
    world = ChangingWorld("dense").with_engine()
    hub = hub_of(world, **bound)
    with hub.follow(ChangeFilter("scores")) as follow:
        for _ in range(20):
            world.engine.apply(world.batch())
        span = follow.since(2)
        assert span.reason == "ring"
        assert 2 < span.floor < 20 == span.reached
        assert [each.version for each in span.versions] == list(range(span.floor + 1, 21))
        assert hub.size[0] <= 3 or hub.size[1] <= 6000
    hub.close()


def test_a_version_that_the_ring_cannot_hold_is_missed_and_not_read():
    world = ChangingWorld("dense").with_engine()
    hub = hub_of(world, keep_bytes=1)
    with hub.follow(ChangeFilter("scores")) as follow:
        world.engine.apply(world.batch())
        assert follow.since(0) == ([], 1, "size", 1)
    hub.close()


def test_pieces_of_the_ring_join_without_a_gap():
    world = ChangingWorld("dense").with_engine()
    hub = hub_of(world)
    with hub.follow(ChangeFilter("scores")) as follow:
        for _ in range(20):
            world.engine.apply(world.batch())
        at, versions = 0, []
        while at < 20:
            span = follow.ring.since(at, rows_max=1)
            versions += [each.version for each in span.versions]
            at = span.reached
        assert versions == list(range(1, 21))
        assert follow.since(3, upto=5).reached == 5
    hub.close()


def test_a_swap_and_a_rescale_ask_to_read_everything_again(tmp_path):
    place = prepared(tmp_path)
    with deployment(place) as open_one:
        open_one.registry.add("fraud", model(3))
        with open_one.hub.follow(ChangeFilter("scores")) as follow:
            open_one.apply(edge(1, 2))
            swapped = open_one.swap("scores", "fraud/2").version
            assert follow.since(1) == ([], swapped, "model", swapped)
            open_one.apply(edge(2, 3))
            assert [each.reference for each in follow.since(swapped).versions] == ["fraud/2"]
            rescaled = open_one.rescale("scores").version
            assert follow.since(swapped).floor == rescaled


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "other"}, "engine among scores"),
        ({"column": 3}, "column from 0 to 2, got 3"),
        ({"of_class": -1}, "class from 0 to 2"),
        ({"column": 1, "of_class": 1}, "got both"),
        ({"above": 0.5}, "column or class with a threshold"),
        ({"above": float("nan"), "column": 0}, "finite"),
    ],
)
def test_bad_filters_are_refused(wrong, message):
    hub = hub_of(ChangingWorld("dense").with_engine())
    with pytest.raises((UsageError, ValueInvalid), match=message):
        hub.follow(ChangeFilter(**{"engine": "scores", **wrong}))
    assert hub.size == (0, 0)


def test_an_engine_on_demand_is_refused():
    world = ChangingWorld("dense").with_engine()
    lazy = lg.Engine(world.model, world.graph, mode="on_demand", name="lazy")
    with pytest.raises(UsageError, match="expected an eager engine"):
        Hub({"lazy": lazy}, str, ChangesConfig()).follow(ChangeFilter("lazy"))


def test_the_defaults_leave_connections_beyond_the_subscribers():
    assert ServerConfig().connections_max > ChangesConfig().subscribers_max
