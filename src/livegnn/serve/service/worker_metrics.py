"""Metrics of the workers of an engine over workers."""

from __future__ import annotations

from livegnn.deployment import Deployment
from livegnn.errors import WorkerUnavailable
from livegnn.serve.metrics import Facts

WORKER_METRICS = {
    "livegnn_workers_ready": ("gauge", "1 while all workers answer."),
    "livegnn_worker_vertices": ("gauge", "Vertices that a worker owns, by worker."),
    "livegnn_worker_ghosts": ("gauge", "Vertices of others that a worker keeps, by worker."),
    "livegnn_worker_edges": ("gauge", "Edges that a worker holds, those between two workers at both, by worker."),
    "livegnn_worker_sent_bytes_total": ("counter", "Bytes that a worker sent to others since it started, by worker."),
    "livegnn_worker_work_total": ("counter", "Outputs of its own that batches changed since it started, by worker."),
}
_REPORTED = {  # in Cluster.report()
    "livegnn_worker_vertices": "vertices",
    "livegnn_worker_ghosts": "ghosts",
    "livegnn_worker_edges": "edges",
    "livegnn_worker_sent_bytes_total": "bytes",
    "livegnn_worker_work_total": "work",
}


def worker_facts(deployment: Deployment) -> Facts:
    """Nothing where the engines are in this process. Waits for a batch under way."""
    if deployment.cluster is None:
        return {}
    try:
        reports = deployment.cluster.report()
    except WorkerUnavailable:
        return {"livegnn_workers_ready": [("", 0)]}
    found: dict[str, list[tuple[str, object]]] = {"livegnn_workers_ready": [("", 1)]}
    for name, fact in _REPORTED.items():
        found[name] = [(f'{{worker="{worker}"}}', facts[fact]) for worker, facts in enumerate(reports)]
    return found
