"""A graph in files of shares, which no process has to hold whole: of Cluster.save(in_parts=True) and PartsWriter.

    FOLDER/share-000000.npz     sealed (stored.py): a share (shuffle.py), vertices and edges; columns may be missing,
                                and features of vertices with types as narrow as those of its types
          directory.npz         sealed: "graph.*" the graph without edges and features, with its ids and types;
                                "file_of" (V,) int32 number of the file that has the vertex of each slot; "width" and
                                "type_widths" of features; "edges" how many there are, without self-loops;
                                "parts.*" VertexParts, "model.*" and "scale.K", each only of a cluster
                                "meta" JSON as uint8: {"model": structure or null, "scales": count, "name": text}
          manifest.json         sealed: {"format": "livegnn-parts-1", "version", "files": {name: digest}}

Every vertex and every edge is in one share. The folder has another name until all of its files are synced. Readers
compare the digest of each file before any worker starts its engine.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from livegnn.distributed.cluster.cut import EDGE_COLUMNS, Share, empty_share, joined_shares
from livegnn.distributed.cluster.recipe import GraphShape
from livegnn.distributed.partition import VertexParts
from livegnn.errors import UsageError
from livegnn.graph.graph import Graph
from livegnn.models.model import Model
from livegnn.stored import checked, file_path, filled_folder, replaced
from livegnn.stored_arrays import read_arrays
from livegnn.types import AnyArray

DIRECTORY, MANIFEST = "directory.npz", "manifest.json"
FORMAT = "livegnn-parts-1"
EXPECTED, ADVICE = "a file of a graph in parts", "use another copy of its folder"


class PartsManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """files: their blake2b-256 digests, shares in order of their numbers."""

    format: str
    version: int
    files: dict[str, str]


def share_name(number: int) -> str:
    """The name of a share's file."""
    return f"share-{number:06d}.npz"


# ---- writing


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write to; when the block ends it gets the name `path`, and if it fails it goes.

    Raises:  UsageError where the path is taken, or its parent is no folder; StorageFailed.
    """
    if isinstance(path, str | os.PathLike) and os.path.lexists(path):
        raise UsageError(f"[save] expected a path that is free, got {path}, which is there; name a new folder")
    place = file_path("save", path).absolute()
    if not place.parent.is_dir():
        raise UsageError(f"[save] expected a folder {place.parent} to write {place.name} in, got none; make it first")
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.part")
    with filled_folder("save", place, part):
        yield part


def write_arrays(path: Path, arrays: Mapping[str, AnyArray]) -> str:
    """Writes a sealed file; its digest. Raises: StorageFailed."""
    with replaced(path, "save") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return file.digest


def write_directory(
    folder: Path,
    graph: Graph,
    shape: GraphShape,
    file_of: AnyArray,
    digests: Sequence[str],
    *,
    next_edge_id: int,
    edges: int,
    parts: VertexParts | None = None,
    model: Model | None = None,
    scales: Sequence[Sequence[int]] = (),
    name: str = "",
) -> None:
    """Writes what is not in shares; the manifest last.

    Args:    graph: without edges and features.  file_of: (V,) number of the share of each slot.  digests: of the
             shares' files.  edges: without self-loops.
    Raises:  StorageFailed.
    """
    structure, weights = (None, {}) if model is None else model.to_arrays()
    arrays = {f"graph.{name}": array for name, array in graph.to_arrays().items()}
    arrays["graph.store.counters"] = np.array([graph.version, next_edge_id], np.int64)
    arrays |= {"file_of": np.asarray(file_of, np.int32), "edges": np.array(edges, np.int64)}
    arrays |= {"width": np.array(shape.feature_width, np.int64)}
    arrays |= {"type_widths": np.array(list(shape.feature_widths.values()), np.int64)}
    arrays |= {f"model.{name}": array for name, array in weights.items()}
    arrays |= {f"scale.{k}": np.array(row, np.int32) for k, row in enumerate(scales)}
    if parts is not None:
        arrays |= {f"parts.{name}": array for name, array in parts.to_arrays().items()}
    meta = {"model": structure, "scales": len(scales), "name": name}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    files = {DIRECTORY: write_arrays(folder / DIRECTORY, arrays)}
    files |= {share_name(number): digest for number, digest in enumerate(digests)}
    with replaced(folder / MANIFEST, "save") as file:
        file.write(msgspec.json.encode(PartsManifest(FORMAT, graph.version, files)))


# ---- reading


def read_share(paths: Sequence[tuple[Path, str]], options: Mapping[str, Any], slot_count: int) -> Share:
    """Some files as one share. paths: each with its digest.  options: of the native store.

    Raises:  StoredStateInvalid naming the file, FileMissing, StorageFailed.
    """
    empty = empty_share(options)
    return joined_shares([_checked_arrays(path, digest, empty, slot_count) for path, digest in paths], options)


def _checked_arrays(path: Path, digest: str, empty: Share, slot_count: int) -> dict[str, AnyArray]:
    with checked(path, "load", expected=EXPECTED, advice=ADVICE) as content:
        same_digest(content.digest, digest)
        arrays = read_arrays(content)
        if "vertex_type" in arrays and "features" in arrays:
            arrays["features"] = _padded(arrays["features"], empty["features"])
        for name, column in arrays.items():
            if column.dtype != empty[name].dtype or column.shape[1:] != empty[name].shape[1:]:
                raise ValueError(f"{name} of {column.dtype} {column.shape}")
            if len(column) != len(arrays["id" if name in EDGE_COLUMNS else "slots"]):
                raise ValueError(f"{len(column)} rows of {name}")
            if name in ("slots", "src", "dst") and len(column) and not 0 <= column.min() <= column.max() < slot_count:
                raise ValueError(f"{name} from {column.min()} to {column.max()}, not of {slot_count} slots")
    return arrays


def _padded(rows: AnyArray, like: AnyArray) -> AnyArray:
    """Features of narrow types as a store has them, zeros to the right."""
    if rows.ndim != 2 or rows.shape[1] >= like.shape[1] or (rows.shape[1] and rows.dtype != like.dtype):
        return rows
    wide = np.zeros((len(rows), like.shape[1]), like.dtype)
    wide[:, : rows.shape[1]] = rows
    return wide


def same_digest(found: str, wanted: str) -> None:
    """Raises: ValueError, for livegnn.stored.checked."""
    if found != wanted:
        raise ValueError("it is another file than the manifest names")
