"""GET /v1/changes on a real server, against an oracle: full predictions before and after each version."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import urlencode, urlsplit

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.deployment.config import ChangesConfig
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.hub import Hub
from livegnn.serve.limits import Limits
from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import service
from livegnn.serve.service.feed import ChangeFeed
from tests.unit.deployment.changing import ChangingWorld, expected, filters, same
from tests.unit.deployment.world import deployment, edge, graph, model, prepared

CHANGES = {"idle_s": 60, "ping_ms": 200}
NAMES = {"of_class": "class", "vertex_type": "type"}


class Kept:
    """Every version's rows, kept in the applying thread; and what they promise."""

    def __init__(self, live):
        self.live, self.engine = live, live.engine("scores")
        self.rows = {live.version: self.now()}
        self.engine.on_change(lambda changes: self.rows.__setitem__(changes.version, self.now()))

    def now(self):
        ids = self.live.graph.vertices()
        return dict(zip(ids.tolist(), self.engine.embeddings(ids), strict=True))

    def promised(self, wanted, after, upto):
        found = {v: expected(self.rows[v - 1], self.rows[v], wanted) for v in range(after + 1, upto + 1)}
        return {version: changes for version, changes in found.items() if changes}


@contextmanager
def served(tmp_path, world=None, limits=None, changes=CHANGES, begin=graph, **options):
    """A live deployment and the URL of its server."""
    if world is None:
        prepared(tmp_path)
        one = deployment(tmp_path, begin, changes=changes)
    else:
        Registry(tmp_path / "models").add("fraud", world.model)
        one = deployment(tmp_path, lambda: world.graph, changes=changes)
    with one as live, background_app(service(live, limits=limits, **options), for_others=False) as url:
        yield live, url


def path_of(wanted=None, **more):
    pairs = [(name, value) for name, value in more.items() if value is not None]
    for name in ChangeFilter.__dataclass_fields__ if wanted is not None else ():
        value = getattr(wanted, name)
        if name == "ids":
            pairs += [("ids", each) for each in value or ()]
        elif value is not None and value is not False:
            pairs.append((NAMES.get(name, name), str(value)))
    return "/v1/changes?" + urlencode([("from" if name == "after" else name, value) for name, value in pairs])


class Events:
    """Parses server-sent events by the letter of the standard."""

    def __init__(self):
        self.rest, self.last_id = b"", None

    def feed(self, piece):
        self.rest += piece
        while b"\n\n" in self.rest:
            block, _, self.rest = self.rest.partition(b"\n\n")
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
            self.last_id = int(fields[b"id"])
            yield fields[b"event"].decode(), self.last_id, json.loads(fields[b"data"])


