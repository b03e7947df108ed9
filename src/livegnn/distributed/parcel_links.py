"""ParcelLinks: workers that are processes send each other parcels of bytes, over a socket between each two of them.

For what workers send each other many times in a batch, and wait for. One thread sends and receives: a library that has
threads of its own for it takes several times as long where every core has work (docs/distributed.md, "A batch, round by
round").

A parcel is its length, 8 bytes, and its bytes. A worker is never more than one round ahead of another; what comes
before its round stays in the socket.
"""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import struct
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from livegnn.errors import InvariantBroken, WorkerUnavailable

Place: TypeAlias = tuple[str, int]  # host and port

_HEAD = struct.Struct("<q")
_RANK = struct.Struct("<q")
GREETING_S = 5.0  # for what another worker says first; who says nothing is none
_POLL_MS_MAX = (1 << 31) - 1
_PIECES_MAX = 512  # that a system takes at once
_KEPT_BYTES_MAX = 16 << 20
_BUFFER_BYTES = 4 << 20  # of a socket, or as much as the system allows


class ParcelSocket:
    """A connected socket that parcels go over, both ways. Nothing waits here: see wait_for().

    Raises:  OSError from any call once the other end has gone.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._unsent: list[memoryview] = []
        self._buffer = bytearray(_HEAD.size)  # as long as the longest parcel up to a limit, so that its pages stay
        self._have, self._length = 0, -1  # of what comes; no length: of the head
        weakref.finalize(self, connected.close)  # of a driver that is dropped
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # who waits for a host that is gone learns it
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:  # TCP finds its size itself
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)

    def send(self, *pieces: bytes | memoryview) -> bool:
        """Begins to send a parcel of these pieces, one after the other; without any it goes on with the one before.

        Returns: whether the socket has taken all.
        """
        if pieces and self._unsent:
            raise InvariantBroken("invariant broken: a parcel was begun before the one before it had gone")
        if pieces:
            views = [memoryview(each) for each in pieces]
            self._unsent = [memoryview(_HEAD.pack(sum(each.nbytes for each in views))), *views]
        while self._unsent:
            try:
                sent = self.socket.sendmsg(self._unsent[:_PIECES_MAX])
            except BlockingIOError:
                return False
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if self._unsent:
                self._unsent[0] = self._unsent[0][sent:]
        return True

    def take(self) -> bytes | None:
        """The next parcel, once it is whole."""
        while True:
            missing = (_HEAD.size if self._length < 0 else self._length) - self._have
            if missing and not self._take_bytes(missing):
                return None
            if missing:
                continue
            self._have = 0
            if self._length >= 0:
                length, self._length = self._length, -1
                parcel = bytes(memoryview(self._buffer)[:length])
                if length > _KEPT_BYTES_MAX:
                    self._buffer = bytearray(_HEAD.size)
                return parcel
            (self._length,) = _HEAD.unpack_from(self._buffer)
            if self._length > len(self._buffer):
                self._buffer = bytearray(self._length)

    def _take_bytes(self, most: int) -> bool:
        try:
            count = self.socket.recv_into(memoryview(self._buffer)[self._have :], most)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionResetError("the connection has ended")
        self._have += count
        return True

    def close(self) -> None:
        """Ends the connection. A second call does nothing."""
        self.socket.close()


def wait_for(to_read: Iterable[ParcelSocket], to_write: Iterable[ParcelSocket], timeout_s: float | None) -> bool:
    """Until one of these can go on. Returns: whether one can, within timeout_s; None: for as long as it takes."""
    events: dict[int, int] = {}
    for sockets, event in ((to_read, select.POLLIN), (to_write, select.POLLOUT)):
        for each in sockets:
            number = each.socket.fileno()
            events[number] = events.get(number, 0) | event
    poll = select.poll()
    for number, wanted in events.items():
        poll.register(number, wanted)
    return bool(poll.poll(None if timeout_s is None else min(timeout_s * 1000, _POLL_MS_MAX)))


def listener_at(host: str, backlog: int | None = None) -> socket.socket:
    """Listens at a port that the system chooses. host: of IPv4 or IPv6. Raises: OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=backlog)


