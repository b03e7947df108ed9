"""PartsWriter: a graph that never was in one process, written chunk by chunk for lg.Cluster.load."""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np

from livegnn.distributed.cluster.part_files import new_folder, share_name, write_arrays, write_directory
from livegnn.distributed.cluster.recipe import GraphShape
from livegnn.errors import ColumnMissing, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import checks, load
from livegnn.graph.graph import Graph
from livegnn.graph.ids import Named, NamedIds
from livegnn.graph.schema import GraphSchema
from livegnn.types import AnyArray

_COLUMNS = ("weight", "time", "edge_type", "edge_attr")
_PROTOTYPES = {"weight": np.float32, "time": np.int64, "edge_type": np.int32, "edge_attr": np.float32}


class PartsWriter:
    """Writes the folder of a graph in parts. Its content is that of Graph(all chunks, one after another), edge ids
    included, so that a cluster of it has the bits of an Engine on that.

    Args:    path: of a new folder, which is there once the `with` block ends.  undirected, feature_dtype: as of Graph.
    Raises:  UsageError where the path is taken; StorageFailed.
    Limits:  no vertex types, no simple=, no ttl=.
    Cost:    memory of one chunk, and an entry for each vertex, with its id where there are ids=.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder, PartsWriter(f"{folder}/graph") as writer:
    ...     writer.add_vertices(np.zeros((2, 4), np.float32))
    ...     writer.add_vertices(np.ones((1, 4), np.float32))
    ...     writer.add_edges([0, 2], [1, 0])
    ...     writer
    PartsWriter(vertices=3, edges=2)
    """

    def __init__(self, path: str | os.PathLike[str], *, undirected: bool = False, feature_dtype: object = None) -> None:
        self._path, self._undirected = path, checks.flag("PartsWriter", "undirected", undirected)
        self._dtype, self._width = feature_dtype, -1
        self._ids: NamedIds | None = None
        self._index: dict[Any, int] = {}  # of ids
        self._columns: dict[str, int] | None = None  # of edges, with the width of attributes
        self._time_unit: str | None = None
        self._digests: list[str] = []
        self._counts: list[tuple[int, int]] = []  # of vertices: the share's number, and how many
        self._vertices = self._edges = self._loops = 0
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
        return f"PartsWriter(vertices={self._vertices}, edges={self._edges})"

    def add_vertices(self, features: object, *, ids: object = None) -> None:
        """The next vertices.

        Args:    features: (k, F), as of Graph; F is the same in all chunks.  ids: (k,) int64 or strings, their own
                 names; in all chunks, or in none.
        Raises:  DtypeInvalid, WidthMismatch, ValueInvalid, ColumnMissing, UsageError; then the chunk is not written.
        """
        self._refuse_closed("add_vertices")
        chunk = Graph(features, [], [], feature_dtype=self._dtype)
        rows = chunk.host.store.to_arrays()["features"]
        if self._width not in (-1, rows.shape[1]):
            raise WidthMismatch(
                f"[add_vertices] expected features of width {self._width}, as before, got {rows.shape[1]}; pad them"
            )
        slots = np.arange(self._vertices, self._vertices + len(rows), dtype=np.int64)
        known, names = self._new_names(ids, len(rows))
        self._write({"slots": slots, "features": rows})
        self._counts.append((len(self._digests) - 1, len(rows)))
        self._dtype, self._width, self._vertices = chunk.feature_dtype, rows.shape[1], self._vertices + len(rows)
        self._ids = known
        self._index.update(zip(names, slots.tolist(), strict=bool(names)))

    def _new_names(self, ids: Any, count: int) -> tuple[NamedIds | None, list[Any]]:
        """The map of all ids, and those of a chunk, none of which was there. Raises: as add_vertices."""
        if self._vertices and (ids is None) != (self._ids is None):
            raise ColumnMissing(
                "[add_vertices] expected ids for all chunks or for none, got both; give them for all, or leave them out"
            )
        if ids is None or (count == 0 and np.size(ids) == 0):  # an empty list has no kind of id
            return self._ids, []
        known = self._ids
        if known is None:
            schema, text = GraphSchema.nameless(0), checks.is_text(ids)
            known = NamedIds(schema, text, [Named(self._index)], np.zeros(0, np.int64), 0)
        names = known.listed("add_vertices", "ids", ids)
        checks.same_length("add_vertices", "ids", names, count, "features")
        listed: list[Any] = names.tolist()
        seen: set[Any] = set()
        for row, name in enumerate(listed):
            if name in self._index or name in seen:
                raise ValueInvalid(
                    f"[add_vertices] expected ids that differ, got {name!r} at row {row} again; drop one"
                )
            seen.add(name)
        return known, listed

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

        Args:    src, dst: (k,) ids: as in add_vertices, else counted from 0.  others: as of Graph, in all chunks or in
                 none.
        Raises:  VertexUnknown, ColumnMissing, and as Graph, naming the row; then the chunk is not written.
        """
        self._refuse_closed("add_edges")
        given = {"weight": weight, "time": time, "edge_type": edge_type, "edge_attr": edge_attr}
        given = {name: values for name, values in given.items() if values is not None}
        if self._ids is not None:
            src, dst = (self._ids.slots("add_edges", ids, name=end) for end, ids in (("src", src), ("dst", dst)))
        nothing = np.zeros((self._vertices, 0), np.float32)
        edges = load.check_arrays({"features": nothing, "src": src, "dst": dst, **given}, None)
        widths = dict.fromkeys(given, 0)
        if edges.edge_attr is not None:
            widths["edge_attr"] = edges.edge_attr.shape[1]
        if self._columns not in (None, widths):
            raise ColumnMissing(
                f"[add_edges] expected the columns {_shown(self._columns)} of the first edges, got {_shown(widths)}; "
                "give the same in all chunks"
            )
        unit = checks.same_unit("add_edges", "time", self._time_unit, checks.time_unit(time))
        count = len(edges.src)
        numbers = np.arange(self._edges, self._edges + count, dtype=np.int64)
        columns = {"weight": edges.weight, "time": edges.time, "type": edges.edge_type, "attr": edges.edge_attr}
        there = {name: column for name, column in columns.items() if column is not None}
        self._write({"src": edges.src, "dst": edges.dst, "id": numbers, **there})
        self._columns, self._time_unit, self._edges = widths, unit, self._edges + count
        self._loops += int(np.count_nonzero(edges.src == edges.dst))

    def _write(self, share: dict[str, AnyArray]) -> None:
        self._digests.append(write_arrays(self._folder / share_name(len(self._digests)), share))

    def _finish(self) -> None:
        if self._width < 0:
            raise UsageError("[PartsWriter] expected vertices, got none; call add_vertices")
        columns: dict[str, Any] = {name: np.zeros(0, _PROTOTYPES[name]) for name in self._columns or {}}
        if "edge_attr" in columns:
            columns["edge_attr"] = np.zeros((0, (self._columns or {})["edge_attr"]), np.float32)
        options: dict[str, Any] = {"undirected": self._undirected, "feature_dtype": self._dtype}
        if self._ids is not None:
            options["ids"] = list(self._index)
        graph = Graph(np.zeros((self._vertices, 0), np.float32), [], [], **columns, **options)
        graph.host.time_unit = self._time_unit
        numbers, counts = np.array(self._counts, np.int32).reshape(-1, 2).T
        shape = GraphShape.of(graph)._replace(feature_width=self._width)
        write_directory(
            self._folder,
            graph,
            shape,
            np.repeat(numbers, counts),
            self._digests,
            next_edge_id=self._edges,
            edges=self._edges - self._loops,
        )

    def _refuse_closed(self, where: str) -> None:
        if self._folder is None:
            raise UsageError(f"[{where}] expected a PartsWriter inside its with block, got one outside; use with")


def _shown(columns: dict[str, int] | None) -> str:
    names = [f"{name} of width {width}" if width else name for name, width in (columns or {}).items()]
    return ", ".join(names) if names else "none"
