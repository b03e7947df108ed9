"""Files that are there as a whole or as they were before: written beside their place, synced and renamed."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["UNREADABLE", "replaced"]

# what reading a damaged .npz file may raise
UNREADABLE = (
    KeyError,
    ValueError,
    TypeError,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def replaced(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to be written, which takes the place of `path` when the block ends, and goes if it fails.

    A crash leaves the old file or the new one. private: for its owner only, else as the process's umask says.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not private:
            beside.chmod(0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's mask of file modes; there is no way to read it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
