"""Letting go of old entries: what stays is as before, and what is gone is never taken for damage."""

import sqlite3

import pytest

from livegnn.errors import LogDamaged, UsageError, ValueInvalid
from livegnn.log import open_log

COUNT = 700  # more than are released at once


@pytest.fixture
def options(url):
    return {"releasable": True} if url.startswith("nats") else {}


def filled(url, options, count=COUNT):
    log = open_log(url, **options)
    for i in range(count):
        log.append(b"%d" % i, key=f"key-{i}")
    return log


def test_released_entries_are_gone_and_the_others_stay(url, options):
    if url.startswith("kafka"):
        pytest.skip("a topic keeps all: below")
    with filled(url, options) as log:
        assert (log.can_release, log.first) == (True, 0)
        assert log.release(600) == 600
        assert log.release(10) == 600
        with pytest.raises(UsageError, match="expected an offset from 600 on, got 3, whose entry was released"):
            next(log.read(3))
        assert log.append(b"more") == COUNT
    with open_log(url) as again:
        assert (again.first, again.tail, again.committed) == (600, COUNT + 1, COUNT)
        found = list(again.read(600))
        assert [entry.payload for entry in found] == [b"%d" % i for i in range(600, COUNT)] + [b"more"]
        assert [entry.key for entry in found][:-1] == [f"key-{i}" for i in range(600, COUNT)]
        assert again.append(b"x", key="key-650") == 650  # a key that is there
        if url.startswith("sqlite"):
            assert again.append(b"x", key="key-3") == COUNT + 1  # one that is known no more
        else:  # the server itself knows the keys of its last two minutes
            assert again.append(b"x", key="another") == COUNT + 1
        assert again.release(again.tail) == COUNT + 1  # the newest one stays
        assert again.append(b"y", expect=COUNT + 2) == COUNT + 2
        assert [entry.offset for entry in again.read(COUNT + 1)] == [COUNT + 1, COUNT + 2]


def test_what_cannot_be_released(url, options):
    with filled(url, options, 3) as log:
        with pytest.raises(ValueInvalid):
            log.release(-1)
        if log.can_release:
            with pytest.raises(UsageError, match="expected an offset up to 3, got 4"):
                log.release(4)
        else:
            with pytest.raises(UsageError, match="expected a log that can let go of entries, got a KafkaLog"):
                log.release(2)
        assert (log.first, [entry.payload for entry in log.read()]) == (0, [b"0", b"1", b"2"])


def test_a_stream_that_was_made_without_keeps_all(nats_server):
    with open_log(nats_server.url("keeps")) as log:
        log.append(b"a")
        assert not log.can_release
        with pytest.raises(UsageError, match="NatsLog that keeps all"):
            log.release(1)


@pytest.mark.parametrize("more", [1, 5])
def test_an_sqlite_log_that_lost_more_than_it_released_is_damaged(tmp_path, more):
    url = f"sqlite:{tmp_path}/history.db"
    with filled(url, {}, 20) as log:
        log.release(10)
    with sqlite3.connect(tmp_path / "history.db") as database:
        database.execute("DELETE FROM log_updates WHERE offset < ?", (10 + more,))
    with open_log(url) as log, pytest.raises(LogDamaged, match="offset 10"):
        list(log.read(10))


def test_two_logs_of_one_file_release_by_themselves(tmp_path):
    with (
        filled(f"sqlite:{tmp_path}/a.db?name=One", {}, 9) as one,
        filled(f"sqlite:{tmp_path}/a.db?name=two", {}, 9) as two,
    ):
        one.release(4)
        assert (one.first, two.first) == (4, 0)
        assert [entry.payload for entry in two.read(0, 2)] == [b"0", b"1"]
    with open_log(f"sqlite:{tmp_path}/a.db?name=ONE") as one:
        assert one.first == 4


def test_a_stream_that_lost_more_than_it_released_is_damaged(nats_server):
    with filled(nats_server.url("short"), {"releasable": True}, 9) as log:
        log.release(4)
        log._ask("purge", lambda: log._stream.purge_stream(log.name, seq=7))
        with pytest.raises(LogDamaged, match="expected the stream from sequence 5 on, got it from sequence 7"):
            _ = log.tail
