"""RayWorker: the inside of one Ray actor: a process that joins the others and does what it is given.

Workers that train join by torch.distributed. Those of a cluster hand each other parcels alone: they connect sockets,
and load no torch, which would take seconds and 200 MB.

What a call raises is an answer like any other (WorkerFailure), so that the first cause is known. A worker whose call
has failed leaves the group at once: its connections close, and the others fail instead of waiting for it.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from livegnn.distributed.call_lines import CallPlace, CallServer
from livegnn.distributed.parcel_links import ParcelLinks, Place, listener_at
from livegnn.distributed.processes import TorchExchange, joined, leave, opened_store
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


class WorkerProcess(NamedTuple):
    """niceness: as the system has it; others of its host go before a process with more of it."""

    pid: int
    niceness: int


class WorkerPlace(NamedTuple):
    """Where a worker is reached: by the other workers, and by the driver. node: its host, to Ray."""

    parcels: Place
    calls: CallPlace
    node: str


class RayWorker:
    """One worker of a group. kept: what calls leave for later ones.  near: other workers on its host, since link().

    A call names the driver that makes it by a number (ray_names.py). One of a driver before the newest is refused.

    Args:    threads: of torch; 0 where it is not used.  about: what a later driver asks for first.
    """

    def __init__(self, rank: int, size: int, threads: int, about: dict[str, Any] | None = None) -> None:
        self.rank, self.size, self.kept = rank, size, dict[str, Any]()
        self._threads, self._calls, self._about, self._driver = threads, 0, about or {}, 0
        self._one = threading.RLock()  # one call at a time, whichever way it comes
        self._server: CallServer | None = None
        self._group, self._linking = "", ""  # that it is in; that it links to, or did last
        self._exchange: TorchExchange | None = None
        self._links: ParcelLinks | None = None
        self._listener: socket.socket | None = None  # between listen() and link()
        self._store: Any = None
        self.near: list[int] = []

    @property
    def exchange(self) -> TorchExchange:
        """To the others, since join()."""
        assert self._exchange is not None
        return self._exchange

    @property
    def links(self) -> ParcelLinks:
        """To the others, since link()."""
        assert self._links is not None
        return self._links

    def ready(self, driver: int, loads: Sequence[str]) -> WorkerProcess | WorkerFailure:
        """The process, once it has loaded these modules and left the group of before: others that wait for it
        there fail. From now on calls of drivers before this one are refused.
        """
        with self._one:
            if driver < self._driver:
                return self._refused()
            self._driver = driver
            _load(loads)
            self._leave()
            return WorkerProcess(os.getpid(), os.getpriority(os.PRIO_PROCESS, 0))

    def open_store(self, driver: int, host: str | None, timeout_s: float) -> tuple[str, int] | WorkerFailure:
        """Of worker 0: where the others meet it."""
        if driver < self._driver:
            return self._refused()
        self._store = opened_store(_own_host(host), self.size, timeout_s)
        return str(self._store.host), int(self._store.port)

    def join(
        self, driver: int, name: str, place: tuple[str, int], backend: str, timeout_s: float
    ) -> WorkerFailure | None:
        """Joins the group of this name, of torch.distributed."""
        with self._one:
            if driver < self._driver:
                return self._refused()
            failure: WorkerFailure | None = self._answer(lambda: self._join(name, place, backend, timeout_s))
            return failure

    def listen(self, driver: int, host: str | None) -> WorkerPlace | WorkerFailure:
        """Where the others reach this worker when they link(), and where it takes calls from then on, besides as an
        actor: those of work().
        """
        with self._one:
            if driver < self._driver:
                return self._refused()
            place: WorkerPlace | WorkerFailure = self._answer(lambda: self._listen(_own_host(host)))
            return place

    def link(self, driver: int, name: str, places: Sequence[WorkerPlace], timeout_s: float) -> WorkerFailure | None:
        """Connects to the others, as the group of this name. places: of all workers."""
        with self._one:
            if driver < self._driver:
                return self._refused()
            self._linking = name
            failure: WorkerFailure | None = self._answer(lambda: self._link(name, places, timeout_s))
            return failure

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
        self._calls += 1
        if self._threads:
            need("torch", "distributed").set_num_threads(self._threads)  # of this thread
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

    def _join(self, name: str, place: tuple[str, int], backend: str, timeout_s: float) -> None:
        if self.rank:
            self._store = None
        exchange, self._store = joined(name, self._store, place, self.rank, self.size, backend, timeout_s)
        exchange.calls += 0 if self._exchange is None else self._exchange.calls
        self._exchange, self._group = exchange, name

    def _listen(self, own: str) -> WorkerPlace:
        """own: this worker's host, as others reach it."""
        self._stop_listening()
        self._listener = listener_at(own, self.size)
        if self._server is None or self._server.place.host != own:
            if self._server is not None:
                self._server.close()
            self._server = CallServer(own, lambda shared, mine: self._work_soon(shared, mine), self._failure)
        node = need("ray", "distributed").get_runtime_context().get_node_id()
        return WorkerPlace((own, int(self._listener.getsockname()[1])), self._server.place, node)

    def _link(self, name: str, places: Sequence[WorkerPlace], timeout_s: float) -> None:
        listener, calls = self._listener, 0 if self._links is None else self._links.calls
        if listener is None:
            raise WorkerUnavailable(f"[link] expected worker {self.rank} to listen, got one that does not; form anew")
        try:
            given = ([each.parcels for each in places], name.encode(), timeout_s)
            self._links = ParcelLinks.meet(self.rank, listener, *given)
        finally:
            self._stop_listening()
        self._links.calls += calls
        own = places[self.rank].node
        self.near = [rank for rank, each in enumerate(places) if each.node == own and rank != self.rank]
        self._group = name

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def call_off(self, name: str) -> None:
        """Asked from another thread while this worker links to the group of this name: one that it waits for does not
        come.
        """
        listener = self._listener
        if listener is not None and self._linking == name:
            with suppress(OSError):  # it has stopped
                listener.shutdown(socket.SHUT_RDWR)  # who accepts wakes up

    def _work_soon(self, shared: tuple[str, int, Any], mine: tuple[Any, ...]) -> Any:
        """work() of a call (group, driver, task) that has not gone through Ray, which keeps calls in order. Where the
        driver has formed its group anew since, it has given the call up.
        """
        group, driver, task = shared
        with self._one:
            if driver == self._driver and group != self._group:
                return WorkerFailure(OF_ANOTHER, time.time(), self.rank, "has left the group of this call")
            return self.work(driver, task, mine)

    def _leave(self) -> None:
        self._group = ""
        self._stop_listening()
        if self._links is not None:
            self._links.close()
        if self._exchange is not None:
            leave()


def _own_host(host: str | None) -> str:
    """This worker's host, as others reach it. host: what all workers are given, where they are all on one."""
    return host or str(need("ray", "distributed").util.get_node_ip_address())


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
