"""AdHocSampler: the same samples, computed when they are asked for. The baseline, and a second opinion."""

from __future__ import annotations

from typing import Literal

from livegnn import _native
from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.cores import thread_count
from livegnn.sampling import expiry
from livegnn.sampling.answers import Answer, answered, check_seed, check_size, native_hop, widths_of
from livegnn.sampling.plan import Plan
from livegnn.sampling.query import Query
from livegnn.sampling.sample import Sample
from livegnn.sampling.schema import Schema
from livegnn.types import Int64Array

__all__ = ["AdHocSampler"]

Method = Literal["index", "sort"]


class AdHocSampler:
    """Samples at query time, from the graph's own lists; equal to a PreSampler's with the same seed.

    With a ttl it knows the largest time of the edges that are still there; where that one has gone, give sample(now=).

    Args:    method: "index" reads what it must: the ends of the time-ordered lists for top_k, one pass over the
             neighbours for the other strategies. "sort" collects and sorts every neighbour, as graph databases do.
             threads: of one read.  The other arguments are PreSampler's.
    Raises:  QueryInvalid, ValueInvalid.
    Cost:    a look at every neighbour of every sampled vertex (top_k by index: of fan_out of them), under the graph's
             lock.  Source: Helios, section 3.1.
    """

    def __init__(
        self,
        graph: Graph,
        query: Query,
        *,
        seed: int = 0,
        ttl: expiry.Ttl = None,
        method: Method = "index",
        threads: int = 1,
    ) -> None:
        if method not in ("index", "sort"):
            raise ValueInvalid(f'[AdHocSampler] expected method="index" or "sort", got {method!r}; use one of them')
        if not isinstance(graph, Graph):
            raise UsageError(
                f"[AdHocSampler] expected a Graph, got {type(graph).__name__}; make one with livegnn.Graph"
            )
        check_seed("AdHocSampler", seed)
        self.graph, self.seed, self.method = graph, seed, method
        self.threads = thread_count("AdHocSampler", threads)
        schema = Schema.of(graph)
        self._plan = Plan.of([query], schema)
        check_size("AdHocSampler", (hop.fanout for hop in query.hops))
        durations = expiry.durations(ttl, schema)
        self._expires = bool(durations)
        self._latest = (-1, 0)  # version, and the largest time in it
        self._hops = [
            native_hop(table.one_hop, expiry.of_hop(table.one_hop, durations, schema)) for table in self._plan.tables
        ]

    @property
    def plan(self) -> Plan:
        """The query and its hops."""
        return self._plan

    def sample(self, seeds: object, *, features: bool = True, edge_ids: bool = True, now: int | None = None) -> Sample:
        """The samples of a batch of seeds. Arguments and errors are PreSampler.sample's.

        Args:    now: the event time that a ttl counts back from; by default the largest of the graph's edges.
        Raises:  UsageError also for now= without a ttl.
        """
        if now is not None and not self._expires:
            raise UsageError("[sample] expected now= of a sampler with ttl=, got none; leave now= out, or give a ttl")
        planned = self._plan.queries[0]
        widths = widths_of(self.graph, self._plan, planned) if features else []
        given_now = None if now is None else self.graph._edge_time("sample", "now", now)

        def ask(slots: Int64Array) -> Answer:
            check_size("sample", (hop.fanout for hop in planned.query.hops), len(slots))
            sort, store = self.method == "sort", self.graph._store
            at = self._now() if given_now is None else given_now
            return _native.sample_ad_hoc(store, self._hops, self.seed, at, sort, slots, widths, edge_ids, self.threads)

        with self.graph._lock:
            self.graph._need_all_edges("sample")
            if self.graph._supposed and (self.graph.has_ids or self.graph.vertex_types is not None):
                raise UsageError(
                    "[sample] expected a graph without ids of its own or no what_if block under way, got both; "
                    "sample before or after it"
                )
            given, answer, names = answered(self.graph, planned.query.vertex_type, seeds, ask)
        return Sample(planned, self._plan, given, *answer, names)

    def _now(self) -> int:
        """The largest time of an edge, looked up once a version; the caller holds the graph's lock."""
        if not self._expires:
            return 0
        graph = self.graph
        if graph._supposed or self._latest[0] != graph.version:
            times = graph._store.edges()["time"]
            latest = int(times.max()) if len(times) else 0
            if graph._supposed:
                return latest
            self._latest = (graph.version, latest)
        return self._latest[1]
