"""What a feature cache costs and saves (GNNFlow, Figure 14): batch lookups against a one-by-one OrderedDict, hit rates
by size, and rounds of training with reuse and restoration against GNNLab's static cache.

The trace is what one-layer training with the 10 most recent neighbours asks for, batch after batch of a real stream:
vertex ids of the sampled rows, edge ids of the sampled edges. Expected: every row is the source's; the hits of each
batch, and what is left at the end, are an exact LRU's; a larger cache of one policy does not do worse, beyond noise.
"""

from __future__ import annotations

import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.options import Options
from benchmarks.report import Report, duration, rate, size
from livegnn import datasets
from livegnn.temporal import FeatureCache
from livegnn.temporal.caches.presample import count_uses

Int64 = npt.NDArray[np.int64]

TARGET = 20.0  # times faster than one by one
POLICIES = ("lru", "lfu", "fifo", "static")
SHARES = (0.003, 0.01, 0.03, 0.1, 0.3)  # of the rows
FAN_OUT, BATCH, EPOCHS, ROUNDS, WARM_SHARE = 10, 600, 3, 8, 0.3
ROUND_SHARES = {"vertex": 0.1, "edge": 0.03}  # GNNFlow: 3% and 0.3%, of graphs far larger than a batch
WIDTH = {"vertex": 128, "edge": 172}
NOISE = 0.02  # by which a larger cache may do worse: fifo and lfu have no inclusion property


def run(options: Options, report: Report) -> None:
    """Three tables a run, the last two for each stream."""
    _lookups(options, report)
    for name in ("jodie_wikipedia", "tags_math_sx"):
        trace = _trace(name, options, report)
        for what in ("vertex", "edge"):
            _hit_rates(trace, what, report)
            _rounds(trace, what, options, report)


# ---- lookups


@dataclass(frozen=True)
class Asked:
    """Batches of ids, popular ones first among `rows`, and what is cached at first."""

    rows: int
    capacity: int
    first: Int64
    batches: list[Int64]


