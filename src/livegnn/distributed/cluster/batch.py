"""What goes from the driver to the workers for a batch, and back: each is one block of bytes, which native code writes
and reads. A batch of a thousand updates takes a part some 20 ms; to pickle its columns takes 0.3 ms at each end.
"""

from __future__ import annotations

import struct
from pickle import PickleBuffer
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.distributed.cluster.moves import Moves
from livegnn.types import AnyArray, Int64Array

Block: TypeAlias = bytes | memoryview
BatchColumns: TypeAlias = dict[str, AnyArray]

_Kind = _native.UpdateKind
_COUNT_BYTES = 8
_NO_COST = struct.pack("<qddd", 0, 0.0, 0.0, 0.0)  # no stages, no seconds
_BY_BUFFERS = 5  # the first protocol of pickle that can leave large bytes where they are


class SlotBatch:
    """A batch in slots of the whole graph, as every part takes it. It never changes. Make it with of().

    moves_vertices: whether it adds or removes any.
    """

    def __init__(self, block: Block, moves_vertices: bool) -> None:
        self.block, self.moves_vertices = block, moves_vertices

    @classmethod
    def of(cls, buffer: _native.UpdateBuffer) -> Self:
        """A copy."""
        return cls(buffer.to_block(), bool(buffer.count(_Kind.AddVertex) or buffer.count(_Kind.RemoveVertex)))

    def to_buffer(self) -> _native.UpdateBuffer:
        """For native code: a copy."""
        made = _native.UpdateBuffer()
        made.from_block(_numbers(self.block))
        return made

    def to_columns(self) -> BatchColumns:
        """For NumPy: a copy, as of UpdateBuffer.to_arrays()."""
        columns: BatchColumns = self.to_buffer().to_arrays()
        return columns

    def added_vertices(self) -> Int64Array:
        """Slots of the vertices that it adds, in order."""
        if not self.moves_vertices:
            return np.zeros(0, np.int64)
        columns = self.to_columns()
        added: Int64Array = columns["u"][columns["kind"] == _Kind.AddVertex.value]
        return added

    def first(self, count: int) -> SlotBatch:
        """Its first updates."""
        whole = self.to_columns()
        columns = {name: column[:count] for name, column in whole.items()}
        columns["rows"] = whole["rows"][: int(np.maximum(columns["row_width"], 0).sum())]
        buffer = _native.UpdateBuffer()
        buffer.from_arrays(columns)
        return SlotBatch.of(buffer)

    def __reduce_ex__(self, protocol: Any) -> tuple[type[SlotBatch], tuple[Any, bool]]:
        return SlotBatch, (_sent(self.block, protocol), self.moves_vertices)


class PartChanges(NamedTuple):
    """What a batch made of a part's own vertices, and its cost.

    block: of _native.own_changes().  moves: None where the engine was not asked for them, or they are too many.
    """

    block: Block
    moves: Moves | None = None

    @classmethod
    def of_slots(cls, slots: AnyArray) -> Self:
        """Of these vertices, ascending, at no cost."""
        return cls(struct.pack("<q", len(slots)) + slots.astype(np.uint32).tobytes() + _NO_COST)

    @property
    def vertex_count(self) -> int:
        """How many vertices have changed."""
        return int.from_bytes(self.block[:_COUNT_BYTES], "little")

    @property
    def slots(self) -> npt.NDArray[np.uint32]:
        """These, by slots of the whole graph, ascending; read-only."""
        return np.frombuffer(self.block, np.uint32, self.vertex_count, _COUNT_BYTES)

    @property
    def native(self) -> _native.NativeChanges:
        """The same, as an engine has them: with the cost of each stage."""
        return _native.changes_of_block(_numbers(self.block))

    def __reduce_ex__(self, protocol: Any) -> tuple[type[PartChanges], tuple[Any, Moves | None]]:
        return PartChanges, (_sent(self.block, protocol), self.moves)


def _numbers(block: Block) -> npt.NDArray[np.uint8]:
    return np.frombuffer(block, np.uint8)


def _sent(block: Block, protocol: int) -> bytes | PickleBuffer:
    return PickleBuffer(block) if protocol >= _BY_BUFFERS else bytes(block)
