"""Old edges out of memory into a Parquet file, and back.

What is away stays part of the graph: version, digest and edge ids do not change, and the store keeps, per vertex, how
many edges are away, so that a reader who would need them can be refused. A file is written as a whole (stored.py), then
the edges leave memory; they come back in one call that takes all of them or none. The graph keeps the digest of each
file, and reads nothing of one whose bytes have another. While a consumer that needs all edges is attached, the store
has copies of those that are away, in files without names.

    file      Parquet with page checksums, rows by (time, id), without a trailer: other programs read it
              src, dst: the vertices' own ids · id · time: int64 · weight: float32 · type: int32 · attr: list of float32
    metadata  "livegnn.offload": JSON {format, key, version, before, count}
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from livegnn import _native
from livegnn.errors import (
    ColumnMissing,
    DataMissing,
    FileMissing,
    LiveGnnError,
    StateMismatch,
    StoredStateInvalid,
    UsageError,
)
from livegnn.graph.consumers import Consumer
from livegnn.graph.ids import VertexIds
from livegnn.graph.schema import GraphSchema
from livegnn.graph.text_arrays import text_from_arrays, text_to_arrays
from livegnn.optional import need
from livegnn.stored import Content, checked, file_path, replaced
from livegnn.types import AnyArray, Int64Array

_FORMAT = 1
_METADATA = b"livegnn.offload"
_GROUP_ROWS = 1 << 20


@dataclass(frozen=True)
class OffloadedFile:
    """One file of edges: what of it is still away has times below `before`, and is `count` edges."""

    path: str
    key: str  # by which the file is known again where it has moved
    before: int
    count: int
    digest: str = ""  # of the file's bytes; "" for a file of livegnn 0.1, which has the checksums of its pages only


@dataclass(frozen=True)
class Offloaded:
    """What of a graph lies in files. `before` is None, and all else empty, where everything is in memory."""

    before: int | None
    count: int
    files: tuple[OffloadedFile, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the files are."""
        return tuple(file.path for file in self.files)


NOTHING = Offloaded(None, 0, ())


class Host(Protocol):
    """What of a GraphHost is read here."""

    store: _native.GraphStore
    options: dict[str, Any]
    schema: GraphSchema
    ids: VertexIds
    offloaded: Offloaded
    consumers: tuple[Consumer, ...]

    def edge_time(self, where: str, name: str, value: object) -> int:
        """A time as a number in the graph's unit."""


def offload(host: Host, before: object, path: str | os.PathLike[str]) -> Offloaded:
    """Graph.offload, under the writer's place."""
    pyarrow, parquet = need("pyarrow", "arrow"), need("pyarrow.parquet", "arrow")
    if not host.options["has_time"]:
        raise ColumnMissing("[offload] expected a graph with times, got one without; create the graph with times")
    cut = host.edge_time("offload", "before", before)
    for consumer in host.consumers:
        if consumer.edges_stay:
            raise UsageError(
                f"[offload] expected nothing attached for which edges stay in memory, got a {type(consumer).__name__}; "
                "close it first"
            )
    place = file_path("offload", path).absolute()
    if os.path.lexists(place):
        raise UsageError(f"[offload] expected a path that is not taken, got {place}; choose another")
    found = host.store.edges_before(cut)
    count = len(found["id"])
    if count == 0:
        return host.offloaded
    key = secrets.token_hex(8)
    order = np.argsort(found["time"], kind="stable")  # by (time, id), the columns being by id
    columns = {name: values[order] for name, values in found.items()}
    for end in ("src", "dst"):
        columns[end] = host.ids.external(columns[end])
    about = {"format": _FORMAT, "key": key, "version": host.store.published_version, "before": cut, "count": count}
    table = pyarrow.table({name: _arrow_column(pyarrow, values) for name, values in columns.items()})
    table = table.replace_schema_metadata({_METADATA: json.dumps(about).encode()})
    with replaced(place, "offload", sealed=False) as file:
        parquet.write_table(table, file, row_group_size=_GROUP_ROWS, write_page_checksum=True, compression="zstd")
    del table, columns, found
    known = host.store.offloaded_count
    try:
        if not host.store.has_copies and any(consumer.needs_all_edges for consumer in host.consumers):
            host.store.copy_offloaded("offload", str(place.parent), lambda: None)  # of none yet
        host.store.offload_before(cut)
    except BaseException:
        if host.store.offloaded_count == known:  # the edges are still in memory
            place.unlink(missing_ok=True)
        raise
    away = host.offloaded
    files = (*away.files, OffloadedFile(str(place), key, cut, count, file.digest))
    return Offloaded(max(file.before for file in files), away.count + count, files)


