"""Metrics of a service in Prometheus' text form. Written in the event loop's thread only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import ClassVar, TypeAlias

from livegnn.serve.traffic import Traffic

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
Facts: TypeAlias = Mapping[str, list[tuple[str, object]]]  # name -> (labels, value) of each sample

# name -> (kind, help); docs/serving.md lists them too
METRICS = {
    "livegnn_requests_total": ("counter", "Requests answered, by route and status."),
    "livegnn_request_seconds": ("histogram", "Time from the request's head to the answer, by route."),
    "livegnn_under_way_bytes": ("gauge", "Request bodies, and answers until they are written."),
    "livegnn_over_budget_total": ("counter", "Requests refused as too many bytes were under way."),
    "livegnn_connections": ("gauge", "Connections that are open."),
    "livegnn_connections_refused_total": ("counter", "Connections refused as too many were open."),
    "livegnn_connections_dropped_total": ("counter", "Connections closed by a time-out, by what it waited for."),
}


class Metrics(ABC):
    """Counts and times of requests, and what the service's own parts say.

    metrics: name -> (kind, help) of the latter.
    """

    metrics: ClassVar[Mapping[str, tuple[str, str]]]

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._requests: Counter[tuple[str, int]] = Counter()
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @abstractmethod
    def facts(self) -> Facts:
        """Samples of `metrics`; those that are left out, or empty, are not known."""

    def observe(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._requests[route, status] += 1
        self._times[route][bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[route] += seconds

    def text(self) -> bytes:
        """All metrics, for a scrape."""
        lines: list[str] = []
        samples = {**self._of_requests(), **self.facts()}
        for name, (kind, about) in {**METRICS, **self.metrics}.items():
            if found := samples.get(name):
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{labels} {value}" for labels, value in found]
        return ("\n".join(lines) + "\n").encode()

    def _of_requests(self) -> Facts:
        traffic, times = self._traffic, sorted(self._times.items())
        return {
            "livegnn_requests_total": [
                (f'{{route="{route}",status="{status}"}}', count)
                for (route, status), count in sorted(self._requests.items())
            ],
            "livegnn_request_seconds": [one for route, of_route in times for one in self._histogram(route, of_route)],
            "livegnn_under_way_bytes": [("", traffic.bytes)],
            "livegnn_over_budget_total": [("", traffic.over_budget)],
            "livegnn_connections": [("", traffic.connections)],
            "livegnn_connections_refused_total": [("", traffic.connections_refused)],
            "livegnn_connections_dropped_total": [
                (f'{{waited_for="{what}"}}', count) for what, count in traffic.dropped.items()
            ],
        }

    def _histogram(self, route: str, times: list[int]) -> Iterator[tuple[str, object]]:
        total = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), times, strict=True):
            total += count
            yield f'_bucket{{route="{route}",le="{bound}"}}', total
        yield f'_sum{{route="{route}"}}', f"{self._seconds[route]:.6f}"
        yield f'_count{{route="{route}"}}', total
