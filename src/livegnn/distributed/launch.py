"""launch(): a function in several processes of this machine, joined by torch.distributed; one that dies ends them all.

Each process starts anew (spawn), meets the others at a file, runs fn and writes what it returns, or its error, to a
file of its own. Then it ends at once: while an interpreter is finalized, a library's thread that still runs can abort
the process. The parent watches the processes: when one ends badly the others, who may be waiting for it, get a
moment to end by themselves and are then terminated. The error names the worker that failed first; what follows from
that is left out. Once one worker has ended well the others have timeout_s to do so too.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from livegnn.distributed.exchange import checked_group
from livegnn.distributed.processes import TorchExchange
from livegnn.errors import UsageError, WorkerUnavailable
from livegnn.graph.checks import shown
from livegnn.optional import need

__all__ = ["launch"]

_GRACE_S = 2.0


class _Job(NamedTuple):
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    workers: int
    folder: Path
    backend: str
    init_method: str
    timeout_s: float
    threads: int


class _Failure(NamedTuple):
    """What a worker wrote before it ended: when, the kind of error, and all of it."""

    time: float
    kind: str
    text: str


def launch(
    fn: Callable[..., Any],
    workers: int,
    args: Sequence[Any] = (),
    *,
    backend: str = "gloo",
    init_method: str | None = None,
    timeout_s: float = 300.0,
    threads: int = 1,
) -> list[Any]:
    """Calls fn(exchange, *args) in so many new processes; what each returned, in order of their numbers.

    Args:    fn: of a module, so that new processes find it.  args: and results: picklable.  backend: "gloo", or "nccl"
             with a GPU for each worker.  init_method: where they meet, as "tcp://localhost:29500"; a file unless given.
             timeout_s: for which a worker waits for another, and the last ones may run on after the first has ended.
             threads: of torch in each.
    Raises:  WorkerUnavailable with the error of the worker that failed first; UsageError; DataMissing without torch.
    """
    need("torch.distributed", "distributed")
    timeout_s = checked_group("launch", workers, timeout_s)
    if backend not in ("gloo", "nccl") or type(threads) is not int or threads < 1:
        raise UsageError(
            f'[launch] expected backend="gloo" or "nccl" and at least one thread, got {backend!r} and {threads!r}; '
            "give such"
        )
    _check_picklable(fn, args)
    with tempfile.TemporaryDirectory(prefix="livegnn-") as name:
        folder = Path(name)
        meeting = init_method or (folder / "meeting").as_uri()
        job = _Job(fn, tuple(args), workers, folder, backend, meeting, timeout_s, threads)
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_work, args=(job, rank), daemon=True) for rank in range(workers)]
        try:
            for process in processes:
                process.start()
            _watch(processes, folder, timeout_s)
        finally:
            _end(processes)
        return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(workers)]


def _check_picklable(fn: object, args: Sequence[Any]) -> None:
    """Raises: UsageError for what new processes cannot be given."""
    for name, value in (("fn", fn), *((f"args[{place}]", value) for place, value in enumerate(args))):
        try:
            pickle.dumps(value)
        except (pickle.PicklingError, TypeError, AttributeError) as cause:
            raise UsageError(
                f"[launch] expected {name} that can be pickled for another process, got {shown(value)} ({cause}); use "
                "a function or an object of a module"
            ) from cause


def _work(job: _Job, rank: int) -> None:
    """The life of one worker."""
    status = 1
    try:
        _run(job, rank)
        status = 0
    except BaseException as error:
        failure = _Failure(time.time(), type(error).__name__, "".join(traceback.format_exception(error)))
        temporary = job.folder / f"error-{rank}.part"
        temporary.write_bytes(pickle.dumps(tuple(failure)))
        temporary.rename(job.folder / f"error-{rank}")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _run(job: _Job, rank: int) -> None:
    """Meets the others, calls the function, writes its result and leaves the group."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(job.threads)
    device = f"cuda:{rank % torch.cuda.device_count()}" if job.backend == "nccl" else "cpu"
    if job.backend == "nccl":
        torch.cuda.set_device(device)
    _meet(job, rank)
    result = job.fn(TorchExchange(device), *job.args)
    (job.folder / f"result-{rank}").write_bytes(pickle.dumps(result))
    dist.destroy_process_group()


