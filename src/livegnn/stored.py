"""Files that are there as a whole or as they were before, and that are checked as a whole before any of them is used.

file    = content trailer
trailer = "\\nlivegnn-sum 1 " length " " digest "\\n"         length: of the content, 16 hexadecimal digits
          digest: BLAKE2b of the content, 32 bytes, 64 hexadecimal digits

A file of a foreign format that other programs read (Parquet) is its content alone; what refers to it keeps the digest.
Files of version 0.1 have no trailer: their readers check what these files have, a CRC-32 of each member.

A file is written next to its place as "<name>.<8 random characters>.part", synced and renamed; its folder is synced.
Its writer holds a lock on it, which ends with the process: the next writer of that path deletes such files without a
lock, which a crash left.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from livegnn.errors import DataMissing, FileMissing, SpillUnavailable, StorageFailed, StoredStateInvalid, UsageError

_TRAILER = "\nlivegnn-sum 1 {:016x} {}\n"
_TRAILER_BYTES = len(_TRAILER.format(0, "0" * 64))
_TRAILER_BEGIN = b"\nlivegnn-sum "
_CHUNK_BYTES = 1 << 20
_NAME_BYTES_MAX = 255
_RANDOM = re.compile(r"[a-z0-9_]{8}\.part")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def file_path(where: str, path: object) -> Path:
    """What names a file, as a Path. Raises: UsageError for anything else, a folder among it."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise UsageError(f"[{where}] expected a path, got {path!r}; give a str or a Path")
    found = Path(path)
    try:
        named = b"\0" not in os.fsencode(found)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise UsageError(f"[{where}] expected a path, got {str(path)!r}, which no file can have; name another")
    if os.path.isdir(found):
        raise UsageError(f"[{where}] expected a file, got the folder {found}; name a file in it")
    return found


def made_folder(where: str, path: object, mode: int = 0o777) -> Path:
    """A folder that is there from now on. Raises: UsageError for what names none; StorageFailed."""
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        return Path(path)
    folder = file_path(where, path)
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as cause:
        raise _failed(where, "to make the folder", folder, cause) from cause
    return folder


# ---- writing


@contextmanager
def filled_folder(where: str, place: Path, part: Path) -> Iterator[None]:
    """A new folder `part`, which is at `place` when the block that fills it ends, and goes if the block fails.

    Raises:  StorageFailed where the disk refuses.
    """
    try:
        part.mkdir()
        yield
        os.rename(part, place)
        sync_folder(place.parent)
    except BaseException as cause:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(cause, OSError) and not isinstance(cause, StorageFailed):
            raise _failed(where, "to write", place, cause) from cause
        raise


class PartFile(io.FileIO):
    """A file while it is written. It remembers the first error of the disk, which libraries replace by their own."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failed: OSError | None = None
        self.digest = ""  # of the content, once it is whole

    def write(self, data: Any, /) -> int:
        """All of the data."""
        left = memoryview(data)
        count = left.nbytes
        left = left.cast("B") if count else memoryview(b"")
        try:
            while left:
                left = left[super().write(left) :]
        except OSError as cause:
            self.failed = self.failed or cause
            raise
        return count


@contextmanager
def replaced(path: Path, where: str, *, private: bool = False, sealed: bool = True) -> Iterator[PartFile]:
    """A file to be written, which takes the place of `path` when the block ends, and goes if it fails.

    A crash leaves the old file or the new one. private: for its owner only, else as the process's umask says.
    sealed: with a trailer; without one, the caller keeps the part's `digest`, which is there after the block.
    Raises:  UsageError for a folder that is not there; StorageFailed where the disk refuses.
    """
    try:
        place = _checked_place(path, where)
        _clear_orphans(place)
        descriptor, name = _locked_part(place)
    except OSError as cause:
        raise _failed(where, "to write", path, cause) from cause
    part = PartFile(descriptor)
    try:
        yield part
        part.digest = _digest(descriptor, part.seek(0, os.SEEK_END))
        if sealed:
            part.write(_TRAILER.format(part.tell(), part.digest).encode())
        os.fsync(descriptor)
        if not private:
            os.fchmod(descriptor, 0o666 & ~_umask())
        os.replace(name, place)
        sync_folder(place.parent)
    except BaseException as cause:
        with suppress(OSError):
            os.unlink(name)
        failed = part.failed or (cause if isinstance(cause, OSError) and not isinstance(cause, StorageFailed) else None)
        if failed is not None and isinstance(cause, Exception):
            raise _failed(where, "to write", path, failed) from cause
        raise
    finally:
        part.close()  # the descriptor's number may soon be another file's
        os.close(descriptor)  # and with it the lock


def _checked_place(path: Path, where: str) -> Path:
    """The path, if a file can be there: names that are too long are refused before anything is written."""
    place = file_path(where, path)
    with suppress(FileNotFoundError, NotADirectoryError):
        os.lstat(place)
    if not place.parent.is_dir():
        raise UsageError(
            f"[{where}] expected a folder {place.parent} to write {place.name} in, got none; make it first"
        )
    return place


def _prefix(name: str) -> str:
    """What the names of parts of a file begin with; of a name too long for an ending, its beginning and its CRC."""
    encoded = os.fsencode(name)
    if len(encoded) + len(".12345678.part") <= _NAME_BYTES_MAX:
        return f"{name}."
    return os.fsdecode(encoded[:200]) + f"-{zlib.crc32(encoded):08x}."


def _locked_part(place: Path) -> tuple[int, str]:
    """A new part, locked by this process: its descriptor and name."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=_prefix(place.name), suffix=".part")
        with suppress(OSError):  # where there are no locks, parts of crashed writers stay
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)  # another writer took it for an orphan before it was locked


