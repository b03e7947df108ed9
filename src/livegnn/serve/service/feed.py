"""The feed: one task wakes the subscribers of GET /v1/changes; what filters share is worked out once.

    a version -> hub -> (wake) -> round: versions since the last one, each filter evaluated once, events encoded once
                                     -> every subscriber that waits with that filter gets the same bytes

A subscriber holds the version up to which it has seen everything, and nothing else. One that does not keep up finds
itself behind the rounds, and reads on from the hub's ring by itself; where the ring has moved on, it gets a `missed`.
After a round the task rests four times as long as the round took, so that it takes a fifth of the time of one core at
most: under load events come in larger groups, and updates keep their rate.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from livegnn.deployment.filters import ChangedVersion, ChangeFilter, ChangeTable, places_of
from livegnn.deployment.hub import Follow, Hub, Span
from livegnn.errors import LiveGnnError
from livegnn.serve.envelope import Refused
from livegnn.types import Int64Array

Result = TypeVar("Result")
_log = logging.getLogger("livegnn.serve")
_REST_S, _REST_MAX_S = 0.005, 0.5
_REST_TIMES = 4
_CHANGE_BYTES = 32  # of one vertex in an event, about
_PIECE_BYTES = 1 << 18  # of events that go to a subscriber at once, about


class Woken(NamedTuple):
    """What a round gives one that waits. reached: what it has seen then; None: it must look for itself."""

    events: bytes
    reached: int | None


class Subscription:
    """The events of one subscriber, as an asynchronous iterator of pieces; its place is free after close()."""

    def __init__(self, feed: ChangeFeed, group: _Group, wanted: ChangeFilter, position: int) -> None:
        self._feed, self._group, self._wanted = feed, group, wanted
        self._position = position
        self._begun = self._ended = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun:
            self._begun = True
            return ping(self._position)
        while not self._ended and not self._feed.has_ended and not self._group.has_ended:
            if self._position < self._group.done:
                piece = await self._behind()
            else:
                piece = await self._waited()
            if piece:
                return piece
        raise StopAsyncIteration

    async def _waited(self) -> bytes:
        woken = await self._group.wait(self._wanted, self._position)
        if woken.reached is not None:
            self._position = max(self._position, woken.reached)
        return woken.events

    async def _behind(self) -> bytes:
        """The next versions of the ring, or what of them was missed."""
        span = self._group.follow.since(self._position, self._group.done)
        if span.floor > self._position:
            piece = missed(self._position, span)
            self._position = span.floor
            self._feed.hub.missed += 1
            if span.reason == "model":
                self._end_if_unfit()
            return piece
        piece, self._position = await self._feed.caught_up(self._wanted, span)
        return piece

    def _end_if_unfit(self) -> None:
        """A filter may not fit the new model: the stream ends, and the next request learns why."""
        try:
            self._feed.hub.check(self._wanted)
        except LiveGnnError:
            self._ended = True

    def close(self) -> None:
        """Gives the place back. A second call does nothing."""
        self._ended = True
        self._feed.leave(self)

    @property
    def of(self) -> tuple[_Group, ChangeFilter]:
        """Where it belongs."""
        return self._group, self._wanted


class _Group:
    """Subscribers of one engine. done: all filters have been evaluated up to this version."""

    def __init__(self, follow: Follow) -> None:
        self.follow = follow
        self.done = follow.head
        self.has_ended = False  # its engine is gone: who comes again gets another group
        self.members: defaultdict[ChangeFilter, int] = defaultdict(int)
        self._waiting: defaultdict[ChangeFilter, list[asyncio.Future[Woken]]] = defaultdict(list)
        self._early: list[asyncio.Future[Woken]] = []  # their places lie after `done`
        self._index: FilterIndex | None = None

    def wait(self, wanted: ChangeFilter, position: int) -> asyncio.Future[Woken]:
        """What the next round that concerns this subscriber gives it."""
        future: asyncio.Future[Woken] = asyncio.get_running_loop().create_future()
        (self._early if position > self.done else self._waiting[wanted]).append(future)
        return future

    def join(self, wanted: ChangeFilter) -> None:
        """One more of this filter."""
        if wanted not in self.members:
            self._index = None
        self.members[wanted] += 1

    def leave(self, wanted: ChangeFilter) -> None:
        """One fewer."""
        self.members[wanted] -= 1
        if not self.members[wanted]:
            del self.members[wanted]
            self._waiting.pop(wanted, None)
            self._index = None

    def index(self) -> FilterIndex:
        """Of the filters as they are now."""
        if self._index is None:
            self._index = FilterIndex(list(self.members))
        return self._index

    def wake(self, index: FilterIndex, events: Mapping[ChangeFilter, bytes | None], reached: int) -> None:
        """After a round: those for whom there is something. A filter that came meanwhile looks for itself, as does one
        whose events are too many for one piece: all it had seen is `done`.
        """
        seen, self.done = self.done, reached
        for wanted in [each for each in self._waiting if each in events or each not in index.known]:
            found = events.get(wanted)
            if found is not None:
                woken = Woken(found, reached)
            else:
                woken = Woken(b"", seen if wanted in index.known else None)
            _resolve(self._waiting.pop(wanted), woken)
        self._wake_early()

    def wake_all(self, piece: bytes, reached: int | None) -> None:
        """All of them, with the same piece."""
        self.done = self.done if reached is None else reached
        waiting, self._waiting = self._waiting, defaultdict(list)
        for futures in waiting.values():
            _resolve(futures, Woken(piece, reached))
        self._wake_early()

    def _wake_early(self) -> None:
        early, self._early = self._early, []
        _resolve(early, Woken(b"", None))


class ChangeFeed:
    """The subscribers of a hub, in one event loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.changes_max = hub, hub.config.event_changes_max
        self.has_ended = False
        self._groups: dict[str, _Group] = {}
        self._members: set[Subscription] = set()
        self._joining = 0
        self._lock, self._catching_up = asyncio.Lock(), asyncio.Lock()
        self._next_catch_up = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._is_notified = False
        self._worker = ThreadPoolExecutor(1, "livegnn-changes")

    async def subscribe(self, wanted: ChangeFilter, after: int | None, at_least: int = 0) -> Subscription:
        """A subscription to what happens after a version; without one, after the newest, or `at_least`.

        Raises:  Refused beyond the limit, or while the service drains; as Hub.follow.
        """
        config = self.hub.config
        if self.has_ended and self._loop is asyncio.get_running_loop():
            raise Refused(503, "Draining", "[changes] expected a service that goes on, got one that ends", True)
        if len(self._members) + self._joining >= config.subscribers_max:
            limit = f"[changes] expected up to {config.subscribers_max} subscribers, got one more; come again later"
            raise Refused(429, "SubscribersFull", limit, True)
        self._joining += 1
        try:
            group = await self._group(wanted)
        finally:
            self._joining -= 1
        position = max(group.done, at_least) if after is None else after
        one = Subscription(self, group, wanted, position)
        group.join(wanted)
        self._members.add(one)
        self.hub.subscribers = len(self._members)
        return one

    async def _group(self, wanted: ChangeFilter) -> _Group:
        """The group of an engine; made, and the task begun, where this is its first subscriber."""
        if self._loop is not asyncio.get_running_loop():
            self._begin(asyncio.get_running_loop())
        self.hub.check(wanted)
        async with self._lock:
            found = self._groups.get(wanted.engine)
            if found is None:
                follow = await self.aside(lambda: self.hub.follow(wanted))
                found = self._groups[wanted.engine] = _Group(follow)
        return found

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """For the first subscriber of an event loop."""
        for group in self._groups.values():
            group.follow.close()
        self._groups, self._members = {}, set()
        self.has_ended = self._is_notified = False
        self._loop, self._lock, self._woken = loop, asyncio.Lock(), asyncio.Event()
        self._catching_up = asyncio.Lock()
        self.hub.listen(self._notify)
        self._task = loop.create_task(self._run())

    def leave(self, one: Subscription) -> None:
        """Forgets a subscription; with the last one of an engine, the engine is followed no more."""
        if one not in self._members:
            return
        self._members.discard(one)
        self.hub.subscribers = len(self._members)
        group, wanted = one.of
        group.leave(wanted)
        if not group.members:
            group.follow.close()
            self._groups = {name: each for name, each in self._groups.items() if each is not group}

    async def caught_up(self, wanted: ChangeFilter, span: Span) -> tuple[bytes, int]:
        """Events for one that is behind, and how far they go. One at a time, with rests as between rounds."""
        async with self._catching_up:
            await asyncio.sleep(max(0.0, self._next_catch_up - time.perf_counter()))
            began = time.perf_counter()
            found = await self.aside(lambda: _up_to(wanted, span, self.changes_max))
            ended = time.perf_counter()
            self._next_catch_up = ended + min(_REST_MAX_S, _REST_TIMES * (ended - began))
        return found

    async def aside(self, work: Callable[[], Result]) -> Result:
        """Runs work in the feed's own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def end(self) -> None:
        """Ends every stream; later subscribers are refused. In the event loop's thread."""
        self.has_ended = True
        for group in self._groups.values():
            group.wake_all(b"", None)
        self._woken.set()

    # ---- the task

    def _notify(self) -> None:
        """From the applying thread."""
        if not self._is_notified and self._loop is not None and not self._loop.is_closed():
            self._is_notified = True
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _run(self) -> None:
        every = self.hub.config.ping_ms / 1e3
        next_ping = time.monotonic() + every
        while not self.has_ended:
            try:
                async with asyncio.timeout(max(0.0, next_ping - time.monotonic())):
                    await self._woken.wait()
            except TimeoutError:
                next_ping = time.monotonic() + every
                self._ping()
                continue
            self._woken.clear()
            self._is_notified = False
            began = time.perf_counter()
            for group in list(self._groups.values()):
                try:
                    await self._round(group)
                except Exception:
                    _log.exception("[changes] a round failed at version %d; its versions are missed", group.done)
                    group.follow.ring.drop("fault")
                    self._woken.set()
            for _ in range(4):  # those that were woken send
                await asyncio.sleep(0)
            took = time.perf_counter() - began
            await asyncio.sleep(min(_REST_MAX_S, max(_REST_S, _REST_TIMES * took)))
        self.hub.unlisten(self._notify)

    def _ping(self) -> None:
        """To all that wait: they have seen what the rounds have."""
        for group in self._groups.values():
            group.wake_all(ping(group.done), group.done)

    async def _round(self, group: _Group) -> None:
        if group.follow.is_over:
            group.has_ended = True
            group.wake_all(b"", None)
            self._groups = {name: each for name, each in self._groups.items() if each is not group}
            return
        span = group.follow.since(group.done)
        if span.floor > group.done:  # each finds out for itself what it missed
            group.wake_all(b"", group.done)
            group.done = span.floor
        elif span.versions:
            index, most = group.index(), self.changes_max
            events = await self.aside(lambda: index.events(span.versions, most))
            group.wake(index, events, span.reached)
        else:
            group.done = span.reached
        if group.done < group.follow.head:
            self._woken.set()


