"""VertexGraph: the graph of a cluster as its driver has it: vertices and ids, no edges and no features."""

from __future__ import annotations

from typing import Any, NoReturn

from livegnn.errors import UsageError
from livegnn.graph.graph import Graph


class VertexGraph(Graph):
    """A Graph that refuses what it would answer wrongly: its store has no edges, and rows of no width."""

    @property
    def edge_count(self) -> int:
        """Raises: UsageError."""
        raise _elsewhere("edge_count", "ask the cluster for its edge_count")

    def features(self, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("features")

    def edges(self, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("edges")

    def in_neighbours(self, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("in_neighbours")

    def out_neighbours(self, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("out_neighbours")

    def in_degree(self, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("in_degree")

    def out_degree(self, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("out_degree")

    def to_pyg(self) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("to_pyg")

    def to_arrow(self) -> NoReturn:
        """Raises: UsageError."""
        raise _elsewhere("to_arrow")

    def __repr__(self) -> str:
        return f"VertexGraph(vertices={self.vertex_count}, version={self.version})"


def _elsewhere(where: str, advice: str = "save() the cluster, and lg.Engine.load the file for its graph") -> UsageError:
    return UsageError(
        f"[{where}] expected a graph with edges and features, got a cluster's, of which the workers have them; {advice}"
    )
