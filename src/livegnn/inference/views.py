"""Views of an engine's outputs, for the time of a `with` block: as they would be (what_if), as they were (snapshot).

A snapshot holds no lock. It begins with the native rows, the model and the ids of one version: batches that come later
keep old rows for it (core/inference/snapshots.h), and what old ids stood for (graph/ids_then.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from livegnn import _native
from livegnn.errors import UsageError
from livegnn.graph.graph import Graph
from livegnn.graph.ids import Translation
from livegnn.graph.ids_then import IdsThen
from livegnn.graph.schema import no_vertex_type
from livegnn.graph.typed_ids import TypedTranslation
from livegnn.graph.updates import Updates, VertexType
from livegnn.inference import over_types
from livegnn.inference.reading import Head, Rows, pair_array, pair_scores, predictions
from livegnn.models.model import Model

if TYPE_CHECKING:
    from livegnn.inference.engine import Engine

__all__ = ["SnapshotView", "View", "WhatIfView"]


class View(ABC):
    """What can be read of a view: the reads of an engine."""

    _where: str

    @abstractmethod
    def _read(self, ids: object, vertex_type: VertexType | None) -> Rows:
        """Rows as wide as the widest type's. Raises: UsageError outside the block."""

    @abstractmethod
    def _of(self) -> tuple[Graph, Model]:
        """What the rows are of."""

    def embeddings(self, ids: object, *, vertex_type: VertexType | None = None) -> Rows:
        """As Engine.embeddings."""
        graph, model = self._of()
        typed = graph._typed is not None
        width = over_types.width_of(model, graph, self._where, vertex_type) if typed else None
        rows = self._read(ids, vertex_type)
        return rows if width is None else over_types.cut(rows, width)

    def predict(self, ids: object, head: Head | None = None, *, vertex_type: VertexType | None = None) -> NDArray[Any]:
        """As Engine.predict."""
        return predictions(self.embeddings(ids, vertex_type=vertex_type), head)

    def predict_edges(
        self, pairs: object, *, vertex_types: tuple[VertexType, VertexType] | None = None
    ) -> NDArray[Any]:
        """As Engine.predict_edges."""
        array = pair_array(pairs)
        graph, model = self._of()
        if graph._typed is not None:
            return over_types.scores_of(array, vertex_types, self.embeddings)
        no_vertex_type("predict_edges", vertex_types)
        rows = self.embeddings(array.reshape(-1))
        return pair_scores(rows[0::2], rows[1::2], model.edge_head)

    def _refuse_outside(self) -> NoReturn:
        raise UsageError(
            f"[{self._where}] expected a view inside its with block, got one outside; read it before the block ends"
        )


class WhatIfView(View):
    """Outputs as they would be after some updates; valid inside its `with` block only."""

    _where = "what_if"

    def __init__(self, engine: Engine, updates: Updates) -> None:
        self._engine = engine
        self._updates = updates
        self._native: Any = None
        self._translation: Translation | TypedTranslation | None = None

    def __enter__(self) -> Self:
        engine, graph = self._engine, self._engine.graph
        self._place = graph._writing("what_if")
        self._place.__enter__()
        try:
            engine._refuse_closed("what_if")
            engine._complete_all()
            graph._same_unit("what_if", self._updates._time_unit)
            buffer, self._translation = graph._translated(self._updates)
            self._native = _native.NativeWhatIf(graph._store, engine.native, buffer)
            graph._supposed = True
        except BaseException:
            self._place.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._native.close()
        finally:
            self._native = None
            self._engine.graph._supposed = False
            self._place.__exit__(None, None, None)

    def _slots(self, ids: object, vertex_type: VertexType | None) -> NDArray[np.int64]:
        if isinstance(self._translation, TypedTranslation):
            return self._translation.slots("what_if", ids, vertex_type)
        no_vertex_type("what_if", vertex_type)
        if self._translation is not None:
            return self._translation.slots("what_if", ids)
        return self._engine.graph._slots("what_if", ids)

    def _of(self) -> tuple[Graph, Model]:
        if self._native is None:
            self._refuse_outside()
        return self._engine.graph, self._engine.model

    def _read(self, ids: object, vertex_type: VertexType | None) -> Rows:
        rows: Rows = self._engine.native.read_staged(self._slots(ids, vertex_type))
        return rows

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

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._native: Any = None
        self._model = engine.model
        self._ids: IdsThen | None = None
        self._version = self._vertex_count = -1

    def __enter__(self) -> Self:
        if self._native is not None:
            raise UsageError("[snapshot] expected a view that is not open, got one that is; make another")
        engine = self._engine
        if engine.mode == "eager":
            self._open()
        else:
            with engine.graph._lock:  # until the rows that are pending are there
                engine._complete()
                self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        native, self._native = self._native, None
        native.close()
        if self._ids is not None:
            self._engine.graph._old_ids.drop(self._ids)

    def _open(self) -> None:
        """Rows and ids of one version. Where ids are not slots they are noted from a moment on at which no batch moved
        them; the rows must be of the version of that moment.
        """
        engine, graph = self._engine, self._engine.graph
        named = graph._ids is not None or graph._typed is not None
        while True:
            version, ids = graph._ids_version, IdsThen(graph)
            if named:
                graph._old_ids.hold(ids)
            still = graph._ids_version == version >= 0  # below 0 while the ids move
            with engine._switching:
                engine._refuse_closed("snapshot")
                native, model = _native.NativeSnapshot(engine.native), engine.model
            if not named or (still and native.version == version):
                break
            graph._old_ids.drop(ids)
            native.close()
        self._version, self._vertex_count = native.version, native.vertex_count
        self._ids, self._model, self._native = ids, model, native

    def _of(self) -> tuple[Graph, Model]:
        if self._native is None:
            self._refuse_outside()
        return self._engine.graph, self._model

    def _read(self, ids: object, vertex_type: VertexType | None) -> Rows:
        native, known = self._native, self._ids
        if native is None or known is None:
            self._refuse_outside()
        rows: Rows | None = native.read(known.slots("snapshot", ids, vertex_type))
        if rows is None:  # closed by another thread since
            self._refuse_outside()
        return rows

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
