"""What goes from the driver to the workers for a batch, and back: each is one block of bytes, which native code writes
and reads. To pickle the columns of a batch one by one takes 0.1 ms at each end, and more where caches are cold.
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

Block: TypeAlias = Any  # bytes, or what else has a buffer: a part of a message, or of Ray's memory

_Kind = _native.UpdateKind
_NUMBER = struct.Struct("<Q")
_NO_COST = struct.pack("<ddd", 0.0, 0.0, 0.0)  # seconds, and no stages
_BY_BUFFERS = 5  # the first protocol of pickle that can leave large bytes where they are


class SlotBatch:
    """A batch in slots of the whole graph, as every part takes it. It never changes. Make it with of().

    added: slots of the vertices that it adds, in order; None where it neither adds nor removes any.
    """

    def __init__(self, block: Block, added: Int64Array | None) -> None:
        self.block, self.added = block, added

    @classmethod
    def of(cls, buffer: _native.UpdateBuffer) -> Self:
        """A copy."""
        if not buffer.count(_Kind.AddVertex) and not buffer.count(_Kind.RemoveVertex):
            return cls(buffer.to_block(), None)
        return cls(buffer.to_block(), buffer.ids()[0][buffer.kinds() == _Kind.AddVertex.value])

    def to_buffer(self) -> _native.UpdateBuffer:
        """For native code: a copy."""
        made = _native.UpdateBuffer()
        made.from_block(_numbers(self.block))
        return made

    def to_columns(self) -> dict[str, AnyArray]:
        """For NumPy: kind, u and v of each update."""
        buffer = self.to_buffer()
        u, v = buffer.ids()
        return {"kind": buffer.kinds(), "u": u, "v": v}

    def first(self, count: int) -> SlotBatch:
        """Its first updates."""
        whole = self.to_buffer().to_arrays()
        columns = {name: column[:count] for name, column in whole.items()}
        columns["rows"] = whole["rows"][: int(np.maximum(columns["row_width"], 0).sum())]
        buffer = _native.UpdateBuffer()
        buffer.from_arrays(columns)
        return SlotBatch.of(buffer)

    def __reduce_ex__(self, protocol: Any) -> tuple[type[SlotBatch], tuple[Any, Int64Array | None]]:
        return SlotBatch, (_sent(self.block, protocol), self.added)


class PartChanges(NamedTuple):
    """What a batch made of a part's own vertices, and its cost.

    block: of _native.own_changes().  moves: None where the engine was not asked for them, or they are too many.
    """

    block: Block
    moves: Moves | None = None

    @classmethod
    def of_slots(cls, slots: AnyArray) -> Self:
        """Of these vertices, ascending, at no cost."""
        return cls(_NUMBER.pack(len(slots)) + slots.astype(np.uint32).tobytes() + _NO_COST)

    @property
    def vertex_count(self) -> int:
        """How many vertices have changed."""
        return int(_NUMBER.unpack_from(self.block)[0])

    @property
    def slots(self) -> npt.NDArray[np.uint32]:
        """These, by slots of the whole graph, ascending; read-only."""
        return np.frombuffer(self.block, np.uint32, self.vertex_count, _NUMBER.size)

    def to_native(self) -> _native.NativeChanges:
        """The same as an engine has them, with the cost of each stage: a copy."""
        return _native.changes_of_block(_numbers(self.block))

    def __reduce_ex__(self, protocol: Any) -> tuple[type[PartChanges], tuple[Any, Moves | None]]:
        return PartChanges, (_sent(self.block, protocol), self.moves)


def _numbers(block: Block) -> npt.NDArray[np.uint8]:
    return np.frombuffer(block, np.uint8)


def _sent(block: Block, protocol: int) -> bytes | PickleBuffer:
    return PickleBuffer(block) if protocol >= _BY_BUFFERS else bytes(block)
