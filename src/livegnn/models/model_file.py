"""The file that Model.save writes.

file    = zip of .npy members (numpy's own format, no pickles), each with the zip's CRC-32, and a trailer (stored.py)
members = "model.*" arrays of the model | "meta" JSON as uint8
meta    = {"format": "livegnn-model", "format_version": 1, "model": <structure>}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegnn.stored import checked, file_path, replaced
from livegnn.stored_arrays import read_arrays

_FORMAT, _FORMAT_VERSION = "livegnn-model", 1


def write(
    path: str | os.PathLike[str], structure: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]]
) -> None:
    """Writes what Model.to_arrays gave; a crash leaves the old file or the new one. Raises: as stored.replaced."""
    meta = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "model": structure}
    members: dict[str, NDArray[Any]] = {f"model.{name}": array for name, array in arrays.items()}
    members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with replaced(file_path("Model.save", path), "Model.save") as file:
        np.savez(file, allow_pickle=False, **members)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What Model.from_arrays takes. Raises: StoredStateInvalid, FileMissing, StorageFailed."""
    expected = "a file that Model.save wrote"
    with checked(path, "Model.load", expected=expected, advice="use another copy") as content:
        arrays = read_arrays(content)
        meta = json.loads(arrays.pop("meta").tobytes())
        if not content.sealed or meta["format"] != _FORMAT or meta["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"format {meta['format']} version {meta['format_version']}")
        return meta["model"], {name.removeprefix("model."): array for name, array in arrays.items()}
