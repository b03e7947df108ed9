"""The client against a real service, and against one that fails on purpose."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import livegnn as lg
from livegnn.client import ChangeEvent, MissedEvent, RetryPolicy, UpdateList
from livegnn.client.events import EventReader
from livegnn.errors import (
    Overloaded,
    ServiceError,
    UsageError,
    ValueInvalid,
    VersionPending,
    VertexUnknown,
    WorkerUnavailable,
)
from livegnn.serve.envelope import Refused
from livegnn.serve.json_bodies import OPERATIONS, updates_of
from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import service
from tests.unit.deployment.world import deployment, edge, model, prepared

QUICK = RetryPolicy(attempts=4, first_s=0.01, longest_s=0.02)
CHANGES = {"ping_ms": 100}


@contextmanager
def served(tmp_path, changes=CHANGES, **config):
    prepared(tmp_path)
    with ExitStack() as stack:
        live = stack.enter_context(deployment(tmp_path, changes=changes, **config))
        yield live, stack.enter_context(background_app(service(live), for_others=False))


def test_a_client_loads_neither_numpy_nor_the_compiled_module():
    program = """
import sys, livegnn.client, livegnn as lg
lg.Client("http://localhost:1").close()
lg.AsyncClient("http://localhost:1")
lg.errors.ValueInvalid("x")
print([name for name in ("livegnn." + "_core", "livegnn._native", "numpy", "torch", "msgspec") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


def test_names_of_the_top_level_come_at_their_first_use():
    program = """
import livegnn as lg
assert set(lg.__all__) <= set(dir(lg))
for name in lg.__all__:
    assert getattr(lg, name) is getattr(lg, name)
try:
    lg.no_such_name
except AttributeError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "module 'livegnn' has no attribute 'no_such_name'\n"), run.stderr


def test_both_clients_have_the_same_verbs():
    verbs = [name for name in vars(lg.Client) if not name.startswith("_") and name != "close"]
    assert len(verbs) >= 14
    for name in verbs:
        one, other = (inspect.signature(getattr(each, name)) for each in (lg.Client, lg.AsyncClient))
        assert one.parameters.keys() == other.parameters.keys()
        assert [str(each) for each in one.parameters.values()] == [str(each) for each in other.parameters.values()]


def test_updates_are_those_that_the_service_takes():
    updates = UpdateList()
    for op in OPERATIONS:
        assert list(inspect.signature(getattr(updates, op)).parameters) == list(OPERATIONS[op])
    updates.add_edge(1, 2, weight=0.5, time=3, edge_type=("a", "to", "b"), edge_attr=[1.0]).remove_edge(1, 2, time=3)
    updates.set_edge_attr(1, 2, [0.5])
    updates.remove_edges_before(7).set_weight(1, 2, 0.25).set_features(1, (1, 2)).add_vertex(3, [0]).remove_vertex(3)
    assert len(updates_of(updates.items, 100)) == len(updates) == 8


def test_times_may_be_dates():
    graph = lg.Graph(np.zeros((2, 1), np.float32), [0], [1], time=[0])
    dates = ("2026-03-01", "2026-03-01T00:00:01Z", "2026-03-01T01:00:01.5+01:00")
    items = [{"op": "add_edge", "u": 0, "v": 1, "time": date} for date in dates]
    graph.apply(updates_of(items, 9))
    second = 1_000_000
    day = 20_513 * 86_400 * second
    assert graph.edges()["time"].tolist() == [0, day, day + second, day + 3 * second // 2]
    for wrong in ("March", "", "1772323200", "20260301"):
        with pytest.raises(Refused, match="expected time of add_edge in update 0 as an integer or a date"):
            updates_of([{"op": "add_edge", "u": 0, "v": 1, "time": wrong}], 9)


@pytest.mark.parametrize(("unit", "number"), [("ns", 10**9), ("s", 1), ("us", 10**6), (None, 10**6)])
def test_dates_count_in_the_unit_of_the_graphs_times(unit, number):
    times = np.zeros(1, np.int64 if unit is None else f"datetime64[{unit}]")
    graph = lg.Graph(np.zeros((2, 1), np.float32), [0], [1], time=times)
    assert graph.host.time_unit == unit
    graph.apply(updates_of([{"op": "add_edge", "u": 0, "v": 1, "time": "1970-01-01T00:00:01"}], 9, unit))
    assert graph.edges()["time"].tolist() == [0, number]


@pytest.mark.parametrize(
    ("unit", "date"), [("D", "2026-03-01T12:00"), ("s", "2026-03-01T12:00:00.5"), ("ns", "9999-01-01")]
)
def test_a_date_that_the_unit_does_not_hold_is_refused(unit, date):
    with pytest.raises(Refused, match=f"the unit of the graph's times, holds, got {date}"):
        updates_of([{"op": "add_edge", "u": 0, "v": 1, "time": date}], 9, unit)


def test_every_verb_says_what_the_engine_says(tmp_path):
    sampler = {"name": "near", "query": lg.query().out().sample(3).to_text()}
    readout = {"name": "all", "engine": "scores"}
    with served(tmp_path, sampler=[sampler], readout=[readout]) as (live, url), lg.Client(url) as client:
        engine = live.engine("scores")
        live.registry.add("fraud", model(3))
        updates = UpdateList().add_edge(4, 2).set_features(3, [1, 2, 3, 4]).remove_edge(4, 2).add_edge(4, 2)
        assert client.apply(updates, key="a") == (1, 4, False, 0)
        assert client.apply(updates, key="a") == (1, 4, True, 0)
        assert client.apply([{"op": "add_vertex", "u": 30, "x": [0, 0, 0, 1]}]).version == 2
        assert client.wait(2) == client.version() == client.health().version == 2
        assert client.ready()
        rows = client.embeddings([1, 30], at_least=2)
        assert rows[:3] == (2, "scores", "fraud/1")
        assert np.array_equal(np.float32(rows.rows), engine.embeddings([1, 30]))
        assert client.predict([1, 2]).predictions == engine.predict([1, 2]).tolist()
        pairs = [(1, 2), (3, 4)]
        assert np.float32(client.predict_edges(pairs).scores).tolist() == engine.predict_edges(pairs).tolist()
        said = client.what_if(UpdateList().set_features(1, [9, 9, 9, 9]), [1])
        assert said.now == client.predict([1]).predictions
        best = client.topk(1, k=3)
        assert len(best.vertices) == len(best.scores) == 3
        assert client.readout("all")["version"] == 2
        assert client.sample([1], features=False)["seeds"] == [1]
        assert client.models().engines == {"scores": "fraud/1"}
        assert client.swap("scores", "fraud/2").version == 3
        assert client.snapshot().version == 3
        assert client.version() == 3


def test_pipes_are_those_of_the_deployment(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"u": 1, "v": 2}\n')
    source = {"name": "files", "kind": "jsonl", "path": str(tmp_path / "in")}
    source["update"] = [{"op": "add_edge", "u": "u", "v": "v"}]
    sink = {"name": "out", "kind": "parquet", "path": str(tmp_path / "out")}

    async def pipes(url):
        async with lg.AsyncClient(url) as client:
            return await client.pipes()

    with served(tmp_path, source=[source], sink=[sink]) as (live, url), lg.Client(url) as client:
        live.wait(1, timeout=120)
        said = client.pipes()
        assert said.version == live.version == 1
        assert [(one["name"], one["kind"], one["records"]) for one in said.sources] == [("files", "jsonl", 1)]
        assert [(one["name"], one["state"]) for one in said.sinks] == [("out", "running")]
        assert asyncio.run(pipes(url)).sources == said.sources


def test_the_same_with_asyncio(tmp_path):
    async def work(url, live):
        async with lg.AsyncClient(url) as client:
            assert (await client.apply(UpdateList().add_edge(4, 2))).version == 1
            assert await client.wait(1) == 1
            assert (await client.predict([1])).predictions == live.engine("scores").predict([1]).tolist()
            assert await client.ready()
            async with client.changes() as stream:
                assert stream.position == 1
                await client.apply(UpdateList().add_edge(5, 2))
                event = await anext(stream)
                assert (event.version, event.model) == (2, "fraud/1")
            found = [each async for each in taken(client.changes(after=0), 2)]
            assert found[0] == MissedEvent(1, 1, "ring")
            assert found[1].version == 2
            with pytest.raises(VertexUnknown):
                await client.predict([99])

    with served(tmp_path) as (live, url):
        asyncio.run(work(url, live))


async def taken(stream, count):
    async with stream:
        async for each in stream:
            yield each
            count -= 1
            if not count:
                return


def test_errors_are_those_of_the_engine(tmp_path):
    with served(tmp_path) as (_, url), lg.Client(url, retry=QUICK) as client:
        with pytest.raises(VertexUnknown, match="99"):
            client.predict([99])
        with pytest.raises(UsageError, match="engine among scores"):
            client.predict([1], engine="other")
        with pytest.raises(ServiceError, match="one kind") as refused:
            client.predict([1, "a"])
        assert (refused.value.kind, refused.value.status, refused.value.retryable) == ("BodyInvalid", 400, False)
        with pytest.raises(VersionPending):
            client.predict([1], at_least=9, timeout_ms=5)
        with pytest.raises(VersionPending):
            client.wait(9, timeout_s=0.02)
        with pytest.raises(ValueInvalid, match="column from 0 to 2"):
            client.changes(column=9)
        with pytest.raises(ValueInvalid):
            RetryPolicy(attempts=0)


def test_a_token_is_sent(tmp_path):
    token, sha256 = new_token()
    prepared(tmp_path)
    with deployment(tmp_path) as live:
        application = service(live, tokens=[AccessToken("reader", sha256)])
        with background_app(application, for_others=False) as url:
            with lg.Client(url, token) as client:
                assert client.predict([1]).version == 0
                with pytest.raises(ServiceError, match="scope write") as refused:
                    client.apply([{"op": "add_edge", "u": 1, "v": 2}])
                assert refused.value.kind == "ScopeMissing"
            with pytest.raises(ServiceError) as unknown, lg.Client(url) as client:
                client.predict([1])
            assert (unknown.value.kind, unknown.value.status) == ("TokenInvalid", 401)


def error(kind, retryable, message="[x] expected a, got b; c"):
    return json.dumps({"error": {"kind": kind, "message": message, "retryable": retryable}}).encode()


@contextmanager
def scripted(*answers):
    """A server that gives one answer after the other: (status, headers, body), or None to hang up."""
    seen, left = [], list(answers)

    class Script(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.append((self.path, dict(self.headers), body))
            next_one = left.pop(0)
            if next_one is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, body = next_one
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Script) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


APPLIED = (200, {}, b'{"version": 7, "updates": 1, "repeated": true, "of_a_newer_service": 1}')


def test_a_write_is_sent_again_with_its_key():
    again = (error("Overloaded", True), error("LogUnavailable", True))
    answers = (None, (429, {}, again[0]), (500, {}, again[1]), APPLIED)
    with scripted(*answers) as (url, seen), lg.Client(url, retry=QUICK) as client:
        assert client.apply([{"op": "add_edge", "u": 1, "v": 2}]) == (7, 1, True, -1)
    keys = {headers["Idempotency-Key"] for _, headers, _ in seen}
    assert (len(seen), len(keys), len({body for *_, body in seen})) == (4, 1, 1)


def test_attempts_end_and_the_last_error_is_raised():
    with scripted(*[(503, {}, error("Overloaded", True))] * 4) as (url, seen), lg.Client(url, retry=QUICK) as client:
        with pytest.raises(Overloaded):
            client.predict([1])
        assert len(seen) == 4


def test_what_has_no_key_and_what_is_wrong_is_sent_once():
    swap_lost, wrong = None, (422, {}, error("ValueInvalid", False))
    away = (503, {}, error("WorkerUnavailable", True))
    with scripted(swap_lost, away, wrong) as (url, seen), lg.Client(url, retry=QUICK) as client:
        with pytest.raises(ServiceError) as lost:
            client.swap("scores", "fraud/2")
        assert (lost.value.kind, lost.value.status) == ("Unreachable", None)
        with pytest.raises(WorkerUnavailable):
            client.repartition()
        with pytest.raises(ValueInvalid):
            client.apply([])
        assert len(seen) == 3


def test_it_waits_as_long_as_it_is_asked_to():
    with scripted((429, {"Retry-After": "1"}, error("Overloaded", True)), APPLIED) as (url, _):
        began = time.monotonic()
        with lg.Client(url, retry=QUICK) as client:
            client.apply([])
        assert time.monotonic() - began >= 1


def test_an_answer_of_another_program_is_an_error():
    with scripted((404, {}, b"<html>")) as (url, _):
        client = lg.Client(url)
        with pytest.raises(ServiceError, match="status 404 from another program"):
            client.models()
        client.close()


def test_nothing_at_an_address_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with lg.Client(f"http://127.0.0.1:{port}", retry=QUICK) as client:
        with pytest.raises(ServiceError, match="got none"):
            client.health()
        with pytest.raises(ServiceError):
            client.changes()


def sse(*events):
    return b"".join(b"id: %d\nevent: %s\ndata: %s\n\n" % each for each in events)


def change(version):
    data = {"version": version, "engine": "e", "model": "m/1", "changes": [[1, 0, 1]], "more": 0}
    return version, b"change", json.dumps(data).encode()


def test_a_stream_goes_on_where_it_was():
    first = sse((3, b"ping", b'{"version":3}'), change(4), change(6)) + b"id: 7\nevent: change\ndata: {"
    missed = (9, b"missed", b'{"from":7,"to":9,"resume":9,"reason":"ring"}')
    second = sse((6, b"ping", b'{"version":6}'), missed, change(11))
    gone = (422, {}, error("ValueInvalid", False))
    answers = [(200, {"Content-Length": "9999"}, first), (429, {}, error("SubscribersFull", True)), (200, {}, second)]
    with scripted(*answers, gone) as (url, seen), lg.Client(url, retry=QUICK) as client:
        stream = client.changes(flips=True, ids=["a,b", 2], above=0.5, after=3)
        assert stream.position == 3
        found = [next(stream) for _ in range(4)]
        assert [type(each) for each in found] == [ChangeEvent, ChangeEvent, MissedEvent, ChangeEvent]
        assert [found[0].version, found[1].version, found[2].last, found[3].version] == [4, 6, 9, 11]
        assert found[0].changes[0] == (1, 0, 1, None)
        with pytest.raises(ValueInvalid):
            next(stream)
    assert seen[0][0] == "/v1/changes?ids=a%2Cb&ids=2&above=0.5&from=3&flips=true"
    assert [headers.get("Last-Event-ID") for _, headers, _ in seen] == [None, "6", "6", "11"]


def test_a_stream_over_a_service_that_comes_back(tmp_path):
    prepared(tmp_path)
    with deployment(tmp_path, changes=CHANGES) as live:
        with background_app(service(live), for_others=False) as url:
            client = lg.Client(url, retry=RetryPolicy(attempts=20, first_s=0.05, longest_s=0.2))
            stream = client.changes()
            live.apply(edge(1, 2))
            assert next(stream).version == 1
        live.apply(edge(2, 3))
        port = int(url.rsplit(":", 1)[1])
        with background_app(service(live), port=port, for_others=False):
            live.apply(edge(3, 4))
            assert [next(stream).version for _ in range(2)] == [2, 3]
            stream.close()
            assert list(stream) == []
            client.close()


def test_a_stream_that_has_begun_outlasts_the_attempts():
    """A service that is away for longer than a request is tried, as over an upgrade."""
    first, second = sse((3, b"ping", b'{"version":3}'), change(4)), sse((4, b"ping", b'{"version":4}'), change(5))
    away = [None, (503, {}, error("Draining", True))] * QUICK.attempts
    with scripted((200, {}, first), *away, (200, {}, second)) as (url, seen), lg.Client(url, retry=QUICK) as client:
        stream = client.changes()
        assert [next(stream).version for _ in range(2)] == [4, 5]
        stream.close()
    assert {headers.get("Last-Event-ID") for _, headers, _ in seen[1:]} == {"4"}

    async def followed(url):
        async with lg.AsyncClient(url, retry=QUICK) as client:
            return [event async for event in taken(client.changes(), 2)]

    with scripted((200, {}, first), *away, (200, {}, second)) as (url, seen):
        assert [event.version for event in asyncio.run(followed(url))] == [4, 5]
        assert len(seen) == len(away) + 2


def test_changes_begin_before_the_call_returns(tmp_path):
    with served(tmp_path) as (live, url), lg.Client(url) as client:
        for _ in range(5):
            with client.changes() as stream:
                version = client.apply(UpdateList().add_edge(1, 2).set_features(2, [live.version, 0, 0, 1])).version
                assert next(stream).version == version
        assert live.version == 5


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_as_the_standard_says(size):
    text = (
        b": a comment\r\nid: 1\r\nevent: change\r\ndata: one\r\ndata:two\r\n\r\n"
        b"id: 5\n\n"  # moves the place, and is no event
        b"data\ndata: \xc3\xa9\nretry: 7\nunknown: x\n\n"
        b"id: 9\nevent: change\ndata: cut"
    )
    reader, found = EventReader(), []
    for first in range(0, len(text), size):
        found += reader.feed(text[first : first + size])
    assert found == [("change", "one\ntwo"), ("message", "\né")]
    assert reader.last_id == "5"
    reader.restart()
    assert list(reader.feed(b"data: x\n\n")) == [("message", "x")]
    assert reader.last_id == "5"


def test_explanations_and_indexes(tmp_path):
    with served(tmp_path, index=[{"name": "near", "engine": "scores"}]) as (live, url), lg.Client(url) as client:
        client.explain(2)
        version = client.apply(edges_of(4, 2)).version
        found = client.explain(2, hops=2, limit=3, at_least=version)
        assert (found.vertex, found.version, found.linear) == (2, version, True)
        assert found.change["version"] == version
        want = live.engine("scores").contributions(2)
        assert found.aggregations[0]["aggregate"] == want.aggregations[0].aggregate.tolist()
        assert client.explain(2, rows=False).aggregations[0]["aggregate"] is None
        near = client.topk(2, k=5, index="near", at_least=version, timeout_ms=60_000)
        assert (near.exact, near.version) == (False, version)
        assert near.recall >= 0.9
        assert near.vertices == client.topk(2, k=5, metric="cosine").vertices


def edges_of(u, v):
    updates = UpdateList()
    updates.add_edge(u, v)
    return updates
