"""A deployment over workers that fail: what it answers, and what its followers get."""

from __future__ import annotations

import time

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment.config import ChangesConfig
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.hub import Hub
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.errors import WorkerUnavailable
from tests.unit.deployment.changing import ChangingWorld
from tests.unit.deployment.test_over_workers import CLUSTER, crews, place  # noqa: F401
from tests.unit.deployment.world import deployment, edge


def gone():
    return WorkerUnavailable("[cluster] expected a worker, got none; reform the crew")


def failing(call, method, times):
    """A crew's call that fails so often for a method of its workers."""
    left = [None] * times

    def failing_call(calls):
        if calls[0][0] == method and left:
            left.pop()
            raise gone()
        return call(calls)

    return failing_call


def test_a_batch_after_a_failed_swap_is_not_lost(place, crews):  # noqa: F811
    with deployment(place, cluster=CLUSTER) as live:
        live.apply(edge(1, 2))
        crew = crews[-1]
        crew.keep = failing(crew.keep, "snapshot_of_swap", 5)
        with pytest.raises(WorkerUnavailable):
            live.swap("scores", "fraud/1")
        edges = live.cluster.edge_count
        answer = live.apply(edge(3, 4), key="mine")
        entries = list(live.log.read())
        assert live.cluster.edge_count == edges + 1, (answer, [len(e.updates) for e in entries])


def test_a_group_is_not_tried_one_by_one_while_workers_are_gone(place, crews):  # noqa: F811
    with deployment(place, cluster=CLUSTER) as live:
        crew, tried, off = crews[-1], [], [True]
        call = crew.call

        def failing(calls):
            if calls[0][0] == "hold" and off:
                tried.append(1)
                raise gone()
            return call(calls)

        crew.call = failing
        with live.graph.host.lock:  # they gather
            first = live.submit(edge(0, 1))
            time.sleep(0.1)
            futures = [live.submit(edge(1, 2)) for _ in range(10)]
        for future in [first, *futures]:
            with pytest.raises(WorkerUnavailable):
                future.result(30)
        off.clear()
        assert len(tried) <= 10, len(tried)


def test_routes_say_that_workers_do_not_answer(place, crews):  # noqa: F811
    from livegnn.serve.service.app import service
    from tests.serve.client import Client

    with deployment(place, cluster=CLUSTER) as live:
        client = Client(service(live))
        crew, off = crews[-1], [True]
        call = crew.call

        def failing(calls):
            if off:
                raise gone()
            return call(calls)

        crew.call = failing
        found = {
            "predict": client.post("/v1/predict", {"ids": [1]}).status_code,
            "updates": client.post("/v1/updates", {"updates": [{"op": "add_edge", "u": 1, "v": 2}]}).status_code,
            "metrics": client.get("/metrics").status_code,
            "stats": client.get("/v1/stats").status_code,
            "ready": client.get("/readyz").status_code,
        }
        off.clear()
        assert found == {"predict": 503, "updates": 503, "metrics": 200, "stats": 200, "ready": 200}


def test_a_follower_can_come_again_after_one_that_failed():
    worlds = ChangingWorld("text").with_engine(), ChangingWorld("text").with_workers(3)
    hubs = [Hub({"scores": world.engine}, lambda name: "fraud/1", ChangesConfig()) for world in worlds]
    crew = worlds[1].engine._crew._crew
    call = crew.call
    crew.call = failing(call, "keep_moves", 6)
    with pytest.raises(WorkerUnavailable):
        hubs[1].follow(ChangeFilter("scores"))
    crew.call = call
    follows = [hub.follow(ChangeFilter("scores")) for hub in hubs]
    for _ in range(20):
        for world in worlds:
            world.engine.apply(world.batch())
    want, got = (follow.since(0) for follow in follows)
    assert len(got.versions) == len(want.versions), (got.floor, got.reason, len(got.versions), len(want.versions))
    for mine, other in zip(got.versions, want.versions, strict=True):
        for key in other.parts:
            assert set(other.parts[key].ids.tolist()) <= set(mine.parts[key].ids.tolist()), mine.version


