"""A deployment whose workers are succeeded by others: batches, reads and snapshots go on, and so do its followers."""

from __future__ import annotations

import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import audit
from livegnn.deployment.filters import ChangeFilter
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.errors import UsageError, ValueInvalid
from livegnn.serve.runner import background_app
from livegnn.serve.service.app import service
from tests.serve.client import Client, error_of
from tests.unit.deployment.test_over_workers import CLUSTER, batch, crews, place  # noqa: F401
from tests.unit.deployment.world import abandon, deployment, edge, prepared

pytestmark = pytest.mark.usefixtures("crews")
PATH = "/v1/admin/repartition"


class Held:
    """Holds crews that are to take over: begun is set when the first is wanted; go has all be made."""

    def __init__(self, monkeypatch):
        self.begun, self.go, self.made = threading.Event(), threading.Event(), []
        another = ThreadCrew.another

        def waiting(crew, size, number):
            self.begun.set()
            assert self.go.wait(60)
            self.made.append(another(crew, size, number))
            return self.made[-1]

        monkeypatch.setattr(ThreadCrew, "another", waiting)


@pytest.fixture
def held(monkeypatch):
    one = Held(monkeypatch)
    yield one
    one.go.set()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(12) as threads:
        yield threads


@pytest.mark.parametrize("in_parts", [False, True])
def test_all_goes_on_while_other_workers_take_over(place, tmp_path, held, pool, in_parts):  # noqa: F811
    rng, snapshots = np.random.default_rng(3), {"in_parts": in_parts}
    config = {"cluster": CLUSTER, "snapshots": snapshots}
    with deployment(prepared(tmp_path / "other")) as wanted:
        live = deployment(place, **config).start()
        with live.hub.follow(ChangeFilter("scores")) as follow:
            rows = [live.engine("scores").embeddings(range(30))]

            def apply():
                updates = batch(rng)
                for each in (wanted, live):
                    each.apply(updates)
                rows.append(live.engine("scores").embeddings(range(30)))
                np.testing.assert_array_equal(rows[-1], wanted.engine("scores").embeddings(range(30)))

            apply()
            for workers in (2, 4):
                held.begun.clear()
                held.go.clear()
                running = pool.submit(live.repartition, "ldg", workers, "work")
                assert held.begun.wait(60)
                apply()
                assert live.snapshot().version == live.version
                apply()
                held.go.set()
                report = running.result(60)
                assert report[:2] == (workers, live.version)
                assert report.seconds > 0
                apply()
                assert live.cluster.workers == workers
                live.snapshot()
            span = follow.since(0)
            assert (span.floor, span.reached, len(span.versions)) == (0, 7, 7)  # no version is made, and none is lost
            for version in span.versions:
                (part,) = version.parts.values()
                np.testing.assert_array_equal(part.before, rows[version.version - 1][part.ids])
                np.testing.assert_array_equal(part.after, rows[version.version][part.ids])
        live.cluster.verify()
        digest = wanted.engine("scores").state_digest()
        assert live.engine("scores").state_digest() == digest
        abandon(live)
    assert not [one for one in audit.verify(place / "data", "", print) if one.fault]
    with deployment(place, **config) as again:  # the configuration decides
        assert again.cluster.workers == 3
        assert again.engine("scores").state_digest() == digest


def test_it_is_an_event(place, caplog):  # noqa: F811
    caplog.set_level(logging.INFO, logger="livegnn")
    with deployment(place, cluster=CLUSTER) as live:
        live.apply(edge(1, 2))
        report = live.repartition("hash", 2)
        (record,) = [one for one in caplog.records if getattr(one, "event", "") == "repartition"]
        assert record.fields == {"workers": 2, "version": 1, "seconds": report.seconds}
        assert record.getMessage().startswith("[repartition] 2 other workers took over by version 1, after 0.")


def test_it_is_refused_before_anything_has_begun(place, tmp_path, held):  # noqa: F811
    refused = pytest.raises(UsageError, match=r"\[repartition\] expected an engine over workers, got none; serve with")
    with deployment(prepared(tmp_path / "one")) as live, refused:
        live.repartition()
    live = deployment(place, cluster=CLUSTER).start()
    for kind, given in (
        (ValueInvalid, ("best",)),
        (UsageError, ("metis", 0)),
        (UsageError, ("ldg", 2, "vertices")),
        (UsageError, ("hash", 2, "work")),
    ):
        with pytest.raises(kind, match=r"\[repartition\] expected"):
            live.repartition(*given)
    live.close()
    with pytest.raises(UsageError, match=r"\[repartition\] expected an open deployment, got one that is closed"):
        live.repartition()
    assert not held.begun.is_set()