def greeting(connected: socket.socket, count: int) -> bytes:
    """The first bytes that the other end says, or fewer where it ends. Raises: OSError where it takes its time."""
    until, said = time.monotonic() + GREETING_S, b""
    while len(said) < count:
        connected.settimeout(_left(until))
        piece = connected.recv(count - len(said))
        if not piece:
            break
        said += piece
    return said


class ParcelLinks:
    """One worker's sockets to all others. All workers make the same calls, each with its own number.

    rank, size: as of Exchange.  calls: swaps begun so far, a sign that the worker gets on.

    Args:    sockets: connected, by worker.  timeout_s: for which another worker may send nothing that is waited for.
    """

    def __init__(self, rank: int, sockets: Mapping[int, socket.socket], timeout_s: float) -> None:
        self.rank, self.size, self.calls = rank, len(sockets) + 1, 0
        self._peers, self._timeout_s = {peer: ParcelSocket(each) for peer, each in sockets.items()}, timeout_s

    @classmethod
    def meet(
        cls, rank: int, listener: socket.socket, places: Sequence[Place], token: bytes, timeout_s: float
    ) -> ParcelLinks:
        """Connects all workers of a group over TCP.

        Args:    listener: of this worker.  places: where the workers listen, in order of their numbers.  token: of the
                 group, the same length for all; who does not know it is no worker.
        Raises:  WorkerUnavailable where not all come within timeout_s.
        """
        until, size = time.monotonic() + timeout_s, len(places)
        sockets: dict[int, socket.socket] = {}
        try:
            for peer in range(rank):  # each calls those before it
                sockets[peer] = socket.create_connection(places[peer], _left(until))
                sockets[peer].sendall(token + _RANK.pack(rank))
            while len(sockets) < size - 1:
                listener.settimeout(_left(until))
                _admit(listener.accept()[0], token, range(rank + 1, size), sockets)
        except OSError as cause:
            for each in sockets.values():
                each.close()
            raise WorkerUnavailable(
                f"[parcels] expected {size} workers to connect within {timeout_s:g} s, got {cause or 'fewer'} (seen by "
                f"worker {rank}); see another's error, fix the cause, or give a longer timeout_s"
            ) from cause
        return cls(rank, sockets, timeout_s)

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Parcel i goes to worker i; result i is what worker i sent here.

        Raises:  WorkerUnavailable where another worker has gone or does not come in time, and ever after.
        """
        self.calls += 1
        got = [parcels[each] if each == self.rank else b"" for each in range(self.size)]
        awaited = set(self._peers)
        try:
            unsent = {to for to, peer in self._peers.items() if not peer.send(parcels[to])}
            while True:
                for each in list(awaited):
                    if (parcel := self._peers[each].take()) is not None:
                        got[each] = parcel
                        awaited.remove(each)
                if not awaited and not unsent:
                    return got
                reading, writing = ([self._peers[each] for each in some] for some in (awaited, unsent))
                if not wait_for(reading, writing, self._timeout_s):
                    raise TimeoutError(f"nothing came within {self._timeout_s:g} s")
                unsent = {to for to in unsent if not self._peers[to].send()}
        except OSError as cause:
            self.close()
            raise WorkerUnavailable(
                f"[parcels] expected all {self.size} workers, got one that has ended or is late (seen by worker "
                f"{self.rank}); see its own error, or give a longer timeout_s"
            ) from cause

    def close(self) -> None:
        """Ends all connections: the others fail instead of waiting. A second call does nothing."""
        for each in self._peers.values():
            each.close()


def _admit(caller: socket.socket, token: bytes, expected: range, sockets: dict[int, socket.socket]) -> None:
    """Adds one that knows the token; lets others go."""
    said = b""
    with contextlib.suppress(OSError):
        said = greeting(caller, len(token) + _RANK.size)
    if len(said) == len(token) + _RANK.size and hmac.compare_digest(said[: len(token)], token):
        (rank,) = _RANK.unpack(said[len(token) :])
        if rank in expected and rank not in sockets:
            sockets[rank] = caller
            return
    caller.close()


def _left(until: float) -> float:
    """Seconds. Raises: TimeoutError once there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("fewer")
    return left