def _meet(job: _Job, rank: int) -> None:
    """Raises: WorkerUnavailable where the workers do not come together, as one of them has ended or is late."""
    import torch.distributed as dist

    limit = timedelta(seconds=job.timeout_s)
    try:
        dist.init_process_group(
            job.backend, init_method=job.init_method, rank=rank, world_size=job.workers, timeout=limit
        )
    except RuntimeError as cause:
        raise WorkerUnavailable(
            f"[launch] expected {job.workers} workers to meet at {job.init_method} within {job.timeout_s:g} s, got "
            f"{cause} (seen by worker {rank}); see another's error, fix the cause, or give a longer timeout_s"
        ) from cause


def _watch(processes: Sequence[BaseProcess], folder: Path, timeout_s: float) -> None:
    """Returns when all have ended well. Raises: WorkerUnavailable when one has not, or is still at work timeout_s after
    the first."""
    running: dict[Any, int] = {process.sentinel: rank for rank, process in enumerate(processes)}
    until: float | None = None
    while running:
        ended = wait(list(running), None if until is None else max(0.0, until - time.monotonic()))
        if not ended:
            late = ", ".join(map(str, sorted(running.values())))
            raise WorkerUnavailable(
                f"[launch] expected {len(processes)} workers to finish within {timeout_s:g} s of the first, got worker "
                f"{late} still at work; all were ended; give a longer timeout_s, or fix what keeps it"
            )
        for sentinel in ended:
            rank = running.pop(sentinel)
            processes[rank].join()
            if processes[rank].exitcode != 0:
                _wait_a_moment(processes, running)
                raise _failure(processes, folder)
        until = until or time.monotonic() + timeout_s


def _wait_a_moment(processes: Sequence[BaseProcess], running: dict[Any, int]) -> None:
    """For the others to end by themselves: the first to be seen may not have been the first to fail.

    A dying process closes its sentinel before it has an exit code: join() waits for that.
    """
    until = time.monotonic() + _GRACE_S
    while running and (left := until - time.monotonic()) > 0:
        for sentinel in wait(list(running), left):
            processes[running.pop(sentinel)].join()


def _failure(processes: Sequence[BaseProcess], folder: Path) -> WorkerUnavailable:
    """The first cause: the earliest error that is not about somebody else's end; else a process that was killed."""
    paths = [(folder / f"error-{rank}", rank) for rank in range(len(processes))]
    found = [(_Failure(*pickle.loads(path.read_bytes())), rank) for path, rank in paths if path.exists()]
    own = [(failure, rank) for failure, rank in found if failure.kind != WorkerUnavailable.__name__]
    silent = [] if own else _silent(processes, {rank for _, rank in found})
    if silent:
        rank, how = silent[0]
        return WorkerUnavailable(
            f"[launch] expected {len(processes)} workers to finish, got worker {rank}, which {how}; "
            "all were ended; run it again"
        )
    failure, rank = min(own or found)
    return WorkerUnavailable(
        f"[launch] expected {len(processes)} workers to finish, got an error in worker {rank}; fix its cause, all "
        f"were ended:\n{failure.text}"
    )


def _silent(processes: Sequence[BaseProcess], reported: set[int]) -> list[tuple[int, str]]:
    """Workers that ended badly and left no error, and how."""
    return [
        (
            rank,
            f"was killed by signal {-process.exitcode}" if process.exitcode < 0 else "exited without an error message",
        )
        for rank, process in enumerate(processes)
        if process.exitcode not in (None, 0) and rank not in reported
    ]


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        if process.pid is None:
            continue
        process.join(_GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()