@contextmanager
def following(url, path, **headers):
    """An iterator of the events of one stream."""
    with httpx.stream("GET", url + path, timeout=60, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield in_time(response.iter_raw(), Events())


def in_time(pieces, events, seconds=120):
    """Events; pings alone do not keep a test waiting."""
    began = time.monotonic()
    for piece in pieces:
        yield from events.feed(piece)
        assert time.monotonic() - began < seconds


def until(events, version):
    """Changes by version, up to one that has been passed."""
    found = {}
    for kind, at, data in events:
        assert kind in ("change", "ping"), data
        if kind == "change":
            assert at == data["version"] not in found
            assert (data["engine"], data["more"]) == ("scores", 0)
            found[at] = {change[0]: tuple(change[1:]) for change in data["changes"]}
        if at >= version:
            return found
    raise AssertionError("the stream has ended")


def check(found, promised):
    assert found.keys() == promised.keys()
    for version, changes in promised.items():
        same(found[version], changes)


async def follow_all(url, wanted, ready, last):
    """What each of many subscribers gets until all has come; `last` gives the last version, once it is known."""
    limits = httpx.Limits(max_connections=None)
    begun = 0

    async def one(client, each):
        nonlocal begun
        events, found = Events(), []
        async with client.stream("GET", url + path_of(each)) as response:
            assert response.status_code == 200, await response.aread()
            async for piece in response.aiter_raw():
                for kind, at, data in events.feed(piece):
                    if not found:
                        begun += 1
                        if begun == len(wanted):
                            ready.set()
                    found.append((kind, at, data))
                    if last and at >= last[0]:
                        return found
        raise AssertionError("the stream has ended")

    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        return await asyncio.gather(*(one(client, each) for each in wanted))


def many_filters(world, count):
    rng = np.random.default_rng(5)
    kinds = list(filters(world))
    for number in range(count):
        base = kinds[number % len(kinds)].__dict__ | {"min_change": None}
        if number % 3 == 0:
            base["min_change"] = float(np.round(rng.random(), 3))
        if number % 4 == 1:
            base["ids"] = tuple(sorted(world.name(i) for i in rng.choice(40, 5, replace=False).tolist()))
        if base["above"] is not None:
            base["above"] = float(np.round(0.2 + 0.6 * rng.random(), 3))
        yield ChangeFilter(**base)


@pytest.mark.parametrize("kind", ["dense", "text"])
def test_two_hundred_subscribers_get_what_full_predictions_say_under_concurrent_writes(tmp_path, kind):
    world = ChangingWorld(kind)
    wanted = list(many_filters(world, 200))
    with served(tmp_path, world) as (live, url):
        kept, ready, last, lock = Kept(live), threading.Event(), [], threading.Lock()

        def write():
            for _ in range(40):
                with lock:
                    future = live.submit(world.batch())
                future.result()

        def work():
            assert ready.wait(30)
            writers = [threading.Thread(target=write) for _ in range(3)]
            for each in writers:
                each.start()
            for each in writers:
                each.join()
            last.append(live.version)

        worker = threading.Thread(target=work)
        worker.start()
        found = asyncio.run(follow_all(url, wanted, ready, last))
        worker.join()
    assert live.version >= 40
    events = 0
    for each, got in zip(wanted, found, strict=True):
        assert got[0] == ("ping", 0, {"version": 0})
        check(until(iter(got), live.version), kept.promised(each, 0, live.version))
        events += len(got)
    assert events > 2000


def test_a_stream_goes_on_after_a_reconnect_without_gap_or_repetition(tmp_path):
    world = ChangingWorld("integer")
    wanted = ChangeFilter("scores", flips=True)
    with served(tmp_path, world) as (live, url):
        kept, found, at = Kept(live), {}, "0"
        with following(url, path_of(wanted)) as events:  # from here on versions are kept
            next(events)
        for _ in range(6):
            for _ in range(7):
                live.apply(world.batch())
            with following(url, path_of(wanted), **{"Last-Event-ID": at}) as events:
                while int(at) < live.version - 3:  # leaves in the middle
                    kind, version, data = next(events)
                    at = str(version)
                    assert kind in ("ping", "change")
                    if kind == "change":
                        assert version not in found
                        found[version] = {change[0]: tuple(change[1:]) for change in data["changes"]}
        with following(url, path_of(wanted, after=at)) as events:
            found |= until(events, live.version)
        check(found, kept.promised(wanted, 0, live.version))
        assert found


def test_versions_that_have_left_the_ring_are_named(tmp_path):
    with served(tmp_path, changes={**CHANGES, "keep_versions": 3}) as (live, url):
        kept = Kept(live)
        with following(url, path_of()) as events:
            next(events)
            for u in range(10):
                live.apply(edge(u, u + 1))
            with following(url, path_of(after=2)) as late:
                assert next(late) == ("ping", 2, {"version": 2})
                assert next(late) == ("missed", 7, {"from": 3, "to": 7, "resume": 7, "reason": "ring"})
                check(until(late, 10), kept.promised(ChangeFilter("scores"), 7, 10))


def test_a_subscriber_that_is_slow_misses_versions_by_name_and_no_others(tmp_path):
    """It does not read while versions pass; what it then reads has every version, or says that it does not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 4)).astype(np.float32)
    changes = {**CHANGES, "keep_versions": 20}
    with served(tmp_path, changes=changes, begin=lambda: lg.Graph(x, [0], [1])) as (live, url):
        kept, sock = Kept(live), connected(url)
        sock.sendall(b"GET /v1/changes HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head = sock.recv(200)
        every = np.arange(1000)
        for _ in range(400):
            updates = lg.Updates()
            updates.set_features(every, rng.normal(size=x.shape).astype(np.float32))
            live.apply(updates)
        assert live.hub.size[0] <= 20
        found, missed, at = {}, [], 0
        for kind, version, data in read_all(sock, head, live.version):
            if kind == "missed":
                assert (data["from"], data["to"]) == (at + 1, version)
                missed.append((at, version))
            elif kind == "change":
                found[version] = {change[0]: tuple(change[1:]) for change in data["changes"]}
            at = version
        sock.close()
    assert missed
    gone = {version for first, last in missed for version in range(first + 1, last + 1)}
    assert found.keys() | gone == set(range(1, live.version + 1))
    for version in list(found)[-50:]:
        check({version: found[version]}, kept.promised(ChangeFilter("scores"), version - 1, version))
    assert live.hub.missed == len(missed)


def connected(url):
    """A socket with a small buffer, so that what is not read stays with the server."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", urlsplit(url).port))
    sock.settimeout(20)
    return sock