def test_two_at_once_come_one_after_the_other(place, held, pool):  # noqa: F811
    with deployment(place, cluster=CLUSTER) as live:
        first = pool.submit(live.repartition, "hash", 2)
        assert held.begun.wait(60)
        second = pool.submit(live.repartition, "hash", 4)
        time.sleep(0.1)
        assert not held.made
        held.go.set()
        assert (first.result(60).workers, second.result(60).workers) == (2, 4)
        assert live.cluster.workers == 4


@pytest.mark.parametrize("when", ["made", "started"])
def test_a_close_ends_one_that_is_under_way(place, held, pool, monkeypatch, when):  # noqa: F811
    started, call = threading.Event(), ThreadCrew.call

    def calling(crew, calls):
        if when == "started" and crew in held.made and calls[0][0] == "start_shuffled":
            started.set()
            while crew.workers[0] is not None:  # as a start that lasts, until its workers are gone
                time.sleep(0.01)
        return call(crew, calls)

    monkeypatch.setattr(ThreadCrew, "call", calling)
    live = deployment(place, cluster=CLUSTER).start()
    live.apply(edge(1, 2))
    running, waiting = (pool.submit(live.repartition, "hash", workers) for workers in (2, 4))
    assert held.begun.wait(60)
    if when == "started":
        held.go.set()
        assert started.wait(60)
    closing = pool.submit(live.close)
    if when == "made":
        time.sleep(0.2)
        assert not closing.done()  # no file may be written after it
        held.go.set()
    closing.result(60)
    for each, refusal in ((running, "an open cluster, got one that was closed"), (waiting, "an open deployment")):
        with pytest.raises(UsageError, match=rf"\[repartition\] expected {refusal}"):
            each.result(60)
    assert all(worker is None for crew in held.made for worker in crew.workers)
    with deployment(place, cluster=CLUSTER) as again:
        assert again.version == 1
        again.engine("scores").verify()


# ---- over HTTP


@contextmanager
def served(place):  # noqa: F811
    with ExitStack() as stack:
        live = stack.enter_context(deployment(place, cluster=CLUSTER))
        url = stack.enter_context(background_app(service(live), for_others=False))
        yield live, stack.enter_context(httpx.Client(base_url=url, timeout=60))


def samples(client):
    return {
        name: float(value) for name, value in re.findall(r"^(livegnn\S+) (\S+)$", client.get("/metrics").text, re.M)
    }


def test_the_route_and_what_metrics_and_the_page_say_of_another_number(place):  # noqa: F811
    with deployment(place, cluster=CLUSTER) as live:
        client = Client(app := service(live))
        live.apply(edge(1, 2))
        live.apply(edge(3, 4))
        before, stats = samples(client), client.get("/v1/stats").json()
        changed = before['livegnn_changed_outputs_total{engine="scores"}']
        assert sum(before[f'livegnn_worker_work_total{{worker="{k}"}}'] for k in range(3)) == changed > 0
        for workers in (5, 2):
            answer = client.post(PATH, {"partition": "ldg", "workers": workers})
            assert answer.status_code == 200, answer.text
            said = answer.json()
            assert (said["workers"], said["version"]) == (workers, 2)
            assert said["seconds"] > 0
            after = samples(client)
            for name in ("vertices", "ghosts", "edges", "sent_bytes_total", "work_total"):
                known = {key for key in after if key.startswith(f"livegnn_worker_{name}")}
                assert known == {f'livegnn_worker_{name}{{worker="{k}"}}' for k in range(workers)}
            assert sum(after[f'livegnn_worker_vertices{{worker="{k}"}}'] for k in range(workers)) == 30
            assert not [each for key, each in after.items() if "work_total" in key and each]  # a counter that begins
            assert after["livegnn_workers_ready"] == 1
            assert after['livegnn_changed_outputs_total{engine="scores"}'] == changed
            app.context.stats._sizes_at = app.context.stats._edges_due = 0.0  # as some seconds later
            now = client.get("/v1/stats").json()
            assert now["graph"] == stats["graph"]
            assert now["memory"] == {
                re.search('"(.*)"', key)[1]: size for key, size in after.items() if key.startswith("livegnn_bytes")
            }
        assert client.post(PATH, {}).json()["workers"] == 2
        assert client.post(PATH, {"workers": None, "balance": "work"}).json()["workers"] == 2