def test_followers_miss_nothing_over_a_repartition():
    world = ChangingWorld("text").with_workers(3)
    hub = Hub({"scores": world.engine}, lambda name: "fraud/1", ChangesConfig())
    follow = hub.follow(ChangeFilter("scores"))
    for _ in range(3):
        world.engine.apply(world.batch())
    world.engine.repartition("ldg")
    for _ in range(3):
        world.engine.apply(world.batch())
    span = follow.since(0)
    assert (span.floor, len(span.versions)) == (0, 6), span[1:]


def test_another_driver_has_no_rows_of_the_first_ones_followers():

    world = ChangingWorld("text")
    crew = ThreadCrew(3)
    cluster = lg.Cluster(world.model, world.graph, 3, crew=crew, partition="hash", name="s", detached="x")
    cluster.keep_moves(1000)
    again = lg.Cluster.attach("x", crew=crew.taken_over())
    changes = again.apply(world.batch())
    assert changes.take_moves() is None


def test_repartition_of_a_deployment(place):  # noqa: F811
    with deployment(place, cluster=CLUSTER) as live:
        live.apply(edge(1, 2))
        live.cluster.repartition("ldg")
        live.apply(edge(1, 3))
        digest = live.engine("scores").state_digest()
    with deployment(place, cluster={"workers": 2}) as again:
        assert again.engine("scores").state_digest() == digest


def churn(world):
    updates, rng = lg.Updates(), world.rng
    of = {} if world.vertex_type is None else {"vertex_type": world.vertex_type}
    gone = []
    for _ in range(int(rng.integers(2, 9))):
        roll = rng.random()
        if roll < 0.35 and len(world.live) > 10:
            v = world.live.pop(int(rng.integers(len(world.live))))
            updates.remove_vertex(v, **of)
            gone.append(v)
        elif roll < 0.6 and gone:
            v = gone.pop()
            updates.add_vertex(v, rng.normal(size=4).astype(np.float32), **of)
            world.live.append(v)
        elif roll < 0.75:
            v, world.next = world.name(world.next), world.next + 1
            updates.add_vertex(v, rng.normal(size=4).astype(np.float32), **of)
            world.live.append(v)
        elif world.vertex_type is None:
            u, v = (world.live[i] for i in rng.integers(0, len(world.live), 2))
            updates.add_edge(u, v)
    if world.kind == "dense":  # no gaps: give back what is gone
        for v in gone:
            if rng.random() < 0.5:
                updates.add_vertex(v, rng.normal(size=4).astype(np.float32), **of)
                world.live.append(v)
    return updates


@pytest.mark.parametrize("kind", ["dense", "integer", "text", "typed"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_of_vertices_that_come_and_go(kind, seed):
    world = ChangingWorld(kind, seed=seed).with_workers(3)
    hub = Hub({"scores": world.engine}, lambda name: "fraud/1", ChangesConfig(keep_versions=1000))
    follow = hub.follow(ChangeFilter("scores", vertex_type=world.vertex_type))
    rows = [world.rows()]
    for n in range(40):
        world.engine.apply(churn(world))
        if n % 10 == 7:
            world.engine._crew._crew.kill(1)
        rows.append(world.rows())
    span = follow.since(0)
    assert (span.floor, span.reached) == (0, 40), span[1:]
    by = {v.version: v for v in span.versions}
    for version in range(1, 41):
        before, after = rows[version - 1], rows[version]
        part = by[version].parts.get(world.vertex_type) if version in by else None
        seen = {}
        if part is not None:
            ids = part.ids.tolist()
            assert len(set(ids)) == len(ids), (version, ids)
            for at, v in enumerate(ids):
                seen[v] = (None if part.is_new[at] else part.before[at], None if part.is_gone[at] else part.after[at])
        for v in before.keys() | after.keys():
            b, a = before.get(v), after.get(v)
            if v in seen:
                for got, want in zip(seen[v], (b, a), strict=True):
                    assert (got is None) == (want is None), (version, v)
                    if want is not None:
                        np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_array_equal(b, a, err_msg=f"{v} at version {version}")


def test_it_closes_though_no_worker_answers(place, crews):  # noqa: F811
    live = deployment(place, cluster=CLUSTER).start()
    live.apply(edge(1, 2))
    live.hub.follow(ChangeFilter("scores"))
    crew, tried = crews[-1], []

    def gone(*_):
        tried.append(1)
        raise WorkerUnavailable("[cluster] expected a worker, got none; reform the crew")

    crew.call = crew.reform = gone
    live.close()
    assert tried
    assert not live.is_open
