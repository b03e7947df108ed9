"""VertexGraph: the graph of a cluster as its driver has it: vertices and ids, no edges and no features."""

from __future__ import annotations

from typing import Any, NoReturn

from livegnn.errors import UsageError
from livegnn.graph.graph import Graph


def _refused(name: str, advice: str = "save() the cluster, and lg.Engine.load the file for its graph") -> Any:
    def refuse(graph: Graph, *given: Any, **named: Any) -> NoReturn:
        """Raises: UsageError: the workers have it."""
        raise UsageError(
            f"[{name}] expected a graph with edges and features, got a cluster's, of which the workers have them; "
            f"{advice}"
        )

    return refuse


class VertexGraph(Graph):
    """A Graph that refuses what it would answer wrongly: its store has no edges, and rows of no width."""

    edge_count: Any = property(_refused("edge_count", "ask the cluster for its edge_count"))
    feature_width: Any = property(_refused("feature_width", "ask the cluster for its shape"))
    feature_widths: Any = property(_refused("feature_widths", "ask the cluster for its shape"))
    features = _refused("features")
    edges = _refused("edges")
    in_neighbours = _refused("in_neighbours")
    out_neighbours = _refused("out_neighbours")
    in_degree = _refused("in_degree")
    out_degree = _refused("out_degree")
    to_pyg = _refused("to_pyg")
    to_arrow = _refused("to_arrow")

    def __repr__(self) -> str:
        return f"VertexGraph(vertices={self.vertex_count}, version={self.version})"
