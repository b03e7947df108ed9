"""Rows of edges: which edges are asked for, and what their rows are from the rows of their ends.

Nothing is kept for an edge (models/edge_level.py), but for where edges lie that are asked for by their ids: that index
is made when it is first needed and follows the batches from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn import _native
from livegnn.errors import EdgeMissing, ModelMismatch, ValueInvalid
from livegnn.graph import checks
from livegnn.graph.graph import Graph
from livegnn.inference.hetero import KnowsSlots
from livegnn.inference.predict import Rows, headed, pair_array
from livegnn.models.edge_level import head_of
from livegnn.models.model import Model

Int64: TypeAlias = NDArray[np.int64]
EdgeArrays: TypeAlias = dict[str, Any]  # src, dst, id
RowsAt: TypeAlias = Callable[[Int64], Rows]  # the rows of vertices, by slots

_CHUNK = 1 << 15  # edges that are computed at once
_DEAD_MIN = 1024  # edges gone that an index keeps


class EdgeIndex:
    """Where every edge lies, by its id. Edges that have gone since stay in it; the reader looks whether one is there.

    Ids of added edges only grow, so the columns stay in order of ids by appending to them.
    """

    def __init__(self, store: _native.GraphStore) -> None:
        self._take(_native.edge_ends(store))
        self._end = store.next_edge_id

    def _take(self, columns: EdgeArrays) -> None:
        self._columns, self._more = columns, list[EdgeArrays]()
        self._count = len(columns["id"])

    def follow(self, added: EdgeArrays, store: _native.GraphStore, undirected: bool) -> None:
        """After a batch, with the edges that it added."""
        if undirected:  # once in each direction
            once = added["src"] <= added["dst"]
            added = {name: column[once] for name, column in added.items()}
        if len(added["id"]):
            self._more.append(added)
            self._count += len(added["id"])
        self._end = store.next_edge_id
        if self._count > 2 * store.edge_count + _DEAD_MIN and not store.has_copies:
            self._take(_native.edge_ends(store))

    def ends(self, ids: Int64, store: _native.GraphStore) -> tuple[Int64, Int64]:
        """(src, dst) slots, -1 of ids that no edge had."""
        if self._more:
            parts = [self._columns, *(_in_order(each) for each in self._more)]
            self._take({name: np.concatenate([part[name] for part in parts]) for name in self._columns})
        columns = self._columns
        if len(ids) and self._end <= ids.max() < store.next_edge_id:  # added by the updates of a what_if block
            columns = _native.edge_ends(store)
        known = columns["id"]
        place = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
        there = known[place] == ids if len(known) else np.zeros(len(ids), bool)
        src, dst = (np.where(there, columns[name][place] if len(known) else -1, -1) for name in ("src", "dst"))
        return src, dst


def _in_order(columns: EdgeArrays) -> EdgeArrays:
    order = np.argsort(columns["id"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


class EdgeReader:
    """The rows of edges of one model on one graph. The caller of every method holds the graph's lock.

    model: as it is joined with the graph.
    """

    def __init__(self, model: Model, graph: Graph) -> None:
        assert model.edge_output is not None
        self.graph, self.store = graph, graph.host.store
        self.width = model.edge_output.width
        self.head = head_of(model.output, model.edge_output)

    def named(self, where: str, edges: object, known: KnowsSlots, index: Callable[[], EdgeIndex]) -> EdgeArrays:
        """The edges that are asked for, with their weights and types: src and dst are slots.

        Args:   edges: (k,) edge ids; (k, 2) pairs of vertex ids, each for its newest edge; a mapping with src, dst and
                id, as Graph.edges() and Changes.edges give it.
        Raises: EdgeMissing, VertexUnknown, ValueInvalid, WidthMismatch, DtypeInvalid.
        """
        ids: Int64 | None
        if isinstance(edges, Mapping):
            src, dst, ids = self._of_mapping(where, edges, known)
        elif np.ndim(edges) == 1:  # type: ignore[arg-type]
            ids = checks.integer_array(where, "edges", edges)
            src, dst = index().ends(ids, self.store)
        else:
            pairs, ids = pair_array(edges, where), None
            src, dst = (known.slots(where, pairs[:, end], None) for end in (0, 1))
        found, weights, types = _native.find_edges(self.store, src, dst, ids)
        if (found < 0).any():
            raise EdgeMissing(
                f"[{where}] expected an edge {_label(edges, int(np.argmax(found < 0)))}, got none (version "
                f"{self.store.version}); add it first, or leave it out"
            )
        return {"src": src, "dst": dst, "id": found, "weight": weights, "type": types}

    def _of_mapping(self, where: str, edges: Mapping[str, Any], known: KnowsSlots) -> tuple[Int64, Int64, Int64]:
        missing = [name for name in ("src", "dst", "id") if name not in edges]
        if missing:
            raise ValueInvalid(
                f"[{where}] expected edges with src, dst and id, got no {missing[0]}; pass what Graph.edges() gives, "
                "edge ids, or pairs"
            )
        src, dst = (known.slots(where, edges[name], None) for name in ("src", "dst"))
        ids = checks.integer_array(where, "id", edges["id"])
        for name, column in (("dst", dst), ("id", ids)):
            checks.same_length(where, name, column, len(src), "edges")
        if len(ids) and ids.min() < 0:
            raise ValueInvalid(f"[{where}] expected edge ids of at least 0, got {ids.min()}; pass what an edge has")
        return src, dst, ids

    def rows(self, edges: EdgeArrays, rows_at: RowsAt) -> Rows:
        """(k, d) float32, row i of edge i."""
        count = len(edges["id"])
        made = np.empty((count, self.width), np.float32)
        for first in range(0, count, _CHUNK):
            part = {name: column[first : first + _CHUNK] for name, column in edges.items()}
            given = [rows_at(part["src"]), rows_at(part["dst"])]
            if self.head.attributes:
                given.append(_native.edge_attributes(self.store, part["id"]))
            if self.head.weighted:
                given.append(part["weight"][:, None])
            if self.head.typed:
                given.append(part["type"][:, None].astype(np.float32))
            made[first : first + _CHUNK] = headed(self.head.value, np.concatenate(given, axis=1))
        return made

    def all_edges(self) -> EdgeArrays:
        """Every edge in order of ids, with weights and types; src and dst are slots."""
        ends = _native.edge_ends(self.store)
        _, weights, types = _native.find_edges(self.store, ends["src"], ends["dst"], ends["id"])
        return {**ends, "weight": weights, "type": types}

    def changed(self, change: Any) -> EdgeArrays:
        """The edges whose row may have other bits after a batch, in order of ids; src and dst are vertex ids."""
        parts = [_native.edges_at(self.store, change.vertices()), change.edges_added()]
        parts += [change.edges_reattributed()] if self.head.attributes else []
        parts += [change.edges_reweighted()] if self.head.weighted else []
        table = np.concatenate([np.stack([part[name] for name in ("id", "src", "dst")], 1) for part in parts])
        table = np.unique(table, axis=0)
        src, dst = (self.graph.to_external(np.ascontiguousarray(table[:, column])) for column in (1, 2))
        return {"src": src, "dst": dst, "id": np.ascontiguousarray(table[:, 0])}


def refuse_rows_of_vertices(where: str, model: Model) -> NoReturn:
    """Raises: ModelMismatch for a model without rows of edges."""
    raise ModelMismatch(
        f"[{where}] expected a model with one row per edge, got {model!r}; read embeddings(), or score pairs by "
        "predict_edges()"
    )


def _label(edges: Any, i: int) -> str:
    """An edge as the caller has named it."""
    if isinstance(edges, Mapping):
        return f"{edges['src'][i]} -> {edges['dst'][i]} with id {edges['id'][i]}"
    array = np.asarray(edges)
    return f"with id {array[i]}" if array.ndim == 1 else f"{array[i, 0]} -> {array[i, 1]}"
