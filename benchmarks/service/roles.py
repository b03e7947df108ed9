"""The processes of the benchmarks of the service; each is made by benchmarks.worker.Worker.

BareEngine      an engine and nothing else
Service         a deployment, and its server
Clients         the load, which makes its requests before it sends them
Subscribers     many that read GET /v1/changes
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

import livegnn as lg
from benchmarks.http_load import LoadResult, Pace, driven, request
from benchmarks.service.world import Batch, ServiceWorld
from livegnn.deployment import Registry
from livegnn.serve.frames import CONTENT_TYPE
from livegnn.serve.update_frames import encode_updates

ARROW, JSON = "application/vnd.apache.arrow.stream", "application/json"


class BareEngine:
    """The engine alone."""

    def __init__(self, world: ServiceWorld, threads: int) -> None:
        self._world = world
        self._engine = lg.Engine(world.model(), world.graph(), threads=threads)

    def apply(self, size: int, first: int, count: int) -> float:
        """Seconds of so many batches."""
        batches = [self._world.batch(number, size, first).updates() for number in range(first, first + count)]
        begin = time.perf_counter()
        for each in batches:
            self._engine.apply(each)
        return time.perf_counter() - begin


class Service:
    """A deployment, in process and over HTTP. config: tables beyond the engine's."""

    def __init__(self, world: ServiceWorld, folder: str, threads: int, config: dict[str, Any]) -> None:
        self._world, self._folder = world, Path(folder)
        Registry(self._folder / "models").add("model", world.model())
        document = {
            "models": str(self._folder / "models"),
            "engine": [{"name": "live", "model": "model", "threads": threads}],
            "snapshots": {"every_entries": 0, "at_close": False},
            "changes": {"idle_s": 1},
            **config,
        }
        self._document = document
        self._deployment = lg.Deployment(document, self._folder / "data", graph=world.graph)
        self._serving = ExitStack()
        self._deployment.start()

    def apply(self, size: int, first: int, count: int, under_way: int) -> float:
        """Seconds of so many batches in process, `under_way` at a time."""
        batches = [self._world.batch(number, size, first).updates() for number in range(first, first + count)]
        waiting: deque[Any] = deque()
        begin = time.perf_counter()
        for each in batches:
            waiting.append(self._deployment.submit(each))
            if len(waiting) >= under_way:
                waiting.popleft().result()
        for each in waiting:
            each.result()
        return time.perf_counter() - begin

    def serve(self) -> str:
        """The URL, from now on."""
        from livegnn.serve.limits import Limits
        from livegnn.serve.runner import background_app, even_latency
        from livegnn.serve.service.app import service

        server = self._deployment.config.server
        limits = Limits(
            body_bytes_max=server.body_bytes_max,
            updates_max=server.updates_max,
            connections_max=server.connections_max,
        )
        self._serving.enter_context(even_latency())
        application = service(self._deployment, limits=limits)
        return self._serving.enter_context(background_app(application, for_others=False))

    def counts(self) -> tuple[int, int, int, list[float]]:
        """Entries, requests and updates so far, and the newest freshness figures in seconds."""
        stats = self._deployment.commits
        return stats.entries, stats.requests, stats.updates, list(stats.freshness_s)

    def recover(self) -> tuple[float, int]:
        """Seconds of a start that finds the log's whole tail, and the version that it reaches; closes the first."""
        self._serving.close()
        self._deployment.close()
        again = lg.Deployment(self._document, self._folder / "data", graph=self._world.graph)
        begin = time.perf_counter()
        again.start()
        seconds = time.perf_counter() - begin
        self._deployment = again
        return seconds, again.version

    def reset(self) -> None:
        """Forgets the freshness figures so far."""
        self._deployment._committer._freshness.clear()

    def digest(self) -> str:
        """Of the engine's state."""
        return self._deployment.engine("live").state_digest()


class Pause:
    """A deployment of a random graph and no engine, for the pause that a snapshot makes."""

    def __init__(self, folder: str, vertices: int, edges: int) -> None:
        rng = np.random.default_rng(2)
        features = rng.standard_normal((vertices, 16), dtype=np.float32)
        graph = lg.Graph(features, *(rng.integers(0, vertices, edges) for _ in range(2)))
        config = {"snapshots": {"every_entries": 0, "at_close": False, "keep": 1}}
        self._deployment = lg.Deployment(config, Path(folder) / "data", graph=graph).start()

    def snapshots(self, count: int) -> list[float]:
        """Seconds for which each of so many stopped writes."""
        return [self._deployment.snapshot().pause_s for _ in range(count)]