def _clear_orphans(place: Path) -> None:
    """Deletes parts of this file whose writers are gone."""
    prefix = _prefix(place.name)
    with os.scandir(place.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix)]
    for name in names:
        if not _RANDOM.fullmatch(name[len(prefix) :]):
            continue
        with suppress(OSError):  # gone by itself, another user's, or locked by its writer
            descriptor = os.open(place.parent / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(place.parent / name)
            finally:
                os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Puts a renaming in it on disk. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as cause:
        if cause.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that have no such call
            raise
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The process's mask of file modes; there is no way to read it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# ---- reading


class Content(io.RawIOBase):
    """What of a file lies before its trailer; all of a file without one."""

    def __init__(self, descriptor: int, length: int, sealed: bool, digest: str, where: str, path: Path) -> None:
        self._descriptor = descriptor
        self._at = 0
        self._where, self._path = where, path
        self.length, self.sealed, self.digest = length, sealed, digest

    def readinto(self, into: Any, /) -> int:
        """Fills the buffer, but at the end."""
        view = memoryview(into).cast("B")[: max(0, self.length - self._at)]
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self._descriptor, [view[done:]], self._at + done)
            except OSError as cause:
                raise _failed(self._where, "to read", self._path, cause) from cause
            if count == 0:
                raise _failed(self._where, "to read", self._path, _shorter())
            done += count
        self._at += done
        return done

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = (0, self._at, self.length)[whence]
        if base + offset < 0:
            raise ValueError(f"a place {base + offset} before the file")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


@contextmanager
def checked(path: object, where: str, *, expected: str, advice: str) -> Iterator[Content]:
    """The content of a file whose every byte was compared with its trailer; or, of one without, all of it.

    What goes wrong in the block makes the file a damaged one. expected: "a file that Engine.save wrote".  advice: what
    to do about a damaged one.
    Raises:  StoredStateInvalid naming the file; FileMissing; StorageFailed; UsageError for what names no file. Errors
             of the machine pass: MemoryError, SpillUnavailable; and DataMissing, of another file or a package.
    """
    place = file_path(where, path)
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as cause:
        raise FileMissing(
            f"[{where}] expected {expected} at {place}, got no such file; name one that is there"
        ) from cause
    except OSError as cause:
        raise _failed(where, "to read", place, cause) from cause
    try:
        with _content(descriptor, where, place) as content:
            yield content
    except (StorageFailed, SpillUnavailable, DataMissing, MemoryError):
        raise
    except Exception as cause:  # whatever the readers of formats make of bytes that are none
        got = str(cause) or type(cause).__name__
        raise StoredStateInvalid(
            f"[{where}] expected {expected} at {place}, got one that cannot be read ({got}); {advice}"
        ) from cause
    finally:
        os.close(descriptor)


def _content(descriptor: int, where: str, path: Path) -> Content:
    """Raises: ValueError for another digest than the trailer's; StorageFailed."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if found.st_size == 0:
            raise ValueError("it is empty")
        length = max(0, found.st_size - _TRAILER_BYTES)
        trailer = os.pread(descriptor, _TRAILER_BYTES, length)
        sealed = trailer.startswith(_TRAILER_BEGIN)
        length = length if sealed else found.st_size
        digest = _digest(descriptor, length)
    except OSError as cause:
        raise _failed(where, "to read", path, cause) from cause
    if sealed and trailer != _TRAILER.format(length, digest).encode():
        raise ValueError("its checksum is not that of its content: it was changed or cut")
    return Content(descriptor, length, sealed, digest, where, path)


# ---- both


def _digest(descriptor: int, length: int) -> str:
    """Of the first bytes of a file. Raises: OSError if there are fewer."""
    hashed, at = hashlib.blake2b(digest_size=32), 0
    while at < length:
        chunk = os.pread(descriptor, min(_CHUNK_BYTES, length - at), at)
        if not chunk:
            raise _shorter()
        hashed.update(chunk)
        at += len(chunk)
    return hashed.hexdigest()


def _shorter() -> OSError:
    return OSError(errno.EIO, "the file became shorter while it was read")


def _failed(where: str, doing: str, path: Path, cause: OSError) -> StorageFailed:
    advice = "make room there" if cause.errno in _FULL else "look at the path, its folder and the disk"
    got = cause.strerror or str(cause)
    return StorageFailed(f"[{where}] expected {doing} {path}, got {got!r}; {advice}, or name another path")
