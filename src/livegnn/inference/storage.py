"""The file that Engine.save writes.

file    = zip of .npy members (numpy's own format, no pickles), each with the zip's CRC-32, and a trailer (stored.py)
members = "graph.*" arrays of the store | "model.*" arrays of the model | "scale.<k>" int32 exponents | "meta" JSON as
uint8
meta    = {"format": "livegnn-engine", "format_version": 3, "settings": {...}, "model": <structure>, "scales": count}

Version 2 is that of livegnn 0.1, without a trailer; its settings have a "precision", too: "exact" or "float32".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import StoredStateInvalid
from livegnn.graph.consumers import Switch
from livegnn.models.model import Model
from livegnn.stored import Content, checked, replaced
from livegnn.stored_arrays import read_arrays

_FORMAT, _FORMAT_VERSION, _UNSEALED_VERSION = "livegnn-engine", 3, 2
_SETTINGS = {"strategy", "state", "mode", "hot", "path", "fanout", "seed"}
_OPTIONAL = {"precision", "name"}


def save(
    path: Path, graph: Mapping[str, NDArray[Any]], model: Model, scales: list[list[int]], settings: dict[str, Any]
) -> None:
    """Writes a temporary file, syncs it and renames it, so that a crash leaves the old file or the new one."""
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
    with replaced(path, "save") as file:
        np.savez(file, allow_pickle=False, **members)


def opened(path: object) -> AbstractContextManager[Content]:
    """The content of a saved engine's file, compared with its checksum. Raises: as livegnn.stored.checked."""
    return checked(path, "load", expected="a file that Engine.save wrote", advice="use another copy")


def parts(content: Content) -> tuple[dict[str, NDArray[Any]], Model, list[list[int]], dict[str, Any]]:
    """Graph, model, scales and settings of a saved engine. Raises: what `opened` makes a StoredStateInvalid."""
    arrays = read_arrays(content)
    meta = json.loads(arrays.pop("meta").tobytes())
    version = _FORMAT_VERSION if content.sealed else _UNSEALED_VERSION
    if meta["format"] != _FORMAT or meta["format_version"] != version:
        raise ValueError(f"format {meta['format']} version {meta['format_version']}")
    settings = meta["settings"]
    if set(settings) - _OPTIONAL != _SETTINGS:
        raise ValueError(f"settings {sorted(settings)}, not {sorted(_SETTINGS)}")
    model = Model.from_arrays(meta["model"], _part(arrays, "model."))
    rows = _part(arrays, "scale.")
    if len(rows) != meta["scales"] or any(row.dtype != np.int32 or row.ndim != 1 for row in rows.values()):
        raise ValueError(f"{len(rows)} rows of scales, not {meta['scales']} of int32")
    return _part(arrays, "graph."), model, [rows[str(k)].tolist() for k in range(len(rows))], settings


def switch_of(name: str, kind: str, model: Model, scales: list[list[int]]) -> Switch:
    """A swap to the model, or a rescale of it. The scales are written down: how they were chosen may change."""
    if kind == "rescale":
        return Switch(name, kind, {"scales": scales}, {})
    structure, weights = model.to_arrays()
    return Switch(name, kind, {"scales": scales, "model": structure}, weights)


def switched(switch: Switch, model: Model) -> tuple[Model, list[list[int]]]:
    """Model and scales of an engine after a switch; `model` is the one before. Raises: StoredStateInvalid."""
    return swapped(switch) if switch.kind == "swap" else (model, _of(switch, "scales"))


def swapped(switch: Switch) -> tuple[Model, list[list[int]]]:
    """Model and scales of an engine after a swap. Raises: StoredStateInvalid."""
    return Model.from_arrays(_of(switch, "model"), switch.arrays), _of(switch, "scales")


def _of(switch: Switch, part: str) -> Any:
    if part not in switch.data:
        raise StoredStateInvalid(
            f"[{switch.kind}] expected a switch with {part!r}, got one without; use the version that wrote it"
        )
    return switch.data[part]


def model_digest(model: Model) -> str:
    """Hash of the model's structure and the bits of its weights, as hexadecimal."""
    structure, weights = model.to_arrays()
    digest = hashlib.sha256(json.dumps(structure, sort_keys=True).encode())
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].tobytes())
    return digest.hexdigest()


def state_digest(model: Model, graph: int, state: int) -> str:
    """What Engine.state_digest() gives, of the digests of its parts."""
    parts = (model_digest(model), f"{graph:016x}", f"{state:016x}", "exact")  # as in livegnn 0.1
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def _part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
