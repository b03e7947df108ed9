"""Layout: which worker holds what, and which worker is asked for it. Pure functions of numbers; nothing is looked up.

A host runs workers_per_host workers; worker r is number r % workers_per_host on host r // workers_per_host. The graph
is cut into partitions: one a worker or, with shared=True, one a host, of which each of the host's workers has a copy.

partition of vertex v  = v % partitions            (GNNFlow, section 4.4: the hash is the identity)
worker that r asks     = r's own number on the host of the partition   (static scheduling: the same local rank serves
                         the same local rank, so that requests spread evenly without anybody's deciding)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from livegnn.errors import UsageError
from livegnn.types import BoolArray, Int64Array


@dataclass(frozen=True, slots=True)
class Layout:
    """Hosts, workers and partitions.

    Args:    hosts: at least 1.  workers_per_host: at least 1.  shared: one partition a host, copied to its workers,
             instead of one a worker.
    Raises:  UsageError.

    >>> layout = Layout(hosts=2, workers_per_host=2, shared=True)
    >>> layout.partitions, [layout.server(1, rank) for rank in range(4)]
    (2, [2, 3, 2, 3])
    """

    hosts: int = 1
    workers_per_host: int = 1
    shared: bool = False

    def __post_init__(self) -> None:
        for number in (self.hosts, self.workers_per_host):
            if type(number) is not int or number < 1:
                raise UsageError(
                    f"[Layout] expected at least one host and one worker on each, got {self.hosts!r} and "
                    f"{self.workers_per_host!r}; give whole numbers from 1"
                )

    @property
    def workers(self) -> int:
        """All of them."""
        return self.hosts * self.workers_per_host

    @property
    def partitions(self) -> int:
        """Parts of the graph."""
        return self.hosts if self.shared else self.workers

    def partition(self, rank: int) -> int:
        """The part of the graph that a worker holds."""
        return rank // self.workers_per_host if self.shared else rank

    def partition_of(self, slots: Int64Array) -> Int64Array:
        """The part of the graph that holds each vertex, (k,) int64."""
        return slots % self.partitions

    def server(self, partition: int, rank: int) -> int:
        """The worker that answers for a partition when this one asks."""
        return partition * self.workers_per_host + rank % self.workers_per_host if self.shared else partition

    def servers_of(self, slots: Int64Array, rank: int) -> Int64Array:
        """The worker that this one asks about each vertex, (k,) int64."""
        table = np.array([self.server(partition, rank) for partition in range(self.partitions)], np.int64)
        return table[slots % self.partitions]

    def is_held(self, slots: Int64Array, rank: int) -> BoolArray:
        """Which vertices are of the partition that a worker holds, (k,) bool."""
        held: BoolArray = slots % self.partitions == self.partition(rank)
        return held
