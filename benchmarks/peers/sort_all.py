"""Sampling at query time by a sort of all neighbours, as graph databases do it (Helios, section 3.1)."""

from __future__ import annotations

import livegnn as lg
from livegnn import _native
from livegnn.sampling import ReadOptions, SampleSource
from livegnn.sampling.presample.source import Response, native_hop
from livegnn.sampling.queries.plan import Plan
from livegnn.types import Int64Array


class SortSampler(SampleSource):
    """The samples of a PreSampler with the same seed, by a sort for each of them."""

    def __init__(self, graph: lg.Graph, query: lg.sampling.Query, *, seed: int = 0) -> None:
        self._source, self._seed = graph, seed
        self._plan = lg.AdHocSampler(graph, query, seed=seed).plan
        self._hops = [native_hop(table.one_hop, 0) for table in self._plan.tables]
        self._widths = self._plan.level_widths(self._plan.queries[0])

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def version(self) -> int:
        return self._source.version

    def wait_for(self, version: int, timeout: float | None) -> None:
        assert version <= self.version

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        host, widths = self._source.host, self._widths if options.features else []
        with host.lock:
            parts = (host.store, self._hops, self._seed, 0, slots, widths)
            wanted = {"edge_ids": options.edge_ids, "edge_data": False}
            return Response(*_native.sample_ad_hoc(*parts, sort_all=True, **wanted, threads=1))
