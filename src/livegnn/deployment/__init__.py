"""A graph, its durable history, and what is kept live on it, in a process that survives kill -9: Deployment."""

from livegnn.deployment.committer import CommitStats
from livegnn.deployment.config import DeploymentConfig, printed, read_config
from livegnn.deployment.deployment import Deployment, RepartitionReport, SnapshotReport
from livegnn.deployment.keys import Applied
from livegnn.deployment.registry import ModelKey, Registry
from livegnn.deployment.shadow import Disagreement

__all__ = [
    "Applied",
    "CommitStats",
    "DeploymentConfig",
    "Deployment",
    "Disagreement",
    "ModelKey",
    "Registry",
    "RepartitionReport",
    "SnapshotReport",
    "printed",
    "read_config",
]
