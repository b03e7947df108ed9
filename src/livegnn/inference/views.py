"""Views of an engine's outputs, for the time of a `with` block: as they would be (what_if), as they were (snapshot).

A snapshot holds no lock. It begins with the native rows, the model and the ids of one version: batches that come later
keep old rows for it (core/inference/snapshots.h), and what old ids stood for (graph/ids_then.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from livegnn import _native
from livegnn.errors import UsageError
from livegnn.graph.graph import Graph
from livegnn.graph.ids import IdChange
from livegnn.graph.ids_then import IdsThen
from livegnn.graph.updates import Updates, VertexType
from livegnn.inference import hetero as over_types
from livegnn.inference.edge_outputs import EdgeIndex, EdgeReader, refuse_rows_of_vertices
from livegnn.inference.predict import Head, Rows, pair_array, predictions
from livegnn.models.model import Model
from livegnn.types import Int64Array


class Viewed(Protocol):
    """What a view is of: an Engine."""

    graph: Graph
    model: Model
    native: Any

    @property
    def switching(self) -> AbstractContextManager[Any]:
        """Held while native and model are exchanged together."""

    @property
    def is_eager(self) -> bool:
        """Whether every output is up to date after each batch."""

    @property
    def edge_reader(self) -> EdgeReader | None:
        """What reads rows of edges; None where the model has one row per vertex."""

    def edge_index(self) -> EdgeIndex:
        """Where edges lie, by their ids. The caller holds the graph's lock."""

    def refuse_closed(self, where: str) -> None:
        """Raises: UsageError where it was closed."""

    def complete(self) -> None:
        """Brings every output up to date."""

    def complete_all(self) -> None:
        """The same for every engine of the graph. The caller holds the graph's lock."""


class Outputs(ABC):
    """The reads of an engine, and of a view of one."""

    _where: str

    @abstractmethod
    def _read(self, *parts: over_types.Part) -> Rows:
        """Rows as wide as the widest type's, those of each part in turn, all of one version."""

    @abstractmethod
    def _of(self) -> tuple[Graph, Model]:
        """What the rows are of. Raises: UsageError outside a view's block."""

    def embeddings(
        self, ids: object, *, vertex_type: VertexType | None = None, output: str | int | None = None
    ) -> Rows:
        """The module's output rows, (k, d) float32, all of one version.

        Args:   vertex_type: whose ids they are, where vertices have types; d is then that type's own.
                output: one result of a model that keeps several (Model.outputs), by its name; d is then its own.
        Raises: VertexUnknown naming the id; ColumnMissing without vertex_type where there are types; ModelMismatch for
                a type or a name that the model has no output for; UsageError outside a view's block.
        """
        graph, model = self._of()
        over_types.refuse_rows_of_edges(self._where, model)
        if output is not None:
            start, stop = model.columns_of(output)
            return np.ascontiguousarray(self._read((ids, vertex_type))[:, start:stop])
        if not graph.host.schema.has_types:
            return self._read((ids, vertex_type))
        width = over_types.width_of(model, graph, self._where, vertex_type)
        return over_types.cut(self._read((ids, vertex_type)), width)

    def predict(
        self,
        ids: object,
        head: Head | None = None,
        *,
        vertex_type: VertexType | None = None,
        output: str | int | None = None,
    ) -> NDArray[Any]:
        """d >= 2: the class with the largest output, (k,) int64. d = 1: its sigmoid, (k,) float32. head: own function
        of rows. vertex_type, output: as of embeddings.
        """
        if head is None and output is None and len(self._of()[1].outputs) > 1:
            names = ", ".join(self._of()[1].outputs)
            raise UsageError(
                f"[predict] expected output= for a model that keeps several, got none; pass one of {names}, or a head"
            )
        return predictions(self.embeddings(ids, vertex_type=vertex_type, output=output), head)

    def predict_edges(
        self, pairs: object, *, vertex_types: tuple[VertexType, VertexType] | None = None
    ) -> NDArray[Any]:
        """Link scores of (k, 2) pairs of ids, (k,) float32: the model's edge_head, or the dot product of the two
        outputs. vertex_types: of the first and of the second of each pair, where vertices have types.
        """
        array = pair_array(pairs)
        graph, model = self._of()
        return over_types.scores_of(model, graph, array, vertex_types, self._read)

    def edge_outputs(self, edges: object, *, output: str | int | None = None) -> Rows:
        """The rows of edges of a model with one row per edge, (k, d) float32, all of one version.

        Args:   edges: pairs of vertex ids, (k, 2), each for the newest edge between the two, as remove_edge() means
                it; or edge ids, (k,); or what Graph.edges() and Changes.edges give, a mapping with src, dst and id.
                output: one result of a model that keeps several (Model.outputs), by its name.
        Raises: EdgeMissing naming the edge; VertexUnknown; ModelMismatch for a model with one row per vertex;
                UsageError in a snapshot, which keeps rows of vertices only.
        Cost:   of the rows alone: nothing is kept for an edge. The graph's lock is held: a batch under way is waited
                for. By edge ids, the first call makes an index of all edges, of 24 bytes each.
        """
        graph, model = self._of()
        if model.edge_output is None:
            refuse_rows_of_vertices("edge_outputs", model)
        start, stop = (0, model.edge_output.width) if output is None else model.columns_of(output)
        with graph.host.lock:
            rows = self._edge_rows(edges)
        return np.ascontiguousarray(rows[:, start:stop])

    @abstractmethod
    def _edge_rows(self, edges: object) -> Rows:
        """Rows of edges, of the version of the other reads. The caller holds the graph's lock."""


