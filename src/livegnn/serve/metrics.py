"""Metrics of the service in Prometheus' text form. Written in the event loop's thread only."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from livegnn.sampling import SampleServer
from livegnn.serve.traffic import Traffic

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

# name -> (kind, help); docs/serving.md lists them too
METRICS = {
    "livegnn_requests_total": ("counter", "Requests answered, by route and status."),
    "livegnn_request_seconds": ("histogram", "Time from the request's head to the answer, by route."),
    "livegnn_version": ("gauge", "Newest version that can be read."),
    "livegnn_updates_total": ("counter", "Updates applied through the source."),
    "livegnn_update_batches_total": ("counter", "Batches of updates applied through the source."),
    "livegnn_ingestion_lag_seconds": ("gauge", "From apply to visibility, over the last batches, by quantile."),
    "livegnn_seeds_total": ("counter", "Seeds sampled."),
    "livegnn_micro_batches_total": ("counter", "Calls of the source for all requests that waited."),
    "livegnn_waiting_requests": ("gauge", "Requests in the queue."),
    "livegnn_under_way_bytes": ("gauge", "Request bodies, and answers until they are written."),
    "livegnn_over_budget_total": ("counter", "Requests refused as too many bytes were under way."),
    "livegnn_connections": ("gauge", "Connections that are open."),
    "livegnn_connections_refused_total": ("counter", "Connections refused as too many were open."),
    "livegnn_connections_dropped_total": ("counter", "Connections closed by a time-out, by what it waited for."),
    "livegnn_overloaded_total": ("counter", "Requests refused by a full queue or by their own timeout."),
    "livegnn_sample_seconds_total": ("counter", "Time in the source."),
    "livegnn_model_seconds_total": ("counter", "Time in the model."),
    "livegnn_bytes": ("gauge", "Memory of the source, by part."),
}


class Metrics:
    """Counts and times of requests, and what the server and its source say of themselves."""

    def __init__(self, server: SampleServer, traffic: Traffic) -> None:
        self._server, self._traffic = server, traffic
        self._requests: Counter[tuple[str, int]] = Counter()
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def observe(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._requests[route, status] += 1
        self._times[route][bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[route] += seconds

    def text(self) -> bytes:
        """All metrics, for a scrape."""
        lines: list[str] = []
        samples = self._labelled() | {
            name: [("", value)] for name, value in self._numbers().items() if value is not None
        }
        for name, (kind, about) in METRICS.items():
            if found := samples.get(name):
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{labels} {value}" for labels, value in found]
        return ("\n".join(lines) + "\n").encode()

    def _histogram(self, route: str, times: list[int]) -> Iterator[tuple[str, object]]:
        total = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), times, strict=True):
            total += count
            yield f'_bucket{{route="{route}",le="{bound}"}}', total
        yield f'_sum{{route="{route}"}}', f"{self._seconds[route]:.6f}"
        yield f'_count{{route="{route}"}}', total

    def _numbers(self) -> dict[str, object]:
        """The metrics of one sample; None: the source does not say."""
        stats, traffic = self._server.stats, self._traffic
        source: Any = getattr(self._server.source, "stats", None)
        return {
            "livegnn_version": stats.version,
            "livegnn_updates_total": getattr(source, "updates", None),
            "livegnn_update_batches_total": getattr(source, "batches", None),
            "livegnn_seeds_total": stats.seeds,
            "livegnn_micro_batches_total": stats.batches,
            "livegnn_waiting_requests": stats.waiting,
            "livegnn_under_way_bytes": traffic.bytes,
            "livegnn_over_budget_total": traffic.over_budget,
            "livegnn_connections": traffic.connections,
            "livegnn_connections_refused_total": traffic.connections_refused,
            "livegnn_overloaded_total": stats.overloaded,
            "livegnn_sample_seconds_total": f"{stats.sample_s:.6f}",
            "livegnn_model_seconds_total": f"{stats.model_s:.6f}",
        }

    def _labelled(self) -> dict[str, list[tuple[str, object]]]:
        """What follows the name of the others, and values."""
        source: Any = getattr(self._server.source, "stats", None)
        lags = zip(("0.5", "0.99", "1"), getattr(source, "lag_ms", None) or (), strict=False)
        parts = sorted((getattr(source, "bytes", None) or {}).items())
        times = sorted(self._times.items())
        return {
            "livegnn_requests_total": [
                (f'{{route="{route}",status="{status}"}}', count)
                for (route, status), count in sorted(self._requests.items())
            ],
            "livegnn_request_seconds": [one for route, of_route in times for one in self._histogram(route, of_route)],
            "livegnn_ingestion_lag_seconds": [(f'{{quantile="{q}"}}', f"{lag / 1e3:.6f}") for q, lag in lags],
            "livegnn_connections_dropped_total": [
                (f'{{waited_for="{what}"}}', count) for what, count in self._traffic.dropped.items()
            ],
            "livegnn_bytes": [(f'{{part="{part}"}}', count) for part, count in parts],
        }
