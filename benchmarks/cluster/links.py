"""A full mesh of sockets between plain processes, one part each: Unix sockets on one host, TCP between namespaces.

A parcel is its length and the time of sending, 8 bytes each, then its bytes. `delay_s` stands for the latency of a
link: no parcel is handed over sooner after it was sent. Both clocks must be one machine's.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import struct
import time
from pathlib import Path

_HEAD = struct.Struct("<qd")
_CLONE_NEWNET = 0x40000000
_STARTING_S = 120.0
_BUFFER_BYTES = 4 << 20  # or as much as the system allows
Address = str | tuple[str, int]  # a path, or host and port


def enter_namespace(name: str) -> None:
    """Moves this thread, and what it makes from now on, into a network namespace that `ip netns` has made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/var/run/netns", name).open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"[links] expected to enter the namespace {name}; run as root")


class Links:
    """The sockets of one part. Every part makes its own at the same time.

    Args:    addresses: of all parts.  delay_s: latency added to each parcel.
    """

    def __init__(self, part: int, addresses: list[Address], delay_s: float = 0.0) -> None:
        self.part, self.delay_s = part, delay_s
        self.sockets: dict[int, socket.socket] = {}
        listener = _listening(addresses[part], len(addresses))
        for peer in range(part):  # each part calls those before it
            self.sockets[peer] = _connected(addresses[peer])
            self.sockets[peer].sendall(bytes([part]))
        for _ in range(part + 1, len(addresses)):
            taken, _ = listener.accept()
            self.sockets[taken.recv(1)[0]] = taken
        listener.close()
        self._incoming = {peer: _Incoming() for peer in self.sockets}
        for each in self.sockets.values():
            if each.family == socket.AF_INET:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            else:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            each.setblocking(False)

    def swap(self, parcels: list[bytes]) -> list[bytes]:
        """Sends a parcel to each part and returns theirs."""
        got = [b""] * len(parcels)
        now = time.monotonic()
        latest = now
        left = {to: [memoryview(_HEAD.pack(len(parcels[to]), now)), memoryview(parcels[to])] for to in self.sockets}
        with selectors.PollSelector() as ready:
            for peer, each in self.sockets.items():
                _send(each, left[peer])
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if left[peer] else 0)
                ready.register(each, wanted, peer)
            waits = len(self.sockets)
            while waits or any(left.values()):
                for key, _ in ready.select():
                    peer, each = key.data, self.sockets[key.data]
                    _send(each, left[peer])
                    if not got[peer] and (whole := self._incoming[peer].take_from(each)) is not None:
                        got[peer], sent_at = whole
                        latest = max(latest, sent_at)
                        waits -= 1
                    _watch(ready, each, peer, bool(left[peer]), not got[peer])
        if self.delay_s:
            while time.monotonic() < latest + self.delay_s:
                pass  # a sleep oversleeps by more than what is measured
        return got

    def meet(self) -> None:
        """Returns when all parts have come here."""
        self.swap([b"-"] * (len(self.sockets) + 1))

    def close(self) -> None:
        """Ends all connections."""
        for each in self.sockets.values():
            each.close()


class _Incoming:
    """What comes from one part. A parcel that comes before its round stays in the socket."""

    def __init__(self) -> None:
        self._buffer = bytearray(_HEAD.size)  # as long as the longest parcel, so that its pages stay
        self._have, self._length, self._sent_at = 0, -1, 0.0  # no length: of the head

    def take_from(self, each: socket.socket) -> tuple[bytes, float] | None:
        """The next parcel and when it was sent, once it is whole."""
        while True:
            missing = (_HEAD.size if self._length < 0 else self._length) - self._have
            if missing and not self._take_bytes(each, missing):
                return None
            if missing:
                continue
            self._have = 0
            if self._length >= 0:
                length, self._length = self._length, -1
                return bytes(memoryview(self._buffer)[:length]), self._sent_at
            self._length, self._sent_at = _HEAD.unpack_from(self._buffer)
            if self._length > len(self._buffer):
                self._buffer = bytearray(self._length)

    def _take_bytes(self, each: socket.socket, most: int) -> bool:
        try:
            count = each.recv_into(memoryview(self._buffer)[self._have :], most)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionError("[links] expected a parcel, got the end of the connection; see the other process")
        self._have += count
        return True


def _watch(ready: selectors.PollSelector, each: socket.socket, peer: int, sends: bool, reads: bool) -> None:
    wanted = (selectors.EVENT_WRITE if sends else 0) | (selectors.EVENT_READ if reads else 0)
    if wanted:
        ready.modify(each, wanted, peer)
    else:
        ready.unregister(each)


def _send(to: socket.socket, pieces: list[memoryview]) -> None:
    """Takes from the front of the pieces what the socket takes."""
    while pieces:
        try:
            sent = to.sendmsg(pieces)
        except BlockingIOError:
            return
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.pop(0))
        if pieces:
            pieces[0] = pieces[0][sent:]


def _listening(address: Address, count: int) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    made.listen(count)
    return made


def _connected(address: Address) -> socket.socket:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    end = time.monotonic() + _STARTING_S
    while True:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            made.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return made


def pin(core: int | None) -> None:
    """Keeps this process on one core, the core-th of those it may use."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
