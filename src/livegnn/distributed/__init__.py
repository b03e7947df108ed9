"""The engine, sampling and training over several processes and hosts (livegnn[distributed]); Ray places them.

cluster/: the exact engine over many workers, lg.Cluster (docs/distributed.md).
partition/: which part each vertex is of, for all of them (docs/partitions.md).
sampling_host/: sampling and serving workers as Ray actors, SampleCluster (docs/sampling-workers.md).
Training: layout.py, who holds what; exchange.py, how workers talk; trainer.py, what a step is; continuous.py, rounds
over a live graph; ray_group.py, Ray's workers; threads.py, the same in threads (docs/distributed-training.md).
"""

from livegnn.distributed.cluster.parts_writer import PartsWriter
from livegnn.distributed.continuous import ContinuousClusterTrainer
from livegnn.distributed.exchange import Exchange
from livegnn.distributed.features import Cached, RemoteEdgeRows, RemoteVertexRows, WorkerCache
from livegnn.distributed.graph_part import Partition
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
from livegnn.distributed.ray_group import run_workers
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.sampling import RemoteSampler
from livegnn.distributed.sampling_host.cluster import SampleCluster
from livegnn.distributed.sampling_host.config import Hosting
from livegnn.distributed.threads import ThreadExchange, run_threads
from livegnn.distributed.train import train
from livegnn.distributed.trainer import DistributedTrainer

__all__ = [
    "Cached",
    "ContinuousClusterTrainer",
    "DistributedReport",
    "DistributedTrainer",
    "Exchange",
    "Hosting",
    "Layout",
    "Newcomers",
    "Partition",
    "PartitionReport",
    "PartsWriter",
    "Rebalancer",
    "RemoteEdgeRows",
    "RemoteSampler",
    "RemoteVertexRows",
    "SampleCluster",
    "ThreadExchange",
    "TorchExchange",
    "VertexParts",
    "WorkerCache",
    "fennel",
    "hashed",
    "ldg",
    "metis",
    "repartition",
    "run_threads",
    "run_workers",
    "train",
]
