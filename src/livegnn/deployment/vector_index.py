"""VectorIndex: an index of usearch over an engine's rows, which follows what changes.

    batch -> slots whose rows moved, noted under the graph's lock -> worker: a snapshot, its rows into the index

The writer notes slots and wakes the worker, no more. The worker takes what has gathered together with a snapshot, so
the index is of that snapshot's version once it has all of it. A swap or a rescale makes every row anew, and the index
too. Nothing of it is durable: a start builds it.

Recall: of `sample` vertices the best ten by the index, as a share of the exact best ten by one pass over the same rows.
It is measured after a build, and again when a tenth of the rows has moved. Where it is low the index is built anew.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, NamedTuple, cast

import numpy as np

from livegnn.deployment.config_index import IndexConfig
from livegnn.deployment.topk import out_slots
from livegnn.errors import LiveGnnError, ModelMismatch, UsageError, ValueInvalid, VersionPending, VertexUnknown
from livegnn.graph.consumers import VertexChange
from livegnn.inference import Engine
from livegnn.inference.best import scores_by
from livegnn.inference.views import SnapshotView
from livegnn.models.model import Model
from livegnn.optional import need
from livegnn.types import AnyArray, Float32Array, Int64Array

_log = logging.getLogger("livegnn")
_METRICS = {"dot": "ip", "cosine": "cos", "l2": "l2sq"}
_BEST = 10  # vertices that a recall is of
_TIES = 1e-5  # of the scores of equal vertices


class NearVertices(NamedTuple):
    """What an index answers: as TopVertices, and its recall when it was last measured."""

    vertices: AnyArray
    scores: Float32Array
    version: int
    model: Model
    recall: float


class VectorIndex:
    """The index of one engine's rows. Searches in any thread."""

    def __init__(self, engine: Engine, config: IndexConfig, seed: int = 0) -> None:
        self._usearch = need("usearch.index", "index")
        if not engine.is_eager:
            raise ValueInvalid(
                f'[index] expected the engine of index {config.name!r} with mode="eager", got {engine.mode!r}; make '
                "it eager, or leave the index out"
            )
        self.config, self._engine = config, engine
        self._type = config.vertex_type or None
        self._rng = np.random.default_rng(seed)
        self._lock = threading.Lock()  # of the index and what says which rows it has
        self._moved = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._index: Any = None
        self._ids: AnyArray = np.zeros(0, np.int64)  # by slot
        self._model, self._version, self._recall = engine.model, -1, 0.0
        self._failure: LiveGnnError | None = None
        self._pending: list[Int64Array] = []  # slots, under the graph's lock
        self._anew, self._gone, self._unmeasured = True, np.zeros(0, np.int64), 0
        self._closed = False
        with engine.graph.host.lock:
            engine._follow(self)
        self._wake.set()
        self._worker = threading.Thread(target=self._work, name=f"livegnn-index-{config.name}", daemon=True)
        self._worker.start()

    # ---- searching, any thread

    @property
    def version(self) -> int:
        """Of all its rows; -1 until it is built."""
        return self._version

    @property
    def recall(self) -> float:
        """When it was last measured."""
        return self._recall

    @property
    def bytes(self) -> int:
        """Of the index and its list of ids."""
        with self._lock:
            size = 0 if self._index is None else int(self._index.memory_usage)
            return size + self._ids.nbytes

    def wait(self, version: int, timeout: float) -> None:
        """Waits until its rows are of a version, or a later one. Raises: VersionPending; what the build raised."""
        with self._moved:
            self._moved.wait_for(lambda: self._failure or self._closed or self._version >= version, timeout)
            if self._failure is not None:
                raise self._failure
            if self._version < version:
                raise VersionPending(
                    f"[topk] expected index {self.config.name!r} at version {version} within {timeout:g} s, got "
                    f"{self._version}; ask again later, or without index="
                )

    def nearest(
        self,
        *,
        vertex: object = None,
        row: Float32Array | None = None,
        k: int = _BEST,
        linked: bool = True,
        timeout: float = 10.0,
        at_least: int = 0,
    ) -> NearVertices:
        """About the k best vertices for a vertex of the index's type, or for a row; scores are exact.

        Raises:  UsageError unless exactly one of vertex and row is given; VertexUnknown; VersionPending.
        """
        if (vertex is None) == (row is None):
            raise UsageError("[topk] expected one of vertex and row, got both or neither; give one")
        self.wait(at_least, timeout)
        left_out = np.zeros(0, np.int64)
        slot = -1
        if vertex is not None:
            slot, left_out = self._around(vertex, linked)
        with self._lock:
            asked = row if vertex is None else self._row_of(slot, vertex)
            assert asked is not None
            if asked.shape != (self._index.ndim,) or not np.isfinite(asked).all():
                raise ValueInvalid(
                    f"[topk] expected a row of {self._index.ndim} finite numbers, got {asked.size}; give as many"
                )
            found = self._search(asked, k + len(left_out))
            found = found[~np.isin(found, left_out)]
            slots, scores = self._ordered(found, asked, k)
            return NearVertices(self._ids[slots], scores, self._version, self._model, self._recall)

    def _around(self, vertex: object, linked: bool) -> tuple[int, Int64Array]:
        """The vertex's slot, and those that are no answer: itself and, unless linked, its out-neighbours."""
        graph = self._engine.graph
        with graph.host.lock:
            slot = int(graph.to_slots([vertex], vertex_type=self._type)[0])
            there = np.zeros(0, np.int64) if linked else out_slots(graph, slot)
        return slot, np.unique(np.append(there, slot))

    def _row_of(self, slot: int, vertex: object) -> Float32Array:
        found: Float32Array | None = self._index.get(np.uint64(slot))
        if found is None:
            raise VertexUnknown(
                f"[topk] expected a vertex that index {self.config.name!r} has at version {self._version}, got "
                f"{vertex!r}; ask again with at_least="
            )
        return np.asarray(found, np.float32).reshape(-1)

    def _search(self, row: Float32Array, count: int) -> Int64Array:
        if not len(self._index):
            return np.zeros(0, np.int64)
        found = self._index.search(row, min(count, len(self._index)))
        return np.asarray(found.keys).astype(np.int64)

    def _ordered(self, slots: Int64Array, row: Float32Array, k: int) -> tuple[Int64Array, Float32Array]:
        """By exact scores."""
        if not len(slots):
            return slots, np.zeros(0, np.float32)
        scores = scores_by(self._rows(slots), row, self.config.metric)
        order = np.argsort(scores if self.config.metric == "l2" else -scores, kind="stable")[:k]
        return slots[order], scores[order]

    def _rows(self, slots: Int64Array) -> Float32Array:
        rows: Float32Array = np.asarray(self._index.get(slots.astype(np.uint64)), np.float32)
        return rows.reshape(len(slots), -1)

    # ---- as a Follower of the engine, in the applying thread

    def _before(self, batch: list[VertexChange]) -> None:
        self._gone = np.array([one.slot for one in batch], np.int64)

    def _after(self, changed: Int64Array, version: int) -> None:
        gone, self._gone = self._gone, np.zeros(0, np.int64)
        self._pending += [part for part in (changed, gone) if len(part)]
        if len(self._pending) > 1000:
            self._pending = [np.unique(np.concatenate(self._pending))]
        self._wake.set()

    def _suits(self, model: Model) -> None:
        """Every model may come: one without rows for the index fails it, and searches say so."""

    def _rebuilt(self) -> None:
        self._anew = True
        self._wake.set()

    def close(self) -> None:
        """Follows no more. Searches go on with what is there."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        self._wake.set()
        self._engine._unfollow(self)

    def stop(self) -> None:
        """The same, and waits for the worker. The caller holds no lock."""
        with self._engine.graph.host.lock:
            self.close()
        self._worker.join()

    # ---- the worker

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            try:
                self._catch_up()
            except LiveGnnError as error:
                self._fail(error)
            except Exception as error:
                _log.exception("[index] %s failed; it is built anew with the next batch", self.config.name)
                self._fail(
                    UsageError(f"[index] expected index {self.config.name!r} to follow, got {error!r}; ask anew")
                )

    def _fail(self, error: LiveGnnError) -> None:
        with self._moved:
            self._failure, self._anew, self._version = error, True, -1
            self._moved.notify_all()

    def _catch_up(self) -> None:
        """Brings the index to the newest version."""
        graph = self._engine.graph
        with graph.host.lock:  # what is pending, the ids and the snapshot are of one version
            if self._closed:
                return
            pending, self._pending = self._pending, []
            anew, self._anew = self._anew, False
            view = self._engine.snapshot().__enter__()
            try:
                if self._engine.model.edge_output is not None:
                    raise ModelMismatch(
                        f"[index] expected a model with one row per vertex for index {self.config.name!r}, got one "
                        "with one row per edge; leave the index out"
                    )
                live = self._live()
                moved = np.flatnonzero(live) if anew else np.unique(np.concatenate([*pending, np.zeros(0, np.int64)]))
                here = moved[live[moved]]
                names = graph.to_external(here)
                slots = graph.host.store.slot_count
            except BaseException:
                view.__exit__(None, None, None)
                raise
        try:
            self._take(view, anew, moved, here, names, slots)
        finally:
            view.__exit__(None, None, None)

    def _live(self) -> AnyArray:
        """By slot, whether it has a row in the index. The caller holds the graph's lock."""
        host = self._engine.graph.host
        code = host.schema.vertex_code("index", self._type)
        return host.store.vertex_types() == code if host.schema.has_types else host.store.live()

    def _take(
        self, view: SnapshotView, anew: bool, moved: Int64Array, here: Int64Array, names: AnyArray, slots: int
    ) -> None:
        rows = view.embeddings(names, vertex_type=self._type)
        keys = here.astype(np.uint64)
        index = self._made(rows.shape[1]) if anew else self._index
        if anew and len(here):
            index.add(keys, rows)  # with all cores, while the one before serves
        with self._moved:
            if not anew and len(moved):
                old = moved.astype(np.uint64)
                index.remove(old[index.contains(old)])
                if len(here):
                    index.add(keys, rows, threads=1)
            self._index = index
            self._ids = _with_names(np.zeros(0, names.dtype) if anew else self._ids, slots, here, names)
            self._model, self._version, self._failure = view.model, view.version, None
            self._unmeasured += len(moved)
            if not anew:
                self._moved.notify_all()
        if anew or 10 * self._unmeasured >= len(index):
            self._measure(anew)

    def _measure(self, anew: bool) -> None:
        """In the worker, which alone changes the index."""
        recall = self._measured()
        with self._moved:
            self._recall, self._unmeasured = recall, 0
            self._moved.notify_all()
        if not anew and recall < self.config.rebuild_below:
            _log.info("[index] %s has a recall of %.3f, and is built anew", self.config.name, recall)
            self._anew = True
            self._wake.set()

    def _made(self, width: int) -> Any:
        return self._usearch.Index(ndim=width, metric=_METRICS[self.config.metric], dtype="f32")

    def _measured(self) -> float:
        """The recall, by one pass over all rows."""
        keys = np.asarray(self._index.keys).astype(np.int64) if len(self._index) else np.zeros(0, np.int64)
        best = min(_BEST, len(keys))
        if not best:
            return 1.0
        everything = self._rows(keys)
        found = wanted = 0
        for place in self._rng.choice(len(keys), min(self.config.sample, len(keys)), replace=False).tolist():
            row = everything[place]
            exact = scores_by(everything, row, self.config.metric)
            got = scores_by(self._rows(self._search(row, best)), row, self.config.metric)
            signed, reached = (exact, got) if self.config.metric == "l2" else (-exact, -got)
            bound = np.partition(signed, best - 1)[best - 1]
            found += int((reached <= bound + _TIES * max(1.0, abs(float(bound)))).sum())
            wanted += best
        return found / wanted


def _with_names(ids: AnyArray, slots: int, here: Int64Array, names: AnyArray) -> AnyArray:
    """The ids by slot, with new ones."""
    kind = names.dtype if names.dtype == np.int64 else np.dtype(object)
    grown = np.zeros(max(slots, len(ids)), kind)
    grown[: len(ids)] = ids
    grown[here] = names
    return cast("AnyArray", grown)
