"""Workers as processes of this host: `python -m livegnn.sampling.cluster.process FOLDER ROLE NUMBER STARTER`.

folder = cluster.json | sampling-<i>.<step>.state ... | serving-<j>.sock
cluster.json = { "format": 2, "spec": ..., "history": url, "logs": url with {name}, "log_options": {...},
                 "settings": {...} } trailer (stored.py)

A worker ends with the process STARTER, which started it. One that loses its log begins again from its checkpoint: what
it had in memory may not have been said to all. A serving worker goes on answering meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import msgspec
from msgspec import Struct

from livegnn import _native
from livegnn.documents import converted
from livegnn.errors import FileMissing, LogConflict, LogUnavailable, UsageError, WorkerUnavailable
from livegnn.graph import Graph, Updates
from livegnn.log import UpdateLog, open_log
from livegnn.log.secrets import masked_url
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.coordinator import Coordinator, write_start
from livegnn.sampling.cluster.front_end import Cluster, FrontEnd
from livegnn.sampling.cluster.partition import Owners, Serving, check_owners, check_serving, even_owners, even_serving
from livegnn.sampling.cluster.remote import RemoteServing, answer_requests, socket_of
from livegnn.sampling.cluster.runtime import ClusterLogs, SamplingLoop, ServingLoop, Settings
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.source import ReadOptions, Response
from livegnn.sampling.queries import expiry
from livegnn.sampling.queries.query import Query
from livegnn.stored import checked, replaced
from livegnn.types import Int64Array

_CONFIG = "cluster.json"
_FORMAT, _UNSEALED_FORMAT = 2, 1  # the latter of livegnn 0.1, which wrote neither its number nor a trailer
_NAMES_BEFORE = {  # of settings, in files of livegnn 0.1
    "beat_ms": "heartbeat_ms",
    "silence_ms_max": "heartbeat_timeout_ms",
    "start_ms_max": "startup_timeout_ms",
}
_PAUSE_SECONDS = 0.002
_RETRY_SECONDS = 0.2
_SETTLE_SECONDS_MAX = 120.0
_SOCKET_PATH_BYTES_MAX = 107  # of an address of AF_UNIX


class _ConfigDocument(Struct, forbid_unknown_fields=True):
    spec: dict[str, Any]
    history: str
    logs: str
    log_options: dict[str, Any]
    settings: dict[str, Any]
    format: int = _UNSEALED_FORMAT


class ClusterConfig(NamedTuple):
    """What cluster.json says."""

    spec: ClusterSpec
    history: str
    logs: str
    log_options: dict[str, Any]
    settings: Settings

    def write(self, folder: Path) -> None:
        """Replaces the file; for the owner only, since URLs and options may hold passwords. Raises: StorageFailed."""
        document = {"spec": json.loads(self.spec.to_json()), "settings": self.settings._asdict()}
        document |= {"format": _FORMAT, "history": self.history, "logs": self.logs, "log_options": self.log_options}
        with replaced(folder / _CONFIG, "cluster", private=True) as file:
            file.write(json.dumps(document, indent=1).encode())

    def check_same(self, stored: ClusterConfig) -> None:
        """Raises: UsageError if the stored one is of another cluster: spec or URLs differ."""
        pairs: dict[str, tuple[str, str, Callable[[str], str]]] = {
            "queries, seed, ttl and columns": (stored.spec.to_json(), self.spec.to_json(), str),
            "history": (stored.history, self.history, masked_url),
            "logs": (stored.logs, self.logs, masked_url),
        }
        for name, (kept, given, shown) in pairs.items():
            if kept != given:
                raise UsageError(
                    f"[cluster] expected the {name} that the folder's cluster has ({shown(kept)}), got {shown(given)}; "
                    "start it as it was made, or name another folder"
                )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises: UsageError for a folder without one; StoredStateInvalid for a damaged one; StorageFailed."""
        path = folder / _CONFIG
        try:
            with checked(path, "cluster", expected="a cluster's settings", advice="restore it from a copy") as content:
                found = converted(msgspec.json.decode(content.read() or b""), _ConfigDocument)
                if found.format != (_FORMAT if content.sealed else _UNSEALED_FORMAT):
                    raise ValueError(f"format {found.format}")
                named = {_NAMES_BEFORE.get(name, name): value for name, value in found.settings.items()}
                parts = (found.history, found.logs, found.log_options, Settings(**named))
                return cls(ClusterSpec.from_json(found.spec), *parts)
        except FileMissing as cause:
            raise UsageError(f"[cluster] expected {path}, got no such file; name the folder of a cluster") from cause

    def open_history(self) -> UpdateLog:
        """The history, opened anew."""
        return UpdateLog(open_log(self.history, **self.log_options))

    def open_logs(self) -> ClusterLogs:
        """The logs of the cluster, opened anew."""
        return ClusterLogs(
            self.open_history(), lambda name: open_log(self.logs.replace("{name}", name), **self.log_options)
        )


# ---- a worker's process


