"""Zips of .npy members, as numpy.savez writes them: read whole, with every CRC, and never more than there are bytes."""

from __future__ import annotations

import math
import struct
import threading
import zipfile
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from livegnn.stored import Content

_END = struct.Struct("<4s4H2IH")  # the record that ends a zip
_ZIP64_BYTES = 56 + 20  # of the two records in front of it that torch writes
_ELSEWHERE = 0xFFFFFFFF
_CHUNK_BYTES = 1 << 20
_HEADER_LOCK = threading.RLock()  # ast.literal_eval, which reads headers, counts its depth once for all threads


def read_arrays(content: Content) -> dict[str, NDArray[Any]]:
    """Every array by its name. Raises: ValueError, and what zipfile raises, for a file that is none such."""
    check_end(content)
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(content) as members:
        entries = members.infolist()
        if sum(entry.file_size for entry in entries) > content.length:
            raise ValueError("members of more bytes than the file has")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if name == entry.filename or name in arrays or entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"a member {entry.filename!r} that numpy.savez does not write")
            with members.open(entry) as member:
                arrays[name] = _read_array(member, entry.file_size, name)  # type: ignore[arg-type]
    return arrays


def _read_array(member: BinaryIO, size: int, name: str) -> NDArray[Any]:
    """One member. The array is made only where the bytes that are there fill it."""
    version = np.lib.format.read_magic(member)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with _HEADER_LOCK:
        shape, by_column, dtype = readers[version](member)
    count = math.prod(shape)
    if dtype.hasobject or min(shape, default=0) < 0 or count * dtype.itemsize != size - member.tell():
        raise ValueError(f"a member {name!r} whose header says {shape} of {dtype}, and whose {size} bytes are others")
    flat: NDArray[Any] = np.empty(count, dtype)
    left = flat.view(np.uint8).data if flat.nbytes else memoryview(b"")
    while left:
        chunk = member.read(min(_CHUNK_BYTES, len(left)))
        if not chunk:
            raise ValueError(f"a member {name!r} that ends early")
        left[: len(chunk)] = chunk
        left = left[len(chunk) :]
    if member.read(1):  # where the CRC of all is compared
        raise ValueError(f"a member {name!r} that does not end")
    return flat.reshape(shape[::-1]).T if by_column else flat.reshape(shape)


def check_end(content: Content) -> None:
    """Raises: ValueError unless the file ends where its zip ends, and begins where that begins."""
    content.seek(max(0, content.length - _ZIP64_BYTES - _END.size))
    last = content.read() or b""
    zip64, record = last[: -_END.size], last[-_END.size :]
    if len(record) < _END.size or record[:4] != b"PK\x05\x06":
        raise ValueError("it is no zip, or none that ends where the file does")
    *_, size, offset, comment = _END.unpack(record)
    if _ELSEWHERE in (size, offset) and len(zip64) == _ZIP64_BYTES:  # of a file from 4 GiB
        size, offset = struct.unpack_from("<2Q", zip64, 40)
    between = content.length - _END.size - size - offset  # of the directory and this record
    if comment or not (between == 0 or (between == _ZIP64_BYTES and zip64[:4] == b"PK\x06\x06")):
        raise ValueError("its zip ends elsewhere than the file")
    content.seek(0)


def sound_zip(content: Content) -> BytesIO:
    """A zip of the same members, each compared with its CRC: what a reader that compares none may be given.

    Raises: ValueError, and what zipfile raises.
    """
    check_end(content)
    sound = BytesIO()
    with zipfile.ZipFile(content) as members, zipfile.ZipFile(sound, "w") as copy:
        for entry in members.infolist():
            copy.writestr(entry.filename, members.read(entry))
    sound.seek(0)
    return sound
