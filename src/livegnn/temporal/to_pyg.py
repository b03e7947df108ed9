"""Hops as torch_geometric data: one graph, in which each row has the edges that were sampled for it first.

Data     x (N, F), n_id (N,) the graph's ids (not for string ids), n_time (N,) the time that a row looks from, hop (N,)
         the level, batch (N,) the place of the root that reached it first; batch_size B, input_id and seed_time (B,);
         num_sampled_nodes by level. edge_index (2, E) from a source to its target, e_id, edge_time (E,), and
         edge_weight (E,), edge_attr (E, A), edge_type (E,) where the graph has them; num_sampled_edges by hop; version.
         Roots are the first B rows.
HeteroData   the same by vertex type and by edge type; batch and input_id are places among all roots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.errors import DataMissing
from livegnn.graph import Graph
from livegnn.graph.ids import VertexIds
from livegnn.temporal.hop import TemporalHop
from livegnn.types import AnyArray

Columns = dict[str, AnyArray]


def to_pyg(
    hops: Sequence[TemporalHop], graph: Graph, version: Callable[[], tuple[VertexIds, _native.TemporalPin | None]]
) -> Any:
    """The hops as Data or HeteroData, with features and attributes of the pinned version, or of now.

    Batches wait while rows are read, not while tensors are made.
    Args:    version: called under the graph's lock; the version's ids, and its pin if it has one.
    Raises:  DataMissing without torch_geometric; EdgeMissing for an edge that has gone since.
    """
    try:
        import torch
        from torch_geometric.data import Data, HeteroData
    except ImportError as cause:
        raise DataMissing(
            "[to_pyg] expected torch_geometric, got none; pip install 'livegnn[pyg]', or read the hops' arrays"
        ) from cause
    schema = graph.host.schema
    typed = schema.has_types
    data = HeteroData() if typed else Data()
    rows, edges = _joined(hops)
    types = rows.pop("type") if typed else np.zeros(len(rows["slot"]), np.int64)
    place = np.zeros(len(types), np.int64)  # of a row among those of its type
    of_types: list[Columns] = []
    for code in range(len(schema.vertex_types)):
        mine = types == code
        place[mine] = np.arange(int(mine.sum()))
        of_types.append({key: column[mine] for key, column in rows.items()})
    with graph.host.lock:
        known, pin = version()
        store, width, ids = graph.host.store, graph.attr_width, edges["e_id"]
        if width:
            edges["edge_attr"] = _native.edge_attrs(store, ids) if pin is None else pin.edge_attrs(ids, width)
        for columns, feature_width in zip(of_types, schema.widths, strict=True):
            slots = columns.pop("slot")
            columns["x"] = (store if pin is None else pin).features(slots, feature_width)
            if not known.text:
                columns["n_id"] = known.external(slots)
        data.version = graph.version if pin is None else pin.version
    for name, columns in zip(schema.vertex_types, of_types, strict=True):
        _write_vertices(data[name] if typed else data, torch, columns, len(hops))
    edges["edge_index"] = place[edges["edge_index"]]
    of_type = edges.pop("edge_type") if typed else np.zeros(len(edges["e_id"]), np.int64)
    for code, key in enumerate(schema.edge_types if typed else (None,)):
        columns = {name: column[of_type == code] for name, column in edges.items()}
        _write_edges(data if key is None else data[key], torch, columns, len(hops))
    return data


def _joined(hops: Sequence[TemporalHop]) -> tuple[Columns, Columns]:
    """Columns of the rows that are reached, and of the edges that were sampled for each of them first."""
    last, root_count = hops[-1], len(hops[0].targets)
    count = len(last.next_targets)
    root, level = np.arange(count), np.where(np.arange(count) < root_count, 0, -1)  # -1: not reached
    expanded = np.zeros(count, np.bool_)
    parts: list[Columns] = []
    for k, hop in enumerate(hops):
        kept = (level[hop.dst] >= 0) & ~expanded[hop.dst]
        expanded |= level >= 0
        sources, targets = hop.src_rows[kept][::-1], hop.dst[kept][::-1]  # of several edges to a row the first stays
        fresh = level[sources] < 0
        root[sources[fresh]] = root[targets[fresh]]
        level[sources[fresh]] = k + 1
        columns = {"e_id": hop.edge_ids, "edge_time": hop.times, "edge_weight": hop.weights}
        columns |= {"edge_type": hop.edge_types, "edge_index": hop.edge_index.T, "hop": np.full(hop.edge_count, k)}
        parts.append({name: column[kept] for name, column in columns.items() if column is not None})
    reached = level >= 0
    rows = {"slot": last.next_targets, "n_time": last.next_times, "hop": level, "batch": root, "type": last.next_types}
    edges = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    edges["edge_index"] = (np.cumsum(reached) - 1)[edges["edge_index"]]
    return {name: column[reached] for name, column in rows.items() if column is not None}, edges


def _write_vertices(store: Any, torch: Any, columns: Columns, hop_count: int) -> None:
    level, roots = columns["hop"], columns["hop"] == 0
    columns |= {"input_id": columns["batch"][roots], "seed_time": columns["n_time"][roots]}
    _write(store, torch, columns)
    store.num_nodes, store.batch_size = len(level), int(roots.sum())
    store.num_sampled_nodes = np.bincount(level, minlength=hop_count + 1).tolist()


def _write_edges(store: Any, torch: Any, columns: Columns, hop_count: int) -> None:
    hop = columns.pop("hop")
    columns["edge_index"] = columns["edge_index"].T
    _write(store, torch, columns)
    store.num_sampled_edges = np.bincount(hop, minlength=hop_count).tolist()


def _write(store: Any, torch: Any, columns: Columns) -> None:
    for name, column in columns.items():
        store[name] = torch.from_numpy(np.ascontiguousarray(column))
