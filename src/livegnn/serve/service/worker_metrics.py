"""Metrics of the workers of an engine over workers."""

from __future__ import annotations

from livegnn.deployment import Deployment
from livegnn.serve.metrics import Facts

WORKER_METRICS = {
    "livegnn_worker_vertices": ("gauge", "Vertices that a worker owns, by worker."),
    "livegnn_worker_ghosts": ("gauge", "Vertices of others that a worker keeps, by worker."),
    "livegnn_worker_edges": ("gauge", "Edges that a worker holds, those between two workers at both, by worker."),
    "livegnn_worker_sent_bytes_total": ("counter", "Bytes that a worker sent to others since it started, by worker."),
}
_REPORTED = ("vertices", "ghosts", "edges", "bytes")  # in this order, in Cluster.report()


def worker_facts(deployment: Deployment) -> Facts:
    """Nothing where the engines are in this process. Waits for a batch under way."""
    reports = [] if deployment.cluster is None else deployment.cluster.report()
    found: dict[str, list[tuple[str, object]]] = {}
    for name, fact in zip(WORKER_METRICS, _REPORTED, strict=True):
        found[name] = [(f'{{worker="{worker}"}}', facts[fact]) for worker, facts in enumerate(reports)]
    return found if reports else {}