def main(arguments: list[str]) -> int:
    """Runs a worker until it is stopped, or its partition has moved."""
    folder, role, number, starter = Path(arguments[0]), arguments[1], int(arguments[2]), int(arguments[3])
    config, checkpoints = ClusterConfig.read(folder), CheckpointFiles(folder)
    checkpoints.clean(role, number)
    while os.getppid() == starter:
        try:
            with contextlib.ExitStack() as opened:
                logs = opened.enter_context(contextlib.closing(config.open_logs()))
                parts = (config.spec, number, logs, checkpoints, config.settings, _now_ms)
                loop: SamplingLoop | ServingLoop
                loop = SamplingLoop(*parts) if role == "sampling" else ServingLoop(*parts)
                if isinstance(loop, ServingLoop):
                    opened.enter_context(answer_requests(loop.worker, socket_of(folder, number)))
                turning = opened.enter_context(_heartbeats(loop.heartbeat, config.settings))
                while os.getppid() == starter and not loop.has_moved:
                    _turn(loop, turning)
            break
        except LogUnavailable:
            time.sleep(_RETRY_SECONDS)
    return 0


def _turn(loop: SamplingLoop | ServingLoop, turning: Callable[[], None]) -> None:
    try:
        turning()
        if not loop.turn():
            time.sleep(_PAUSE_SECONDS)
    except LogUnavailable:
        if isinstance(loop, SamplingLoop):
            raise
        time.sleep(_RETRY_SECONDS)  # it goes on answering meanwhile


@contextlib.contextmanager
def _heartbeats(heartbeat: Callable[[], None], settings: Settings) -> Iterator[Callable[[], None]]:
    """Sends heartbeats from a thread of its own while turns take long; gives what is to be called before each turn.

    A turn that takes longer than startup_timeout_ms is given up: then it sends no more heartbeats.
    """
    ended, began = threading.Event(), [time.monotonic()]

    def run() -> None:
        while not ended.wait(settings.heartbeat_ms / 1000):
            if time.monotonic() - began[0] < settings.startup_timeout_ms / 1000:
                with contextlib.suppress(LogUnavailable):
                    heartbeat()

    def turning() -> None:
        began[0] = time.monotonic()

    thread = threading.Thread(target=run, name="livegnn-heartbeats", daemon=True)
    thread.start()
    try:
        yield turning
    finally:
        ended.set()
        thread.join()


def _now_ms() -> float:
    return time.time() * 1000


# ---- who starts them


class _Processes:
    """Workers as child processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}

    def start(self, role: str, worker: int) -> None:
        """As Launcher.start."""
        self.stop(role, worker)
        command = [sys.executable, "-m", "livegnn.sampling.cluster.process", str(self._folder), role, str(worker)]
        command.append(str(os.getpid()))
        self.running[role, worker] = subprocess.Popen(command)

    def stop(self, role: str, worker: int) -> None:
        """As Launcher.stop. At once: workers need no farewell."""
        process = self.running.pop((role, worker), None)
        if process is not None:
            process.kill()
            process.wait()


class _Sockets(dict[int, RemoteServing]):
    """Serving workers by number, connected when first asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, worker: int) -> RemoteServing:
        return self.setdefault(worker, RemoteServing(socket_of(self._folder, worker)))