class FilterIndex:
    """Distinct filters, by what they share: type and output, and those with lists of ids by id."""

    def __init__(self, filters: Sequence[ChangeFilter]) -> None:
        self.known = frozenset(filters)
        self._of: dict[tuple[str | None, str | None], tuple[list[ChangeFilter], dict[Hashable, list[ChangeFilter]]]]
        self._of = {}
        for one in filters:
            of_all, of_ids = self._of.setdefault((one.vertex_type, one.output), ([], {}))
            if one.ids is None:
                of_all.append(one)
            for each in one.ids or ():
                of_ids.setdefault(each, []).append(one)

    def events(self, versions: Sequence[ChangedVersion], most: int) -> dict[ChangeFilter, bytes | None]:
        """Encoded events, of the filters that let anything through; None where they are more than a piece."""
        found: dict[ChangeFilter, bytes | None] = {}
        for (vertex_type, output), (of_all, of_ids) in self._of.items():
            if not any(vertex_type in each.parts for each in versions):
                continue
            table = ChangeTable(versions, vertex_type, output)
            candidates: list[tuple[ChangeFilter, Int64Array | None]] = [(one, None) for one in of_all]
            candidates += _candidates(table, of_ids)
            for one, among in candidates:
                places = table.places(one, among)
                if len(places):
                    is_short = len(places) * _CHANGE_BYTES < _PIECE_BYTES
                    found[one] = b"".join(_encoded(table, one, places, most)) if is_short else None
        return found


def _candidates(
    table: ChangeTable, of_ids: dict[Hashable, list[ChangeFilter]]
) -> list[tuple[ChangeFilter, Int64Array | None]]:
    """Filters with lists of ids, of which any changed, and the rows of these."""
    if not of_ids:
        return []
    hits = places_of(table.ids, of_ids)
    rows: defaultdict[ChangeFilter, list[int]] = defaultdict(list)
    for place, vertex in zip(hits.tolist(), table.ids[hits].tolist(), strict=True):
        for one in of_ids[vertex]:
            rows[one].append(place)
    return [(one, np.array(places, np.int64)) for one, places in rows.items()]


def _encoded(table: ChangeTable, wanted: ChangeFilter, places: Int64Array, most: int) -> list[bytes]:
    """One event for each version."""
    of_version = np.searchsorted(table.ends, places, side="right")
    cuts = np.searchsorted(of_version, np.arange(len(table.versions) + 1))
    pieces = []
    for number in np.unique(of_version).tolist():
        first, last = int(cuts[number]), int(cuts[number + 1])
        shown = places[first : min(last, first + most)]
        version = table.versions[number]
        data = {
            "version": version.version,
            "engine": wanted.engine,
            "model": version.reference,
            "changes": table.changes(wanted, shown),
            "more": last - first - len(shown),
        }
        pieces.append(event("change", version.version, data))
    return pieces


def _up_to(wanted: ChangeFilter, span: Span, most: int) -> tuple[bytes, int]:
    """Events of one filter, until they are a piece, and the version up to which they go."""
    pieces, size = [], 0
    for version in span.versions:
        if wanted.vertex_type not in version.parts:
            continue
        table = ChangeTable([version], wanted.vertex_type, wanted.output)
        places = table.places(wanted)
        if len(places):
            pieces += _encoded(table, wanted, places, most)
            size += len(pieces[-1])
        if size > _PIECE_BYTES:
            return b"".join(pieces), version.version
    return b"".join(pieces), span.reached


def event(kind: str, version: int, data: object) -> bytes:
    """One server-sent event."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (version, kind.encode(), msgspec.json.encode(data))


def ping(version: int) -> bytes:
    """All up to this version has been sent."""
    return event("ping", version, {"version": version})


def missed(after: int, span: Span) -> bytes:
    """Versions that are not in the ring any more, or whose changes cannot be listed."""
    data = {"from": after + 1, "to": span.floor, "resume": span.floor, "reason": span.reason}
    return event("missed", span.floor, data)


def _resolve(futures: list[asyncio.Future[Woken]], woken: Woken) -> None:
    for future in futures:
        if not future.done():
            future.set_result(woken)
