"""Checkpoints of training: one file, written beside and renamed, so that there is always a whole one.

file = torch.save of {"format": 1, "options": str, ...plain values and tensors}, read with weights_only
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from livegnn.errors import StoredStateInvalid
from livegnn.extras import need
from livegnn.stored import replaced

__all__ = ["read_checkpoint", "write_checkpoint"]

_FORMAT = 1


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replaces the file by a new one, which is on disk when this returns."""
    torch = need("torch", "train")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as file:
        torch.save({"format": _FORMAT, **state}, file)


def read_checkpoint(path: Path, where: str) -> dict[str, Any]:
    """What write_checkpoint wrote. Raises: StoredStateInvalid, naming the file."""
    torch = need("torch", "train")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as cause:
        raise StoredStateInvalid(
            f"[{where}] expected a checkpoint, got {path} that cannot be read ({cause}); give another, or move it away"
        ) from cause
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        got = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise StoredStateInvalid(
            f"[{where}] expected a checkpoint of format {_FORMAT}, got {got!r} in {path}; train again in another folder"
        )
    return dict(state)
