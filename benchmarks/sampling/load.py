"""Load on an HTTP service from another process: `python -m benchmarks.sampling.load URL --rate 2500 --seconds 10`.

Open loop (`--rate`): requests are due at times drawn beforehand (exponential gaps), whatever the answers do. A latency
counts from the time a request was due, not from when a connection was free to take it, so a server that stalls is
charged for everybody who would have come meanwhile. Closed loop (`--clients`): n clients, each of which asks again once
it has its answer. Prints one JSON object: LoadResult.

Connections are kept alive, with one request at a time on each; answers are read by their content-length.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from livegnn.serve import frames


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
class Load:
    """What to send. rate: an open loop of so many requests a second; None: a closed loop of `clients`.

    clients: connections in either case.  seeds_max: seeds are drawn below it.  seeds: of one request.  json: bodies in
    JSON, else binary frames.  warm_s: time before the measured one.
    """

    url: str
    seeds_max: int
    rate: float | None = None
    clients: int = 200
    seconds: float = 10.0
    warm_s: float = 1.0
    seeds: int = 1
    json: bool = False
    token: str | None = None
    core: int | None = None
    seed: int = 0


def apply_load(load: Load) -> LoadResult:
    """Runs the load in a process of its own, pinned to `core` where given."""
    arguments = [part for name, value in asdict(load).items() for part in _argument(name, value)]
    command = [sys.executable, "-m", "benchmarks.sampling.load", *arguments]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if run.returncode:
        raise RuntimeError(f"[load] expected a result, got exit code {run.returncode}: {run.stderr[-2000:]}")
    return LoadResult(**json.loads(run.stdout))


def _argument(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    return [flag] if value is True else [flag, str(value)]


class _Driver:
    """Sends requests over its connections and keeps the latencies of those that were due in the measured time."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.requests = _requests(load)
        self.idle: deque[_Connection] = deque()
        self.due: deque[float] = deque()  # of an open loop: requests that no connection was free to take
        self.latencies: list[float] = []
        self.errors: dict[str, int] = {}
        self.body_bytes = 0
        self.sent = self.answered = 0
        self.begin = self.end = 0.0

    def send(self, due: float) -> None:
        """One request that was due at this time."""
        self.sent += 1
        if self.idle:
            self.idle.pop().send(next(self.requests), due)
        else:
            self.due.append(due)

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
        if self.due:
            connection.send(next(self.requests), self.due.popleft())
        elif self.load.rate is None and now < self.end:
            self.sent += 1
            connection.send(next(self.requests), now)
        else:
            self.idle.append(connection)

    def lost(self) -> None:
        self.errors["lost"] = self.errors.get("lost", 0) + 1


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


def _requests(load: Load) -> Iterator[bytes]:
    """Whole requests as bytes, made beforehand and repeated."""
    parts = urlsplit(load.url)
    random_seeds = np.random.default_rng(load.seed).integers(0, load.seeds_max, (4096, load.seeds))
    kind = "application/json" if load.json else frames.CONTENT_TYPE
    token = "" if load.token is None else f"Authorization: Bearer {load.token}\r\n"
    made = []
    for seeds in random_seeds:
        document = {"seeds": seeds.tolist()}
        if load.json and parts.path.endswith("sample"):
            document |= {"edge_ids": False}
        body = json.dumps(document).encode() if load.json else frames.encode_request(seeds, edge_ids=False)
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{token}Content-Type: {kind}\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return itertools.cycle(made)


async def _drive(load: Load) -> LoadResult:
    driver = _Driver(load)
    parts = urlsplit(load.url)
    loop = asyncio.get_running_loop()
    for _ in range(load.clients):
        await loop.create_connection(lambda: _Connection(driver), parts.hostname, parts.port)
    start = time.perf_counter()
    driver.begin, driver.end = start + load.warm_s, start + load.warm_s + load.seconds
    if load.rate is None:
        for _ in range(load.clients):
            driver.send(time.perf_counter())
        await asyncio.sleep(load.warm_s + load.seconds)
    else:
        await _open_loop(driver, load.rate, start)
    patience = time.perf_counter() + 10.0
    while driver.answered < driver.sent and time.perf_counter() < patience:
        await asyncio.sleep(0.01)
    unanswered = driver.sent - driver.answered - driver.errors.get("lost", 0)
    if unanswered:
        driver.errors["unanswered"] = unanswered
    return _result(driver)


async def _open_loop(driver: _Driver, rate: float, start: float) -> None:
    gaps = random.Random(driver.load.seed)
    due = start
    while due < driver.end:
        now = time.perf_counter()
        while due <= now:
            driver.send(due)
            due += gaps.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


def _result(driver: _Driver) -> LoadResult:
    latencies = np.array(driver.latencies or [np.nan]) * 1e3
    quantiles = [float(np.quantile(latencies, q)) for q in (0.5, 0.9, 0.99, 0.999, 1.0)]
    count = len(driver.latencies)
    return LoadResult(
        count,
        driver.errors,
        count / driver.load.seconds,
        float(latencies.mean()),
        *quantiles,
        driver.body_bytes / max(count, 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling.load", description="load on a livegnn service")
    parser.add_argument("--url", required=True, help="of the route, as in http://127.0.0.1:8000/v1/sample")
    parser.add_argument("--seeds-max", type=int, required=True, help="seeds are drawn below it")
    parser.add_argument("--rate", type=float, help="requests a second of an open loop; without it a closed loop")
    parser.add_argument("--clients", type=int, default=200, help="connections (default 200)")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-s", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1, help="of one request (default 1)")
    parser.add_argument("--json", action="store_true", help="bodies in JSON instead of binary frames")
    parser.add_argument("--token", help="bearer token")
    parser.add_argument("--core", type=int, help="the core to run on")
    parser.add_argument("--seed", type=int, default=0, help="of the seeds and the gaps")
    load = Load(**vars(parser.parse_args()))
    if load.core is not None:
        os.sched_setaffinity(0, {load.core})
    try:
        import uvloop

        result = uvloop.run(_drive(load))
    except ImportError:
        result = asyncio.run(_drive(load))
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
