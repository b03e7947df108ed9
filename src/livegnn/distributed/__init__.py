"""Several processes and hosts (livegnn[distributed]).

SampleCluster (sampling_host/): sampling and serving workers as Ray actors.

Training: one process a worker; samples and rows come from their owners. layout.py: who holds what; exchange.py: how
workers talk; trainer.py: what a step is. launch.py starts processes; threads.py runs the same in threads.
docs/distributed-training.md has the rules.
"""

from livegnn.distributed.exchange import Exchange
from livegnn.distributed.features import Cached, RemoteEdgeRows, RemoteVertexRows
from livegnn.distributed.graph_part import Partition
from livegnn.distributed.launch import launch
from livegnn.distributed.layout import Layout
from livegnn.distributed.processes import TorchExchange
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.sampling import RemoteSampler
from livegnn.distributed.sampling_host.cluster import SampleCluster
from livegnn.distributed.sampling_host.config import Hosting
from livegnn.distributed.threads import ThreadExchange, run_threads
from livegnn.distributed.train import train
from livegnn.distributed.trainer import DistributedTrainer

__all__ = [
    "Cached",
    "DistributedReport",
    "DistributedTrainer",
    "Exchange",
    "Hosting",
    "Layout",
    "Partition",
    "RemoteEdgeRows",
    "RemoteSampler",
    "RemoteVertexRows",
    "SampleCluster",
    "ThreadExchange",
    "TorchExchange",
    "launch",
    "run_threads",
    "train",
]
