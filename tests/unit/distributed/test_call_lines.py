"""CallServer and CallLines: every call is answered, whatever its size; who has gone, or is a stranger, is found out."""

import socket
import threading
import time

import numpy as np
import pytest

from livegnn.distributed.call_lines import CallLines, CallServer, LineRefused, WorkerGone
from livegnn.errors import InvariantBroken

LARGE = 3_000_001  # bytes; more than a socket takes at once


def echo(shared, own):
    return shared, own, threading.current_thread().name


@pytest.fixture
def servers():
    """Two that echo."""
    found = [CallServer("127.0.0.1", echo, repr) for _ in range(2)]
    yield found
    for each in found:
        each.close()


@pytest.fixture
def lines(servers):
    """A driver's, to both."""
    found = CallLines([each.place for each in servers], 5.0)
    yield found
    found.close()


def answers(asked):
    found = {}
    while asked.left:
        for rank in asked.ready(5.0):
            found[rank] = asked.take(rank)
    return [found[rank] for rank in sorted(found)]


@pytest.mark.parametrize("size", [0, 1, 65_536, LARGE])
def test_calls_of_any_size_are_answered_in_order(lines, size):
    for turn in range(5):
        shared, own = {"turn": turn, "bytes": bytes(size)}, [(0, bytes(size)), (1, b"")]
        assert [answer[:2] for answer in answers(lines.ask(shared, own))] == [(shared, mine) for mine in own]


@pytest.mark.parametrize("width", [0, 700])
def test_calls_of_more_pieces_than_a_system_takes_at_once(lines, width):
    shared, own = [np.full(width, turn) for turn in range(1200)], [np.arange(width), None]
    for (got, mine, _), sent in zip(answers(lines.ask(shared, own)), own, strict=True):
        assert all(map(np.array_equal, got, shared))
        assert np.array_equal(mine, sent)


def test_drivers_do_not_wait_for_each_other(servers, lines):
    with_another = CallLines([servers[0].place], 5.0)
    asked = lines.ask("one", ["a", "b"])
    assert answers(with_another.ask("other", ["c"]))[0][:2] == ("other", "c")
    assert [answer[1] for answer in answers(asked)] == ["a", "b"]
    with_another.close()


def test_an_answer_that_does_not_come_is_not_waited_for():
    may_answer = threading.Event()
    servers = [CallServer("127.0.0.1", echo, repr), CallServer("127.0.0.1", lambda *given: may_answer.wait(10), repr)]
    lines = CallLines([each.place for each in servers], 5.0)
    asked = lines.ask("now", [0, 1])
    assert asked.ready(5.0) == [0]
    asked.take(0)
    assert (asked.ready(0.05), asked.left) == ([], {1})
    asked.drop(1)
    assert not asked.left
    may_answer.set()
    lines.close()
    for each in servers:
        each.close()


def test_the_end_of_a_worker_is_its_answer():
    listener = socket.create_server(("127.0.0.1", 0))
    server = CallServer("127.0.0.1", echo, repr)
    lines = CallLines([server.place, server.place._replace(port=listener.getsockname()[1])], 5.0)
    gone, _ = listener.accept()
    asked = lines.ask(bytes(LARGE), [0, 1])  # the other one reads nothing of it
    gone.close()
    listener.close()
    until = time.monotonic() + 5
    while asked.ready(0.1) != [0, 1] and time.monotonic() < until:
        pass
    assert asked.take(0)[1] == 0
    with pytest.raises(WorkerGone):
        asked.take(1)
    lines.close()
    server.close()


@pytest.mark.parametrize("said", [b"", b"x", bytes(16)])
def test_a_stranger_gets_no_answer(servers, lines, said):
    with socket.create_connection((servers[0].place.host, servers[0].place.port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    assert len(answers(lines.ask(0, [0, 1]))) == 2


def test_a_server_that_was_closed_takes_no_more_drivers(servers, lines):
    assert len(answers(lines.ask(0, [0, 1]))) == 2  # they have come
    servers[0].close()
    with pytest.raises(LineRefused, match="refused"):
        CallLines([servers[0].place], 5.0)
    assert len(answers(lines.ask(0, [0, 1]))) == 2  # those that it has stay


def test_lines_that_were_dropped_end_their_threads(servers):
    lines = CallLines([servers[0].place], 5.0)
    (answer,) = answers(lines.ask(0, [0]))
    assert answer[2] == "call"
    before = sum(thread.name == "call" for thread in threading.enumerate())
    del lines
    until = time.monotonic() + 5
    while sum(thread.name == "call" for thread in threading.enumerate()) >= before and time.monotonic() < until:
        time.sleep(0.01)
    assert sum(thread.name == "call" for thread in threading.enumerate()) < before


def test_an_answer_or_a_call_that_cannot_be_pickled_is_an_answer():
    server = CallServer("127.0.0.1", lambda shared, own: own or threading.Lock(), lambda error: type(error).__name__)
    lines = CallLines([server.place], 5.0)
    assert answers(lines.ask(0, [None])) == ["TypeError"]
    assert answers(lines.ask(0, [Unreadable()])) == ["KeyError"]
    with pytest.raises(TypeError):
        lines.ask(0, [threading.Lock()])
    assert answers(lines.ask(0, ["own"])) == ["own"]  # nothing of the others went out
    lines.close()
    server.close()


class Unreadable:
    """What raises where it is read."""

    def __reduce__(self):
        return dict.__getitem__, ({}, "missing")


def test_a_call_after_one_that_was_given_up_is_refused():
    listener = socket.create_server(("127.0.0.1", 0))
    server = CallServer("127.0.0.1", echo, repr)
    lines = CallLines([server.place._replace(port=listener.getsockname()[1])], 5.0)
    lines.ask(bytes(100 * LARGE), [0])  # which is not read
    with pytest.raises(InvariantBroken):
        lines.ask(0, [0])
    lines.close()
    listener.close()
    server.close()


def test_a_worker_that_cannot_be_reached_is_named(servers):
    servers[1].close()
    with pytest.raises(LineRefused, match=r"cannot be reached at 127.0.0.1:\d+ \(.*refused") as refused:
        CallLines([each.place for each in servers], 5.0)
    assert refused.value.rank == 1


def test_hosts_may_be_of_ipv6():
    try:
        server = CallServer("::1", echo, repr)
    except OSError:
        pytest.skip("this host has no IPv6")
    lines = CallLines([server.place], 5.0)
    assert answers(lines.ask(1, [2]))[0][:2] == (1, 2)
    lines.close()
    server.close()
