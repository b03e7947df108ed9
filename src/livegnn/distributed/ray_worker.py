"""RayWorker: the inside of one Ray actor: a process that joins the others by torch.distributed and does what it is
given.

What a call raises is an answer like any other (WorkerFailure), so that the first cause is known. A worker whose call
has failed leaves the group at once: its connections close, and the others fail instead of waiting for it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from livegnn.distributed.call_lines import CallPlace, CallServer
from livegnn.distributed.parcel_links import ParcelLinks
from livegnn.distributed.processes import TorchExchange
from livegnn.distributed.ray_names import replaced
from livegnn.errors import Facts, LiveGnnError, WorkerUnavailable
from livegnn.optional import need

ONE_HOST = "127.0.0.1"  # where workers meet that are all on one host
OWN, DIED, OF_ANOTHER = range(3)  # causes of failures: the least of several is the first


class WorkerFailure(NamedTuple):
    """How a worker failed; the least of several is the first cause. error: kind, text and facts of one of livegnn's."""

    cause: int
    time: float
    rank: int
    text: str
    error: tuple[str, str, Facts] | None = None


class RayWorker:
    """One worker of a group. kept: what calls leave for later ones.  near: other workers on its host, since join().

    A call names the driver that makes it by a number (ray_names.py). One of a driver before the newest is refused.

    Args:    threads: of torch.  about: what a later driver asks for first.
    """

    def __init__(self, rank: int, size: int, threads: int, about: dict[str, Any] | None = None) -> None:
        self.rank, self.size, self.kept = rank, size, dict[str, Any]()
        self._threads, self._calls, self._about, self._driver = threads, 0, about or {}, 0
        self._one = threading.RLock()  # one call at a time, whichever way it comes
        self._server: CallServer | None = None
        self._group = ""  # that it is in
        self._exchange: TorchExchange | None = None
        self._links: ParcelLinks | None = None
        self._store: Any = None
        self.near: list[int] = []

    @property
    def exchange(self) -> TorchExchange:
        """To the others, since join()."""
        assert self._exchange is not None
        return self._exchange

    @property
    def links(self) -> ParcelLinks:
        """To the others, since join()."""
        assert self._links is not None
        return self._links

    def ready(self, driver: int, loads: Sequence[str]) -> int | WorkerFailure:
        """The process's number, once it has loaded torch and these modules, and left the group of before: others that
        wait for it there fail. From now on calls of drivers before this one are refused.
        """
        with self._one:
            if driver < self._driver:
                return self._refused()
            self._driver = driver
            _load(("torch.distributed", *loads))
            self._leave()
            return os.getpid()

    def open_store(self, driver: int, host: str | None, timeout_s: float) -> tuple[str, int] | WorkerFailure:
        """Of worker 0: where the others meet it."""
        if driver < self._driver:
            return self._refused()
        dist = need("torch.distributed", "distributed")
        place = host or need("ray", "distributed").util.get_node_ip_address()
        self._store = dist.TCPStore(
            place, 0, self.size, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s)
        )
        return place, int(self._store.port)

    def join(
        self, driver: int, name: str, place: tuple[str, int], backend: str, timeout_s: float
    ) -> CallPlace | WorkerFailure:
        """Joins the group of this name. Returns: where the worker takes calls, besides as an actor: those of work()."""
        with self._one:
            if driver < self._driver:
                return self._refused()
            joined: CallPlace | WorkerFailure = self._answer(lambda: self._join(name, place, backend, timeout_s))
            return joined

    def work(self, driver: int, task: tuple[Callable[..., Any], tuple[Any, ...]], mine: tuple[Any, ...] = ()) -> Any:
        """What fn(self, *mine, *args) returns, or a WorkerFailure."""
        with self._one:
            if driver < self._driver:
                return self._refused()
            fn, args = task
            return self._answer(lambda: fn(self, *mine, *args))

    def aside(self, driver: int, task: tuple[Callable[..., Any], tuple[Any, ...]], mine: tuple[Any, ...] = ()) -> Any:
        """The same, asked from another thread, of what makes no exchange: the worker stays in its group."""
        if driver < self._driver:
            return self._refused()
        fn, args = task
        try:
            return fn(self, *mine, *args)
        except Exception as error:
            return self._failure(error)

    def about(self) -> tuple[int, dict[str, Any]]:
        """The number of the driver, and what the group was made with; asked from another thread: only a process that
        is stopped does not answer.
        """
        return self._driver, self._about

    def beat(self) -> int:
        """A number that grows while the worker gets on; asked from another thread."""
        return self._calls + sum(each.calls for each in (self._exchange, self._links) if each is not None)

    def _refused(self) -> WorkerFailure:
        """A driver that was replaced changes nothing here: the worker stays in its group."""
        error = replaced("cluster")
        known = (type(error).__name__, str(error), error.facts())
        return WorkerFailure(OWN, time.time(), self.rank, str(error), known)

    def _answer(self, call: Callable[[], Any]) -> Any:
        import torch

        self._calls += 1
        torch.set_num_threads(self._threads)  # of this thread
        try:
            return call()
        except Exception as error:
            failure = self._failure(error)
        finally:
            self._calls += 1
        self._leave()
        return failure

    def _failure(self, error: Exception) -> WorkerFailure:
        cause = OF_ANOTHER if isinstance(error, WorkerUnavailable) else OWN
        known = (type(error).__name__, str(error), error.facts()) if isinstance(error, LiveGnnError) else None
        return WorkerFailure(cause, time.time(), self.rank, "".join(traceback.format_exception(error)), known)

    def _join(self, name: str, place: tuple[str, int], backend: str, timeout_s: float) -> CallPlace:
        import torch

        # Workers meet under a count of groups. Joining in vain raises it for good, and a new worker begins at 0.
        need("torch.distributed.distributed_c10d", "distributed")._world.group_count = 0
        dist, timeout = need("torch.distributed", "distributed"), timedelta(seconds=timeout_s)
        device = "cpu"
        if backend == "nccl":
            device = "cuda:0"  # Ray shows each worker its own GPU
            torch.cuda.set_device(device)
        try:
            if self.rank:
                self._store = dist.TCPStore(*place, self.size, is_master=False, timeout=timeout)
            store = dist.PrefixStore(name, self._store)
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=timeout)
        except RuntimeError as cause:
            raise WorkerUnavailable(
                f"[join] expected {self.size} workers to meet at {place[0]}:{place[1]} within "
                f"{timeout_s:g} s, got {cause} (seen by worker {self.rank}); see another's error, fix "
                "the cause, or give a longer timeout_s"
            ) from cause
        calls = 0 if self._exchange is None else self._exchange.calls
        self._exchange = TorchExchange(device)
        self._exchange.calls += calls
        own = place[0] if place[0] == ONE_HOST else need("ray", "distributed").util.get_node_ip_address()
        self._connect(store, own, name.encode(), timeout_s)
        self._group = name
        return self._listening(own)

    def _listening(self, own: str) -> CallPlace:
        """own: this worker's host, as others reach it."""
        if self._server is None or self._server.place.host != own:
            if self._server is not None:
                self._server.close()
            self._server = CallServer(own, lambda shared, mine: self._work_soon(shared, mine), self._failure)
        return self._server.place

    def _work_soon(self, shared: tuple[str, int, Any], mine: tuple[Any, ...]) -> Any:
        """work() of a call (group, driver, task) that has not gone through Ray, which keeps calls in order. Where the
        driver has formed its group anew since, it has given the call up.
        """
        group, driver, task = shared
        with self._one:
            if driver == self._driver and group != self._group:
                return WorkerFailure(OF_ANOTHER, time.time(), self.rank, "has left the group of this call")
            return self.work(driver, task, mine)

    def _connect(self, store: Any, own: str, token: bytes, timeout_s: float) -> None:
        """Connects the links, and finds who is near."""
        ray, calls = need("ray", "distributed"), 0 if self._links is None else self._links.calls
        self._links = ParcelLinks.meet(self.rank, self.size, own, store, token, timeout_s)
        self._links.calls += calls
        host = ray.get_runtime_context().get_node_id().encode()
        hosts = self._links.swap([host] * self.size)
        self.near = [rank for rank, each in enumerate(hosts) if each == host and rank != self.rank]

    def _leave(self) -> None:
        import torch.distributed as dist

        self._group = ""
        if self._links is not None:
            self._links.close()
        if dist.is_initialized():
            with suppress(RuntimeError):  # of a group of which another worker has gone
                dist.destroy_process_group()


def _load(modules: Sequence[str]) -> None:
    """Imports them, if they are not. Collections of garbage walk through what a process loads neither now, which would
    take a fifth of the time, nor later.
    """
    if all(module in sys.modules for module in modules):
        return
    gc.disable()
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        gc.enable()
    gc.freeze()
