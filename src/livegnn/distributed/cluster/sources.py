"""What a cluster starts from: a graph of this process, or the files of parts (parts_folder.py)."""

from __future__ import annotations

from typing import Any, Protocol

from livegnn.distributed.cluster.crew import Call
from livegnn.distributed.cluster.cut import cut, store_options
from livegnn.distributed.cluster.recipe import GraphShape, Recipe
from livegnn.distributed.partition import NewcomerRule, Newcomers, VertexParts
from livegnn.distributed.partition.by_name import Partitioner, parts_for
from livegnn.graph.graph import Graph


class GraphSource(Protocol):
    """Vertices and edges for workers.

    graph: has all vertices; edges and features may be missing.  shape: what a model has to fit.  options: of the native
    store.
    """

    graph: Graph
    shape: GraphShape
    options: dict[str, Any]

    def parts(self, workers: int, partition: Partitioner | VertexParts | None) -> VertexParts:
        """The parts to start with. None: as the source has it. Raises: UsageError, ValueInvalid."""

    def newcomers(self, parts: VertexParts, rule: NewcomerRule) -> Newcomers:
        """The rule from these parts on. Raises: UsageError."""

    def steps(self, recipe: Recipe, parts: VertexParts, scales: list[list[int]]) -> list[list[Call]]:
        """The calls of workers that start with these parts, one after another."""


class WholeGraph:
    """A graph of this process, which cuts it."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.shape, self.options = graph, GraphShape.of(graph), store_options(graph)

    def parts(self, workers: int, partition: Partitioner | VertexParts | None) -> VertexParts:
        """See GraphSource. None: those of METIS."""
        return parts_for("Cluster", self.graph, workers, "metis" if partition is None else partition)

    def newcomers(self, parts: VertexParts, rule: NewcomerRule) -> Newcomers:
        """See GraphSource."""
        return Newcomers.of(self.graph, parts, rule=rule)

    def steps(self, recipe: Recipe, parts: VertexParts, scales: list[list[int]]) -> list[list[Call]]:
        """See GraphSource."""
        pieces = cut(self.graph, parts.of_first(self.graph.slot_count), parts.parts)
        return [[("start", self.graph.version, piece, recipe, scales) for piece in pieces]]
