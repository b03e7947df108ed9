"""Distributed training (livegnn[distributed]): one process a worker; samples and rows come from their owners.

Start here: layout.py, who holds what; exchange.py, how workers talk; trainer.py, what a step is. launch.py starts
processes; threads.py runs the same in threads. docs/distributed-training.md has the rules.
"""

from livegnn.distributed.exchange import Exchange
from livegnn.distributed.features import Cached, RemoteEdgeRows, RemoteVertexRows
from livegnn.distributed.graph_part import Partition
from livegnn.distributed.launch import launch
from livegnn.distributed.layout import Layout
from livegnn.distributed.partition import (
    Newcomers,
    PartitionReport,
    Rebalancer,
    VertexParts,
    fennel,
    hashed,
    ldg,
    metis,
    repartition,
)
from livegnn.distributed.processes import TorchExchange
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.sampling import RemoteSampler
from livegnn.distributed.threads import ThreadExchange, run_threads
from livegnn.distributed.train import train
from livegnn.distributed.trainer import DistributedTrainer

__all__ = [
    "Cached",
    "DistributedReport",
    "DistributedTrainer",
    "Exchange",
    "Layout",
    "Newcomers",
    "Partition",
    "PartitionReport",
    "Rebalancer",
    "RemoteEdgeRows",
    "RemoteSampler",
    "RemoteVertexRows",
    "ThreadExchange",
    "TorchExchange",
    "VertexParts",
    "fennel",
    "hashed",
    "launch",
    "ldg",
    "metis",
    "repartition",
    "run_threads",
    "train",
]
