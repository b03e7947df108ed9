"""Graph: the dynamic graph store, its ids, its one writer, and the consumers that follow it.

Locking. One re-entrant lock is held while a batch is applied and while the store is read, since a read must see whole
versions. `_busy` marks a writer at work, so that a callback, which runs inside the applying thread and therefore passes
the lock, may read but not write. Engines publish their own rows and are not read under this lock.

Applying. ids are translated (only where the graph has ids of its own, or types) -> one native call applies the batch to
the store and to everything attached, all or none -> the id map follows -> each consumer learns of the version, in order
of attachment. Where the graph is attached to a log, `_record` writes the batch down inside that native call, when
nothing can refuse it any more and no reader has seen it yet.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self
from weakref import WeakSet

import numpy as np

from livegnn import _native
from livegnn.errors import (
    ColumnMissing,
    EdgeOffloaded,
    LiveGnnError,
    UpdateError,
    UsageError,
    VertexUnknown,
)
from livegnn.graph import checks, halves, load, offload, saved, typed_load
from livegnn.graph.checks import AnyArray, BoolArray, Float32Array, Int32Array, Int64Array
from livegnn.graph.consumers import Consumer, HoldsIds, VertexChange
from livegnn.graph.cores import core_count
from livegnn.graph.ids import IdMap, Translation, slots_or_ids
from livegnn.graph.ids_then import OldIds
from livegnn.graph.schema import EdgeTriple, Schema, no_type_names, no_vertex_type
from livegnn.graph.typed_ids import Batch, TypedIds, TypedTranslation
from livegnn.graph.updates import Updates, VertexType


class Graph:
    """A directed graph with features that changes by batches of updates.

    graph[k + 1] = batch(graph[k]),  k = version;  messages flow src -> dst

    Args:    features: (V, F) float32.  src, dst: (E,) ids.  weight: (E,) float32.  time: (E,) int64, the user's unit.
             edge_type: (E,) int32.  edge_attr: (E, A) float32.  ids: (V,) int64 or strings, the vertices' own names.
             undirected: each edge is stored both ways under one edge id.  simple: a second edge u -> v is refused.
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

    _block_edges_max: ClassVar[int] = 128  # tests make blocks tiny
    _weight_column: load.WeightColumn | None = "weight"  # where the weights, if any, come from
    _time_unit: str | None = None  # of the datetime64 values that were given so far; numbers have none

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
    ) -> None:
        if dst is None:
            raise UsageError(
                "[Graph] expected features, src and dst, got no dst; "
                "for an edge_index of shape (2, E) write Graph(x, *edge_index), or Graph.from_pyg(data)"
            )
        columns = {"weight": weight, "time": time, "edge_type": edge_type, "edge_attr": edge_attr}
        dtype = halves.check_dtype("Graph", feature_dtype)
        if typed_load.is_typed_form(vertex_type, features, src, dst, *columns.values(), ids):
            arrays = typed_load.check_typed(
                features, src, dst, **columns, vertex_type=vertex_type, ids=ids, feature_dtype=dtype, by_row=False
            )
        else:
            arrays = load.check_arrays(features, src, dst, **columns, ids=ids, feature_dtype=dtype, by_row=False)
        undirected, simple = checks.flag("Graph", "undirected", undirected), checks.flag("Graph", "simple", simple)
        self._keep_unit("Graph", time)
        self._build(arrays, undirected, simple)

    def _keep_unit(self, where: str, time: object) -> None:
        """Of the times that a new graph is made of. Raises: ValueInvalid for two units."""
        for part in time.values() if isinstance(time, Mapping) else [time]:
            self._time_unit = checks.same_unit(where, "time", self._time_unit, checks.time_unit(part))

    def _build(self, arrays: load.GraphArrays, undirected: bool, simple: bool) -> None:
        options: dict[str, Any] = {
            "feature_width": arrays.features.shape[1],
            "feature_dtype": arrays.feature_dtype,
            "has_weight": arrays.weight is not None,
            "has_time": arrays.time is not None,
            "has_type": arrays.edge_type is not None,
            "attr_width": 0 if arrays.edge_attr is None else arrays.edge_attr.shape[1],
            "undirected": bool(undirected),
            "simple": bool(simple),
        }
        if arrays.typed is not None:
            typed_load.check_undirected(arrays.typed.schema, bool(undirected))
        self._set_up(options, arrays.ids, arrays.typed)
        columns = (arrays.weight, arrays.time, arrays.edge_type, arrays.edge_attr)
        self._store.load(arrays.features, arrays.src, arrays.dst, *columns, core_count(), arrays.vertex_type)

    def _set_up(self, options: dict[str, Any], ids: IdMap | None, typed: TypedIds | None) -> None:
        self._options = options
        types: dict[str, Any] = {} if typed is None else _type_options(typed.schema)
        self._store = _native.GraphStore(**options, block_edges_max=self._block_edges_max, **types)
        self._store.set_apply_threads(core_count())
        self._ids = ids
        self._typed = typed
        self._lock = threading.RLock()
        self._ids_version = 0  # of the ids as they are: the store's, but while a batch is under way; -1 while they move
        self._busy = False
        self._offloaded = offload.NOTHING
        self._supposed = False  # inside a what_if block: the store holds what is only supposed
        self._consumers: list[Consumer] = []
        self._natives: list[Any] = []
        self._only: Consumer | None = None  # the one consumer, where there is one and it is native
        self._followers: list[Any] = []
        self._guards: list[Callable[[list[VertexChange]], None]] = []  # hear of a batch first, and may refuse it
        self._with_ids: WeakSet[HoldsIds] = WeakSet()  # what is to be told before slots get other ids
        self._ids_moves = 0  # batches that have given slots other ids
        self._old_ids = OldIds()  # of the snapshots that are open
        self._record: Callable[[Updates], object] | None = None  # hears last before publication; raising takes it back

    @classmethod
    def from_pyg(cls, data: Any, *, ids: object = None, simple: bool = False, feature_dtype: object = None) -> Self:
        """The graph of a torch_geometric.data.Data or HeteroData.

        x -> features, edge_index -> src, dst, edge_weight -> weight, edge_attr -> edge_attr, edge_type -> edge_type,
        edge_time (or time, one an edge) -> time. Other attributes (y, masks) are not read. A 1-D edge_attr without an
        edge_weight is kept as weights, so updates give weight=; weight_column says so, and a model reads it as its
        forward reads edge_attr. With ids=, edge_index still counts rows of x. Of HeteroData the same for each type; a
        type with num_nodes and no x has features of width 0.

        Raises:  ColumnMissing without x or edge_index; else as Graph.
        """
        graph, simple = cls.__new__(cls), checks.flag("Graph.from_pyg", "simple", simple)
        options: dict[str, Any] = {"ids": ids, "feature_dtype": halves.check_dtype("Graph.from_pyg", feature_dtype)}
        if hasattr(data, "node_types") or hasattr(data, "metadata"):
            found = typed_load.hetero_arrays(data)
            graph._keep_unit("Graph.from_pyg", found["time"])
            arrays = typed_load.check_typed(**found, vertex_type=None, **options, by_row=True)
            graph._weight_column = typed_load.weight_column(data)
        else:
            columns = load.pyg_arrays(data)
            graph._keep_unit("Graph.from_pyg", columns["time"])
            arrays = load.check_arrays(**columns, **options, by_row=True)
            graph._weight_column = load.weight_column(data)
        graph._build(arrays, undirected=False, simple=simple)
        return graph

    # ---- what it is
    #
    # Version and counts are those of the batch published last, in every thread: also while another batch is under way
    # and inside a what_if block. They take no lock.

    @property
    def version(self) -> int:
        """Number of batches published. It moves last: what is attached to the graph serves this version or a later."""
        return self._store.published_version

    @property
    def vertex_count(self) -> int:
        """Live vertices."""
        return self._store.published_vertex_count

    @property
    def slot_count(self) -> int:
        """Slots that vertices take inside, some perhaps free; without ids= and types a vertex's id is its slot."""
        return self._store.published_slot_count

    @property
    def edge_count(self) -> int:
        """Live edges in memory; an undirected edge counts once. `offloaded.count` more lie in files."""
        return self._store.published_edge_count

    @property
    def feature_width(self) -> int:
        """F, the width of a feature row; of the widest type's where vertices have types."""
        return int(self._options["feature_width"])

    @property
    def feature_dtype(self) -> str:
        """What features are stored as: "float32", "float16" or "bfloat16"; they read as float32 always."""
        return str(self._options["feature_dtype"])

    @property
    def feature_widths(self) -> Mapping[str, int]:
        """The width of a feature row by vertex type; empty in a graph without types."""
        if self._typed is None:
            return {}
        return dict(zip(self._typed.schema.vertex_types, self._typed.schema.widths, strict=True))

    @property
    def vertex_types(self) -> tuple[str, ...] | None:
        """Names of the vertex types, a type's code being its place; None in a graph without types."""
        return None if self._typed is None else self._typed.schema.vertex_types

    @property
    def edge_types(self) -> tuple[EdgeTriple, ...] | None:
        """(src type, name, dst type) of the edge types, a type's code being its place; None in a graph whose vertices
        have no types, even where has_type.
        """
        return None if self._typed is None else self._typed.schema.edge_types

    @property
    def attr_width(self) -> int:
        """A, the width of an edge's attributes; 0 where edges have none."""
        return int(self._options["attr_width"])

    @property
    def has_weight(self) -> bool:
        """Whether edges have weights."""
        return bool(self._options["has_weight"])

    @property
    def weight_column(self) -> load.WeightColumn | None:
        """Where weights come from: "weight" as Graph has it, PyG's "edge_weight" or a 1-D "edge_attr"; None without."""
        return self._weight_column if self.has_weight else None

    @property
    def has_time(self) -> bool:
        """Whether edges have times."""
        return bool(self._options["has_time"])

    @property
    def has_type(self) -> bool:
        """Whether edges have types."""
        return bool(self._options["has_type"])

    @property
    def has_ids(self) -> bool:
        """Whether vertices, of some type at least, have ids of their own (ids=)."""
        return self._ids is not None or (self._typed is not None and self._typed.has_ids)

    @property
    def undirected(self) -> bool:
        """Whether each edge is stored both ways."""
        return bool(self._options["undirected"])

    @property
    def simple(self) -> bool:
        """Whether a second edge u -> v is refused."""
        return bool(self._options["simple"])

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
        with self._lock:
            slots = self._live("features", vertex_type) if ids is None else self._slots("features", ids, vertex_type)
            if self._typed is None:
                return self._store.features(slots)
            schema = self._typed.schema
            return self._store.features(slots, schema.widths[schema.vertex_code("features", vertex_type)])

    def vertices(self, vertex_type: VertexType | None = None) -> AnyArray:
        """Ids of the live vertices (of one type), (k,), in the order of their slots."""
        with self._lock:
            return self._external(self._live("vertices", vertex_type))

    def edges(self, *, loaded_only: bool = False) -> dict[str, AnyArray]:
        """All edges in order of id: src, dst, id, and weight, time, type, attr where there; undirected ones once.

        Where vertices have types, src and dst are ids within the types that the edge's type joins.

        Raises:  EdgeOffloaded where some lie in files, unless loaded_only=True leaves those out.
        """
        with self._lock:
            if not loaded_only:
                self._check_loaded("edges", self._store.offloaded_count)
            found = self._store.edges()
            if self._ids is not None or self._typed is not None:
                found["src"], found["dst"] = self._external(found["src"]), self._external(found["dst"])
            return found

    def in_neighbours(
        self, v: object, *, vertex_type: VertexType | None = None, loaded_only: bool = False
    ) -> dict[str, AnyArray]:
        """The edges into v by (time, id): src, id, and weight, time, type where there; src_type, codes of the sources'
        types, where vertices have types. Raises: VertexUnknown; EdgeOffloaded as edges().
        """
        with self._lock:
            slot = self._slot("in_neighbours", v, vertex_type)
            if not loaded_only:
                self._check_loaded("in_neighbours", self._store.offloaded_in(slot))
            return self._named("src", self._store.in_neighbours(slot))

    def out_neighbours(
        self, u: object, *, vertex_type: VertexType | None = None, loaded_only: bool = False
    ) -> dict[str, AnyArray]:
        """The edges out of u by (time, id): dst, id, and weight, time, type where there; dst_type, codes of the
        destinations' types, where vertices have types. Raises: VertexUnknown; EdgeOffloaded as edges().
        """
        with self._lock:
            slot = self._slot("out_neighbours", u, vertex_type)
            if not loaded_only:
                self._check_loaded("out_neighbours", self._store.offloaded_out(slot))
            return self._named("dst", self._store.out_neighbours(slot))

    def in_degree(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """Number of edges into each vertex, (k,) int64, in memory or not, parallel ones and self-loops counted.

        Raises: VertexUnknown.
        """
        with self._lock:
            return self._store.in_degree(self._slots("in_degree", ids, vertex_type)).astype(np.int64, copy=False)

    def out_degree(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """Number of edges out of each vertex, (k,) int64, in memory or not. Raises: VertexUnknown."""
        with self._lock:
            return self._store.out_degree(self._slots("out_degree", ids, vertex_type)).astype(np.int64, copy=False)

    def is_live(self, ids: object, *, vertex_type: VertexType | None = None) -> BoolArray:
        """Which of the ids are vertices of this version, (k,) bool."""
        with self._lock:
            if self._typed is not None:
                return self._typed.find("is_live", ids, vertex_type) >= 0
            no_vertex_type("is_live", vertex_type)
            if self._ids is not None:
                index = self._ids.index
                names = self._ids.listed("is_live", "ids", ids)
                return np.fromiter((name in index for name in names), np.bool_, len(names))
            slots, live = checks.id_array("is_live", "ids", ids), self._store.live()
            inside = slots < len(live)
            return inside & live[np.where(inside, slots, 0)] if len(live) else inside

    def __contains__(self, vertex: object) -> bool:
        """Whether a vertex is live: its id, or (vertex type, id) where vertices have types."""
        try:
            with self._lock:
                if self._typed is not None:
                    kind, name = vertex if isinstance(vertex, tuple) and len(vertex) == 2 else (None, vertex)
                    return bool(self._typed.find("in", [name], kind)[0] >= 0)
                if self._ids is not None:
                    return self._ids.one("in", vertex) in self._ids.index
                self._store.in_degree(np.array([checks.vertex_id("in", "vertex", vertex)]))
        except LiveGnnError:
            return False
        return True

    def to_slots(self, ids: object, *, vertex_type: VertexType | None = None) -> Int64Array:
        """(k,) int64 slots of vertex ids; the ids themselves without ids= and types. Raises: VertexUnknown."""
        with self._lock:
            return self._slots("to_slots", ids, vertex_type)

    def to_external(self, slots: object, *, vertex_type: VertexType | None = None) -> AnyArray:
        """(k,) ids of slots: int64, or strings (dtype object); without ids= and types the slots.

        Where vertices have types, each id is one of its slot's own type; with vertex_type= all slots must be of that.

        Raises:  VertexUnknown.
        """
        with self._lock:
            numbers = checks.id_array("to_external", "slots", slots)
            if vertex_type is not None:
                self._check_slots("to_external", numbers, vertex_type)
            return self._external(numbers)

    def slot_types(self, slots: object) -> Int32Array:
        """(k,) int32 codes of the vertex types of slots. Raises: VertexUnknown; ColumnMissing without types."""
        with self._lock:
            if self._typed is None:
                raise ColumnMissing(
                    "[slot_types] expected a graph whose vertices have types, got one without; make it with dicts"
                )
            return self._store.slot_types(checks.id_array("slot_types", "slots", slots))

    def memory(self) -> dict[str, int]:
        """Bytes by part: edges_live, edges_reserved (places without an edge), index (directories of blocks, indexes),
        vertices (with what batches keep for the next), features, attributes.
        """
        with self._lock:
            return self._store.memory()

    def block_stats(self, *, outgoing: bool = False) -> dict[str, int]:
        """Of the in-lists, or the out-lists: lists that hold edges, blocks, blocks_max of one list, edges, places."""
        with self._lock:
            return self._store.block_stats(bool(outgoing))

    def digest(self) -> int:
        """Order-free 64-bit hash of vertices, features and edges as a multiset; not of edge ids, version or layout."""
        with self._lock:
            return self._store.digest()

    # ---- writing

    def apply(self, updates: Updates) -> int:
        """Applies a batch to the graph and to everything attached to it, all or none, and returns the new version.

        Raises:  UpdateError of the kind that the first bad update deserves, naming it; then nothing has changed.
                 UsageError from inside an on_change callback. Concurrent calls wait for each other.
        """
        return self._apply(updates, None)[0]

    def compact(self) -> None:
        """Gives back the memory that deletions left. Content, ids and version stay."""
        with self._writing("compact"):
            self._store.compact()

    # ---- old edges in files

    @property
    def offloaded(self) -> offload.Offloaded:
        """What lies in files: before, count, and files with path, before and count each; docs/offload.md."""
        return self._offloaded

    def offload(self, before: int, path: str | os.PathLike[str]) -> offload.Offloaded:
        """Moves every edge with time < before out of memory, into a new Parquet file; what is then away.

        Version, digest, degrees and edge ids stay. No file is written where there is no such edge.

        Raises:  ColumnMissing without times; UsageError for a path that is taken, or while something that reads all
                 edges is attached, naming it; DataMissing without pyarrow. Then nothing has changed.
        Cost:    O(V + E) and the file.  Source: GNNFlow 4.1.
        """
        with self._writing("offload"):
            self._offloaded = offload.offload(self, before, path)
            return self._offloaded

    def reload(self, path: str | os.PathLike[str] | None = None, since: int | None = None) -> int:
        """Brings edges back from their files, with their ids, to where their times say; returns how many.

        Args:    path: of one file, wherever it lies now; without it, all files.  since: edges with time >= since only.
        Raises:  DataMissing where a file is gone; StoredStateInvalid where it is damaged or another; UsageError for a
                 file of another graph. Then nothing has changed.
        Cost:    O(log d + block_edges_max) an edge.
        """
        with self._writing("reload"):
            count, self._offloaded = offload.reload(self, path, since)
            return count

    def _check_loaded(self, where: str, away: int) -> None:
        if away:
            raise EdgeOffloaded(
                f"[{where}] expected edges in memory, got {away} with a time before {self._offloaded.before} in files; "
                "call graph.reload() first, or pass loaded_only=True"
            )

    def _need_all_edges(self, where: str) -> None:
        """Refuses a reader of whole lists where edges lie in files."""
        if self._offloaded.count:
            got = f"{self._offloaded.count} of them in files (time < {self._offloaded.before})"
            raise UsageError(
                f"[{where}] expected a graph with all edges in memory, got {got}; call graph.reload() first"
            )

    # ---- for engines and other consumers

    def _ids_follow(self, holder: HoldsIds) -> None:
        """Has a holder of slots told before they get other ids; nothing in a graph whose ids are its slots."""
        if self._ids is not None or self._typed is not None:
            self._with_ids.add(holder)

    def _attach(self, consumer: Consumer) -> None:
        """From the next batch on the consumer takes part; may be called while this thread holds _writing()."""
        with self._lock:
            if getattr(consumer, "needs_all_edges", True):
                self._need_all_edges(type(consumer).__name__)
            self._consumers.append(consumer)
            self._refresh_natives()

    def _detach(self, consumer: Consumer) -> None:
        with self._lock:
            self._consumers = [c for c in self._consumers if c is not consumer]
            self._refresh_natives()

    def _refuse_detached(self, wanted: Consumer) -> None:
        if not any(consumer is wanted for consumer in self._consumers):
            kind = type(wanted).__name__
            raise UsageError(
                f"[apply] expected an open {kind}, got one that was closed; apply to its graph, or make a new one"
            )

    def _refresh_natives(self) -> None:
        """To be called under _writing() when a consumer's native half has changed."""
        self._natives = [c.native for c in self._consumers if c.native is not None]
        self._only = self._consumers[0] if len(self._consumers) == len(self._natives) == 1 else None
        self._followers = [c.follower for c in self._consumers if c.follower is not None]

    def _apply(self, updates: Updates, wanted: Consumer | None) -> tuple[int, Any]:
        """Applies a batch; the new version, and what this consumer made of the batch.

        At batches of one update every call in here counts: the usual case goes straight through.
        """
        if type(updates) is not Updates and not isinstance(updates, Updates):
            raise UsageError(
                f"[apply] expected Updates, got {type(updates).__name__}; collect the changes in livegnn.Updates()"
            )
        with self._lock:
            if self._busy:
                self._refuse_writer("apply")
            if wanted is not None and wanted is not self._only:
                self._refuse_detached(wanted)
            unit = self._time_unit if updates._time_unit is None else self._same_unit("apply", updates._time_unit)
            version_before = self._store.version if unit != self._time_unit else None
            self._busy = True
            try:
                if self._ids is None and updates._keys is None and self._typed is None and not updates._types:
                    if self._guards:
                        self._ask_guards(updates, updates._buffer)
                    changes = self._apply_native(updates._buffer, updates)
                else:
                    changes = self._apply_named(updates)
                self._ids_version = version = self._store.version
                if wanted is not None and wanted is self._only:
                    return version, wanted._published(changes[0], version)
                return version, self._notify(changes, version, wanted)
            except BaseException:
                self._ids_version = self._store.version  # the batch may stand all the same
                raise
            finally:
                self._busy = False
                if version_before is not None and self._store.version != version_before:  # the batch stands
                    self._time_unit = unit

    def _apply_native(self, buffer: _native.UpdateBuffer, updates: Updates) -> Any:
        """The batch in slots, all or none; `updates` is what the caller gave, for the record."""
        record = self._record
        if record is not None:
            return _native.apply_batch(self._store, self._natives, self._followers, buffer, lambda: record(updates))
        if self._natives or self._followers:
            return _native.apply_batch(self._store, self._natives, self._followers, buffer)
        self._store.apply(buffer)
        return ()

    def _apply_named(self, updates: Updates) -> Any:
        """Applies updates whose ids are not slots; the id map follows only what the store has taken."""
        buffer, translation = self._translated(updates)
        if self._guards:
            self._ask_guards(updates, buffer)
        if translation is None:
            return self._apply_native(buffer, updates)
        if updates._vertex_ops and self._with_ids:
            for holder in tuple(self._with_ids):
                holder._before_ids_move()
            self._with_ids.clear()
        version = self._store.version
        try:
            return self._apply_native(buffer, updates)
        except UpdateError as error:
            hint = _ids_behind(str(error), updates, translation)
            if not hint:
                raise
            raise type(error)(f"{error} ({hint})") from error
        finally:
            if self._store.version != version:  # the batch stands, even where something attached has failed since
                self._ids_version = -1  # until the ids are those of the new version
                self._old_ids.before_commit(translation)
                translation.commit()
                self._ids_moves += bool(updates._vertex_ops)

    def _ask_guards(self, updates: Updates, buffer: _native.UpdateBuffer) -> None:
        """Tells every guard which vertices the batch adds and removes, in order; what one raises refuses the batch."""
        batch: list[VertexChange] = []
        if updates._vertex_ops:
            slots, ids, keys = buffer.ids()[0].tolist(), updates._buffer.ids()[0].tolist(), updates._keys
            for first, last, adds in updates._vertex_ops:
                names = ids[first:last] if keys is None else [keys[place] for place in ids[first:last]]
                places = range(first, last)
                batch.extend(map(VertexChange, slots[first:last], names, [adds] * len(names), places))
        for guard in self._guards:
            guard(batch)

    def _notify(self, changes: Any, version: int, wanted: Consumer | None) -> Any:
        """Tells every consumer, in order of attachment, even after one has failed; then the first failure is raised."""
        result, failure, remaining = None, None, iter(changes)
        for consumer in tuple(self._consumers):
            change = None if consumer.native is None else next(remaining)
            try:
                answer = consumer._published(change, version)
            except BaseException as error:  # the batch stands; the others must still hear of it
                if failure is None or not isinstance(error, Exception):  # Ctrl-C goes first
                    failure = error
                continue
            if consumer is wanted:
                result = answer
        if failure is not None:
            raise failure
        return result

    def _edge_time(self, where: str, name: str, value: object) -> int:
        number = checks.edge_time(where, name, value)
        checks.same_unit(where, name, self._time_unit, checks.time_unit(value))
        return number

    def _same_unit(self, where: str, unit: str | None) -> str | None:
        return checks.same_unit(where, "times", self._time_unit, unit)

    def _translated(self, updates: Updates) -> tuple[_native.UpdateBuffer, Translation | TypedTranslation | None]:
        """The batch in slots, as a buffer of its own, and what it does to the id map; commit that after success."""
        if self._typed is not None:
            return self._translated_types(updates, self._typed)
        if updates._types:
            no_type_names(updates._buffer.kinds(), updates._buffer.types(), list(updates._types))
        u, v = updates._buffer.ids()
        if self._ids is None:
            if updates._keys and u.size and int(u.max()) >= 0:
                got = f"string ids ({updates._keys[0]!r})"
                raise UsageError(f"[apply] expected updates with int64 ids, got {got}; make the graph with ids=")
            return updates._buffer, None
        slots_u, slots_v, translation = self._ids.translate(u, v, updates._keys, updates._vertex_ops)
        buffer = _native.UpdateBuffer()
        buffer.extend(updates._buffer)
        buffer.set_ids(slots_u, slots_v)
        return buffer, translation

    def _translated_types(self, updates: Updates, typed: TypedIds) -> tuple[_native.UpdateBuffer, TypedTranslation]:
        given = updates._buffer
        u, v = given.ids()
        batch = Batch(u, v, given.kinds(), given.types(), list(updates._types), updates._keys, updates._vertex_ops)
        slots_u, slots_v, codes, translation = typed.translate(batch)
        buffer = _native.UpdateBuffer()
        buffer.extend(given)
        buffer.set_ids(slots_u, slots_v)
        buffer.set_types(codes)
        return buffer, translation

    @contextmanager
    def _writing(self, where: str) -> Iterator[None]:
        """Holds the writer's place: other threads' writers and readers wait; a callback of this thread is refused."""
        with self._lock:
            if self._busy:
                self._refuse_writer(where)
            self._busy = True
            try:
                yield
            finally:
                self._busy = False

    def _refuse_writer(self, where: str) -> None:
        raise UsageError(
            f"[{where}] expected a graph with no batch under way in this thread, got a call from inside one "
            "(an on_change callback or a what_if block); do it after that has ended"
        )

    # ---- ids

    def _slots(self, where: str, ids: object, vertex_type: VertexType | None = None) -> Int64Array:
        if self._typed is not None:
            return self._typed.slots(where, ids, vertex_type)
        no_vertex_type(where, vertex_type)
        return slots_or_ids(where, "ids", ids, self._ids)

    def _slot(self, where: str, vertex: object, vertex_type: VertexType | None = None) -> int:
        if self._typed is not None:
            return int(self._typed.slots(where, [self._typed.one(where, vertex)], vertex_type)[0])
        no_vertex_type(where, vertex_type)
        if self._ids is None:
            return checks.vertex_id(where, "vertex", vertex)
        slot = self._ids.index.get(self._ids.one(where, vertex))
        if slot is None:
            raise VertexUnknown(f"[{where}] expected the id of a live vertex, got {vertex!r}; add the vertex first")
        return slot

    def _live(self, where: str, vertex_type: VertexType | None) -> Int64Array:
        """Slots of the live vertices, of one type where there are types."""
        if self._typed is not None:
            return np.flatnonzero(self._store.vertex_types() == self._typed.schema.vertex_code(where, vertex_type))
        no_vertex_type(where, vertex_type)
        return np.flatnonzero(self._store.live())

    def _check_slots(self, where: str, slots: Int64Array, vertex_type: VertexType) -> None:
        """Refuses slots of another type than the one named."""
        if self._typed is None:
            no_vertex_type(where, vertex_type)
            return
        schema = self._typed.schema
        code, types = schema.vertex_code(where, vertex_type), self._store.slot_types(slots)
        if (types != code).any():
            row = int(np.argmax(types != code))
            got = f"{slots[row]} of type {schema.vertex_types[types[row]]!r} at row {row}"
            raise VertexUnknown(
                f"[{where}] expected slots of vertices of type {schema.vertex_types[code]!r}, got {got}; name its type"
            )

    def _external(self, slots: Int64Array) -> AnyArray:
        if self._typed is not None:
            return self._typed.external("to_external", slots)
        return slots if self._ids is None else self._ids.external("to_external", slots)

    def _named(self, key: str, found: dict[str, AnyArray]) -> dict[str, AnyArray]:
        if self._typed is not None:
            found[f"{key}_type"] = self._store.slot_types(found[key])
        if self._ids is not None or self._typed is not None:
            found[key] = self._external(found[key])
        return found

    # ---- saving

    def _save_arrays(self) -> dict[str, AnyArray]:
        """The whole graph as arrays without objects."""
        with self._lock:
            return saved.to_arrays(self)

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """The graph that _save_arrays() described. Raises: StoredStateInvalid."""
        graph = cls.__new__(cls)
        saved.restore(graph, arrays)
        return graph


def _type_options(schema: Schema) -> dict[str, Any]:
    src, dst = schema.ends
    return {"type_widths": list(schema.widths), "src_types": src.tolist(), "dst_types": dst.tolist()}


def _ids_behind(message: str, updates: Updates, translation: Translation | TypedTranslation) -> str:
    """The user's ids for the slots that a native message speaks of, found by the update or the vertex that it names."""
    found = re.search(r"\bupdate (\d+)", message)
    if found is not None and int(found[1]) < len(updates):
        keys, ids = updates._keys, [int(x[int(found[1])]) for x in updates._buffer.ids()]
        names = [repr(x if keys is None else keys[x]) for x in ids if x >= 0]
        if isinstance(translation, TypedTranslation):
            names = [f"{kind} {name}" for kind, name in zip(translation.kinds_of(int(found[1])), names, strict=True)]
        return f"by the graph's ids: {' -> '.join(names)}" if names else ""
    found = re.search(r"\b(vertex) (\d+)|\bedge (\d+) -> (\d+)", message)
    slots = [] if found is None else [int(slot) for slot in found.groups()[1:] if slot is not None]
    found_names = [translation.name(slot) for slot in slots]
    if not found_names or None in found_names:
        return ""
    typed = isinstance(translation, TypedTranslation)  # whose names say the type too
    shown = [f"{name}" if typed else repr(name) for name in found_names]
    return f"{'vertex' if found and found[1] else 'edge'} {' -> '.join(shown)} by the graph's ids"
