"""PreSampler: samples kept ready while the graph changes, everything in one process.

A query is planned into tables (plan.py), each table is kept by the native Reservoirs, which follow the graph's batches.
Numbers of the plan's tables and of the native ones are kept apart in `_tables`: a native table lives as long as some
query uses the plan's table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from livegnn import _native
from livegnn.errors import InvariantBroken, StateMismatch, UsageError, VersionPending
from livegnn.graph import Graph, Updates
from livegnn.graph.consumers import Consumer
from livegnn.graph.threads import thread_count
from livegnn.sampling.presample.source import (
    ReadOptions,
    Response,
    SampleSource,
    check_seed,
    check_size,
    graph_facts,
    native_hop,
    planned_query,
)
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.plan import Plan
from livegnn.sampling.queries.query import Query
from livegnn.types import Int64Array

_LAGS_KEPT_MAX = 1000


@dataclass(frozen=True)
class SamplerStats:
    """What a pre-sampler holds and has done.

    now: the largest event time seen, None before the first.  batches, updates: applied through this sampler.
    refills: rows filled again by a scan.  lag_ms: (median, p99, largest) time from apply to visibility, of the last
    1000 batches applied through this sampler; None before the first.  bytes: by part.
    """

    version: int
    now: int | None
    batches: int
    updates: int
    refills: int
    lag_ms: tuple[float, float, float] | None
    bytes: dict[str, int]


class _QueryTables(NamedTuple):
    """What a read of one query needs: its native tables, their fan-outs, the feature columns of its levels."""

    tables: list[int]
    fanouts: list[int]
    widths: list[int]


class PreSampler(SampleSource, Consumer):
    """Samples of one or more queries, exact after every batch.

    sample of v at hop k = the first fanout edges of v in the order of (rank, tie);  docs/sampling.md has the ranks

    Args:    graph: what the queries are about.  query: one, or several as a list.  seed: of the random ranks, 0 to
             2^64 - 1.  ttl: edges count while time > now - ttl, `now` being the largest time ever added: a duration for
             all, or by edge type.  now: the largest event time so far, where no edge still there has it: after a
             restart, stats.now as it was; only with a ttl.  edge_data: samples carry weights, times and attributes of
             edges, for models that read them; keeps a copy of the graph's.  threads: for batches and for large
             reads; all cores unless given.
    Raises:  QueryInvalid, pointing at the place; ValueInvalid for a negative weight under a weighted hop.
    Exactness: equal to a scan of the graph, whatever the batching, threads or crashes.
    Cost:    O(log fanout) an update; a read looks up 1 + C1 + C1 C2 + ... rows.  Source: Helios, sections 4 to 6.

    >>> import numpy as np, livegnn as lg
    >>> graph = lg.Graph(np.eye(4, dtype=np.float32), [0, 0, 1], [1, 2, 3], time=[5, 7, 6])
    >>> sampler = lg.PreSampler(graph, lg.query().out().sample(2, by="top_k").out().sample(1, by="top_k"))
    >>> sampler.sample([0]).hop(1).tolist()
    [[2, 1]]
    >>> updates = lg.Updates()
    >>> updates.add_edge(0, 3, time=8)
    >>> sampler.apply(updates)
    1
    >>> sampler.sample([0]).hop(2).tolist()
    [[[-1], [-1]]]
    """

    graph: Graph

    def __init__(
        self,
        graph: Graph,
        query: Query | list[Query] | tuple[Query, ...],
        *,
        seed: int = 0,
        ttl: expiry.Ttl = None,
        now: int | None = None,
        edge_data: bool = False,
        threads: int | None = None,
    ) -> None:
        self._schema, self._durations, self.edge_columns = graph_facts("PreSampler", graph, ttl, edge_data)
        check_seed("PreSampler", seed)
        cores = thread_count("PreSampler", threads)
        self.graph = graph
        self.seed = seed
        self._plan = Plan(self._schema)
        self._tables: dict[int, int] = {}  # the plan's number of a table -> the native one
        self._readers: dict[int, _QueryTables] = {}
        self._published_version = threading.Condition()
        self._lags: deque[float] = deque(maxlen=_LAGS_KEPT_MAX)
        self._batches = self._updates = 0
        self._closed = False
        queries = list(query) if isinstance(query, (list, tuple)) else [query]
        with graph.host.attaching("PreSampler"):
            self.follower = _native.Reservoirs(
                graph.host.store,
                seed,
                cores,
                features=True,
                track_changes=False,
                edge_data=edge_data,
                owned=np.zeros(0, np.uint8),
            )
            if now is not None:
                if not graph.has_time:
                    raise UsageError("[PreSampler] expected now= for a graph whose edges have times, got one without")
                if not self._durations:
                    raise UsageError("[PreSampler] expected now= with ttl=, which counts from it, got no ttl; give one")
                self.follower.set_now(graph.host.edge_time("PreSampler", "now", now))
            for one in queries:
                self._add(one)
            graph.host.attach(self)

    # ---- queries

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self._plan

    def add(self, query: Query) -> int:
        """Starts another query on the running graph, back-filled from it, and returns its number.

        Raises:  QueryInvalid, ValueInvalid; then nothing has changed.
        """
        with self.graph.host.writing("add"):
            self._open("add")
            return self._add(query)

    def drop(self, number: int) -> None:
        """Ends a query; its tables go unless another query uses them. Raises: UsageError."""
        with self.graph.host.writing("drop"):
            self._open("drop")
            left = self._plan.drop(number)
            used = {table.number for table in left.tables}
            self._plan = left
            gone = [self._tables.pop(table) for table in list(self._tables) if table not in used]
            self._renew_readers()
            for table in gone:
                self.follower.drop_table(table)

    def explain(self) -> str:
        """The plan in words: one-hop queries, what feeds what, and what an answer costs."""
        return self._plan.explain()

    def _add(self, query: Query) -> int:
        plan, number = self._plan.add(query)
        check_size("PreSampler", (hop.fanout for hop in query.hops))
        hops = [
            (table.number, native_hop(table.one_hop, expiry.of_hop(table.one_hop, self._durations, self._schema)))
            for table in plan.tables
            if table.number not in self._tables
        ]
        made: dict[int, int] = {}
        try:
            for table, hop in hops:
                made[table] = self.follower.add_table(hop)
        except Exception:
            for table in made.values():
                self.follower.drop_table(table)
            raise
        self._tables.update(made)
        self._plan = plan
        self._renew_readers()
        return number

    # ---- writing

    def apply(self, updates: Updates) -> int:
        """Applies a batch to the graph and everything attached to it; returns the version. Raises: as graph.apply."""
        self._open("apply")
        start = time.perf_counter()
        version: int = self.graph.host.apply(updates, self)[1]
        self._lags.append(time.perf_counter() - start)
        self._batches += 1
        self._updates += len(updates)
        return version

    def published(self, change: Any, version: int) -> int:
        """Wakes the readers that wait for this version."""
        with self._published_version:
            self._published_version.notify_all()
        return version

    # ---- reading

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As SampleSource.answer."""
        reader = self._reader(options.query)
        check_size("sample", reader.fanouts, len(slots))
        widths = reader.widths if options.features else []
        try:
            wanted = {"edge_ids": options.edge_ids, "edge_data": options.edge_data}
            return Response(*self.follower.sample(reader.tables, slots, widths, **wanted))
        except InvariantBroken:
            self._reader(options.query)  # says so if the query was dropped while this call was on its way
            raise

    def _reader(self, query: int) -> _QueryTables:
        self._open("sample")
        return self._readers.get(query) or self._readers[planned_query(self._plan, query).number]

    def _renew_readers(self) -> None:
        """After the plan has changed; readers in other threads see the old ones or the new ones."""
        self._readers = {
            planned.number: _QueryTables(
                [self._tables[table] for table in planned.tables],
                [hop.fanout for hop in planned.query.hops],
                self._plan.level_widths(planned),
            )
            for planned in self._plan.queries
        }

    def wait_for(self, version: int, timeout: float | None) -> None:
        """As SampleSource.wait_for; UsageError if it is closed meanwhile."""
        with self._published_version:
            there = self._published_version.wait_for(
                lambda: self._closed or self.follower.version() >= version, timeout
            )
        self._open("sample")
        if there:
            return
        raise VersionPending(
            f"[sample] expected version {version} or later within {timeout} s, got {self.follower.version()}; "
            "try again, or ask for an earlier one"
        )

    # ---- what it is

    @property
    def version(self) -> int:
        """The version that readers see."""
        return int(self.follower.version())

    @property
    def stats(self) -> SamplerStats:
        """What it holds and has done so far."""
        lags = np.sort(np.array(self._lags, np.float64)) * 1e3
        lag = (float(np.median(lags)), float(np.quantile(lags, 0.99)), float(lags[-1])) if len(lags) else None
        now = self.follower.now()
        seen = None if now == np.iinfo(np.int64).min else int(now)
        counts = (self._batches, self._updates, self.follower.refills())
        return SamplerStats(self.version, seen, *counts, lag, self.follower.bytes())

    def digest(self) -> int:
        """Order-free 64-bit hash of every sample; equal iff the samples are."""
        with self.graph.host.lock:
            return int(self.follower.digest())

    def verify(self) -> None:
        """Compares every row with a scan of the graph, and every copied feature row. Raises: StateMismatch."""
        with self.graph.host.writing("verify"):
            try:
                self.follower.check_invariants()
            except InvariantBroken as broken:
                raise StateMismatch(f"[verify] expected the samples of a scan, got others: {broken}") from broken

    def close(self) -> None:
        """Leaves the graph; reading from it is refused from here on. Closing twice does no harm."""
        if not self._closed:
            self.graph.host.detach(self)
            with self._published_version:
                self._closed = True
                self._published_version.notify_all()

    def _open(self, where: str) -> None:
        if self._closed:
            raise UsageError(f"[{where}] expected an open pre-sampler, got one that was closed; make a new one")

    def __repr__(self) -> str:
        queries = ", ".join(repr(planned.query) for planned in self._plan.queries)
        return f"PreSampler({queries}, seed={self.seed}, version={self.version})"
