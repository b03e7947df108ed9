"""Metrics of a sample server."""

from __future__ import annotations

from typing import Any, ClassVar

from livegnn.sampling import SampleServer
from livegnn.serve.metrics import Facts, Metrics
from livegnn.serve.traffic import Traffic


class SampleMetrics(Metrics):
    """What a sample server and its source say of themselves."""

    metrics: ClassVar = {
        "livegnn_version": ("gauge", "Newest version that can be read."),
        "livegnn_updates_total": ("counter", "Updates applied through the source."),
        "livegnn_update_batches_total": ("counter", "Batches of updates applied through the source."),
        "livegnn_ingestion_lag_seconds": ("gauge", "From apply to visibility, over the last batches, by quantile."),
        "livegnn_seeds_total": ("counter", "Seeds sampled."),
        "livegnn_micro_batches_total": ("counter", "Calls of the source for all requests that waited."),
        "livegnn_waiting_requests": ("gauge", "Requests in the queue."),
        "livegnn_overloaded_total": ("counter", "Requests refused by a full queue or by their own timeout."),
        "livegnn_sample_seconds_total": ("counter", "Time in the source."),
        "livegnn_model_seconds_total": ("counter", "Time in the model."),
        "livegnn_bytes": ("gauge", "Memory of the source, by part."),
    }

    def __init__(self, server: SampleServer, traffic: Traffic) -> None:
        super().__init__(traffic)
        self._server = server

    def facts(self) -> Facts:
        """As Metrics.facts; what the source does not say is left out."""
        stats, source = self._server.stats, getattr(self._server.source, "stats", None)
        numbers: dict[str, Any] = {
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
        lags = zip(("0.5", "0.99", "1"), getattr(source, "lag_ms", None) or (), strict=False)
        parts = sorted((getattr(source, "bytes", None) or {}).items())
        return {
            **{name: [("", value)] for name, value in numbers.items() if value is not None},
            "livegnn_ingestion_lag_seconds": [(f'{{quantile="{q}"}}', f"{lag / 1e3:.6f}") for q, lag in lags],
            "livegnn_bytes": [(f'{{part="{part}"}}', count) for part, count in parts],
        }
