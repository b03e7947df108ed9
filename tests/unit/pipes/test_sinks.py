"""Sinks: what changed goes to webhooks, files and brokers, at least once and in order; and back in from brokers."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

pytest.importorskip("msgspec")

from livegnn.deployment import audit
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.pipes import pipes
from tests.brokers import KafkaGate, MockKafka, NatsServer
from tests.unit.deployment.world import abandon, edge
from tests.unit.pipes.flowing import EDGE, flowing, pairs, run_dry, until


class Hook:
    """A webhook that fails as often as it is asked to, and keeps what it took."""

    def __init__(self):
        self.taken, self.failures, self.headers = [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = outer.failures.pop(0) if outer.failures else 200
                if status == 200:
                    outer.taken.append(body)
                    outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(status)
                if status == 429:
                    self.send_header("retry-after", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/alerts"

    @property
    def events(self):
        return [event for body in self.taken for event in json.loads(body)["events"]]


@pytest.fixture
def hook():
    one = Hook()
    yield one
    one.server.shutdown()
    one.server.server_close()


def expected(one, versions, **filters):
    """What GET /v1/changes would list: changes by version."""
    follow = one.hub.follow(ChangeFilter(engine="scores", **filters))
    found = {}
    for k in range(versions):
        one.apply(edge(k % 30, (7 * k) % 30))
    from livegnn.deployment.pipes.events import change_events

    for version in follow.since(0).versions:
        for event in change_events(version, ChangeFilter(engine="scores", **filters), 10**6):
            found[version.version] = event.data["changes"]
    follow.close()
    return found


def by_version(events):
    found = {}
    for event in events:
        assert event["event"] == "change"
        found.setdefault(event["version"], []).extend(event["changes"])
    return {version: [tuple(each) for each in changes] for version, changes in found.items()}


def test_a_webhook_gets_every_change_signed_whatever_fails(tmp_path, hook, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", "s3cret")
    hook.failures += [500, 404, 429, 302, 503]
    sink = {"name": "t", "kind": "webhook", "url": hook.url, "secret_env": "HOOK_SECRET", "event_changes_max": 2}
    with flowing(tmp_path, sinks=[{**sink, "retry_ms_max": 50}]) as one:
        wanted = expected(one, 12)
        assert one.pipes.drain(60)
        (state,) = one.pipes.sinks
        assert (state.life, state.retries, state.version, state.lag) == ("running", 5, 12, 0)
    assert by_version(hook.events) == wanted
    keys = [(event["version"], event["part"]) for event in hook.events]
    assert keys == sorted(set(keys))
    for body, headers in zip(hook.taken, hook.headers, strict=True):
        seconds, digest = (each[each.index("=") + 1 :] for each in headers["livegnn-signature"].split(","))
        assert digest == hmac.new(b"s3cret", seconds.encode() + b"." + body, hashlib.sha256).hexdigest()


def test_filters_are_those_of_the_feed(tmp_path, hook):
    sink = {"name": "t", "kind": "webhook", "url": hook.url, "flips": True, "class": 1, "ids": list(range(15))}
    with flowing(tmp_path, sinks=[sink]) as one:
        wanted = expected(one, 40, flips=True, of_class=1, ids=tuple(range(15)))
        assert one.pipes.drain(60)
    assert by_version(hook.events) == wanted
    assert wanted


def test_what_was_not_delivered_comes_after_a_crash(tmp_path, hook):
    """The target is away; the process is killed; the next one replays the log from a snapshot that is old enough."""
    sink = {"name": "t", "kind": "webhook", "url": hook.url, "retry_ms_max": 50}
    hook.failures += [500] * 10**6
    with flowing(tmp_path, sinks=[sink]) as one:
        wanted = expected(one, 6)
        one.snapshot()
        wanted_later = expected(one, 3)
        one.pipes.close()
        abandon(one)
    hook.failures.clear()
    with flowing(tmp_path, sinks=[sink]) as one:
        assert one.version == 9
        assert one.pipes.drain(60)
    assert by_version(hook.events) == wanted | wanted_later


def test_an_engine_that_went_and_came_while_a_sink_was_behind_is_back_by_an_entry(tmp_path, hook, monkeypatch):
    monkeypatch.setattr(pipes, "DRAIN_S", 0.1)
    both = [{"name": "scores", "model": "fraud"}, {"name": "late", "model": "fraud"}]
    sink = {"name": "t", "kind": "webhook", "url": hook.url, "engine": "scores", "retry_ms_max": 50}
    hook.failures += [500] * 10**6
    for engines, tail in ((both, 1), (both[:1], 2), (both, 4), (both, 5)):
        with flowing(tmp_path, sinks=[sink], snapshots={"keep": 9}, engine=engines) as one:
            one.apply(edge(1, 2))
            assert one.log.tail == tail
            assert one.pipes.sinks[0].version == 0
    assert not [each for each in audit.verify(tmp_path / "data") if each.fault]


def test_one_that_is_ahead_of_a_history_that_was_put_back_misses_nothing_of_what_comes(tmp_path, hook, caplog):
    sink = {"name": "t", "kind": "webhook", "url": hook.url}
    with flowing(tmp_path, sinks=[sink]) as one:
        expected(one, 6)
        assert one.pipes.drain(60)
    for each in (tmp_path / "data").iterdir():  # an older copy, without what the sinks know
        if each.name != "sinks":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    hook.taken.clear()
    with flowing(tmp_path, sinks=[sink]) as one:
        assert "expected version 0 or before, got version 6" in caplog.text
        wanted = expected(one, 3)
        assert one.pipes.drain(60)
        assert one.pipes.sinks[0].version == 3
    assert by_version(hook.events) == wanted


def test_one_that_falls_behind_the_ring_is_given_a_missed(tmp_path, hook):
    sink = {"name": "t", "kind": "webhook", "url": hook.url, "retry_ms_max": 50}
    hook.failures += [500] * 10**6
    with flowing(tmp_path, sinks=[sink], changes={"keep_versions": 3}) as one:
        one.apply(edge(1, 2))
        until(lambda: one.pipes.sinks[0].retries)
        for k in range(10):
            one.apply(edge(k, 2))
        hook.failures.clear()
        assert one.pipes.drain(60)
        assert one.pipes.sinks[0].missed == 1
    first, missed, *rest = hook.events
    assert first["version"] == 1
    assert (missed["event"], missed["from"], missed["reason"]) == ("missed", 2, "ring")
    assert [event["version"] for event in rest] == list(range(missed["resume"] + 1, 12))


def test_files_of_parquet_have_each_change_once(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    sink = {"name": "t", "kind": "parquet", "path": str(tmp_path / "out"), "row_change": True}
    with flowing(tmp_path, sinks=[sink]) as one:
        wanted = expected(one, 5)
        assert one.pipes.drain(60)
        one.pipes.close()
        (tmp_path / "data" / "sinks" / "t.json").write_text('{"version":1}')  # the file was written, its place not
        abandon(one)
    with flowing(tmp_path, sinks=[sink]) as one:
        one.apply(edge(3, 4))
        assert one.pipes.drain(60)
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {row["event"] for row in rows} == {"change"}
    keys = [(row["version"], row["vertex"]) for row in rows]
    assert len(keys) == len(set(keys))
    for version, changes in wanted.items():
        found = [(r["vertex"], r["before"], r["after"]) for r in rows if r["version"] == version]
        assert sorted(found) == sorted(tuple(each[:3]) for each in changes)
    assert all(np.isfinite(row["row_change"]) for row in rows)


# ---- brokers


def test_a_source_that_becomes_one_of_another_kind_begins_there(tmp_path):
    (tmp_path / "a.csv").write_text("from,to\n1,2\n3,4\n")
    with flowing(tmp_path, [{"name": "s", "kind": "csv", "path": str(tmp_path / "a.csv"), "update": [EDGE]}]) as one:
        assert run_dry(one)["s"].life == "ended"
    kafka = MockKafka()
    source = {"name": "s", "kind": "kafka", "url": kafka.url("incoming"), "update": [EDGE]}
    kafka.client.produce("incoming", b'{"from": 5, "to": 6}')
    kafka.client.flush(20)
    with flowing(tmp_path, [source]) as one:
        assert run_dry(one)["s"].life == "ended"
        assert pairs(one) == [(1, 2), (3, 4), (5, 6)]


def test_kafka_in_and_out(tmp_path):
    kafka = MockKafka()
    incoming, outgoing = kafka.url("incoming"), kafka.url("outgoing")
    for k in range(100):
        value = b"no json" if k % 10 == 3 else json.dumps({"from": k % 30, "to": 1}).encode()
        kafka.client.produce("incoming", value, partition=k % 2)
    kafka.client.flush(20)
    source = {"name": "s", "kind": "kafka", "url": incoming, "update": [EDGE], "batch": 7}
    sinks = [{"name": "t", "kind": "kafka", "url": outgoing}]
    for _ in range(2):  # a restart reads nothing twice
        with flowing(tmp_path, [source], sinks) as one:
            state = run_dry(one)["s"]
            assert state.life == "ended", state
            assert sorted(pairs(one)) == sorted((k % 30, 1) for k in range(100) if k % 10 != 3)
            assert one.pipes.drain(60)
            last = one.version
    assert len((tmp_path / "data" / "dead-letters.jsonl").read_text().splitlines()) == 10
    assert taken_by_kafka(kafka, "outgoing", last) == set(range(1, last + 1))


def taken_by_kafka(kafka, topic, last):
    """The versions of the changes in a topic, once the last one is there."""
    import confluent_kafka

    reader = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "g", "log_level": 0})
    reader.assign([confluent_kafka.TopicPartition(topic, part, 0) for part in range(4)])
    versions = set()
    until(lambda: last in versions or versions.update(_versions(reader.consume(100, 0.2))))
    reader.close()
    return versions


def _versions(messages):
    return {json.loads(each.value())["version"] for each in messages if each.error() is None}


def test_kafka_in_and_out_while_the_broker_goes_away(tmp_path):
    """The mock of librdkafka behind a gate: there is no broker to install."""
    kafka = MockKafka()
    gate = KafkaGate(kafka)

    def fill(first, last):
        for k in range(first, last):
            kafka.client.produce("incoming", json.dumps({"from": k % 30, "to": 1}).encode(), partition=k % 2)
        kafka.client.flush(20)

    often = {"reconnect.backoff.max.ms": 200}
    source = {"name": "s", "kind": "kafka", "url": gate.url("incoming"), "update": [EDGE], "batch": 7, "options": often}
    sink = {"name": "t", "kind": "kafka", "url": gate.url("outgoing"), "timeout_ms": 2000, "retry_ms_max": 200}
    fill(0, 40)
    with flowing(tmp_path, [source], [sink | {"options": often}], once=False) as one:
        until(lambda: len(pairs(one)) == 40)
        until(lambda: one.pipes.sinks[0].version == one.version)
        for round_ in range(2):
            gate.close()
            one.apply(edge(5, 6))
            until(lambda: one.pipes.sinks[0].life == one.pipes.sources[0].life == "waiting")
            assert "expected Kafka to take records" in one.pipes.sinks[0].error
            assert "expected Kafka with topic incoming" in one.pipes.sources[0].error
            fill(40 + 20 * round_, 60 + 20 * round_)
            gate.open()
            wanted = 60 + 20 * round_ + round_ + 1
            until(lambda wanted=wanted: len(pairs(one)) == wanted)
            until(lambda: one.pipes.sinks[0].version == one.version)
            until(lambda: one.pipes.sinks[0].life == one.pipes.sources[0].life == "running")
        version = one.version
    with flowing(tmp_path, [source], [sink]) as one:
        assert run_dry(one)["s"].life == "ended"
        assert sorted(pairs(one)) == sorted([(k % 30, 1) for k in range(80)] + [(5, 6)] * 2)
    assert taken_by_kafka(kafka, "outgoing", version) == set(range(1, version + 1))
    gate.close()


def test_nats_in_and_out_while_the_server_goes_away(tmp_path):
    import asyncio

    import nats

    server = NatsServer(tmp_path / "nats")

    async def fill(first, last):
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        stream = client.jetstream()
        if first == 0:
            await stream.add_stream(name="updates", subjects=["in.*"])
            await stream.add_stream(name="alerts", subjects=["out"])
        for k in range(first, last):
            await stream.publish("in.other", b"{}")
            await stream.publish("in.edges", json.dumps({"from": k % 30, "to": 1}).encode())
        await client.close()

    async def taken():
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        stream = client.jetstream()
        count = (await stream.stream_info("alerts")).state.messages
        found = [json.loads((await stream.get_msg("alerts", seq)).data) for seq in range(1, count + 1)]
        await client.close()
        return found

    try:
        asyncio.run(fill(0, 40))
        url = server.url("updates")
        source = {"name": "s", "kind": "nats", "url": url, "subject": "in.edges", "update": [EDGE], "batch": 7}
        sink = {"name": "t", "kind": "nats", "url": server.url("out"), "timeout_ms": 2000, "retry_ms_max": 200}
        with flowing(tmp_path, [source], [sink], once=False) as one:
            until(lambda: len(pairs(one)) == 40)
            server.kill()
            one.apply(edge(5, 6))
            until(lambda: one.pipes.sinks[0].retries)
            server.start()
            asyncio.run(fill(40, 60))
            until(lambda: len(pairs(one)) == 61)
            assert one.pipes.drain(60)
            version = one.version
        with flowing(tmp_path, [source], [sink]) as one:
            assert run_dry(one)["s"].life == "ended"
            assert sorted(pairs(one)) == sorted([(k % 30, 1) for k in range(60)] + [(5, 6)])
        events = asyncio.run(taken())
        keys = [(event["version"], event["part"]) for event in events]
        assert {each for each, _ in keys} == set(range(1, version + 1))
        assert len(keys) == len(set(keys))  # the server knows a message that comes again
    finally:
        server.kill()


def test_a_source_and_its_target_are_in_the_metrics_and_on_a_route(tmp_path, hook):
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("litestar")
    from livegnn.serve.runner import background_app
    from livegnn.serve.service.app import service

    (tmp_path / "a.csv").write_text("from,to\n1,2\n1,99\n")
    source = {"name": "s", "kind": "csv", "path": str(tmp_path / "a.csv"), "update": [EDGE]}
    with flowing(tmp_path, [source], [{"name": "t", "kind": "webhook", "url": hook.url}]) as one:
        run_dry(one)
        assert one.pipes.drain(60)
        with background_app(service(one), for_others=False) as url:
            found = httpx.get(f"{url}/v1/pipes").json()
            text = httpx.get(f"{url}/metrics").text
    (one_source,), (one_sink,) = found["sources"], found["sinks"]
    assert (one_source["state"], one_source["records"], one_source["bad"]) == ("ended", 2, 1)
    assert (one_sink["state"], one_sink["version"], one_sink["lag"]) == ("running", 1, 0)
    assert 'livegnn_source_bad_records_total{source="s"} 1' in text
    assert 'livegnn_sink_lag_versions{sink="t"} 0' in text
