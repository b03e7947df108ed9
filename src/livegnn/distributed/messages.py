"""Messages: values as pickles, with the bytes of large arrays next to them, as they lie in memory.

value   = counts, pickle, array ...       each padded to a multiple of 16 bytes, so that arrays are aligned
counts  = how many arrays, the bytes of the pickle, the bytes of each array; 8 bytes each
message = value ...

Who reads a message copies no large array: it is a part of the message, and read-only. Small ones are in the pickle.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any

_PROTOCOL = 5
_ALIGNED, _NUMBER = 16, 8
_LARGE_BYTES = 4096  # of an array that is not copied into the pickle


def pieces_of(value: Any) -> list[bytes | memoryview]:
    """A value, to be sent one piece after the other. Raises: what pickle raises."""
    arrays: list[memoryview] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE_BYTES:
            return True
        arrays.append(raw)
        return False

    pickled = pickle.dumps(value, _PROTOCOL, buffer_callback=stays_inside)
    contents: list[bytes | memoryview] = [pickled, *arrays]
    lengths = [len(arrays), *(memoryview(each).nbytes for each in contents)]
    pieces: list[bytes | memoryview] = []
    for each in (struct.pack(f"<{len(lengths)}q", *lengths), *contents):
        pieces.append(each)
        if gap := -memoryview(each).nbytes % _ALIGNED:
            pieces.append(bytes(gap))
    return pieces


def values_of(message: bytes) -> Iterator[Any]:
    """The values of a message, one after the other. Raises: what pickle raises."""
    whole, at = memoryview(message), 0
    while at < len(whole):
        (count,) = struct.unpack_from("<q", whole, at)
        lengths = struct.unpack_from(f"<{count + 1}q", whole, at + _NUMBER)
        at += _padded(_NUMBER * (count + 2))
        contents = []
        for length in lengths:
            contents.append(whole[at : at + length])
            at += _padded(length)
        yield pickle.loads(contents[0], buffers=contents[1:])


def _padded(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED
