"""What processes do in the tests of RayGroup: functions of a module, so that other processes find them."""

import gc
import os
import signal
import sys
import threading
import time
from functools import partial

import numpy as np

from livegnn.distributed.exchange import swap_bytes
from livegnn.errors import ValueInvalid


def talk(exchange, word):
    """Each worker sends every other one a few rows, of a length that says who sent them to whom."""
    size, rank = exchange.size, exchange.rank
    parts = [np.full((10 * rank + other, 2), rank, np.float32) for other in range(size)]
    got = exchange.swap(parts)
    lengths = [len(part) for part in got]
    assert lengths == [10 * other + rank for other in range(size)]
    assert all((part == other).all() and part.shape[1] == 2 for other, part in enumerate(got))
    assert [part.shape for part in exchange.swap([np.zeros((0, 3), np.int64)] * size)] == [(0, 3)] * size
    gathered = [int(part[0]) for part in exchange.gather(np.array([rank], np.int64))]
    import torch

    total = exchange.sum(torch.arange(3.0) + rank)
    return word, gathered, total.tolist(), torch.get_num_threads()


PARCELS = (0, 1, 503, 1008, 70_000)  # bytes


def swap_parcels(exchange, own, word):
    """swap_bytes() of an exchange."""
    check_parcels(exchange, partial(swap_bytes, exchange))
    return f"{own}{exchange.rank}{word}"


def swap_on_links(worker):
    """The same over the links; the workers on this one's host."""
    check_parcels(worker.links, worker.links.swap)
    return worker.near


def check_parcels(end, swap):
    """Each worker sends every other one parcels whose lengths and bytes say who sent them to whom, and when."""

    def parcel(turn, source, to):
        length = PARCELS[(3 * turn + 2 * source + to) % len(PARCELS)]
        return bytes([turn, source, to] * (length // 3 + 1))[:length]

    for turn in range(3 * len(PARCELS)):
        got = swap([parcel(turn, end.rank, to) for to in range(end.size)])
        assert got == [parcel(turn, source, end.rank) for source in range(end.size)], turn


def fail_in_one(exchange):
    """Worker 1 has a mistake while the others wait for it."""
    if exchange.rank == 1:
        raise ValueInvalid("[here] expected no mistake, got one; fix it")
    exchange.gather(np.zeros(1))


def be_killed(exchange):
    """Worker 0 is killed while the others wait for it."""
    if exchange.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    exchange.gather(np.zeros(1))


def break_in_one(exchange):
    """Worker 1 has a mistake that is none of livegnn's."""
    if exchange.rank == 1:
        _ = 1 // 0
    exchange.gather(np.zeros(1))


def with_exchange(worker, fn, *args):
    """fn(exchange, *args) in a worker of a group that trains."""
    return fn(worker.exchange, *args)


class OverLinks:
    """What a worker whose group has links alone can do of an Exchange."""

    def __init__(self, links):
        self.rank, self.size, self._links = links.rank, links.size, links

    def gather(self, part):
        return [np.frombuffer(each, part.dtype) for each in self._links.swap([part.tobytes()] * self.size)]


def over_links(worker, fn, *args):
    """fn(exchange, *args) in a worker of a cluster."""
    return fn(OverLinks(worker.links), *args)


def greet(exchange, word):
    """The numbers of all, as each says its own."""
    return word, [int(each[0]) for each in exchange.gather(np.array([exchange.rank]))]


def greet_later(exchange, word):
    """The same, after a while in which the driver waits for it."""
    time.sleep(0.5)
    return greet(exchange, word)


def has_torch(worker):
    """Whether the process has loaded it."""
    return "torch" in sys.modules


def has_sklearn(worker):
    return "sklearn" in sys.modules


def keep(worker, own, word):
    worker.kept["own"] = own
    return worker.rank, own, word


def collections(worker):
    return gc.isenabled(), gc.get_freeze_count()


def kept(worker):
    return worker.kept.get("own")


def wait_for(worker, own):
    """Aside: until a call keeps this."""
    while worker.kept.get("own") != own:
        time.sleep(0.01)
    return worker.rank, own


def fail_aside(worker):
    """Worker 1 has a mistake."""
    if worker.rank == 1:
        raise ValueInvalid("[aside] expected no mistake, got one; fix it")
    return worker.rank


def go_on(exchange):
    """For longer than any test waits, exchange by exchange."""
    for _ in range(6000):
        exchange.gather(np.zeros(1))
        time.sleep(0.01)


def fail_and_be_killed(exchange):
    """Worker 1 has a mistake; worker 0, which waits for it, is killed a moment later."""
    if exchange.rank == 1:
        raise ValueInvalid("[here] expected no mistake, got one; fix it")
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def hang_at_the_end(exchange):
    """Worker 1 goes on after the last exchange."""
    exchange.gather(np.zeros(1))
    if exchange.rank == 1:
        time.sleep(600)


def hang_in_one(exchange):
    """Worker 1 never comes."""
    if exchange.rank == 1:
        time.sleep(600)
    exchange.gather(np.zeros(1))


def unpicklable(worker):
    """What no other process can be given."""
    return threading.Lock()
