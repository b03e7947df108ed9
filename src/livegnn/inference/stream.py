"""Streams: batches sized by a deadline, not by a count.

An update's age, when its effect is published, is its wait for the batch before it plus its own batch. Both are batches
of this stream, so each may take half of the latency. A batch therefore holds the largest number of updates whose
predicted cost is at most that half, and never waits to be full: what has arrived meanwhile goes in. While one batch is
applied the next one gathers, which makes batches grow with the load and shrink with it.

Cost is a + b n, fitted by least squares in which older batches count less and less. One slow batch must not spoil it
(a measurement counts for at most SURPRISE times its prediction, so a lasting change still wins within a few batches),
and half of what is measured lies above a fitted line, so predictions carry a margin: twice the usual excess.

A source that is a sequence is read by the caller's thread. Any other iterable is read by a thread of its own, since it
may block while updates that have arrived grow old; it is never more than the next batch ahead.

Nothing is lost: `position` counts the updates whose effect is published, `remaining()` gives the items taken from the
source and not applied. Both change together with the graph, Ctrl-C being held back for that long.
"""

from __future__ import annotations

import logging
import math
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, Protocol, Self, TypeAlias

from livegnn.errors import DtypeInvalid, UpdateError, UsageError, ValueInvalid
from livegnn.graph import Graph, Updates
from livegnn.inference.changes import Changes

Item: TypeAlias = "Updates | tuple[Any, ...]"
Clock: TypeAlias = Callable[[], float]
Latency: TypeAlias = "str | float | timedelta"

SURPRISE = 4.0
_FORGET = 0.9  # weight of a batch relative to the one after it
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SCALAR = ("add_edge", "remove_edge", "remove_edges_before", "set_weight", "set_edge_attr", "set_features")
_METHODS = frozenset((*_SCALAR, "add_vertex", "remove_vertex"))
_log = logging.getLogger("livegnn")


def parse_latency(latency: object) -> float:
    """Seconds, from "50ms", "2 s", "500us", "1min", a number of seconds or a timedelta.

    Raises: ValueInvalid for one that is not above 0 and finite, or cannot be read; DtypeInvalid for another type.
    """
    seconds: float
    if isinstance(latency, timedelta):
        seconds = latency.total_seconds()
    elif isinstance(latency, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|ms|s|min)\s*", latency)
        if found is None:
            raise ValueInvalid(
                f"[stream] expected latency as a number with us, ms, s or min, got {latency!r}; write it as in '50ms'"
            )
        seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(latency, int | float) and not isinstance(latency, bool):
        seconds = float(latency)
    else:
        raise DtypeInvalid(
            f"[stream] expected latency as text, seconds or a timedelta, got {latency!r} of "
            f"{type(latency).__name__}; write it as in '50ms'"
        )
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueInvalid(f"[stream] expected a latency above 0 and finite, got {latency!r}; choose one")
    return seconds


class CostModel:
    """Seconds of a batch of n updates, learned batch by batch: a + b n, and a margin for what is not so regular."""

    def __init__(self) -> None:
        self._weight = self._n = self._t = self._nn = self._nt = 0.0
        self._excess = 0.0  # usual excess over the prediction, relative to it
        self._last = 0

    def observe(self, size: int, seconds: float) -> None:
        """Learns from one batch."""
        keep = _FORGET
        if self._weight:
            predicted = max(self._line(size), 1e-9)
            seconds = min(seconds, SURPRISE * predicted)
            excess = min(max(0.0, seconds / predicted - 1.0), 1.0)
            self._excess = _FORGET * self._excess + (1 - _FORGET) * excess
            keep = _FORGET if 0.5 < seconds / predicted < 2 else _FORGET / 2
        self._weight = keep * self._weight + 1
        self._n = keep * self._n + size
        self._t = keep * self._t + seconds
        self._nn = keep * self._nn + size * size
        self._nt = keep * self._nt + size * seconds
        self._last = size

    def predict(self, size: int) -> float:
        """Seconds, margin included; 0 before anything was learned."""
        return self._line(size) * (1 + 2 * self._excess) if self._weight else 0.0

    def size_for(self, seconds: float) -> int:
        """The largest size predicted to take at most `seconds`; at least 1, and at most twice the last one.

        Where one update takes longer, as many as cost as much again as a batch costs anyway.
        """
        if not self._weight:
            return 1
        fixed, each = self._fit()
        room = seconds / (1 + 2 * self._excess) - fixed
        if room < each and not self._differ():  # late as it is: find out what a larger batch costs
            return 2 * self._last
        if room < each:  # not even one update is in time: a batch then costs twice its fixed part, and wastes no more
            room = fixed
        fits = room / each if each > 0 else math.inf
        return max(1, int(min(fits, 2 * self._last)))

    def _line(self, size: int) -> float:
        fixed, each = self._fit()
        return fixed + each * size

    def _fit(self) -> tuple[float, float]:
        """(a, b), neither negative. Sizes that hardly differ say nothing of a, nor does a line that falls: then all
        cost is each update's.
        """
        mean_n, mean_t = self._n / self._weight, self._t / self._weight
        if self._differ():
            spread = self._nn / self._weight - mean_n * mean_n
            each = (self._nt / self._weight - mean_n * mean_t) / spread
            if 0 < each * mean_n <= mean_t:
                return mean_t - each * mean_n, each
        return 0.0, mean_t / mean_n

    def _differ(self) -> bool:
        """Whether sizes differ enough to distinguish a from b."""
        return self._nn * self._weight > (1 + 1e-3) * self._n * self._n


