"""The files of an SQLite log: which paths can hold one, and what lies there of one that has lost its database.

history.db                  the database
history.db-wal, -shm        SQLite's journal and its index, while the log is open
history.db-tail-NAME        the tail record of log NAME (tail.py)
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from livegnn.errors import LogDamaged, LogUnavailable, UsageError, ValueInvalid
from livegnn.log.tail import TailFile

_TAIL_NAME = re.compile(r"-tail-[a-z0-9_-]{1,64}")


def checked_path(path: str) -> Path:
    """The path of a database, links followed, as SQLite does for its journal.

    Raises:  ValueInvalid, UsageError for what cannot hold a durable log.
    """
    if not path.strip() or path == ":memory:" or path.startswith("file:"):
        raise ValueInvalid(
            f"[open_log] expected the path of a file, got {path!r}, which outlives no process; name a file on a disk"
        )
    if "\0" in path:
        raise ValueInvalid(f"[open_log] expected a path without NUL, got {path!r}; name another file")
    try:
        found = Path(os.path.realpath(path))
        os.fsencode(found)
        if not found.parent.is_dir():
            raise UsageError(f"[open_log] expected a folder {found.parent} to hold the log, got none; make it first")
        if size_of(found) is not None and not stat.S_ISREG(found.stat().st_mode):
            raise UsageError(f"[open_log] expected {found} as a file, got a folder or a device; name a file in it")
    except UnicodeEncodeError as cause:
        raise ValueInvalid(f"[open_log] expected a path of valid Unicode, got {path!r}; name another file") from cause
    except OSError as cause:
        raise _unreachable(path, cause) from cause
    return found


def size_of(path: Path) -> int | None:
    """Bytes of a file, None if there is none. Raises: LogUnavailable."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise _unreachable(str(path), cause) from cause


def tail_path(path: Path, name: str) -> Path:
    """Where the tail record of a log lies. SQLite's names have no case, so it has none."""
    return path.with_name(f"{path.name}-tail-{name.lower()}")


def refuse_remains(path: Path) -> None:
    """Of a database that is missing, empty or new. Raises: LogDamaged where a file next to it records entries."""
    try:
        names = sorted(os.listdir(path.parent))
    except OSError as cause:
        raise _unreachable(str(path.parent), cause) from cause
    remains = [
        each
        for each in names
        if each.startswith(path.name)
        and _TAIL_NAME.fullmatch(each[len(path.name) :])
        and _records_entries(path.with_name(each))
    ]
    journal = path.with_name(f"{path.name}-wal")
    if not size_of(path) and size_of(journal):
        remains.append(journal.name)
    if remains:
        raise LogDamaged(
            f"[open_log] expected the entries of {path} that {', '.join(remains)} records, got a file that is missing "
            "or empty; restore it from a copy, or remove what is left of it to begin a new log"
        )


def _records_entries(path: Path) -> bool:
    with contextlib.closing(TailFile(path)) as left:
        return left.read("open_log").floor > 0


def _unreachable(path: str, cause: OSError) -> LogUnavailable:
    return LogUnavailable(
        f"[open_log] expected {path!r} to be reached, got {cause.strerror or cause}; "
        "name another file, or see to the disk"
    )
