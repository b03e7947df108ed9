"""PartEngine: the exact engine of one part. It makes no decision of its own: every part is given the same batches in
the same order, and they go through each batch round by round, together (RIPPLE, section 5.3).

Invariant between batches: outputs and aggregates of the part's own vertices are, bit for bit, those of one engine with
the whole graph. A batch that any part refuses is taken back by all.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.distributed.cluster.batch import PartChanges, SlotBatch
from livegnn.distributed.cluster.cut import PartArrays, Share, counted_ends, share_of
from livegnn.distributed.cluster.moves import own_moves
from livegnn.distributed.partition import PartitionReport, VertexParts
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import LiveGnnError, PartRefused, UpdateError, WorkerUnavailable
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

Swap: TypeAlias = Callable[[list[bytes]], list[bytes]]


class NewOwners(NamedTuple):
    """Owners of slots that the batch may be the first to use: parts of the slots from `first` on."""

    first: int
    owners: npt.NDArray[np.uint16]


class PartEngine:
    """The engine of one part. All parts make the same calls in the same order; those marked so are rounds.

    Args:    arrays: the part.  program: the compiled model, the same everywhere.  swap: sends one parcel to each part
             and returns what each has sent here.  scales: those of an engine that there was, by default chosen
             together, as one engine would.  memory: what an earlier engine of the part remembered, with the arrays.
             near: as of set_near().
    """

    def __init__(
        self,
        arrays: PartArrays,
        program: _native.Program,
        swap: Swap,
        *,
        threads: int = 1,
        scales: Sequence[Sequence[int]] = (),
        memory: dict[str, AnyArray] | None = None,
        near: Sequence[int] = (),
    ) -> None:
        self.part, self.parts = arrays.part, arrays.parts
        self.store = arrays.make_store()
        self.store.set_apply_threads(threads)
        self.halo = _native.Halo(arrays.parts, arrays.part, swap)
        self.set_near(near)
        self.halo.set_owners(0, arrays.owners)
        self.halo.load(arrays.globals, arrays.next_edge_id, self.store)
        if memory is not None:  # whom it has met decides what it sends at the start
            self.halo.recall(memory)
        self.options, self._threads = arrays.options, threads
        self._names_before: dict[int, int] = {}  # inside a what_if: slots of vertices that it adds or removes
        self.native = self.engine_of(program, scales)
        if memory is not None:
            self.native.recall(memory)

    def set_near(self, parts: Sequence[int]) -> None:
        """Parts on this part's host, to which rows go as they are: packing takes longer than it saves."""
        self.halo.near = sum(1 << part for part in set(parts))

    def engine_of(self, program: _native.Program, scales: Sequence[Sequence[int]] = ()) -> _native.NativeEngine:
        """Another engine of the part, up to date and not attached; rounds."""
        options = _native.EngineOptions(threads=self._threads, scale_exponents=[list(row) for row in scales])
        return _native.NativeEngine.create_part(self.store, program, options, self.halo)

    # ---- batches

    def apply(
        self,
        batch: SlotBatch,
        newcomers: NewOwners,
        *,
        before_agreeing: Callable[[], None] | None = None,
        held: Callable[[], None] | None = None,
    ) -> PartChanges:
        """One batch, in slots of the whole graph; rounds.

        Args:    before_agreeing: called when this part has taken the batch; what it raises is for the others a refusal.
                 held: called when every part has taken the batch, before any reader sees it; what it raises takes it
                 back in this part alone, and no part waits for it.
        Raises:  UpdateError of the first update of the batch that this part refuses, PartRefused where another part
                 has; then nothing has changed.
        """
        places: Int64Array | None = None
        all_have = False
        try:
            self.halo.set_owners(newcomers.first, newcomers.owners)
            mine, places = self.halo.take(batch.to_buffer(), self.store)

            def agree() -> None:
                nonlocal all_have
                try:
                    if before_agreeing is not None:
                        before_agreeing()
                except BaseException:
                    with contextlib.suppress(WorkerUnavailable):
                        self.halo.fail()  # before this part goes back
                    raise
                self.halo.agree()
                all_have = True
                if held is not None:
                    held()

            changes = _native.apply_batch(self.store, [self.native], [], mine, agree)[0]
        except BaseException as error:
            if all_have:
                self.halo.roll_back()
            else:
                self._give_up()
            if isinstance(error, UpdateError) and not isinstance(error, PartRefused):
                raise self._renamed(error, batch, places) from error
            raise
        self.halo.commit()
        return self._changes(changes)

    def _give_up(self, view: Any = None) -> None:
        """Goes back; where the others still wait for this part, they learn it.

        view: an open what_if.
        """
        with contextlib.suppress(WorkerUnavailable):  # the wire may be what failed
            self.halo.fail()
        if view is not None:
            view.close()
        self.halo.roll_back()

    def _changes(self, changes: Any) -> PartChanges:
        moves = changes.take_moves()
        if moves is not None:
            moves = own_moves(moves, self.halo.own_names(moves[0]))
        return PartChanges(_native.own_changes(self.halo, changes), moves)

    def _own_globals(self, slots: Int64Array) -> Int64Array:
        found: Int64Array = self.halo.own(slots)
        return found

    def _renamed(self, error: UpdateError, batch: SlotBatch, places: Int64Array | None) -> LiveGnnError:
        """The error in slots of the whole graph, with the place of its update in the whole batch."""
        if places is None:  # the halo names them so itself
            return error
        facts, name_of = error.facts(), self.halo.name_of  # it knows those of the batch, too
        columns = batch.to_columns()
        if "update" in facts:
            place = facts["update"] = int(places[facts["update"]])
            ends = [str(columns[end][place]) for end in ("u", "v") if columns[end][place] >= 0]
            if "subject" in facts and ends:
                facts["subject"] = f"{facts['subject'].split()[0]} {' -> '.join(ends)}"
        if isinstance(vertex := facts.get("vertex"), int):
            name = facts["vertex"] = name_of(vertex)
            for text in ("expected", "got"):
                if text in facts:
                    facts[text] = re.sub(rf"\bvertex {vertex}\b", f"vertex {name}", facts[text])
            if facts.get("got", "").startswith(f"{vertex},"):
                facts["got"] = f"{name}{facts['got'][len(str(vertex)) :]}"
        if edge := facts.get("edge"):
            if "update" in facts:
                place = facts["update"]
                facts["edge"] = (int(columns["u"][place]), int(columns["v"][place]))
            else:
                facts["edge"] = (name_of(int(edge[0])), name_of(int(edge[1])))
        return type(error)(**facts)

    # ---- reading: of this part's own vertices, by slots of the whole graph

    def owns(self, slots: Int64Array) -> BoolArray:
        """Which of these are live vertices of this part."""
        locals_ = self.halo.locals(slots)
        owned: BoolArray = locals_ >= 0
        owned[owned] = self.halo.ghosts()[locals_[owned]] == 0
        return owned

    def embeddings(self, slots: Int64Array) -> Float32Array:
        """(k, d) float32 rows. Raises: VertexUnknown."""
        locals_ = self.halo.locals(slots)
        if self._names_before:
            locals_ = np.array([self._names_before.get(*pair) for pair in zip(slots.tolist(), locals_, strict=True)])
        rows: Float32Array = self.native.read(locals_.astype(np.int64))
        return rows

    def slots(self, type_code: int | None = None) -> Int64Array:
        """Slots of all own live vertices, of one type where a code is given, ascending."""
        wanted = self.store.live() if type_code is None else self.store.vertex_types() == type_code
        return self._own_globals(np.flatnonzero(wanted).astype(np.int64))

    def out_slots(self, slots: Int64Array) -> Int64Array:
        """Slots of the out-neighbours of these, one after the other."""
        found = [self.store.out_neighbours(place)["dst"] for place in self.halo.locals(slots).tolist()]
        names: Int64Array = self.halo.globals()[np.concatenate([*found, np.zeros(0, np.int64)])]
        return names

    # ---- audits; rounds, but for digests

    def verify(self) -> str | None:
        """The first difference from a run from scratch, in words."""
        found: str | None = self.native.verify()
        return found

    def recompute(self) -> tuple[Int64Array, Float32Array]:
        """Slots of own live vertices and their rows from scratch."""
        rows = self.native.recompute(self.store.slot_count)
        slots = self.slots()
        return slots, rows[self.halo.locals(slots)]

    def arrays(self) -> PartArrays:
        """The part as it is, for another process."""
        return self.capture()()

    def capture(self) -> Callable[[], PartArrays]:
        """A copy of the part as it is. What is returned gives it order and form, in any thread; the part may go on."""
        copied = _native.GraphCapture(self.store)
        copied.make_room(self._threads)
        copied.take(self.store, self._threads)
        globals_, owners, next_edge_id = self.halo.globals(), self.halo.owners(), self.halo.next_edge_id

        def formed() -> PartArrays:
            store = {name: np.ascontiguousarray(array) for name, array in copied.to_arrays().items()}
            return PartArrays(self.part, self.parts, self.options, store, globals_, owners, next_edge_id)

        return formed

    def what_if(self, batch: SlotBatch, owners: NewOwners) -> tuple[Any, PartChanges]:
        """A batch that is looked at: the native view, open, and the vertices that it would change; rounds.

        close_what_if() ends it. Raises: as apply().
        """
        places: Int64Array | None = None
        view: Any = None
        buffer = batch.to_buffer()
        moving = np.unique(buffer.vertices().ids()[0])
        names = dict(zip(moving.tolist(), self.halo.locals(moving).tolist(), strict=True))
        try:
            self.halo.set_owners(owners.first, owners.owners)
            mine, places = self.halo.take(buffer, self.store)
            view = _native.NativeWhatIf(self.store, self.native, mine)
            self.halo.agree()  # a part may have failed after its last round
        except BaseException as error:
            self._give_up(view)
            if isinstance(error, UpdateError) and not isinstance(error, PartRefused):
                raise self._renamed(error, batch, places) from error
            raise
        self._names_before = names
        return view, PartChanges.of_slots(self._own_globals(self.native.staged_vertices()))

    def close_what_if(self, view: Any) -> None:
        """Puts every row back, bit for bit. No round."""
        view.close()
        self.halo.roll_back()
        self._names_before = {}

    def staged(self, slots: Int64Array) -> Float32Array:
        """Rows inside a what_if. Raises: VertexUnknown."""
        rows: Float32Array = self.native.read_staged(self.halo.locals(slots))
        return rows

    def own_arrays(self) -> Share:
        """See share_of()."""
        return share_of(self.arrays())

    def own_ends(self) -> tuple[Int64Array, Int64Array]:
        """Of the same edges the sources and destinations alone."""
        ends, names = _native.edge_ends(self.store), self.halo.globals()
        counted = counted_ends(ends["src"], ends["dst"], names, bool(self.options["undirected"]))
        kept = self.halo.ghosts()[counted] == 0
        return names[ends["src"][kept]], names[ends["dst"][kept]]

    def report(self, type_names: tuple[str, ...]) -> PartitionReport:
        """On the edges with an end in this part: its own share of PartitionReport.joined()."""
        ends, store = _native.edge_ends(self.store), self.store
        types = store.vertex_types() if type_names else None
        live, undirected = store.live().astype(np.bool_), bool(self.options["undirected"])
        topology = Topology(ends["src"], ends["dst"], live, undirected, types, type_names)
        owners = self.halo.owners()[self.halo.globals()]
        return PartitionReport.of(topology, VertexParts(self.parts, owners))

    def digests(self) -> tuple[int, int]:
        """This part's share of the graph's digest and of the state's; each adds up modulo 2^64."""
        return int(self.halo.graph_digest(self.store)), int(self.native.digest())

    def scales(self) -> list[list[int]]:
        """Exponents of the fixed-point units, as an engine of the whole graph has them."""
        found: list[list[int]] = self.native.scale_exponents()
        return found
