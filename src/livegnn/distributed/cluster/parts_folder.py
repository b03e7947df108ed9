"""PartsFolder: a graph in files of shares (part_files.py), to start a cluster from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from livegnn import _native
from livegnn.distributed.cluster.captured import assembled
from livegnn.distributed.cluster.crew import Call
from livegnn.distributed.cluster.part_files import (
    ADVICE,
    DIRECTORY,
    EXPECTED,
    FORMAT,
    MANIFEST,
    PartsManifest,
    read_share,
    same_digest,
    share_name,
)
from livegnn.distributed.cluster.recipe import GraphShape, Recipe
from livegnn.distributed.cluster.shuffle import NewCut
from livegnn.distributed.partition import NewcomerRule, Newcomers, VertexParts
from livegnn.distributed.partition.by_name import Partitioner, parts_for, reads_edges
from livegnn.errors import FileMissing, UsageError
from livegnn.graph.graph import Graph
from livegnn.models.model import Model
from livegnn.stored import checked
from livegnn.stored_arrays import read_arrays
from livegnn.types import AnyArray


class PartsFolder:
    """A graph in files of shares, to start a cluster from. See sources.GraphSource; model and scales: None without.

    Raises:  FileMissing, StoredStateInvalid, naming the file; StorageFailed; UsageError for what is no path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = Path(path).absolute()
        manifest = self._manifest()
        names = [name for name in manifest.files if name != DIRECTORY]
        for name in (DIRECTORY, *names):
            if name not in manifest.files or not (self._folder / name).is_file():
                raise FileMissing(f"[load] expected {EXPECTED} at {self._folder / name}, got no such file; {ADVICE}")
        self._files = [(self._folder / name, manifest.files[name]) for name in names]
        with checked(self._folder / DIRECTORY, "load", expected=EXPECTED, advice=ADVICE) as content:
            same_digest(content.digest, manifest.files[DIRECTORY])
            self._take(read_arrays(content))
            if self.graph.version != manifest.version or names != [share_name(i) for i in range(len(names))]:
                raise ValueError("a manifest of another directory")

    def _manifest(self) -> PartsManifest:
        with checked(self._folder / MANIFEST, "load", expected=EXPECTED, advice=ADVICE) as content:
            manifest = msgspec.json.decode(content.read() or b"", type=PartsManifest)
            if not content.sealed or manifest.format != FORMAT:
                raise ValueError(f"format {manifest.format}")
        return manifest

    def _take(self, arrays: Mapping[str, AnyArray]) -> None:
        parts: dict[str, dict[str, AnyArray]] = {part: {} for part in ("graph", "parts", "model", "scale")}
        for key, array in arrays.items():
            part, _, name = key.partition(".")
            if part in parts:
                parts[part][name] = array
        self.graph, meta = Graph.from_arrays(parts["graph"]), json.loads(arrays["meta"].tobytes())
        width, widths = int(arrays["width"]), tuple(arrays["type_widths"].tolist())
        names = self.graph.vertex_types or ()
        self.shape = GraphShape.of(self.graph)._replace(
            feature_width=width, feature_widths=dict(zip(names, widths, strict=True))
        )
        self.options = {**self.graph.host.options, "feature_width": width, **self.graph.host.schema.store_options()}
        if names:
            self.options["type_widths"] = list(widths)
        self._file_of, self._edges = arrays["file_of"], int(arrays["edges"])
        if self._file_of.shape != (self.graph.slot_count,):
            raise ValueError(f"files of {len(self._file_of)} slots, not of {self.graph.slot_count}")
        self._parts = VertexParts.from_arrays(parts["parts"]) if parts["parts"] else None
        self.name: str = meta["name"]
        self.model = None if meta["model"] is None else Model.from_arrays(meta["model"], parts["model"])
        self.scales: list[list[int]] = [parts["scale"][str(k)].tolist() for k in range(meta["scales"])]

    def whole(self) -> Graph:
        """The graph in this process. Raises: as the class, of shares."""
        share = read_share(self._files, self.options, self.graph.slot_count)
        counters = self.graph.version, int(self.graph.host.store.next_edge_id)
        return Graph.from_arrays(assembled(self.graph.to_arrays(), [share], self.shape, counters))

    def parts(self, workers: int, partition: Partitioner | VertexParts | None) -> VertexParts:
        """See GraphSource. None: the parts that were saved, several of them to a worker, or each to several."""
        if reads_edges(partition):
            raise UsageError(
                f"[load] expected partition as 'hash' or VertexParts, got {partition!r}, which reads all edges; leave "
                "it out, and call repartition() of the cluster"
            )
        if partition is None:
            return VertexParts(workers) if self._parts is None else fitted(self._parts, workers)
        return parts_for("load", self.graph, workers, partition)

    def newcomers(self, parts: VertexParts, rule: NewcomerRule) -> Newcomers:
        """See GraphSource."""
        return Newcomers.counted(parts, self.graph.host.store.live().astype(np.bool_), rule=rule, edges=self._edges)

    def steps(self, recipe: Recipe, parts: VertexParts, scales: list[list[int]]) -> list[list[Call]]:
        """See GraphSource. Worker i of n reads the files i, i + n, ...; no engine starts before all are compared."""
        workers, graph = parts.parts, self.graph
        owners = np.array(parts.of_first(graph.slot_count))
        holders = (self._file_of % workers).astype(np.uint16)
        counts = graph.version, int(graph.host.store.next_edge_id)
        new = NewCut(workers, owners, holders, self.options, *counts)
        reading: list[Call] = [
            ("read_share", worker, self._files[worker::workers], self.options, graph.slot_count)
            for worker in range(workers)
        ]
        start: Call = ("start_shuffled", new, recipe, scales)
        return [reading, [start] * workers]


def fitted(parts: VertexParts, workers: int) -> VertexParts:
    """The same parts for another number of workers: worker i gets part i modulo the parts that there are, or each part
    is divided among workers by its buckets.
    """
    count = parts.parts

    def of(old: AnyArray, buckets: AnyArray) -> AnyArray:
        shares = (workers - 1 - old) // count + 1  # workers that are `old` modulo count
        return old % workers if workers <= count else old + count * ((buckets // count) % np.maximum(shares, 1))

    slots = np.arange(parts.slot_count, dtype=np.int64)
    table = of(parts.of.astype(np.int64), _native.buckets(slots).astype(np.int64))
    return VertexParts(workers, table, owners=of(parts.owners.astype(np.int64), np.arange(_native.BUCKETS)))
