"""FeatureCache: rows of features that are asked for again and again, kept where they are needed.

Which ids are cached, and which go next, is the native FeatureIndex's matter; where rows lie, device_rows.py's; where
they come from, sources.py's. This file joins the three under one lock.

Locks. A view of a graph holds the graph's lock before its own, always, so that the rows of a fetch are of one version.
Other caches hold their own alone. A batch is noted natively, whatever is locked; the next holder of the cache's lock
reads the changed rows again before it looks at any: the batch itself if the lock is free (published), else a fetch.
Where reading may be waiting for another process (a source that is not local) changed rows are forgotten instead, so
that only calls that read rows by their nature do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from livegnn import _native
from livegnn.errors import DtypeInvalid, StateMismatch, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import Graph, checks
from livegnn.graph.consumers import Consumer
from livegnn.graph.threads import thread_count
from livegnn.graph.updates import VertexType
from livegnn.optional import need
from livegnn.stored import file_path
from livegnn.temporal.caches.device_rows import CpuRows, InPlaceRows, Rows, TorchRows, bytes_of
from livegnn.temporal.caches.presample import count_uses
from livegnn.temporal.caches.sources import RowSource, edge_source, source_of
from livegnn.temporal.caches.stats import CacheStats, FetchStats
from livegnn.temporal.caches.storage import USES_MAX, read_contents, write_contents
from livegnn.temporal.checks import check_graph
from livegnn.types import BoolArray, Int64Array

if TYPE_CHECKING:
    from torch import Tensor

_POLICIES = {policy.name.lower(): policy for policy in _native.CachePolicy}
_CAPACITY_MAX = 2**29
_DENSE_MAX = 32  # an array over all ids, 4 bytes each, is worth it up to so many ids a cached row
_FILL_ROWS = 65536  # rows read at once outside fetches


class FeatureCache(Consumer):
    """Up to `capacity` rows of features on a device, in front of where the features are.

    fetch(ids)[i] = row ids[i] of the source, whatever is cached;  docs/feature-cache.md says which rows come and go

    Args:    features: (N, d) float32 or float16 array or tensor in main memory, numpy.memmap, the path of a .npy file,
             a Graph (vertex features by slot), or a FeatureSource.  vertex_type: of a Graph, the type whose rows are
             held, as wide as that type's; unless given rows of all types, as wide as the widest.
             capacity: rows, at least 1.  policy: "lru", "lfu", "fifo", or "static", which changes by warm() alone.
             max_replace: of the missed ids one fetch admits at most this share of the capacity, at least one;
             0 < max_replace <= 1.  device: of the rows given.
             threads: that copy rows on the CPU; all cores unless given.
             policy and device are attributes, for reading.
    Raises:  DtypeInvalid, WidthMismatch, ValueInvalid, UsageError; DataMissing without torch.
    Cost:    a fetch of k ids O(k) in the mean, and the rows.  Source: GNNFlow 4.3.

    >>> import numpy as np, livegnn as lg
    >>> from livegnn.temporal import FeatureCache
    >>> cache = FeatureCache(np.arange(8, dtype=np.float32).reshape(4, 2), capacity=2, max_replace=1.0)
    >>> cache.fetch([3, 1, 3]).tolist()
    [[6.0, 7.0], [2.0, 3.0], [6.0, 7.0]]
    >>> cache.ids().tolist(), cache.fetch([1, 0]).tolist(), cache.ids().tolist()
    ([3, 1], [[2.0, 3.0], [0.0, 1.0]], [1, 0])
    >>> cache.stats.hits, cache.stats.misses, cache.stats.last.hit_rate
    (1, 4, 0.5)
    """

    needs_all_edges = False  # reads the rows of those that it is asked for

    def __init__(
        self,
        features: object,
        *,
        vertex_type: VertexType | None = None,
        capacity: int = 100_000,
        policy: str = "lru",
        max_replace: float = 0.2,
        device: object = "cpu",
        threads: int | None = None,
    ) -> None:
        self._source = source_of(features, vertex_type)
        self._capacity, self.policy, self._max_replace = checked_options("FeatureCache", capacity, policy, max_replace)
        self._torch = need("torch", "train")
        self.device = _checked_device(self._torch, device)
        self._copier = _native.RowCopier(thread_count("FeatureCache", threads))
        self._index = self._new_index(self._capacity, self._source)
        self._rows = self._new_rows(self._capacity, self._source)
        self._lock = threading.Lock()
        self._stats = CacheStats()
        self._kept: tuple[Int64Array, Int64Array] | None = None
        self._closed = False
        self._graph: Graph | None = None
        self._followed: RowSource | None = None
        self._removals = 0  # rows that batches removed, as far as the cache knows
        self.follower: _native.ChangedRows | None = None
        if self._source.graph is not None:
            self._attach("FeatureCache", self._source.graph, self._source.edges)

    @classmethod
    def of_edges(cls, graph: Graph, **options: Any) -> Self:
        """A cache of a graph's edge attributes by edge id, (k, A) float32, A perhaps 0; options as FeatureCache.

        fetch raises EdgeMissing, naming the id, for an edge that was removed (with A = 0 this is not known), and
        EdgeOffloaded where it may lie in a file instead.
        """
        return cls(edge_source(graph), **options)

    @property
    def capacity(self) -> int:
        """Rows it may hold; resize() changes it."""
        return self._capacity

    # ---- reading

    def fetch(self, ids: object) -> Tensor:
        """The rows of ids, (k, d) on the device, row i for ids[i]; some of the missed rows are cached then.

        Args:    ids: (k,) integers, a list, array or tensor; any order, repeats welcome.
        Raises:  ValueInvalid (VertexUnknown, EdgeMissing for a graph) for an id that has no row, naming it;
                 DtypeInvalid; whatever the source raises. Then nothing has changed.
        """
        asked = self._id_array("fetch", ids)
        with self._held("fetch"):
            began = perf_counter()
            bad, places, missed, misses = self._index.lookup(asked, self._source.row_count, self._copier)
            if bad >= 0:
                self._source.refuse("fetch", int(asked[bad]), bad)
            looked = perf_counter()
            fresh = self._read(missed)
            read = perf_counter()
            rows = self._rows.joined(asked, places, fresh)
            copied = perf_counter()
            slots, evicted = self._commit(places, missed, fresh)
            done = perf_counter()
            self._stats.last = FetchStats(
                fetches=1,
                hits=len(asked) - misses,
                misses=misses,
                rows_read=len(missed),
                admitted=len(slots),
                evicted=evicted,
                bytes_read=len(missed) * self._row_bytes,
                bytes_to_device=len(missed) * self._rows.bytes_to_device,
                lookup_s=looked - began,
                read_s=read - looked,
                copy_s=copied - read,
                replace_s=done - copied,
            )
            self._stats.add(self._stats.last)
            return rows

    def ids(self) -> Int64Array:
        """The cached ids, (n,) int64, in the order in which they would go."""
        with self._held("ids"):
            return self._index.contents()[0]

    def __len__(self) -> int:
        return len(self._index)

    # ---- across rounds and epochs

    def save(self, path: str | PathLike[str]) -> None:
        """Writes which ids are cached and their order, not the rows; atomically. Raises: UsageError, StorageFailed."""
        with self._held("save"):
            ids, uses = self._index.contents()
        write_contents(file_path("save", path), self.policy, ids, uses)

    def load(self, path: str | PathLike[str]) -> None:
        """Makes what was saved the contents, rows read from the source as it is now.

        Ids that have no row any more, or that the followed graph has lost, are left out; where the capacity is less,
        the first to go are too.
        Raises:  StoredStateInvalid; UsageError for the file of another policy; FileMissing, StorageFailed. Then
                 nothing has changed. What the source raises leaves an empty cache.
        """
        policy, ids, uses = read_contents(file_path("load", path))
        if policy != self.policy:
            raise UsageError(
                f"[load] expected a file of a cache with {self.policy}, got {policy}; load it into one such"
            )
        self._put_back("load", lambda: (ids, uses))

    def checkpoint(self) -> None:
        """Remembers the contents and their order, as a round begins; takes the place of an earlier checkpoint."""
        with self._held("checkpoint"):
            self._kept = self._index.contents()

    def restore(self) -> None:
        """Puts the checkpoint's contents back, as an epoch begins; rows that had gone are read again. As load().

        Raises:  UsageError without a checkpoint. What the source raises leaves an empty cache.
        """
        if self._kept is None:
            raise UsageError("[restore] expected a checkpoint, got none; call checkpoint() as the round begins")
        self._put_back("restore", lambda: self._kept)

    def warm(self, ids: object, counts: object = None) -> None:
        """Makes the most frequent ids the contents; equally frequent ones by smaller id. For every policy.

        Args:    ids: (n,) what was asked for, repeats counting; or, with counts (n,) from 1 to 2^62, each id once, as
                 presample() gives them.
        Raises:  ValueInvalid, DtypeInvalid, WidthMismatch. Then nothing has changed. What the source raises leaves an
                 empty cache.
        """
        asked = self._id_array("warm", ids)
        found, uses = count_uses(asked)
        if counts is not None:
            uses = _checked_counts(found, asked, counts)
        with self._held("warm"):
            inside = self._source.present(found)
            if not inside.all():
                bad = int(found[~inside][0])
                self._source.refuse("warm", bad, int(np.argmax(asked == bad)))
            order = np.lexsort((-found, uses))  # the most frequent last, and of these the smallest id
            self._install(found[order], uses[order])

    def resize(self, capacity: int | None = None, *, features: object = None) -> None:
        """Another capacity, the contents that would go last staying; or features with more rows, all rows read again.

        Raises:  ValueInvalid; WidthMismatch, DtypeInvalid for features of another form; UsageError for a view of a
                 graph, which grows by itself. Then nothing has changed. What new features raise leaves an empty cache.
        """
        wanted = self._capacity if capacity is None else _checked_capacity("resize", capacity)
        source = None if features is None else self._checked_source(features)
        with self._held("resize"):
            ids, uses = (part[-wanted:] for part in self._index.contents())
            if source is None:
                rows = self._rows.resized(wanted, self._index.find(ids).astype(np.int64))
                index = self._new_index(wanted, self._source)
                index.install(ids, uses)  # row i is that of ids[i], as in rows
                self._capacity, self._index, self._rows = wanted, index, rows
            else:
                made = self._new_index(wanted, source), self._new_rows(wanted, source)
                self._capacity, self._source, (self._index, self._rows) = wanted, source, made
                self._install(ids, uses)

    # ---- rows that change

    def invalidate(self, ids: object) -> int:
        """Forgets the rows of ids, cached or not; returns how many were. A static cache wants refresh() instead."""
        given = self._id_array("invalidate", ids)
        with self._held("invalidate"):
            return self._index.drop(given)

    def refresh(self, ids: object) -> int:
        """Reads the cached ones among the rows of ids again; returns how many. If that fails, they are forgotten."""
        given = np.unique(self._id_array("refresh", ids))
        with self._held("refresh"):
            return self._refresh(given)

    def follow(self, graph: Graph, *, edges: bool = False) -> None:
        """From the next batch of the graph on, rows of vertices (edges) that it changes are read again, and those of
        removed ones forgotten (of a FeatureSource the changed ones too). The source's ids are slots (edge ids) of that
        graph; its rows change before the batch is applied. A view of a graph follows it unasked.

        Raises:  UsageError if it follows one already.
        """
        check_graph("follow", graph)
        self._attach("follow", graph, edges)

    def close(self) -> None:
        """Leaves the graph it follows; nothing can be read from it then. Closing twice does no harm."""
        self._closed = True
        if self._graph is not None:
            self._graph.host.detach(self)

    def verify(self) -> None:
        """Compares every cached row with the source, bit by bit. Raises: StateMismatch, naming an id."""
        with self._held("verify"):
            self._index.check_invariants()
            ids = self._index.contents()[0]
            for begin in range(0, len(ids), _FILL_ROWS):
                self._verify(ids[begin : begin + _FILL_ROWS])

    # ---- what it is

    @property
    def stats(self) -> CacheStats:
        """Sums since the cache was made or stats.reset() was called; stats.last is the last fetch."""
        return self._stats

    @property
    def graph(self) -> Graph | None:
        """The graph whose rows these are; None of other features, whatever graph they follow."""
        return self._source.graph

    @property
    def width(self) -> int:
        """d."""
        return self._source.row_width

    @property
    def nbytes(self) -> dict[str, int]:
        """Memory by part: rows, and index."""
        return {"rows": self._rows.nbytes, "index": self._index.bytes()}

    def __repr__(self) -> str:
        rows = f"rows={len(self)} of {self._capacity}, width={self.width}"
        return f"FeatureCache({rows}, policy={self.policy!r}, device={str(self.device)!r})"

    # ---- parts

    def published(self, change: Any, version: int) -> None:
        """Reads changed rows again, unless a fetch is under way, which will."""
        if self._source.local and self._lock.acquire(blocking=False):
            try:
                self._catch_up()
            finally:
                self._lock.release()

    @contextmanager
    def _held(self, where: str) -> Iterator[None]:
        """Both locks, and no row that a batch has changed."""
        with self._source.lock(), self._lock:
            if self._closed:
                raise UsageError(f"[{where}] expected an open cache, got one that was closed; make a new one")
            if self._source.graph is not None and self._source.graph.host.in_what_if:
                raise UsageError(
                    f"[{where}] expected a graph as its batches left it, got a call inside a what_if block; "
                    "call it before or after"
                )
            self._catch_up()
            yield

    def _followed_have(self, ids: Int64Array) -> BoolArray:
        """Which ids the graph that is followed has not lost; those that it never had are the source's alone."""
        if self._graph is None or self._followed is None:
            return np.ones(len(ids), np.bool_)
        with self._graph.host.lock:
            return self._followed.present(ids) | (ids >= self._followed.row_count)

    def _attach(self, where: str, graph: Graph, edges: bool) -> None:
        with graph.host.writing(where):
            if self._graph is not None:
                raise UsageError(
                    f"[{where}] expected a cache that follows no graph yet, got one that does; make another"
                )
            self._graph, self.follower = graph, _native.ChangedRows(graph.host.store, edges)
            self._followed = edge_source(graph) if edges else source_of(graph)
            graph.host.attach(self)

    def _catch_up(self) -> None:
        if self.follower is None:
            return
        try:
            ids, gone = self.follower.take()
            if len(ids):
                changed, removed = ids[gone == 0], ids[gone != 0]
                self._removals += len(removed)
                self._index.drop(removed if self._source.local else ids)
                if self._source.local:
                    self._stats.refreshed += self._refresh(changed)
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt, perhaps right after what was taken had been forgotten
                self._clear()
            raise

    def _leave(self, changed: Int64Array, removed: Int64Array) -> None:
        """Forgets the rows of both; the removed ids are not restored either. Reads nothing, closed or not."""
        with self._lock:
            self._index.drop(changed)
            self._index.drop(removed)
            self._removals += len(removed)
            if self._kept is not None:
                left = ~np.isin(self._kept[0], removed)
                self._kept = (self._kept[0][left], self._kept[1][left])

    def _refresh(self, ids: Int64Array) -> int:
        """Rows of unique ids that are cached, read again; if that fails they are dropped, as those that are gone."""
        ids = ids[self._index.find(ids) >= 0]
        there = self._source.present(ids)  # a slot may have gone to a vertex of another type
        self._index.drop(ids[~there])
        ids = ids[there]
        try:
            self._fill(ids, self._index.find(ids))
        except BaseException:
            self._index.drop(ids)
            raise
        return len(ids)

    def _put_back(self, where: str, contents: Callable[[], Any]) -> None:
        """Makes ids and their uses the contents, but for what the graph that is followed has lost."""
        while True:
            seen, (ids, uses) = self._removals, contents()
            left = self._followed_have(ids)
            with self._held(where):
                if self._removals == seen:  # none went since `left`; what goes from now on is forgotten as ever
                    self._install(ids[left], uses[left])
                    return

    def _install(self, ids: Int64Array, uses: Int64Array) -> None:
        there = self._source.present(ids)
        ids, uses = ids[there][-self._capacity :], uses[there][-self._capacity :]
        missing = self._index.find(ids) < 0
        try:
            slots = self._index.install(ids, uses)
            self._fill(ids[missing], slots[missing])
        except BaseException:
            self._clear()
            raise

    def _clear(self) -> None:
        nothing = np.zeros(0, np.int64)
        self._index.install(nothing, nothing)

    def _commit(self, places: Any, missed: Int64Array, fresh: Tensor | None) -> tuple[Any, int]:
        """Hits counted, some of the missed rows put where others were; slots and how many others."""
        admitted_max = 0 if self.policy == "static" else max(1, int(self._max_replace * self._capacity))
        try:
            slots, evicted = self._index.commit(places, admitted_max)
            self._rows.put(slots, fresh)
        except BaseException:
            self._index.drop(missed)
            raise
        return slots, evicted

    def _fill(self, ids: Int64Array, slots: Any) -> None:
        """Reads the rows of ids into their slots."""
        if len(ids) == 0:
            return
        began, stats = perf_counter(), self._stats
        for begin in range(0, len(ids), _FILL_ROWS):
            part = slice(begin, begin + _FILL_ROWS)
            self._rows.put(slots[part], self._read(ids[part]))
        stats.fills += 1
        stats.filled_rows += len(ids)
        stats.fill_bytes += len(ids) * self._row_bytes
        stats.fill_s += perf_counter() - began

    def _read(self, ids: Int64Array) -> Tensor | None:
        """Rows of unique ids, where the cached ones are; None where none are copied."""
        room = self._rows.staged(len(ids))
        if room is None:
            return None
        tensor, array = room
        mapped = self._source.mapped()
        if len(ids) == 0:
            pass
        elif mapped is None:
            array[...] = self._source.read(ids)
        elif array.size:
            self._copier.gather(bytes_of(mapped), ids, bytes_of(array))
        return self._rows.sent(tensor)

    def _verify(self, ids: Int64Array) -> None:
        _, places, _, _ = self._index.lookup(ids, self._source.row_count, self._copier)
        empty = self._torch.empty((0, self.width), dtype=getattr(self._torch, self._source.dtype.name))
        got = self._rows.joined(ids, places, self._rows.sent(empty)).cpu().numpy()
        expected = self._source.read(ids)
        differ = (got.view(np.uint8) != expected.view(np.uint8)).any(axis=1) if got.size else np.zeros(0, np.bool_)
        if differ.any():
            row = int(np.argmax(differ))
            raise StateMismatch(
                f"[verify] expected row {ids[row]} as the source has it, got another; "
                "call refresh(ids) for rows that were changed in place"
            )

    def _new_index(self, capacity: int, source: RowSource) -> _native.FeatureIndex:
        dense = not source.edges and source.row_count <= _DENSE_MAX * capacity
        return _native.FeatureIndex(_POLICIES[self.policy], capacity, dense)

    def _new_rows(self, capacity: int, source: RowSource) -> Rows:
        shape, array = (capacity, source.row_width), source.in_memory
        if self.device.type != "cpu":
            return TorchRows(self._torch, shape, source.dtype, self.device)
        if array is not None:
            return InPlaceRows(self._torch, array, self._copier)
        return CpuRows(self._torch, shape, source.dtype, self._copier)

    @property
    def _row_bytes(self) -> int:
        return self._source.row_width * self._source.dtype.itemsize

    def _checked_source(self, features: object) -> RowSource:
        source, now = source_of(features), self._source
        if now.graph is not None or source.graph is not None:
            raise UsageError("[resize] expected features other than a graph, which grows by itself; make a new cache")
        if source.row_width != now.row_width or source.row_count < now.row_count:
            expected = f"at least {now.row_count} rows of width {now.row_width}"
            got = f"{source.row_count} of width {source.row_width}"
            raise WidthMismatch(f"[resize] expected {expected}, got {got}; give the same rows and more")
        if source.dtype != now.dtype:
            raise DtypeInvalid(f"[resize] expected {now.dtype} features, got {source.dtype}; convert them")
        return source

    def _id_array(self, where: str, ids: object) -> Int64Array:
        if isinstance(ids, self._torch.Tensor):
            ids = ids.detach().cpu().numpy()
        return checks.integer_array(where, "ids", ids)