@pytest.mark.parametrize(
    "body",
    [
        {"partition": "best"},
        {"partition": [0, 1]},
        {"workers": 0},
        {"workers": 65},
        {"balance": "vertices"},
        {"parts": 2},
        [],
    ],
)
def test_a_wrong_body_is_refused(place, body, held):  # noqa: F811
    with deployment(place, cluster=CLUSTER) as live:
        assert error_of(Client(service(live)).post(PATH, body), 400)["kind"] == "BodyInvalid"
        assert not held.begun.is_set()


def test_an_engine_in_process_and_hash_by_work_are_409(place, tmp_path):  # noqa: F811
    with deployment(prepared(tmp_path / "one")) as live:
        said = error_of(Client(service(live)).post(PATH, {"workers": 2}), 409)
        assert said["message"].startswith("[repartition] expected an engine over workers, got none")
    with deployment(place, cluster=CLUSTER) as live:
        said = error_of(Client(service(live)).post(PATH, {"partition": "hash", "balance": "work"}), 409)
        assert "expected a partitioner that balances work" in said["message"]


def test_many_requests_leave_reads_their_threads(place, held, pool):  # noqa: F811
    with served(place) as (_, client):
        asked = [pool.submit(client.post, PATH, json={"partition": "hash", "workers": 2}) for _ in range(6)]
        assert held.begun.wait(60)
        time.sleep(0.2)
        update = {"updates": [{"op": "add_edge", "u": 1, "v": 2}]}
        assert client.post("/v1/updates", json=update, timeout=10).json()["version"] == 1
        assert client.post("/v1/predict", json={"ids": [1]}, timeout=10).json()["version"] == 1
        assert client.get("/metrics", timeout=10).status_code == 200
        assert client.get("/v1/stats", timeout=10).status_code == 200
        assert client.post("/v1/admin/snapshot", timeout=10).json()["version"] == 1
        assert not [each for each in asked if each.done()]
        held.go.set()
        assert {each.result(60).json()["workers"] for each in asked} == {2}
        assert len(held.made) == 6


def test_a_drain_does_not_wait_for_one_and_lets_none_begin(place, held, pool):  # noqa: F811
    with served(place) as (live, client):
        live.apply(edge(1, 2))
        running = pool.submit(client.post, PATH, json={"workers": 2, "partition": "hash"})
        assert held.begun.wait(60)
        assert client.post("/v1/admin/drain", timeout=10).json()["version"] == 1
        assert not running.done()
        assert error_of(client.post(PATH, json={}, timeout=10), 503)["kind"] == "Draining"
        held.go.set()
        assert running.result(60).json()["workers"] == 2
        assert client.get("/v1/predict?ids=1").json()["version"] == 1
    with deployment(place, cluster=CLUSTER) as again:
        assert (again.version, again.cluster.workers) == (1, 3)


def test_a_service_that_ends_meanwhile_answers_in_the_envelope(place, held, pool):  # noqa: F811
    live = deployment(place, cluster=CLUSTER).start()
    with background_app(service(live), for_others=False) as url, httpx.Client(base_url=url, timeout=60) as client:
        running = pool.submit(client.post, PATH, json={"workers": 2, "partition": "hash"})
        assert held.begun.wait(60)
        closing = pool.submit(live.close)
        time.sleep(0.1)
        held.go.set()
        closing.result(60)
        assert "got one that was closed" in error_of(running.result(60), 409)["message"]


def test_a_server_that_ends_does_not_wait_for_one(place, held, pool):  # noqa: F811
    live = deployment(place, cluster=CLUSTER).start()
    with httpx.Client(timeout=60) as client:
        with background_app(app := service(live), for_others=False) as url:
            asked = [pool.submit(client.post, url + PATH, json={"partition": "hash", "workers": k}) for k in (2, 4)]
            assert held.begun.wait(60)
            time.sleep(0.2)
            ending = time.monotonic()
        assert time.monotonic() - ending < 5
        assert {error_of(each.result(60), 503)["kind"] for each in asked} == {"Draining"}
    assert error_of(Client(app).post(PATH, {}), 503)["kind"] == "Draining"
    closing = pool.submit(live.close)
    held.go.set()
    closing.result(60)
    assert len(held.made) == 1  # the second one did not begin


def test_both_clients_ask_for_it_once(place):  # noqa: F811
    import asyncio

    async def asked(url):
        async with lg.AsyncClient(url) as client:
            return await client.repartition("ldg", workers=4)

    with deployment(place, cluster=CLUSTER) as live, background_app(service(live), for_others=False) as url:
        with lg.Client(url) as client:
            assert client.repartition("hash", 2)[:2] == (2, 0)
            assert client.repartition(balance="work").workers == 2
        assert asyncio.run(asked(url)).workers == live.cluster.workers == 4