def _asked(options: Options, spread: float) -> Asked:
    """Zipf-like: rank = rows^u for uniform u, or, for a share `spread` of them, any id."""
    rows, count = (20_000, 1000) if options.tiny else (4_000_000, 100_000)
    rng = np.random.default_rng(7)
    names = rng.permutation(rows)
    batches = []
    for _ in range(4 if options.tiny else 12):
        ranks = np.minimum((rows ** rng.random(count)).astype(np.int64), rows - 1)
        anywhere = rng.random(count) < spread
        ranks[anywhere] = rng.integers(0, rows, int(anywhere.sum()))
        batches.append(names[ranks])
    return Asked(rows, rows // 4, names[: rows // 4][::-1].copy(), batches)


class OneByOne:
    """An LRU as it is usually written; rows of its own where asked for."""

    def __init__(self, asked: Asked, table: npt.NDArray[np.float32] | None) -> None:
        self.slots: OrderedDict[int, int] = OrderedDict((int(v), i) for i, v in enumerate(asked.first))
        self.table = table
        self.rows = None if table is None else table[asked.first]

    def fetch(self, ids: Int64) -> npt.NDArray[np.float32] | None:
        slots = self.slots
        if self.table is None or self.rows is None:
            for v in ids.tolist():
                if v in slots:
                    slots.move_to_end(v)
                else:
                    _, slot = slots.popitem(last=False)
                    slots[v] = slot
            return None
        table, rows, out = self.table, self.rows, np.empty((len(ids), self.table.shape[1]), np.float32)
        for i, v in enumerate(ids.tolist()):
            if v in slots:
                slots.move_to_end(v)
                out[i] = rows[slots[v]]
            else:
                _, slot = slots.popitem(last=False)
                slots[v] = slot
                rows[slot] = out[i] = table[v]
        return out


class Exact:
    """An LRU to which a batch is one moment, as docs/feature-cache.md says: what the cache's hits are compared with."""

    def __init__(self, asked: Asked) -> None:
        self.ids: OrderedDict[int, None] = OrderedDict.fromkeys(asked.first.tolist())
        self.capacity = asked.capacity

    def fetch(self, ids: Int64) -> int:
        """How many ids, repeats counted, are hits; then the batch has been used."""
        cached, once = self.ids, dict.fromkeys(ids.tolist())
        found = sum(v in cached for v in ids.tolist())
        hits, missed = [v for v in once if v in cached], [v for v in once if v not in cached]
        for v in hits:
            cached.move_to_end(v)
        admitted = missed[: self.capacity - len(hits)]
        for _ in range(len(cached) + len(admitted) - self.capacity):
            cached.popitem(last=False)
        cached.update(dict.fromkeys(admitted))
        return found


def _lookups(options: Options, report: Report) -> None:
    report.heading("Feature caches: batches of ids against one by one, LRU")
    report.columns(
        ("ids a batch", "cached rows", "hit rate", "what", "one by one", "livegnn", "ids/s", "ratio", "target", "met")
    )
    width = 32
    for spread in (0.0, 0.3):
        asked = _asked(options, spread)
        table = np.random.default_rng(1).random((asked.rows, width), dtype=np.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.npy"
            np.save(path, table)
            for what, features in (("lookup", None), ("rows, in memory", table), ("rows, mapped file", path)):
                report.progress(f"lookups: {what}, {spread:.0%} of ids anywhere")
                one, ours, hits = _race(asked, table, features, options, report)
                ratio = float(np.median(np.array(one) / np.array(ours)))
                count = len(asked.batches[0])
                cells = [f"{count:,}", f"{asked.capacity:,}", f"{hits:.1%}", what, duration(float(np.median(one)))]
                speed = [duration(float(np.median(ours))), rate(count / float(np.median(ours)))]
                met = "yes" if ratio >= TARGET else "NO"
                report.row([*cells, *speed, f"{ratio:.1f}x", f"{TARGET:.0f}x", met])
    report.line(
        f"\nlookup: places, recency and replacement, no rows copied. Rows of {width} floats, "
        f"{options.threads} threads; one by one keeps its rows in memory; of rows in memory livegnn keeps no copies on "
        "the CPU: it reads them in place. Hits are an exact LRU's, batch by batch. Ratio: median over the batches."
    )


def _race(
    asked: Asked, table: npt.NDArray[np.float32], features: object, options: Options, report: Report
) -> tuple[list[float], list[float], float]:
    """Seconds a batch of both, batch by batch in turn; the hit rate. features None: without the rows."""
    cache = FeatureCache(
        table if features is None else features, capacity=asked.capacity, max_replace=1.0, threads=options.threads
    )
    cache.warm(asked.first, np.arange(1, len(asked.first) + 1))
    single, exact = OneByOne(asked, None if features is None else table), Exact(asked)
    one, ours = [], []
    for number, ids in enumerate(asked.batches):
        begin = time.perf_counter()
        expected = single.fetch(ids)
        middle = time.perf_counter()
        rows = cache.fetch(ids)
        end = time.perf_counter()
        last = cache.stats.last
        assert last is not None
        if number >= 2:
            one.append(middle - begin)
            ours.append(last.lookup_s + last.replace_s if features is None else end - middle)
        if not np.array_equal(rows.numpy(), table[ids] if expected is None else expected):
            report.fail("[temporal_cache] expected the rows of the ids, got others")
        if last.hits != (hits := exact.fetch(ids)):
            report.fail(f"[temporal_cache] expected {hits} hits of an LRU in batch {number}, got {last.hits}")
    if cache.ids().tolist() != list(exact.ids):
        report.fail("[temporal_cache] expected what an LRU keeps, in its order, got other ids")
    return one, ours, cache.stats.hit_rate


# ---- what training asks for


@dataclass(frozen=True)
class Trace:
    """By batch of events: the vertices whose rows the last hop wants, and the sampled edges."""

    name: str
    counts: dict[str, int]  # rows there are of each kind
    batches: dict[str, list[Int64]]


def _trace(name: str, options: Options, report: Report) -> Trace:
    stream = datasets.load_or_generate(name)
    if options.tiny:
        stream = datasets.generate_like(name, scale=0.02)
    events = min(stream.event_count, 200_000)
    report.progress(f"{name}: a trace of {events:,} events")
    batches = list(_recent(stream.src[:events], stream.dst[:events], stream.vertex_count))
    asked = {"vertex": [vertices for vertices, _ in batches], "edge": [edges for _, edges in batches]}
    return Trace(name, {"vertex": stream.vertex_count, "edge": events}, asked)


def _recent(src: Int64, dst: Int64, vertex_count: int) -> Iterator[tuple[Int64, Int64]]:
    """Batch after batch: both ends of each event and a negative, with up to FAN_OUT most recent neighbours of each
    from before the batch."""
    rng = np.random.default_rng(3)
    neighbours = np.full((vertex_count, FAN_OUT), -1, np.int64)
    edges = np.full((vertex_count, FAN_OUT), -1, np.int64)
    written = np.zeros(vertex_count, np.int64)
    for begin in range(0, len(src), BATCH):
        part = slice(begin, begin + BATCH)
        roots = np.concatenate([src[part], dst[part], rng.choice(dst, len(src[part]))])
        found, ids = neighbours[roots].reshape(-1), edges[roots].reshape(-1)
        yield np.concatenate([roots, found[found >= 0]]), ids[ids >= 0]
        for u, v, event in zip(src[part].tolist(), dst[part].tolist(), range(begin, begin + BATCH), strict=False):
            for end, other in ((u, v), (v, u)):
                place = written[end] % FAN_OUT
                neighbours[end, place], edges[end, place] = other, event
                written[end] += 1


class Counted:
    """Rows made of their ids, so that any answer can be checked, at the cost of a copy."""

    def __init__(self, count: int, width: int) -> None:
        self.row_count, self.row_width = count, width
        self._rows = np.repeat(np.arange(count, dtype=np.float32)[:, None], width, axis=1)

    def rows(self, ids: Int64) -> npt.NDArray[np.float32]:
        return self._rows[ids]


def _checked_fetch(cache: FeatureCache, ids: Int64, report: Report) -> None:
    rows = cache.fetch(ids)
    if cache.width and not np.array_equal(rows[:, -1].numpy(), ids.astype(np.float32)):
        report.fail("[temporal_cache] expected the rows of the ids, got others")


# ---- hit rate by size


def _hit_rates(trace: Trace, what: str, report: Report) -> None:
    """One pass over the stream; static knows the first part of it (WARM_SHARE)."""
    report.heading(f"Hit rate by cache size: {what} features, {trace.name}, one pass")
    report.columns(("policy", *(f"{share:.1%} of the rows" for share in SHARES)))
    batches, count = trace.batches[what], trace.counts[what]
    split = int(WARM_SHARE * len(batches))
    for policy in POLICIES:
        rates = []
        for share in SHARES:
            cache = FeatureCache(Counted(count, 1), capacity=max(1, int(share * count)), policy=policy)
            if policy == "static":
                cache.warm(np.concatenate(batches[:split]))
            for ids in batches[:split] if policy != "static" else []:
                _checked_fetch(cache, ids, report)
            cache.stats.reset()
            for ids in batches[split:]:
                _checked_fetch(cache, ids, report)
            rates.append(cache.stats.hit_rate)
        report.row([policy, *(f"{value:.1%}" for value in rates)])
        if any(small > large + NOISE for small, large in pairwise(rates)):
            report.fail(f"[temporal_cache] expected no lower hit rate from a larger {policy} cache")
        report.progress(f"{trace.name}, {what}, {policy}: {rates[-1]:.1%} at {SHARES[-1]:.0%}")
    report.line(f"\nMeasured on the last {1 - WARM_SHARE:.0%}, after the first {WARM_SHARE:.0%} has been fetched once.")


# ---- rounds and epochs


@dataclass(frozen=True)
class Way:
    """How a cache is used over rounds. presample_every: rounds between two initialisations (GNNLab)."""

    name: str
    policy: str
    reuse: bool = False
    restore: bool = False
    presample_every: int = 0


WAYS = (
    Way("lru, neither", "lru"),
    Way("lru, reuse", "lru", reuse=True),
    Way("lru, restoration", "lru", restore=True),
    Way("lru, both", "lru", reuse=True, restore=True),
    Way("lfu, both", "lfu", reuse=True, restore=True),
    Way("fifo, both", "fifo", reuse=True, restore=True),
    Way("static, presampled each round (GNNLab)", "static", presample_every=1),
    Way("static, presampled every second round", "static", presample_every=2),
)


@dataclass
class Taken:
    """Sums over all rounds."""

    init_s: float = 0.0
    fetch_s: float = 0.0
    hits: int = 0
    misses: int = 0
    bytes_read: int = 0


def _rounds(trace: Trace, what: str, options: Options, report: Report) -> None:
    """Each round trains EPOCHS epochs on the next part of the stream; a cache begins empty, or where the last ended."""
    batches, count = trace.batches[what], trace.counts[what]
    capacity = max(1, int(ROUND_SHARES[what] * count))
    rounds = 2 if options.tiny else ROUNDS
    report.heading(
        f"Rounds: {what} features, {trace.name}, {rounds} rounds of {EPOCHS} epochs, "
        f"{capacity:,} of {count:,} rows cached"
    )
    report.columns(
        ("cache", "hit rate", "first epoch", "last epoch", "read", "init / round", "fetch / round", "init share")
    )
    source = Counted(count, WIDTH[what])
    split = int(WARM_SHARE * len(batches))
    parts = [batches[place[0] : place[-1] + 1] for place in np.array_split(np.arange(split, len(batches)), rounds)]
    for way in WAYS:
        taken, by_epoch = _way(way, source, capacity, parts, report)
        rates = [hits / max(1, hits + misses) for hits, misses in by_epoch]
        total = taken.init_s + taken.fetch_s
        report.row(
            [way.name, f"{taken.hits / max(1, taken.hits + taken.misses):.1%}", f"{rates[0]:.1%}", f"{rates[-1]:.1%}",
             size(taken.bytes_read), duration(taken.init_s / rounds), duration(total / rounds),
             f"{taken.init_s / total:.0%}"]
        )  # fmt: skip
        report.progress(f"{trace.name}, {what}, {way.name}: {duration(total / rounds)} a round")
    report.line(
        "\ninit: presampling (two passes of counting, the sampling itself not counted) and filling, or loading and "
        "restoring; fetch / round includes it. read: rows from the source, all rounds."
    )


def _way(
    way: Way, source: Counted, capacity: int, parts: list[list[Int64]], report: Report
) -> tuple[Taken, list[tuple[int, int]]]:
    """Sums, and (hits, misses) by epoch."""
    taken, by_epoch = Taken(), [(0, 0)] * EPOCHS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.npz"
        for number, part in enumerate(parts):
            cache = FeatureCache(source, capacity=capacity, policy=way.policy)
            began = time.perf_counter()
            if way.presample_every and number % way.presample_every == 0:
                cache.warm(*count_uses(np.concatenate([ids for _ in range(2) for ids in part])))
            elif number and (way.reuse or way.presample_every):
                cache.load(path)
            cache.checkpoint()
            taken.init_s += time.perf_counter() - began
            for epoch in range(EPOCHS):
                began = time.perf_counter()
                if way.restore:
                    cache.restore()
                taken.init_s += time.perf_counter() - began
                before = cache.stats.hits, cache.stats.misses
                for ids in part:
                    _checked_fetch(cache, ids, report)
                hits, misses = cache.stats.hits - before[0], cache.stats.misses - before[1]
                by_epoch[epoch] = by_epoch[epoch][0] + hits, by_epoch[epoch][1] + misses
            began = time.perf_counter()
            if way.reuse or way.presample_every:
                cache.save(path)
            taken.init_s += time.perf_counter() - began
            _sum(taken, cache.stats)
    return taken, by_epoch


def _sum(taken: Taken, stats: Any) -> None:
    taken.fetch_s += stats.seconds
    taken.hits += stats.hits
    taken.misses += stats.misses
    taken.bytes_read += stats.bytes_read + stats.fill_bytes
