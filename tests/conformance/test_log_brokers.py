"""What is particular to the logs on brokers: how far keys are known, limits, and streams that others touched."""

import asyncio
import itertools

import confluent_kafka
import nats
import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LogDamaged, ValueInvalid
from livegnn.log import UpdateLog, frame, open_log

_numbers = itertools.count()


@pytest.fixture(params=["nats", "kafka"])
def broker(request):
    return request.getfixturevalue({"nats": "nats_server", "kafka": "mock_kafka"}[request.param])


@pytest.fixture
def name():
    return f"broker-{next(_numbers)}"


def test_keys_are_known_for_so_many_entries(broker, name):
    url = broker.url(name)
    with open_log(url, keys_kept_max=3) as log:
        for i in range(5):
            assert log.append(b"x", key=f"k{i}") == i
        assert [log.append(b"x", key=f"k{i}") for i in (2, 3, 4)] == [2, 3, 4]
        assert log.append(b"y", expect=5) == 5
    with open_log(url, keys_kept_max=300) as log:
        assert [log.append(b"x", key=f"k{i}") for i in range(5)] == list(range(5))


def test_an_entry_above_the_limit_is_refused(mock_kafka, nats_server, name):
    logs = open_log(mock_kafka.url(name), entry_bytes_max=5000), open_log(nats_server.url(name))
    for log in logs:
        with log:
            with pytest.raises(ValueInvalid, match=r"expected an entry of at most \d+ bytes, got \d+; split the batch"):
                log.append(bytes(1 << 20))
            assert log.append(bytes(1000)) == 0


# ---- NATS


def with_jetstream(server, work):
    async def run():
        client = await nats.connect(server.url(""))
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_model_above_the_limit_is_refused(nats_server, name):
    wide = lg.Model([lg.layers.GCN(np.ones((300_000, 4), np.float32))])
    narrow = lg.Model([lg.layers.GCN(np.ones((1, 4), np.float32))])
    engine = lg.Engine(narrow, lg.Graph(np.eye(4, dtype=np.float32), [0], [1]))
    before = engine.state_digest()
    with UpdateLog(open_log(nats_server.url(name))) as log, log.attach(engine.graph):
        with pytest.raises(ValueInvalid, match=r"at most \d+ bytes, got \d+; .*max_payload .*\(a swapped model is one"):
            engine.swap(wide)
        assert (log.tail, engine.version, engine.state_digest()) == (0, 0, before)
        engine.swap(narrow)
        assert log.tail == 1


def test_a_stream_with_limits_is_refused(nats_server, name):
    limited = {"name": name, "subjects": [f"livegnn.log.{name}"], "max_msgs": 10}
    with_jetstream(nats_server, lambda stream: stream.add_stream(**limited))
    with pytest.raises(LogDamaged, match="no limits, got another"):
        open_log(nats_server.url(name))


def test_a_stream_that_lost_its_beginning_is_refused(nats_server, name):
    async def make(stream):
        await stream.add_stream(name=name, subjects=[f"livegnn.log.{name}"])
        for _ in range(3):
            await stream.publish(f"livegnn.log.{name}", b"x")
        await stream.purge_stream(name, seq=2)

    with_jetstream(nats_server, make)
    with open_log(nats_server.url(name)) as log, pytest.raises(LogDamaged, match="first message on, got it from seq"):
        _ = log.tail


def test_an_acknowledgement_that_was_lost(nats_server, name, monkeypatch):
    """The message is there, and the server has forgotten its id: the second try finds it at its place."""
    stream = {"name": name, "subjects": [f"livegnn.log.{name}"], "duplicate_window": 0.1}
    with_jetstream(nats_server, lambda jetstream: jetstream.add_stream(**stream))
    with open_log(nats_server.url(name)) as log:
        publish, tries = log._stream.publish, []

        async def lose(*args, **options):
            tries.append(await publish(*args, **options))
            await asyncio.sleep(0.5)
            raise nats.errors.TimeoutError

        async def lose_once(*args, **options):
            return await (publish if tries else lose)(*args, **options)

        monkeypatch.setattr(log._stream, "publish", lose_once)
        assert log.append(b"x") == 0
        assert len(tries) == 1
        assert log.append(b"y") == 1
        assert [entry.payload for entry in log.read()] == [b"x", b"y"]


