"""AdHocSampler: the same samples, computed when they are asked for. A second opinion, and for graphs read rarely."""

from __future__ import annotations

import time

from livegnn import _native
from livegnn.errors import UsageError, VersionPending
from livegnn.graph import Graph
from livegnn.graph.threads import thread_count
from livegnn.sampling.presample.source import (
    ReadOptions,
    Response,
    SampleSource,
    check_seed,
    check_size,
    graph_facts,
    native_hop,
)
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.plan import Plan
from livegnn.sampling.queries.query import Query
from livegnn.types import Int64Array

_PAUSE_SECONDS = 0.001


class AdHocSampler(SampleSource):
    """Samples at query time, from the graph's own lists; equal to a PreSampler's with the same seed.

    Args:    now: the event time that a ttl counts back from; by default the largest of the edges that are still there.
             threads: of one read.  The other arguments are PreSampler's.
    Raises:  QueryInvalid, ValueInvalid; UsageError for now= without a ttl.
    Cost:    a look at every neighbour of every sampled vertex (top_k: of fanout of them), under the graph's lock.
             Source: Helios, section 3.1.
    """

    graph: Graph

    def __init__(
        self,
        graph: Graph,
        query: Query,
        *,
        seed: int = 0,
        ttl: expiry.Ttl = None,
        now: int | None = None,
        edge_data: bool = False,
        threads: int = 1,
    ) -> None:
        schema, durations, self.edge_columns = graph_facts("AdHocSampler", graph, ttl, edge_data)
        check_seed("AdHocSampler", seed)
        self.graph, self.seed = graph, seed
        self.threads = thread_count("AdHocSampler", threads)
        self._plan = Plan.of([query], schema)
        check_size("AdHocSampler", (hop.fanout for hop in query.hops))
        self._expires = bool(durations)
        if now is not None and not self._expires:
            raise UsageError("[AdHocSampler] expected now= with ttl=, which counts from it, got no ttl; give one")
        self._given_now = None if now is None else graph.host.edge_time("AdHocSampler", "now", now)
        self._latest = (-1, 0)  # version, and the largest time in it
        self._hops = [
            native_hop(table.one_hop, expiry.of_hop(table.one_hop, durations, schema)) for table in self._plan.tables
        ]
        self._widths = self._plan.level_widths(self._plan.queries[0])

    @property
    def plan(self) -> Plan:
        """The query and its hops."""
        return self._plan

    @property
    def version(self) -> int:
        """The graph's."""
        return self.graph.version

    def wait_for(self, version: int, timeout: float | None) -> None:
        """As SampleSource.wait_for."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.graph.version < version:
            if end is not None and time.monotonic() >= end:
                raise VersionPending(
                    f"[sample] expected version {version} or later within {timeout} s, got {self.graph.version}; "
                    "try again, or ask for an earlier one"
                )
            time.sleep(_PAUSE_SECONDS)

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As SampleSource.answer; takes the graph's lock."""
        host = self.graph.host
        check_size("sample", (hop.fanout for hop in self._plan.queries[0].query.hops), len(slots))
        widths = self._widths if options.features else []
        with host.lock:
            host.need_all_edges("sample")
            if host.in_what_if and not host.ids_are_slots:
                raise UsageError(
                    "[sample] expected a graph without ids of its own or no what_if block under way, got both; "
                    "sample before or after it"
                )
            now = self._now() if self._given_now is None else self._given_now
            found = _native.sample_ad_hoc(
                host.store,
                self._hops,
                self.seed,
                now,
                slots,
                widths,
                sort_all=False,
                edge_ids=options.edge_ids,
                edge_data=options.edge_data and any(self.edge_columns),
                threads=self.threads,
            )
            return Response(*found)

    def _now(self) -> int:
        """The largest time of an edge, looked up once a version; the caller holds the graph's lock."""
        if not self._expires:
            return 0
        graph = self.graph
        if graph.host.in_what_if or self._latest[0] != graph.version:
            times = graph.host.store.edges()["time"]
            latest = int(times.max()) if len(times) else 0
            if graph.host.in_what_if:
                return latest
            self._latest = (graph.version, latest)
        return self._latest[1]