def read_all(sock, begun, last):
    """Events of a chunked answer, until a version."""
    data, events = begun, Events()
    while b"\r\n\r\n" not in data:
        data += sock.recv(4096)
    data = data.partition(b"\r\n\r\n")[2]
    while True:
        while b"\r\n" in data:
            size, _, rest = data.partition(b"\r\n")
            if len(rest) < int(size, 16) + 2:
                break
            piece, data = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
            for event in events.feed(piece):
                yield event
                if event[1] >= last:
                    return
        data += sock.recv(65536)


def test_a_client_that_does_not_read_is_dropped_and_its_place_is_free(tmp_path):
    rng = np.random.default_rng(0)
    x, every = rng.normal(size=(1000, 4)).astype(np.float32), np.arange(1000)  # few versions fill the kernel's buffers
    with served(tmp_path, limits=Limits(answer_ms_max=300), begin=lambda: lg.Graph(x, [0], [1])) as (live, url):
        sock = connected(url)
        sock.sendall(b"GET /v1/changes?row_change=true HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
        eventually(lambda: live.hub.subscribers == 1)
        began = time.monotonic()
        while live.hub.subscribers and time.monotonic() - began < 30:
            updates = lg.Updates()
            updates.set_features(every, rng.normal(size=x.shape).astype(np.float32))
            live.apply(updates)
        assert live.hub.subscribers == 0
        metrics = httpx.get(url + "/metrics").text
        assert 'livegnn_connections_dropped_total{waited_for="answer"} 1' in metrics
        sock.close()


def eventually(true, seconds=10):
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)


def test_there_are_as_many_places_as_the_configuration_says(tmp_path):
    with served(tmp_path, changes={**CHANGES, "subscribers_max": 2}) as (live, url):
        with following(url, path_of()) as first, following(url, path_of()) as second:
            next(first), next(second)
            refused = httpx.get(url + path_of())
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["kind"] == "SubscribersFull"
            assert refused.json()["error"]["retryable"]
        eventually(lambda: live.hub.subscribers == 0)
        with following(url, path_of()) as third:
            next(third)


def test_streams_end_with_the_server(tmp_path):
    got = []
    with ExitStack() as server, ExitStack() as stream:
        live, url = server.enter_context(served(tmp_path))
        events = stream.enter_context(following(url, path_of()))
        assert next(events)[0] == "ping"
        reader = threading.Thread(target=lambda: got.extend(events))
        reader.start()
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 5
        reader.join(5)
        assert not reader.is_alive()
        assert live.hub.subscribers == 0
    assert {kind for kind, _, _ in got} <= {"ping"}


def test_a_swap_asks_to_read_anew_and_ends_streams_that_no_longer_fit(tmp_path):
    with served(tmp_path) as (live, url):
        narrow = lg.Model([lg.layers.SAGE(np.ones((2, 4)), np.ones((2, 4)))])
        live.registry.add("fraud", model(3))
        live.registry.add("fraud", narrow)
        with following(url, path_of()) as stays, following(url, path_of(column=2)) as ends:
            next(stays), next(ends)
            live.apply(edge(1, 2))
            for events in (stays, ends):
                assert next(each for each in events if each[0] != "ping")[:2] == ("change", 1)
            first = live.swap("scores", "fraud/2").version
            reason = {"from": 2, "to": first, "resume": first, "reason": "model"}
            for events in (stays, ends):
                assert next(each for each in events if each[0] != "ping") == ("missed", first, reason)
            second = live.swap("scores", "fraud/3").version
            for events in (stays, ends):
                assert next(each for each in events if each[0] != "ping")[:2] == ("missed", second)
            assert not list(ends)
            live.apply(edge(3, 4))
            change = next(each for each in stays if each[0] != "ping")
            assert (change[1], change[2]["model"]) == (second + 1, "fraud/3")
        refused = httpx.get(url + path_of(column=2))
        assert (refused.status_code, refused.json()["error"]["kind"]) == (422, "ValueInvalid")


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("engine=other", 409, "UsageError"),
        ("column=7", 422, "ValueInvalid"),
        ("above=0.5", 422, "ValueInvalid"),
        ("above=nan&column=0", 422, "ValueInvalid"),
        ("type=user", 422, "ColumnMissing"),
        ("output=other", 422, "ValueInvalid"),
        ("ids=ann", 400, "QueryInvalid"),
        ("ids=1,2", 400, "QueryInvalid"),
        ("from=-1", 400, "QueryInvalid"),
        ("timeout_ms=0", 400, "QueryInvalid"),
        ("abov=0.9", 400, "QueryInvalid"),
        ("flips=true&of_class=1", 400, "QueryInvalid"),
        ("flips=maybe", 400, "BodyInvalid"),
        ("at_least=9&timeout_ms=5", 504, "VersionPending"),
        ("from=9&timeout_ms=5", 504, "VersionPending"),
        ("&".join(["ids=1"] * 1025), 413, "TooMany"),
    ],
)
def test_bad_requests_are_refused_and_take_no_place(tmp_path, query, status, kind):
    with served(tmp_path) as (live, url):
        refused = httpx.get(f"{url}/v1/changes?{query}")
        assert (refused.status_code, refused.json()["error"]["kind"]) == (status, kind)
        assert httpx.get(f"{url}/v1/changes", headers={"Last-Event-ID": "x"}).status_code == 400
        assert live.hub.subscribers == 0


