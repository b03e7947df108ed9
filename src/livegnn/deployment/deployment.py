"""Deployment: a graph, its durable history, and what is kept live on it. docs/service.md describes it.

    DIR/lock            held by the one process that has the deployment open
    DIR/history.db ...  the log, unless the configuration names another
    DIR/snapshots/      snapshots.py
    DIR/workers/        what lost workers start again from, where snapshots are in parts
    DIR/sinks/, DIR/dead-letters.jsonl      of sinks and sources: pipes/

Start = the newest sound snapshot, and the log's entries after it. The first start writes a snapshot of the graph with
which the history begins; after that the configuration's files of the graph are not read again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from livegnn.deployment import snapshots
from livegnn.deployment.beginning import first_graph
from livegnn.deployment.committer import CommitStats, Committer
from livegnn.deployment.config import (
    FILE_NAME,
    SHADOW_SUFFIX,
    DeploymentConfig,
    checked_config,
    over_workers,
    read_config,
)
from livegnn.deployment.consumers import Consumers
from livegnn.deployment.events import emit
from livegnn.deployment.explanations import Explanations
from livegnn.deployment.folder import locked, log_url
from livegnn.deployment.hub import Hub
from livegnn.deployment.keys import Applied, KeptKeys
from livegnn.deployment.live import GraphSource, LiveModel, in_process
from livegnn.deployment.note import Note, decode_note
from livegnn.deployment.pipes.pipes import Pipes
from livegnn.deployment.places import KeptPlaces, SourceMove
from livegnn.deployment.registry import ModelKey, Registry
from livegnn.deployment.release import log_options, release_entries
from livegnn.deployment.replayed import SwitchedParts, engines_can_wait
from livegnn.deployment.shadow import Shadow
from livegnn.deployment.temporal import temporal_model
from livegnn.deployment.vector_index import VectorIndex
from livegnn.errors import LiveGnnError, StoredStateInvalid, UsageError, VersionPending
from livegnn.graph import Graph, Updates
from livegnn.graph.saved import CapturedGraph
from livegnn.inference import Engine, Readout, storage
from livegnn.log import UpdateEntry, UpdateLog, open_log, replay
from livegnn.models.model import Model
from livegnn.sampling import PreSampler, SampleServer
from livegnn.stored import sync_folder
from livegnn.temporal.engine import TemporalEngine

if TYPE_CHECKING:
    from livegnn.distributed.cluster.cluster import Cluster
    from livegnn.distributed.cluster.succession import ClusterBalance
    from livegnn.distributed.partition import VertexParts
    from livegnn.distributed.partition.by_name import Partitioner
    from livegnn.temporal.models.interface import TemporalModel
    from livegnn.temporal.report import RoundReport

_log = logging.getLogger("livegnn")


class SnapshotReport(NamedTuple):
    """folder: of the snapshot.  pause_s: for how long it stopped writes."""

    folder: Path
    version: int
    pause_s: float


class RepartitionReport(NamedTuple):
    """workers: that serve now.  version: when they had taken over.  seconds: that it took."""

    workers: int
    version: int
    seconds: float


class Deployment:
    """One graph, one log, and engines, readouts and samplers that stay live; durable, in one process.

    Args:    config: a DeploymentConfig, its document as a dictionary, or the path of livegnn.toml.
             data: the folder of log and snapshots; made if it is not there.
             graph: with which the history begins, or a function that makes it; in place of the configuration's.
             once: sources end where nothing is left to read, rather than wait for more.
             workers: in place of the configuration's cluster.workers.
    Raises:  ValueInvalid, FileMissing for the configuration.

    Use it as `with Deployment(...) as deployment`, or call start() and close().
    """

    def __init__(
        self,
        config: DeploymentConfig | Mapping[str, Any] | str | os.PathLike[str],
        data: str | os.PathLike[str],
        *,
        graph: Graph | Callable[[], Graph] | None = None,
        once: bool = False,
        workers: int | None = None,
    ) -> None:
        self.folder = Path.cwd()  # of the paths in the configuration
        if isinstance(config, DeploymentConfig):
            self.config = config
        elif isinstance(config, Mapping):
            self.config = checked_config(config)
        else:
            path = Path(config)
            path = path / FILE_NAME if path.is_dir() else path
            self.config, self.folder = read_config(path), path.parent
        if workers is not None:
            self.config = over_workers(self.config, workers)
        self.data = Path(data)
        self.registry = Registry(self.folder / self.config.models, trust_pickle=self.config.trust_pickle)
        self.pipes = Pipes(self.config, self.folder, self.data, once=once)
        self._beginning = graph
        self._stack = ExitStack()
        self._snapshot_lock = threading.Lock()
        self._repartition_lock = threading.Lock()
        self._snapshot_due = threading.Event()
        self._snapshot_version = 0
        self._state = "new"

    # ---- life

    def start(self) -> Self:
        """Recovers the state and takes updates; returns itself.

        Raises:  UsageError where another process has the folder open, or the history does not belong to it;
                 StoredStateInvalid where every snapshot is damaged; LogDamaged, LogUnavailable; what making the first
                 graph, the models and the consumers raises. Then nothing stays open.
        """
        if self._state != "new":
            raise UsageError(f"[start] expected a new deployment, got one that is {self._state}; make another")
        begin = time.monotonic()
        with ExitStack() as stack:
            self.data.mkdir(parents=True, exist_ok=True)
            sync_folder(self.data.absolute().parent)
            stack.enter_context(locked(self.data))
            url = log_url(self.data, self.config.log.url)
            self.log = stack.enter_context(UpdateLog(open_log(url, **log_options(url, self.config.log))))
            if self.config.log.release and not self.log.log.can_release:
                _log.info("[start] %s keeps all of its entries: it cannot let go of old ones", self.log.log)
            self._recover(stack)
            self.pipes.start(self.graph, self._places.of, self._submit_moved)
            self._stack = stack.pop_all()
        self._state = "open"
        self._say_recovered(time.monotonic() - begin)
        self._watcher = threading.Thread(target=self._watch, name="livegnn-snapshots", daemon=True)
        self._watcher.start()
        self.consumers.train(self.config, self._publish)
        return self

    def _recover(self, stack: ExitStack) -> None:
        keys = KeptKeys(self.config.log.keys_max)
        captured = self._newest_snapshot()
        if captured is not None and isinstance(self._beginning, Graph):
            raise UsageError(
                f"[start] expected no graph for {self.data}, whose history has begun, got one; leave graph= out, or "
                "pass a function that makes it"
            )
        self._places = KeptPlaces()
        if captured is None:
            source, offset = self._first_graph(), 0
        else:
            source, offset = captured.source(), captured.offset
            keys.restore(captured.keys)
            self._places.move(captured.sources)
        if not self.config.cluster.workers:
            source = snapshots.in_process_graph(source)
        self.graph = source if isinstance(source, Graph) else source.graph
        self._keys, self._first = keys, self.graph.version - offset  # the version less the offset, from now on
        self._snapshot_version = self.graph.version
        stored = {} if captured is None else captured.engines
        temporal = {} if captured is None else captured.temporal
        newest = snapshots.newest_manifest(self.data)  # not that of `captured` where a sink is behind
        self._recorded = set() if newest is None else {*newest.engines, *newest.temporal}  # the history has their model
        self._recorded_version = -1 if newest is None else newest.version
        if engines_can_wait(self.config) and isinstance(source, Graph) and self.log.tail > offset:
            stored = self._replayed(stored)
            offset = self.offset
        self.consumers = Consumers(self.config, source, self.registry, stored, temporal, self.data)
        stack.callback(self._await_repartition)
        stack.callback(self.consumers.close)
        self.graph = self.consumers.graph
        self.hub = Hub(self.consumers.engines, lambda name: self.key_of(self.engine(name).model), self.config.changes)
        self.consumers.on_replaced.append(self.hub.replaced)
        stack.callback(self.hub.close)
        self.explanations = Explanations(self.consumers.engines, self.config.explain)
        stack.callback(self.explanations.close)
        if captured is None:
            snapshots.write(self.data, self._capture())
        stack.callback(self.pipes.close)
        self.pipes.follow(self.hub, self.graph)
        self._attachment = stack.enter_context(self.log.attach(self.graph, at=offset))
        try:
            self._committer = Committer(
                self._attachment,
                keys,
                self._places,
                group_updates_max=self.config.log.group_updates_max,
                queue_updates_max=self.config.log.queue_updates_max,
                followed=self._follow,
                rests=self.config.cluster.workers > 0,
            )
        except UsageError as cause:
            new = [name for name in self.consumers.engines if name not in self._recorded]
            if not new:
                raise
            raise UsageError(
                f"[start] expected {', '.join(new)}, new in the configuration, to take the log's entries since the "
                f"snapshot, got: {cause}; start once without it, so that the end writes a newer snapshot, then with it"
            ) from cause
        stack.callback(self._committer.close)
        if captured is not None:
            self._take_configured()
        self.indexes: dict[str, VectorIndex] = {}
        for one in self.config.index:
            self.indexes[one.name] = index = VectorIndex(in_process("index", self.engine(one.engine)), one)
            stack.callback(index.stop)

    def _replayed(self, stored: Mapping[str, snapshots.EnginePart]) -> Mapping[str, snapshots.EnginePart]:
        """Applies the log's tail to the graph; the engines' parts after it."""
        switched = SwitchedParts(self.config, stored)

        def seen(entry: UpdateEntry) -> None:
            note = decode_note(entry.note, entry.offset)
            self._keys.add(note.requests, self.graph.version)
            self._places.move(note.sources)
            switched.follow(note, entry)
            if note.engine:
                self._note_recorded(note.engine)

        replay(self.log, self.graph, self.offset, seen=seen)
        return switched.parts

    def _newest_snapshot(self) -> snapshots.Captured | None:
        """The newest one; with sinks, the newest that is not after the one that is behind most, if there is one.

        The log's entries after it are applied again, and give such a sink the changes that it did not deliver.
        """
        behind = self.pipes.oldest_position
        if behind is not None and any(int(one.name) <= behind for one in snapshots.listed(self.data)):
            with suppress(StoredStateInvalid):
                found = snapshots.newest(self.data, up_to=behind, set_aside=True)
                if found is not None:
                    return found
        return snapshots.newest(self.data, set_aside=True)

    def _say_recovered(self, seconds: float) -> None:
        text = f"[start] version {self.version}, from the snapshot of {self._snapshot_version}, in {seconds:.1f} s"
        replayed = self.version - self._snapshot_version
        fields: dict[str, Any] = {
            "snapshot_version": self._snapshot_version,
            "replayed": replayed,
            "seconds": round(seconds, 3),
        }
        emit("recovered", text, version=self.version, models=self.models, **fields)

    def _first_graph(self) -> GraphSource:
        if self.log.tail:
            raise StoredStateInvalid(
                f"[start] expected a snapshot in {self.data} for the log of {self.log.tail} entries, got none; restore "
                "the snapshots from a copy"
            )
        if self._beginning is None:
            return first_graph(self.config.graph, self.folder)
        return self._beginning if isinstance(self._beginning, Graph) else self._beginning()

    def _follow(self, note: Note, entry: UpdateEntry) -> None:
        """After an entry that the log had more than the graph."""
        if (use := self.consumers.temporal.get(note.engine)) is not None:
            use.key, use.configured = note.model, note.configured or use.configured
            self._note_recorded(note.engine)
        if entry.switch is not None and entry.switch.kind == "swap" and self.consumers.is_aside(note.engine):
            self.consumers.revive(note.engine, *storage.swapped(entry.switch))
        if note.engine in self.consumers.engines:
            self.consumers.note_key(self.consumers.engines[note.engine].model, note.model)
            self.consumers.configured[note.engine] = note.configured or self.consumers.configured[note.engine]
            self._note_recorded(note.engine)
            self.hub.switched(note.engine)

    def _note_recorded(self, name: str) -> None:
        if self.graph.version > self._recorded_version:  # else it may be gone again in the newest snapshot
            self._recorded.add(name)

    def _take_configured(self) -> None:
        """What the configuration says anew of an engine's model, and engines that are new in it, become entries."""
        for one in self.config.engine:
            wanted = [(one.name, one.model), (one.name + SHADOW_SUFFIX, one.shadow)]
            for name, reference in wanted[: 1 + bool(one.shadow)]:
                known = name in self._recorded and not self.consumers.is_aside(name)
                if not known or reference != self.consumers.configured[name]:
                    self._swap(name, self.registry.key(reference), reference)
        for each in self.config.temporal:
            if each.name not in self._recorded or each.model != self.consumers.temporal[each.name].configured:
                self._swap(each.name, self.registry.key(each.model), each.model)

    def close(self) -> None:
        """Answers what waits, writes a snapshot where the configuration says so, and closes everything.

        A second call does nothing.
        """
        if self._state != "open":
            return
        self._state = "closed"
        with self._stack:  # closes everything, whatever the snapshot raises
            self.pipes.stop_sources()
            self.consumers.end_training()
            self._committer.close()
            self.pipes.close()
            self._snapshot_due.set()
            self._watcher.join()
            with self._snapshot_lock:  # one of another thread ends before what it reads is closed
                if self.config.snapshots.at_close and self.graph.version != self._snapshot_version:
                    try:
                        self._write_snapshot()
                    except LiveGnnError:
                        _log.exception("[close] the snapshot failed; the next start replays the log instead")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- writing

    def apply(self, updates: Updates, *, key: str | None = None) -> Applied:
        """Applies a batch, all or none; returns when it is durable and visible.

        Args:    key: an idempotency key: a batch that comes again with its key is not applied again, and gets the first
                 answer, also after a restart.
        Raises:  UpdateError as Graph.apply; UsageError for a key with other updates, or a closed deployment;
                 Overloaded; LogUnavailable: the batch may stand or not, and its key makes it safe to send it again.
        """
        return self.submit(updates, key=key).result()

    def submit(self, updates: Updates, *, key: str | None = None, digest: str | None = None) -> Future[Applied]:
        """As apply(), at once: a future of the answer. digest: of the request, in place of that of the updates."""
        self._refuse_closed("apply")
        future = self._committer.submit(updates, key, digest)
        self._note_snapshot_due()
        return future

    def _submit_moved(self, updates: Updates, move: SourceMove) -> Future[Applied]:
        """A batch of a source, with the move of its place."""
        future = self._committer.submit(updates, move=move)
        self._note_snapshot_due()
        return future

    def _note_snapshot_due(self) -> None:
        every = self.config.snapshots.every_entries
        if every and self.graph.version - self._snapshot_version >= every:
            self._snapshot_due.set()

    def swap(self, engine: str, model: str) -> Applied:
        """Changes an engine to a model of the registry, "NAME" or "NAME/VERSION", as an entry of the log.

        Raises:  UsageError for an engine that is not there; as Registry and Engine.swap; then the old model stays.
        """
        self._refuse_closed("swap")
        return Applied(self._swap(engine, self.registry.key(model)), 0)

    def _swap(self, name: str, key: ModelKey, configured: str = "") -> int:
        if name in self.consumers.temporal:
            use, trained = self.consumers.temporal[name], temporal_model(self.registry, key)[0]
            with self.graph.host.lock:  # a snapshot has the model and its key, or neither
                version = self._committer.switch(lambda: use.engine.swap(trained), name, str(key), configured)
                use.key, use.configured = str(key), configured or use.configured
        else:
            model = self.registry.load(key)
            self.consumers.note_key(model, str(key))
            with self.graph.host.lock:  # nor is a shadow back in a batch, or in a snapshot, before its entry
                version = self._swap_engine(name, model, key, configured)
        emit("swap", f"[swap] {name}: {key} from version {version} on", engine=name, model=str(key), version=version)
        return version

    def _swap_engine(self, name: str, model: Model, key: ModelKey, configured: str) -> int:
        is_aside = self.consumers.is_aside(name)
        engine = self.consumers.revive(name, model) if is_aside else self.engine(name)
        try:
            switching = self._switching(name, lambda: engine.swap(model))
            version = self._committer.switch(switching, name, str(key), configured)
        except LiveGnnError as error:
            if is_aside and not self.consumers.is_aside(name):  # the history does not have it
                self.consumers.set_aside(name, str(error))
            raise
        self.consumers.configured[name] = configured or self.consumers.configured[name]
        return version

    def _publish(self, name: str, model: TemporalModel, report: RoundReport) -> None:
        """Of a round of training: the model and its memory become an entry of the log."""
        use, memory = self.consumers.temporal[name], None if model.memory is None else model.memory.state()
        key = f"round {report.round} of {name}"
        with self.graph.host.lock:
            self._committer.switch(lambda: use.engine.swap(model, memory=memory, upto=report.version), name, key)
            use.key = key

    def _switching(self, engine: str, work: Callable[[], object]) -> Callable[[], None]:
        """Work that makes an engine's every row another one, and says so to those who follow it."""

        def switch() -> None:
            work()
            self.hub.switched(engine)

        return switch

    def rescale(self, engine: str, headroom: float = 512.0) -> Applied:
        """Chooses an engine's fixed-point units anew, as an entry of the log. Raises: as swap and Engine.rescale."""
        self._refuse_closed("rescale")
        found = self.engine(engine)
        return Applied(self._committer.switch(self._switching(engine, lambda: found.rescale(headroom))), 0)

    def repartition(
        self,
        partition: Partitioner | VertexParts = "metis",
        workers: int | None = None,
        balance: ClusterBalance = "edges",
    ) -> RepartitionReport:
        """Has other workers take over, of an engine over workers; all else goes on meanwhile. See Cluster.repartition.

        A second call waits for the first one. The next start has the workers and parts of the configuration again.

        Raises:  UsageError for an engine in this process, and where the deployment is closed, also meanwhile; as
                 Cluster.repartition. Then the present workers go on.
        """
        with self._repartition_lock:
            self._refuse_closed("repartition")
            cluster = self.cluster
            if cluster is None:
                raise UsageError(
                    "[repartition] expected an engine over workers, got none; serve with [cluster] workers for it"
                )
            begin = time.monotonic()
            cluster.repartition(partition, workers, balance=balance)
            report = RepartitionReport(cluster.workers, self.version, round(time.monotonic() - begin, 3))
        text = f"[repartition] {report.workers} other workers took over by version {report.version}"
        emit("repartition", f"{text}, after {report.seconds:.1f} s", **report._asdict())
        return report

    def _await_repartition(self) -> None:
        """Until one that was under way has seen that the workers are closed."""
        with self._repartition_lock:
            pass

    # ---- reading

    @property
    def engines(self) -> Mapping[str, LiveModel]:
        """By name; a shadow has its engine's name and ".shadow"."""
        return self.consumers.engines

    @property
    def cluster(self) -> Cluster | None:
        """The engine, where it is over many workers."""
        return next((each for each in self.engines.values() if not isinstance(each, Engine)), None)

    @property
    def readouts(self) -> Mapping[str, Readout]:
        """By name."""
        return self.consumers.readouts

    @property
    def samplers(self) -> Mapping[str, PreSampler]:
        """By name."""
        return self.consumers.samplers

    @property
    def sample_servers(self) -> Mapping[str, SampleServer]:
        """By the name of the sampler that each answers from."""
        return self.consumers.servers

    @property
    def temporal(self) -> Mapping[str, TemporalEngine]:
        """By name."""
        return {name: use.engine for name, use in self.consumers.temporal.items()}

    @property
    def shadows(self) -> Mapping[str, Shadow]:
        """By the name of the engine whose shadow it is."""
        return self.consumers.shadows

    @property
    def models(self) -> dict[str, str]:
        """The registry key of each engine's model, "" for one that did not come from the registry.

        A temporal engine in training has the round that its model comes from.
        """
        found = {name: self.key_of(engine.model) for name, engine in self.engines.items()}
        found |= {one.name: one.model for one in self.config.sampler if one.model}
        return found | {name: use.key for name, use in self.consumers.temporal.items()}

    def key_of(self, model: Model) -> str:
        """The registry key of a model that an engine, or a snapshot of it, has."""
        return self.consumers.key_of(model)

    def on_replaced(self, callback: Callable[[str], object]) -> None:
        """Calls callback(name), under the graph's lock, after a shadow was set aside, or is back as another engine."""
        self.consumers.on_replaced.append(callback)

    def engine(self, name: str) -> LiveModel:
        """The engine of that name. Raises: UsageError."""
        if name not in self.consumers.engines:
            known = ", ".join(self.consumers.engines) or "none"
            raise UsageError(f"[engine] expected an engine among {known}, got {name!r}; name one of them")
        return self.consumers.engines[name]

    @property
    def version(self) -> int:
        """Of the graph: each entry of the log is one version."""
        return self.graph.version

    def offset_of(self, version: int) -> int:
        """Of the log's entry that made a version."""
        return version - self._first - 1

    @property
    def offset(self) -> int:
        """Entries of the log that the graph has."""
        return self.graph.version - self._first

    def wait(self, version: int, timeout: float | None = None) -> None:
        """Waits until a version can be read. Raises: VersionPending after `timeout` seconds; UsageError when closed."""
        future = self.reached(version)
        try:
            future.result(timeout)
        except TimeoutError as cause:
            raise self.pending(version, timeout) from cause
        finally:
            future.cancel()

    def reached(self, version: int) -> Future[None]:
        """A future that is done when a version can be read. Cancel it to wait no longer."""
        return self._committer.reached(version)

    def pending(self, version: int, timeout: float | None) -> VersionPending:
        """The error of who has waited too long for a version."""
        within = "" if timeout is None else f" within {timeout:g} s"
        return VersionPending(f"[at_least] expected version {version}{within}, got {self.version}; ask again later")

    @property
    def snapshot_version(self) -> int:
        """Of the newest snapshot."""
        return self._snapshot_version

    @property
    def commits(self) -> CommitStats:
        """What was written, and what waits."""
        return self._committer.stats

    @property
    def is_open(self) -> bool:
        """Whether it was started, and not closed."""
        return self._state == "open"

    @property
    def is_ready(self) -> bool:
        """Whether it takes updates: open, and sure of its log."""
        return self.is_open and self._committer.is_sound

    # ---- snapshots

    def snapshot(self) -> SnapshotReport:
        """Writes a snapshot of the present version. Reads go on; writes pause while the graph's arrays are copied.

        Raises:  UsageError when closed; StorageFailed where the disk refuses.
        """
        return self._snapshot("snapshot")

    def drain(self) -> SnapshotReport:
        """Ends sources and training, after what they have under way, and writes a snapshot; for a stop that is near.

        apply() still takes batches: the caller sends no more. Raises:  as snapshot.
        """
        self._refuse_closed("drain")
        self.pipes.stop_sources()
        self.consumers.end_training()
        return self._snapshot("drain")

    def _snapshot(self, where: str) -> SnapshotReport:
        with self._snapshot_lock:
            self._refuse_closed(where)  # also one that was closed meanwhile
            return self._write_snapshot()

    def _write_snapshot(self) -> SnapshotReport:
        """With the lock of snapshots."""
        captured = self._capture()
        folder = snapshots.write(self.data, captured)
        snapshots.prune(self.data, self.config.snapshots.keep)
        self._snapshot_version = captured.version
        release_entries(self.log, self.data, self.config.log)
        pause_ms = round(captured.pause_s * 1e3, 1)
        text = f"[snapshot] version {captured.version}, writes paused for {pause_ms} ms"
        emit("snapshot", text, version=captured.version, pause_ms=pause_ms)
        return SnapshotReport(folder, captured.version, captured.pause_s)

    def _capture(self) -> snapshots.Captured:
        """The content of a snapshot. Writes stop meanwhile, reads do not."""
        if self.config.snapshots.in_parts and self.cluster is not None:
            return self._captured_in_parts(self.cluster)
        graph = self.cluster.capture() if self.cluster is not None else CapturedGraph(self.graph.host)
        with self.graph.host.lock, snapshots.Pause() as pause:
            graph.take()
            engines, keys, sources = self.consumers.parts(), self._keys.rows(), self._places.all()
            temporal = {name: use.part() for name, use in self.consumers.temporal.items()}
        offset, arrays = graph.version - self._first, graph.to_arrays()
        return snapshots.Captured(
            graph.version, offset, arrays, engines, keys, pause.seconds, temporal=temporal, sources=sources
        )

    def _captured_in_parts(self, cluster: Cluster) -> snapshots.Captured:
        """The same, but for the graph, which the workers write to a folder: writes stop until it is written."""
        folder = snapshots.folder_of_parts(self.data)
        with self.graph.host.lock, snapshots.Pause() as pause:
            cluster.save(folder, in_parts=True)
            version, engines, keys = self.graph.version, self.consumers.parts(), self._keys.rows()
            sources = self._places.all()
        offset = version - self._first
        return snapshots.Captured(version, offset, folder, engines, keys, pause.seconds, sources=sources)

    def _watch(self) -> None:
        while True:
            self._snapshot_due.wait()
            self._snapshot_due.clear()
            if self._state != "open":
                return
            with self._snapshot_lock:
                if self.graph.version - self._snapshot_version < self.config.snapshots.every_entries:
                    continue
                try:
                    self._write_snapshot()
                except Exception:  # the next one is tried when it is due
                    _log.exception("[snapshot] failed; the log has all that it would hold")

    def _refuse_closed(self, where: str) -> None:
        if self._state != "open":
            raise UsageError(f"[{where}] expected an open deployment, got one that is {self._state}; start it")

    def __repr__(self) -> str:
        return f"Deployment({str(self.data)!r}, {self._state})"
