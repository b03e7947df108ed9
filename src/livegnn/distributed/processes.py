"""TorchExchange: workers that are processes, joined by torch.distributed: gloo, or nccl where arrays go over a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.distributed.exchange import check_parts
from livegnn.errors import UsageError, WorkerUnavailable
from livegnn.optional import need
from livegnn.types import AnyArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_HEAD, _BEGINNING = 8, 504  # bytes of a parcel's length, and of what goes with it


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

    def swap_bytes(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Parcel i goes to worker i; result i is what worker i sent here.

        One exchange of the beginnings, with the lengths. What is longer follows from worker to worker: between two
        batches most parcels hold a few bytes, and a second exchange of all would double their time.
        """
        if self.size == 1:
            self.calls += 1
            return list(parcels)
        sent, found = (np.zeros((self.size, _HEAD + _BEGINNING), np.uint8) for _ in range(2))
        for block, parcel in zip(sent, parcels, strict=True):
            block[:_HEAD] = np.array([len(parcel)], "<i8").view(np.uint8)
            beginning = parcel[:_BEGINNING]
            block[_HEAD : _HEAD + len(beginning)] = np.frombuffer(beginning, np.uint8)
        coming = self._tensor(found)
        self._together(self._dist.all_to_all_single, coming, self._tensor(sent))
        blocks = coming.cpu().numpy()
        lengths = blocks[:, :_HEAD].copy().view("<i8")[:, 0].tolist()
        rests = self._rests([parcel[_BEGINNING:] for parcel in parcels], [each - _BEGINNING for each in lengths])
        beginnings = (block[_HEAD : _HEAD + each] for block, each in zip(blocks, lengths, strict=True))
        return [block.tobytes() + rest for block, rest in zip(beginnings, rests, strict=True)]

    def _rests(self, parcels: Sequence[bytes], lengths: Sequence[int]) -> list[bytes]:
        """What follows the beginnings: those that are not empty go to their workers. lengths: of what comes."""

        def move() -> list[bytes]:
            others = [worker for worker in range(self.size) if worker != self.rank]
            going = [
                self._dist.isend(self._tensor(np.frombuffer(bytearray(parcels[to]), np.uint8)), to)
                for to in others
                if parcels[to]
            ]
            found = [parcels[worker] if worker == self.rank else b"" for worker in range(self.size)]
            for source in others:
                if lengths[source] > 0:
                    rest = self._torch.empty(lengths[source], dtype=self._torch.uint8, device=self._device)
                    self._dist.recv(rest, source)
                    found[source] = rest.cpu().numpy().tobytes()
            for each in going:
                each.wait()
            return found

        found: list[bytes] = self._together(move)
        return found

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
