"""Where cached rows lie: the one place that knows of devices.

InPlaceRows  an array in main memory, cache on the CPU: nothing is copied, every row is read where it is.
CpuRows      a tensor in main memory; rows are copied natively, by several threads.
TorchRows    a tensor on another device; missed rows go through a pinned buffer, copied while the caller goes on.

A fetch calls staged(count), fills what it got, then sent(...), joined(...), put(...). A pinned buffer is a new one each
time: torch's allocator gives it out again only when the copies from it are done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.types import AnyArray, Int64Array

if TYPE_CHECKING:
    from torch import Tensor

Slots = npt.NDArray[np.int32]


def bytes_of(rows: AnyArray) -> npt.NDArray[np.uint8]:
    """(n, d) rows as (n, row bytes) uint8 of the same memory; d > 0."""
    return rows.view(np.uint8)


class Rows(ABC):
    """`capacity` rows by slot."""

    bytes_to_device: int = 0  # of one row sent
    nbytes: int = 0  # memory of the rows

    @abstractmethod
    def staged(self, count: int) -> tuple[Tensor, AnyArray] | None:
        """Room for rows that come from the source, and the same memory as an array; None where none are copied."""

    def sent(self, staged: Tensor) -> Tensor:
        """Staged rows where the cached ones are."""
        return staged

    @abstractmethod
    def joined(self, ids: Int64Array, places: Slots, fresh: Tensor | None) -> Tensor:
        """(k, d): row places[i], or row -1 - places[i] of those sent."""

    @abstractmethod
    def put(self, slots: Slots, fresh: Tensor | None) -> None:
        """Row slots[i] = row i of those sent, for the first len(slots) of them."""

    @abstractmethod
    def resized(self, capacity: int, slots: Int64Array) -> Rows:
        """Others of this capacity, whose row i is row slots[i] here."""


class InPlaceRows(Rows):
    """No rows of its own."""

    def __init__(self, torch: Any, array: AnyArray, copier: _native.RowCopier) -> None:
        self._torch, self._array, self._copier = torch, array, copier

    def staged(self, count: int) -> None:
        return None

    def joined(self, ids: Int64Array, places: Slots, fresh: Tensor | None) -> Tensor:
        out = np.empty((len(ids), self._array.shape[1]), self._array.dtype)
        if out.size:
            self._copier.gather(bytes_of(self._array), ids, bytes_of(out))
        rows: Tensor = self._torch.from_numpy(out)
        return rows

    def put(self, slots: Slots, fresh: Tensor | None) -> None:
        pass

    def resized(self, capacity: int, slots: Int64Array) -> Rows:
        return self


class CpuRows(Rows):
    """Rows in main memory."""

    def __init__(self, torch: Any, shape: tuple[int, int], dtype: np.dtype[Any], copier: _native.RowCopier) -> None:
        self._torch, self._copier = torch, copier
        self._table = np.empty(shape, dtype)
        self.nbytes = self._table.nbytes

    def _empty(self, count: int) -> AnyArray:
        return np.empty((count, self._table.shape[1]), self._table.dtype)

    def staged(self, count: int) -> tuple[Tensor, AnyArray]:
        rows = self._empty(count)
        return self._torch.from_numpy(rows), rows

    def joined(self, ids: Int64Array, places: Slots, fresh: Tensor | None) -> Tensor:
        assert fresh is not None
        out = self._empty(len(places))
        if out.size:
            self._copier.join(bytes_of(self._table), bytes_of(fresh.numpy()), places, bytes_of(out))
        rows: Tensor = self._torch.from_numpy(out)
        return rows

    def put(self, slots: Slots, fresh: Tensor | None) -> None:
        assert fresh is not None
        if len(slots) and self._table.shape[1]:
            self._copier.scatter(bytes_of(fresh.numpy()), slots, bytes_of(self._table))

    def resized(self, capacity: int, slots: Int64Array) -> Rows:
        made = CpuRows(self._torch, (capacity, self._table.shape[1]), self._table.dtype, self._copier)
        if len(slots) and self._table.shape[1]:
            self._copier.gather(bytes_of(self._table), slots, bytes_of(made._table))
        return made


class TorchRows(Rows):
    """Rows on any device that torch knows."""

    def __init__(self, torch: Any, shape: tuple[int, int], dtype: np.dtype[Any], device: Any) -> None:
        self._torch, self._device, self._dtype = torch, device, dtype
        self._table: Tensor = torch.empty(shape, dtype=getattr(torch, dtype.name), device=device)
        self.bytes_to_device, self.nbytes = shape[1] * dtype.itemsize, self._table.nbytes

    def staged(self, count: int) -> tuple[Tensor, AnyArray]:
        shape = (count, self._table.shape[1])
        rows = self._torch.empty(shape, dtype=self._table.dtype, pin_memory=self._device.type == "cuda")
        return rows, rows.numpy()

    def sent(self, staged: Tensor) -> Tensor:
        return staged.to(self._device, non_blocking=True)

    def joined(self, ids: Int64Array, places: Slots, fresh: Tensor | None) -> Tensor:
        assert fresh is not None
        missed = np.flatnonzero(places < 0)
        out: Tensor = self._table.index_select(0, self._moved(np.maximum(places, 0)))
        if len(missed):
            out.index_copy_(0, self._moved(missed), fresh.index_select(0, self._moved(-1 - places[missed])))
        return out

    def put(self, slots: Slots, fresh: Tensor | None) -> None:
        assert fresh is not None
        if len(slots):
            self._table.index_copy_(0, self._moved(slots), fresh[: len(slots)])

    def _moved(self, numbers: npt.NDArray[Any]) -> Tensor:
        moved: Tensor = self._torch.from_numpy(numbers.astype(np.int64)).to(self._device)
        return moved

    def resized(self, capacity: int, slots: Int64Array) -> Rows:
        made = TorchRows(self._torch, (capacity, self._table.shape[1]), self._dtype, self._device)
        made._table[: len(slots)] = self._table.index_select(0, self._moved(slots))
        return made
