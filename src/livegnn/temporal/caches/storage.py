"""The file that FeatureCache.save writes: which ids were cached, and in which order they would have gone. No rows: they
are read again, so that a file never brings an old row back.

file = zip of .npy members (numpy's own format, no pickles), each with the zip's CRC-32, and a trailer (stored.py)
meta = uint8 JSON {"format": "livegnn-cache", "format_version": 2, "policy": str}; version 1, of livegnn 0.1, has none
ids  = (n,) int64, unique, the first to go first  |  uses = (n,) int64, fetches that used each since it came, 1 to 2^62
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from livegnn.stored import checked, replaced
from livegnn.stored_arrays import read_arrays
from livegnn.types import Int64Array

USES_MAX = 2**62  # uses go on being counted, and must not overflow

_FORMAT, _FORMAT_VERSION, _UNSEALED_VERSION = "livegnn-cache", 2, 1


def write_contents(path: Path, policy: str, ids: Int64Array, uses: Int64Array) -> None:
    """Replaces the file: a crash leaves the old one or the new one. Raises: UsageError, StorageFailed."""
    meta = json.dumps({"format": _FORMAT, "format_version": _FORMAT_VERSION, "policy": policy}).encode()
    with replaced(path, "save") as file:
        np.savez(file, allow_pickle=False, meta=np.frombuffer(meta, np.uint8), ids=ids, uses=uses)


def read_contents(path: Path) -> tuple[str, Int64Array, Int64Array]:
    """Policy, ids and uses. Raises: StoredStateInvalid naming the file; FileMissing; StorageFailed."""
    advice = "start with an empty cache, or use another copy"
    with checked(path, "load", expected="a file that FeatureCache.save wrote", advice=advice) as content:
        arrays = read_arrays(content)
        meta = json.loads(arrays["meta"].tobytes())
        version = _FORMAT_VERSION if content.sealed else _UNSEALED_VERSION
        if meta["format"] != _FORMAT or meta["format_version"] != version:
            raise ValueError(f"format {meta['format']} version {meta['format_version']}")
        ids, uses = arrays["ids"], arrays["uses"]
        if ids.dtype != np.int64 or uses.dtype != np.int64 or ids.ndim != 1 or ids.shape != uses.shape:
            raise ValueError("ids and uses that are not int64 arrays of one length")
        if len(np.unique(ids)) != len(ids) or (len(ids) and (ids.min() < 0 or uses.min() < 1 or uses.max() > USES_MAX)):
            raise ValueError("ids that are negative or there twice, or uses that are not from 1 to 2^62")
        return str(meta["policy"]), ids, uses
