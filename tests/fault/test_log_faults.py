"""Appenders and brokers that are killed at any moment: what was acknowledged is there, once."""

import subprocess
import sys
import threading
import time

import pytest

from livegnn.errors import LogUnavailable
from livegnn.log import open_log
from tests.brokers import NatsServer

APPENDER = """
import sys
from livegnn.log import open_log
with open_log(sys.argv[1]) as log:
    for i in range(int(sys.argv[2]), 1_000_000):
        offset = log.append(b"payload %d" % i, key=f"key-{i}")
        print(i, offset, flush=True)
"""


@pytest.fixture
def server(tmp_path):
    server = NatsServer(tmp_path / "jetstream")
    yield server
    server.kill()


def acknowledged_before_a_kill(url, first, count):
    """Appends from `first` on in another process, kills it after `count` acknowledgements, and returns all of them."""
    command = [sys.executable, "-c", APPENDER, url, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout.readlines()
    return dict(map(int, line.split()) for line in lines if line.endswith("\n"))


@pytest.mark.parametrize("kind", ["sqlite", "nats"])
def test_an_appender_killed_in_its_loop(kind, tmp_path, request):
    url = f"sqlite:{tmp_path}/history.db" if kind == "sqlite" else request.getfixturevalue("server").url("updates")
    acknowledged, following = {}, 0
    for count in (1, 37, 120):
        acknowledged |= acknowledged_before_a_kill(url, following, count)
        following = max(acknowledged) + 1  # the first that nobody heard of: it may be in the log, and is named again
    with open_log(url) as log:
        entries = list(log.read())
        assert [entry.offset for entry in entries] == list(range(log.tail))
        assert [entry.key for entry in entries] == [f"key-{i}" for i in range(log.tail)]
        assert [entry.payload for entry in entries] == [b"payload %d" % i for i in range(log.tail)]
        assert all(number == offset for number, offset in acknowledged.items())
        assert log.tail in (following, following + 1)  # the last one may have been written and not acknowledged
        assert log.append(b"payload %d" % following, key=f"key-{following}") == following


def test_a_nats_server_killed_and_restarted_during_appends(server):
    """Two appenders and a reader live through three kills of the server."""
    url, count, failures = server.url("updates"), 400, []
    acknowledged = {"a": [], "b": []}

    def append(writer):
        try:
            with open_log(url) as log:
                for i in range(count):
                    acknowledged[writer].append(log.append(f"{writer} {i}".encode()))
                    time.sleep(0.002)
        except BaseException as failure:  # shown by the test, in its own thread
            failures.append(failure)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in acknowledged]
    with open_log(url) as log:
        for thread in threads:
            thread.start()
        for done in (50, 250, 450):
            assert log.wait(done, timeout=60)
            server.kill()
            time.sleep(0.1)
            server.start()
            assert [entry.offset for entry in log.read(0, done)] == list(range(done))
        for thread in threads:
            thread.join()
        assert not failures
        found = [entry.payload.decode() for entry in log.read()]
    assert len(found) == 2 * count
    for writer, offsets in acknowledged.items():
        assert [found[offset] for offset in offsets] == [f"{writer} {i}" for i in range(count)]


def test_a_nats_server_that_stays_away(server):
    """Calls end with a retryable error, and the same key makes the append whole when the server is back."""
    with open_log(server.url("updates"), timeout_seconds_max=1.0) as log:
        assert log.append(b"a") == 0
        server.kill()
        with pytest.raises(LogUnavailable, match=r"expected an answer within 1\.0 s, got none") as away:
            log.append(b"b", key="k")
        assert away.value.retryable
        with pytest.raises(LogUnavailable):
            _ = log.tail
        server.start()
        deadline = time.monotonic() + 20
        while True:
            try:
                assert log.append(b"b", key="k") == 1
                break
            except LogUnavailable:
                assert time.monotonic() < deadline
        assert [entry.payload for entry in log.read()] == [b"a", b"b"]
