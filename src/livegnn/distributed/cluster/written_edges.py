"""The files of edges that a PartsWriter has written, looked through once more: edges that have expired leave, and a
simple graph has no edge twice. One file is in memory at a time.

A pair is looked for among those of the same hash: pairs go to files by their hash, each of about as many rows as the
largest file of edges.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from livegnn.distributed.cluster.cut import EDGE_COLUMNS
from livegnn.distributed.cluster.part_files import read_share, share_name, write_arrays
from livegnn.errors import EdgeDuplicate
from livegnn.graph.expiry import Expiry
from livegnn.graph.graph import Graph
from livegnn.types import AnyArray, Int64Array

ROWS_MIN = 1 << 20  # of a file of pairs, where there are that many


class WrittenEdges:
    """digests: of all shares, by number; those of files that are written anew are replaced.  counts: edges by number of
    the share.  options: of the native store.
    """

    def __init__(
        self, folder: Path, digests: list[str], counts: Mapping[int, int], options: Mapping[str, Any], slot_count: int
    ) -> None:
        self._folder, self._digests, self._counts = folder, digests, dict(counts)
        self._options, self._slot_count = options, slot_count

    def drop_expired(self, expiry: Expiry, earliest: Mapping[int, int]) -> int:
        """Edges that are not alive at expiry.now leave; how many of them were no self-loops. earliest: times by share.

        Raises:  StorageFailed, StoredStateInvalid.
        """
        dropped, newest_gone = 0, expiry.now - min(expiry.durations.values())
        for number in (each for each, time in earliest.items() if time <= newest_gone):
            share = self._read(number)
            alive = expiry.alive(share["time"], share.get("type"))
            dropped += int(np.count_nonzero(~alive & (share["src"] != share["dst"])))
            kept = {name: column[alive] for name, column in share.items()}
            self._digests[number] = write_arrays(self._folder / share_name(number), kept)
            self._counts[number] = int(np.count_nonzero(alive))
        return dropped

    def refuse_duplicates(self, graph: Graph) -> None:
        """Raises: EdgeDuplicate, naming the first edge that is there again, by ids of the graph; StorageFailed."""
        rows = max(ROWS_MIN, max(self._counts.values(), default=0))
        files = -(-sum(self._counts.values()) // rows)
        found = None
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            for number in self._counts:
                self._spread(number, Path(folder), files)
            for path in sorted(Path(folder).iterdir()):
                found = min(filter(None, (found, _first_again(np.fromfile(path, np.int64)))), default=None)
        if found is not None:
            raise _duplicate(graph, *found)

    def _read(self, number: int) -> dict[str, AnyArray]:
        place = self._folder / share_name(number), self._digests[number]
        share = read_share([place], self._options, self._slot_count)
        return {name: share[name] for name in EDGE_COLUMNS if name in share}

    def _spread(self, number: int, folder: Path, files: int) -> None:
        """Appends (u, v, id) of each edge to the file of its pair."""
        share = self._read(number)
        u, v = share["src"].astype(np.int64), share["dst"].astype(np.int64)
        if self._options["undirected"]:
            u, v = np.minimum(u, v), np.maximum(u, v)
        rows = np.stack([u, v, share["id"]], axis=1)
        for place, part in _by_hash(rows, files):
            with open(folder / str(place), "ab") as file:
                part.tofile(file)


def _by_hash(rows: Int64Array, files: int) -> Iterator[tuple[int, Int64Array]]:
    """The rows by file, which is a function of the pair alone."""
    mixed = rows[:, 0].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + rows[:, 1].astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    place = (mixed >> np.uint64(32)) % np.uint64(max(files, 1))
    order = np.argsort(place, kind="stable")
    found, first = np.unique(place[order], return_index=True)
    yield from zip(found.tolist(), np.split(rows[order], first[1:]), strict=True) if len(rows) else ()


def _first_again(flat: Int64Array) -> tuple[int, int, int, int] | None:
    """(id, earlier id, u, v) of the first edge whose pair an earlier one has."""
    rows = flat.reshape(-1, 3)
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    same = np.flatnonzero((rows[1:, :2] == rows[:-1, :2]).all(axis=1))
    if not len(same):
        return None
    at = int(same[np.argmin(rows[same + 1, 2])])
    return int(rows[at + 1, 2]), int(rows[at, 2]), int(rows[at, 0]), int(rows[at, 1])


def _duplicate(graph: Graph, again: int, before: int, u: int, v: int) -> EdgeDuplicate:
    ends = np.array([u, v], np.int64)
    schema, names = graph.host.schema, graph.host.ids.external(ends).tolist()
    codes = graph.slot_types(ends).tolist() if schema.has_types else [0, 0]
    shown = " -> ".join(schema.labelled(code, name) for code, name in zip(codes, names, strict=True))
    return EdgeDuplicate(
        f"[PartsWriter] expected at most one edge between a pair in a simple graph, got {shown} as edge {before} and "
        f"edge {again}; leave one out, or write with simple=False"
    )