@dataclass(frozen=True)
class StreamBatch:
    """One batch of a stream.

    size: its updates.  position: updates of the stream applied so far, these included.  seconds: of engine.apply.
    queue_seconds: how long its oldest update had waited when the batch began.  age_seconds: that update's age when the
    batch was published.  late: whether that is more than the latency.  size_max: how many updates it could have held.
    """

    changes: Changes
    size: int
    position: int
    seconds: float
    queue_seconds: float
    age_seconds: float
    late: bool
    size_max: int


class Applies(Protocol):
    """What a stream applies its batches to: an Engine."""

    @property
    def graph(self) -> Graph:
        """Whose version says that a batch stands."""

    def apply(self, updates: Updates) -> Changes:
        """Applies a batch, all or none."""


class Feed(Protocol):
    """Where a stream takes items from; an item comes with the time at which it arrived."""

    def wait(self, count: int) -> None:
        """Waits until there is an item or the source has ended; raises what the source raised. Reads ahead no further
        than `count` updates.
        """

    def take(self, count: int) -> list[tuple[Item, float]]:
        """Items with at most `count` updates in all, or one; empty where the source has ended. Does not wait."""

    def close(self) -> list[tuple[Item, float]]:
        """Takes no more; returns what was read ahead."""


class Stream:
    """Batches of a source of updates, applied to an engine as they are asked for; an iterator of StreamBatch.

    Made by engine.stream(). Close it, or use it in a with block, to stop reading a source that has not ended.
    """

    def __init__(
        self,
        engine: Applies,
        source: object,
        latency: Latency,
        *,
        clock: Clock = time.monotonic,
        feed: Feed | None = None,
    ) -> None:
        self.latency_seconds = parse_latency(latency)
        self.engine = engine
        self.cost = CostModel()
        self.position = 0
        self.item_count = 0
        self.late_count = 0
        self._clock = clock
        self._feed = _feed_for(source, clock) if feed is None else feed
        self._chunks: deque[list[tuple[Item, float]]] = deque()  # taken, and cut where a batch was refused
        self._done = False

    def __iter__(self) -> Iterator[StreamBatch]:
        return self

    def __next__(self) -> StreamBatch:
        """The next batch, applied.

        Raises: UpdateError or UsageError as engine.apply, naming the place in the stream. All before that update is
                applied, it and what follows is not, whatever the batches were.
        """
        while not self._done:
            size_max = self.cost.size_for(self.latency_seconds / 2)
            if not self._chunks:
                self._feed.wait(size_max)
                with _InterruptHeld():  # between the feed and the chunks nothing may be lost
                    taken = self._feed.take(size_max)
                    if not taken:
                        self.close()
                        break
                    self._chunks.append(taken)
            chunk = self._chunks[0]
            try:
                with _InterruptHeld():
                    return self._apply(chunk, size_max)
            except (UpdateError, UsageError) as error:
                if not self._chunks or self._chunks[0] is not chunk:
                    raise  # the batch stands: something else on the graph has failed
                if len(chunk) == 1:
                    self.close()
                    where = f"stream, update {self.position}"
                    raise error.reworded(f"[{where}] {error}", where=where, update=self.position) from error
                half = len(chunk) // 2
                self._chunks.popleft()
                self._chunks.extendleft([chunk[half:], chunk[:half]])
            except Exception:
                self.close()
                raise
        raise StopIteration

    def _apply(self, chunk: list[tuple[Item, float]], size_max: int) -> StreamBatch:
        updates = joined([item for item, _ in chunk])
        size, graph = len(updates), self.engine.graph
        begin = self._clock()
        with graph.host.lock:
            version = graph.version
            try:
                changes = self.engine.apply(updates)
            finally:
                if graph.version != version:  # the batch stands, even where a callback has raised
                    self._chunks.popleft()
                    self.position += size
                    self.item_count += len(chunk)
            end = self._clock()
        self.cost.observe(max(size, 1), end - begin)
        arrived = min(at for _, at in chunk)
        late = end - arrived > self.latency_seconds
        if late and not self.late_count:
            _log.warning("[stream] latency of %g s not held at update %d", self.latency_seconds, self.position)
        self.late_count += late
        return StreamBatch(changes, size, self.position, end - begin, begin - arrived, end - arrived, late, size_max)

    def remaining(self) -> list[Item]:
        """Items taken from the source and not applied, in order; the stream is closed. With what the source still
        holds, they are the rest.
        """
        self.close()
        return [item for chunk in self._chunks for item, _ in chunk]

    def close(self) -> None:
        """Applies and reads no more. A thread that is waiting for its source ends when that answers; what it answers
        then is among remaining().
        """
        self._done = True
        with _InterruptHeld():
            ahead = self._feed.close()
            if ahead:
                self._chunks.append(ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def joined(items: Sequence[Item]) -> Updates:
    """The updates of items, in order, as one batch. Raises: UsageError for what is no update; else as Updates."""
    if len(items) == 1 and isinstance(items[0], Updates):
        return items[0]
    updates = Updates()
    for item in items:
        if isinstance(item, Updates):
            updates.extend(item)
            continue
        if not isinstance(item, tuple) or not item or item[0] not in _METHODS:
            raise UsageError(
                f"[stream] expected Updates or a tuple such as ('add_edge', u, v, {{'weight': 1.0}}), got {item!r}; "
                f"name one of {', '.join(sorted(_METHODS))}"
            )
        name, *arguments = item
        options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        try:
            getattr(updates, name)(*arguments, **options)
        except TypeError as cause:
            if isinstance(cause, UpdateError):
                raise
            raise UsageError(f"[stream] expected the arguments of Updates.{name}, got {item!r} ({cause})") from cause
    return updates


def _size(item: object) -> int:
    return max(1, len(item)) if isinstance(item, Updates) else 1


# ---- sources


def _feed_for(source: object, clock: Clock) -> Feed:
    if isinstance(source, Updates):
        return _Listed([source], clock)
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return _Listed(source, clock)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return _Threaded(iter(source), clock)
    raise UsageError(
        f"[stream] expected an iterable of updates, got {type(source).__name__}; pass a list or a generator"
    )


class _Listed:
    """A sequence: an item arrives when it is taken."""

    def __init__(self, source: Sequence[Any], clock: Clock) -> None:
        self._source, self._clock, self._place = source, clock, 0

    def wait(self, count: int) -> None:
        """A sequence is there."""

    def take(self, count: int) -> list[tuple[Item, float]]:
        taken: list[tuple[Item, float]] = []
        now = self._clock()
        while count > 0 and self._place < len(self._source):
            item = self._source[self._place]
            if taken and _size(item) > count:
                break
            taken.append((item, now))
            self._place += 1
            count -= _size(item)
        return taken

    def close(self) -> list[tuple[Item, float]]:
        return []


class _Threaded:
    """An iterator read by a thread, as far ahead as the next batch reaches. An error of the source comes after the
    items before it.
    """

    def __init__(self, source: Iterator[Any], clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._items: deque[tuple[Item, float]] = deque()
        self._updates = 0  # in _items
        self._ahead_max = 1
        self._ended = self._closed = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="livegnn stream", daemon=True).start()

    def _read(self) -> None:
        while True:
            with self._changed:
                while self._updates >= self._ahead_max and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
            try:
                item = next(self._source)
            except StopIteration:
                self._end(None)
                return
            except BaseException as error:  # the caller's, raised in the caller's thread
                self._end(error)
                return
            with self._changed:
                self._items.append((item, self._clock()))
                self._updates += _size(item)
                self._changed.notify_all()

    def _end(self, failure: BaseException | None) -> None:
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            self._ahead_max = count
            self._changed.notify_all()
            while not self._items and not self._ended and not self._closed:
                self._changed.wait()
            if not self._items and self._failure is not None:
                raise self._failure

    def take(self, count: int) -> list[tuple[Item, float]]:
        with self._changed:
            taken: list[tuple[Item, float]] = []
            while self._items and (not taken or _size(self._items[0][0]) <= count):
                taken.append(self._items.popleft())
                count -= _size(taken[-1][0])
            self._updates -= sum(_size(item) for item, _ in taken)
            self._changed.notify_all()
            return taken

    def close(self) -> list[tuple[Item, float]]:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            ahead = list(self._items)
            self._items.clear()
            return ahead


class _InterruptHeld:
    """Holds Ctrl-C back inside the block and lets it through after it; elsewhere than in the main thread, nothing."""

    def __enter__(self) -> None:
        self._held: list[tuple[int, FrameType | None]] = []
        self._previous: Any = None
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._previous = signal.signal(signal.SIGINT, lambda number, frame: self._held.append((number, frame)))

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            if self._held:
                self._previous(*self._held[0])
