"""The frame around every entry, the same in all implementations.

frame    = "LGL1" checksum offset key_length key payload          integers little-endian
checksum = uint32, CRC-32 (zlib) of all that follows it
offset   = uint64        the entry's own place: a frame that strayed is refused
key      = key_length (uint16) bytes of UTF-8

CRC-32 because it must catch accidents, not forgers: it finds every burst of up to 32 bits and misses one of 2^32 other
changes, cutting short included. An attacker who can forge an entry could forge a stronger unkeyed sum as well.
"""

from __future__ import annotations

import struct
import zlib

from livegnn.errors import DtypeInvalid, LogDamaged, ValueInvalid

_MAGIC = b"LGL1"
_HEAD = struct.Struct("<4sI")
_FIELDS = struct.Struct("<QH")
KEY_BYTES_MAX = 255


def encode(offset: int, key: str, payload: bytes) -> bytes:
    """The frame of an entry."""
    name = key.encode()
    fields = _FIELDS.pack(offset, len(name))
    checksum = zlib.crc32(payload, zlib.crc32(name, zlib.crc32(fields)))
    return b"".join((_HEAD.pack(_MAGIC, checksum), fields, name, payload))


def decode(log: str, offset: int, framed: bytes) -> tuple[str, bytes]:
    """(key, payload) of the frame found at `offset`. Raises: LogDamaged."""
    claimed = claimed_offset(log, offset, framed)
    if claimed != offset:
        raise LogDamaged(
            f"[{log}, offset {offset}] expected the entry of this offset, got that of {claimed}; "
            "restore the log from a copy"
        )
    start = _HEAD.size + _FIELDS.size
    end = start + _FIELDS.unpack_from(framed, _HEAD.size)[1]
    return framed[start:end].decode(), framed[end:]


def claimed_offset(log: str, place: int, framed: bytes) -> int:
    """The offset that a frame was written for, after its checksum was found good. Raises: LogDamaged."""
    size = _HEAD.size + _FIELDS.size
    found = None
    if not isinstance(framed, bytes) or len(framed) < size:
        got = f"{len(framed)} bytes" if isinstance(framed, bytes) else type(framed).__name__
        found = f"expected a frame of at least {size} bytes, got {got}"
    else:
        magic, checksum = _HEAD.unpack_from(framed)
        actual = zlib.crc32(memoryview(framed)[_HEAD.size :])
        if magic != _MAGIC:
            found = f"expected a frame of format {_MAGIC.decode()}, got {magic!r}"
        elif checksum != actual:
            found = f"expected checksum {checksum:08x}, got {actual:08x}"
    if found is not None:
        raise LogDamaged(f"[{log}, offset {place}] {found}; restore the log from a copy")
    return int(_FIELDS.unpack_from(framed, _HEAD.size)[0])


def checksum_of(framed: bytes) -> int:
    """The checksum that a frame carries, as it stands there."""
    return int.from_bytes(framed[4:8], "little")


def check_key(where: str, key: object) -> None:
    """Refuses what is not a string of 1 to 255 bytes of printable characters."""
    if not isinstance(key, str):
        raise DtypeInvalid(f"[{where}] expected key as a string, got {key!r}; name the append with a string")
    if not key.isascii() or not key.isprintable() or key != key.strip() or not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueInvalid(
            f"[{where}] expected a key of 1 to {KEY_BYTES_MAX} printable ASCII characters without blanks around it, "
            f"got {key!r}; use such a key"
        )
