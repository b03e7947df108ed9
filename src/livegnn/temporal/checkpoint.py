"""Checkpoints of training: one file, written next to its place and renamed, so that there is always a whole one; and
the folders that they go to: made, and tried out, before a training begins.

file  = torch.save of state, read with weights_only, and a trailer (stored.py)
state = {"format": 2, "options": str, ...plain values and tensors}; format 1, of livegnn 0.1, has no trailer
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from livegnn.errors import LiveGnnError, StoredStateInvalid, UsageError
from livegnn.graph.checks import shown
from livegnn.optional import need
from livegnn.stored import checked, file_path, made_folder, replaced
from livegnn.stored_arrays import sound_zip

_FORMAT, _UNSEALED_FORMAT = 2, 1


def write_checkpoint(path: Path, state: dict[str, Any], where: str) -> None:
    """Replaces the file by a new one, which is on disk when this returns. Raises: UsageError, StorageFailed."""
    torch = need("torch", "train")
    for name in _without_numbers("", state):
        raise UsageError(
            f"[{where}] expected tensors with numbers, got {name} on device meta, which has none; load the "
            "trained weights"
        )
    made_folder(where, file_path(where, path).parent)
    with replaced(path, where) as file:
        torch.save({"format": _FORMAT, **state}, file)


def _without_numbers(name: str, value: Any) -> Iterator[str]:
    """Names of the tensors on device meta, at any depth."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _without_numbers(f"{name}.{key}".lstrip("."), part)
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _without_numbers(f"{name}[{place}]", part)
    elif getattr(value, "is_meta", False):
        yield name


def read_checkpoint(path: Path, where: str) -> dict[str, Any]:
    """What write_checkpoint wrote. Raises: StoredStateInvalid, naming the file; FileMissing; StorageFailed."""
    torch = need("torch", "train")
    with checked(path, where, expected="a checkpoint", advice="give another, or move it away") as content:
        source = content if content.sealed else sound_zip(content)  # torch itself compares no CRC
        state = torch.load(source, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError(f"a {type(state).__name__}")
        known = _FORMAT if content.sealed else _UNSEALED_FORMAT
    if state.get("format") != known:
        raise StoredStateInvalid(
            f"[{where}] expected a checkpoint of format {known}, got {state.get('format')!r} in {path}; train again in "
            "another folder"
        )
    return dict(state)


@contextmanager
def fitting(path: Path | None, where: str) -> Iterator[None]:
    """A block that puts a checkpoint's values in place; those that are missing or of another kind are named.

    Raises:  StoredStateInvalid in place of what Python and torch raise for them.
    """
    try:
        yield
    except (LiveGnnError, KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as cause:
        if isinstance(cause, LiveGnnError) and str(path) in str(cause):
            raise
        raise StoredStateInvalid(
            f"[{where}] expected a checkpoint's values in {path}, got others ({type(cause).__name__}: {cause}); give "
            "another, or move it away"
        ) from cause


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
