"""The Ray cluster that this process works with: one on this machine, or one that runs already."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from livegnn.errors import UsageError
from livegnn.optional import need

_log = logging.getLogger("livegnn")

_ANY = ("auto", "local")
_HERE = ("127.0.0.1", "localhost")
_PATIENCE_S = 10.0
_started: list[str] = []  # addresses of Rays that end with this process


def connect(where: str, address: str | None = None, *, outlives: bool = False) -> Any:
    """The module ray, initialised; it prints errors alone.

    Args:    address: of a Ray cluster, as ray.init takes it; None is RAY_ADDRESS, or else a cluster of this machine,
             which ends with this process. A process that ray.init() has initialised keeps its cluster.
             outlives: refuses to start one.
    Raises:  DataMissing without ray; UsageError if the process is in another cluster, or cannot join the one of that
             address.
    """
    ray: Any = need("ray", "distributed")
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        found = address or os.environ.get("RAY_ADDRESS") or "local"
        if outlives and found == "local":
            raise _ends_with_us(where)
        alone = {"include_dashboard": False} if found == "local" else {}
        if found == "local":  # by default 15: any other process of the machine goes before a worker
            os.environ.setdefault("RAY_worker_niceness", "0")
        _refuse_silent(where, found)
        try:
            ray.init(address=found, log_to_driver=False, logging_level="ERROR", **alone)
        except ConnectionError as cause:
            raise UsageError(
                f"[{where}] expected a Ray cluster at {found} that this process may join, got: {cause}; run `ray "
                "start` first, and where it says that token authentication is on, set RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN for it and for all processes"
            ) from cause
        if found == "local":
            _started.append(ray.get_runtime_context().gcs_address)
    elif outlives and ray.get_runtime_context().gcs_address in _started:
        raise _ends_with_us(where)
    elif address not in (None, *_ANY) and not _same(address, found := ray.get_runtime_context().gcs_address):
        raise UsageError(
            f"[{where}] expected a process that is not connected to Ray, or to {address}, got one at {found}; "
            "leave address= out, or call ray.shutdown() first"
        )
    return ray


def warn_if_nice(where: str, niceness: int) -> bool:
    """Warns where workers have more niceness than this process. Returns: whether they have."""
    is_nice = niceness > os.getpriority(os.PRIO_PROCESS, 0)
    if is_nice:
        _log.warning(
            "[%s] expected workers of this process's niceness, got %d (by default Ray adds 15): they wait for any "
            "other process that is busy; set RAY_worker_niceness=0 before Ray starts, on all machines",
            where,
            niceness,
        )
    return is_nice


def _refuse_silent(where: str, address: str) -> None:
    """Ray waits for minutes for an address where nothing is. Raises: UsageError."""
    if address in _ANY:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise UsageError(
            f'[{where}] expected address= as "auto" or as "host:port", as `ray start` prints it, got {address!r}; give '
            "that, or leave it out to start Ray on this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError) as cause:
        raise UsageError(
            f"[{where}] expected a Ray cluster at {address}, got nothing that answers there ({cause}); give what `ray "
            "start` printed"
        ) from cause


def _ends_with_us(where: str) -> UsageError:
    return UsageError(
        f"[{where}] expected a Ray that outlives this process, got none; call `ray start --head` in a shell, and pass "
        'address="auto"'
    )


def _same(address: str, found: str) -> bool:
    """Whether two addresses are of one Ray: Ray names a host by its address in the network, also this one."""
    host, _, port = address.rpartition(":")
    return address == found or (host in _HERE and port == found.rpartition(":")[2])
