"""Metrics of a deployment."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import ClassVar

import numpy as np

from livegnn.deployment import Deployment, snapshots
from livegnn.errors import WorkerUnavailable
from livegnn.serve.metrics import Facts, Metrics
from livegnn.serve.service.pipe_metrics import PIPE_METRICS, pipe_facts
from livegnn.serve.service.process_metrics import PROCESS_METRICS, process_facts
from livegnn.serve.service.windows import ActivityWindows
from livegnn.serve.service.worker_metrics import WORKER_METRICS, worker_facts
from livegnn.serve.traffic import Traffic


class DeploymentMetrics(Metrics):
    """What a deployment says of itself."""

    metrics: ClassVar = {
        "livegnn_version": ("gauge", "Newest version that can be read."),
        "livegnn_ready": ("gauge", "1 while updates are taken."),
        "livegnn_updates_total": ("counter", "Updates applied."),
        "livegnn_update_requests_total": ("counter", "Requests that brought them."),
        "livegnn_log_entries_total": ("counter", "Entries of the log written for them."),
        "livegnn_freshness_seconds": ("gauge", "From acceptance to visibility, over the last requests, by quantile."),
        "livegnn_waiting_requests": ("gauge", "Requests in the queue."),
        "livegnn_waiting_updates": ("gauge", "Updates in the queue."),
        "livegnn_overloaded_total": ("counter", "Requests refused by a full queue."),
        "livegnn_changed_outputs_total": ("counter", "Output rows that batches changed, by engine."),
        "livegnn_snapshot_version": ("gauge", "Version of the newest snapshot."),
        "livegnn_snapshot_age_seconds": ("gauge", "Since the newest snapshot was written."),
        "livegnn_subscribers": ("gauge", "Subscribers of changes."),
        "livegnn_missed_total": ("counter", "Times that a subscriber missed versions."),
        "livegnn_kept_changes_bytes": ("gauge", "Changes that are kept for subscribers."),
        "livegnn_kept_messages_bytes": ("gauge", "Messages that are kept to explain changes."),
        "livegnn_index_recall": ("gauge", "Share of the best ten that an index finds, when last measured, by index."),
        "livegnn_index_version": ("gauge", "Version of an index's rows, by index."),
        "livegnn_shadow_compared_total": ("counter", "Predictions of changed vertices that were compared, by engine."),
        "livegnn_shadow_differing_total": ("counter", "Those of them that differ, by engine."),
        "livegnn_shadow_set_aside": ("gauge", "1 where the shadow refused a batch and follows no more, by engine."),
        "livegnn_bytes": ("gauge", "Memory by part: of the graph and of each engine."),
        **WORKER_METRICS,
        **PIPE_METRICS,
        **PROCESS_METRICS,
    }

    def __init__(self, deployment: Deployment, traffic: Traffic, windows: ActivityWindows) -> None:
        super().__init__(traffic)
        self._deployment, self._windows = deployment, windows

    def facts(self) -> Facts:
        """As Metrics.facts."""
        deployment, commits = self._deployment, self._deployment.commits
        found = [(name, one.disagreement) for name, one in sorted(deployment.shadows.items())]
        fresh = np.quantile(commits.freshness_s, (0.5, 0.99, 1.0)) if commits.freshness_s else ()
        age, indexes = snapshot_age_s(deployment), deployment.indexes
        return {
            "livegnn_version": [("", deployment.version)],
            "livegnn_ready": [("", int(deployment.is_ready))],
            "livegnn_updates_total": [("", commits.updates)],
            "livegnn_update_requests_total": [("", commits.requests)],
            "livegnn_log_entries_total": [("", commits.entries)],
            "livegnn_freshness_seconds": [
                (f'{{quantile="{q}"}}', f"{seconds:.6f}")
                for q, seconds in zip(("0.5", "0.99", "1"), fresh, strict=False)
            ],
            "livegnn_waiting_requests": [("", commits.waiting_requests)],
            "livegnn_waiting_updates": [("", commits.waiting_updates)],
            "livegnn_overloaded_total": [("", commits.refused)],
            "livegnn_changed_outputs_total": [
                (f'{{engine="{name}"}}', count) for name, count in sorted(dict(self._windows.changed).items())
            ],
            "livegnn_snapshot_version": [("", deployment.snapshot_version)],
            "livegnn_snapshot_age_seconds": [("", f"{age:.3f}")] if age is not None else [],
            "livegnn_subscribers": [("", deployment.hub.subscribers)],
            "livegnn_missed_total": [("", deployment.hub.missed)],
            "livegnn_kept_changes_bytes": [("", deployment.hub.size[1])],
            "livegnn_kept_messages_bytes": [("", deployment.explanations.bytes)],
            "livegnn_index_recall": [(f'{{index="{n}"}}', f"{one.recall:.4f}") for n, one in sorted(indexes.items())],
            "livegnn_index_version": [(f'{{index="{n}"}}', one.version) for n, one in sorted(indexes.items())],
            "livegnn_shadow_compared_total": [(f'{{engine="{name}"}}', one.compared) for name, one in found],
            "livegnn_shadow_differing_total": [(f'{{engine="{name}"}}', one.differing) for name, one in found],
            "livegnn_shadow_set_aside": [
                (f'{{engine="{name}"}}', int(bool(one.refusal))) for name, one in sorted(deployment.shadows.items())
            ],
            "livegnn_bytes": [(f'{{part="{part}"}}', size) for part, size in memory_by_part(deployment).items()],
            **worker_facts(deployment),
            **pipe_facts(deployment),
            **process_facts(deployment),
        }


def memory_by_part(deployment: Deployment) -> dict[str, int]:
    """Bytes by "graph.PART", "ENGINE.PART" and "index.NAME". Waits for a batch under way.

    Without those of workers that do not answer.
    """
    parts = {f"graph.{part}": size for part, size in sorted(deployment.graph.memory().items())}
    for name, engine in sorted(deployment.engines.items()):
        with suppress(WorkerUnavailable):
            parts |= {f"{name}.{part}": size for part, size in sorted(engine.state_bytes().items())}
    return parts | {f"index.{name}": one.bytes for name, one in sorted(deployment.indexes.items())}


def snapshot_age_s(deployment: Deployment) -> float | None:
    """Seconds since the newest snapshot was written, by its file; None where that is gone."""
    try:
        return max(0.0, time.time() - snapshots.written_at(deployment.data, deployment.snapshot_version))
    except OSError:
        return None
