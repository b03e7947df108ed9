"""WorkerHost: the inside of an actor. A thread turns the worker; Ray's threads answer questions and say how it is.

A host that loses its log begins again from its checkpoint: what it had in memory may not have been said to all. A
serving worker goes on answering meanwhile. What only a person can put right ends the turns and is reported; any other
error ends the process, and Ray starts it again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from livegnn.distributed.sampling_host.config import ClusterConfig
from livegnn.errors import Facts, LiveGnnError, LogUnavailable, StoredStateInvalid, VersionPending
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.rocks_tables import RocksTables
from livegnn.sampling.cluster.runtime import ClusterLogs, SamplingLoop, ServingLoop, WorkerParts
from livegnn.sampling.cluster.serving_worker import ServingWorker
from livegnn.sampling.presample.source import ReadOptions, Response
from livegnn.types import Int64Array

_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.001, 0.01  # between turns without work: each twice as long as the one before
_RETRY_SECONDS = 0.2


class HostStatus(NamedTuple):
    """How a worker is.

    step: its next one, None before it has one.  turn_seconds: how long the turn under way has taken.  busy_seconds: of
    all turns that had something to do.  cpu_seconds: of the process.  lag_ms: as ServingWorker has it.  failure: what
    ended its turns, or "".  niceness: as the system has it.
    """

    pid: int
    step: int | None
    turn_seconds: float
    busy_seconds: float
    cpu_seconds: float
    lag_ms: float
    failure: str
    niceness: int


class RefusedRead(NamedTuple):
    """An error in place of a response, for livegnn.errors.of_kind."""

    error: str
    text: str
    facts: Facts


class WorkerHost:
    """Turns one worker until its process ends, or its partition has moved.

    Args:    folder: of the cluster.  config: the text of its cluster.json.  role, worker: which one.  threads, tables:
             as Hosting has them.
    """

    def __init__(self, folder: str, config: str, role: str, worker: int, threads: int, tables: str | None) -> None:
        self._config, self._checkpoints = ClusterConfig.from_json(config), CheckpointFiles(folder)
        self._checkpoints.clean(role, worker)
        self._role, self._number, self._threads, self._tables = role, worker, threads, tables
        self._changed = threading.Condition()
        self._loop: SamplingLoop | ServingLoop | None = None
        self._turn_began: float | None = None
        self._busy, self._failure, self._pause = 0.0, "", _PAUSE_SECONDS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"livegnn-{role}-{worker}", daemon=True)
        self._thread.start()

    # ---- what the driver asks

    def status(self) -> HostStatus:
        """How the worker is; at once."""
        loop, began = self._loop, self._turn_began
        under_way = 0.0 if began is None else time.monotonic() - began
        lag_ms = loop.worker.lag_ms if isinstance(loop, ServingLoop) else 0.0
        step, spent = None if loop is None else loop.worker.step, time.process_time()
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        return HostStatus(os.getpid(), step, under_way, self._busy, spent, lag_ms, self._failure, niceness)

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response | RefusedRead:
        """As ServingWorker.answer; waits until the worker is there."""
        begin = time.monotonic()
        try:
            worker = self._serving(options.timeout)
            if options.timeout is not None:
                options = options._replace(timeout=max(0.0, options.timeout - (time.monotonic() - begin)))
            return worker.answer(slots, options)
        except LiveGnnError as error:
            if self._lost_tables(error):
                os._exit(1)
            return RefusedRead(type(error).__name__, str(error), error.facts())

    def end(self) -> None:
        """Ends the turns; where the process goes on."""
        self._ended.set()
        self._thread.join()

    # ---- inside

    def _serving(self, timeout: float | None) -> ServingWorker:
        with self._changed:
            self._changed.wait_for(lambda: self._loop is not None, timeout)
        if not isinstance(self._loop, ServingLoop):
            raise VersionPending(
                f"[sample] expected serving worker {self._number} to have started within {timeout} s, got none yet; "
                "wait longer"
            )
        return self._loop.worker

    def _run(self) -> None:
        try:
            while not self._turns():
                self._ended.wait(_RETRY_SECONDS)
        except BaseException as error:
            traceback.print_exc()
            if isinstance(error, LiveGnnError) and not self._lost_tables(error):
                self._failure = f"{type(error).__name__}: {error}"
                return
            time.sleep(_RETRY_SECONDS)
            os._exit(1)  # out of memory, say: it begins again from the checkpoint

    def _lost_tables(self, error: LiveGnnError) -> bool:
        """Whether RocksDB's files are damaged, perhaps: a new process fills new ones."""
        return self._role == "serving" and self._tables is not None and isinstance(error, StoredStateInvalid)

    def _turns(self) -> bool:
        """Turns a worker that starts from its checkpoint. False if a log or file was away; raises what stays."""
        try:
            with contextlib.ExitStack() as opened:
                logs = opened.enter_context(contextlib.closing(self._config.open_logs()))
                loop = self._started(logs, opened)
                while not loop.has_moved and not self._ended.is_set():
                    self._turn(loop)
            return True
        except LiveGnnError as error:
            if not error.retryable:
                raise
            return self._ended.is_set()

    def _started(self, logs: ClusterLogs, opened: contextlib.ExitStack) -> SamplingLoop | ServingLoop:
        common = (self._config.spec, self._number, logs, self._checkpoints, _now_ms)
        loop: SamplingLoop | ServingLoop
        if self._role == "sampling":
            loop = SamplingLoop(*common, WorkerParts(threads=self._threads))
        else:
            tables = None
            if self._tables is not None:
                tables = opened.enter_context(contextlib.closing(self._new_tables(Path(self._tables))))
            loop = ServingLoop(*common, WorkerParts(tables=tables))
        with self._changed:
            self._loop = loop
            self._changed.notify_all()
        return loop

    def _new_tables(self, folder: Path) -> RocksTables:
        """Empty tables in a folder of their own: that of a predecessor may be locked, until its process is gone."""
        mine, spec = f"serving-{self._number}-", self._config.spec
        for old in folder.glob(f"{mine}*"):
            shutil.rmtree(old, ignore_errors=True)
        return RocksTables(folder / (mine + uuid4().hex), spec.fanouts, spec.feature_width, spec.edge_columns)

    def _turn(self, loop: SamplingLoop | ServingLoop) -> None:
        self._turn_began = begin = time.monotonic()
        try:
            busy = loop.turn()
        except LogUnavailable:
            if isinstance(loop, SamplingLoop):
                raise
            time.sleep(_RETRY_SECONDS)  # it goes on answering meanwhile
            return
        finally:
            self._turn_began = None
        if busy:
            self._busy += time.monotonic() - begin
            self._pause = _PAUSE_SECONDS
        else:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, _PAUSE_SECONDS_MAX)


def _now_ms() -> float:
    return time.time() * 1000
