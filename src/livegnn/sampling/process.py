"""Workers as processes of this host: `python -m livegnn.sampling.process FOLDER ROLE NUMBER STARTER`.

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

import numpy as np

from livegnn import _native
from livegnn.errors import FileMissing, LogConflict, LogUnavailable, UsageError, WorkerUnavailable
from livegnn.graph import Graph, Updates, checks
from livegnn.log import UpdateLog, open_log
from livegnn.log.secrets import masked_url
from livegnn.sampling import expiry
from livegnn.sampling.checkpoints import CheckpointFiles
from livegnn.sampling.coordinator import Coordinator, write_start
from livegnn.sampling.front_end import FrontEnd
from livegnn.sampling.messages import Reading
from livegnn.sampling.partition import Owners, Serving, even_owners, even_serving
from livegnn.sampling.plan import Plan
from livegnn.sampling.query import Query
from livegnn.sampling.remote import RemoteServing, answer_questions, socket_of
from livegnn.sampling.runtime import ClusterLogs, SamplingLoop, ServingLoop, Settings
from livegnn.sampling.sample import Sample
from livegnn.sampling.spec import ClusterSpec
from livegnn.stored import checked, replaced

__all__ = ["Config", "ProcessCluster", "main"]

_CONFIG = "cluster.json"
_FORMAT, _UNSEALED_FORMAT = 2, 1  # the latter of livegnn 0.1, which wrote neither its number nor a trailer
_PAUSE_SECONDS = 0.002
_RETRY_SECONDS = 0.2
_SETTLE_SECONDS_MAX = 120.0
_LAG_SECONDS_MAX = 10.0  # for an answer about the lag
_SOCKET_PATH_BYTES_MAX = 107  # of an address of AF_UNIX


class Config(NamedTuple):
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

    def check_same(self, stored: Config) -> None:
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
                found = json.loads(content.read() or b"")
                if found.get("format", _UNSEALED_FORMAT) != (_FORMAT if content.sealed else _UNSEALED_FORMAT):
                    raise ValueError(f"format {found.get('format')!r}")
                spec = ClusterSpec.from_json(json.dumps(found["spec"]))
                settings = Settings(**found["settings"])
                return cls(spec, found["history"], found["logs"], found["log_options"], settings)
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
    config, checkpoints = Config.read(folder), CheckpointFiles(folder)
    checkpoints.clean(role, number)
    if role == "sampling":
        _run_sampling(config, checkpoints, number, starter)
    else:
        _run_serving(config, checkpoints, folder, number, starter)
    return 0


def _run_sampling(config: Config, checkpoints: CheckpointFiles, number: int, starter: int) -> None:
    while os.getppid() == starter:
        try:
            with contextlib.closing(config.open_logs()) as logs:
                loop = SamplingLoop(config.spec, number, logs, checkpoints, config.settings, _now_ms)
                with _beating(loop.beat, config.settings) as turning:
                    while not loop.has_moved and os.getppid() == starter:
                        turning()
                        if not loop.turn():
                            time.sleep(_PAUSE_SECONDS)
                return
        except LogUnavailable:
            time.sleep(_RETRY_SECONDS)


def _run_serving(config: Config, checkpoints: CheckpointFiles, folder: Path, number: int, starter: int) -> None:
    with contextlib.ExitStack() as opened:
        loop: ServingLoop | None = None
        while loop is None and os.getppid() == starter:
            try:
                with contextlib.ExitStack() as opening:
                    logs = opening.enter_context(contextlib.closing(config.open_logs()))
                    loop = ServingLoop(config.spec, number, logs, checkpoints, config.settings, _now_ms)
                    opened.push(opening.pop_all())
            except LogUnavailable:
                time.sleep(_RETRY_SECONDS)
        if loop is None:
            return
        opened.enter_context(answer_questions(loop.worker, socket_of(folder, number)))
        turning = opened.enter_context(_beating(loop.beat, config.settings))
        while os.getppid() == starter:
            try:
                turning()
                if not loop.turn():
                    time.sleep(_PAUSE_SECONDS)
            except LogUnavailable:
                time.sleep(_RETRY_SECONDS)


@contextlib.contextmanager
def _beating(beat: Callable[[], None], settings: Settings) -> Iterator[Callable[[], None]]:
    """Beats from a thread of its own while turns take long; gives what is to be called before each turn.

    A turn that takes longer than start_ms_max is given up: then there are no more signs of life.
    """
    ended, began = threading.Event(), [time.monotonic()]

    def run() -> None:
        while not ended.wait(settings.beat_ms / 1000):
            if time.monotonic() - began[0] < settings.start_ms_max / 1000:
                with contextlib.suppress(LogUnavailable):
                    beat()

    def turning() -> None:
        began[0] = time.monotonic()

    thread = threading.Thread(target=run, name="livegnn-beats", daemon=True)
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
        command = [sys.executable, "-m", "livegnn.sampling.process", str(self._folder), role, str(worker)]
        command.append(str(os.getpid()))
        self.running[role, worker] = subprocess.Popen(command)

    def stop(self, role: str, worker: int) -> None:
        """As Launcher.stop. At once: workers need no farewell."""
        process = self.running.pop((role, worker), None)
        if process is not None:
            process.kill()
            process.wait()


class _Sockets(Mapping[int, RemoteServing]):
    """Serving workers by number, connected when first asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[int, RemoteServing] = {}

    def __getitem__(self, worker: int) -> RemoteServing:
        return self._made.setdefault(worker, RemoteServing(socket_of(self._folder, worker)))

    def __iter__(self) -> Any:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class ProcessCluster:
    """A cluster of processes on this host, behind a graph that writes its history into a log.

    Args:    folder: for states and sockets; a cluster that is there goes on, with other settings and log_options if you
             like.  graph: without ids= and types; its batches go to the history from now on.  queries, seed, ttl: as
             PreSampler takes them.  history, logs: URLs of open_log, with {name} in `logs`; SQLite files in the folder
             unless given.  sampling, serving, replicas: how many workers a new cluster has.
    Raises:  as ClusterSpec.of; UsageError for graphs with ids of their own, for a folder of another cluster or with too
             long a path, for a new cluster over steps of another; LogConflict for a history shorter than the graph's;
             DataMissing without pyarrow.
    Source:  Helios, section 4.
    """

    native = None  # no engine
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
    ) -> None:
        self.folder, self.graph = Path(folder).absolute(), graph
        _check_path(self.folder)
        place = f"sqlite:{quote(str(self.folder))}"
        urls = (history or f"{place}/history.db", logs or f"{place}/{{name}}.db")
        spec = ClusterSpec.of(graph, queries, seed=seed, ttl=ttl)
        self.config = Config(spec, *urls, dict(log_options or {}), settings or Settings())
        is_new = not (self.folder / _CONFIG).exists()
        if not is_new:
            self.config.check_same(Config.read(self.folder))
        checkpoints = CheckpointFiles(self.folder)
        self._processes, self._lock = _Processes(self.folder), threading.RLock()
        self._ended, self._failure = threading.Event(), None  # what ended the coordinator
        with contextlib.ExitStack() as undo:
            self._logs = undo.enter_context(contextlib.closing(self.config.open_logs()))
            self._written = undo.enter_context(self.config.open_history())
            begins = self._begins(is_new)
            self._attachment = undo.enter_context(self._written.attach(graph))
            if begins:
                write_start(spec, graph, even_owners(sampling), checkpoints)
            self.config.write(self.folder)
            parts = (self._logs, checkpoints, self._processes, self.config.settings, _now_ms)
            self._coordinator = Coordinator(spec, *parts)
            if begins:
                self._coordinator.serve(even_serving(serving, replicas))
                self._coordinator.routed = self._coordinator.serving  # there are no others to ask meanwhile
            self.front_end = FrontEnd(spec, _Sockets(self.folder), self._coordinator.routed)
            self.follower = _native.BatchTap(spec.weighted_types)
            graph._attach(self)
            undo.pop_all()
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
            version: int = self.graph._apply(updates, self)[1]
        except LogConflict as conflict:
            caught_up = self._attachment.catch_up()
            raise LogConflict(
                "[cluster] expected the graph to hold the whole history, got more entries, which it has taken now "
                f"(version {caught_up}); look whether your batch is among them, and apply it if not"
            ) from conflict
        return version

    def _published(self, change: Any, version: int) -> int:
        return version

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self.config.spec.plan

    @property
    def version(self) -> int:
        """The version that the graph has, which readers may ask for with at_least."""
        return self.graph.version

    def sample(
        self,
        seeds: object,
        *,
        query: int | None = None,
        features: bool = True,
        edge_ids: bool = True,
        at_least: int | None = None,
        timeout: float | None = 30.0,
    ) -> Sample:
        """As FrontEnd.sample; waits up to `timeout` seconds in all (None: for ever), also for workers that are being
        replaced.

        Raises:  as FrontEnd.sample; WorkerUnavailable.
        """
        limit = checks.timeout("sample", timeout)
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            self._require_coordinator()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return self.front_end.sample(
                    seeds, query=query, features=features, edge_ids=edge_ids, at_least=at_least, timeout=left
                )
            except WorkerUnavailable:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS * 5)

    # ---- workers that come and go

    def serve(self, serving: Serving) -> None:
        """Gives buckets to other serving workers; see even_serving. Questions go to them once they are filled.

        Raises:  UsageError; then nothing has changed.
        """
        self._when_settled()
        with self._lock:
            self._coordinator.serve(serving)

    def move(self, owners: Owners) -> None:
        """Gives buckets to other sampling workers; see even_owners. Raises: UsageError; then nothing has changed."""
        self._when_settled()
        with self._lock:
            self._coordinator.move(owners)

    @property
    def processes(self) -> Mapping[tuple[str, int], int]:
        """Process ids by role and number."""
        return {who: process.pid for who, process in self._processes.running.copy().items()}

    def lag_batches(self) -> int:
        """Batches of the history that the slowest serving partition does not serve yet. Raises: WorkerUnavailable."""
        self._require_coordinator()
        answers = [
            self.front_end.answer(seeds, Reading(1, False, False, None, _LAG_SECONDS_MAX)).version
            for seeds in self._one_seed_each()
        ]
        return max(0, self.graph.version - min(answers, default=self.graph.version))

    def close(self) -> None:
        """Stops the workers and lets go of the graph. What is written stays: the same folder starts again."""
        self._ended.set()
        self._thread.join()
        for who in list(self._processes.running):
            self._processes.stop(*who)
        self.graph._detach(self)
        self._attachment.detach()
        self._logs.close()
        self._written.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    # ---- inside

    def _begins(self, is_new: bool) -> bool:
        """Whether the cluster has no step yet: it is new, or its first start failed."""
        steps = self._logs.log("steps").tail
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
                "mend the cause, close the cluster and start its folder again"
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

    def _one_seed_each(self) -> list[Any]:
        """For each serving worker a live vertex whose seeds it owns."""
        vertices = np.sort(self.graph.to_slots(self.graph.vertices()))
        masks = self._coordinator.routed[_native.buckets(vertices)]
        _, places = np.unique(masks, return_index=True)
        return [vertices[place : place + 1] for place in places]

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
            except Exception as failure:  # told to whoever asks next: see _require_coordinator
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
