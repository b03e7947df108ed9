"""Running the application with uvicorn: in the foreground, or in a thread of this process."""

from __future__ import annotations

import gc
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from livegnn.errors import UsageError
from livegnn.optional import need
from livegnn.sampling import SampleServer
from livegnn.serve.limits import Limits
from livegnn.serve.routes import app

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
    with _listening(host, port, token) as listener, _quiet_signals():
        uvicorn = _uvicorn(server, token, limits, read_only)
        with even_latency():
            uvicorn.run(sockets=[listener])


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
    with _listening(host, port, token) as listener:
        uvicorn = _uvicorn(server, token, limits, read_only)
        thread = threading.Thread(target=uvicorn.run, args=([listener],), name="livegnn-serve", daemon=True)
        thread.start()
        try:
            name = f"[{host}]" if ":" in host else host
            yield f"http://{name}:{listener.getsockname()[1]}"
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
def _listening(host: str, port: int, token: str | None) -> Iterator[socket.socket]:
    if type(port) is not int or not 0 <= port < 65536:
        raise UsageError(f"[serve] expected a port from 0 to 65535, got {port!r}; choose another")
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if token is None and address[4][0] not in ("127.0.0.1", "::1"):
            raise UsageError(f"[serve] expected a token for {host}, which others can reach, got none; give token=")
        listener = socket.create_server(address[4][:2], family=address[0], backlog=2048)
    except OSError as cause:
        raise UsageError(f"[serve] expected a free address, got {host} port {port}: {cause}; choose another") from cause
    with listener:
        yield listener


def _uvicorn(server: SampleServer, token: str | None, limits: Limits | None, read_only: bool) -> Any:
    uvicorn = need("uvicorn", "serve")
    need("httptools", "serve")
    from livegnn.serve.connections import LimitedConnection  # it is made of the two

    application = app(server, token=token, limits=limits, read_only=read_only)
    config = uvicorn.Config(
        application,
        http=partial(LimitedConnection, application.traffic, application.limits),
        ws="none",
        timeout_keep_alive=application.limits.idle_ms_max / 1e3,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return uvicorn.Server(config)
