"""ParcelLinks: workers that are processes send each other parcels of bytes, over a socket between each two of them.

For what workers send each other many times in a batch, and wait for. One thread sends and receives: a library that has
threads of its own for it takes several times as long where every core has work (docs/distributed.md, "What it costs").

A parcel is its length, 8 bytes, and its bytes. A worker is never more than one round ahead of another; what comes
before its round stays in the socket.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from livegnn.errors import WorkerUnavailable

_HEAD = struct.Struct("<q")
_RANK = struct.Struct("<q")
_GREETING_S = 5.0  # for what another worker says first; who says nothing is none
_BUFFER_BYTES = 4 << 20  # of a socket, or as much as the system allows


class ParcelLinks:
    """One worker's sockets to all others. All workers make the same calls, each with its own number.

    rank, size: as of Exchange.  calls: swaps begun so far, a sign that the worker gets on.

    Args:    sockets: connected, by worker.  timeout_s: for which another worker may send nothing that is waited for.
    """

    def __init__(self, rank: int, sockets: Mapping[int, socket.socket], timeout_s: float) -> None:
        self.rank, self.size, self.calls = rank, len(sockets) + 1, 0
        self._sockets, self._timeout_s = dict(sockets), timeout_s
        self._incoming = {peer: _Incoming() for peer in sockets}
        for each in sockets.values():
            each.setblocking(False)
            if each.family != socket.AF_UNIX:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            else:  # TCP finds its size itself
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)

    @classmethod
    def meet(cls, rank: int, size: int, host: str, places: Any, token: bytes, timeout_s: float) -> ParcelLinks:
        """Connects all workers of a group over TCP.

        Args:    host: of this worker, as the others reach it.  places: a store of torch.distributed that all share, in
                 which each says where it listens.  token: of the group, the same length for all; who does not know it
                 is no worker.
        Raises:  WorkerUnavailable where not all come within timeout_s.
        """
        until = time.monotonic() + timeout_s
        sockets: dict[int, socket.socket] = {}
        try:
            with socket.create_server((host, 0), backlog=size) as listener:
                places.set(f"parcels {rank}", f"{host} {listener.getsockname()[1]}")
                for peer in range(rank):  # each calls those before it
                    there, port = places.get(f"parcels {peer}").decode().split()
                    sockets[peer] = socket.create_connection((there, int(port)), _left(until))
                    sockets[peer].sendall(token + _RANK.pack(rank))
                while len(sockets) < size - 1:
                    listener.settimeout(_left(until))
                    _admit(listener.accept()[0], token, range(rank + 1, size), sockets)
        except (OSError, RuntimeError) as cause:  # of sockets, and of the store
            for each in sockets.values():
                each.close()
            raise WorkerUnavailable(
                f"[parcels] expected {size} workers to connect within {timeout_s:g} s, got {cause or 'fewer'} (seen by "
                f"worker {rank}); see another's error, fix the cause, or give a longer timeout_s"
            ) from cause
        return cls(rank, sockets, timeout_s)

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Parcel i goes to worker i; result i is what worker i sent here.

        Raises:  WorkerUnavailable where another worker has gone or does not come in time; no other swap may follow.
        """
        self.calls += 1
        got = [parcels[each] if each == self.rank else b"" for each in range(self.size)]
        unsent = {to: [memoryview(_HEAD.pack(len(parcels[to]))), memoryview(parcels[to])] for to in self._sockets}
        awaited = set(self._sockets)
        try:
            while True:
                for to in list(unsent):
                    if _send(self._sockets[to], unsent[to]):
                        del unsent[to]
                for peer in list(awaited):
                    whole = self._incoming[peer].take_from(self._sockets[peer])
                    if whole is not None:
                        got[peer] = whole
                        awaited.remove(peer)
                if not awaited and not unsent:
                    return got
                self._wait(awaited, unsent)
        except OSError as cause:
            raise WorkerUnavailable(
                f"[parcels] expected all {self.size} workers, got one that has ended or is late (seen by worker "
                f"{self.rank}); see its own error, or give a longer timeout_s"
            ) from cause

    def close(self) -> None:
        """Ends all connections: the others fail instead of waiting. A second call does nothing."""
        for each in self._sockets.values():
            each.close()

    def _wait(self, awaited: set[int], unsent: Mapping[int, Any]) -> None:
        """Until one of these can go on."""
        poll = select.poll()
        for peer in awaited | set(unsent):
            events = (select.POLLIN if peer in awaited else 0) | (select.POLLOUT if peer in unsent else 0)
            poll.register(self._sockets[peer], events)
        if not poll.poll(self._timeout_s * 1000):
            raise TimeoutError(f"nothing came within {self._timeout_s:g} s")


class _Incoming:
    """What comes from one worker."""

    def __init__(self) -> None:
        self._buffer = bytearray(_HEAD.size)  # as long as the longest parcel, so that its pages stay
        self._have, self._length = 0, -1  # no length: of the head

    def take_from(self, each: socket.socket) -> bytes | None:
        """The next parcel, once it is whole. Raises: OSError."""
        while True:
            missing = (_HEAD.size if self._length < 0 else self._length) - self._have
            if missing and not self._take_bytes(each, missing):
                return None
            if missing:
                continue
            self._have = 0
            if self._length >= 0:
                length, self._length = self._length, -1
                return bytes(memoryview(self._buffer)[:length])
            (self._length,) = _HEAD.unpack_from(self._buffer)
            if self._length > len(self._buffer):
                self._buffer = bytearray(self._length)

    def _take_bytes(self, each: socket.socket, most: int) -> bool:
        try:
            count = each.recv_into(memoryview(self._buffer)[self._have :], most)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionResetError("the connection has ended")
        self._have += count
        return True


def _send(to: socket.socket, pieces: list[memoryview]) -> bool:
    """Takes from the front of the pieces what the socket takes. Returns: whether that was all."""
    while pieces:
        try:
            sent = to.sendmsg(pieces)
        except BlockingIOError:
            return False
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.pop(0))
        if pieces:
            pieces[0] = pieces[0][sent:]
    return True


def _admit(caller: socket.socket, token: bytes, expected: range, sockets: dict[int, socket.socket]) -> None:
    """Adds one that knows the token; lets others go."""
    caller.settimeout(_GREETING_S)
    said = b""
    with contextlib.suppress(OSError):
        while len(said) < len(token) + _RANK.size:
            piece = caller.recv(len(token) + _RANK.size - len(said))
            if not piece:
                break
            said += piece
    if len(said) == len(token) + _RANK.size and said[: len(token)] == token:
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
