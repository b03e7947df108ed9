"""Which part of a graph each vertex is of: METIS, LDG, Fennel and hash, one form for engine, sampling and training.

Start here: parts.py, the assignment as data. docs/partitions.md compares the ways to find one.
"""

from livegnn.distributed.partition.by_metis import Balance, metis
from livegnn.distributed.partition.moves import MovePlan, PartMove, repartition
from livegnn.distributed.partition.newcomers import NewcomerRule, Newcomers, Placement
from livegnn.distributed.partition.parts import VertexParts, hashed
from livegnn.distributed.partition.quality import PartitionReport, TypeShare
from livegnn.distributed.partition.rebalance import Rebalancer, RebalanceSettings
from livegnn.distributed.partition.streaming import StreamOrder, StreamPass, fennel, ldg
from livegnn.distributed.partition.topology import Topology
from livegnn.graph.balance import UnitMoves

__all__ = [
    "Balance",
    "MovePlan",
    "NewcomerRule",
    "Newcomers",
    "PartMove",
    "PartitionReport",
    "Placement",
    "RebalanceSettings",
    "Rebalancer",
    "StreamOrder",
    "StreamPass",
    "Topology",
    "TypeShare",
    "UnitMoves",
    "VertexParts",
    "fennel",
    "hashed",
    "ldg",
    "metis",
    "repartition",
]
