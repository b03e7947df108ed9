"""launch(): a function in several processes of this machine, joined by torch.distributed; one that dies ends them all.

Each process starts anew (spawn), meets the others at a file, runs fn and sends what it returns, or its error, through a
pipe. Then it ends at once: while an interpreter is finalized, a library's thread that still runs can abort the process.
A pipe that closes empty is a process that was killed. When one fails the others, who may be waiting for it, get a
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
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from livegnn.distributed.exchange import checked_group
from livegnn.distributed.processes import TorchExchange
from livegnn.errors import UsageError, WorkerUnavailable
from livegnn.graph.checks import shown
from livegnn.optional import need

_GRACE_S = 2.0
_OWN, _KILLED, _OF_ANOTHER = range(3)  # errors by what they say of the first cause


class _Failure(NamedTuple):
    """How a worker failed; the least of several is the first cause."""

    cause: int
    time: float
    rank: int
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
    for name, value in (("fn", fn), *((f"args[{place}]", value) for place, value in enumerate(args))):
        check_picklable("launch", name, value, "use a function or an object of a module")
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    pipes: dict[Any, int] = {}
    with tempfile.TemporaryDirectory(prefix="livegnn-") as folder:
        group = {
            "backend": backend,
            "init_method": init_method or (Path(folder) / "meeting").as_uri(),
            "world_size": workers,
            "timeout": timedelta(seconds=timeout_s),
        }
        try:
            for rank in range(workers):
                pipe, end = context.Pipe(duplex=False)
                pipes[pipe] = rank
                process = context.Process(target=_work, args=(end, rank, fn, tuple(args), group, threads), daemon=True)
                process.start()
                processes.append(process)
                end.close()
            return _results(pipes, processes, timeout_s)
        finally:
            _end(processes)


def check_picklable(where: str, name: str, value: object, advice: str) -> None:
    """Raises: UsageError for what new processes cannot be given."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError) as cause:
        raise UsageError(
            f"[{where}] expected {name} that can be pickled for another process, got {shown(value)} ({cause}); {advice}"
        ) from cause


def _work(
    pipe: Connection, rank: int, fn: Callable[..., Any], args: tuple[Any, ...], group: dict[str, Any], threads: int
) -> None:
    """The life of one worker."""
    answer: bytes | _Failure
    try:
        answer = _run(rank, fn, args, group, threads)
    except BaseException as error:
        cause = _OF_ANOTHER if isinstance(error, WorkerUnavailable) else _OWN
        answer = _Failure(cause, time.time(), rank, "".join(traceback.format_exception(error)))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    try:
        pipe.send(answer)
    finally:
        os._exit(0)


def _run(rank: int, fn: Callable[..., Any], args: tuple[Any, ...], group: dict[str, Any], threads: int) -> bytes:
    """Meets the others, calls the function and leaves the group; its result, pickled.

    Raises:  WorkerUnavailable where the workers do not come together, as one of them has ended or is late.
    """
    import torch
    import torch.distributed as dist

    torch.set_num_threads(threads)
    device = "cpu"
    if group["backend"] == "nccl":
        device = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(rank=rank, **group)
    except RuntimeError as cause:
        raise WorkerUnavailable(
            f"[launch] expected {group['world_size']} workers to meet at {group['init_method']} within "
            f"{group['timeout'].total_seconds():g} s, got {cause} (seen by worker {rank}); see another's error, fix "
            "the cause, or give a longer timeout_s"
        ) from cause
    result = pickle.dumps(fn(TorchExchange(device), *args))
    dist.destroy_process_group()
    return result


def _results(pipes: dict[Any, int], processes: Sequence[BaseProcess], timeout_s: float) -> list[Any]:
    """What all have returned. Raises: WorkerUnavailable when one has failed, or still works timeout_s after the first
    has ended.
    """
    results: dict[int, bytes] = {}
    failures: list[_Failure] = []
    until: float | None = None
    while pipes and (ready := wait(list(pipes), None if until is None else max(0.0, until - time.monotonic()))):
        had_failed = bool(failures)
        for pipe in ready:
            rank = pipes.pop(pipe)
            answer = _received(pipe, rank, processes[rank])
            if isinstance(answer, _Failure):
                failures.append(answer)
            else:
                results[rank] = answer
        if failures and not had_failed:  # the first to be seen may not have been the first to fail
            until = time.monotonic() + _GRACE_S
        until = until or time.monotonic() + timeout_s
    if failures:
        first = min(failures)
        got = f"an error in worker {first.rank}; fix its cause, all were ended:\n{first.text}"
        if first.cause == _KILLED:
            got = f"worker {first.rank}, which {first.text}; all were ended; run it again"
        raise WorkerUnavailable(f"[launch] expected {len(processes)} workers to finish, got {got}")
    if pipes:
        late = ", ".join(map(str, sorted(pipes.values())))
        raise WorkerUnavailable(
            f"[launch] expected {len(processes)} workers to finish within {timeout_s:g} s of the first, got worker "
            f"{late} still at work; all were ended; give a longer timeout_s, or fix what keeps it"
        )
    return [pickle.loads(results[rank]) for rank in range(len(processes))]


def _received(pipe: Any, rank: int, process: BaseProcess) -> bytes | _Failure:
    try:
        answer: bytes | _Failure = pipe.recv()
    except (EOFError, OSError):
        process.join()  # a dying process closes its pipe before it has an exit code
        code = process.exitcode or 0
        text = f"was killed by signal {-code}" if code < 0 else "exited without an error message"
        answer = _Failure(_KILLED, 0.0, rank, text)
    return answer


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_GRACE_S)
        process.kill()
        process.join()
