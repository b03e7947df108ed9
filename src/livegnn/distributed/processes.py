"""TorchExchange: workers that are processes, joined by torch.distributed: gloo, or nccl where arrays go over a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.distributed.exchange import check_parts
from livegnn.errors import UsageError, WorkerUnavailable
from livegnn.optional import need
from livegnn.types import AnyArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class TorchExchange:
    """One process's end of the default process group; see Exchange.

    Args:    device: what collectives run on: "cpu" with gloo, a CUDA device with nccl.
    calls: collectives begun so far, a sign that the worker gets on.
    Raises:  UsageError before torch.distributed.init_process_group; DataMissing without torch.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._torch: Any = need("torch", "distributed")
        self._dist: Any = need("torch.distributed", "distributed")
        if not self._dist.is_initialized():
            raise UsageError(
                "[TorchExchange] expected a process group, got none; call torch.distributed.init_process_group, or use "
                "livegnn.distributed.run_workers"
            )
        self._device = self._torch.device(device)
        self.calls = 0
        self.rank, self.size = int(self._dist.get_rank()), int(self._dist.get_world_size())

    def swap(self, parts: Sequence[AnyArray]) -> list[AnyArray]:
        """Part i goes to worker i: one exchange of the lengths, one of the rows."""
        check_parts(parts, self.size)
        if self.size == 1:
            self.calls += 1
            return [np.array(parts[0])]
        lengths = [len(part) for part in parts]
        coming = self._torch.empty(self.size, dtype=self._torch.int64, device=self._device)
        self._together(self._dist.all_to_all_single, coming, self._tensor(np.array(lengths, np.int64)))
        counts = coming.tolist()
        out = self._tensor(np.concatenate(parts))
        found = self._torch.empty((sum(counts), *out.shape[1:]), dtype=out.dtype, device=self._device)
        if out.dim() == 1 or out.shape[1:].numel():
            self._together(self._dist.all_to_all_single, found, out, counts, lengths)
        rows: AnyArray = found.cpu().numpy()
        return np.split(rows, np.cumsum(counts)[:-1])

    def gather(self, part: AnyArray) -> list[AnyArray]:
        """What each worker gave."""
        return self.swap([part] * self.size)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all workers."""
        total = values.to(self._device, copy=True)
        if self.size > 1:
            self._together(self._dist.all_reduce, total)
        return total.to(values.device)

    def _tensor(self, array: AnyArray) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _together(self, exchange: Callable[..., Any], *given: Any) -> Any:
        self.calls += 1
        try:
            return exchange(*given)
        except RuntimeError as cause:
            raise WorkerUnavailable(
                f"[exchange] expected all {self.size} workers, got one that has ended or is late (seen by worker "
                f"{self.rank}); see its own error, or give a longer timeout_s"
            ) from cause


def opened_store(host: str, size: int, timeout_s: float) -> Any:
    """Where the workers of a group of this size meet."""
    dist, timeout = need("torch.distributed", "distributed"), timedelta(seconds=timeout_s)
    return dist.TCPStore(host, 0, size, is_master=True, wait_for_workers=False, timeout=timeout)


def joined(
    name: str, store: Any, place: tuple[str, int], rank: int, size: int, backend: str, timeout_s: float
) -> tuple[TorchExchange, Any]:
    """Makes the process a worker of the default group. name: of the group, which none has had.

    Args:    store: which this worker has opened, or None: then it connects to that at `place`.
    Returns: the worker's end, and the store, which is to be kept.
    Raises:  WorkerUnavailable where not all come within timeout_s.
    """
    # Workers meet under a count of groups. Joining in vain raises it for good, and a new worker begins at 0.
    need("torch.distributed.distributed_c10d", "distributed")._world.group_count = 0
    dist, timeout = need("torch.distributed", "distributed"), timedelta(seconds=timeout_s)
    device = "cpu"
    if backend == "nccl":
        device = "cuda:0"  # Ray shows each worker its own GPU
        need("torch", "distributed").cuda.set_device(device)
    try:
        if store is None:
            store = dist.TCPStore(*place, size, is_master=False, timeout=timeout)
        named = dist.PrefixStore(name, store)
        dist.init_process_group(backend, store=named, rank=rank, world_size=size, timeout=timeout)
    except RuntimeError as cause:
        raise WorkerUnavailable(
            f"[join] expected {size} workers to meet at {place[0]}:{place[1]} within {timeout_s:g} s, got {cause} "
            f"(seen by worker {rank}); see another's error, fix the cause, or give a longer timeout_s"
        ) from cause
    return TorchExchange(device), store


def leave() -> None:
    """Ends the default group, if there is one: others that wait for this worker fail."""
    dist = need("torch.distributed", "distributed")
    if dist.is_initialized():
        with suppress(RuntimeError):  # of a group of which another worker has gone
            dist.destroy_process_group()
