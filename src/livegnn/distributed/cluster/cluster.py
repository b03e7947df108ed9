"""Cluster: the Engine's verbs over many workers, and the same bits. The driver's half; docs/distributed.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from livegnn.distributed.cluster.batch import PartChanges, SlotBatch
from livegnn.distributed.cluster.captured import CapturedCluster
from livegnn.distributed.cluster.changes import MergedChanges
from livegnn.distributed.cluster.crew import Crew
from livegnn.distributed.cluster.cut import check_parts
from livegnn.distributed.cluster.directory import Directory
from livegnn.distributed.cluster.driver_state import ClusterSettings, DriverState, notes_of
from livegnn.distributed.cluster.last_switch import LastSwitch
from livegnn.distributed.cluster.notes import DriverNotes, record_of
from livegnn.distributed.cluster.part import NewOwners
from livegnn.distributed.cluster.part_files import new_folder, share_name, write_directory
from livegnn.distributed.cluster.parts_folder import PartsFolder
from livegnn.distributed.cluster.ray_crew import RayCrew
from livegnn.distributed.cluster.reading import refuse_unknown, rows_of
from livegnn.distributed.cluster.reads import Reads
from livegnn.distributed.cluster.recipe import GraphShape, Recipe
from livegnn.distributed.cluster.recovery import RecoveringCrew
from livegnn.distributed.cluster.refusals import PartRefusal, refusal_of
from livegnn.distributed.cluster.snapshot_files import SnapshotFolder
from livegnn.distributed.cluster.sources import GraphSource, WholeGraph
from livegnn.distributed.cluster.succession import ClusterBalance, Succession
from livegnn.distributed.cluster.what_if import ClusterWhatIf
from livegnn.distributed.exchange import checked_group
from livegnn.distributed.partition import NewcomerRule, PartitionReport, VertexParts
from livegnn.distributed.partition.by_name import Partitioner
from livegnn.errors import FileMissing, LiveGnnError, StateMismatch, UsageError, ValueInvalid
from livegnn.graph.checks import shown
from livegnn.graph.consumers import Recorded, Switch, Switching
from livegnn.graph.graph import Graph
from livegnn.graph.threads import THREADS_MAX
from livegnn.graph.updates import Updates, VertexType
from livegnn.inference import hetero as over_types
from livegnn.inference import storage
from livegnn.inference.best import BestSlots, Comparison
from livegnn.inference.callbacks import Callback, Callbacks, Handle
from livegnn.inference.changes import Changes
from livegnn.inference.engine import Engine, coarser_for, refuse_other
from livegnn.inference.predict import Rows
from livegnn.inference.views import Outputs
from livegnn.models.model import Model
from livegnn.stored import file_path
from livegnn.types import Float32Array, Int64Array

_MASK = 2**64 - 1
_log = logging.getLogger("livegnn")


class Cluster(Outputs, Switching):
    """The live outputs of `model` on a graph that is cut over `workers` processes.

    y[v] = model(graph now)[v], for every live v, after every batch; the bits are those of one Engine

    Args:    graph: as the cluster begins; it is copied and not followed. The cluster's own is `cluster.graph`, without
             edges and features: vertices and ids can be asked of it, and a log attached.
             workers: how many, up to 64.  address: of a Ray cluster; by default Ray is started on this machine.
             partition: how vertices are given to workers at the start: "metis" (pymetis; by default), "ldg", "fennel",
             "hash", or VertexParts.  newcomers: "ldg", "fennel" or "hash", for vertices that come later.
             threads: of each worker.  timeout_s: after which a worker that does not answer is started again.
             snapshot_batches: after so many batches every worker takes a snapshot to start again from.
             snapshots: a folder for them that all hosts see; by default they lie in Ray's memory.
             detached: a name under which the workers outlive this process, for attach(); in a Ray that does so, too.
             crew: what hosts the workers, by default a RayCrew.  scales, name: as of Engine.
    Raises:  as Engine; UsageError for other numbers and for workers' names that are taken; DataMissing without Ray
             or pymetis; DriverReplaced, from any call, after another process has attached to the workers.
    Exactness: bit-equal to an Engine with the whole graph: `state_digest()` is the same text.
    Limits:  incremental, eager and in memory: no strategy=, mode=, state= or memory_limit=; models with one row per
             edge are refused. The driver keeps an entry for each vertex.
    Source:  RIPPLE, section 5; docs/distributed.md for what differs.
    """

    _where = "embeddings"
    needs_all_edges = False
    mode = "eager"
    is_eager = True

    def __init__(
        self,
        model: Model,
        graph: Graph | PartsFolder,
        workers: int = 2,
        address: str | None = None,
        *,
        partition: Partitioner | VertexParts | None = None,
        newcomers: NewcomerRule = "ldg",
        threads: int = 1,
        timeout_s: float = 60.0,
        snapshot_batches: int = 1000,
        snapshots: str | os.PathLike[str] | None = None,
        detached: str | None = None,
        crew: Crew | None = None,
        scales: list[list[int]] | None = None,
        name: str = "",
        **of_an_engine: Any,
    ) -> None:
        _refuse_options(of_an_engine)
        check_parts("Cluster", workers)
        refuse_other("Cluster", "model", model, Model)
        if not isinstance(graph, PartsFolder):
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
        source: GraphSource = graph if isinstance(graph, PartsFolder) else WholeGraph(graph)
        recipe = Recipe.of(model, source.shape)
        _log.info("[cluster] vertices: %d; workers: %d", source.graph.vertex_count, workers)
        parts = source.parts(workers, partition)
        directory = Directory(source.graph, source.newcomers(parts, newcomers))
        folder = None if snapshots is None else SnapshotFolder(snapshots)
        if folder is not None:
            folder.begin()
        settings = ClusterSettings(snapshot_batches, name, None if folder is None else str(folder.path))
        self._begin(model, source.shape, directory, settings)
        _log.info("[cluster] workers start")
        crew = crew or RayCrew(workers, threads, timeout_s, address, detached)
        self._serve(crew, recipe, detached is not None, folder)
        _log.info("[cluster] the workers take their parts and run the model")
        self._crew.start(source.steps(recipe, parts, scales or []))
        _log.info("[cluster] all are at version %d", self.version)

    def _begin(self, model: Model, shape: GraphShape, directory: Directory, settings: ClusterSettings) -> None:
        self.model, self.shape, self._directory, self.graph = model, shape, directory, directory.graph
        self._settings, self.name = settings, settings.name
        self.reads = Reads(self.graph.host.lock, self.rows_at)
        self.generation = 0  # swaps and rescales: every row is another one
        self._callbacks = Callbacks()
        self._answers: list[PartChanges] | None = None  # of the batch at work; None: any vertex may have changed

    def _serve(self, crew: Crew, recipe: Recipe, detached: bool, folder: SnapshotFolder | None) -> None:
        batches, number = self._settings.snapshot_batches, self._settings.crew
        self._crew = RecoveringCrew(crew, recipe, self.version, batches, self._driver_state, detached, folder, number)
        self._succession = Succession(self._directory, self._crew, self._state)
        self._directory.serve(self)
        self.graph.host.attach(self)

    @classmethod
    def attach(
        cls, detached: str, address: str | None = None, *, timeout_s: float | None = None, crew: Crew | None = None
    ) -> Self:
        """The cluster with detached workers of that name, whose driver has died or is to be replaced.

        The workers keep what they have, and nothing is computed again. A batch that was under way stands everywhere or
        nowhere: compare `version` before you apply it again. A driver that lives after all is refused from now on.
        Callbacks and logs are attached anew.

        Args:    address: of the Ray cluster.  timeout_s: as of Cluster; by default as it was.  crew: for a cluster that
                 is not on Ray, its workers.
        Raises:  UsageError without such workers; WorkerUnavailable where one was lost together with the driver, and
                 snapshots= names no folder; StoredStateInvalid naming a file there that is damaged.
        """
        crew = crew or RayCrew.attach(detached, address, timeout_s)
        notes, state, folder, snapshots = notes_of(crew, detached)
        cluster = cls.__new__(cls)
        cluster._begin(state.model, state.shape, state.made_directory(), state.settings)
        for batch in notes.batches:
            cluster._directory.replay(batch.updates())
        cluster._serve(crew, state.recipe, True, folder)
        cluster._crew.resume(notes, snapshots)
        return cluster

    @classmethod
    def restore(
        cls,
        snapshots: str | os.PathLike[str],
        address: str | None = None,
        *,
        threads: int = 1,
        timeout_s: float = 60.0,
        detached: str | None = None,
        crew: Crew | None = None,
    ) -> Self:
        """The cluster whose snapshots lie in that folder, none of whose workers lives: as it was at the newest one.

        Batches after that are gone, but for those that a log has: attach it, and call catch_up(). A driver of these
        snapshots that lives after all is refused at its next one.

        It has as many workers as it had.

        Args:    the others as of Cluster.
        Raises:  FileMissing without a snapshot; StoredStateInvalid naming a file that is damaged; as Cluster.
        """
        if not os.path.isdir(snapshots):
            raise FileMissing(f"[restore] expected a folder of snapshots, got {snapshots}; name the one of snapshots=")
        folder = SnapshotFolder(snapshots)
        found = folder.claim()
        state = DriverState.from_arrays(dict(found.state))
        cluster, workers = cls.__new__(cls), len(found.parts)
        settings = state.settings._replace(snapshots=str(folder.path))
        cluster._begin(state.model, state.shape, state.made_directory(), settings)
        crew = crew or RayCrew(workers, threads, timeout_s, address, detached)
        cluster._serve(crew, state.recipe, detached is not None, folder)
        try:
            cluster._crew.resume(DriverNotes(found.version, state.to_bytes(), []), found.parts)
        except BaseException:
            cluster.close()
            raise
        return cluster

    # ---- writing

    def apply(self, updates: Updates) -> Changes:
        """Applies a batch on all workers, all or none; outputs are published on return.

        Returns: the vertices whose output changed, and the cost: counts of all workers, seconds of the slowest.
        Raises:  UpdateError as Engine.apply, of the first bad update; WorkerUnavailable where workers are lost again
                 and again: then the batch is applied nowhere once they are back.
        """
        self._crew.refuse_closed("apply")
        changes: Changes = self.graph.host.apply(updates, self)[1]
        return changes

    def published(self, change: Any, version: int) -> Changes:
        """Calls the callbacks of on_change; takes a snapshot, which nothing of the batch depends on any more."""
        answers, self._answers = self._answers, None
        if answers is None:
            answers = [PartChanges.of_slots(np.flatnonzero(self.graph.host.store.live()))]
        changes = Changes(MergedChanges(answers), self.graph, version)
        try:
            self._callbacks.call(changes)
        finally:
            self.reads.answer()
            self._crew.take_snapshot_if_due()
            self._crew.raise_late()
        return changes

    def on_change(self, callback: Callback) -> Handle:
        """Calls callback(changes) in the applying thread after each version, in version order, as Engine.on_change."""
        self._crew.refuse_closed("on_change")
        return self._callbacks.add(callback)

    def what_if(self, updates: Updates) -> ClusterWhatIf:
        """A view of the outputs as they would be after `updates`, as Engine.what_if; readers wait for its end, too."""
        self._crew.refuse_closed("what_if")
        refuse_other("what_if", "updates", updates, Updates)
        return ClusterWhatIf(self, self._directory, self._crew, updates)

    def swap(self, model: Model) -> None:
        """Changes to another model, as Engine.swap: its state is built next to the old one, then all switch.

        It is a version without updates, whose changes name every vertex. Raises: as Engine.swap.
        """
        self._crew.refuse_closed("swap")
        refuse_other("swap", "model", model, Model)
        self._switch("swap", model)

    def rescale(self, headroom: float = 512.0) -> None:
        """Chooses the fixed-point units anew from the present graph, as Engine.rescale: a version as that of swap()."""
        self._crew.refuse_closed("rescale")
        self._switch("rescale", self.model, coarser_for(headroom))

    def redo(self, switch: Switch) -> None:
        """Makes a recorded swap or rescale again, with its scales. Raises: as swap()."""
        model, scales = storage.switched(switch, self.model)
        self._switch(switch.kind, model, scales=scales, recorded=switch)

    def _switch(
        self,
        kind: str,
        model: Model,
        coarser: int = 0,
        *,
        scales: list[list[int]] | None = None,
        recorded: Switch | None = None,
    ) -> None:
        """As the next version. The workers' models are made before any log has the switch, and go over after that."""
        host, recipe = self.graph.host, Recipe.of(model, self.shape)
        with host.writing(kind), self._crew.lock:
            chosen = self._crew.prepare_swap(recipe, coarser, scales or [])
            state = self._driver_state(model, empty=1) if self._crew.state_wanted else None
            last = LastSwitch(self._crew, recipe, chosen, state)
            host.add_recorder(last)
            try:
                switch = recorded or storage.switch_of(self.name, kind, model, chosen)
                host.switch(self, None, switch, lambda: self._take(model))
            except BaseException:
                self._crew.drop_swap()
                raise
            finally:
                host.drop_recorder(last)

    def _take(self, model: Model) -> None:
        self.model, self._answers = model, None
        self.generation += 1

    def repartition(
        self, partition: Partitioner | VertexParts, workers: int | None = None, *, balance: ClusterBalance = "edges"
    ) -> None:
        """Gives vertices to other workers, or to another number of them, while batches go on.

        New workers start from a snapshot of the present ones, cut it among themselves and apply the batches since. Then
        they take over. Batches and reads wait for the snapshot, and while the new workers apply the last batches. No
        version is made: model, units and outputs keep their bits. Newcomers follow the new parts.

        Args:    partition: VertexParts or "hash"; or the name of a partitioner, for which the driver holds the ends of
                 all edges meanwhile: then as many vertices stay as can.
                 workers: how many there are to be; by default as many as there are.
                 balance: what workers are to have the same of, for the name of a partitioner: "edges"; or "work", in
                 how many batches each vertex has changed since the present workers came. See report().
        Raises:  UsageError; ValueInvalid; DataMissing; StorageFailed; DriverReplaced; WorkerUnavailable where new
                 workers are lost again and again. Then the present ones go on.
        Cost:    a start of every worker next to the present ones, in time and memory.
        """
        self._succession.run(partition, workers, balance)

    @property
    def partition_report(self) -> PartitionReport:
        """Cut, balance and halo of the parts as they are."""
        self._crew.refuse_closed("partition_report")
        return PartitionReport.joined(self._crew.each("partition_report", self.graph.vertex_types or ()))

    def save(self, path: str | os.PathLike[str], *, in_parts: bool = False) -> None:
        """Writes graph, model and scales to one file, as Engine.save does: an Engine can load it, and a Cluster of any
        number of workers. The driver holds the whole graph meanwhile.

        Args:    in_parts: to a new folder instead, in which each worker writes a file. The driver holds no more than it
                 does anyway; a Cluster of any number of workers can load it. All hosts must see the folder.
        Raises:  as Engine.save; UsageError for a folder that is there.
        """
        self._crew.refuse_closed("save")
        with self.graph.host.writing("save"):
            if in_parts:
                self._save_parts(path)
                return
            captured = self.capture()
            captured.take()
            storage.save(file_path("save", path), captured.to_arrays(), self.model, self.scales, self.settings)

    def _save_parts(self, path: str | os.PathLike[str]) -> None:
        directory = self._directory
        with new_folder(path) as folder:
            written = self._crew.all([("save_share", folder / share_name(i)) for i in range(self.workers)])
            parts, digests = directory.newcomers.parts, [digest for digest, _ in written]
            counts = {"next_edge_id": directory.next_edge_id, "edges": sum(edges for _, edges in written)}
            kept: dict[str, Any] = {"parts": parts, "model": self.model, "scales": self.scales, "name": self.name}
            file_of = parts.of_first(self.graph.slot_count)
            write_directory(folder, self.graph, self.shape, file_of, digests, **counts, **kept)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        workers: int = 2,
        address: str | None = None,
        *,
        model: Model | None = None,
        **options: Any,
    ) -> Self:
        """The cluster, or the Engine, that save() wrote, with the same scales and so the same bits.

        Args:   path: of a file; or of a folder (in_parts=True, or a PartsWriter's). Workers read that and cut it among
                themselves, by default into the parts that were saved, as far as their number allows.
                model: to run another one, or where the folder has none; then units are chosen anew.
                options: as of Cluster.
        Raises: as Engine.load; as Cluster; UsageError without a model.
        """
        if os.path.isdir(path):
            folder = PartsFolder(path)
            if model is None:
                model, options = folder.model, {"scales": folder.scales, "name": folder.name, **options}
            if model is None:
                raise UsageError(f"[load] expected model= for {path}, which has none, got none; pass the model to run")
            return cls(model, folder, workers, address, **options)
        if model is not None:
            raise UsageError("[load] expected no model= with a file, which has one, got one; call swap() after it")
        with storage.opened(path) as content:
            arrays, saved, scales, settings = storage.parts(content)
        options = {"name": settings.get("name", ""), **options}
        return cls(saved, Graph.from_arrays(arrays), workers, address, scales=scales, **options)

    def capture(self) -> CapturedCluster:
        """What copies the whole graph as it is, for a snapshot: see CapturedCluster."""
        return CapturedCluster(self._directory, self._crew, self.shape)

    @property
    def settings(self) -> dict[str, Any]:
        """The options that save() writes, as Engine has them."""
        settings: dict[str, Any] = {"strategy": "incremental", "state": "fast", "mode": "eager", "hot": 1000}
        return settings | {"path": "auto", "fanout": 10, "seed": 0, "name": self.name}

    def _driver_state(self, model: Model | None = None, empty: int = 0) -> bytes:
        """What another driver goes on from, at this version, or at one without updates after it."""
        return self._state(model, empty).to_bytes()

    def _state(self, model: Model | None = None, empty: int = 0) -> DriverState:
        settings = self._settings._replace(crew=self._crew.number)
        return DriverState(empty, self._directory.to_arrays(), model or self.model, self.shape, settings)

    # ---- reading and audits

    def verify(self) -> None:
        """Runs the model from scratch on all workers and compares. Raises: StateMismatch naming worker and vertex."""
        self._crew.refuse_closed("verify")
        found = self._crew.each("audit")
        for worker, difference in enumerate(found):
            if difference is not None:
                raise StateMismatch(
                    f"[verify] expected the state of a run from scratch, got another {difference} at worker {worker}; "
                    "report it"
                )

    def state_digest(self) -> str:
        """Engine.state_digest() of one engine with the whole graph."""
        self._crew.refuse_closed("state_digest")
        shares = self._crew.each("digests")
        graph, state = (sum(parts) & _MASK for parts in zip(*shares, strict=True))
        return storage.state_digest(self.model, graph, state)

    @property
    def workers(self) -> int:
        """How many there are."""
        return self._crew.size

    @property
    def version(self) -> int:
        """The version of the graph and of its outputs."""
        return self.graph.version

    @property
    def scales(self) -> list[list[int]]:
        """Exponents of the fixed-point units, as Engine.scales."""
        self._crew.refuse_closed("scales")
        found: list[list[int]] = self._crew.ask(0, "scales")
        return found

    def keep_moves(self, rows_max: int) -> None:
        """From now on changes.take_moves() has the rows that a batch moved, as of an Engine that is asked for them.

        rows_max: of a batch on one worker; of more None is kept.  -1: no more.
        """
        self._crew.keep_moves(rows_max)

    def rows_at(self, slots: Int64Array) -> Float32Array:
        """(k, d) float32 rows of live slots of the graph."""
        return rows_of("read_rows", slots, self._directory.parts_of(slots), self.workers, self._crew.all)

    def out_slots(self, slot: int) -> Int64Array:
        """Slots of the out-neighbours of a live vertex. The caller holds the graph's lock."""
        asked = np.array([slot], np.int64)
        owners = self._directory.parts_of(asked)
        return np.concatenate(self._crew.all([("out_slots", asked[owners == i]) for i in range(self.workers)]))

    def best_slots(self, comparison: Comparison, vertex_type: VertexType | None, left_out: Int64Array) -> BestSlots:
        """The best of all vertices, of one type where there are types, but for those of some slots.

        Each worker looks at its own; only what may be among the best crosses. The caller holds the graph's lock.

        Raises:  ColumnMissing, ValueInvalid for another type; UsageError inside a what_if.
        """
        schema = self.graph.host.schema
        code = schema.vertex_code("topk", vertex_type)
        of_type = code if schema.has_types else None
        return comparison.merged(self._crew.each("best_slots", comparison, of_type, left_out))

    def state_bytes(self) -> dict[str, int]:
        """Bytes on all workers by part, as of an Engine, and of their graphs."""
        self._crew.refuse_closed("state_bytes")
        sizes: list[dict[str, int]] = self._crew.each("sizes")
        return {name: sum(each[name] for each in sizes) for name in sizes[0]}

    @property
    def edge_count(self) -> int:
        """Edges of the whole graph. The workers count them: a pass over all."""
        self._crew.refuse_closed("edge_count")
        return sum(self._crew.each("edge_count"))

    def report(self) -> list[dict[str, Any]]:
        """By worker: vertices, ghosts, edges; its process id. Since its part was made: rounds, bytes and rows sent, and
        work, the outputs that batches have changed.
        """
        self._crew.refuse_closed("report")
        return self._crew.each("facts")

    def refuse_closed(self, where: str) -> None:
        """Raises: UsageError once it is closed."""
        self._crew.refuse_closed(where)

    def close(self) -> None:
        """Ends the workers, also those that were to take over. A second call does nothing."""
        with self.graph.host.lock, self._crew.lock:  # in the order of apply()
            if not self._crew.closed:
                self.graph.host.detach(self)
                try:
                    self._crew.close()
                finally:
                    self.reads.close()
        self._succession.interrupt()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # mypy knows what there is

        def __getattr__(self, name: str) -> NoReturn:
            if not name.startswith("_") and hasattr(Engine, name):
                raise AttributeError(
                    f"[{name}] expected an Engine, got a Cluster, which has none; use an Engine for it"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Cluster(version={self.version}, workers={self.workers}, vertices={self.graph.vertex_count})"

    def _of(self) -> tuple[Graph, Model]:
        self._crew.refuse_closed("embeddings")
        return self.graph, self.model

    def _read(self, *parts: over_types.Part) -> Rows:
        return self.reads.run(lambda: self._read_now(parts))  # ids, owners and rows are of one version

    def _read_now(self, parts: tuple[over_types.Part, ...]) -> Rows:
        slots = over_types.slots_of(self.graph.host.ids, "embeddings", parts)
        refuse_unknown(self.graph.host.store.live(), slots)
        return self.reads.rows(slots)

    def _edge_rows(self, edges: object) -> NoReturn:
        raise UsageError(
            "[edge_outputs] expected an Engine, got a Cluster, which keeps rows of vertices; use an Engine"
        )

    # ---- for the directory

    def apply_batch(self, batch: SlotBatch, owners: NewOwners, recorded: Recorded) -> None:
        """See directory.Workers."""
        self._crew.refuse_closed("apply")
        self._answers = _unless_refused(self._crew.apply(batch, owners, self._record(recorded)))

    def hold_batch(self, batch: SlotBatch, owners: NewOwners, recorded: Recorded) -> None:
        """See directory.Workers."""
        self._crew.refuse_closed("apply")
        _unless_refused(self._crew.hold(batch, owners, self._record(recorded)))

    def _record(self, recorded: Recorded) -> bytes | None:
        return record_of(recorded) if self._crew.keeps_notes else None

    def publish_held(self) -> None:
        """See directory.Workers."""
        self._answers = self._crew.publish()

    def take_back_held(self) -> None:
        """See directory.Workers."""
        self._crew.take_back()

    def refusal(self, batch: SlotBatch, owners: NewOwners) -> LiveGnnError | None:
        """See directory.Workers. Raises: WorkerUnavailable."""
        self._crew.refuse_closed("apply")
        with self._crew.lock:
            try:
                return refusal_of(self._crew.open_view(batch, owners))
            finally:
                self._crew.close_view()


def _refuse_options(given: dict[str, Any]) -> None:
    """Raises: UsageError for an option of an Engine; TypeError for what is no option."""
    for option, value in given.items():
        if option not in signature(Engine).parameters:
            raise TypeError(f"Cluster() got an unexpected keyword argument {option!r}")
        raise UsageError(
            f"[Cluster] expected no {option}=, which is an Engine's, got {shown(value)}; leave it out, or use an Engine"
        )


def _unless_refused(answers: Sequence[PartChanges | PartRefusal]) -> list[PartChanges]:
    """Raises: the error of the update that a worker refuses."""
    refused = refusal_of(answers)
    if refused is not None:
        raise refused
    return [answer for answer in answers if isinstance(answer, PartChanges)]