def reload(host: Host, path: str | os.PathLike[str] | None, since: object) -> tuple[int, Offloaded]:
    """Graph.reload, under the writer's place: how many edges came back, and what is away from then on."""
    cut = None if since is None else host.edge_time("reload", "since", since)
    away = host.offloaded
    chosen = list(away.files) if path is None else [_file_at(away, file_path("reload", path).absolute())]
    parts, left = [], {file.key: file for file in away.files}
    for file in chosen:
        columns = _read(host, file, cut)
        count = len(columns["id"])
        if cut is None or count == file.count:
            if count != file.count:
                expected = f"expected {file.count} edges that are away, got {count}"
                raise StoredStateInvalid(f"[reload] {file.path}: {expected}; restore the file from a copy")
            del left[file.key]
        elif cut < file.before:
            left[file.key] = replace(file, before=cut, count=file.count - count)
        parts.append(columns)
    files = tuple(left[file.key] for file in away.files if file.key in left)
    after = Offloaded(max(file.before for file in files), sum(f.count for f in files), files) if files else NOTHING
    edges = _joined(parts)
    if not edges:
        return 0, after  # nothing was away
    try:
        host.store.reload(edges, 0 if after.before is None else after.before)
    except (LiveGnnError, TypeError, KeyError, ValueError) as cause:
        raise _others("reload", chosen, cause) from cause
    return len(edges["id"]), after


def copy(host: Host, where: str) -> None:
    """Copies every edge that is away, for readers of whole lists: all or none. The caller holds the lock.

    Raises:  DataMissing, StoredStateInvalid for a file that is gone or damaged; SpillUnavailable without room.
    """
    files = host.offloaded.files
    left = iter(files)

    def columns() -> dict[str, AnyArray] | None:
        file = next(left, None)
        return None if file is None else _read(host, file, None, where)

    try:
        host.store.copy_offloaded(where, str(Path(files[-1].path).parent), columns)
    except (StateMismatch, TypeError, KeyError, ValueError) as cause:
        raise _others(where, files, cause) from cause


def _others(where: str, files: Iterable[OffloadedFile], cause: Exception) -> StoredStateInvalid:
    names = ", ".join(file.path for file in files)
    return StoredStateInvalid(f"[{where}] expected the edges that left this graph in {names}, got others ({cause})")


def _file_at(away: Offloaded, path: Path) -> OffloadedFile:
    """The file of those bytes; or, of livegnn 0.1, of that key; at the place where it is now."""
    with _opened(path) as content:
        for file in away.files:
            if file.digest == content.digest:
                return replace(file, path=str(path))
        key = _metadata(content)["key"]
        for file in away.files:
            if file.key == key and file.digest:
                raise ValueError("its bytes are not those that were written")
    for file in away.files:
        if file.key == key:
            return replace(file, path=str(path))
    raise UsageError(f"[reload] expected a file that this graph's edges are in, got {path}; see graph.offloaded.paths")


@contextmanager
def _opened(path: Path, where: str = "reload") -> Iterator[Content]:
    try:
        with checked(path, where, expected="a file that offload() wrote", advice="restore it from a copy") as content:
            yield content
    except FileMissing as cause:
        advice = "pass path=" if where == "reload" else "put it back, or graph.reload(path)"
        raise DataMissing(f"[{where}] expected the file {path}, got none; {advice} where it has moved") from cause


def _metadata(content: Content) -> dict[str, Any]:
    """What a file says of itself. Raises: ValueError, and what pyarrow raises."""
    parquet = need("pyarrow.parquet", "arrow")
    about: dict[str, Any] = json.loads(parquet.read_metadata(content).metadata[_METADATA])
    if about["format"] != _FORMAT:
        raise ValueError(f"format {about['format']!r}, not {_FORMAT}")
    return about


def _read(host: Host, file: OffloadedFile, since: int | None, where: str = "reload") -> dict[str, AnyArray]:
    """The rows of a file that are away and not older than `since`, by id, ends as slots."""
    with _opened(Path(file.path), where) as content:
        if file.digest and content.digest != file.digest:
            raise ValueError("its bytes are not those that were written")
        return _columns(host, content, file, since)