class ProcessCluster(Cluster):
    """A cluster of processes on this host, behind a graph that writes its history into a log.

    Args:    folder: for states and sockets; a cluster that is there goes on, with other settings and log_options if you
             like.  graph: its batches go to the history from now on.  queries, seed, ttl, edge_data: as PreSampler
             takes them.  history, logs: URLs of open_log, with {name} in `logs`; SQLite files
             in the folder unless given.  sampling, serving, replicas: how many workers a new cluster has.
    Raises:  as ClusterSpec.of; UsageError for graphs with edges in files, for a folder of another cluster or with too
             long a path, for a new cluster over steps of another; LogConflict for a history shorter than the graph's;
             DataMissing without pyarrow.
    Source:  Helios, section 4.
    """

    _failure: Exception | None

    def __init__(
        self,
        folder: Path | str,
        graph: Graph,
        queries: Query | Iterable[Query],
        *,
        history: str | None = None,
        logs: str | None = None,
        log_options: Mapping[str, Any] | None = None,
        settings: Settings | None = None,
        sampling: int = 1,
        serving: int = 1,
        replicas: int = 1,
        seed: int = 0,
        ttl: expiry.Ttl = None,
        edge_data: bool = False,
    ) -> None:
        self.folder, self.graph = Path(folder).absolute(), graph
        _check_path(self.folder)
        place = f"sqlite:{quote(str(self.folder))}"
        urls = (history or f"{place}/history.db", logs or f"{place}/{{name}}.db")
        self.spec = spec = ClusterSpec.of(graph, queries, seed=seed, ttl=ttl, edge_data=edge_data)
        self.edge_columns = spec.edge_columns
        self.config = ClusterConfig(spec, *urls, dict(log_options or {}), settings or Settings())
        is_new = not (self.folder / _CONFIG).exists()
        if not is_new:
            self.config.check_same(ClusterConfig.read(self.folder))
        checkpoints = CheckpointFiles(self.folder)
        self._processes, self._lock = _Processes(self.folder), threading.RLock()
        self._ended, self._failure = threading.Event(), None  # what ended the coordinator
        with contextlib.ExitStack() as undo:
            opened = undo.enter_context(contextlib.closing(self.config.open_logs()))
            written = undo.enter_context(self.config.open_history())
            begins = self._begins(is_new, opened.log("steps").tail)
            self._attachment = undo.enter_context(written.attach(graph))
            if begins:
                write_start(spec, graph, even_owners(sampling), checkpoints)
            self.config.write(self.folder)
            parts = (opened, checkpoints, self._processes, self.config.settings, _now_ms)
            self._coordinator = Coordinator(spec, *parts)
            if begins:
                self._coordinator.serve(even_serving(serving, replicas))
                self._coordinator.routed = self._coordinator.serving  # there are no others to ask meanwhile
            self.front_end = FrontEnd(spec, _Sockets(self.folder), self._coordinator.routed)
            self.follower = _native.BatchTap(spec.weighted_types)
            graph.host.attach(self)
            self._opened = undo.pop_all()
        self._thread = threading.Thread(target=self._coordinate, name="livegnn-coordinator", daemon=True)
        self._thread.start()

    # ---- updates and answers

    def apply(self, updates: Updates) -> int:
        """Applies a batch to the graph, which writes it down, and returns the version.

        Raises:  as graph.apply; WorkerUnavailable if the coordinator has ended.  LogConflict if the history had more
                 than the graph, perhaps this very batch after a LogUnavailable: the graph has caught up then, and the
                 batch is not applied.
        """
        self._require_coordinator()
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
        """Nothing: the workers read the history."""
        return version

    @property
    def version(self) -> int:
        """The version that the graph has, which readers may ask for with at_least."""
        return self.graph.version

    def wait_for(self, version: int, timeout: float | None) -> None:
        """Returns at once: every serving worker waits before it answers."""

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As FrontEnd.answer; within the timeout it asks again where a worker is being replaced."""
        deadline = None if options.timeout is None else time.monotonic() + options.timeout
        while True:
            self._require_coordinator()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return self.front_end.answer(slots, options._replace(timeout=left))
            except WorkerUnavailable:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS * 5)

    # ---- workers that come and go

    def move_serving(self, serving: Serving) -> None:
        """As Cluster.move_serving."""
        check_serving("move_serving", serving)
        self._when_settled()
        with self._lock:
            self._coordinator.serve(serving)

    def move_sampling(self, owners: Owners) -> None:
        """As Cluster.move_sampling."""
        check_owners("move_sampling", owners)
        self._when_settled()
        with self._lock:
            self._coordinator.move(owners)

    @property
    def processes(self) -> Mapping[tuple[str, int], int]:
        """Process ids by role and number."""
        return {who: process.pid for who, process in self._processes.running.copy().items()}

    def lag_batches(self) -> int:
        """Batches of the history that the slowest serving worker does not serve yet. Raises: WorkerUnavailable."""
        self._require_coordinator()
        return max(0, self.graph.version - self.front_end.version)

    def close(self) -> None:
        """Stops the workers and lets go of the graph. What is written stays: the same folder starts again."""
        self._ended.set()
        self._thread.join()
        for who in list(self._processes.running):
            self._processes.stop(*who)
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

    def _require_coordinator(self) -> None:
        if self._failure is not None:
            raise WorkerUnavailable(
                f"[cluster] expected a coordinator at work, got one that ended ({self._failure!r}); "
                "fix the cause, close the cluster and start its folder again"
            ) from self._failure

    def _when_settled(self) -> None:
        """Waits until earlier changes of maps are through. Raises: WorkerUnavailable if that takes too long."""
        deadline = time.monotonic() + _SETTLE_SECONDS_MAX
        while self._coordinator.is_moving or self._coordinator.is_moving_seeds:
            self._require_coordinator()
            if time.monotonic() >= deadline:
                raise WorkerUnavailable(
                    f"[cluster] expected an earlier move to end within {_SETTLE_SECONDS_MAX} s, got none that did; "
                    "see whether workers come up, then try again"
                )
            time.sleep(_PAUSE_SECONDS * 5)

    def _coordinate(self) -> None:
        while not self._ended.is_set():
            try:
                with self._lock:
                    busy = self._coordinator.turn()
                    self.front_end.set_serving(self._coordinator.routed)
                if not busy:
                    self._ended.wait(_PAUSE_SECONDS)
            except (LogUnavailable, OSError):  # no broker, or no process or file for now
                self._ended.wait(_RETRY_SECONDS)
            except Exception as failure:  # raised by the next call: see _require_coordinator
                self._failure = failure
                return


def _check_path(folder: Path) -> None:
    longest = socket_of(folder, _native.SERVING_MAX - 1)
    size = len(os.fsencode(longest))
    if size > _SOCKET_PATH_BYTES_MAX:
        raise UsageError(
            f"[cluster] expected a folder whose sockets have paths of up to {_SOCKET_PATH_BYTES_MAX} bytes, "
            f"got {size} for {longest}; choose a shorter path"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
