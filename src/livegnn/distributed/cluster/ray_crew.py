"""RayCrew: Ray places the workers, watches them and starts them again; torch.distributed moves parcels between them.

The workers of one generation are a gloo group. When a worker is lost, the others notice in their round; then all join a
new group, under a new address. This file is all of livegnn.distributed.cluster that knows of Ray.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from livegnn.distributed.cluster.crew import Call
from livegnn.distributed.cluster.worker import PartWorker
from livegnn.distributed.ray_session import connect
from livegnn.errors import LiveGnnError, WorkerUnavailable
from livegnn.optional import need

_PAUSE_SECONDS = 0.1
_GRACE_SECONDS = 10.0  # beyond a round's time, for a worker that is about to notice that another one is gone


class PartHost:
    """What runs in a Ray actor: one PartWorker, and its end of the group."""

    def __init__(self, rank: int, size: int, threads: int, timeout_s: float) -> None:
        self._rank, self._size, self._timeout_s = rank, size, timeout_s
        self._torch: Any = need("torch", "distributed")
        self._dist: Any = need("torch.distributed", "distributed")
        self._torch.set_num_threads(1)  # it adds up nothing here
        self._worker = PartWorker(self._swap, threads)

    def ready(self) -> tuple[int, int]:
        """(version, process id)."""
        return self._worker.version, os.getpid()

    def offer(self) -> str:
        """An address of this host for a new group, and the end of the old one."""
        self._leave()
        ray: Any = need("ray", "distributed")
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        return f"tcp://{ray.util.get_node_ip_address()}:{port}"

    def join(self, address: str) -> None:
        """Joins the group at an address; waits for the others. Raises: WorkerUnavailable where they do not come."""
        self._leave()
        wait = timedelta(seconds=self._timeout_s)
        numbers = {"rank": self._rank, "world_size": self._size}
        try:
            self._dist.init_process_group("gloo", init_method=address, timeout=wait, **numbers)
        except RuntimeError as cause:
            raise WorkerUnavailable(
                f"[cluster] expected all {self._size} workers at {address}, got fewer in {self._timeout_s:g} s "
                f"(seen by worker {self._rank}); give a longer timeout_s, or see whether its host is reachable"
            ) from cause

    def call(self, method: str, *given: Any) -> Any:
        """A method of the worker. Raises: WorkerUnavailable where Ray has started it anew and nothing has joined it."""
        if not self._dist.is_initialized():
            raise WorkerUnavailable(
                f"[cluster] expected worker {self._rank} as it was, got one that was started again; reform the crew"
            )
        return getattr(self._worker, method)(*given)

    def _leave(self) -> None:
        if self._dist.is_initialized():
            with contextlib.suppress(RuntimeError):  # of a group that is broken
                self._dist.destroy_process_group()

    def _swap(self, parcels: list[bytes]) -> list[bytes]:
        """One exchange of lengths, one of bytes."""
        torch, dist = self._torch, self._dist
        lengths = [len(parcel) for parcel in parcels]
        coming = torch.empty(self._size, dtype=torch.int64)
        out = torch.from_numpy(np.frombuffer(b"".join(parcels), np.uint8).copy())
        try:
            dist.all_to_all_single(coming, torch.tensor(lengths, dtype=torch.int64))
            counts = coming.tolist()
            found = torch.empty(sum(counts), dtype=torch.uint8)
            dist.all_to_all_single(found, out, counts, lengths)
        except RuntimeError as cause:
            raise WorkerUnavailable(
                f"[cluster] expected all {self._size} workers, got one that has ended or is late (seen by worker "
                f"{self._rank}); the cluster starts it again"
            ) from cause
        whole, ends = found.numpy().tobytes(), np.cumsum([0, *counts]).tolist()
        return [whole[first:last] for first, last in pairwise(ends)]


class RayCrew:
    """See Crew. Starts Ray on this machine where it does not run and no address is given.

    Args:    address: of a Ray cluster.  threads: of each worker.  timeout_s: for which a worker may be late.
    Raises:  DataMissing without ray or torch; WorkerUnavailable where workers cannot be placed.
    """

    def __init__(self, size: int, threads: int = 1, timeout_s: float = 60.0, address: str | None = None) -> None:
        need("torch", "distributed")
        self._ray = connect("Cluster", address)
        self.size, self._timeout_s = size, timeout_s
        options = {"max_restarts": -1, "max_task_retries": 0, "num_cpus": 0 if address is None else threads}
        host = self._ray.remote(PartHost).options(**options)
        self._actors = [host.remote(rank, size, threads, timeout_s) for rank in range(size)]
        self.reform()

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """See Crew."""
        return self._got(self.keep(calls))

    def keep(self, calls: Sequence[Call]) -> list[Any]:
        """See Crew."""
        return [actor.call.remote(*call) for actor, call in zip(self._actors, calls, strict=True)]

    def ask(self, worker: int, call: Call) -> Any:
        """See Crew."""
        return self._got([self._actors[worker].call.remote(*call)])[0]

    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [pid for _, pid in self._got([actor.ready.remote() for actor in self._actors])]

    def reform(self) -> list[int]:
        """See Crew."""
        for actor in self._actors:
            self._wait_for(actor)
        address = self._got([self._actors[0].offer.remote()])[0]
        self._got([actor.join.remote(address) for actor in self._actors])
        return [version for version, _ in self._got([actor.ready.remote() for actor in self._actors])]

    def _wait_for(self, actor: Any) -> None:
        """Ends a worker that hangs; one that is gone is waited for until Ray has it back."""
        exceptions, deadline = self._ray.exceptions, time.monotonic() + self._timeout_s + _GRACE_SECONDS
        while True:
            try:
                self._ray.get(actor.ready.remote(), timeout=self._timeout_s + _GRACE_SECONDS)
                return
            except exceptions.GetTimeoutError:
                self._ray.kill(actor, no_restart=False)
                deadline = time.monotonic() + self._timeout_s + _GRACE_SECONDS
            except exceptions.RayActorError as cause:
                if time.monotonic() > deadline:
                    raise WorkerUnavailable(
                        f"[cluster] expected Ray to start a worker again within {self._timeout_s:.0f} s, got none; see "
                        "whether the Ray cluster has room for it"
                    ) from cause
                time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """See Crew."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []

    def _got(self, refs: list[Any]) -> list[Any]:
        exceptions = self._ray.exceptions
        try:
            found: list[Any] = self._ray.get(refs, timeout=self._timeout_s + _GRACE_SECONDS)
        except (exceptions.RayActorError, exceptions.GetTimeoutError) as cause:
            raise WorkerUnavailable(
                f"[cluster] expected all {self.size} workers, got one that has ended or is late "
                f"({type(cause).__name__})"
            ) from cause
        except exceptions.RayTaskError as error:
            own = error.cause
            raise own if isinstance(own, LiveGnnError) else error from None
        return found
