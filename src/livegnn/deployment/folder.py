"""The data folder of a deployment: its lock and the place of its log."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from livegnn.errors import UsageError


def log_url(data: Path, url: str) -> str:
    """The log that a configuration names, or the one in the data folder."""
    return url or f"sqlite:{data / 'history.db'}"


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Holds the folder's lock: one process at a time has it open. Raises: UsageError."""
    with (data / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            raise UsageError(
                f"[start] expected {data} for this process alone, got one that another has open; close that one, or "
                "name another folder"
            ) from cause
        yield
