"""Cluster: the Engine's verbs over many workers, and the same bits. The driver's half; docs/distributed.md."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypeAlias

import numpy as np

from livegnn.distributed.cluster.crew import Call, Crew
from livegnn.distributed.cluster.cut import check_parts, cut
from livegnn.distributed.cluster.directory import Directory
from livegnn.distributed.cluster.part import BatchColumns, NewOwners, PartChanges
from livegnn.distributed.cluster.ray_crew import RayCrew
from livegnn.distributed.cluster.recipe import GraphShape, Recipe
from livegnn.distributed.cluster.worker import PartRefusal, refusal_of
from livegnn.distributed.exchange import checked_group
from livegnn.distributed.partition import (
    NewcomerRule,
    Newcomers,
    PartitionReport,
    VertexParts,
    fennel,
    hashed,
    ldg,
    metis,
)
from livegnn.errors import StateMismatch, UsageError, ValueInvalid, VertexUnknown, WorkerUnavailable
from livegnn.graph.consumers import Consumer
from livegnn.graph.graph import Graph
from livegnn.graph.threads import THREADS_MAX
from livegnn.graph.updates import Updates
from livegnn.inference import hetero as over_types
from livegnn.inference import storage
from livegnn.inference.callbacks import Callback, Callbacks, Handle
from livegnn.inference.changes import Changes
from livegnn.inference.engine import coarser_for, refuse_other
from livegnn.inference.predict import Rows
from livegnn.inference.views import Outputs
from livegnn.models.model import Model
from livegnn.stored import file_path
from livegnn.types import AnyArray, Float32Array, Int64Array

Partitioner: TypeAlias = Literal["metis", "ldg", "fennel", "hash"]

_PARTITIONERS: dict[str, Callable[[Graph, int], VertexParts]] = {"metis": metis, "ldg": ldg, "fennel": fennel}
_ATTEMPTS = 5  # at one batch, while workers are lost
_MASK = 2**64 - 1
_log = logging.getLogger("livegnn")


class _NumberedBatch(NamedTuple):
    version: int
    columns: BatchColumns
    owners: NewOwners


class _MergedChanges:
    """The changes of all parts, as a native engine has them."""

    def __init__(self, parts: list[PartChanges]) -> None:
        self._parts = parts

    def vertices(self) -> Int64Array:
        return np.sort(np.concatenate([part.slots for part in self._parts]))

    def count(self) -> int:
        return sum(len(part.slots) for part in self._parts)

    def stages(self) -> list[dict[str, Any]]:
        """Counts are sums; seconds those of the slowest part, as the parts wait for each other."""
        merged = [dict(stage) for stage in self._parts[0].stages]
        for part in self._parts[1:]:
            for sums, stage in zip(merged, part.stages, strict=True):
                for name in ("affected", "edges", "scanned", "reread"):
                    sums[name] += stage[name]
                for name in ("transform_seconds", "aggregate_seconds"):
                    sums[name] = max(sums[name], stage[name])
                if stage["path"] != "none":
                    sums["path"] = stage["path"]
                _add_extremes(sums, stage)
        return merged

    def seconds(self) -> tuple[float, float, float]:
        topology, publish, total = (max(times) for times in zip(*(part.seconds for part in self._parts), strict=True))
        return topology, publish, total

    def take_moves(self) -> None:
        return None


def _add_extremes(sums: dict[str, Any], stage: dict[str, Any]) -> None:
    if stage["extremes"] is None:
        return
    before = sums["extremes"] or {}
    sums["extremes"] = {name: count + before.get(name, 0) for name, count in stage["extremes"].items()}


class Cluster(Outputs, Consumer):
    """The live outputs of `model` on a graph that is cut over `workers` processes.

    y[v] = model(graph now)[v], for every live v, after every batch; the bits are those of one Engine

    Args:    graph: as the cluster begins; it is copied and not followed. The cluster's own is `cluster.graph`, without
             edges and features: vertices and ids can be asked of it, and a log attached.
             workers: how many, up to 64.  address: of a Ray cluster; by default Ray is started on this machine.
             partition: how vertices are given to workers at the start: "metis" (pymetis), "ldg", "fennel", "hash", or
             VertexParts.  newcomers: "ldg", "fennel" or "hash", for vertices that come later.
             threads: of each worker.  timeout_s: after which a worker that does not answer is started again.
             snapshot_batches: after so many batches every worker takes a snapshot to start again from.
             crew: what hosts the workers, by default a RayCrew.  scales: as of Engine.
    Raises:  as Engine; UsageError for other numbers; DataMissing without Ray, torch or pymetis.
    Exactness: bit-equal to an Engine with the whole graph: `state_digest()` is the same text.
    Limits:  incremental, eager and in memory: no strategy=, mode=, state= or memory_limit=; models with one row per
             edge are refused. The driver keeps an entry for each vertex.
    Source:  RIPPLE, section 5; docs/distributed.md for what differs.
    """

    _where = "embeddings"
    needs_all_edges = False

    def __init__(
        self,
        model: Model,
        graph: Graph,
        workers: int = 2,
        address: str | None = None,
        *,
        partition: Partitioner | VertexParts = "metis",
        newcomers: NewcomerRule = "ldg",
        threads: int = 1,
        timeout_s: float = 60.0,
        snapshot_batches: int = 1000,
        crew: Crew | None = None,
        scales: list[list[int]] | None = None,
    ) -> None:
        check_parts("Cluster", workers)
        refuse_other("Cluster", "model", model, Model)
        refuse_other("Cluster", "graph", graph, Graph)
        if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
            raise ValueInvalid(f"[Cluster] expected 1 to {THREADS_MAX} threads, got {threads!r}; choose such a number")
        timeout_s = checked_group("Cluster", workers, timeout_s)
        if type(snapshot_batches) is not int or snapshot_batches < 1:
            raise ValueInvalid(
                f"[Cluster] expected snapshot_batches of at least 1, got {snapshot_batches!r}; pass more"
            )
        if crew is not None and crew.size != workers:
            raise UsageError(f"[Cluster] expected a crew of {workers} workers, got one of {crew.size}; make as many")
        self._shape = GraphShape.of(graph)
        self._recipe = Recipe.of(model, self._shape)
        self._next: tuple[Model, Recipe, int] | None = None  # of a swap under way
        parts = _parts_of(graph, workers, partition)
        self.partition_report = PartitionReport.of(graph, parts)
        self.model, self.workers = model, workers
        self._snapshot_batches = snapshot_batches
        self._callbacks = Callbacks()
        self._batches: dict[int, _NumberedBatch] = {}  # since the snapshot
        self._answers: list[PartChanges] = []
        self._closed = False
        self._in_doubt = False  # a batch was given up that some workers may have made their own
        self._reading = threading.RLock()  # one call to the workers at a time; after the graph's lock
        self._directory = Directory(graph, Newcomers.of(graph, parts, rule=newcomers))
        self.graph = self._directory.graph
        self._version = self.graph.version
        self._crew: Crew = crew or RayCrew(workers, threads, timeout_s, address)
        try:
            pieces = cut(graph, parts.of_first(graph.slot_count), workers)
            self._crew.call([("start", self._version, piece, self._recipe, scales or []) for piece in pieces])
            del pieces
            self._take_snapshot()
        except BaseException:
            self._crew.close()
            raise
        self._directory.serve(self._work, self._check)
        self.graph.host.attach(self)

    # ---- writing

    def apply(self, updates: Updates) -> Changes:
        """Applies a batch on all workers, all or none; outputs are published on return.

        Returns: the vertices whose output changed, and the cost: counts of all workers, seconds of the slowest.
        Raises:  UpdateError as Engine.apply, of one bad update where there are several; WorkerUnavailable where workers
                 are lost again and again: then the batch is applied nowhere once they are back.
        """
        self._refuse_closed("apply")
        changes: Changes = self.graph.host.apply(updates, self)[1]
        return changes

    def published(self, change: Any, version: int) -> Changes:
        """Calls the callbacks of on_change; takes a snapshot, which nothing of the batch depends on any more."""
        changes = Changes(_MergedChanges(self._answers), self.graph, version)
        try:
            self._callbacks.call(changes)
        finally:
            self._take_snapshot_if_due()
        return changes

    def on_change(self, callback: Callback) -> Handle:
        """Calls callback(changes) in the applying thread after each version, in version order, as Engine.on_change."""
        self._refuse_closed("on_change")
        return self._callbacks.add(callback)

    def what_if(self, updates: Updates) -> ClusterWhatIf:
        """A view of the outputs as they would be after `updates`, as Engine.what_if; readers wait for its end, too."""
        self._refuse_closed("what_if")
        refuse_other("what_if", "updates", updates, Updates)
        return ClusterWhatIf(self, updates)

    def swap(self, model: Model) -> None:
        """Changes to another model, as Engine.swap: its state is built next to the old one, then all switch.

        It is a version without updates, whose changes name every vertex. Raises: as Engine.swap.
        """
        self._refuse_closed("swap")
        refuse_other("swap", "model", model, Model)
        self._switch(model, 0)

    def rescale(self, headroom: float = 512.0) -> None:
        """Chooses the fixed-point units anew from the present graph, as Engine.rescale: a version as that of swap()."""
        self._refuse_closed("rescale")
        self._switch(self.model, coarser_for(headroom))

    def _switch(self, model: Model, coarser: int) -> None:
        with self.graph.host.lock:
            self._next = (model, Recipe.of(model, self._shape), coarser)
            try:
                self.graph.host.apply(Updates(), self)
            finally:
                self._next = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes graph, model and scales to one file, as Engine.save does: an Engine can load it, and a Cluster of any
        number of workers. The driver holds the whole graph meanwhile. Raises: as Engine.save.
        """
        self._refuse_closed("save")
        with self.graph.host.writing("save"):
            settings = {"strategy": "incremental", "state": "fast", "mode": "eager", "hot": 1000, "path": "auto"}
            settings |= {"fanout": 10, "seed": 0}
            storage.save(file_path("save", path), self._whole_graph(), self.model, self.scales, settings)

    @classmethod
    def load(cls, path: str | os.PathLike[str], workers: int = 2, address: str | None = None, **options: Any) -> Self:
        """The cluster, or the Engine, that save() wrote, with the same scales and so the same bits.

        Args:   options: as of Cluster.  Raises: as Engine.load; as Cluster.
        """
        with storage.opened(path) as content:
            arrays, model, scales, _ = storage.parts(content)
        return cls(model, Graph.from_arrays(arrays), workers, address, scales=scales, **options)

    def _whole_graph(self) -> dict[str, AnyArray]:
        """As Graph.to_arrays() of the whole graph. The caller holds the lock."""
        whole, shares = self.graph.to_arrays(), self._all([("own_arrays",)] * self.workers)
        features = np.zeros((len(whole["store.live"]), shares[0]["features"].shape[1]), shares[0]["features"].dtype)
        for share in shares:
            features[share["slots"]] = share["features"]
        order = np.argsort(np.concatenate([share["id"] for share in shares]), kind="stable")
        for name in (name for name in shares[0] if name not in ("slots", "features", "vertex_type")):
            whole[f"store.{name}"] = np.ascontiguousarray(np.concatenate([share[name] for share in shares])[order])
        whole["store.features"] = features
        whole["store.counters"] = np.array([self._version, self._directory.next_edge_id], np.int64)
        whole["option.feature_width"] = np.array(features.shape[1], np.int64)
        if "types.widths" in whole:
            widths = [self._shape.feature_widths[name] for name in self._shape.vertex_types or ()]
            whole["types.widths"] = np.array(widths, np.int64)
        return whole

    # ---- reading and audits

    def verify(self) -> None:
        """Runs the model from scratch on all workers and compares. Raises: StateMismatch naming worker and vertex."""
        self._refuse_closed("verify")
        found = self._all([("audit",)] * self.workers)
        for worker, difference in enumerate(found):
            if difference is not None:
                raise StateMismatch(
                    f"[verify] expected the state of a run from scratch, got another {difference} at worker {worker}; "
                    "report it"
                )

    def state_digest(self) -> str:
        """Engine.state_digest() of one engine with the whole graph."""
        self._refuse_closed("state_digest")
        shares = self._all([("digests",)] * self.workers)
        graph, state = (sum(parts) & _MASK for parts in zip(*shares, strict=True))
        return storage.state_digest(self.model, graph, state)

    @property
    def version(self) -> int:
        """The version of the graph and of its outputs."""
        return self.graph.version

    @property
    def scales(self) -> list[list[int]]:
        """Exponents of the fixed-point units, as Engine.scales."""
        self._refuse_closed("scales")
        with self._reading:
            found: list[list[int]] = self._ask(0, ("scales",))
            return found

    def report(self) -> list[dict[str, Any]]:
        """By worker: vertices, ghosts, edges; rounds, bytes and rows sent since it started; its process id."""
        self._refuse_closed("report")
        return self._all([("facts",)] * self.workers)

    def close(self) -> None:
        """Ends the workers. A second call does nothing."""
        with self.graph.host.lock, self._reading:  # in the order of apply()
            if not self._closed:
                self._closed = True
                self.graph.host.detach(self)
                self._crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster(version={self.version}, workers={self.workers}, vertices={self.graph.vertex_count})"

    def _of(self) -> tuple[Graph, Model]:
        self._refuse_closed("embeddings")
        return self.graph, self.model

    def _read(self, *parts: over_types.Part) -> Rows:
        with self.graph.host.lock:  # ids, owners and rows of one version
            slots = over_types.slots_of(self.graph.host.ids, "embeddings", parts)
            _refuse_unknown("embeddings", self.graph.host.store.live(), slots)
            return _rows_of("read_rows", slots, self._directory.parts_of(slots), self.workers, self._all)

    def _edge_rows(self, edges: object) -> NoReturn:
        raise UsageError(
            "[edge_outputs] expected an Engine, got a Cluster, which keeps rows of vertices; use an Engine"
        )

    def _refuse_closed(self, where: str) -> None:
        if self._closed:
            raise UsageError(f"[{where}] expected an open cluster, got one that was closed; make another")

    # ---- workers

    def _all(self, calls: list[Call]) -> list[Any]:
        """Calls that change nothing, again where a worker was lost. Raises: WorkerUnavailable."""
        self._refuse_closed(str(calls[0][0]))
        with self._reading:
            self._settle()
            for _ in range(_ATTEMPTS):
                try:
                    return self._crew.call(calls)
                except WorkerUnavailable:
                    self._recover(None)
            return self._crew.call(calls)

    def _settle(self) -> None:
        """After a batch that was given up: workers that have made it their own start again without it."""
        if self._in_doubt:
            self._recover(None)

    def _opened(self, columns: BatchColumns, owners: NewOwners) -> list[PartChanges | PartRefusal]:
        """Has all workers look at a batch, until _close_view(). Raises: WorkerUnavailable."""
        calls: list[Call] = [("open_what_if", columns, owners)] * self.workers
        for _ in range(_ATTEMPTS):
            self._settle()
            try:
                return self._crew.call(calls)
            except WorkerUnavailable:
                self._recover(None)
                self._close_view()
        return self._crew.call(calls)

    def _close_view(self) -> None:
        if not self._closed:
            self._all([("close_what_if",)] * self.workers)

    def _check(self, columns: BatchColumns, owners: NewOwners) -> None:
        """Before a log writes a batch, which it cannot erase: whether the workers will take it. Raises: as apply()."""
        self._refuse_closed("apply")
        if self._next is not None or len(self.graph.host.recorders) == 1:  # the directory's own
            return
        with self._reading:
            try:
                refused = refusal_of(self._opened(columns, owners))
            finally:
                self._close_view()
            if refused is not None:
                raise refused

    def _ask(self, worker: int, call: Call) -> Any:
        calls: list[Call] = [("ready",)] * self.workers
        calls[worker] = call
        return self._all(calls)[worker]

    def _work(self, columns: BatchColumns, owners: NewOwners) -> None:
        """One batch on all workers; what the directory calls once every log has it."""
        with self._reading:
            self._settle()
            batch = _NumberedBatch(self._version + 1, columns, owners)
            if self._next is not None:
                return self._swap_workers(batch.version, *self._next)
            try:
                answers = self._applied(batch)
            except BaseException:  # the graph goes back; what workers have done is not known
                self._in_doubt = True
                raise
            refused = refusal_of(answers)
            if refused is not None:
                raise refused
            self._answers = [answer for answer in answers if isinstance(answer, PartChanges)]
            self._batches[batch.version] = batch
            self._version = batch.version

    def _swap_workers(self, version: int, model: Model, recipe: Recipe, coarser: int) -> None:
        """Every worker has a snapshot of the swap before any of them goes over, so one that is lost then follows."""
        while True:
            self._all([("prepare_swap", recipe, coarser)] * self.workers)
            try:
                snapshots = self._kept("snapshot_of_swap", version)
                break
            except WorkerUnavailable:
                self._recover(None)
        self._snapshots, self._snapshot_version, self._version = snapshots, version, version
        self._recipe, self.model = recipe, model
        self._batches.clear()
        self._answers = [PartChanges(np.flatnonzero(self.graph.host.store.live()), [], (0.0, 0.0, 0.0))]
        try:
            self._all([("commit_swap", version)] * self.workers)
            self._all([("forget_before", version)] * self.workers)
        except WorkerUnavailable:  # the swap stands: its snapshots are there
            self._in_doubt = True

    def _applied(self, batch: _NumberedBatch) -> list[PartChanges | PartRefusal]:
        for _ in range(_ATTEMPTS):
            try:
                return self._crew.call([("apply", *batch)] * self.workers)
            except WorkerUnavailable:
                answers = self._recover(batch)
                if answers is not None:
                    return answers
        raise WorkerUnavailable(
            f"[apply] expected workers that stay, got one lost at each of {_ATTEMPTS} attempts; the batch was not "
            "applied: look at the workers' memory, and try again"
        )

    def _take_snapshot(self) -> None:
        """Every worker has the new one before any drops what the old one needs."""
        self._snapshots = self._kept("take_snapshot", self._version)
        self._snapshot_version = self._version
        self._batches.clear()
        self._crew.call([("forget_before", self._version)] * self.workers)

    def _kept(self, method: str, version: int) -> list[Any]:
        """Handles of the snapshots of all workers. Raises: WorkerUnavailable where one of them has none."""
        handles = self._crew.keep([(method, version)] * self.workers)
        if not all(self._crew.call([("has_snapshot", version)] * self.workers)):
            raise WorkerUnavailable("[cluster] expected a snapshot of every worker, got one less; it is taken again")
        return handles

    def _take_snapshot_if_due(self) -> None:
        """The batch stands, whatever becomes of the snapshot."""
        if self._closed or len(self._batches) < self._snapshot_batches:
            return
        try:
            with self._reading:
                self._take_snapshot()
        except WorkerUnavailable:
            _log.warning("[cluster] a worker was lost at a snapshot of version %d; it is taken later", self._version)

    def _recover(self, batch: _NumberedBatch | None) -> list[PartChanges | PartRefusal] | None:
        """_recover_once(), again where a worker is lost meanwhile. Raises: WorkerUnavailable."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._recover_once(batch)
            except WorkerUnavailable:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _recover_once(self, batch: _NumberedBatch | None) -> list[PartChanges | PartRefusal] | None:
        """Brings all workers to one version: those that were lost start again from their snapshots and go through the
        batches since, while the others repeat their rounds. A batch that any worker has made its own stands.

        Returns: what the batch came to, where it stands; None where it has to be applied again.
        """
        versions = self._crew.reform()
        lost = [worker for worker, version in enumerate(versions) if version < 0]
        if batch is None:  # one that is ahead has made its own what was given up
            versions = [-1 if version > self._version else version for version in versions]
        behind = [0 <= version < self._snapshot_version for version in versions]
        if any(behind):  # they have yet to go over to another model
            go_over = ("commit_swap", self._snapshot_version)
            self._crew.call([go_over if late else ("ready",) for late in behind])
            versions = [max(version, self._snapshot_version) if version >= 0 else -1 for version in versions]
        if -1 in versions:
            calls: list[Call] = [
                ("start_again", snapshot, self._recipe) if version < 0 else ("repeat_start", self._snapshot_version)
                for version, snapshot in zip(versions, self._snapshots, strict=True)
            ]
            self._crew.call(calls)
            versions = [self._snapshot_version if version < 0 else version for version in versions]
        target = max(*versions, self._version)
        answers: list[PartChanges | PartRefusal] | None = None
        for version in range(min(versions) + 1, target + 1):
            one = batch if batch is not None and version == batch.version else self._batches[version]
            calls = [("apply", *one) if had < version else ("repeat", version) for had in versions]
            answers = self._crew.call(calls)
        self._in_doubt = False
        what = f"workers {lost} were lost" if lost else "a round broke"
        _log.warning("[cluster] %s; all are at version %d again", what, target)
        return answers if batch is not None and target == batch.version else None


class ClusterWhatIf(Outputs):
    """Outputs as they would be after some updates; valid inside its `with` block only."""

    _where = "what_if"

    def __init__(self, cluster: Cluster, updates: Updates) -> None:
        self._cluster, self._updates = cluster, updates
        self._ids: Any = None
        self._parts: list[PartChanges] = []
        self._place = ExitStack()

    def __enter__(self) -> Self:
        cluster, host = self._cluster, self._cluster.graph.host
        with ExitStack() as place:
            place.enter_context(host.writing("what_if"))
            place.enter_context(cluster._reading)
            host.same_unit("what_if", self._updates.time_unit)
            buffer, change = host.supposed(self._updates)
            cluster._directory.refuse_gaps(buffer)
            columns = buffer.to_arrays()
            self._owners = cluster._directory.owners_in(columns)[1]
            self._live = cluster._directory.live_after(columns, self._owners)
            place.callback(cluster._close_view)
            answers = cluster._opened(columns, self._owners)
            refused = refusal_of(answers)
            if refused is not None and refused.update is not None:
                refused = refused.reworded(update=int(buffer.given_places()[refused.update]))
            if refused is not None:
                raise refused
            self._parts = [answer for answer in answers if isinstance(answer, PartChanges)]
            self._ids, self._place = change or host.ids, place.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids = None
        self._place.close()

    def _call(self, calls: list[Call]) -> list[Any]:
        """A worker that is lost inside the block has no view when it is back."""
        try:
            return self._cluster._crew.call(calls)
        except WorkerUnavailable as cause:
            raise WorkerUnavailable(
                "[what_if] expected workers that stay while the view is open, got one that was lost; nothing has "
                "changed: open another view"
            ) from cause

    @property
    def vertices(self) -> Int64Array:
        """Slots of the vertices whose output the updates would change, (k,) int64, ascending."""
        self._of()
        return _MergedChanges(self._parts).vertices()

    def _of(self) -> tuple[Graph, Model]:
        if self._ids is None:
            raise UsageError(
                "[what_if] expected a view inside its with block, got one outside; read it before the block ends"
            )
        return self._cluster._of()

    def _read(self, *parts: over_types.Part) -> Rows:
        self._of()
        slots = over_types.slots_of(self._ids, "what_if", parts)
        _refuse_unknown("what_if", self._live, slots)
        cluster = self._cluster
        owners = cluster._directory.parts_of(slots, self._owners)
        return _rows_of("read_staged", slots, owners, cluster.workers, self._call)

    def _edge_rows(self, edges: object) -> NoReturn:
        self._cluster._edge_rows(edges)


def _rows_of(
    method: str, slots: Int64Array, owners: AnyArray, workers: int, call: Callable[[list[Call]], list[Any]]
) -> Float32Array:
    """Rows of vertices, each from its owner."""
    found: list[Float32Array] = call([(method, slots[owners == part]) for part in range(workers)])
    rows = np.empty((len(slots), found[0].shape[1]), np.float32)
    for part, mine in enumerate(found):
        rows[owners == part] = mine
    return rows


def _refuse_unknown(where: str, live: AnyArray, slots: Int64Array) -> None:
    known = (slots >= 0) & (slots < len(live))
    known[known] = live[slots[known]] != 0
    if not known.all():
        slot = int(slots[np.argmin(known)])
        raise VertexUnknown(f"[{where}] expected a live vertex, got {slot}; add the vertex first", vertex=slot)


def _parts_of(graph: Graph, workers: int, partition: Partitioner | VertexParts) -> VertexParts:
    if isinstance(partition, VertexParts):
        if partition.parts != workers:
            raise UsageError(f"[Cluster] expected parts for {workers} workers, got {partition.parts}; make as many")
        return VertexParts(workers, partition.of, owners=partition.owners)  # newcomers are added to it
    if partition == "hash" or workers == 1:
        return hashed(workers)
    if partition not in _PARTITIONERS:
        raise ValueInvalid(
            f"[Cluster] expected partition to be 'metis', 'ldg', 'fennel', 'hash' or VertexParts, got {partition!r}; "
            "choose one"
        )
    return _PARTITIONERS[partition](graph, workers)