class Clients:
    """The load. Each kind of request is a list of whole requests, sent once in order."""

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world
        self._requests: Iterator[bytes] = iter(())

    def make_bulk(self, url: str, size: int, first: int, count: int, arrow: bool = False) -> None:
        """Batches as frames; as Arrow streams, which hold edges alone, without the feature rows."""
        batches = [self._world.batch(number, size, first) for number in range(first, first + count)]
        if arrow:
            made = [request(f"{url}/v1/updates", arrow_body(each), ARROW) for each in batches]
        else:
            made = [request(f"{url}/v1/updates", encode_updates(each.updates()), CONTENT_TYPE) for each in batches]
        self._requests = iter(made)

    def make_singles(self, url: str, first: int, count: int) -> None:
        """One update each, as JSON: an addition, a removal and a feature row in turns."""
        items = [each for n in range(first, first + count // 3) for each in self._world.batch(n, 3, first).items()]
        bodies = (json.dumps({"updates": [each]}).encode() for each in items)
        self._requests = iter([request(f"{url}/v1/updates", body, JSON) for body in bodies])

    def make_reads(self, url: str, ids: int) -> None:
        """Predictions of so many random vertices each, for ever."""
        drawn = np.random.default_rng(5).integers(0, self._world.vertices, (4096, ids)).tolist()
        made = [request(f"{url}/v1/predict", json.dumps({"ids": each}).encode(), JSON) for each in drawn]
        self._requests = itertools.cycle(made)

    def drive(self, url: str, pace: Pace) -> LoadResult:
        """Sends what was made."""
        return driven(url, pace, self._requests)


def arrow_body(batch: Batch) -> bytes:
    """A batch as an Arrow stream of edges that are added and removed."""
    import pyarrow as pa

    src, dst = (np.concatenate([batch.added[side], batch.removed[side]]) for side in (0, 1))
    op = ["add"] * len(batch.added[0]) + ["remove"] * len(batch.removed[0])
    table = pa.record_batch({"src": src, "dst": dst, "op": op})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_batch(table)
    return sink.getvalue()


class Subscribers:
    """Connections that read events and throw them away, in a thread of their own."""

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world
        self.bytes = self.open = 0

    def follow(self, url: str, count: int) -> int:
        """Opens so many; returns how many are open."""
        ready = threading.Event()
        threading.Thread(target=self._run, args=(url, count, ready), daemon=True).start()
        ready.wait(120)
        return self.open

    def received(self) -> tuple[int, int]:
        """Connections that are open, and bytes so far."""
        return self.open, self.bytes

    def _run(self, url: str, count: int, ready: threading.Event) -> None:
        asyncio.run(self._open(url, count, ready))

    async def _open(self, url: str, count: int, ready: threading.Event) -> None:
        parts, loop = urlsplit(url), asyncio.get_running_loop()
        rng = np.random.default_rng(9)
        for number in range(count):
            head = (
                f"GET /v1/changes?{_filter(number, rng, self._world.vertices)} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
            )
            await loop.create_connection(lambda head=head: _Reader(self, head), parts.hostname, parts.port)
        await asyncio.sleep(1.0)
        ready.set()
        await asyncio.Event().wait()


def _filter(number: int, rng: np.random.Generator, vertices: int) -> str:
    """Of ten subscribers seven follow ten vertices of their own, one all flips, one a threshold, one large changes."""
    kind = number % 10
    if kind < 7:
        return urlencode([("ids", each) for each in rng.integers(0, vertices, 10).tolist()])
    if kind == 7:
        return "flips=true"
    if kind == 8:
        return f"class={number % 40}&above=0.9"
    return f"min_change={20 + number // 10}"


class _Reader(asyncio.Protocol):
    def __init__(self, owner: Subscribers, head: str) -> None:
        self._owner, self._head = owner, head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._head.encode())  # type: ignore[attr-defined]
        self._owner.open += 1

    def data_received(self, data: bytes) -> None:
        self._owner.bytes += len(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.open -= 1
