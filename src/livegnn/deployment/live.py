"""What a deployment keeps live and answers reads from: an engine in this process, or one over many workers."""

from __future__ import annotations

from typing import TypeAlias

from livegnn.distributed.cluster.cluster import Cluster
from livegnn.errors import UsageError
from livegnn.inference import Engine

LiveModel: TypeAlias = Engine | Cluster


def in_process(where: str, live: LiveModel) -> Engine:
    """The engine, for what reads its state. Raises: UsageError for one over workers."""
    if isinstance(live, Cluster):
        raise UsageError(
            f"[{where}] expected an engine in this process, got one over {live.workers} workers; serve without "
            "[cluster] for it"
        )
    return live
