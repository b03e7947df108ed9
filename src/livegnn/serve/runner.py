"""Running the application with uvicorn: in the foreground, or in a thread of this process."""

from __future__ import annotations

import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from livegnn.errors import UsageError
from livegnn.optional import need
from livegnn.sampling import SampleServer
from livegnn.serve.limits import Limits
from livegnn.serve.routes import app
from livegnn.serve.traffic import Traffic
from livegnn.serve.writing import Receive, Scope, Send

_SWITCH_S = 0.0005  # how long the event loop and the thread that samples may keep each other waiting
_SHUTDOWN_S = 10


def run(
    server: SampleServer,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    read_only: bool = False,
) -> None:
    """Serves until SIGINT or SIGTERM; then takes no more connections, answers what is under way, and returns.

    The process is taken to be the service's own: meanwhile its threads switch every 0.5 ms, and objects that are there
    already are left out of garbage collections. The sample server stays open.

    Raises:  UsageError if the address cannot be had, or from a host other than this one without a token; DataMissing
             without uvicorn (the extra serve).
    """
    run_app(app(server, token=token, limits=limits, read_only=read_only), host, port, for_others=token is not None)


@contextmanager
def background(
    server: SampleServer,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    read_only: bool = False,
) -> Iterator[str]:
    """Serves in a thread for the length of a with block; gives the URL. Port 0 is a free one. Raises: as run."""
    with background_app(
        app(server, token=token, limits=limits, read_only=read_only), host, port, for_others=token is not None
    ) as url:
        yield url


class LimitedApplication(Protocol):
    """An ASGI application with the limits that its connections keep, and what is under way."""

    limits: Limits
    traffic: Traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


def run_app(
    application: LimitedApplication,
    host: str,
    port: int,
    *,
    for_others: bool,
    tls: tuple[str, str] | None = None,
    ready: Callable[[str], object] = lambda url: None,
    stopping: Callable[[], object] = lambda: None,
    logs_as_process: bool = False,
) -> None:
    """As run(), any application.

    Args:    for_others: whether it may be served at an address that others can reach.  tls: files of certificate and
             key.  ready: called with the URL, when it listens.  stopping: called when a signal ends it.
             logs_as_process: uvicorn's lines take the form of the process's other ones.
    """
    with _listening(host, port, for_others) as listener, _quiet_signals():
        uvicorn = _uvicorn(application, tls, logs_as_process)
        ready(_url(host, listener, "http" if tls is None else "https"))
        with even_latency():
            _run(uvicorn, listener, stopping)


def _run(uvicorn: Any, listener: socket.socket, stopping: Callable[[], object]) -> None:
    """Runs the server; its way to an end begins with stopping()."""
    shutdown = uvicorn.shutdown

    async def ending(sockets: list[socket.socket] | None = None) -> None:
        stopping()
        await shutdown(sockets=sockets)

    uvicorn.shutdown = ending
    uvicorn.run(sockets=[listener])


@contextmanager
def background_app(
    application: LimitedApplication, host: str = "127.0.0.1", port: int = 0, *, for_others: bool
) -> Iterator[str]:
    """As background(), any application."""
    with _listening(host, port, for_others) as listener:
        uvicorn = _uvicorn(application)
        thread = threading.Thread(target=uvicorn.run, args=([listener],), name="livegnn-serve", daemon=True)
        thread.start()
        try:
            yield _url(host, listener, "http")
        finally:
            uvicorn.should_exit = True
            thread.join()


@contextmanager
def even_latency() -> Iterator[None]:
    """Tunes this process for serving, for the length of a with block; run() does so itself.

    Two threads share the interpreter, so they take turns of 0.5 ms; and a collection that walks through a model and its
    libraries stops everybody for 100 ms, so what is there at the start is not walked through again.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """uvicorn raises the signal that ended it once more: that shall not end the caller before run() returns."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _listening(host: str, port: int, for_others: bool) -> Iterator[socket.socket]:
    if type(port) is not int or not 0 <= port < 65536:
        raise UsageError(f"[serve] expected a port from 0 to 65535, got {port!r}; choose another")
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not for_others and address[4][0] not in ("127.0.0.1", "::1"):
            raise UsageError(f"[serve] expected a token for {host}, which others can reach, got none; give token=")
        listener = socket.create_server(address[4][:2], family=address[0], backlog=2048)
    except OSError as cause:
        raise UsageError(f"[serve] expected a free address, got {host} port {port}: {cause}; choose another") from cause
    with listener:
        yield listener


def _url(host: str, listener: socket.socket, scheme: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{listener.getsockname()[1]}"


def _uvicorn(application: LimitedApplication, tls: tuple[str, str] | None = None, logs_as_process: bool = False) -> Any:
    uvicorn = need("uvicorn", "serve")
    need("httptools", "serve")
    from livegnn.serve.connections import LimitedConnection  # it is made of the two

    config = uvicorn.Config(
        application,
        http=partial(LimitedConnection, application.traffic, application.limits),
        ws="none",
        timeout_keep_alive=application.limits.idle_ms_max / 1e3,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
        timeout_graceful_shutdown=_SHUTDOWN_S,
        **({"log_config": None} if logs_as_process else {}),
    )
    return uvicorn.Server(config)
