"""Serving tables on disk, for what does not fit into memory: RocksDB behind the interface of the native tables.

    "m"                                  -> version (int64) and the flags of the worker's seed buckets (128 bytes)
    "s" table (uint16) vertex (uint32)   -> neighbours (int32 each), edge ids (int64 each), rows of edges
                                            (float32 words: weight, time in two, attributes, as they are kept)
    "f" vertex (uint32)                  -> a row of float32                            keys big-endian, values little

A step is one atomic write, and an answer reads one snapshot: whole versions, without a lock. A look-up is a call into
RocksDB, so answers take some ten times as long as from memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.errors import LiveGnnError, StorageFailed, StoredStateInvalid, UsageError, VertexUnknown
from livegnn.optional import need
from livegnn.sampling.cluster.messages import PushArrays
from livegnn.sampling.presample.sample import NO_EDGES, EdgeDataSpec
from livegnn.stored import made_folder
from livegnn.types import AnyArray, Int64Array

_META = b"m"
_SAMPLE, _FEATURE = struct.Struct(">cHI"), struct.Struct(">cI")


class RocksTables:
    """Tables of a serving worker in a folder, which is made if there is none: `ServingWorker(..., tables=...)`.

    Args:    folder: for RocksDB's files.  fanouts, feature_width, edge_columns: as the spec has them.
    Raises:  DataMissing without rocksdict (the extra rocksdb); here and in every call StoredStateInvalid for files that
             RocksDB finds damaged, StorageFailed for what else it cannot do; UsageError for a push of another width.
    Source:  Helios, section 6: sample and feature tables in RocksDB.
    """

    def __init__(self, folder: Path | str, fanouts: list[int], feature_width: int, edge_columns: EdgeDataSpec) -> None:
        self._rocks: Any = need("rocksdict", "rocksdb")
        self._fanouts, self._width, self._columns = fanouts, feature_width, edge_columns
        self._folder = made_folder("RocksTables", folder)
        with self._ours():
            self._base: Any = self._rocks.Rdict(str(folder), self._rocks.Options(raw_mode=True))

    def close(self) -> None:
        """Closes the files. A second call does nothing."""
        if self._base is not None:
            self._base.close()
            self._base = None

    # ---- what ServingWorker asks

    def apply(self, pushes: list[PushArrays], seeds: AnyArray, version: int) -> None:
        """Puts in the pushes of one step at once."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for push in pushes:
            words, width = push[5].shape[1], push[9].shape[1]
            if (words, width) != (self._columns.words, self._width):
                raise UsageError(
                    f"[RocksTables] expected a push with edges of {self._columns.words} words and features of width "
                    f"{self._width}, got {words} and {width}; make the tables with the widths and columns of the spec"
                )
            self._stage(batch, push)
        batch.put(_META, struct.pack("<q", version) + np.packbits(seeds).tobytes())
        with self._ours():
            self._base.write(batch)

    def sample(
        self, tables: list[int], seeds: Int64Array, widths: list[int], *, edge_ids: bool, edge_data: bool
    ) -> tuple[Any, ...]:
        """As the native tables; one snapshot."""
        with self._ours():
            version, vertices, ids, rows, edges = self._sample(self._base.snapshot(), tables, seeds, widths)
        columns = self._columns.of_rows(edges) if edge_data else NO_EDGES
        return version, vertices, ids if edge_ids else [], rows, *columns

    def _sample(self, view: Any, tables: list[int], seeds: Int64Array, widths: list[int]) -> tuple[Any, ...]:
        version = self._check_seeds(view, seeds)
        levels, ids, edges = [seeds], [], []
        for table in tables:
            level, level_ids, level_rows = self._hop(view, table, self._fanouts[table], levels[-1])
            levels.append(level)
            ids.append(level_ids)
            edges.append(level_rows)
        rows = [self._features(view, level, width) for level, width in zip(levels, widths, strict=False)]
        return version, levels[1:], ids, rows, edges

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """RocksDB checks every block that it reads; what it refuses becomes an error that names the folder."""
        try:
            yield
        except LiveGnnError:
            raise
        except Exception as cause:  # of no class of its own
            if "Corruption" in str(cause):
                raise StoredStateInvalid(
                    f"[RocksTables] expected RocksDB's files in {self._folder}, got damaged ones ({cause}); delete the "
                    "folder, and the worker fills a new one"
                ) from cause
            raise StorageFailed(
                f"[RocksTables] expected RocksDB to read and write {self._folder}, got {cause}; look at the folder and "
                "the disk"
            ) from cause

    def contents(self, width: int) -> PushArrays:
        """Everything, as a push that fills empty tables; by table and vertex."""
        with self._ours():
            return self._contents(width)

    def _contents(self, width: int) -> PushArrays:
        keys: list[tuple[int, int]] = []
        counts, entries, owners, rows = [], [], [], []
        for key, value in self._base.snapshot().items():
            if key[:1] == b"s":
                _, table, vertex = _SAMPLE.unpack(key)
                keys.append((table, vertex))
                counts.append(len(value) // _entry_bytes(self._columns.words))
                entries.append(_entries(value, self._columns.words))
            elif key[:1] == b"f":
                owners.append(_FEATURE.unpack(key)[1])
                rows.append(np.frombuffer(value, "<f4"))
        none = np.empty(0, np.int32)
        places = np.array(keys, np.int32).reshape(-1, 2)
        neighbours = np.concatenate([none, *(each[0] for each in entries)]).astype(np.int32)
        ids = np.concatenate([np.empty(0, np.int64), *(each[1] for each in entries)])
        edges = np.concatenate([np.empty((0, self._columns.words), np.float32), *(each[2] for each in entries)])
        features = np.array(rows, np.float32).reshape(len(rows), width)
        samples = (np.ascontiguousarray(places[:, 0]), np.ascontiguousarray(places[:, 1]), np.array(counts, np.int32))
        return (*samples, neighbours, ids, edges, none, none, np.array(owners, np.int32), features, none)

    def bytes(self) -> dict[str, int]:
        """On disk and in RocksDB's buffers."""
        names = {"disk": "rocksdb.total-sst-files-size", "memory": "rocksdb.cur-size-all-mem-tables"}
        return {part: int(self._base.property_int_value(name) or 0) for part, name in names.items()}

    # ---- inside

    def _stage(self, batch: Any, push: PushArrays) -> None:
        table, vertex, count, neighbours, edge_ids, edge_rows, dropped_table, dropped, owners, rows, gone = push
        columns = (neighbours.astype("<i4"), edge_ids.astype("<i8"), edge_rows.astype("<f4"))
        ends = np.cumsum(count, dtype=np.int64)
        for t, v, first, last in zip(*(each.tolist() for each in (table, vertex, ends - count, ends)), strict=True):
            batch.put(_SAMPLE.pack(b"s", t, v), b"".join(column[first:last].tobytes() for column in columns))
        for t, v in zip(dropped_table.tolist(), dropped.tolist(), strict=True):
            batch.delete(_SAMPLE.pack(b"s", t, v))
        for v, row in zip(owners.tolist(), rows, strict=True):
            batch.put(_FEATURE.pack(b"f", v), row.astype("<f4").tobytes())
        for v in gone.tolist():
            batch.delete(_FEATURE.pack(b"f", v))

    def _check_seeds(self, view: Any, seeds: Int64Array) -> int:
        """The version, if all seeds are live and this worker's."""
        meta = _found(view, _META) or struct.pack("<q", 0) + bytes(_native.BUCKETS // 8)
        version: int = struct.unpack_from("<q", meta)[0]
        owned = np.unpackbits(np.frombuffer(meta, np.uint8, offset=8))
        buckets = _native.buckets(seeds)
        for seed, bucket in zip(seeds.tolist(), buckets.tolist(), strict=True):
            mine = bucket >= 0 and bool(owned[bucket])
            if mine and _found(view, _FEATURE.pack(b"f", seed)) is not None:
                continue
            advice = "add the vertex first" if mine or bucket < 0 else "ask through the front end, for others own it"
            raise VertexUnknown(
                "[sample] expected seeds that are live vertices of this serving worker "
                f"(version {version}), got {seed}; {advice}"
            )
        return version

    def _hop(self, view: Any, table: int, fanout: int, parents: Int64Array) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Neighbours, edge ids (-1 where there are fewer) and rows of edges; each vertex is looked up once."""
        present, places = np.unique(parents, return_inverse=True)
        neighbours, ids = (np.full((len(present), fanout), -1, np.int64) for _ in range(2))
        edges = np.zeros((len(present), fanout, self._columns.words), np.float32)
        for row, v in enumerate(present.tolist()):
            value = None if v < 0 else _found(view, _SAMPLE.pack(b"s", table, v))
            if value is not None:
                there, there_ids, rows = _entries(value, self._columns.words)
                count = len(there)
                neighbours[row, :count], ids[row, :count], edges[row, :count] = there, there_ids, rows
        where = places.reshape(parents.shape)
        return neighbours[where], ids[where], edges[where]

    def _features(self, view: Any, vertices: Int64Array, width: int) -> AnyArray:
        present, places = np.unique(vertices, return_inverse=True)
        rows = np.zeros((len(present), width), np.float32)
        for row, v in enumerate(present.tolist()):
            value = None if v < 0 else _found(view, _FEATURE.pack(b"f", v))
            if value is not None:
                rows[row] = np.frombuffer(value, "<f4", width)
        found: AnyArray = rows[places.reshape(vertices.shape)]
        return found


def _found(view: Any, key: bytes) -> bytes | None:
    try:
        value: bytes = view[key]
    except Exception as error:  # of no class of its own
        if "not found" not in str(error):
            raise
        return None
    return value


def _entry_bytes(words: int) -> int:
    return 12 + 4 * words  # a neighbour, an edge id, a row of the edge


def _entries(value: bytes, words: int) -> tuple[AnyArray, AnyArray, AnyArray]:
    count = len(value) // _entry_bytes(words)
    rows = np.frombuffer(value, "<f4", count * words, 12 * count).reshape(count, words)
    return np.frombuffer(value, "<i4", count), np.frombuffer(value, "<i8", count, 4 * count), rows
