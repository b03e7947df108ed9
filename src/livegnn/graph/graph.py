"""Graph: the dynamic graph store, its ids, its one writer, and the consumers that follow it.

Locking. One re-entrant lock is held while a batch is applied and while the store is read, since a read must see whole
versions. `_busy` marks a writer at work, so that a callback, which runs inside the applying thread and therefore passes
the lock, may read but not write. Engines publish their own rows and are not read under this lock.

Applying. ids are translated (only where the graph has ids of its own) -> one native call applies the batch to the store
and to every attached engine, all or none -> the id map follows -> each consumer learns of the version, in order of
attachment. Where the graph is attached to a log, `_record` writes the batch down inside that native call, when nothing
can refuse it any more and no reader has seen it yet.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from livegnn import _native
from livegnn.errors import InvariantBroken, LiveGnnError, StoredStateInvalid, UpdateError, UsageError, VertexUnknown
from livegnn.graph import checks, load
from livegnn.graph.checks import AnyArray, BoolArray, Float32Array, Int64Array
from livegnn.graph.ids import IdMap, Translation, slots_or_ids
from livegnn.graph.updates import Updates


class Consumer(Protocol):
    """Whatever follows a graph: an engine, a pre-sampler, a cache."""

    @property
    def native(self) -> Any:
        """The native engine that takes part in the batch itself, or None."""

    @property
    def follower(self) -> Any:
        """The native follower that may refuse a batch and keeps up with it, or None."""

    def _published(self, change: Any, version: int) -> Any:
        """Called in the applying thread after version was published; the result is what consumer.apply returns."""


class VertexChange(NamedTuple):
    """One vertex that a batch adds or removes: its slot, its id, and the place of the update in the batch."""

    slot: int
    id: Any
    adds: bool
    update: int


class Graph:
    """A directed graph with features that changes by batches of updates.

    graph[k + 1] = batch(graph[k]),  k = version;  messages flow src -> dst

    Args:    features: (V, F) float32.  src, dst: (E,) ids.  weight: (E,) float32.  time: (E,) int64, the user's unit.
             edge_type: (E,) int32.  edge_attr: (E, A) float32.  ids: (V,) int64 or strings, the vertices' own names.
             undirected: each edge is stored both ways under one edge id.  simple: a second edge u -> v is refused.
    Raises:  VertexUnknown, ValueInvalid, DtypeInvalid, WidthMismatch, EdgeDuplicate, naming the row; ModelUnsupported
             for the typed form (vertex_type, dicts).
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

    def __init__(
        self,
        features: object,
        src: object,
        dst: object,
        *,
        weight: object = None,
        time: object = None,
        edge_type: object = None,
        edge_attr: object = None,
        vertex_type: object = None,
        ids: object = None,
        undirected: bool = False,
        simple: bool = False,
    ) -> None:
        columns = {"weight": weight, "time": time, "edge_type": edge_type, "edge_attr": edge_attr}
        arrays = load.check_arrays(features, src, dst, **columns, vertex_type=vertex_type, ids=ids, by_row=False)
        self._build(arrays, undirected, simple)

    def _build(self, arrays: load.GraphArrays, undirected: bool, simple: bool) -> None:
        options: dict[str, Any] = {
            "feature_width": arrays.features.shape[1],
            "has_weight": arrays.weight is not None,
            "has_time": arrays.time is not None,
            "has_type": arrays.edge_type is not None,
            "attr_width": 0 if arrays.edge_attr is None else arrays.edge_attr.shape[1],
            "undirected": bool(undirected),
            "simple": bool(simple),
        }
        self._set_up(options, arrays.ids)
        columns = (arrays.weight, arrays.time, arrays.edge_type, arrays.edge_attr)
        self._store.load(arrays.features, arrays.src, arrays.dst, *columns, core_count())

    def _set_up(self, options: dict[str, Any], ids: IdMap | None) -> None:
        self._options = options
        self._store = _native.GraphStore(**options, block_edges_max=self._block_edges_max)
        self._store.set_apply_threads(core_count())
        self._ids = ids
        self._lock = threading.RLock()
        self._busy = False
        self._supposed = False  # inside a what_if block: the store holds what is only supposed
        self._consumers: list[Consumer] = []
        self._natives: list[Any] = []
        self._followers: list[Any] = []
        self._guards: list[Callable[[list[VertexChange]], None]] = []  # hear of a batch first, and may refuse it
        self._record: Callable[[Updates], object] | None = None  # hears last before publication; raising takes it back

    @classmethod
    def from_pyg(cls, data: Any, *, ids: object = None, simple: bool = False) -> Self:
        """The graph of a torch_geometric.data.Data.

        x -> features, edge_index -> src, dst, edge_weight or 1-D edge_attr -> weight, 2-D edge_attr -> edge_attr,
        edge_type -> edge_type, edge_time (or time, one an edge) -> time. Other attributes (y, masks) are not read. With
        ids=, edge_index still counts rows of x.

        Raises:  ColumnMissing without x or edge_index; ModelUnsupported for HeteroData; else as Graph.
        """
        graph = cls.__new__(cls)
        arrays = load.check_arrays(**load.pyg_arrays(data), vertex_type=None, ids=ids, by_row=True)
        graph._build(arrays, undirected=False, simple=simple)
        return graph

    # ---- what it is

    @property
    def version(self) -> int:
        """Number of batches applied."""
        return self._store.version

    @property
    def vertex_count(self) -> int:
        """Live vertices."""
        return self._store.vertex_count

    @property
    def slot_count(self) -> int:
        """Slots that vertices take inside, some perhaps free; without ids= a vertex's id is its slot."""
        return self._store.slot_count

    @property
    def edge_count(self) -> int:
        """Live edges; an undirected edge counts once."""
        return self._store.edge_count

    @property
    def feature_width(self) -> int:
        """F, the width of a feature row."""
        return int(self._options["feature_width"])

    @property
    def attr_width(self) -> int:
        """A, the width of an edge's attributes; 0 where edges have none."""
        return int(self._options["attr_width"])

    @property
    def has_weight(self) -> bool:
        """Whether edges have weights."""
        return bool(self._options["has_weight"])

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
        """Whether vertices have ids of their own (ids=)."""
        return self._ids is not None

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

    def features(self, ids: object = None) -> Float32Array:
        """Features, (k, F) float32, row i for ids[i]; without ids of every vertex, in the order of vertices().

        Raises:  VertexUnknown.
        """
        with self._lock:
            slots = np.flatnonzero(self._store.live()) if ids is None else self._slots("features", ids)
            return self._store.features(slots)

    def vertices(self) -> AnyArray:
        """Ids of the live vertices, (vertex_count,), in the order of their slots."""
        with self._lock:
            return self._external(np.flatnonzero(self._store.live()))

    def edges(self) -> dict[str, AnyArray]:
        """All edges in order of id: src, dst, id, and weight, time, type, attr where there; undirected ones once."""
        with self._lock:
            found = self._store.edges()
            if self._ids is not None:
                found["src"], found["dst"] = self._external(found["src"]), self._external(found["dst"])
            return found

    def in_neighbours(self, v: object) -> dict[str, AnyArray]:
        """The edges into v by (time, id): src, id, and weight, time, type where there. Raises: VertexUnknown."""
        with self._lock:
            return self._named("src", self._store.in_neighbours(self._slot("in_neighbours", v)))

    def out_neighbours(self, u: object) -> dict[str, AnyArray]:
        """The edges out of u by (time, id): dst, id, and weight, time, type where there. Raises: VertexUnknown."""
        with self._lock:
            return self._named("dst", self._store.out_neighbours(self._slot("out_neighbours", u)))

    def in_degree(self, ids: object) -> Int64Array:
        """Number of edges into each vertex, (k,) int64, parallel ones and self-loops counted. Raises: VertexUnknown."""
        with self._lock:
            return self._store.in_degree(self._slots("in_degree", ids)).astype(np.int64, copy=False)

    def out_degree(self, ids: object) -> Int64Array:
        """Number of edges out of each vertex, (k,) int64. Raises: VertexUnknown."""
        with self._lock:
            return self._store.out_degree(self._slots("out_degree", ids)).astype(np.int64, copy=False)

    def is_live(self, ids: object) -> BoolArray:
        """Which of the ids are vertices of this version, (k,) bool."""
        with self._lock:
            if self._ids is not None:
                index = self._ids.index
                names = self._ids.listed("is_live", "ids", ids)
                return np.fromiter((name in index for name in names), np.bool_, len(names))
            slots, live = checks.id_array("is_live", "ids", ids), self._store.live()
            inside = slots < len(live)
            return inside & live[np.where(inside, slots, 0)] if len(live) else inside

    def __contains__(self, vertex: object) -> bool:
        try:
            with self._lock:
                if self._ids is not None:
                    return self._ids.one("in", vertex) in self._ids.index
                self._store.in_degree(np.array([checks.vertex_id("in", "vertex", vertex)]))
        except LiveGnnError:
            return False
        return True

    def to_slots(self, ids: object) -> Int64Array:
        """(k,) int64 slots of vertex ids; the ids themselves in a graph without ids=. Raises: VertexUnknown."""
        with self._lock:
            return self._slots("to_slots", ids)

    def to_external(self, slots: object) -> AnyArray:
        """(k,) ids of slots: int64, or strings (dtype object); without ids= the slots. Raises: VertexUnknown."""
        with self._lock:
            return self._external(checks.id_array("to_external", "slots", slots))

    def memory(self) -> dict[str, int]:
        """Bytes by part: edges_live, edges_reserved, index, vertices, features, attributes."""
        with self._lock:
            return self._store.memory()

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

    # ---- for engines and other consumers

    def _attach(self, consumer: Consumer) -> None:
        """From the next batch on the consumer takes part; may be called while this thread holds _writing()."""
        with self._lock:
            self._consumers.append(consumer)
            self._refresh_natives()

    def _detach(self, consumer: Consumer) -> None:
        with self._lock:
            self._consumers = [c for c in self._consumers if c is not consumer]
            self._refresh_natives()

    def _refresh_natives(self) -> None:
        """To be called under _writing() when a consumer's native half has changed."""
        self._natives = [c.native for c in self._consumers if c.native is not None]
        self._followers = [c.follower for c in self._consumers if c.follower is not None]

    def _apply_for(self, consumer: Consumer, updates: Updates) -> Any:
        """Applies a batch and returns what this consumer made of it."""
        return self._apply(updates, consumer)[1]

    def _apply(self, updates: Updates, wanted: Consumer | None) -> tuple[int, Any]:
        if type(updates) is not Updates and not isinstance(updates, Updates):
            raise UsageError(
                f"[apply] expected Updates, got {type(updates).__name__}; collect the changes in livegnn.Updates()"
            )
        with self._lock:
            if self._busy:
                self._refuse_writer("apply")
            self._busy = True
            try:
                if self._ids is None and updates._keys is None:
                    if self._guards:
                        self._ask_guards(updates, updates._buffer)
                    changes = self._apply_native(updates._buffer, updates)
                else:
                    changes = self._apply_named(updates)
                version = self._store.version
                if self._ids is not None:
                    self._ids.version = version
                return version, self._notify(changes, version, wanted) if self._consumers else None
            finally:
                self._busy = False

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
        try:
            changes = self._apply_native(buffer, updates)
        except UpdateError as error:
            hint = _ids_behind(str(error), updates, translation)
            if not hint:
                raise
            raise type(error)(f"{error} ({hint})") from error
        translation.commit()
        return changes

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
            except Exception as error:  # the batch stands; the others must still hear of it
                failure = failure or error
                continue
            if consumer is wanted:
                result = answer
        if failure is not None:
            raise failure
        return result

    def _translated(self, updates: Updates) -> tuple[_native.UpdateBuffer, Translation | None]:
        """The batch in slots, as a buffer of its own, and what it does to the id map; commit that after success."""
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

    def _slots(self, where: str, ids: object) -> Int64Array:
        return slots_or_ids(where, "ids", ids, self._ids)

    def _slot(self, where: str, vertex: object) -> int:
        if self._ids is None:
            return checks.vertex_id(where, "vertex", vertex)
        slot = self._ids.index.get(self._ids.one(where, vertex))
        if slot is None:
            raise VertexUnknown(f"[{where}] expected the id of a live vertex, got {vertex!r}; add the vertex first")
        return slot

    def _external(self, slots: Int64Array) -> AnyArray:
        return slots if self._ids is None else self._ids.external("to_external", slots)

    def _named(self, key: str, found: dict[str, AnyArray]) -> dict[str, AnyArray]:
        if self._ids is not None:
            found[key] = self._external(found[key])
        return found

    # ---- saving

    def _save_arrays(self) -> dict[str, AnyArray]:
        """The whole graph as arrays without objects: options, the store's own arrays, and the id map."""
        with self._lock:
            arrays: dict[str, AnyArray] = {f"store.{name}": array for name, array in self._store.to_arrays().items()}
            if self._ids is not None:
                arrays.update({f"ids.{name}": array for name, array in self._ids.to_arrays().items()})
            for name, value in self._options.items():
                arrays[f"option.{name}"] = np.array(int(value), np.int64)
            return arrays

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """The graph that _save_arrays() described. Raises: StoredStateInvalid."""
        parts: dict[str, dict[str, AnyArray]] = {"store": {}, "ids": {}, "option": {}}
        for key, array in arrays.items():
            part, _, name = key.partition(".")
            if part in parts:
                parts[part][name] = array
        graph = cls.__new__(cls)
        try:
            options: dict[str, Any] = {name: int(parts["option"][name]) for name in _OPTIONS}
            for name in _FLAGS:
                options[name] = bool(options[name])
            graph._set_up(options, IdMap.from_arrays(parts["ids"]) if parts["ids"] else None)
            graph._store.from_arrays(parts["store"])
            graph._store.check_invariants()
            if graph._ids is not None:
                graph._ids.version = graph._store.version
        except (KeyError, ValueError, TypeError, RuntimeError, InvariantBroken) as cause:
            if isinstance(cause, StoredStateInvalid):
                raise
            raise StoredStateInvalid(
                f"[load] expected a saved graph, got one that cannot be read ({cause}); save it again"
            ) from cause
        if graph._ids is not None and len(graph._ids.names) != graph._store.slot_count:
            slots, got = graph._store.slot_count, len(graph._ids.names)
            raise StoredStateInvalid(f"[load] expected ids for {slots} slots, got {got}; save the graph again")
        return graph


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_FLAGS = ("has_weight", "has_time", "has_type", "undirected", "simple")
_OPTIONS = ("feature_width", "attr_width", *_FLAGS)


def _ids_behind(message: str, updates: Updates, translation: Translation) -> str:
    """The user's ids for the slots that a native message speaks of, found by the update or the vertex that it names."""
    found = re.search(r"\bupdate (\d+)", message)
    if found is not None and int(found[1]) < len(updates):
        keys, ids = updates._keys, [int(x[int(found[1])]) for x in updates._buffer.ids()]
        names = [repr(x if keys is None else keys[x]) for x in ids if x >= 0]
        return f"by the graph's ids: {' -> '.join(names)}" if names else ""
    found = re.search(r"\bvertex (\d+)", message)
    name = None if found is None else translation.name(int(found[1]))
    return "" if name is None else f"vertex {name!r} by the graph's ids"
