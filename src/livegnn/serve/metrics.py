"""Metrics of the service in Prometheus' text form. Written in the event loop's thread only."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Any

from livegnn.sampling import SampleServer
from livegnn.serve.traffic import Traffic

__all__ = ["METRICS", "Metrics"]

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
        self._times: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def observe(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._requests[route, status] += 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = [0] * (len(BUCKETS_S) + 1)
        times[bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self) -> bytes:
        """All metrics, for a scrape."""
        lines: list[str] = []
        samples = {**self._of_requests(), **self._of_traffic(), **self._of_server()}
        for name, (kind, about) in METRICS.items():
            if samples.get(name):
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *samples[name]]
        return ("\n".join(lines) + "\n").encode()

    def _of_requests(self) -> dict[str, list[str]]:
        counted = [
            f'livegnn_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self._requests.items())
        ]
        timed = [line for route, times in sorted(self._times.items()) for line in self._histogram(route, times)]
        return {"livegnn_requests_total": counted, "livegnn_request_seconds": timed}

    def _of_traffic(self) -> dict[str, list[str]]:
        traffic = self._traffic
        numbers = {
            "livegnn_under_way_bytes": traffic.bytes,
            "livegnn_over_budget_total": traffic.over_budget,
            "livegnn_connections": traffic.connections,
            "livegnn_connections_refused_total": traffic.connections_refused,
        }
        found = {name: [f"{name} {value}"] for name, value in numbers.items()}
        name = "livegnn_connections_dropped_total"
        found[name] = [f'{name}{{waited_for="{what}"}} {count}' for what, count in traffic.dropped.items()]
        return found

    def _histogram(self, route: str, times: list[int]) -> Iterator[str]:
        total = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), times, strict=True):
            total += count
            yield f'livegnn_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}'
        yield f'livegnn_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
        yield f'livegnn_request_seconds_count{{route="{route}"}} {total}'

    def _of_server(self) -> dict[str, list[str]]:
        stats = self._server.stats
        source: Any = getattr(self._server.source, "stats", None)
        numbers: dict[str, object] = {
            "livegnn_version": stats.version,
            "livegnn_updates_total": getattr(source, "updates", None),
            "livegnn_update_batches_total": getattr(source, "batches", None),
            "livegnn_seeds_total": stats.seeds,
            "livegnn_micro_batches_total": stats.batches,
            "livegnn_waiting_requests": stats.waiting,
            "livegnn_overloaded_total": stats.overloaded,
            "livegnn_sample_seconds_total": f"{stats.sample_s:.6f}",
            "livegnn_model_seconds_total": f"{stats.model_s:.6f}",
        }
        found = {name: [f"{name} {value}"] for name, value in numbers.items() if value is not None}
        lags = getattr(source, "lag_ms", None) or ()
        found["livegnn_ingestion_lag_seconds"] = [
            f'livegnn_ingestion_lag_seconds{{quantile="{quantile}"}} {lag / 1e3:.6f}'
            for quantile, lag in zip(("0.5", "0.99", "1"), lags, strict=False)
        ]
        parts = getattr(source, "bytes", None) or {}
        found["livegnn_bytes"] = [f'livegnn_bytes{{part="{part}"}} {count}' for part, count in sorted(parts.items())]
        return found
