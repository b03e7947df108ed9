"""Load on an HTTP service: whole requests, made beforehand, over connections that are kept alive, one at a time each.

Open loop (`rate`): requests are due at times drawn beforehand (exponential gaps), whatever the answers do. A latency
counts from the time a request was due, not from when a connection was free to take it, so a server that stalls is
charged for everybody who would have come meanwhile. Closed loop: n clients, each of which asks again once it has its
answer. Answers are read by their content-length. Where requests run out, the measured time ends early.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np


@dataclass(frozen=True)
class LoadResult:
    """requests: answered with 200, within the measured time.  errors: other answers, by status ("lost" for connections
    that broke, "unanswered" at the end).  *_ms: quantiles of the latency.  rate: of answers, a second.  bytes: of the
    mean answer's body.
    """

    requests: int
    errors: dict[str, int]
    rate: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    bytes: float


@dataclass(frozen=True)
class Pace:
    """rate: an open loop of so many requests a second; None: a closed loop.  clients: connections in either case.
    warm_s: time before the measured one.
    """

    rate: float | None = None
    clients: int = 200
    seconds: float = 10.0
    warm_s: float = 1.0
    seed: int = 0


class _Driver:
    """Sends requests over its connections and keeps the latencies of those that were due in the measured time."""

    def __init__(self, pace: Pace, requests: Iterator[bytes]) -> None:
        self.pace, self.requests = pace, requests
        self.idle: deque[_Connection] = deque()
        self.due: deque[float] = deque()  # of an open loop: requests that no connection was free to take
        self.latencies: list[float] = []
        self.errors: dict[str, int] = {}
        self.body_bytes = 0
        self.sent = self.answered = 0
        self.exhausted = False
        self.begin = self.end = 0.0

    def send(self, due: float) -> None:
        """One request that was due at this time."""
        if not self.idle:
            self.sent += 1
            self.due.append(due)
        elif self.give(self.idle[-1], due):
            self.sent += 1
            self.idle.pop()

    def give(self, connection: _Connection, due: float) -> bool:
        """The next request to a connection; False where there are no more: the measured time ends then."""
        following = next(self.requests, None)
        if following is None:
            self.exhausted, self.end = True, min(self.end, time.perf_counter())
            return False
        connection.send(following, due)
        return True

    def done(self, connection: _Connection, due: float, status: bytes, size: int) -> None:
        """One answer came."""
        now = time.perf_counter()
        self.answered += 1
        if self.begin <= due < self.end:
            if status == b"200":
                self.latencies.append(now - due)
                self.body_bytes += size
            else:
                self.errors[status.decode()] = self.errors.get(status.decode(), 0) + 1
        if self.due and self.give(connection, self.due[0]):
            self.due.popleft()
        elif self.pace.rate is None and now < self.end and self.give(connection, now):
            self.sent += 1
        else:
            self.idle.append(connection)

    def lost(self) -> None:
        self.errors["lost"] = self.errors.get("lost", 0) + 1

    def result(self) -> LoadResult:
        """Of what is measured."""
        latencies = np.array(self.latencies or [np.nan]) * 1e3
        quantiles = [float(np.quantile(latencies, q)) for q in (0.5, 0.9, 0.99, 0.999, 1.0)]
        count = len(self.latencies)
        seconds, mean_bytes = max(self.end - self.begin, 1e-9), self.body_bytes / max(count, 1)
        return LoadResult(count, self.errors, count / seconds, float(latencies.mean()), *quantiles, mean_bytes)


class _Connection(asyncio.Protocol):
    def __init__(self, driver: _Driver) -> None:
        self.driver = driver
        self.buffer = bytearray()
        self.due: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.driver.idle.append(self)

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.find(b"content-length: ", 0, head) + len(b"content-length: ")
        size = int(self.buffer[at : self.buffer.find(b"\r\n", at)])
        if len(self.buffer) < head + 4 + size:
            return
        status = bytes(self.buffer[9:12])
        self.buffer.clear()
        due, self.due = self.due, None
        if due is not None:
            self.driver.done(self, due, status, size)

    def connection_lost(self, error: Exception | None) -> None:
        if self.due is not None:
            self.driver.lost()
        elif self in self.driver.idle:
            self.driver.idle.remove(self)


def request(url: str, body: bytes, content_type: str, headers: str = "") -> bytes:
    """A POST as bytes. headers: further ones, each with its line end."""
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{headers}Content-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def driven(url: str, pace: Pace, requests: Iterator[bytes]) -> LoadResult:
    """Runs the load from this process."""
    loop: Any = _drive(url, pace, requests)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(loop)  # type: ignore[no-any-return]
    return uvloop.run(loop)  # type: ignore[no-any-return]


async def _drive(url: str, pace: Pace, requests: Iterator[bytes]) -> LoadResult:
    driver = _Driver(pace, requests)
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    for _ in range(pace.clients):
        await loop.create_connection(lambda: _Connection(driver), parts.hostname, parts.port)
    start = time.perf_counter()
    driver.begin, driver.end = start + pace.warm_s, start + pace.warm_s + pace.seconds
    if pace.rate is None:
        for _ in range(pace.clients):
            driver.send(time.perf_counter())
        while time.perf_counter() < driver.end:
            await asyncio.sleep(0.01)
    else:
        await _open_loop(driver, pace.rate, start)
    patience = time.perf_counter() + 10.0
    while driver.answered < driver.sent and time.perf_counter() < patience:
        await asyncio.sleep(0.01)
    unanswered = driver.sent - driver.answered - driver.errors.get("lost", 0) - len(driver.due) * driver.exhausted
    if unanswered:
        driver.errors["unanswered"] = unanswered
    for each in [*driver.idle]:
        each.transport.abort()  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    return driver.result()


async def _open_loop(driver: _Driver, rate: float, start: float) -> None:
    gaps = random.Random(driver.pace.seed)
    due = start
    while due < driver.end:
        now = time.perf_counter()
        while due <= now:
            driver.send(due)
            due += gaps.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
