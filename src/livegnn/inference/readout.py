"""Readouts: rows of a whole graph, or of groups of its vertices, pooled from an engine's outputs and kept live.

A readout keeps a copy of the output rows, by slot, since a changed row's old bits must leave the pool. After each batch
it reads the rows that changed, and moves them.

Order of things. Before a batch is applied, `_before` works out which slots it adds and removes, and refuses it where a
new vertex has no group; nothing of that counts until the batch is in. After the engine has published, and before any
on_change callback, `_after` follows. Both run in the applying thread under the graph's lock. Readers take the readout's
own lock, for the copy of the pooled rows only; `_after` holds it while it changes them.

An engine on demand computes rows when they are read. `_after` then follows the members alone, and a new one has a row
of zeros; a reader first completes the engine, and moves the rows that were published since it last looked.

Invariant: the state is a function of the engine's output rows and of the groups. After an interruption of `_after`
(Ctrl-C) it is built again: `_needs_rebuild` says that it must be, `version` which one it stands for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import (
    ColumnMissing,
    InvariantBroken,
    ModelMismatch,
    ModelUnsupported,
    RangeOverflow,
    StateMismatch,
    UsageError,
    ValueInvalid,
)
from livegnn.graph.consumers import VertexChange
from livegnn.graph.graph import Graph
from livegnn.graph.updates import VertexType
from livegnn.inference import hetero as over_types
from livegnn.inference.engine import Engine
from livegnn.inference.groups import GroupNames, PendingMembers, group_array
from livegnn.inference.pools import KINDS, Joined, Moves, Pool
from livegnn.inference.predict import Head, Rows, headed, predictions
from livegnn.models import edges, ir
from livegnn.models.graph_level import GraphLevel, PoolKind, PoolPart
from livegnn.models.model import Model
from livegnn.models.pyg.entry import graph_level_from_pyg

if TYPE_CHECKING:
    import torch

Int64 = NDArray[np.int64]
GroupOf: TypeAlias = Callable[[Any], Any]

_BUILD_ROWS = 16384
_log = logging.getLogger("livegnn")


class Readout:
    """The live pool of an engine's output rows: PyG's global_add_pool, global_mean_pool, global_max_pool.

    r[g] = head(pool of y[v] over the vertices v of group g);  an empty group pools to 0

    Args:    kind: "add", "mean" or "max"; or several (kind, start, stop), each of some columns of y, whose pools stand
             side by side (GraphLevel.pools).
             groups: None (one group, 0, of all vertices); (vertex_count,) integers of at least 0, row i for
             graph.vertices()[i]; or a function of an array of vertex ids that gives as many integers, called now and
             with the new vertices of each batch before it is applied.
             head: row-local, after the pool: a Model without edges, or a function of (k, width) rows.
             vertex_type: whose rows are pooled, where vertices have types; groups and ids are those of that type.
    Raises:  ColumnMissing by apply, before anything changes, where a batch adds a vertex without a group: with an
             array, give it by assign() first. ModelMismatch for a head that reads edges or another width, for columns
             that the engine's rows do not have, and for a type that the model has no output for.
    Exactness: add is the exact sum of the rows, rounded once; mean divides that by the count; max is exact. All are
             functions of the rows alone, so bit-equal to a run from scratch; nothing overflows.
    Cost:    of a batch: its changed rows, and for max see docs/readouts.md. A copy of the output rows is kept. On
             demand, a batch costs its new and removed vertices, and a read completes the engine first.

    >>> import numpy as np, livegnn as lg
    >>> graph = lg.Graph(np.eye(3, dtype=np.float32), [0, 1], [1, 2])
    >>> engine = lg.Engine(lg.Model([lg.layers.LG()], input_width=3), graph)
    >>> readout = lg.Readout(engine, "add", groups=[7, 7, 9])
    >>> readout.rows([7, 9, 5]).shape
    (3, 3)
    """

    def __init__(
        self,
        engine: Engine,
        kind: PoolKind | Sequence[PoolPart] = "add",
        groups: object = None,
        *,
        head: Model | Head | None = None,
        vertex_type: VertexType | None = None,
    ) -> None:
        if not isinstance(engine, Engine):
            raise UsageError(f"[Readout] expected a livegnn Engine, got {type(engine).__name__}; pass one")
        self._parts = None if isinstance(kind, str) and kind in KINDS else _listed_parts(kind)
        self.engine, self.kind, self.head, self.vertex_type = engine, kind, head, vertex_type
        self._code = engine.graph.host.schema.vertex_code("Readout", vertex_type)
        self._width = self._width_in(engine.model)
        self._suits(engine.model)
        self._group_of: GroupOf | None = groups if callable(groups) else None
        self._one_group = groups is None
        self._assigned: dict[object, int] = {}  # by id, of vertices to come
        self._pending: PendingMembers | None = None
        self._lock = threading.Lock()
        self._needs_rebuild = False
        self._seen = -1  # on demand: the place of the next row that the engine will have published
        self._closed = False
        graph = engine.graph
        if engine._closed:
            raise UsageError("[Readout] expected an open engine, got one that was closed; make a new engine")
        with graph.host.writing("Readout"):
            slots = self._members()
            found = self._groups_at_start(groups, graph.host.ids.external(slots))
            self._names = GroupNames()
            self._group = np.full(graph.slot_count, -1, np.int64)  # own number by slot, -1 where free
            self._group[slots] = self._names.numbered(found)
            self._build()
            engine._follow(self)

    @classmethod
    def from_pyg(
        cls, module: torch.nn.Module | GraphLevel, graph: Graph, groups: object = None, **engine: Any
    ) -> Readout:
        """The live rows of a PyG module with one row per graph, such as a classifier of graphs.

        r[g] = module(x, edge_index, batch)[g],  groups being the batch

        Args:    module: as graph_level_from_pyg takes it, or its result, where that needs options.
                 groups: as Readout's: an array, a function, or None for one graph.
                 engine: options of the Engine that is made for it, `readout.engine`.
        Raises:  as graph_level_from_pyg, Engine and Readout; then the graph is as it was.
        """
        if not isinstance(graph, Graph):
            raise UsageError(f"[Readout] expected a livegnn Graph, got {type(graph).__name__}; pass one")
        if isinstance(module, GraphLevel):
            parts = module
        elif graph.vertex_types is None:
            parts = graph_level_from_pyg(module, input_width=graph.feature_width)
        else:
            raise ModelUnsupported(
                f"[Readout] expected a graph with one kind of vertex, got vertex types {graph.vertex_types}, whose "
                "rows differ in width; make an Engine and pool engine.embeddings(ids, vertex_type=...)"
            )
        made = Engine(parts.model, graph, **engine)
        try:
            return cls(made, parts.pools, groups, head=parts.head)
        except BaseException:
            made.close()
            raise

    def _groups_at_start(self, groups: object, ids: Any) -> list[int]:
        if groups is None:
            return [0] * len(ids)
        if callable(groups):
            return self._asked("Readout", ids)
        return group_array("Readout", groups, len(ids), "vertices()")

    # ---- reading (any thread)

    def rows(self, group_ids: object = None) -> Rows:
        """Pooled rows, after the head where there is one; (k, d) float32, all of one version.

        group_ids: (k,) integers; one without vertices gives the head of 0, as in PyG. Default: those of `group_ids`.
        """
        pooled = self.pooled(group_ids)
        if self.head is None:
            return pooled
        if isinstance(self.head, Model):
            return headed(self.head.output, pooled)
        return np.asarray(self.head(pooled), np.float32)

    def pooled(self, group_ids: object = None) -> Rows:
        """Rows before the head, (k, width) float32."""
        wanted = None if group_ids is None else group_array("rows", group_ids, None, "")
        with self._whole():
            names = self._present() if wanted is None else wanted
            numbers = np.fromiter((self._names.index.get(name, -1) for name in names), np.int64, len(names))
            found = numbers >= 0
            parts = self._parts_of(self._rows.shape[1])
            rows = self._pool.read(numbers[found])
            start = 0
            for kind, first, last in parts:
                if kind == "mean":
                    rows[:, start : start + last - first] /= self._names.counts[numbers[found]][:, None]
                start += last - first
            result = np.zeros((len(names), start))
            result[found] = rows
        with np.errstate(over="ignore"):  # beyond float32: infinity, as in PyG
            return result.astype(np.float32)

    def predict(self, group_ids: object = None, head: Head | None = None) -> NDArray[Any]:
        """As Engine.predict, of rows(group_ids): the class with the largest value, or for one column its sigmoid."""
        return predictions(self.rows(group_ids), head)

    @property
    def group_ids(self) -> Int64:
        """Groups that have vertices, (k,) int64 ascending; [0] with groups=None."""
        with self._whole(rows=False):
            return np.array(self._present(), np.int64)

    @property
    def version(self) -> int:
        """The version of the graph that rows() stands for."""
        with self._whole(rows=False):
            return self._version

    def state_bytes(self) -> dict[str, int]:
        """Bytes of state by part: rows (the copy), groups, pool."""
        with self._whole(rows=False):
            groups = self._group.nbytes + self._names.counts.nbytes
            return {"rows": self._rows.nbytes, "groups": groups, "pool": self._pool.bytes()}

    def _present(self) -> list[int]:
        return [0] if self._one_group else sorted(self._names.index)

    # ---- writing

    def assign(self, ids: object, groups: object) -> None:
        """Gives vertices their groups, row by row: those of the graph move now, others when a batch adds them.

        A group that waits for its vertex is taken up by the batch that adds it. A vertex that is removed forgets its
        own and needs one to come back, but for one that the same batch adds again: that stays where it was.

        Raises:  UsageError with groups=None or a function, and inside a callback; WidthMismatch, ValueInvalid,
                 DtypeInvalid. Then nothing has changed.
        """
        if self._one_group or self._group_of is not None:
            made = "groups=None" if self._one_group else "a function for groups="
            raise UsageError(
                f"[assign] expected a readout made with an array of groups, got one made with {made}; make another"
            )
        if self._closed:
            raise UsageError("[assign] expected an open readout, got one that was closed; make another")
        graph = self.engine.graph
        with graph.host.writing("assign"):
            self._repair()
            names: list[Any] = graph.host.ids.listed("assign", "ids", ids).tolist()
            found = group_array("assign", groups, len(names), "ids")
            live = graph.is_live(ids, vertex_type=self.vertex_type) if names else np.zeros(0, np.bool_)
            last = dict(zip(names, range(len(names)), strict=True))  # of an id given twice, the later row counts
            for row in last.values():
                if not live[row]:
                    self._assigned[names[row]] = found[row]
            moved = [row for row in last.values() if live[row]]
            if moved:
                slots = graph.host.ids.slots("assign", [names[row] for row in moved], self.vertex_type)
                self._move(slots, [found[row] for row in moved], self._rows[slots], graph.version)

    def close(self) -> None:
        """Leaves the engine; the last rows stay readable."""
        with self.engine.graph.host.lock:
            if not self._closed:
                try:
                    self._catch_up()
                except RangeOverflow as error:
                    _log.warning("[close] pools stay as they were before the batches that are pending: %s", error)
            self.engine._unfollow(self)
            self._closed = True

    # ---- audits

    def verify(self) -> None:
        """Compares the live state with one computed from scratch, from a run of the model from scratch if it is exact.

        Raises: StateMismatch naming the group and what differs.
        """
        engine = self.engine
        if self._closed:
            raise UsageError("[verify] expected an open readout, got one that was closed; verify before closing it")
        with engine.graph.host.lock:
            self._catch_up()
            slots = self._members()
            if engine.strategy != "sampled":
                fresh = over_types.cut(engine.recompute()[slots], self._width_in(engine.model))
            else:
                fresh = self._read(slots)
            _, pool = _built(self._parts_of(fresh.shape[1]), slots, self._group[slots], fresh, len(self._group))
            names = self._present()
            numbers = np.fromiter((self._names.index.get(name, -1) for name in names), np.int64, len(names))
            numbers = numbers[numbers >= 0]
            held, made = self._pool.state(numbers), pool.state(numbers)
            wrong = (held != made).any(axis=tuple(range(1, held.ndim)))
            counts = np.bincount(self._group[slots], minlength=len(self._names.counts))
            wrong |= counts[numbers] != self._names.counts[numbers]
            if wrong.any():
                group = names[int(np.argmax(wrong))]
                raise StateMismatch(
                    f"[verify] expected the {self._label()} of group {group} to equal one from scratch at version "
                    f"{self._version}, got another; make the readout again"
                )

    # ---- following the engine (the applying thread, under the graph's lock)

    def _before(self, batch: list[VertexChange]) -> None:
        """Works out who comes and goes. Raises: ColumnMissing where a new vertex has no group."""
        self._repair()
        graph = self.engine.graph
        batch = [change for change in batch if change.code == self._code]
        last = {change.slot: change for change in batch}
        new = [change for change in last.values() if change.adds]
        removed = [change.slot for change in batch if not change.adds]
        if self._one_group:
            groups = [0] * len(new)
        elif self._group_of is not None:
            kind = object if graph.host.ids.text else np.int64
            groups = self._asked("apply", np.array([change.id for change in new], kind)) if new else []
        else:
            groups = [self._waiting(change) for change in new]
        added = dict(zip((change.slot for change in new), groups, strict=True))
        names = [change.id for change in new]
        self._pending = PendingMembers(graph.version + 1, [slot for slot in removed if slot not in added], added, names)

    def _waiting(self, change: VertexChange) -> int:
        group = self._assigned.get(change.id)
        graph = self.engine.graph
        if group is None:
            slot = int(graph.host.ids.find("apply", [change.id], self.vertex_type)[0])
            group = None if slot < 0 else self._names.names[int(self._group[slot])]  # removed further up in this batch
        if group is None:
            raise ColumnMissing(
                f"[apply, update {change.update}] expected a group for new vertex {change.id!r}, which a readout pools "
                f"by group, got none; call readout.assign([{change.id!r}], [group]) first"
            )
        return group

    def _after(self, changed: Int64, version: int) -> None:
        """Follows a batch: changed are the slots of live vertices with other output rows."""
        pending = self._pending
        if self._needs_rebuild or pending is None or pending.version != version or self._version != version - 1:
            self._repair()
            return
        added = np.fromiter(pending.added, np.int64, len(pending.added))
        live = np.union1d(self._of_type(changed), added) if self.engine.is_eager else added
        removed = np.setdiff1d(np.array(pending.removed, np.int64), live)
        slots = np.concatenate([live, removed])
        new = np.zeros((len(slots), self._rows.shape[1]), np.float32)
        if self.engine.is_eager:
            new[: len(live)] = self._read(live)
        self._move(slots, None, new, version)

    def _suits(self, model: Model) -> None:
        """Raises: ModelMismatch if pools or head do not take that model's rows."""
        width = self._width_in(model)
        if self._parts is not None and self.head is not None and width != self._width:
            raise ModelMismatch(
                f"[Readout] expected rows of width {self._width}, in which the pools name columns, got {width}; "
                "make another readout for it"
            )
        last = max((stop for _, _, stop in self._parts or ()), default=0)
        if last > width:
            raise ModelMismatch(
                f"[Readout] expected rows with the {last} columns that are pooled, got a model with {width}; pass the "
                "model that the pools were made for"
            )
        _check_head(self.head, sum(stop - start for _, start, stop in self._parts_of(width)))

    def _width_in(self, model: Model) -> int:
        """The width of the rows that are pooled. Raises: ModelMismatch."""
        return over_types.width_of(model, self.engine.graph, "Readout", self.vertex_type)

    def _members(self) -> Int64:
        """Slots of the live vertices of our type."""
        return self.engine.graph.host.live_slots("Readout", self.vertex_type)

    def _of_type(self, slots: Int64) -> Int64:
        """Those of live slots that are of our type."""
        host = self.engine.graph.host
        return slots[host.store.slot_types(slots) == self._code] if host.schema.has_types else slots

    def _read(self, slots: Int64) -> Rows:
        """The published rows of live vertices of our type."""
        return over_types.cut(self.engine.native.read(slots), self._width_in(self.engine.model))

    def _parts_of(self, width: int) -> Sequence[tuple[str, int, int]]:
        """What is pooled of rows of that width."""
        return [(str(self.kind), 0, width)] if self._parts is None else self._parts

    def _label(self) -> str:
        return str(self.kind) if self._parts is None else ", ".join(kind for kind, _, _ in self._parts)

    def _rebuilt(self) -> None:
        """The engine's rows were made anew (swap, rescale)."""
        self._needs_rebuild = True
        self._repair()

    def _catch_up(self) -> None:
        """Rows and members as they are now. To be called under the graph's lock."""
        self._repair()
        engine = self.engine
        if engine.is_eager or self._closed:
            return
        engine.complete()
        changed = engine.native.changed_since(self._seen)
        if changed is None:  # more rows than are noted
            self._rebuilt()
            return
        seen = engine.native.note_changes()
        slots = changed[self._group[changed] >= 0]
        self._move(slots, None, self._read(slots), self._version)
        self._seen = seen

    def _repair(self) -> None:
        """Builds the state again if something interrupted us. To be called under the graph's lock."""
        if self._needs_rebuild or self._version != self.engine.graph.version:
            with self._lock:
                self._needs_rebuild = True
                self._take_members(self.engine.graph.version)
                self._build()
                self._pending, self._needs_rebuild = None, False

    def _take_members(self, version: int) -> None:
        """Membership as the pending batch left it, where that has made this version; doing it again does no harm."""
        self._grow(self.engine.graph.slot_count)
        pending = self._pending
        if pending is None or pending.version != version:
            return
        self._regroup(pending)
        if (self._group[self._members()] < 0).any():
            raise InvariantBroken("[Readout] expected a group for every live vertex, got one without; make it again")

    def _regroup(self, pending: PendingMembers) -> None:
        self._group[pending.removed] = -1
        self._group[list(pending.added)] = self._names.numbered(list(pending.added.values()))
        for name in pending.named:
            self._assigned.pop(name, None)

    def _build(self) -> None:
        """Pool, counts and the copy of the rows, from membership and the engine's rows."""
        engine = self.engine
        if not engine.is_eager:
            self._seen = engine.native.note_changes()
        slots = self._members()
        fresh = self._read(slots)
        names = GroupNames()
        own = self._names.names
        self._group[slots] = names.numbered([own[number] for number in self._group[slots].tolist()])
        none = np.full(len(slots), -1, np.int64)
        names.count(Moves(slots, none, self._group[slots], fresh, fresh))
        self._rows, self._pool = _built(
            self._parts_of(fresh.shape[1]), slots, self._group[slots], fresh, len(self._group)
        )
        self._names = names
        self._version = engine.graph.version

    def _move(self, slots: Int64, groups: list[int] | None, new: Rows, version: int) -> None:
        """Gives slots new rows, and groups: those given, or else those of the pending batch."""
        with self._lock:
            self._needs_rebuild = True
            self._grow(self.engine.graph.slot_count)
            old_groups = self._group[slots]
            if groups is not None:
                self._group[slots] = self._names.numbered(groups)
            elif self._pending is not None and (self._pending.added or self._pending.removed):
                self._regroup(self._pending)
            moves = Moves(slots, old_groups, self._group[slots], self._rows[slots], new)
            self._rows[slots] = new
            self._pool.move(moves, self._rows)
            self._names.count(moves)
            self._version, self._pending, self._needs_rebuild = version, None, False

    def _grow(self, count: int) -> None:
        if count > len(self._group):
            grown = np.full(max(count, 2 * len(self._group)), -1, np.int64)
            grown[: len(self._group)] = self._group
            rows = np.zeros((len(grown), self._rows.shape[1]), np.float32)
            rows[: len(self._rows)] = self._rows
            self._group, self._rows = grown, rows

    @contextlib.contextmanager
    def _whole(self, *, rows: bool = True) -> Iterator[None]:
        """Holds the state for a reader, whole again where it was interrupted. rows: brings them up to date first."""
        if rows and not self.engine.is_eager:
            with self.engine.graph.host.lock:
                self._catch_up()
                with self._lock:
                    yield
            return
        while True:
            with self._lock:
                if not self._needs_rebuild:
                    yield
                    return
            with self.engine.graph.host.lock:
                self._repair()

    def _asked(self, where: str, ids: Any) -> list[int]:
        """Groups of vertices by the caller's function."""
        assert self._group_of is not None
        try:
            given = self._group_of(ids)
        except Exception as cause:
            raise ValueInvalid(
                f"[{where}] expected groups from the readout's function for {len(ids)} vertices, got "
                f"{type(cause).__name__}: {cause}; fix the function"
            ) from cause
        return group_array(where, given, len(ids), "the ids given to the readout's function")

    def __repr__(self) -> str:
        return f"Readout({self.engine!r}, {self._label()!r}, groups={len(self.group_ids)}, version={self.version})"


