"""ParcelLinks: every parcel comes, whatever its length; who has gone or is late is said."""

import itertools
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from livegnn.distributed.parcel_links import ParcelLinks, ParcelSocket, listener_at, wait_for
from livegnn.errors import WorkerUnavailable

LENGTHS = (0, 1, 7, 8, 4096, 3_000_001)  # the last one is more than a socket takes at once


@pytest.fixture(autouse=True)
def _closed(monkeypatch):
    """Every link of a test."""
    made, begin = [], ParcelLinks.__init__

    def beginning(link, *given):
        begin(link, *given)
        made.append(link)

    monkeypatch.setattr(ParcelLinks, "__init__", beginning)
    yield
    for each in made:
        each.close()


def mesh(size, timeout_s=5.0):
    sockets = [{} for _ in range(size)]
    for one, other in itertools.combinations(range(size), 2):
        sockets[one][other], sockets[other][one] = socket.socketpair()
    return [ParcelLinks(rank, each, timeout_s) for rank, each in enumerate(sockets)]


TOKEN = b"t" * 8


@contextmanager
def listening(size):
    """Listeners of so many workers, and where they listen."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(listener_at("127.0.0.1", size)) for _ in range(size)]
        yield listeners, [each.getsockname() for each in listeners]


def met(size):
    with listening(size) as (listeners, places), ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: ParcelLinks.meet(rank, listeners[rank], places, TOKEN, 5.0), range(size)))


def together(links, work):
    with ThreadPoolExecutor(len(links)) as pool:
        return list(pool.map(work, links))


def parcel(turn, source, to):
    return (bytes([turn, source, to, 0]) * 750_001)[: LENGTHS[(turn + 2 * source + 3 * to) % len(LENGTHS)]]


@pytest.mark.parametrize("make", [mesh, met])
def test_parcels_of_any_lengths_come_in_order(make):
    links = make(3)

    def talk(link):
        for turn in range(2 * len(LENGTHS)):
            got = link.swap([parcel(turn, link.rank, to) for to in range(link.size)])
            assert got == [parcel(turn, source, link.rank) for source in range(link.size)]
        return link.calls

    assert together(links, talk) == [2 * len(LENGTHS)] * 3


def test_a_worker_may_be_a_round_ahead():
    first, second = mesh(2)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(lambda: [first.swap([b"", bytes([turn])])[1] for turn in range(2)])
        assert second.swap([b"a", b""])[0] == b"\0"
        assert select.select([second._peers[0].socket], [], [], 5.0)[0]  # its second parcel is here
        assert second.swap([b"b", b""])[0] == b"\1"
        assert ahead.result() == [b"a", b"b"]


def test_one_worker_keeps_its_parcel():
    assert ParcelLinks(0, {}, 1.0).swap([b"mine"]) == [b"mine"]


def test_the_end_of_one_ends_the_wait_of_the_others():
    links = mesh(3, timeout_s=60)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(each.swap, [b"x"] * 3) for each in links[:2]]
        links[2].close()
        for each in waiting:
            with pytest.raises(WorkerUnavailable, match=r"^\[parcels\] expected all 3 workers, got one that has ended"):
                each.result()


def test_one_that_ends_within_a_parcel_is_gone():
    one, other = socket.socketpair()
    link = ParcelLinks(0, {1: one}, 60.0)
    other.sendall((5).to_bytes(8, "little") + b"abc")
    other.close()
    with pytest.raises(WorkerUnavailable):
        link.swap([b"", b""])


def test_one_that_sends_nothing_is_late():
    links = mesh(2, timeout_s=0.2)
    with pytest.raises(WorkerUnavailable, match="late"):
        links[0].swap([b"", b"x"])


def test_links_that_have_failed_fail_ever_after():
    links = mesh(2, timeout_s=0.1)
    for _ in range(2):
        with pytest.raises(WorkerUnavailable):
            links[0].swap([b"", b"x"])
    with pytest.raises(WorkerUnavailable):  # the other one does not wait
        links[1].swap([b"", b""])


def test_a_timeout_may_be_longer_than_the_system_can_wait():
    one, other = socket.socketpair()
    with one, other:
        other.sendall(b"x")
        assert wait_for([ParcelSocket(one)], [], 1e7)


def test_one_that_takes_nothing_is_late():
    one, other = socket.socketpair()
    other.sendall(bytes(8))  # an empty parcel, and no reading
    with other, pytest.raises(WorkerUnavailable, match="late"):
        ParcelLinks(0, {1: one}, 0.2).swap([b"", bytes(50_000_000)])


@pytest.mark.parametrize("said", [b"", b"x", b"u" * 8 + bytes([1]) + bytes(7), b"t" * 8 + bytes([9]) + bytes(7)])
def test_who_is_no_worker_is_let_go(said):
    """Nothing, too little, another group's token, no number of a worker: the workers meet all the same."""
    with listening(2) as (listeners, places), ThreadPoolExecutor(2) as pool:
        first = pool.submit(ParcelLinks.meet, 0, listeners[0], places, TOKEN, 5.0)
        with socket.create_connection(places[0]) as stranger:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            second = pool.submit(ParcelLinks.meet, 1, listeners[1], places, TOKEN, 5.0)
            links = [first.result(), second.result()]
    assert together(links, lambda link: link.swap([b"a", b"b"])) == [[b"a", b"a"], [b"b", b"b"]]


def test_one_that_does_not_come_is_missed():
    with (
        listening(2) as (listeners, places),
        pytest.raises(WorkerUnavailable, match=r"^\[parcels\] expected 2 workers to connect within 0.2 s, got "),
    ):
        ParcelLinks.meet(0, listeners[0], places, TOKEN, 0.2)


def test_one_that_does_not_listen_any_more_is_missed():
    with listening(2) as (listeners, places):
        listeners[0].close()
        with pytest.raises(WorkerUnavailable, match=r"to connect within 60 s, got .*refused"):
            ParcelLinks.meet(1, listeners[1], places, TOKEN, 60.0)
