"""Graph: what users see of the dynamic graph: made from arrays, read, and changed by batches.

Reads hold the lock of the graph's host (host.py), which also has the store, the ids, the one writer's place and
everything that is attached to the graph. Version and counts are read without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from livegnn.errors import ColumnMissing, EdgeOffloaded, LiveGnnError, UsageError, VertexUnknown
from livegnn.graph import arrow_out, checks, load, offload, pyg_out, saved
from livegnn.graph import float16 as halves
from livegnn.graph.checks import Int32Array
from livegnn.graph.expiry import Expiry, Ttl
from livegnn.graph.host import GraphHost
from livegnn.graph.offload import Offloaded
from livegnn.graph.pyg import pyg_arrays
from livegnn.graph.schema import EdgeTriple, GraphSchema
from livegnn.graph.threads import core_count
from livegnn.graph.updates import Updates, VertexType
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array


class Graph:
    """A directed graph with features that changes by batches of updates.

    graph[k + 1] = batch(graph[k]),  k = version;  messages flow src -> dst

    Args:    features: (V, F) float32.  src, dst: (E,) ids.  weight: (E,) float32.  time: (E,) int64, the user's unit.
             edge_type: (E,) int32.  edge_attr: (E, A) float32.  ids: (V,) int64 or strings, the vertices' own names.
             undirected: each edge is stored both ways under one edge id.  simple: a second edge u -> v is refused.
             ttl: how long edges live, one duration or a dict by edge type; docs/updates.md, "Edges that expire".
             feature_dtype: "float32", "float16" or "bfloat16", what features are stored as and rounded to (nearest
             even); unless given, float16 and bfloat16 arrays and tensors keep theirs. They read as float32 always.
             Typed form: features and ids are dicts by vertex type, the others dicts by (src type, name, dst type), and
             ids count, or are named, within a type; or flat arrays with vertex_type: (V,) int32 or strings. See
             docs/graph.md, "Types".
    Raises:  VertexUnknown, ValueInvalid, DtypeInvalid, WidthMismatch, ColumnMissing, EdgeDuplicate, naming the row.
    Cost:    load O(V F + E); apply as the updates need.  Source: GNNFlow 4.1 for the store.

    >>> import numpy as np, livegnn as lg
    >>> graph = lg.Graph(np.zeros((3, 2), np.float32), [0, 1], [1, 2])
    >>> updates = lg.Updates()
    >>> updates.add_edge(2, 0)
    >>> graph.apply(updates)
    1
    >>> graph.edge_count
    3
    """

    host: GraphHost  # for what is attached to the graph: engines, samplers, trainers, logs
    _block_edges_max: ClassVar[int] = 128  # tests make blocks tiny

    def __init__(
        self,
        features: object,
        src: object,
        dst: object = None,
        *,
        weight: object = None,
        time: object = None,
        edge_type: object = None,
        edge_attr: object = None,
        vertex_type: object = None,
        ids: object = None,
        undirected: bool = False,
        simple: bool = False,
        feature_dtype: object = None,
        ttl: Ttl = None,
    ) -> None:
        if dst is None:
            raise UsageError(
                "[Graph] expected features, src and dst, got no dst; "
                "for an edge_index of shape (2, E) write Graph(x, *edge_index), or Graph.from_pyg(data)"
            )
        given = {"features": features, "src": src, "dst": dst, "weight": weight, "time": time}
        given |= {"edge_type": edge_type, "edge_attr": edge_attr, "vertex_type": vertex_type, "ids": ids}
        self._build("Graph", given, feature_dtype, ttl, undirected=undirected, simple=simple)

    def _build(
        self,
        where: str,
        given: Mapping[str, Any],
        feature_dtype: object,
        ttl: Ttl,
        *,
        by_row: bool = False,
        weight_column: load.WeightColumn | None = "weight",
        **flags: bool,
    ) -> None:
        arrays = load.check_arrays(given, halves.check_dtype(where, feature_dtype), by_row=by_row)
        unit = load.time_unit(where, given.get("time"), empty=ttl is not None)
        options: dict[str, Any] = {
            "feature_width": arrays.features.shape[1],
            "feature_dtype": arrays.feature_dtype,
            "has_weight": arrays.weight is not None,
            "has_time": arrays.time is not None,
            "has_type": arrays.edge_type is not None,
            "attr_width": 0 if arrays.edge_attr is None else arrays.edge_attr.shape[1],
            **{name: checks.flag(where, name, value) for name, value in flags.items()},
        }
        schema = GraphSchema.nameless(0) if arrays.ids is None else arrays.ids.schema
        load.check_undirected(schema, options["undirected"])
        expiry = Expiry.of(where, ttl, schema, options, unit)
        self.host = GraphHost(
            options,
            arrays.ids,
            block_edges_max=self._block_edges_max,
            weight_column=weight_column,
            time_unit=unit,
            expiry=expiry,
        )
        edge_count = len(arrays.src)
        if expiry is not None:
            arrays = arrays.kept(expiry.begin(arrays.time, arrays.edge_type))
        columns: dict[str, Any] = {"features": arrays.features, "vertex_type": arrays.vertex_type}
        columns |= {"src": arrays.src, "dst": arrays.dst, "weight": arrays.weight, "time": arrays.time}
        columns |= {"type": arrays.edge_type, "attr": arrays.edge_attr, "id": arrays.edge_id}
        self.host.store.load(columns, core_count(), edge_count)

    @classmethod
    def from_pyg(
        cls, data: Any, *, ids: object = None, simple: bool = False, feature_dtype: object = None, ttl: Ttl = None
    ) -> Self:
        """The graph of a torch_geometric.data.Data or HeteroData.

        x -> features, edge_index -> src, dst, edge_weight -> weight, edge_attr -> edge_attr, edge_type -> edge_type,
        edge_time (or time, one an edge) -> time. Other attributes (y, masks) are not read. A 1-D edge_attr without an
        edge_weight is kept as weights, so updates give weight=; weight_column says so, and a model reads it as its
        forward reads edge_attr. With ids=, edge_index still counts rows of x. Of HeteroData the same for each type; a
        type with num_nodes and no x has features of width 0.

        Raises:  ColumnMissing without x or edge_index; else as Graph.
        """
        graph = cls.__new__(cls)
        given, column = pyg_arrays(data)
        options: dict[str, Any] = {"by_row": True, "weight_column": column, "undirected": False, "simple": simple}
        graph._build("Graph.from_pyg", {**given, "ids": ids}, feature_dtype, ttl, **options)
        return graph

    # ---- what it is
    #
    # Version and counts are those of the batch published last, in every thread: also while another batch is under way
    # and inside a what_if block. They take no lock.

    @property
    def version(self) -> int:
        """Number of batches published. It moves last: what is attached to the graph serves this version or a later."""
        return self.host.store.published_version

    @property
    def vertex_count(self) -> int:
        """Live vertices."""
        return self.host.store.published_vertex_count

    @property
    def slot_count(self) -> int:
        """Slots that vertices take inside, some perhaps free; without ids= and types a vertex's id is its slot."""
        return self.host.store.published_slot_count

    @property
    def edge_count(self) -> int:
        """Live edges in memory; an undirected edge counts once. `offloaded.count` more lie in files."""
        return self.host.store.published_edge_count

    @property
    def feature_width(self) -> int:
        """F, the width of a feature row; of the widest type's where vertices have types."""
        return int(self.host.options["feature_width"])

    @property
    def feature_dtype(self) -> str:
        """What features are stored as: "float32", "float16" or "bfloat16"; they read as float32 always."""
        return str(self.host.options["feature_dtype"])

    @property
    def feature_widths(self) -> Mapping[str, int]:
        """The width of a feature row by vertex type; empty in a graph without types."""
        schema = self.host.schema
        return dict(zip(schema.vertex_types, schema.widths, strict=True)) if schema.has_types else {}

    @property
    def vertex_types(self) -> tuple[str, ...] | None:
        """Names of the vertex types, a type's code being its place; None in a graph without types."""
        return self.host.schema.vertex_types if self.host.schema.has_types else None

    @property
    def edge_types(self) -> tuple[EdgeTriple, ...] | None:
        """(src type, name, dst type) of the edge types, a type's code being its place; None in a graph whose vertices
        have no types, even where has_type.
        """
        return self.host.schema.edge_types if self.host.schema.has_types else None

    @property
    def attr_width(self) -> int:
        """A, the width of an edge's attributes; 0 where edges have none."""
        return int(self.host.options["attr_width"])

    @property
    def has_weight(self) -> bool:
        """Whether edges have weights."""
        return bool(self.host.options["has_weight"])

    @property
    def weight_column(self) -> load.WeightColumn | None:
        """Where weights come from: "weight" as Graph has it, PyG's "edge_weight" or a 1-D "edge_attr"; None without."""
        return self.host.weight_column if self.has_weight else None

    @property
    def has_time(self) -> bool:
        """Whether edges have times."""
        return bool(self.host.options["has_time"])

    @property
    def ttl(self) -> int | dict[EdgeTriple, int] | dict[int, int] | None:
        """How long edges live after their time: one duration, or by edge type (by code where vertices have no types);
        None for ever.
        """
        expiry = self.host.expiry
        return None if expiry is None else expiry.shown(self.host.schema)

    @property
    def now(self) -> int | None:
        """The largest time of any edge added so far, from which a ttl counts back; None without a ttl, or edges yet."""
        expiry = self.host.expiry
        return None if expiry is None or expiry.now == checks.INT64_MIN else expiry.now

    @property
    def has_type(self) -> bool:
        """Whether edges have types."""
        return bool(self.host.options["has_type"])

    @property
    def has_ids(self) -> bool:
        """Whether vertices, of some type at least, have ids of their own (ids=)."""
        return self.host.ids.has_names

    @property
    def undirected(self) -> bool:
        """Whether each edge is stored both ways."""
        return bool(self.host.options["undirected"])

    @property
    def simple(self) -> bool:
        """Whether a second edge u -> v is refused."""
        return bool(self.host.options["simple"])

    def __repr__(self) -> str:
        size = f"vertices={self.vertex_count}, edges={self.edge_count}, features={self.feature_width}"
        return f"Graph({size}, version={self.version})"

    # ---- reading
    #
    # Of the graph's content, under its lock: other threads wait for a batch under way or a what_if block; inside the
    # block, its own thread reads what the updates would make.
    #
    # Where vertices have types, vertex_type= says whose ids are meant: a name or a code. It is wanted there, and
    # refused elsewhere (ColumnMissing; ValueInvalid for a type that is not there).

    def features(self, ids: object = None, *, vertex_type: VertexType | None = None) -> Float32Array:
        """Features, (k, F) float32, row i for ids[i]; without ids of every vertex, in the order of vertices(). F is the
        width of the type.

        Raises:  VertexUnknown.
        """
        with self.host.lock:
            host, where = self.host, "features"
            slots = host.live_slots(where, vertex_type) if ids is None else host.ids.slots(where, ids, vertex_type)
            return host.store.features(slots, host.schema.widths[host.schema.vertex_code(where, vertex_type)])

    def vertices(self, vertex_type: VertexType | None = None) -> AnyArray:
        """Ids of the live vertices (of one type), (k,), in the order of their slots."""
        with self.host.lock:
            return self.host.ids.external(self.host.live_slots("vertices", vertex_type))

    def edges(self, *, loaded_only: bool = False) -> dict[str, AnyArray]:
        """All edges in order of id: src, dst, id, and weight, time, type, attr where there; undirected ones once.

        Where vertices have types, src and dst are ids within the types that the edge's type joins.

        Raises:  EdgeOffloaded where some lie in files, unless loaded_only=True leaves those out.
        """
        with self.host.lock:
            if not loaded_only:
                self._check_loaded("edges", self.host.store.offloaded_count)
            found = self.host.store.edges()
            for end in ("src", "dst"):
                found[end] = self.host.ids.external(found[end])
            return found

    def in_neighbours(
        self, v: object, *, vertex_type: VertexType | None = None, loaded_only: bool = False
    ) -> dict[str, AnyArray]:
        """The edges into v by (time, id): src, id, and weight, time, type where there; src_type, codes of the sources'
        types, where vertices have types. Raises: VertexUnknown; EdgeOffloaded as edges().
        """
        with self.host.lock:
            slot = self.host.ids.slot("in_neighbours", v, vertex_type)
            if not loaded_only:
                self._check_loaded("in_neighbours", self.host.store.offloaded_in(slot))
            return self._named("src", self.host.store.in_neighbours(slot))

    def out_neighbours(
        self, u: object, *, vertex_type: VertexType | None = None, loaded_only: bool = False
    ) -> dict[str, AnyArray]:
        """The edges out of u by (time, id): dst, id, and weight, time, type where there; dst_type, codes of the
        destinations' types, where vertices have types. Raises: VertexUnknown; EdgeOffloaded as edges().
        """
        with self.host.lock:
            slot = self.host.ids.slot("out_neighbours", u, vertex_type)
            if not loaded_only:
                self._check_loaded("out_neighbours", self.host.store.offloaded_out(slot))
            return self._named("dst", self.host.store.out_neighbours(slot))

    def in_degree(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """Number of edges into each vertex, (k,) int64, in memory or not, parallel ones and self-loops counted.

        Raises: VertexUnknown.
        """
        with self.host.lock:
            return self.host.store.in_degree(self.host.ids.slots("in_degree", ids, vertex_type))

    def out_degree(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """Number of edges out of each vertex, (k,) int64, in memory or not. Raises: VertexUnknown."""
        with self.host.lock:
            return self.host.store.out_degree(self.host.ids.slots("out_degree", ids, vertex_type))

    def is_live(self, ids: object, *, vertex_type: VertexType | None = None) -> BoolArray:
        """Which of the ids are vertices of this version, (k,) bool."""
        with self.host.lock:
            return self.host.ids.find("is_live", ids, vertex_type) >= 0

    def __contains__(self, vertex: object) -> bool:
        """Whether a vertex is live: its id, or (vertex type, id) where vertices have types."""
        try:
            with self.host.lock:
                kind, name = None, vertex
                if self.host.schema.has_types and isinstance(vertex, tuple) and len(vertex) == 2:
                    kind, name = vertex
                return bool(self.host.ids.find("in", [name], kind)[0] >= 0)
        except LiveGnnError:
            return False

    def to_slots(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """(k,) int64 slots of vertex ids; the ids themselves without ids= and types. Raises: VertexUnknown."""
        with self.host.lock:
            return self.host.ids.slots("to_slots", ids, vertex_type)

    def to_external(self, slots: object, *, vertex_type: VertexType | None = None) -> AnyArray:
        """(k,) ids of slots: int64, or strings (dtype object); without ids= and types the slots.

        Where vertices have types, each id is one of its slot's own type; with vertex_type= all slots must be of that.

        Raises:  VertexUnknown.
        """
        with self.host.lock:
            numbers = checks.id_array("to_external", "slots", slots)
            if vertex_type is not None:
                self._check_slots("to_external", numbers, vertex_type)
            return self.host.ids.external(numbers)

    def slot_types(self, slots: object) -> Int32Array:
        """(k,) int32 codes of the vertex types of slots. Raises: VertexUnknown; ColumnMissing without types."""
        with self.host.lock:
            if not self.host.schema.has_types:
                raise ColumnMissing(
                    "[slot_types] expected a graph whose vertices have types, got one without; make it with dicts"
                )
            return self.host.store.slot_types(checks.id_array("slot_types", "slots", slots))

    def memory(self) -> dict[str, int]:
        """Bytes by part: edges_live, edges_reserved (places without an edge), index (directories of blocks, indexes),
        vertices (with what batches keep for the next), features, attributes.
        """
        with self.host.lock:
            return self.host.store.memory()

    def block_stats(self, *, outgoing: bool = False) -> dict[str, int]:
        """Of the in-lists, or the out-lists: lists that hold edges, blocks, blocks_max of one list, edges, places."""
        with self.host.lock:
            return self.host.store.block_stats(bool(outgoing))

    def digest(self) -> int:
        """Order-free 64-bit hash of vertices, features and edges as a multiset; not of edge ids, version or layout."""
        with self.host.lock:
            return self.host.store.digest()

    # ---- writing

    def apply(self, updates: Updates) -> int:
        """Applies a batch to the graph and to everything attached to it, all or none, and returns the new version.

        Raises:  UpdateError of the kind that the first bad update deserves, naming it; then nothing has changed.
                 UsageError from inside an on_change callback. Concurrent calls wait for each other.
        """
        return self.host.apply(updates)[0]

    def compact(self) -> None:
        """Gives back the memory that deletions left. Content, ids and version stay."""
        with self.host.writing("compact"):
            self.host.store.compact()

    # ---- old edges in files

    @property
    def offloaded(self) -> Offloaded:
        """What lies in files: before, count, and files with path, before and count each; docs/offload.md."""
        return self.host.offloaded

    def offload(self, before: int, path: str | os.PathLike[str]) -> Offloaded:
        """Moves every edge with time < before out of memory, into a new Parquet file; what is then away.

        Version, digest, degrees and edge ids stay. No file is written where there is no such edge.

        Raises:  ColumnMissing without times; UsageError for a path that is taken, while a pin is attached, and for a
                 part of a graph; DataMissing without pyarrow; SpillUnavailable without room for the copies that engines
                 and pre-samplers read. Then nothing has changed.
        Cost:    O(V + E) and the file.  Source: GNNFlow 4.1.
        """
        with self.host.writing("offload"):
            self.host.need_whole("offload")
            self.host.offloaded = offload.offload(self.host, before, path)
            return self.host.offloaded

    def reload(self, path: str | os.PathLike[str] | None = None, since: int | None = None) -> int:
        """Brings edges back from their files, with their ids, to where their times say; returns how many.

        Args:    path: of one file, wherever it lies now; without it, all files.  since: edges with time >= since only.
        Raises:  DataMissing where a file is gone; StoredStateInvalid where it is damaged or another; UsageError for a
                 file of another graph, and for a part of a graph. Then nothing has changed.
        Cost:    O(log d + block_edges_max) an edge.
        """
        with self.host.writing("reload"):
            self.host.need_whole("reload")
            count, self.host.offloaded = offload.reload(self.host, path, since)
            return count

    def _check_loaded(self, where: str, away: int) -> None:
        if away:
            raise EdgeOffloaded(
                f"[{where}] expected edges in memory, got {away} with a time before {self.offloaded.before} in files; "
                f"call graph.reload() first{'' if where.startswith('to_') else ', or pass loaded_only=True'}"
            )

    def _check_slots(self, where: str, slots: Int64Array, vertex_type: VertexType) -> None:
        """Refuses slots of another type than the one named."""
        schema = self.host.schema
        code, types = schema.vertex_code(where, vertex_type), self.host.store.slot_types(slots)
        if (types != code).any():
            row = int(np.argmax(types != code))
            got = f"{slots[row]} of type {schema.vertex_types[types[row]]!r} at row {row}"
            raise VertexUnknown(
                f"[{where}] expected slots of vertices of type {schema.vertex_types[code]!r}, got {got}; name its type"
            )

    def _named(self, key: str, found: dict[str, AnyArray]) -> dict[str, AnyArray]:
        if self.host.schema.has_types:
            found[f"{key}_type"] = self.host.store.slot_types(found[key])
        found[key] = self.host.ids.external(found[key])
        return found

    # ---- as other libraries have graphs

    def to_pyg(self) -> Any:
        """The graph as it is, as torch_geometric Data; HeteroData where vertices have types. from_pyg() reads it.

        x (V, F) float32, n_id (V,), edge_index (2, E), e_id (E,), and edge_weight (an edge_attr of one dimension where
        weight_column says so), edge_attr, edge_time and edge_type where the graph has them. Rows are the live vertices
        in order of vertices(); n_id has their ids, of string ids the slots (to_external(n_id) names them). Edges are in
        order of id; an undirected one stands there both ways.

        Raises:  DataMissing without PyG; EdgeOffloaded where edges lie in files.
        Exactness: from_pyg() makes the same graph, ids of vertices apart (ids=): rows take the places of removed
                 vertices, edges count anew, and an undirected edge is two.
        Cost:    O(V F + E).
        """
        with self.host.lock:
            self._check_loaded("to_pyg", self.host.store.offloaded_count)
            return pyg_out.to_pyg(self.host, self.weight_column)

    def to_arrow(self) -> arrow_out.ArrowTables:
        """(vertices, edges) as Arrow tables, or dicts of them by type; an undirected edge once. For the columns see
        livegnn.graph.arrow_out.ArrowTables; Updates.from_arrow(edges) adds the same edges to another graph.

        Raises:  DataMissing without pyarrow; EdgeOffloaded where edges lie in files.
        """
        with self.host.lock:
            self._check_loaded("to_arrow", self.host.store.offloaded_count)
            return arrow_out.to_arrow(self.host)

    # ---- saving

    def to_arrays(self) -> dict[str, AnyArray]:
        """The whole graph as arrays without objects, for files."""
        captured = saved.CapturedGraph(self.host)
        with self.host.lock:
            captured.take()
        return captured.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """The graph that to_arrays() described. Raises: StoredStateInvalid."""
        graph = cls.__new__(cls)
        graph.host = saved.restore(arrays, cls._block_edges_max)
        return graph
