"""Folders that checkpoints go to: made, and tried out, before a training begins."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from livegnn.errors import UsageError
from livegnn.graph.checks import shown

__all__ = ["writable_folder"]


def writable_folder(where: str, name: str, folder: object) -> Path:
    """The folder, made with its parents if need be, where a file was written and taken away again.

    Args:    name: of the argument, for the error.
    Raises:  UsageError where it is no path, cannot be made, or cannot be written to.
    """
    if not isinstance(folder, str | os.PathLike) or not isinstance(os.fspath(folder), str):
        raise UsageError(f"[{where}] expected {name} as a path, got {type(folder).__name__}; give a str")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"livegnn")
    except (OSError, ValueError) as cause:
        raise UsageError(
            f"[{where}] expected {name} as a folder that can be made and written to, got {shown(str(path))} ({cause}); "
            "give another"
        ) from cause
    return path
