"""Partitioners by name, for what takes partition=: lg.Cluster and training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from livegnn.distributed.partition.by_metis import metis
from livegnn.distributed.partition.parts import VertexParts, hashed
from livegnn.distributed.partition.streaming import fennel, ldg
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import shown

Partitioner: TypeAlias = Literal["metis", "ldg", "fennel", "hash"]

_PARTITIONERS: dict[str, Callable[[Graph | Topology, int], VertexParts]] = {
    "metis": metis,
    "ldg": ldg,
    "fennel": fennel,
}


def reads_edges(partition: object) -> bool:
    """Whether it names a partitioner that reads the graph's edges."""
    return isinstance(partition, str) and partition in _PARTITIONERS


def parts_for(
    where: str,
    graph: Graph | Topology,
    workers: int,
    partition: Partitioner | VertexParts,
    advice: str = "make as many",
) -> VertexParts:
    """Parts of a graph for so many workers, that newcomers can be added to; those that are given are copied.

    Args:    advice: where parts of another number are given.
    Raises:  ValueInvalid for another name; UsageError for parts of another number; what the partitioner raises.
    """
    if isinstance(partition, VertexParts):
        if partition.parts != workers:
            raise UsageError(f"[{where}] expected parts for {workers} workers, got {partition.parts}; {advice}")
        return VertexParts(workers, partition.of, owners=partition.owners)
    if not isinstance(partition, str) or partition not in ("hash", *_PARTITIONERS):
        raise ValueInvalid(
            f"[{where}] expected partition to be 'metis', 'ldg', 'fennel', 'hash' or VertexParts, got "
            f"{shown(partition)}; choose one, or make VertexParts(workers, parts) of an array"
        )
    if partition == "hash" or workers == 1:
        return hashed(workers)
    return _PARTITIONERS[partition](graph, workers)
