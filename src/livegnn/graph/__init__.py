"""The dynamic graph and the updates that change it. Start here: graph.py and updates.py."""

from livegnn.graph.graph import Graph
from livegnn.graph.updates import Updates

__all__ = ["Graph", "Updates"]
