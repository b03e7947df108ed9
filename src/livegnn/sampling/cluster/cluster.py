"""Cluster: what a cluster of sampling and serving workers does, wherever they run."""

from __future__ import annotations

from abc import abstractmethod

from livegnn.graph import Graph
from livegnn.graph.consumers import Consumer
from livegnn.sampling.cluster.front_end import FrontEnd
from livegnn.sampling.cluster.partition import Owners, Serving
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.source import SampleSource
from livegnn.sampling.queries.plan import Plan


class Cluster(SampleSource, Consumer):
    """Samples of a graph, kept by some workers and served by others, whose numbers may change.

    Args of subclasses:  graph: its batches are followed.  spec: what the workers agree on.  front_end: asks them.
    """

    graph: Graph
    needs_all_edges = False  # workers have edges of their own
    spec: ClusterSpec
    front_end: FrontEnd

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self.spec.plan

    @abstractmethod
    def move_serving(self, serving: Serving) -> None:
        """Gives buckets to other serving workers, (1024,) uint64 with a bit for each owner; more than one: replicas.

        New owners are filled before readers turn to them, so readers are served all the while. Workers that own nothing
        afterwards end. See even_serving.

        Raises:  UsageError for a bucket without an owner; then nothing has changed.
        """

    @abstractmethod
    def move_sampling(self, owners: Owners) -> None:
        """Gives buckets to other sampling workers, (1024,) uint16 from 0 without gaps; samples stay as they are.

        See even_owners.  Raises: UsageError for numbers with gaps; then nothing has changed.
        """
