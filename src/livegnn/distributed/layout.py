"""Layout: the workers of a training, and which of them hold which part of the graph. Pure functions of numbers.

A host runs workers_per_host workers; worker r is number r % workers_per_host on host r // workers_per_host. The graph
is cut into partitions: one a worker or, with shared=True, one a host, of which each of the host's workers has a copy.
Which partition a vertex is of is not the layout's business: VertexParts says so (partition/).

worker that r asks     = r's own number on the host of the partition   (static scheduling: the same local rank serves
                         the same local rank, so that requests spread evenly without decisions at run time)
worker that keeps the  = of the workers that hold the vertex's partition, number slot % workers_per_host
memory of a vertex
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from livegnn.errors import UsageError
from livegnn.types import AnyArray, Int64Array


@dataclass(frozen=True, slots=True)
class Layout:
    """Hosts, workers and partitions.

    Args:    hosts: at least 1.  workers_per_host: at least 1.  shared: one partition a host, copied to its workers,
             instead of one a worker.
    Raises:  UsageError.

    >>> layout = Layout(hosts=2, workers_per_host=2, shared=True)
    >>> layout.partitions, [layout.servers(rank).tolist() for rank in range(4)]
    (2, [[0, 2], [1, 3], [0, 2], [1, 3]])
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

    def servers(self, rank: int) -> Int64Array:
        """The worker that this one asks about each partition, (partitions,) int64."""
        partitions = np.arange(self.partitions)
        return partitions * self.workers_per_host + rank % self.workers_per_host if self.shared else partitions

    def keepers(self, slots: Int64Array, parts: AnyArray) -> Int64Array:
        """The worker that keeps the memory of each vertex, (k,) int64. parts: (k,) what the vertices are of."""
        first = parts.astype(np.int64)
        return first * self.workers_per_host + slots % self.workers_per_host if self.shared else first