class View(Outputs):
    """Outputs that can be read inside a `with` block."""

    def _refuse_outside(self) -> NoReturn:
        raise UsageError(
            f"[{self._where}] expected a view inside its with block, got one outside; read it before the block ends"
        )


class WhatIfView(View):
    """Outputs as they would be after some updates; valid inside its `with` block only."""

    _where = "what_if"

    def __init__(self, engine: Viewed, updates: Updates) -> None:
        self._engine = engine
        self._updates = updates
        self._native: Any = None
        self._place = ExitStack()
        self._ids: IdChange | None = None

    def __enter__(self) -> Self:
        engine, host = self._engine, self._engine.graph.host
        with ExitStack() as place:
            place.enter_context(host.writing("what_if"))
            engine.refuse_closed("what_if")
            engine.complete_all()
            host.same_unit("what_if", self._updates.time_unit)
            buffer, self._ids = host.supposed(self._updates)
            place.enter_context(host.supposing())
            native = _native.NativeWhatIf(host.store, engine.native, buffer)
            place.callback(native.close)
            self._native, self._place = native, place.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._native = None
        self._place.close()

    def _of(self) -> tuple[Graph, Model]:
        if self._native is None:
            self._refuse_outside()
        return self._engine.graph, self._engine.model

    def _read(self, *parts: over_types.Part) -> Rows:
        known = self._engine.graph.host.ids if self._ids is None else self._ids
        rows: Rows = self._engine.native.read_staged(over_types.slots_of(known, "what_if", parts))
        return rows

    def _edge_rows(self, edges: object) -> Rows:
        engine, reader = self._engine, self._engine.edge_reader
        assert reader is not None
        known = engine.graph.host.ids if self._ids is None else self._ids
        found = reader.named("edge_outputs", edges, known, engine.edge_index)
        return reader.rows(found, engine.native.read_staged)

    @property
    def vertices(self) -> NDArray[np.int64]:
        """Slots of the vertices whose output the updates would change, (k,) int64, ascending."""
        self._of()
        slots: NDArray[np.int64] = self._engine.native.staged_vertices()
        return slots


class SnapshotView(View):
    """Outputs of one version, whatever is applied meanwhile; valid inside its `with` block only, in any thread.

    Ids are those of that version: a vertex that was removed since is still there, one that was added is not.
    """

    _where = "snapshot"

    def __init__(self, engine: Viewed) -> None:
        self._engine = engine
        self._native: Any = None
        self._model = engine.model
        self._ids: IdsThen | None = None
        self._version = self._vertex_count = -1

    def __enter__(self) -> Self:
        if self._native is not None:
            raise UsageError("[snapshot] expected a view that is not open, got one that is; make another")
        engine = self._engine
        if engine.is_eager:
            self._open()
        else:
            with engine.graph.host.lock:  # until the rows that are pending are there
                engine.complete()
                self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        native, self._native = self._native, None
        native.close()
        if self._ids is not None:
            self._engine.graph.host.old_ids.drop(self._ids)

    def _open(self) -> None:
        """Rows and ids of one version. Where ids are not slots they are noted from a moment on at which no batch moved
        them; the rows must be of the version of that moment.
        """
        engine, host = self._engine, self._engine.graph.host
        named = not host.ids_are_slots
        while True:
            version, ids = host.ids_version, host.ids_now()
            if named:
                host.old_ids.hold(ids)
            still = host.ids_version == version >= 0  # below 0 while the ids move
            with engine.switching:
                engine.refuse_closed("snapshot")
                native, model = _native.NativeSnapshot(engine.native), engine.model
            if not named or (still and native.version == version):
                break
            host.old_ids.drop(ids)
            native.close()
        self._version, self._vertex_count = native.version, native.vertex_count
        self._ids, self._model, self._native = ids, model, native

    def _of(self) -> tuple[Graph, Model]:
        if self._native is None:
            self._refuse_outside()
        return self._engine.graph, self._model

    def _read(self, *parts: over_types.Part) -> Rows:
        known = self._ids
        if self._native is None or known is None:
            self._refuse_outside()
        return self.rows_at(over_types.slots_of(known, "snapshot", parts))

    def rows_at(self, slots: Int64Array) -> Rows:
        """(k, d) float32 rows of slots that were live at that version. Raises: VertexUnknown."""
        native = self._native
        rows: Rows | None = None if native is None else native.read(slots)
        if rows is None:  # closed by another thread since
            self._refuse_outside()
        return rows

    def _edge_rows(self, edges: object) -> Rows:
        raise UsageError(
            "[edge_outputs] expected an engine or a what_if view, got a snapshot, which keeps rows of vertices and no "
            "edges; read engine.edge_outputs() in on_change, or right after apply()"
        )

    @property
    def model(self) -> Model:
        """The model that the rows of this view are of."""
        return self._of()[1]

    @property
    def version(self) -> int:
        """The version that all reads of this view are of."""
        self._of()
        return self._version

    @property
    def vertex_count(self) -> int:
        """Live vertices of that version."""
        self._of()
        return self._vertex_count
