"""What a deployment did of late: one look a second at its counters, kept for two minutes.

A batch costs one addition for each engine, in the applying thread. The rest is done by the event loop, once a second,
or by who asks: which vertices moved most is read from the ring of changes, so it is known only while somebody follows
the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from livegnn.deployment import Deployment
from livegnn.deployment.committer import CommitStats
from livegnn.deployment.filters import ChangeTable
from livegnn.deployment.hub import Span
from livegnn.inference import Changes
from livegnn.types import AnyArray

TICK_S = 1.0
KEPT = 120  # ticks
RATE_TICKS = 10  # of the rate that is shown
_BUCKET_S, _BUCKETS = 5, 12  # of most-changed vertices: one minute
_BUCKET_MAX = 1000  # vertices of a bucket that stay
_LOOKED_AT = 1 << 16  # rows of one look
Vertex: TypeAlias = tuple[str | None, Hashable]  # type, id


class Tick(NamedTuple):
    """One second. at: its end, Unix time.  seconds: how long it was.  p50_ms, p99_ms: freshness, None without requests.

    changed: by engine.  waiting: updates in the queue at its end.
    """

    number: int
    at: float
    seconds: float
    updates: int
    requests: int
    p50_ms: float | None
    p99_ms: float | None
    waiting: int
    changed: dict[str, int]


class Moved(NamedTuple):
    """A vertex that changed. moved: sum of the largest changes of a column.  versions: that changed it."""

    vertex: Any
    vertex_type: str | None
    moved: float
    versions: int
    prediction: Any


def quantiles_ms(seconds: tuple[float, ...]) -> tuple[float | None, float | None, float | None]:
    """p50, p99 and the maximum, in milliseconds; None where there is nothing."""
    if not seconds:
        return None, None, None
    p50, p99, most = (np.quantile(seconds, (0.5, 0.99, 1.0)) * 1e3).tolist()
    return p50, p99, most


class ActivityWindows:
    """Ticks, and the most-changed vertices. begin() and tick() belong to the event loop; the rest to any thread."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.began = time.time()
        self.changed: dict[str, int] = {}  # outputs, since the start
        with deployment.graph.host.lock:
            deployment.on_replaced(self._count)
            for name in deployment.engines:
                self._count(name)
        self.ticks: deque[Tick] = deque(maxlen=KEPT)
        self._last = self._look()
        self._most = {name: MostChanged() for name in deployment.engines}
        self._task: asyncio.Task[None] | None = None

    def _count(self, name: str) -> None:
        """Counts an engine from now on, also one that has the name of another. One that is gone changes nothing."""

        def count(changes: Changes) -> None:
            self.changed[name] += len(changes)

        self.changed.setdefault(name, 0)
        engine = self._deployment.engines.get(name)
        if engine is not None:
            engine.on_change(count)

    async def begin(self) -> None:
        """Looks once a second from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def end(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._deployment.is_open:
            await asyncio.sleep(TICK_S)
            self.tick()

    def _look(self) -> tuple[float, CommitStats, dict[str, int]]:
        return time.monotonic(), self._deployment.commits, dict(self.changed)

    def tick(self) -> None:
        """One look."""
        (then, before, changed), (now, commits, totals) = self._last, self._look()
        self._last = now, commits, totals
        requests = commits.requests - before.requests
        p50, p99, _ = quantiles_ms(commits.freshness_s[-requests:] if requests else ())
        self.ticks.append(
            Tick(
                self.ticks[-1].number + 1 if self.ticks else 1,
                time.time(),
                now - then,
                commits.updates - before.updates,
                requests,
                p50,
                p99,
                commits.waiting_updates,
                {name: total - changed.get(name, 0) for name, total in totals.items()},
            )
        )

    def rate(self) -> tuple[float, float]:
        """Updates and requests a second, over the newest ticks."""
        ticks = list(self.ticks)[-RATE_TICKS:]
        seconds = sum(one.seconds for one in ticks) or 1.0
        return sum(one.updates for one in ticks) / seconds, sum(one.requests for one in ticks) / seconds

    def affected(self, name: str) -> float | None:
        """Outputs that an update changed, on average over the ticks; None without updates."""
        ticks = list(self.ticks)
        updates = sum(one.updates for one in ticks)
        return sum(one.changed.get(name, 0) for one in ticks) / updates if updates else None

    def most_changed(self, name: str, count: int) -> list[Moved] | None:
        """Those of the last minute, most first; None where the engine is not followed. Not in the event loop."""
        most = self._most[name]
        span = self._deployment.hub.recent(name, most.place, _LOOKED_AT)
        if span is None:
            return None
        engine = self._deployment.engine(name)
        most.take(span, time.monotonic(), next(iter(engine.model.outputs), None))
        return most.best(time.monotonic(), count)


class MostChanged:
    """Vertices by how much they moved in the last minute, of one engine. Each bucket keeps those that moved most."""

    def __init__(self) -> None:
        self.place = 0  # versions up to it have been looked at
        self._buckets: deque[tuple[int, dict[Vertex, Moved]]] = deque(maxlen=_BUCKETS)

    def take(self, span: Span, now: float, output: str | None) -> None:
        """Adds versions. Those beyond the bound of one look are left out."""
        if span.floor > self.place and span.reason == "model":
            self._buckets.clear()  # rows of another model
        self.place = max(self.place, span.reached)
        number = int(now // _BUCKET_S)
        if not self._buckets or self._buckets[-1][0] != number:
            self._buckets.append((number, {}))
        bucket = self._buckets[-1][1]
        for vertex_type in dict.fromkeys(each for version in span.versions for each in version.parts):
            for one in _moved(ChangeTable(span.versions, vertex_type, output), vertex_type):
                _add(bucket, one)
        if len(bucket) > 2 * _BUCKET_MAX:
            kept = sorted(bucket.values(), key=lambda one: -one.moved)[:_BUCKET_MAX]
            self._buckets[-1] = (number, {(one.vertex_type, one.vertex): one for one in kept})

    def best(self, now: float, count: int) -> list[Moved]:
        """Those of the buckets of the last minute."""
        oldest = int(now // _BUCKET_S) - _BUCKETS
        found: dict[Vertex, Moved] = {}
        for number, bucket in self._buckets:
            if number > oldest:
                for one in bucket.values():
                    _add(found, one)
        return sorted(found.values(), key=lambda one: (-one.moved, -one.versions, str(one.vertex)))[:count]


def _add(table: dict[Vertex, Moved], one: Moved) -> None:
    key = (one.vertex_type, one.vertex)
    before = table.get(key)
    if before is not None:
        one = one._replace(moved=before.moved + one.moved, versions=before.versions + one.versions)
    table[key] = one


def _moved(table: ChangeTable, vertex_type: str | None) -> list[Moved]:
    """The vertices of a table that moved most. One that came or went has not moved, but it has changed."""
    change = np.where(np.isfinite(table.largest), table.largest, 0.0)
    ids, newest, place = np.unique(table.ids[::-1], return_index=True, return_inverse=True)
    moved = np.bincount(place[::-1], weights=change, minlength=len(ids))
    versions = np.bincount(place, minlength=len(ids))
    newest = len(table.ids) - 1 - newest
    chosen: AnyArray = np.argsort(-moved, kind="stable")[:_BUCKET_MAX]
    now = table.predicted[1][newest[chosen]].tolist()
    gone = table.is_gone[newest[chosen]].tolist()
    return [
        Moved(vertex, vertex_type, amount, count, None if is_gone else prediction)
        for vertex, amount, count, prediction, is_gone in zip(
            ids[chosen].tolist(), moved[chosen].tolist(), versions[chosen].tolist(), now, gone, strict=True
        )
    ]
