"""A full mesh of sockets between plain processes, one part each: Unix sockets on one host, TCP between namespaces.

`delay_s` stands for the latency of a link: no parcel is handed over sooner after it was sent. Both clocks must be one
machine's.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from pathlib import Path

from livegnn.distributed.parcel_links import ParcelLinks

_TIME = struct.Struct("<d")
_CLONE_NEWNET = 0x40000000
_STARTING_S = 120.0
_PATIENCE_S = 600.0
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
        sockets: dict[int, socket.socket] = {}
        listener = _listening(addresses[part], len(addresses))
        for peer in range(part):  # each part calls those before it
            sockets[peer] = _connected(addresses[peer])
            sockets[peer].sendall(bytes([part]))
        for _ in range(part + 1, len(addresses)):
            taken, _ = listener.accept()
            sockets[taken.recv(1)[0]] = taken
        listener.close()
        self.links = ParcelLinks(part, sockets, _PATIENCE_S)

    def swap(self, parcels: list[bytes]) -> list[bytes]:
        """Sends a parcel to each part and returns theirs."""
        if not self.delay_s:
            return self.links.swap(parcels)
        now = _TIME.pack(time.monotonic())
        got = self.links.swap([now + parcel for parcel in parcels])
        latest = max(_TIME.unpack_from(parcel)[0] for parcel in got)
        while time.monotonic() < latest + self.delay_s:
            pass  # a sleep oversleeps by more than what is measured
        return [parcel[_TIME.size :] for parcel in got]

    def meet(self) -> None:
        """Returns when all parts have come here."""
        self.links.swap([b"-"] * self.links.size)

    def close(self) -> None:
        """Ends all connections."""
        self.links.close()


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
