"""The file that Engine.save writes.

file    = zip of .npy members (numpy's own format, no pickles), each with the zip's CRC-32
members = "graph.*" arrays of the store | "model.*" arrays of the model | "scale.<k>" int32 exponents | "meta" JSON as
uint8
meta    = {"format": "livegnn-engine", "format_version": 2, "settings": {...}, "model": <structure>, "scales": count}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import LiveGnnError, StoredStateInvalid, UsageError
from livegnn.models.model import Model
from livegnn.stored import UNREADABLE, replaced

__all__ = ["load", "model_digest", "save"]

_FORMAT, _FORMAT_VERSION = "livegnn-engine", 2


def file_path(where: str, path: object) -> Path:
    """What names a file, as a Path. Raises: UsageError for anything else, a folder among it."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"[{where}] expected a path, got {path!r}; give a str or a Path")
    found = Path(path)
    if found.is_dir():
        raise UsageError(f"[{where}] expected a file, got the folder {found}; name a file in it")
    return found


def save(
    path: Path, graph: Mapping[str, NDArray[Any]], model: Model, scales: list[list[int]], settings: dict[str, Any]
) -> None:
    """Writes the file beside its place, syncs it and renames it, so that a crash leaves the old file or the new one."""
    structure, weights = model.to_arrays()
    meta = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "settings": settings,
        "model": structure,
        "scales": len(scales),
    }
    members: dict[str, NDArray[Any]] = {f"graph.{name}": array for name, array in graph.items()}
    members |= {f"model.{name}": array for name, array in weights.items()}
    members |= {f"scale.{k}": np.array(row, np.int32) for k, row in enumerate(scales)}
    members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    if not path.parent.is_dir():
        raise UsageError(f"[save] expected a folder {path.parent} to write {path.name} in, got none; make it first")
    with replaced(path) as file:
        np.savez(file, allow_pickle=False, **members)


def load(path: Path) -> tuple[dict[str, NDArray[Any]], Model, list[list[int]], dict[str, Any]]:
    """The parts of a saved engine. Raises: StoredStateInvalid naming the file."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        if meta["format"] != _FORMAT or meta["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"format {meta['format']} version {meta['format_version']}")
        model = Model.from_arrays(meta["model"], _part(arrays, "model."))
        scales = [[int(e) for e in arrays[f"scale.{k}"]] for k in range(meta["scales"])]
        return _part(arrays, "graph."), model, scales, meta["settings"]
    except FileNotFoundError:
        raise
    except (*UNREADABLE, LiveGnnError) as cause:
        raise StoredStateInvalid(
            f"[load] expected a file that Engine.save wrote at {path}, got one that cannot be read ({cause}); "
            "use another copy"
        ) from cause


def model_digest(model: Model) -> str:
    """Hash of the model's structure and the bits of its weights, as hexadecimal."""
    structure, weights = model.to_arrays()
    digest = hashlib.sha256(json.dumps(structure, sort_keys=True).encode())
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].tobytes())
    return digest.hexdigest()


def _part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
