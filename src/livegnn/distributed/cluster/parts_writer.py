"""PartsWriter: a graph that never was in one process, written chunk by chunk for lg.Cluster.load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np

from livegnn.distributed.cluster.cut import store_options
from livegnn.distributed.cluster.part_files import new_folder, share_name, write_arrays, write_directory
from livegnn.distributed.cluster.recipe import GraphShape
from livegnn.distributed.cluster.written_edges import WrittenEdges
from livegnn.distributed.cluster.written_vertices import WrittenVertices
from livegnn.errors import ColumnMissing, DtypeInvalid, UsageError, ValueInvalid
from livegnn.graph import checks, load
from livegnn.graph import float16 as halves
from livegnn.graph.expiry import Expiry, Ttl
from livegnn.graph.graph import Graph
from livegnn.graph.schema import EdgeTriple
from livegnn.types import AnyArray, Int64Array

_PROTOTYPES = {"weight": np.float32, "time": np.int64, "edge_type": np.int32, "edge_attr": np.float32}


class PartsWriter:
    """Writes the folder of a graph in parts. Its content is that of Graph(all chunks, one after another), edge ids
    included, so that a cluster of it has the bits of an Engine on that.

    Over vertex types, edges count in the order in which they come. So it is the graph of dicts where the edges of a
    type come one after another, and else that of arrays with vertex_type=.

    Args:    path: of a new folder, which is there once the `with` block ends.  undirected, simple, feature_dtype, ttl:
             as of Graph.
    Raises:  UsageError where the path is taken; StorageFailed. At the end of the block EdgeDuplicate, and what Graph
             raises for a ttl of edge types that never came; then there is no folder.
    Limits:  all vertices of a type come before those of the next.
    Cost:    memory of one chunk, and an entry for each vertex, with its id where there are ids=.  At the end ttl= reads
             the files with expired edges, and writes them anew; simple= reads all edges, in memory of a chunk or 2^20
             edges, and needs 24 bytes of disk for each.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder, PartsWriter(f"{folder}/graph") as writer:
    ...     writer.add_vertices(np.zeros((2, 4), np.float32))
    ...     writer.add_vertices(np.ones((1, 4), np.float32))
    ...     writer.add_edges([0, 2], [1, 0])
    ...     writer
    PartsWriter(vertices=3, edges=2)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        undirected: bool = False,
        simple: bool = False,
        feature_dtype: object = None,
        ttl: Ttl = None,
    ) -> None:
        self._path, self._ttl = path, dict(ttl) if isinstance(ttl, Mapping) else ttl
        self._flags = {
            name: checks.flag("PartsWriter", name, value)
            for name, value in (("undirected", undirected), ("simple", simple))
        }
        self._wanted = self._dtype = halves.check_dtype("PartsWriter", feature_dtype)
        self._vertices = WrittenVertices()
        self._edge_types: tuple[EdgeTriple, ...] = ()  # between vertices with types
        self._columns: dict[str, int] | None = None  # of edges, with the width of attributes
        self._time_unit: str | None = None
        self._digests: list[str] = []
        self._vertex_counts: dict[int, int] = {}  # by number of the share
        self._edge_counts: dict[int, int] = {}
        self._earliest: dict[int, int] = {}  # times of edges
        self._now = checks.INT64_MIN
        self._edges = self._loops = 0
        self._place = ExitStack()
        self._folder: Any = None

    def __enter__(self) -> Self:
        self._folder = self._place.enter_context(new_folder(self._path))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            if not self._place.__exit__(type(failure), failure, failure.__traceback__):
                raise
        else:
            self._place.__exit__(kind, error, trace)
        finally:
            self._folder = None

    def __repr__(self) -> str:
        return f"PartsWriter(vertices={self._vertices.count}, edges={self._edges})"

    def add_vertices(self, features: object, *, ids: object = None, vertex_type: str | None = None) -> None:
        """The next vertices.

        Args:    features: (k, F), as of Graph; F is the same in all chunks of a type.  ids: (k,) int64 or strings,
                 their own names, within their type; in all chunks of it, or in none.  vertex_type: the name of their
                 type; in all chunks, or in none.
        Raises:  DtypeInvalid, WidthMismatch, ValueInvalid, ColumnMissing, UsageError; then the chunk is not written.
        """
        self._refuse_closed("add_vertices")
        wanted = self._wanted or ("float32" if self._dtype == "float32" else None)  # which holds the others
        given = Graph(features, [], [], feature_dtype=wanted)
        rows, dtype = given.host.store.to_arrays()["features"], given.feature_dtype if given.feature_width else None
        if None not in (self._dtype, dtype) and self._dtype != dtype:
            raise DtypeInvalid(
                f"[add_vertices] expected features of {self._dtype}, as before, got {dtype}; cast them, or give "
                "feature_dtype= to PartsWriter"
            )
        chunk = self._vertices.checked(rows, ids, vertex_type)
        kinds = {} if vertex_type is None else {"vertex_type": np.full(len(rows), chunk.code, np.int32)}
        self._vertex_counts[self._write({"slots": chunk.slots, "features": rows, **kinds})] = len(rows)
        self._vertices.take(chunk)
        self._dtype = self._dtype or dtype

    def add_edges(
        self,
        src: object,
        dst: object,
        *,
        weight: object = None,
        time: object = None,
        edge_type: object = None,
        edge_attr: object = None,
    ) -> None:
        """The next edges, between vertices that were added before.

        Args:    src, dst: (k,) ids: as in add_vertices, else counted from 0 (within a type).  others: as of Graph, in
                 all chunks or in none.  edge_type: where vertices have types, the (src type, name, dst type) of all
                 edges of the chunk.
        Raises:  VertexUnknown, ColumnMissing, and as Graph, naming the row; then the chunk is not written.
        """
        self._refuse_closed("add_edges")
        given = {"weight": weight, "time": time, "edge_type": edge_type, "edge_attr": edge_attr}
        given = {name: values for name, values in given.items() if values is not None}
        triple = self._triple(given.pop("edge_type", None)) if self._vertices.typed else None
        edges = self._checked(src, dst, given, triple)
        widths = dict.fromkeys(given, 0)
        if edges.edge_attr is not None:
            widths["edge_attr"] = edges.edge_attr.shape[1]
        if self._columns not in (None, widths):
            raise ColumnMissing(
                f"[add_edges] expected the columns {_shown(self._columns)} of the first edges, got {_shown(widths)}; "
                "give the same in all chunks"
            )
        unit = checks.time_unit(time, empty=self._ttl is not None)
        unit = checks.same_unit("add_edges", "time", self._time_unit, unit)
        types = tuple(dict.fromkeys((*self._edge_types, *([] if triple is None else [triple]))))
        count = len(edges.src)
        if count:  # an empty list of times has no unit
            self._refuse_ttl(types, widths, unit)
        kinds = edges.edge_type if triple is None else np.full(count, types.index(triple), np.int32)
        numbers = np.arange(self._edges, self._edges + count, dtype=np.int64)
        columns = {"weight": edges.weight, "time": edges.time, "type": kinds, "attr": edges.edge_attr}
        there = {name: column for name, column in columns.items() if column is not None}
        number = self._write({"src": edges.src, "dst": edges.dst, "id": numbers, **there})
        self._edge_counts[number] = count
        if edges.time is not None and count:
            self._earliest[number] = int(edges.time.min())
            self._now = max(self._now, int(edges.time.max()))
        self._columns, self._time_unit, self._edge_types = widths, unit, types
        self._edges += count
        self._loops += int(np.count_nonzero(edges.src == edges.dst))

    def _checked(self, src: object, dst: object, given: dict[str, Any], triple: EdgeTriple | None) -> load.GraphArrays:
        """Edges in slots, with their columns."""
        kinds = (None, None) if triple is None else triple[::2]
        ends = {
            name: self._vertices.slots(name, ids, kind)
            for name, ids, kind in zip(("src", "dst"), (src, dst), kinds, strict=True)
        }
        return load.check_arrays({"features": np.zeros((self._vertices.count, 0), np.float32), **ends, **given}, None)

    def _triple(self, edge_type: object) -> EdgeTriple:
        """The edge type of a chunk."""
        if (
            not isinstance(edge_type, tuple)
            or len(edge_type) != 3
            or not all(isinstance(part, str) for part in edge_type)
        ):
            raise (ColumnMissing if edge_type is None else DtypeInvalid)(
                "[add_edges] expected edge_type as (src type, name, dst type), since vertices have types, got "
                f"{checks.shown(edge_type)}; name the three parts, and add the edges of other types on their own"
            )
        src, name, dst = (checks.text("add_edges", "the name of an edge type", part) for part in edge_type)
        for kind in (src, dst):
            if kind not in self._vertices.widths:
                raise ValueInvalid(
                    f"[add_edges] expected vertex types among {', '.join(map(repr, self._vertices.widths))}, got "
                    f"{kind!r} in {edge_type!r}; add its vertices first, none of them if there are none"
                )
        load.check_undirected(self._vertices.schema(((src, name, dst),)), self._flags["undirected"])
        return src, name, dst

    def _refuse_ttl(self, types: tuple[EdgeTriple, ...], columns: dict[str, int], unit: str | None) -> None:
        """Raises: as Expiry.of, of what can be said before all edge types are there."""
        schema, ttl = self._vertices.schema(types), self._ttl
        if isinstance(ttl, Mapping) and schema.has_types:
            ttl = {key: each for key, each in ttl.items() if key in types}
        has = {"has_time": "time" in columns, "has_type": schema.has_types or "edge_type" in columns}
        Expiry.of("add_edges", ttl, schema, {**has, **self._flags}, unit)

    def _write(self, share: dict[str, AnyArray]) -> int:
        """The number of the share."""
        self._digests.append(write_arrays(self._folder / share_name(len(self._digests)), share))
        return len(self._digests) - 1

    def _finish(self) -> None:
        widths = self._vertices.widths
        if not widths:
            raise UsageError("[PartsWriter] expected vertices, got none; call add_vertices")
        graph = self._graph()
        shape = GraphShape.of(graph)._replace(feature_width=max(widths.values()))
        if self._vertices.typed:
            shape = shape._replace(feature_widths=widths)
        options = store_options(graph) | {"feature_width": shape.feature_width}
        edges = WrittenEdges(self._folder, self._digests, self._edge_counts, options, self._vertices.count)
        edge_count = self._edges - self._loops
        if graph.host.expiry is not None:
            graph.host.expiry.now = self._now
            edge_count -= edges.drop_expired(graph.host.expiry, self._earliest)
        if graph.simple:
            edges.refuse_duplicates(graph)
        write_directory(
            self._folder,
            graph,
            shape,
            self._file_of(),
            self._digests,
            next_edge_id=self._edges,
            edges=edge_count,
        )

    def _graph(self) -> Graph:
        """The graph without edges and features."""
        columns: dict[str, AnyArray] = {name: np.zeros(0, _PROTOTYPES[name]) for name in self._columns or {}}
        if "edge_attr" in columns:
            columns["edge_attr"] = np.zeros((0, (self._columns or {})["edge_attr"]), np.float32)
        if self._time_unit is not None:
            columns["time"] = np.zeros(0, f"datetime64[{self._time_unit}]")
        given = self._vertices.graph_arguments(self._edge_types, columns)
        graph = Graph(**given, **self._flags, feature_dtype=self._dtype, ttl=self._ttl)
        graph.host.time_unit = self._time_unit
        return graph

    def _file_of(self) -> Int64Array:
        return np.repeat(list(self._vertex_counts), list(self._vertex_counts.values()))

    def _refuse_closed(self, where: str) -> None:
        if self._folder is None:
            raise UsageError(f"[{where}] expected a PartsWriter inside its with block, got one outside; use with")


def _shown(columns: dict[str, int] | None) -> str:
    names = [f"{name} of width {width}" if width else name for name, width in (columns or {}).items()]
    return ", ".join(names) if names else "none"
