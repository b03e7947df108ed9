"""A limit of memory for an engine's rows: what it was asked to be, where the rest lies, and what it came to.

docs/memory.md says what counts.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from livegnn.errors import DtypeInvalid, UsageError, ValueInvalid

LEAST_LIMIT = 4 << 20  # bytes; below it a batch would drop the rows that it is using

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True)
class Memory:
    """What the rows of an engine with a limit of memory take.

    limit: as given.  resident: bytes of rows in memory now, as the system has it.  files: bytes on disk.
    hubs: vertices whose rows always stay.  pages_in, pages_out: pages that came into memory and left it, since the
    engine was made; a page's first use counts.
    """

    limit: int
    resident: int
    files: int
    hubs: int
    pages_in: int
    pages_out: int


def memory_options(limit: object, folder: str | os.PathLike[str] | None) -> tuple[int, str]:
    """Bytes and folder as the native engine takes them: 0 and "" where there is no limit.

    Raises: as parse_limit and spill_place; ValueInvalid for a folder without a limit.
    """
    if limit is not None:
        return parse_limit(limit), spill_place(folder)
    if folder is not None:
        raise ValueInvalid(
            f"[Engine] expected memory_limit= with spill_folder=, got the folder {folder} alone; pass both or neither"
        )
    return 0, ""


def parse_limit(limit: object) -> int:
    """Bytes of "512MiB", "2 GB" or an int, at least 4 MiB.

    Raises: DtypeInvalid for another type; ValueInvalid for text that is no size, or one below 4 MiB.
    """
    size: float
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([KMGT]i?B)\s*", limit)
        if found is None:
            raise ValueInvalid(
                f"[Engine] expected memory_limit as a number with {', '.join(_UNITS)}, got {limit!r}; "
                "write it as in '512MiB'"
            )
        size = float(found[1]) * _UNITS[found[2]]
    elif type(limit) is int:
        size = limit
    else:
        raise DtypeInvalid(
            f"[Engine] expected memory_limit as text with a unit or bytes as an int, got {limit!r} of "
            f"{type(limit).__name__}; write it as in '2GiB'"
        )
    if not LEAST_LIMIT <= size < 2**62:
        raise ValueInvalid(
            f"[Engine] expected memory_limit of at least 4 MiB and below 2^62 bytes, got {limit!r}; choose another"
        )
    return int(size)


def spill_place(folder: str | os.PathLike[str] | None) -> str:
    """The folder for rows that are not in memory: the given one, else $TMPDIR, else the first of /var/tmp (made for
    large files, and on a disk where /tmp is often in memory) and the system's temporary folder.

    Raises: UsageError where it is not there; DtypeInvalid for another type.
    """
    named = folder if folder is not None else os.environ.get("TMPDIR")
    if named is not None:
        if not isinstance(named, str | os.PathLike):
            raise DtypeInvalid(f"[Engine] expected spill_folder as a path, got {named!r}; pass text or a Path")
        place = Path(named)
        if not place.is_dir():
            which = "$TMPDIR" if folder is None else "spill_folder"
            raise UsageError(f"[Engine] expected a folder as {which}, got {place}; make it first")
        return str(place)
    large = Path("/var/tmp")
    return str(large) if large.is_dir() and os.access(large, os.W_OK) else tempfile.gettempdir()
