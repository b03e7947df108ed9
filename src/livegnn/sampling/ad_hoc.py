"""AdHocSampler: the same samples, computed when they are asked for. The baseline, and a second opinion."""

from __future__ import annotations

from typing import Literal

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, ValueInvalid, VertexUnknown
from livegnn.graph import Graph
from livegnn.sampling import expiry
from livegnn.sampling.answers import Answer, answered, native_hop, widths_of
from livegnn.sampling.plan import Plan
from livegnn.sampling.query import Query
from livegnn.sampling.sample import Sample
from livegnn.sampling.schema import Schema
from livegnn.types import Int64Array

__all__ = ["AdHocSampler"]

Method = Literal["index", "sort"]


class AdHocSampler:
    """Samples at query time, from the graph's own lists; equal to a PreSampler's with the same seed.

    Args:    method: "index" reads what it must: the ends of the time-ordered lists for top_k, one pass over the
             neighbours for the other strategies. "sort" collects and sorts every neighbour, as graph databases do.
             The other arguments are PreSampler's; now: the event time that a ttl counts back from, by default the
             largest of the graph's edges.
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
        self.graph, self.seed, self.method, self.threads = graph, seed, method, threads
        schema = Schema.of(graph)
        self._plan = Plan.of([query], schema)
        durations = expiry.durations(ttl, schema)
        self._expires = bool(durations)
        self._hops = [native_hop(table.one_hop, expiry.of_hop(table.one_hop, durations)) for table in self._plan.tables]

    @property
    def plan(self) -> Plan:
        """The query and its hops."""
        return self._plan

    def sample(self, seeds: object, *, features: bool = True, edge_ids: bool = True, now: int | None = None) -> Sample:
        """The samples of a batch of seeds. Arguments and errors are PreSampler.sample's."""
        planned = self._plan.queries[0]
        widths = widths_of(self.graph, self._plan, planned) if features else []

        def ask(slots: Int64Array) -> Answer:
            live = self.graph._store.live()
            known = (slots < len(live)) & live[np.minimum(slots, len(live) - 1)] if len(live) else slots < 0
            if not known.all():
                row = int(np.argmin(known))
                raise VertexUnknown(
                    f"[sample] expected seeds that are live vertices, got {slots[row]} at row {row}; add the vertex"
                )
            at = now if now is not None else self._now() if self._expires else 0
            sort = self.method == "sort"
            hops, threads = self._hops, self.threads
            return _native.sample_ad_hoc(self.graph._store, hops, self.seed, at, sort, slots, widths, edge_ids, threads)

        with self.graph._lock:
            given, answer, names = answered(self.graph, planned.query.vertex_type, seeds, ask)
        return Sample(planned, self._plan, given, *answer, names)

    def _now(self) -> int:
        times = self.graph._store.edges()["time"]
        return int(times.max()) if len(times) else 0
