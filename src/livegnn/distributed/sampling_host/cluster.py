"""SampleCluster: sampling and serving workers as Ray actors, on this machine or on many."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from livegnn import _native
from livegnn.distributed.ray_session import connect
from livegnn.distributed.sampling_host.actors import RayHosts
from livegnn.distributed.sampling_host.config import ClusterConfig, Hosting
from livegnn.distributed.sampling_host.following import LoadFollower
from livegnn.distributed.sampling_host.worker_host import HostStatus
from livegnn.errors import LogConflict, LogUnavailable, UsageError, WorkerUnavailable
from livegnn.graph import Graph, Updates
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.coordinator import Coordinator, Who, write_start
from livegnn.sampling.cluster.front_end import FrontEnd, SamplingCluster
from livegnn.sampling.cluster.partition import Owners, Serving, check_owners, check_serving, even_owners, even_serving
from livegnn.sampling.cluster.runtime import Settings
from livegnn.sampling.cluster.sizes import SizeRules
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.source import ReadOptions, Response
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.query import Query
from livegnn.types import Int64Array

_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.001, 0.01  # between turns without work: each twice as long as the one before
_ASK_AGAIN_SECONDS = 0.01
_RETRY_SECONDS = 0.2
_SETTLE_SECONDS_MAX = 120.0


class SampleCluster(SamplingCluster):
    """A cluster of Ray actors behind a graph that writes its history into a log.

    Args:    folder: for states, seen by all hosts; a cluster that is there goes on, with other settings, log_options
             and hosting if you like.  graph: as it was when the history began, or at any later version of it; it takes
             what the history has more, and its batches go there from now on.  queries, seed, ttl, edge_data: as
             PreSampler takes them.  history, logs: URLs of open_log, with {name} in `logs`; SQLite files in the
             folder unless given.  sampling, serving, replicas: how many workers a new cluster has.  address: of a Ray
             cluster; without one Ray runs on this machine.  hosting: how actors run.  sizes: when numbers of workers
             and maps follow load; without, they stay as they are.
    Raises:  as ClusterSpec.of; UsageError for graphs with edges in files, for a folder of another cluster, for a new
             cluster over steps of another, for SQLite files between several hosts; LogConflict for a history shorter
             than the graph's; as replay; DataMissing without ray or pyarrow.
    Source:  Helios, section 4.
    """

    _failure: Exception | None

    def __init__(
        self,
        folder: Path | str,
        graph: Graph,
        queries: Query | Iterable[Query],
        *,
        address: str | None = None,
        history: str | None = None,
        logs: str | None = None,
        log_options: Mapping[str, Any] | None = None,
        settings: Settings | None = None,
        hosting: Hosting | None = None,
        sizes: SizeRules | None = None,
        sampling: int = 1,
        serving: int = 1,
        replicas: int = 1,
        seed: int = 0,
        ttl: expiry.Ttl = None,
        edge_data: bool = False,
    ) -> None:
        self.folder, self.graph = Path(folder).absolute(), graph
        place = f"sqlite:{quote(str(self.folder))}"
        urls = (history or f"{place}/history.db", logs or f"{place}/{{name}}.db")
        self.spec = spec = ClusterSpec.of(graph, queries, seed=seed, ttl=ttl, edge_data=edge_data)
        self.edge_columns = spec.edge_columns
        self.config = ClusterConfig(spec, *urls, dict(log_options or {}), settings or Settings())
        is_new = not ClusterConfig.is_in(self.folder)
        if not is_new:
            self.config.check_same(ClusterConfig.read(self.folder))
        ray = connect("cluster", address)
        _check_hosts(ray, urls)
        checkpoints = CheckpointFiles(self.folder)
        self._hosts = RayHosts(ray, self.folder, self.config, hosting or Hosting())
        self._lock, self._ended, self._failure = threading.RLock(), threading.Event(), None
        with contextlib.ExitStack() as undo:
            opened = undo.enter_context(contextlib.closing(self.config.open_logs()))
            written = undo.enter_context(self.config.open_history())
            begins = self._begins(is_new, opened.log("steps").tail)
            self._attachment = undo.enter_context(written.attach(graph))
            self._attachment.catch_up()
            if begins:
                write_start(spec, graph, even_owners(sampling), checkpoints)
            self.config.write(self.folder)
            self._coordinator = Coordinator(
                spec, opened, checkpoints, self._hosts, self.config.settings, lambda: time.time() * 1000
            )
            if begins:
                self._coordinator.serve(even_serving(serving, replicas))
                self._coordinator.routed = self._coordinator.serving  # there are no others to ask meanwhile
            self.front_end = FrontEnd(spec, self._hosts, self._coordinator.routed, is_down=self._hosts.is_down)
            self._load = None if sizes is None else LoadFollower(sizes, self.front_end)
            self.follower = _native.BatchTap(spec.weighted_types)
            graph.host.attach(self)
            self._opened = undo.pop_all()
        self._thread = threading.Thread(target=self._coordinate, name="livegnn-coordinator", daemon=True)
        self._thread.start()

    # ---- updates and answers

    def apply(self, updates: Updates) -> int:
        """Applies a batch to the graph, which writes it down, and returns the version.

        Raises:  as graph.apply; WorkerUnavailable if the coordinator or a worker has ended.  LogConflict if the history
                 had more than the graph, perhaps this very batch after a LogUnavailable: the graph has caught up then,
                 and the batch is not applied.
        """
        self._require_work("apply")
        try:
            version: int = self.graph.host.apply(updates, self)[1]
        except LogConflict as conflict:
            caught_up = self._attachment.catch_up()
            raise LogConflict(
                "[cluster] expected the graph to hold the whole history, got more entries, which it has taken now "
                f"(version {caught_up}); look whether your batch is among them, and apply it if not"
            ) from conflict
        return version

    def published(self, change: Any, version: int) -> int:
        """Counts the batch where sizes follow load; the workers read the history."""
        if self._load is not None:
            self._load.count(self.follower.latest())
        return version

    @property
    def version(self) -> int:
        """The version that the graph has, which readers may ask for with at_least."""
        return self.graph.version

    def wait_for(self, version: int, timeout: float | None) -> None:
        """Returns at once: every serving worker waits before it answers."""

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As FrontEnd.answer; within the timeout it asks again, perhaps a replica, where a worker starts again."""
        deadline = None if options.timeout is None else time.monotonic() + options.timeout
        while True:
            self._require_work("sample")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return self.front_end.answer(slots, options._replace(timeout=left))
            except WorkerUnavailable:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                time.sleep(_ASK_AGAIN_SECONDS)

    # ---- workers that come and go

    def move_serving(self, serving: Serving) -> None:
        """As SamplingCluster.move_serving."""
        check_serving("move_serving", serving)
        self._when_settled()
        with self._lock:
            self._coordinator.serve(serving)

    def move_sampling(self, owners: Owners) -> None:
        """As SamplingCluster.move_sampling."""
        check_owners("move_sampling", owners)
        self._when_settled()
        with self._lock:
            self._coordinator.move(owners)

    def checkpoint(self) -> None:
        """Has every worker write its state, at the next step. Raises: UsageError while buckets move."""
        self._require_work("checkpoint")
        with self._lock:
            self._coordinator.checkpoint()

    @property
    def serving(self) -> Serving:
        """Which serving workers own each bucket: the map that readers go by."""
        return self._coordinator.routed.copy()

    @property
    def owners(self) -> Owners:
        """Which sampling worker owns each bucket."""
        return self._coordinator.owners.copy()

    @property
    def is_moving(self) -> bool:
        """Whether buckets are on their way between workers of either kind."""
        with self._lock:
            return self._coordinator.is_moving or self._coordinator.is_moving_seeds

    @property
    def status(self) -> dict[Who, HostStatus]:
        """What each worker said last, by role and number."""
        return self._hosts.status

    @property
    def processes(self) -> Mapping[tuple[str, int], int]:
        """Process ids on their hosts, by role and number."""
        return {who: status.pid for who, status in self._hosts.status.items()}

    def lag_batches(self) -> int:
        """Batches of the history that the slowest serving worker does not serve yet. Raises: WorkerUnavailable."""
        self._require_work("lag_batches")
        return max(0, self.graph.version - self.front_end.version)

    def close(self) -> None:
        """Ends the workers and lets go of the graph. What is written stays: the same folder starts again."""
        self._ended.set()
        self._thread.join()
        self._hosts.close()
        self.graph.host.detach(self)
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    # ---- inside

    def _begins(self, is_new: bool, steps: int) -> bool:
        """Whether the cluster has no step yet: it is new, or its first start failed."""
        if is_new and steps:
            raise UsageError(
                f"[cluster] expected a log of steps without entries for the new folder {self.folder}, got {steps}; "
                "name the folder that they belong to, or other logs"
            )
        return not steps

    def _require_work(self, where: str) -> None:
        """Raises: UsageError after close(); WorkerUnavailable if the coordinator, or a worker, ended for a reason that
        does not pass.
        """
        if self._ended.is_set():
            raise UsageError(
                f"[{where}] expected an open SampleCluster, got one that was closed; make a new one on its folder"
            )
        if self._failure is not None:
            raise WorkerUnavailable(
                f"[cluster] expected a coordinator at work, got one that ended ({self._failure!r}); "
                "fix the cause, close the cluster and start its folder again"
            ) from self._failure
        for (role, number), status in self._hosts.status.items():
            if status.failure:
                raise WorkerUnavailable(
                    f"[cluster] expected {role} worker {number} at work, got one that ended ({status.failure}); "
                    "fix the cause, close the cluster and start its folder again"
                )

    def _when_settled(self) -> None:
        """Waits until earlier changes of maps are through. Raises: WorkerUnavailable if that takes too long."""
        deadline = time.monotonic() + _SETTLE_SECONDS_MAX
        while self.is_moving:
            self._require_work("move")
            if time.monotonic() >= deadline:
                raise WorkerUnavailable(
                    f"[cluster] expected an earlier move to end within {_SETTLE_SECONDS_MAX} s, got none that did; "
                    "see whether workers come up, then try again"
                )
            time.sleep(_ASK_AGAIN_SECONDS)

    def _coordinate(self) -> None:
        pause = _PAUSE_SECONDS
        while not self._ended.is_set():
            try:
                with self._lock:
                    busy = self._coordinator.turn()
                    self.front_end.set_serving(self._coordinator.routed)
                    if self._load is not None:
                        self._load.look(self._coordinator, self._hosts.status)
                pause = _PAUSE_SECONDS if busy else min(2 * pause, _PAUSE_SECONDS_MAX)
                if not busy:
                    self._ended.wait(pause)
            except (LogUnavailable, OSError):  # no broker, or no file for now
                self._ended.wait(_RETRY_SECONDS)
            except Exception as failure:  # raised by the next call: see _require_work
                self._failure = failure
                return


def _check_hosts(ray: Any, urls: tuple[str, str]) -> None:
    hosts = sum(1 for each in ray.nodes() if each["Alive"])
    if hosts > 1 and any(url.startswith("sqlite:") for url in urls):
        raise UsageError(
            f"[cluster] expected logs that {hosts} hosts can share, got SQLite files; "
            "name logs on NATS or Kafka by history= and logs="
        )