def _listed_parts(kind: object) -> tuple[tuple[str, int, int], ...]:
    """(kind, start, stop) of each pool. Raises: ValueInvalid."""
    if isinstance(kind, str) or not isinstance(kind, Sequence) or not kind:
        raise ValueInvalid(
            f"[Readout] expected kind to be one of {', '.join(KINDS)}, got {kind!r}; choose one, or list several pools "
            "as (kind, start, stop)"
        )
    for each in kind:
        kinds, *columns = each if isinstance(each, Sequence) and len(each) == 3 else (None,)
        whole = len(columns) == 2 and all(type(place) is int for place in columns)
        if kinds not in list(KINDS) or not whole or not 0 <= columns[0] < columns[1]:
            raise ValueInvalid(
                f"[Readout] expected each pool as (kind, start, stop), kind one of {', '.join(KINDS)} and columns "
                f"0 <= start < stop, got {each!r}; fix it"
            )
    return tuple((each[0], int(each[1]), int(each[2])) for each in kind)


def _built(
    parts: Sequence[tuple[str, int, int]], slots: Int64, groups: Int64, fresh: Rows, count: int
) -> tuple[Rows, Pool]:
    """The copy of the rows, by slot, and the pool."""
    rows = np.zeros((count, fresh.shape[1]), np.float32)
    rows[slots] = fresh
    pool: Pool = Joined(parts)
    none = np.full(len(slots), -1, np.int64)
    for begin in range(0, len(slots), _BUILD_ROWS):  # bounds the memory of what a pool works out
        part = slice(begin, begin + _BUILD_ROWS)
        pool.move(Moves(slots[part], none[part], groups[part], fresh[part], fresh[part]), rows)
    return rows, pool


def _check_head(head: object, width: int) -> None:
    if head is None:
        return
    if isinstance(head, Model):
        local = not any(isinstance(value, ir.Propagate | edges.Gather) for value in ir.walk(head.output))
        if not local or head.input_width != width:
            got = f"width {head.input_width}" if local else "one that reads edges"
            raise ModelMismatch(
                f"[Readout] expected a row-local head for rows of width {width}, got {got}; pass a Model of "
                "lg.layers.Dense and alike"
            )
    elif not callable(head):
        raise UsageError(f"[Readout] expected head as a Model or a function of rows, got {head!r}; pass one")
