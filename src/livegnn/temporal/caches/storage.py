"""The file that FeatureCache.save writes: which ids were cached, and in which order they would have gone. No rows: they
are read again, so that a file never brings an old row back.

file = zip of .npy members (numpy's own format, no pickles), each with the zip's CRC-32
meta = uint8 JSON {"format": "livegnn-cache", "format_version": 1, "policy": str}
ids  = (n,) int64, unique, the first to go first  |  uses = (n,) int64, fetches that used each since it came, 1 to 2^62
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from livegnn.errors import StoredStateInvalid, UsageError
from livegnn.stored import UNREADABLE, replaced
from livegnn.types import Int64Array

__all__ = ["USES_MAX", "read_contents", "write_contents"]

USES_MAX = 2**62  # uses go on being counted, and must not overflow

_FORMAT, _FORMAT_VERSION = "livegnn-cache", 1


def write_contents(path: Path, policy: str, ids: Int64Array, uses: Int64Array) -> None:
    """Writes the file beside its place, syncs and renames it: a crash leaves the old file or the new one."""
    if not path.parent.is_dir():
        raise UsageError(f"[save] expected a folder {path.parent} to write {path.name} in, got none; make it first")
    meta = json.dumps({"format": _FORMAT, "format_version": _FORMAT_VERSION, "policy": policy}).encode()
    with replaced(path) as file:
        np.savez(file, allow_pickle=False, meta=np.frombuffer(meta, np.uint8), ids=ids, uses=uses)


def read_contents(path: Path) -> tuple[str, Int64Array, Int64Array]:
    """Policy, ids and uses. Raises: StoredStateInvalid naming the file; FileNotFoundError."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        meta = json.loads(arrays["meta"].tobytes())
        if meta["format"] != _FORMAT or meta["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"format {meta['format']} version {meta['format_version']}")
        ids, uses = arrays["ids"], arrays["uses"]
        if ids.dtype != np.int64 or uses.dtype != np.int64 or ids.ndim != 1 or ids.shape != uses.shape:
            raise ValueError("ids and uses that are not int64 arrays of one length")
        if len(np.unique(ids)) != len(ids) or (len(ids) and (ids.min() < 0 or uses.min() < 1 or uses.max() > USES_MAX)):
            raise ValueError("ids that are negative or there twice, or uses that are not from 1 to 2^62")
        return str(meta["policy"]), ids, uses
    except FileNotFoundError:
        raise
    except UNREADABLE as cause:
        raise StoredStateInvalid(
            f"[load] expected a file that FeatureCache.save wrote at {path}, got one that cannot be read ({cause}); "
            "start with an empty cache, or use another copy"
        ) from cause