def test_a_misspelt_key_is_refused_by_its_name(tmp_path):
    with served(tmp_path) as (_, url), httpx.Client(base_url=url) as client:
        said = client.get("/v1/changes?abov=0.9&class=1").json()["error"]["message"]
        assert said.startswith("[query] expected keys from above, at_least, below, class, column,")
        assert said.endswith("in the query, got abov; correct the query")
        said = client.get("/v1/changes?above=0.9&class=fraud").json()["error"]["message"]
        assert said.startswith("[body] class: Expected `int | null`")
        assert "expected none in the query, got a" in client.get("/v1/models?a=1").json()["error"]["message"]
        assert client.get("/v1/explain/1?vertex=2").status_code == client.get("/v1/stats?before=1").status_code == 400
        assert client.get("/v1/explain/1?limit=2").status_code == client.get("/v1/stats?after=1").status_code == 200
        assert client.get("/healthz?a=1").status_code == 200


def test_a_stream_begins_where_it_is_asked_to(tmp_path):
    with served(tmp_path) as (live, url), following(url, path_of()) as events:
        next(events)
        for u in range(4):
            live.apply(edge(u, u + 1))
        with following(url, path_of(at_least=4)) as later:
            assert next(later) == ("ping", 4, {"version": 4})
        with following(url, path_of(after=2)) as back:
            assert set(until(back, 4)) == {3, 4}


def test_long_events_are_cut_and_say_so(tmp_path):
    with ExitStack() as stack:
        live, url = stack.enter_context(served(tmp_path, changes={**CHANGES, "event_changes_max": 2}))
        events = stack.enter_context(following(url, path_of(row_change=True)))
        next(events)
        live.apply(edge(1, 2))
        kind, _, data = next(events)
        assert (kind, len(data["changes"])) == ("change", 2)
        assert 0 < data["more"] < 30
        assert all(len(change) == 4 and change[3] > 0 for change in data["changes"])


def test_a_token_needs_the_scope_read(tmp_path):
    token, sha256 = new_token()
    with served(tmp_path, tokens=[AccessToken("reader", sha256)]) as (_, url):
        assert httpx.get(url + path_of()).status_code == 401
        with following(url, path_of(), authorization=f"Bearer {token}") as events:
            assert next(events)[0] == "ping"


def test_the_shadow_of_an_engine_can_be_followed(tmp_path):
    prepared(tmp_path)
    config = {"engine": [{"name": "scores", "model": "fraud", "shadow": "fraud"}]}
    with ExitStack() as stack:
        live = stack.enter_context(deployment(tmp_path, **config))
        url = stack.enter_context(background_app(service(live), for_others=False))
        events = stack.enter_context(following(url, path_of(engine="scores.shadow")))
        next(events)
        live.apply(edge(1, 2))
        assert next(events)[2]["engine"] == "scores.shadow"


def test_a_stream_ends_with_its_engine_and_the_next_one_follows_the_new_engine():
    shared, layer = graph(), lg.layers.GCN(np.ones((3, 4)))
    engines = {"scores": lg.Engine(lg.Model([layer]), shared)}
    hub = Hub(engines, lambda name: "fraud/1", ChangesConfig())

    def replaced():  # as with a shadow that is set aside, and is back
        with shared.host.lock:
            engines.pop("scores").close()
            hub.replaced("scores")
            engines["scores"] = lg.Engine(lg.Model([layer]), shared)
            hub.replaced("scores")

    async def ask():
        feed, wanted = ChangeFeed(hub), ChangeFilter(engine="scores")
        first = await feed.subscribe(wanted, None)
        assert b"ping" in await anext(first)
        replaced()
        pieces = [piece async for piece in first]
        first.close()
        second = await feed.subscribe(wanted, None)
        assert b"ping" in await anext(second)
        shared.apply(edge(1, 2))
        return pieces, await anext(second)

    pieces, change = asyncio.run(asyncio.wait_for(ask(), 120))
    assert not any(b"event: change" in piece for piece in pieces)
    assert b"event: change" in change
