"""What a deployment keeps live and answers reads from: an engine in this process, or one over many workers.

livegnn.distributed is imported where there are workers, or parts of a graph, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from livegnn.errors import UsageError
from livegnn.inference import Engine

if TYPE_CHECKING:
    from livegnn.distributed.cluster.cluster import Cluster
    from livegnn.distributed.cluster.parts_folder import PartsFolder
    from livegnn.graph import Graph

LiveModel: TypeAlias = "Engine | Cluster"
GraphSource: TypeAlias = "Graph | PartsFolder"


def in_process(where: str, live: LiveModel) -> Engine:
    """The engine, for what reads its state. Raises: UsageError for one over workers."""
    if not isinstance(live, Engine):
        raise UsageError(
            f"[{where}] expected an engine in this process, got one over {live.workers} workers; serve without "
            "[cluster] for it"
        )
    return live
