"""PyG's FeatureStore and GraphStore over a graph, or a pin of one."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch
from torch_geometric.data import FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout

from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.pyg.reading import Version, version_of
from livegnn.types import Int64Array


class LiveFeatureStore(FeatureStore):  # type: ignore[misc]
    """The features x of a graph's vertices, read when they are asked for; index: of vertices, or a mask; None for
    all.
    """

    version: Version

    def __init__(self, version: Version) -> None:
        super().__init__()
        self.__dict__["version"] = version

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """x of each vertex type that has features; of a graph without types x, of group None."""
        widths = self.version.graph.host.schema.widths
        typed = self.version.graph.vertex_types is not None
        return [
            TensorAttr(name, "x") for name, width in zip(self.version.types, widths, strict=True) if width or not typed
        ]

    def _get_tensor(self, attr: TensorAttr) -> Any:
        version, code = self.version, self._code(attr)
        if code is None:
            return None
        name, width = version.types[code], version.graph.host.schema.widths[code]
        with version.graph.host.lock:
            return torch.from_numpy(version.features(version.slots(self._index(attr, name), name), width))

    def _index(self, attr: TensorAttr, name: str | None) -> Int64Array:
        if attr.index is None:
            return self.version.vertices(name)
        if isinstance(attr.index, slice):
            return self.version.vertices(name)[attr.index]
        return self.version.given(attr.index if np.ndim(attr.index) else [attr.index], name)

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        code = self._code(attr)
        if code is None:
            return None
        return index_end(self.version, self.version.types[code]), self.version.graph.host.schema.widths[code]

    def _code(self, attr: TensorAttr) -> int | None:
        """Of the vertex type; None for what the store does not have."""
        group = attr.group_name if attr.is_set("group_name") else None
        known = attr.attr_name == "x" and group in self.version.types
        return self.version.types.index(group) if known else None

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> NoReturn:
        _refuse_write("set_features")

    def _remove_tensor(self, attr: TensorAttr) -> NoReturn:
        _refuse_write("remove_vertex")


class LiveGraphStore(GraphStore):  # type: ignore[misc]
    """The edges of a graph by edge type, COO, in order of edge ids; None is the type in a graph without vertex types.
    Rows and columns are indexes of vertices; an undirected edge stands there both ways.
    """

    version: Version

    def __init__(self, version: Version) -> None:
        super().__init__()
        self.__dict__["version"] = version

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """One for each edge type; its size ends behind the largest index."""
        ends = {name: index_end(self.version, name) for name in self.version.types}
        return [
            EdgeAttr(triple, EdgeLayout.COO, size=(ends[triple and triple[0]], ends[triple and triple[2]]))
            for triple in self.version.triples
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Any:
        if edge_attr.layout != EdgeLayout.COO or edge_attr.edge_type not in self.version.triples:
            return None
        with self.version.graph.host.lock:
            src, dst, hop = self.version.edges()
            order = np.argsort(hop.edge_ids, kind="stable")
            if edge_attr.edge_type is not None and hop.edge_types is not None:
                code = self.version.triples.index(edge_attr.edge_type)
                order = order[hop.edge_types[order] == code]
            ends = (self.version.index(each[order]) for each in (src, dst))
            return tuple(torch.from_numpy(np.ascontiguousarray(each)) for each in ends)

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> NoReturn:
        _refuse_write("add_edge")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> NoReturn:
        _refuse_write("remove_edge")


def index_end(version: Version, vertex_type: str | None) -> int:
    """One more than the largest index of a vertex of the type."""
    return int(version.vertices(vertex_type).max(initial=-1)) + 1


def _refuse_write(update: str) -> NoReturn:
    raise UsageError(
        f"[pyg] expected reads of a live graph, got a write through PyG's store; apply updates: updates.{update}(...)"
    )


def feature_store(graph: Graph | Version) -> LiveFeatureStore:
    """A torch_geometric.data.FeatureStore with the features of the graph as it is, or as it is pinned.

    store["User", "x", ids] and store.get_tensor(group_name=None, attr_name="x", index=ids) are (k, F) float32.

    Raises:  UsageError; while reading VertexUnknown, and UsageError for writes.
    """
    return LiveFeatureStore(version_of(graph))


def graph_store(graph: Graph | Version) -> LiveGraphStore:
    """A torch_geometric.data.GraphStore with the edges of the graph as it is, or as it is pinned.

    Raises:  UsageError; while reading EdgeOffloaded, and UsageError for writes.
    """
    return LiveGraphStore(version_of(graph))