def _columns(host: Host, content: Content, file: OffloadedFile, since: int | None) -> dict[str, AnyArray]:
    """As _read, of a file whose bytes were checked. Raises: ValueError, LiveGnnError, and what pyarrow raises."""
    parquet = need("pyarrow.parquet", "arrow")
    if (key := _metadata(content)["key"]) != file.key:
        raise ValueError(f"the file of key {key}, not {file.key}")
    stored = parquet.ParquetFile(content, page_checksum_verification=True)
    groups = [group for group in range(stored.num_row_groups) if _reaches(stored.metadata.row_group(group), since)]
    table = stored.read_row_groups(groups) if groups else stored.schema_arrow.empty_table()
    columns = {name: _numpy_column(table.column(name)) for name in _names(host)}
    keep = columns["time"] < file.before
    if since is not None:
        keep &= columns["time"] >= since
    columns = {name: values[keep] for name, values in columns.items()}
    _to_slots(host, columns)
    order = np.argsort(columns["id"], kind="stable")
    return {name: np.ascontiguousarray(values[order]) for name, values in columns.items()}


def _names(host: Host) -> list[str]:
    optional = {
        "weight": host.options["has_weight"],
        "type": host.options["has_type"],
        "attr": host.options["attr_width"],
    }
    return ["src", "dst", "id", "time", *(name for name, has in optional.items() if has)]


def _reaches(group: Any, since: int | None) -> bool:
    """Whether a row group may hold a time from `since` on."""
    if since is None:
        return True
    column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "time")
    return column.statistics is None or not column.statistics.has_min_max or bool(column.statistics.max >= since)


def _to_slots(host: Host, columns: dict[str, AnyArray]) -> None:
    if not host.schema.has_types:
        for end in ("src", "dst"):
            columns[end] = host.ids.slots("reload", columns[end])
        return
    schema, types = host.schema, columns["type"]
    for end, codes in zip(("src", "dst"), schema.ends, strict=True):
        slots = np.zeros(len(types), np.int64)
        for edge_type in np.unique(types).tolist():
            rows = types == edge_type
            slots[rows] = host.ids.slots("reload", columns[end][rows], schema.vertex_types[int(codes[edge_type])])
        columns[end] = slots


def _joined(parts: list[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return {}
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(whole["id"], kind="stable")
    return {name: np.ascontiguousarray(values[order]) for name, values in whole.items()}


def _arrow_column(pyarrow: Any, values: AnyArray) -> Any:
    if values.ndim == 2:
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1])
    if values.dtype == object and len(values) and not isinstance(values[0], str):
        return pyarrow.array(values.astype(np.int64))
    return pyarrow.array(values)


def _numpy_column(column: Any) -> AnyArray:
    whole = column.combine_chunks()
    if hasattr(whole.type, "list_size"):
        rows: AnyArray = whole.flatten().to_numpy(zero_copy_only=False)
        return rows.reshape(-1, whole.type.list_size)
    values: AnyArray = whole.to_numpy(zero_copy_only=False)
    return values


# ---- saving


def to_arrays(host: Host) -> dict[str, AnyArray]:
    """What a saved graph keeps of its offloaded edges; nothing where there are none."""
    files = host.offloaded.files
    if not files:
        return {}
    arrays = host.store.offloaded_arrays()
    texts = text_to_arrays([text for file in files for text in (file.path, file.key, file.digest)])
    numbers: Int64Array = np.array([(file.before, file.count) for file in files], np.int64)
    return {**arrays, **texts, "files": numbers}


def from_arrays(host: Host, arrays: Mapping[str, AnyArray]) -> Offloaded:
    """Puts back what to_arrays() gave. Raises: KeyError, ValueError, TypeError for what it did not give."""
    if not arrays:
        return NOTHING
    texts, numbers = text_from_arrays(arrays), arrays["files"].tolist()
    if len(texts) == 2 * len(numbers):  # livegnn 0.1 kept no digests
        texts = [text for at in range(0, len(texts), 2) for text in (*texts[at : at + 2], "")]
    files = tuple(
        OffloadedFile(path, key, before, count, digest)
        for path, key, digest, (before, count) in zip(texts[::3], texts[1::3], texts[2::3], numbers, strict=True)
    )
    try:
        host.store.restore_offloaded({name: arrays[name] for name in ("out", "in", "counters")})
    except StateMismatch as cause:
        raise ValueError(str(cause)) from cause
    count = sum(file.count for file in files)
    if count != host.store.offloaded_count:
        raise ValueError(f"{count} edges in files, not {host.store.offloaded_count}")
    return Offloaded(max(file.before for file in files), count, files)
