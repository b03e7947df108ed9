"""PyG's NodeLoader and LinkLoader over the live graph: each batch is of one version and has the columns of its edges.

PyG's loaders over a (FeatureStore, GraphStore) give x and edge_index alone. The two here are these loaders, and add
edge_weight, edge_attr, edge_time and edge_type under the names of Graph.to_pyg, num_nodes and version.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch_geometric.loader import LinkLoader, NodeLoader

from livegnn.errors import ColumnMissing, UsageError, VertexUnknown, WidthMismatch
from livegnn.graph import Graph
from livegnn.graph.pyg_out import edge_columns
from livegnn.pyg.reading import GraphPin, Version, version_of
from livegnn.pyg.sampling import Fanouts, LiveSampler, sampler
from livegnn.pyg.stores import feature_store, graph_store

Transform = Callable[[Any], Any]

_OF_SAMPLER = frozenset(inspect.signature(sampler).parameters) - {"graph", "num_neighbors"}
_OWN = ("filter_per_worker", "custom_cls", "collate_fn", "dataset")  # of a loader, decided here


class _LiveLoader:
    """What both loaders do: sample and fill in each batch at one version, with the columns of its edges."""

    _columns: tuple[str, ...]  # of input_data: seeds, for each place of the input type

    def __init__(self, drawn_by: LiveSampler, transform: Transform | None, options: dict[str, Any]) -> None:
        self._version = drawn_by.version
        self._finish = _Finish(drawn_by.version, transform)
        stores = feature_store(drawn_by.version), graph_store(drawn_by.version)
        loader: Any = super()
        loader.__init__(stores, drawn_by, **_checked(options), filter_per_worker=True)
        self._names = self._named()

    def collate_fn(self, index: Any) -> Any:
        """One batch, sampled and filled in at one version. Raises: VertexUnknown for a seed that is not there."""
        loader: Any = super()
        with self._version.graph.host.lock:
            try:
                self._find(index)
                return loader.collate_fn(index)
            except VertexUnknown as error:
                if isinstance(self._version, GraphPin):
                    raise
                advice = "pass ids of graph.vertices(), and a pin (lg.pyg.pin) where vertices go while it runs"
                raise error.reworded(where="loader", advice=advice) from None

    def _named(self) -> dict[str, tuple[str | None, Any]]:
        """The vertex type and the string ids of seeds, by column: their slots are those of now alone. Of pins none."""
        graph = self._version.graph
        if isinstance(self._version, GraphPin) or not graph.host.ids.text:
            return {}
        data: Any = self.input_data  # type: ignore[attr-defined]
        kind = data.input_type
        ends = kind[:: len(kind) - 1] if isinstance(kind, tuple) else (kind, kind)
        found = {}
        for column, name in zip(self._columns, ends, strict=False):
            slots = getattr(data, column).clone()
            setattr(data, column, slots)
            found[column] = name, graph.to_external(slots.numpy(), vertex_type=name)
        return found

    def _find(self, index: Any) -> None:
        """Gives the seeds of a batch the slots that their string ids have by now. Raises: VertexUnknown."""
        rows = np.asarray(index, np.int64)
        for column, (name, ids) in self._names.items():
            slots = self._version.named(ids[rows], name)
            getattr(self.input_data, column)[rows] = torch.from_numpy(slots)  # type: ignore[attr-defined]

    def filter_fn(self, out: Any) -> Any:
        """PyG's batch, with the columns of its edges."""
        loader: Any = super()
        return self._finish(loader.filter_fn(out), out)


class LiveNodeLoader(_LiveLoader, NodeLoader):  # type: ignore[misc]
    """A NodeLoader over a live graph; see neighbor_loader()."""

    _columns = ("node",)


class LiveLinkLoader(_LiveLoader, LinkLoader):  # type: ignore[misc]
    """A LinkLoader over a live graph; see link_neighbor_loader()."""

    _columns = ("row", "col")


class _Finish:
    """What a batch gets after PyG has made it, and before the user's transform."""

    def __init__(self, version: Version, transform: Transform | None) -> None:
        self._version, self._transform = version, transform

    def __call__(self, data: Any, out: Any) -> Any:
        typed = self._version.graph.vertex_types is not None
        for key, columns in out.edge_columns.items():
            self._write(data[key] if typed else data, columns, typed)
        for name in self._version.types:
            part = data[name] if typed else data
            part.num_nodes = len(part.n_id)
        data.version = out.version
        return data if self._transform is None else self._transform(data)

    def _write(self, part: Any, columns: Mapping[str, Any], typed: bool) -> None:
        """The columns of the edges that e_id names: a transform of the sample may have moved or dropped some."""
        named = edge_columns(columns, self._version.graph.weight_column)
        if typed:
            named.pop("edge_type", None)
        wanted = part.e_id.numpy()
        if not named:
            return
        place: Any = slice(None)
        if not np.array_equal(wanted, columns["id"]):
            ids, first = np.unique(columns["id"], return_index=True)
            place = first[np.searchsorted(ids, wanted)]
        for name, column in named.items():
            part[name] = torch.from_numpy(np.ascontiguousarray(column[place]))