def checked_options(where: str, capacity: object, policy: object, max_replace: object) -> tuple[int, str, float]:
    """A cache's options. Raises: ValueInvalid, DtypeInvalid."""
    rows = _checked_capacity(where, capacity)
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise ValueInvalid(f"[{where}] expected a policy among {', '.join(_POLICIES)}, got {policy!r}; fix it")
    share = checks.finite_float(where, "max_replace", max_replace)
    if not 0 < share <= 1:
        raise ValueInvalid(f"[{where}] expected 0 < max_replace <= 1, got {max_replace}; 1 replaces without limit")
    return rows, policy, share


def _checked_capacity(where: str, capacity: object) -> int:
    rows = checks.whole_number(where, "capacity", capacity)
    if not 1 <= rows <= _CAPACITY_MAX:
        raise ValueInvalid(f"[{where}] expected a capacity from 1 to {_CAPACITY_MAX} rows, got {rows}; fix it")
    return rows


def _checked_device(torch: Any, device: object) -> Any:
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as cause:
        raise UsageError(
            f"[FeatureCache] expected a device that torch can use here, got {device!r} ({cause}); use 'cpu'"
        ) from cause
    return found


def _checked_counts(found: Int64Array, ids: Int64Array, counts: object) -> Int64Array:
    given = checks.integer_array("warm", "counts", counts)
    if len(given) != len(ids):
        raise WidthMismatch(f"[warm] expected {len(ids)} counts, one an id, got {len(given)}; give one for each")
    if len(found) != len(ids):
        raise ValueInvalid(
            "[warm] expected each id once with counts=, got one twice; leave counts out to have them counted"
        )
    wrong = (given < 1) | (given > USES_MAX)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueInvalid(f"[warm] expected counts from 1 to 2^62, got {given[row]} at row {row}; fix the counts")
    return given[np.argsort(ids)]