def test_a_stream_of_the_log_cannot_be_purged(nats_server, name):
    with open_log(nats_server.url(name)) as log:
        log.append(b"x")
        with pytest.raises(nats.js.errors.APIError):
            with_jetstream(nats_server, lambda stream: stream.purge_stream(name))
        with pytest.raises(nats.js.errors.APIError):
            with_jetstream(nats_server, lambda stream: stream.delete_msg(name, 1))
        assert log.tail == 1


@pytest.mark.parametrize("count", [1, 20])
def test_a_message_of_somebody_else_is_refused(nats_server, name, count):
    with open_log(nats_server.url(name)) as log:
        log.append(b"x")
        with_jetstream(nats_server, lambda stream: stream.publish(f"livegnn.log.{name}", b"a message of others"))
        for _ in range(count):
            log.append(b"y")
        reader = log.read()
        assert next(reader).payload == b"x"
        with pytest.raises(LogDamaged, match=rf"^\[{name}, offset 1\] expected"):
            next(reader)


# ---- Kafka


def send(mock_kafka, name, *values):
    producer = confluent_kafka.Producer({"bootstrap.servers": mock_kafka.address, "log_level": 0})
    for value in values:
        producer.produce(name, value, partition=0)
    assert producer.flush(20) == 0


def test_records_for_a_place_that_was_taken_do_not_count(mock_kafka, name):
    """Late twins, and those of writers who were too slow, wherever they lie; log offsets go on without gaps."""
    url = mock_kafka.url(name)
    with open_log(url) as log:
        send(mock_kafka, name, frame.encode(7, "early", b"-"))
        for i in range(4):
            assert log.append(b"%d" % i, key=f"k{i}") == i
            send(mock_kafka, name, frame.encode(i, f"k{i}", b"late"), frame.encode(0, "slow", b"-"))
        with open_log(url) as again:
            for each in (log, again):
                assert each.tail == 4
                assert [(entry.offset, entry.payload) for entry in each.read()] == [(i, b"%d" % i) for i in range(4)]
                assert [entry.payload for entry in each.read(2, 1)] == [b"2"]
            assert again.append(b"1", key="k1") == 1
            assert again.append(b"4", expect=4) == 4
        assert log.append(b"5") == 5


def test_the_newest_record_proves_the_others(mock_kafka, name):
    with open_log(mock_kafka.url(name)) as log:
        for i in range(50):
            log.append(b"%d" % i)
    with open_log(mock_kafka.url(name)) as log:
        assert (log._scanned, log._passed_over) == (50, [])  # without reading them
        assert [entry.payload for entry in log.read(49)] == [b"49"]


def test_a_record_of_somebody_else_is_refused(mock_kafka, name):
    with open_log(mock_kafka.url(name)) as log:
        log.append(b"x")
        send(mock_kafka, name, b"a record of others")
        with pytest.raises(LogDamaged, match=rf"^\[{name}, offset 1\] expected"):
            _ = log.tail
        with pytest.raises(LogDamaged, match=r"offset 1\] expected"):
            open_log(mock_kafka.url(name))


def test_a_topic_that_lost_its_end_is_refused(mock_kafka, name, monkeypatch):
    with open_log(mock_kafka.url(name)) as log:
        for _ in range(3):
            log.append(b"x")
        assert log.tail == 3
        monkeypatch.setattr(log, "_end", lambda: 2)
        with pytest.raises(LogDamaged, match="expected at least 3 records, got 2: the topic has lost its end"):
            _ = log.tail
