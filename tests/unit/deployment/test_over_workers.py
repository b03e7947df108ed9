"""A deployment whose engine is over workers: the same bits, changes and files as one in this process."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry, audit, snapshots
from livegnn.deployment.config import ChangesConfig
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.hub import Hub
from livegnn.distributed import PartsWriter
from livegnn.distributed.cluster import cluster as over_workers
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.errors import UsageError, ValueInvalid
from tests.unit.deployment.changing import ChangingWorld
from tests.unit.deployment.world import ENGINES, abandon, deployment, edge, graph, model, prepared

CLUSTER = {"workers": 3, "partition": "hash"}


@pytest.fixture
def place(tmp_path):
    return prepared(tmp_path)


@pytest.fixture(autouse=True)
def crews(monkeypatch, caplog):
    """Workers are threads; all crews that were made."""
    made = []

    def crew(size, threads, timeout_s, *where):
        made.append(ThreadCrew(size, threads, timeout_s))
        return made[-1]

    monkeypatch.setattr(over_workers, "RayCrew", crew)
    caplog.set_level(logging.CRITICAL, logger="livegnn")
    return made


def batch(rng):
    updates = lg.Updates()
    for _ in range(int(rng.integers(1, 6))):
        updates.add_edge(*rng.integers(0, 30, 2).tolist())
    updates.set_features(int(rng.integers(30)), rng.normal(size=4).astype(np.float32))
    return updates


def test_it_has_the_bits_and_the_files_of_one_in_process(place, tmp_path, crews):
    other = prepared(tmp_path / "other")
    Registry(place / "models").add("fraud", model(2))
    Registry(other / "models").add("fraud", model(2))
    rng = np.random.default_rng(3)
    config = {"engine": [{"name": "scores", "model": "fraud/1"}]}
    wanted = deployment(other, **config).start()
    live = deployment(place, cluster=CLUSTER, **config).start()
    for number in range(12):
        updates = batch(rng)
        for each in (wanted, live):
            each.apply(updates, key=f"k{number}")
        if number == 4:
            assert [each.swap("scores", "fraud/2").version for each in (wanted, live)] == [6, 6]
        if number == 6:
            assert wanted.rescale("scores", 32.0) == live.rescale("scores", 32.0)
        if number == 8:
            live.snapshot()
            crews[-1].kill(1)
    digest = wanted.engine("scores").state_digest()
    assert live.engine("scores").state_digest() == digest
    assert live.models == wanted.models == {"scores": "fraud/2"}
    live.engine("scores").verify()
    abandon(live)  # as kill -9 leaves it
    wanted.close()

    for cluster in ({"workers": 2, "partition": "ldg"}, {"workers": 0}, {"workers": 1}):  # the folder goes on with each
        with deployment(place, cluster=cluster, **config) as again:
            assert again.engine("scores").state_digest() == digest
            assert again.apply(updates, key="k11").repeated
            again.apply(edge(1, 2))
            digest = again.engine("scores").state_digest()
    assert not [one for one in audit.verify(place / "data", "", print) if one.fault]
    assert snapshots.newest(place / "data").engines["scores"].entry.model == "fraud/2"


def same_rows(got, want):
    for mine, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("kind", ["dense", "integer", "text", "typed"])
def test_followers_see_the_rows_that_an_engine_in_process_moves(kind):
    worlds = ChangingWorld(kind).with_engine(), ChangingWorld(kind).with_workers(3)
    hubs = [Hub({"scores": world.engine}, lambda name: "fraud/1", ChangesConfig()) for world in worlds]
    wanted = ChangeFilter("scores", vertex_type=worlds[0].vertex_type)
    follows = [hub.follow(wanted) for hub in hubs]
    for number in range(60):
        if number == 40:
            for world, hub in zip(worlds, hubs, strict=True):
                world.engine.rescale()
                hub.switched("scores")
        for world in worlds:
            world.engine.apply(world.batch())
    (want, got), rows = (follow.since(0) for follow in follows), 0
    assert (len(want.versions), want.reason) == (20, "model")
    shift = got.versions[0].version - want.versions[0].version  # a rescale of a cluster is a version
    assert (got.floor - want.floor, got.reason, shift) == (1, "model", 1)
    for mine, other in zip(got.versions, want.versions, strict=True):
        assert mine.version - other.version == 1
        assert set(other.parts) <= set(mine.parts)
        for key, part in mine.parts.items():
            told = other.parts.get(key)
            extra = np.array([told is None or each not in told.ids.tolist() for each in part.ids.tolist()], bool)
            same_rows([part.before[extra]], [part.after[extra]])  # removed and added again, to the same bits
            if told is not None:
                same_rows([each[~extra] for each in part], told)
                rows += len(told.ids)
    assert rows > 50


def test_a_worker_that_is_lost_loses_no_follower_a_row(crews, place):
    with deployment(place, cluster=CLUSTER) as live, live.hub.follow(ChangeFilter("scores")) as follow:
        rng, engine = np.random.default_rng(5), live.engine("scores")
        rows = [engine.embeddings(range(30))]
        for _ in range(12):
            timer = threading.Timer(float(rng.random() * 0.004), crews[-1].kill, [int(rng.integers(3))])
            timer.start()
            live.apply(batch(rng))
            timer.join()
            rows.append(engine.embeddings(range(30)))
        span = follow.since(0)
        assert (span.floor, span.reached, len(span.versions)) == (0, 12, 12)
        for version in span.versions:
            (part,) = version.parts.values()
            np.testing.assert_array_equal(part.before, rows[version.version - 1][part.ids])
            np.testing.assert_array_equal(part.after, rows[version.version][part.ids])


def test_a_sink_gets_each_change_once_over_a_restart(place, tmp_path):
    out = tmp_path / "out"
    sink = {"name": "file", "engine": "scores", "kind": "parquet", "path": str(out)}
    config = {"cluster": CLUSTER, "sink": [sink]}
    rng = np.random.default_rng(1)
    first = deployment(place, **config).start()
    for _ in range(5):
        first.apply(batch(rng))
    abandon(first)
    with deployment(place, **config) as second:
        for _ in range(5):
            second.apply(batch(rng))
        second.engine("scores").verify()
    import pyarrow.parquet as pq

    versions = sorted({v for file in out.glob("*.parquet") for v in pq.read_table(file)["version"].to_pylist()})
    assert versions == list(range(1, 11))


def test_edges_expire_over_workers(tmp_path):
    rng = np.random.default_rng(1)

    def timed():
        src, dst = rng.integers(0, 30, 90), rng.integers(0, 30, 90)
        return lg.Graph(np.ones((30, 4), np.float32), src, dst, time=np.sort(rng.integers(0, 50, 90)), ttl=20)

    begin = timed()
    arrays = begin.to_arrays()
    states = []
    for name, cluster in (("one", {"workers": 0}), ("two", CLUSTER)):
        place = prepared(tmp_path / name)
        with deployment(place, lambda: lg.Graph.from_arrays(arrays), cluster=cluster) as live:
            for time in range(51, 70, 3):
                updates = lg.Updates()
                updates.add_edge(1, 2, time=time)
                live.apply(updates)
            edges = live.cluster.edge_count if live.cluster else live.graph.edge_count
            states.append((live.engine("scores").state_digest(), edges))
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"readout": [{"name": "mean", "engine": "scores"}]}, "readout"),
        ({"sampler": [{"name": "near", "query": "g.V(ID).OutV().sample(2).by('Random').values"}]}, "sampler"),
        ({"index": [{"name": "near", "engine": "scores"}]}, "index"),
        ({"engine": [{"name": "scores", "model": "fraud", "shadow": "fraud"}]}, "engine.shadow"),
        ({"engine": [{"name": "scores", "model": "fraud", "mode": "hybrid"}]}, 'engine.mode = "hybrid"'),
        ({"engine": [{"name": "scores", "model": "fraud", "state": "compact"}]}, 'engine.state = "compact"'),
        ({"engine": [{"name": "scores", "model": "fraud", "memory_limit": "1GiB"}]}, "engine.memory_limit"),
        ({"explain": {"record": "always"}}, 'explain.record = "always"'),
    ],
)
def test_what_needs_the_graph_in_this_process_is_refused_by_its_key(place, more, named):
    with pytest.raises(ValueInvalid, match=rf"cluster.workers = 3, got {named}"):
        deployment(place, cluster=CLUSTER, **more)
    assert not (place / "data").exists()


def test_two_engines_and_senseless_numbers_are_refused(place):
    two = {"engine": [{"name": name, "model": "fraud"} for name in ("a", "b")]}
    with pytest.raises(ValueInvalid, match=r"expected one engine with .*, got 2"):
        deployment(place, cluster=CLUSTER, **two)
    for workers in (-1, 65, "2"):
        with pytest.raises(ValueInvalid, match="workers"):
            deployment(place, cluster={"workers": workers})
        with pytest.raises(ValueInvalid, match="0 to 64 workers"):
            lg.Deployment({"models": str(place / "models"), **ENGINES}, place / "data", graph=graph, workers=workers)


def test_what_only_an_engine_in_process_can_answer_says_so(place):
    from livegnn.serve.service.app import service
    from tests.serve.client import Client, error_of

    with deployment(place, cluster=CLUSTER) as live:
        client = Client(service(live))
        live.apply(edge(1, 2))
        answer = client.get("/v1/explain/1")
        assert "expected an engine in this process, got one over 3 workers" in error_of(answer, 409)["message"]
        with pytest.raises(UsageError, match="over 3 workers"):
            live.explanations.of("scores", 1)


def test_the_routes_answer_as_those_of_one_in_process(place, tmp_path):
    from livegnn.serve.service.app import service
    from tests.serve.client import Client

    other = prepared(tmp_path / "other")
    with deployment(other) as one, deployment(place, cluster=CLUSTER) as live:
        clients = [Client(service(each)) for each in (one, live)]
        update = {"updates": [{"op": "add_edge", "u": 1, "v": 2}]}
        for status, path, body in (
            (200, "/v1/updates", update),
            (200, "/v1/embeddings", {"ids": [1, 2, 29]}),
            (200, "/v1/predict", {"ids": list(range(30)), "at_least": 1}),
            (200, "/v1/edges", {"pairs": [[1, 2], [3, 4]]}),
            (200, "/v1/what-if", {"ids": [2, 5], "updates": [{"op": "add_edge", "u": 7, "v": 5}]}),
            (404, "/v1/predict", {"ids": [12345]}),
            (200, "/v1/topk", {"vertex": 4, "k": 5, "at_least": 1}),
            (200, "/v1/topk", {"vertex": 1, "metric": "cosine", "linked": False}),
            (200, "/v1/topk", {"vertex": 4, "metric": "model", "k": 1000}),
            (200, "/v1/topk", {"row": [1, 0.5, -2], "metric": "l2"}),
            (404, "/v1/topk", {"vertex": 12345}),
            (422, "/v1/topk", {"row": [1, 0]}),
            (409, "/v1/topk", {"row": [1, 0, 0], "metric": "model"}),
            (409, "/v1/topk", {"vertex": 1, "index": "near"}),
            (200, "/v1/admin/swap", {"engine": "scores", "model": "fraud/1"}),
            (200, "/v1/predict", {"ids": [3]}),
        ):
            want, got = (client.post(path, body) for client in clients)
            assert (got.status_code, got.json()) == (want.status_code, want.json()), path
            assert got.status_code == status, got.text
        want, got = (client.get("/v1/stats").json() for client in clients)
        assert got["graph"] == want["graph"]
        assert set(got["memory"]) >= {"scores.outputs", "scores.graph"}
        text = clients[1].get("/metrics").text
        assert 'livegnn_worker_vertices{worker="2"}' in text
        assert "livegnn_worker" not in clients[0].get("/metrics").text


# ---- the graph in parts


def test_snapshots_in_parts_are_the_same_state(place, tmp_path):
    rng, parts = np.random.default_rng(3), {"in_parts": True, "every_entries": 0}
    live = deployment(place, cluster=CLUSTER, snapshots=parts).start()
    for number in range(9):
        live.apply(batch(rng), key=f"k{number}")
        if number in (3, 6):
            folder = live.snapshot().folder
            assert sorted(each.name for each in (folder / "graph").iterdir())[2:] == [
                f"share-{worker:06d}.npz" for worker in range(3)
            ]
    digest = live.engine("scores").state_digest()
    assert len(list((place / "data" / "workers").glob("*-part-*.npz"))) == 3  # a host may go with its object store
    abandon(live)
    assert not [one for one in audit.verify(place / "data", "", print) if one.fault]
    assert audit.restored(place / "data", tmp_path / "then", version=5) == 5

    share = folder / "graph" / "share-000001.npz"  # the newest snapshot is damaged
    share.write_bytes(share.read_bytes()[:-1])
    with deployment(place, cluster={"workers": 2}, snapshots=parts) as again:
        assert again.version == 9
        assert again.engine("scores").state_digest() == digest
        again.engine("scores").verify()
    with deployment(place, snapshots={"in_parts": False}) as alone:  # from parts, in this process
        assert alone.engine("scores").state_digest() == digest
        assert alone.apply(edge(1, 2), key="new").version == 10
        assert not alone.apply(edge(1, 2)).repeated
    assert not list((place / "data" / "snapshots").glob("*.part"))


def test_a_history_begins_with_a_graph_in_parts(tmp_path):
    rng = np.random.default_rng(5)
    x, src, dst = rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 30, 90), rng.integers(0, 30, 90)
    with PartsWriter(tmp_path / "parts") as writer:
        for first in range(0, 30, 10):
            writer.add_vertices(x[first : first + 10])
        for first in range(0, 90, 30):
            writer.add_edges(src[first : first + 30], dst[first : first + 30])
    wanted = lg.Engine(model(), lg.Graph(x, src, dst), threads=1)
    wanted.apply(edge(3, 4))
    for name, cluster in (("one", {"workers": 0}), ("two", {"workers": 3})):
        one = deployment(prepared(tmp_path / name), None, cluster=cluster, graph={"parts": str(tmp_path / "parts")})
        with one as live:
            live.apply(edge(3, 4))
            assert live.engine("scores").state_digest() == wanted.state_digest()


def test_parts_of_snapshots_want_workers(place):
    with pytest.raises(ValueInvalid, match=r"cluster\.workers above 0 with snapshots\.in_parts"):
        deployment(place, snapshots={"in_parts": True})