def neighbor_loader(
    graph: Graph | Version,
    num_neighbors: Fanouts,
    input_nodes: Any = None,
    *,
    input_time: Any = None,
    transform: Transform | None = None,
    **options: Any,
) -> LiveNodeLoader:
    """PyG's NeighborLoader on the graph as it streams: each batch reads the newest version, or that of a pin.

    Args:    input_nodes: ids, or a mask over graph.vertices(), all vertices unless given; over vertex types
             ("User", ids), or "User" for all of a type.  input_time: (k,) int64; a batch then has earlier edges alone.
             options: those of sampler(): replace, disjoint, subgraph_type, temporal_strategy, seed and threads; and of
             NodeLoader and DataLoader: batch_size, shuffle, transform_sampler_output, ...
    Returns: a NodeLoader, whose batches have x, n_id (ids; of string ids the slots), e_id, the columns of their edges,
             version, and what PyG's have.
    Raises:  as sampler(), while sampling also for a seed that was removed, where the graph is not pinned; UsageError
             for num_workers: samples are drawn by native threads.
    """
    drawn_by, others = _sampler(graph, num_neighbors, options)
    with drawn_by.version.graph.host.lock:
        given = {"input_nodes": _inputs(drawn_by.version, input_nodes), "input_time": _times(input_time)}
        return LiveNodeLoader(drawn_by, transform, others | given)


def link_neighbor_loader(
    graph: Graph | Version,
    num_neighbors: Fanouts,
    edge_label_index: Any = None,
    *,
    edge_label_time: Any = None,
    transform: Transform | None = None,
    **options: Any,
) -> LiveLinkLoader:
    """PyG's LinkNeighborLoader on the graph as it streams: each batch reads the newest version, or that of a pin.

    Args:    edge_label_index: (2, k) ids of sources and destinations, all edges of now unless given; over vertex types
             (edge type, ids), or an edge type for all of its edges.  edge_label_time: (k,) int64.
             options: those of sampler(), as in neighbor_loader(); and of LinkLoader and DataLoader: edge_label,
             neg_sampling, batch_size, shuffle, ...
    Returns: a LinkLoader, whose batches are as those of neighbor_loader(). Negative links join live vertices; the
             weights of a NegativeSampling are those of graph.vertices().
    Raises:  as neighbor_loader().
    """
    drawn_by, others = _sampler(graph, num_neighbors, options)
    with drawn_by.version.graph.host.lock:
        given = {
            "edge_label_index": _links(drawn_by.version, edge_label_index),
            "edge_label_time": _times(edge_label_time),
        }
        return LiveLinkLoader(drawn_by, transform, others | given)


def _sampler(
    graph: Graph | Version, num_neighbors: Fanouts, options: Mapping[str, Any]
) -> tuple[LiveSampler, dict[str, Any]]:
    """What draws for a loader, and the options that are the loader's own."""
    drawn = {name: value for name, value in options.items() if name in _OF_SAMPLER}
    others = {name: value for name, value in options.items() if name not in _OF_SAMPLER}
    return sampler(version_of(graph), num_neighbors, **drawn), others


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    if options.get("num_workers", 0):
        raise UsageError(
            f"[loader] expected num_workers=0, got {options['num_workers']}: a worker process would see a copy of the "
            "graph that stands still; samples are drawn by native threads: leave num_workers out"
        )
    for name in _OWN:
        if name in options:
            raise UsageError(f"[loader] expected no {name}=, got one: batches are made at one version; leave it out")
    return options


def _inputs(version: Version, given: Any) -> Any:
    """input_nodes as NodeLoader takes them: a tensor of indexes, or (vertex type, tensor)."""
    if version.graph.vertex_types is None:
        if isinstance(given, str) or _is_pair(given):
            raise ColumnMissing(
                f"[neighbor_loader] expected input_nodes as ids, got {given!r} for a graph without vertex types; pass "
                "a list of ids"
            )
        return torch.as_tensor(version.given(given))
    name, ids = (given, None) if isinstance(given, str) else given if _is_pair(given) else (None, given)
    if name not in version.types:
        raise ColumnMissing(
            f'[neighbor_loader] expected input_nodes as ("{version.types[0]}", ids), got {name!r}; name a vertex type'
        )
    return name, torch.as_tensor(version.given(ids, name))


def _links(version: Version, given: Any) -> Any:
    """edge_label_index as LinkLoader takes it: (edge type or None, (2, k) tensor of indexes)."""
    triple, ids = None, given
    if version.graph.vertex_types is not None:
        triple, ids = given if _is_pair(given) else (given, None)
        if triple not in version.triples:
            raise ColumnMissing(
                f"[link_neighbor_loader] expected edge_label_index as ({version.triples[0]}, ids), got {triple!r}; "
                "name an edge type"
            )
    if ids is None:
        return triple, torch.stack(graph_store(version).get_edge_index(triple, "coo"))
    if len(ids) != 2:
        raise WidthMismatch(
            f"[link_neighbor_loader] expected edge_label_index of shape (2, k), got {len(ids)} rows; transpose it"
        )
    ends = (triple and triple[0], triple and triple[2])
    rows = [version.given(part, name) for part, name in zip(ids, ends, strict=True)]
    return triple, torch.as_tensor(np.stack(rows))


def _is_pair(given: Any) -> bool:
    """Whether a type stands first."""
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str | tuple)


def _times(given: Any) -> Any:
    return None if given is None else torch.as_tensor(given)
